/*
 * Frozen weights on the host: act_weights_out and act_weights_in (sim/offload/actions.h), with
 * offload.layer_offloading.
 *
 * A parameter moves as by `param.data = other`: the Parameter object stays the same, so autograd
 * finds a saved Parameter wherever its data is now; a saved view (a linear's transposed weight)
 * keeps the block that it was made from.
 */
#ifndef OFFSIM_SIM_COMPILE_WEIGHTS_H
#define OFFSIM_SIM_COMPILE_WEIGHTS_H

#include "sim/compile/walk.h"

/* Whether the parameter is one that moves. */
bool weights_is_on_host(const walk *w, const program_parameter *p);

/* Call it once the parameters exist: makes their host twins; in the first iteration copies the
 * weights there and frees them. */
void weights_begin(walk *w);
/* A steady iteration: takes over the weights that the previous iteration has already brought
 * back. */
void weights_brought_back(walk *w);

#endif
