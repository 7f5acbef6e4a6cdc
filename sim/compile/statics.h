/*
 * What an iteration allocates and runs besides the chunks' programs: parameters, gradient buffers,
 * optimizer states, workspaces, and the gradient reduction and optimizer step at its end.
 *
 * The warm-up iteration begins with an empty device: building the model is its first phase, workspaces
 * appear with the first forward and backward, optimizer states with the first step. A steady iteration
 * begins with all of them as residents, in the same order of allocation.
 */
#ifndef OFFSIM_SIM_COMPILE_STATICS_H
#define OFFSIM_SIM_COMPILE_STATICS_H

#include "sim/compile/walk.h"
#include "sim/residents/static_buffers.h"

void statics_begin(walk *w);         /* before the first op */
void statics_first_forward(walk *w); /* frees what an earlier step left; allocates workspaces */
void statics_first_backward(walk *w);
void statics_finish(walk *w); /* gradients, optimizer, what the step leaves in memory */

#endif
