/*
 * The step of an optimizer that keeps a part of its states on the host (optimizer_cpu_offload), as
 * Megatron-LM d98e8a64's core/optimizer/cpu_offloading/hybrid_optimizer.py issues it. Each optimizer, of
 * dense parameters and then of experts:
 *
 *   1. gradients of the parameters on the host go there, each after a cast to fp32 if it has 16 bits
 *   2. the device steps the others, and casts their main parameters to weights
 *   3. the host waits for the gradients, and steps; main parameters come back and are cast there
 *
 * Copies are on the compute stream, and 3 happens once. With overlap_cpu_optimizer_d2h_h2d gradients and
 * parameters have a stream each, and 3 happens for one parameter after the other: while the host steps
 * one, those before it come back.
 */
#ifndef OFFSIM_SIM_COMPILE_HYBRID_OPTIMIZER_H
#define OFFSIM_SIM_COMPILE_HYBRID_OPTIMIZER_H

#include "sim/compile/optimizer.h"

void hybrid_optimizer_step(walk *w, const optimizer_buffers *b);

#endif
