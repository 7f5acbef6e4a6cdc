/*
 * Optimizer states that leave the device between steps (offload_optimizer_states), as the branch dev of
 * Megatron-LM had it from January to August 2026 (0a2e01fd; training/training.py, and
 * core/optimizer/cpu_offloading/optimizer_state_offloader.py). The device does the step:
 *
 *   1. A step begins: the copying stream waits for compute; the states of each parameter go to
 *      page-locked memory, then the main parameters. Gradients are zeroed. The storages are emptied, and
 *      marked by that stream.
 *   2. After the last backward, before gradients are reduced: all storages are allocated on the compute
 *      stream; the stream of copies back waits for the other one and for compute, and copies.
 *   3. Before the optimizer: compute waits for the copies back.
 *
 * In the first step there are no states yet, only main parameters. Experts have an optimizer of their
 * own, with two streams of its own; here they share the streams, in this order.
 */
#ifndef OFFSIM_SIM_COMPILE_OPTIMIZER_OFFLOAD_H
#define OFFSIM_SIM_COMPILE_OPTIMIZER_OFFLOAD_H

#include "sim/compile/walk.h"
#include "sim/residents/static_buffers.h"

/* By allocation of the list: its buffer on the device, which changes with each copy back, and on the host. */
typedef struct moving_states {
  const static_allocation_list *list;
  uint32_t *buffer, *twin;
  uint32_t *order; /* [count] allocations, as they are copied */
  uint32_t count;
} moving_states;

/* Call it once buffers exist. The twins of a steady iteration are residents. */
moving_states moving_states_of(walk *w, const static_allocation_list *list, uint32_t *buffer);

void moving_states_leave(walk *w, moving_states *m);
void moving_states_release(walk *w, const moving_states *m);
void moving_states_return(walk *w, moving_states *m);
/* The end of the first iteration: makes the twins of the states, which the second copies. */
void moving_states_end(walk *w, moving_states *m);

#endif
