/*
 * Frozen weights that live on the host: behind act_weights_out and act_weights_in
 * (sim/offload/actions.h), for policies with weights_on_host.
 *
 * A parameter moves as `param.data = other` moves it: the tensor is the same, so autograd finds a
 * Parameter that it saved wherever it is by then; a view that it saved (a linear's transposed
 * weight) keeps the block of the moment at which it was made.
 */
#ifndef OFFSIM_SIM_COMPILE_WEIGHTS_H
#define OFFSIM_SIM_COMPILE_WEIGHTS_H

#include "sim/compile/walk.h"

/* What the layers' modules list as frozen parameters; what 4-bit weights need besides stays. */
bool weights_is_on_host(const walk *w, const program_parameter *p);

/* When the parameters are there: twins; in the first iteration the weights leave for them. */
void weights_begin(walk *w);
/* A steady iteration: what the one before has brought back already. */
void weights_brought_back(walk *w);

#endif
