/*
 * Transformer Engine's second engine for offloading whole layers, in its automatic mode
 * (transformer_engine/pytorch/cpu_offload.py, DefaultOffloadSynchronizer, OffloadableLayerState).
 *
 * The first N of L layers leave. Forward, on entering layer i: the copies of layer i - 1 are
 * issued, each of which waits only for the moment at which its own tensor was complete; compute
 * waits for the copies of layer i - (L - N), whose device memory is let go. Backward, before layer
 * i: everything of the layer before goes, and the reload of layer i - (L - 1 - N) begins; an
 * operator waits for the tensors it needs. So L - N layers are on the device at every boundary of
 * layers.
 *
 * One stream copies both ways. Reloads take compute's memory, so each waits for compute first. What
 * has the same storage is copied once. All that a layer has brought back stays until its end.
 */
#include <assert.h>

#include "sim/offload/systems.h"
#include "sim/offload/te_entries.h"

static const plan_stream copy_stream = STREAM_D2H;

typedef struct synchronizer {
  const rank_shape *rank;
  uint32_t layers, offloaded; /* L, N */
  uint32_t *first_of;         /* by entry: that whose copy it shares, itself if none; 0: it stays */
  event_id *ready;            /* by entry: complete; in backward: back on the device */
  event_id *copied;           /* by offloaded layer */
  device_buffer *held;        /* what the layer under way has brought back */
  uint32_t held_count;
  uint32_t backward_layer; /* under way, UINT32_MAX: none */
} synchronizer;

static const chunk_shape *shape_of(const synchronizer *x)
{
  return &x->rank->chunks[0];
}

static const saved_group *group_of(const synchronizer *x, uint32_t layer)
{
  return &shape_of(x)->groups[layer + 1];
}

static uint32_t entries_end(const synchronizer *x, uint32_t layer)
{
  return group_of(x, layer)->first_entry + group_of(x, layer)->entry_count;
}

/* ---- what a layer moves ---- */

static uint32_t find_first(const synchronizer *x, uint32_t layer, uint32_t entry)
{
  const saved_entry *entries = shape_of(x)->entries;

  if (!te_v2_entry_leaves(&entries[entry])) return 0;
  for (uint32_t e = group_of(x, layer)->first_entry; e < entry; e++)
    if (x->first_of[e] == e && te_v2_same_copy(&entries[e], &entries[entry])) return e;
  return entry;
}

static void find_copies(synchronizer *x)
{
  for (uint32_t layer = 0; layer < x->offloaded; layer++)
    for (uint32_t e = group_of(x, layer)->first_entry; e < entries_end(x, layer); e++)
      x->first_of[e] = find_first(x, layer, e);
}

static void *begin(const rank_shape *r, iteration_kind iteration, arena *a, diag *d)
{
  synchronizer *x = ARENA_NEW(a, synchronizer);
  (void)iteration;
  (void)d;

  assert(r->chunk_count == 1 && "one stage, one chunk");
  *x = (synchronizer){ .rank = r,
                       .layers = r->chunks[0].group_count - 1,
                       .offloaded = (uint32_t)r->settings->offload.cpu_offloading_num_layers,
                       .backward_layer = UINT32_MAX };
  assert(x->offloaded < x->layers && "the last layer stays");
  x->first_of = ARENA_ARRAY(a, uint32_t, r->chunks[0].entry_count);
  x->ready = ARENA_ARRAY(a, event_id, r->chunks[0].entry_count);
  x->held = ARENA_ARRAY(a, device_buffer, r->chunks[0].entry_count);
  x->copied = ARENA_ARRAY(a, event_id, x->layers);
  find_copies(x);
  return x;
}

/* ---- forward ---- */

static void entry_ready(void *state, walk *w, instance_id i, uint32_t entry)
{
  synchronizer *x = state;
  (void)i;

  if (x->first_of[entry] == entry) x->ready[entry] = act_record(w, STREAM_COMPUTE);
}

