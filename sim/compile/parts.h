/*
 * Lowering a graph in parts (sim/graph/graph.h, graph_part): Megatron-LM's ScheduleNode, which runs
 * autograd on each part alone (pipeline_parallel/utils.py; models/common/utils.py,
 * TransformerLayerNode).
 *
 *   - each part has a stream, whose pool its memory comes from;
 *   - what a part hands over stays until its backward, even if nothing saves it, unless the part
 *     that takes it empties its storage;
 *   - a part's backward keeps the gradients that it receives until it is done, and those of tensors
 *     detached inside the layer until the layer is done. If autograd passes on such a gradient
 *     unchanged, it is copied (AccumulateGrad); a second gradient is added in a new tensor;
 *   - with delayed weight gradients the products of a layer's linears run later, in a separate run,
 *     and their operands stay until then.
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

/* Whether a part keeps the gradient, so that nothing may be added to it in place. */
bool parts_hold(const emitter *e, place_id gradient);

/* Whether the previous part already made what the host waits for: the all-to-all dispatcher copies
 * its counts to the host from there (token_dispatcher.py, cuda_dtoh_stream). */
bool parts_know_counts(const emitter *e);

/* Delays this weight gradient to the part's second run, if weight gradients are delayed. */
bool parts_delay(emitter *e, const kernel_shape *shape, const ref *reads, tensor_id weight);

#endif
