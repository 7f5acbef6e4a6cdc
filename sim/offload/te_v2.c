/*
 * Transformer Engine's second engine for offloading whole layers
 * (transformer_engine/pytorch/cpu_offload.py): when its layers leave and come back. What they do
 * then: te_v2_layers.h.
 *
 * In its automatic mode (DefaultOffloadSynchronizer) the first N of L layers leave. Forward, on
 * entering layer i: the copies of layer i - 1 are issued, each of which waits only for the moment
 * at which its own tensor was complete; compute waits for the copies of layer i - (L - N), whose
 * device memory is let go. Backward, before layer i: everything of the layer before goes, and the
 * reload of layer i - (L - 1 - N) begins; an operator waits for the tensors it needs. So L - N
 * layers are on the device at every boundary of layers.
 *
 * In the manual mode (ManualOffloadSynchronizer) the training script calls the engine for each
 * layer. Here it does so for the layers of cpu_offloading_layers: start_offload_layer after the
 * layer's forward, release_activation_forward_gpu_memory cpu_offloading_release_after layers later,
 * start_reload_layer cpu_offloading_reload_ahead layers before its backward, both within the chunk.
 * The engine holds on to what other layers have saved too.
 */
#include <assert.h>

#include "sim/offload/systems.h"
#include "sim/offload/te_v2_layers.h"

typedef struct synchronizer {
  te_v2_layers *layers;
  bool manual;
  uint32_t resident, ahead; /* L - N and L - 1 - N; manual: layers ahead */
  uint32_t release_after;   /* manual */
} synchronizer;

static plan_stream stream_of(const settings *s)
{
  switch (s->offload.cpu_offloading_stream) {
  case OFFLOAD_STREAM_COMPUTE: return STREAM_COMPUTE;
  case OFFLOAD_STREAM_COMM: return STREAM_COMM;
  case OFFLOAD_STREAM_OWN: break;
  }
  return STREAM_D2H;
}

static void begin_manual(synchronizer *x, const rank_shape *r, arena *a)
{
  const struct offload_settings *o = &r->settings->offload;

  x->release_after = (uint32_t)o->cpu_offloading_release_after;
  x->ahead = (uint32_t)o->cpu_offloading_reload_ahead;
  x->layers =
      te_v2_layers_new(r, r->settings->derived.layer_is_offloaded, true, stream_of(r->settings), a);
}

static void begin_automatic(synchronizer *x, const rank_shape *r, arena *a)
{
  uint32_t layers = r->chunks[0].group_count - 1;
  uint32_t offloaded = (uint32_t)r->settings->offload.cpu_offloading_num_layers;
  bool *moves = ARENA_ARRAY(a, bool, layers);

  assert(r->chunk_count == 1 && "one stage, one chunk");
  assert(offloaded < layers && "the last layer stays");
  for (uint32_t layer = 0; layer < offloaded; layer++)
    moves[layer] = true;
  x->resident = layers - offloaded;
  x->ahead = x->resident - 1;
  x->layers = te_v2_layers_new(r, moves, false, STREAM_D2H, a);
}

static void *begin(const rank_shape *r, iteration_kind iteration, arena *a, diag *d)
{
  synchronizer *x = ARENA_NEW(a, synchronizer);
  (void)iteration;
  (void)d;

  x->manual = r->settings->offload.cpu_offloading_manual_synchronization;
  if (x->manual)
    begin_manual(x, r, a);
  else
    begin_automatic(x, r, a);
  return x;
}

static void iteration_begin(void *state, walk *w)
{
  synchronizer *x = state;
  te_v2_layers_keep(x->layers, w);
}

/* ---- forward ---- */

static void entry_ready(void *state, walk *w, instance_id i, uint32_t entry)
{
  synchronizer *x = state;
  te_v2_entry_ready(x->layers, w, i, entry);
}

static void group_start(void *state, walk *w, instance_id i, uint32_t group)
{
  synchronizer *x = state;
  uint32_t layer = group - 1;

  if (x->manual) return;
  if (layer > 0 && te_v2_layer_moves(x->layers, i, layer - 1))
    te_v2_start_offload(x->layers, w, i, layer - 1);
  if (layer >= x->resident && te_v2_layer_moves(x->layers, i, layer - x->resident))
    te_v2_release(x->layers, w, i, layer - x->resident);
}

/* Layers [from, to], in the order of forward. */
static void release_between(synchronizer *x, walk *w, instance_id i, uint32_t from, uint32_t to)
{
  for (uint32_t layer = from; layer <= to; layer++)
    if (te_v2_layer_moves(x->layers, i, layer)) te_v2_release(x->layers, w, i, layer);
}

static void group_commit(void *state, walk *w, instance_id i, uint32_t group)
{
  synchronizer *x = state;
  uint32_t layer = group - 1, after = x->release_after;

  if (!x->manual) return;
  if (te_v2_layer_moves(x->layers, i, layer)) te_v2_start_offload(x->layers, w, i, layer);
  if (layer + 1 == te_v2_layer_count(x->layers, i))
    release_between(x, w, i, layer > after ? layer - after : 0, layer);
  else if (layer >= after)
    release_between(x, w, i, layer - after, layer - after);
}

/* ---- backward ---- */

/* Those that the layer's backward is the time for, the last layer's for all further ahead too. */
static void start_reloads(synchronizer *x, walk *w, instance_id i, uint32_t layer)
{
  bool last = layer + 1 == te_v2_layer_count(x->layers, i);
  uint32_t nearest = x->manual && last ? 0 : x->ahead;

  for (uint32_t away = nearest; away <= x->ahead && away <= layer; away++)
    if (te_v2_layer_moves(x->layers, i, layer - away))
      te_v2_start_reload(x->layers, w, i, layer - away);
}

static void group_backward_commit(void *state, walk *w, instance_id i, uint32_t group)
{
  synchronizer *x = state;

  te_v2_finish_layer(x->layers, w, i);
  start_reloads(x, w, i, group - 1);
  te_v2_begin_backward(x->layers, w, i, group - 1);
}

static void unpack(void *state, walk *w, instance_id i, uint32_t entry)
{
  synchronizer *x = state;
  te_v2_unpack(x->layers, w, i, entry);
}

static void backward_end(void *state, walk *w, instance_id i)
{
  synchronizer *x = state;
  te_v2_backward_end(x->layers, w, i);
}

const offload_policy te_v2_policy = {
  .begin = begin,
  .iteration_begin = iteration_begin,
  .group_start = group_start,
  .entry_ready = entry_ready,
  .group_commit = group_commit,
  .group_backward_commit = group_backward_commit,
  .unpack = unpack,
  .backward_end = backward_end,
};