static void start_offload(synchronizer *x, walk *w, instance_id i, uint32_t layer)
{
  for (uint32_t e = group_of(x, layer)->first_entry; e < entries_end(x, layer); e++) {
    if (x->first_of[e] == 0) continue;
    if (x->first_of[e] != e) {
      act_share(w, i, e, x->first_of[e]);
      continue;
    }
    bool whole = te_v2_whole_storage(&shape_of(x)->entries[e]);
    act_wait(w, copy_stream, x->ready[e]);
    act_copy_out(w, i, e,
                 (offload_how){ .form = whole ? COPY_STORAGE : COPY_VIEW, .stream = copy_stream });
  }
  x->copied[layer] = act_record(w, copy_stream);
}

static void release(const synchronizer *x, walk *w, instance_id i, uint32_t layer)
{
  act_wait(w, STREAM_COMPUTE, x->copied[layer]);
  for (uint32_t e = group_of(x, layer)->first_entry; e < entries_end(x, layer); e++)
    if (x->first_of[e] != 0) act_release(w, i, e);
}

static void group_start(void *state, walk *w, instance_id i, uint32_t group)
{
  synchronizer *x = state;
  uint32_t layer = group - 1, resident = x->layers - x->offloaded;

  if (layer > 0 && layer - 1 < x->offloaded) start_offload(x, w, i, layer - 1);
  if (layer >= resident && layer - resident < x->offloaded) release(x, w, i, layer - resident);
}

/* ---- backward ---- */

static void start_reload(synchronizer *x, walk *w, instance_id i, uint32_t layer)
{
  for (uint32_t e = group_of(x, layer)->first_entry; e < entries_end(x, layer); e++) {
    uint32_t first = x->first_of[e];
    if (first == 0) continue;
    if (first != e) {
      act_share(w, i, e, first);
      x->ready[e] = x->ready[first];
      continue;
    }
    act_join(w, copy_stream, STREAM_COMPUTE);
    act_copy_in(w, i, e, copy_stream, STREAM_COMPUTE);
    x->ready[e] = act_record(w, copy_stream);
  }
}

/* From here on what the layer has brought back lives until the layer's end, whoever used it. */
static void hold_all(synchronizer *x, walk *w, instance_id i, uint32_t layer)
{
  for (uint32_t e = group_of(x, layer)->first_entry; e < entries_end(x, layer); e++)
    if (x->first_of[e] == e) x->held[x->held_count++] = act_hold(w, i, e);
}

static void finish_layer(synchronizer *x, walk *w, instance_id i)
{
  uint32_t layer = x->backward_layer;

  x->backward_layer = UINT32_MAX;
  if (layer >= x->offloaded) return;
  for (uint32_t k = 0; k < x->held_count; k++)
    act_let_go(w, x->held[k]);
  x->held_count = 0;
  for (uint32_t e = group_of(x, layer)->first_entry; e < entries_end(x, layer); e++)
    if (x->first_of[e] != 0) act_drop_host(w, i, e);
}

static void group_backward_commit(void *state, walk *w, instance_id i, uint32_t group)
{
  synchronizer *x = state;
  uint32_t layer = group - 1, ahead = x->layers - 1 - x->offloaded;

  finish_layer(x, w, i);
  x->backward_layer = layer;
  if (layer >= ahead && layer - ahead < x->offloaded) start_reload(x, w, i, layer - ahead);
  if (layer < x->offloaded) hold_all(x, w, i, layer);
}

static void unpack(void *state, walk *w, instance_id i, uint32_t entry)
{
  const synchronizer *x = state;
  assert(act_place(w, i, entry) == PLACE_DEVICE && "its reload has begun");
  (void)i;

  act_wait(w, STREAM_COMPUTE, x->ready[entry]);
}

static void backward_end(void *state, walk *w, instance_id i)
{
  finish_layer(state, w, i);
}

const offload_policy te_v2_policy = {
  .begin = begin,
  .group_start = group_start,
  .entry_ready = entry_ready,
  .group_backward_commit = group_backward_commit,
  .unpack = unpack,
  .backward_end = backward_end,
};
