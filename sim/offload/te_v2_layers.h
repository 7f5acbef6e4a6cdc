/*
 * What the layers of Transformer Engine's second engine can do, whenever it is that they do it
 * (transformer_engine/pytorch/cpu_offload.py: OffloadableLayerState, OffloadSynchronizer): te_v2.c
 * says when. A layer is numbered within its chunk, and has a state of its own for every micro-batch
 * in flight.
 *
 * One stream copies both ways. Reloads take compute's memory, so each waits for compute first. What
 * has the same storage is copied once. All that a layer has brought back stays until its end.
 */
#ifndef OFFSIM_SIM_OFFLOAD_TE_V2_LAYERS_H
#define OFFSIM_SIM_OFFLOAD_TE_V2_LAYERS_H

#include "sim/offload/actions.h"

typedef struct te_v2_layers te_v2_layers;

/* `moves[layer]`: of every chunk, what the layer saves may leave. `holds_all`: all that the engine
 * has been given of the others too stays until the end of its layer's backward. */
te_v2_layers *te_v2_layers_new(const rank_shape *r, const bool *moves, bool holds_all,
                               plan_stream copy_stream, arena *a);

uint32_t te_v2_layer_count(const te_v2_layers *x, instance_id i);
bool te_v2_layer_moves(const te_v2_layers *x, instance_id i, uint32_t layer);

/* A steady iteration: host buffers that are kept from the one before. */
void te_v2_layers_keep(te_v2_layers *x, walk *w);

void te_v2_entry_ready(te_v2_layers *x, walk *w, instance_id i, uint32_t entry);
void te_v2_start_offload(te_v2_layers *x, walk *w, instance_id i, uint32_t layer);
/* Compute waits for the copies, which must have begun. */
void te_v2_release(te_v2_layers *x, walk *w, instance_id i, uint32_t layer);
void te_v2_start_reload(te_v2_layers *x, walk *w, instance_id i, uint32_t layer);
/* Compute waits for the reload, which must have begun. */
void te_v2_unpack(te_v2_layers *x, walk *w, instance_id i, uint32_t entry);

/* A layer's backward is over: of the layer that was under way, if any. */
void te_v2_finish_layer(te_v2_layers *x, walk *w, instance_id i);
/* ... is under way, its reload has begun. */
void te_v2_begin_backward(te_v2_layers *x, walk *w, instance_id i, uint32_t layer);
/* A micro-batch is over. */
void te_v2_backward_end(te_v2_layers *x, walk *w, instance_id i);

#endif
