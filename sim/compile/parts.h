/*
 * Lowering a graph in parts (sim/graph/graph.h, graph_part): Megatron-LM's ScheduleNode, which runs
 * autograd on each part alone (pipeline_parallel/utils.py; models/common/utils.py,
 * TransformerLayerNode).
 *
 *   - a part runs on a stream of its own, from whose pool its memory comes;
 *   - what a part hands over stays until its backward, even if nothing saves it, unless the part
 *     that takes it empties its storage;
 *   - a part's backward holds the gradients that it was given until it is done, those of tensors
 *     detached by the way until its layer is done. A gradient that autograd passes on as it is
 *     while somebody holds it is copied (AccumulateGrad); a second one is added in a new tensor;
 *   - with delayed weight gradients the products of a layer's linears wait for a run of their own,
 *     and what they read waits with them.
 */
#ifndef OFFSIM_SIM_COMPILE_PARTS_H
#define OFFSIM_SIM_COMPILE_PARTS_H

#include "sim/compile/lower.h"

void parts_start(emitter *e, arena *a);
void parts_release(emitter *e);

/* Forward: the part begins, and the one before ends; 0: the chunk ends. */
void parts_forward(emitter *e, part_id begins);
/* Backward: the last part begins; the part ends, and the one before begins. */
void parts_backward_start(emitter *e);
void parts_backward_end(emitter *e, part_id ends);

/* The chunk's backward ends. */
void parts_finish(emitter *e);

/* Whether somebody holds the gradient, so that nothing may be added to it in place. */
bool parts_hold(const emitter *e, place_id gradient);

/* Whether what the host waits for is done with the part before: the all-to-all dispatcher copies
 * its counts from there (token_dispatcher.py, cuda_dtoh_stream). */
bool parts_know_counts(const emitter *e);

/* Whether weight gradients wait for the part's second run; if so, this one does. */
bool parts_delay(emitter *e, const kernel_shape *shape, const ref *reads, tensor_id weight);

#endif
