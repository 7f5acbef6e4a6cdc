/*
 * Axolotl's selective_checkpointing with offload (axolotl/monkeypatch/
 * selective_checkpointing_offload.py, SacOffloadEngine).
 *
 * A selective checkpoint keeps the outputs of its expensive operators; the large ones leave.
 * Forward: a copy begins after compute when its operator has been issued; compute waits for the
 * copy before the last two, whose tensor is freed. Backward: when a layer's recomputation begins,
 * the kept outputs of this layer and of the previous one are copied back in the order of saving;
 * where the operator would run, compute waits for its tensors.
 *
 * Upstream drops the two newest from the stash only when further tensors are packed: backward
 * copies them back too, and they stay on the device until the next forward has packed two. Here the
 * last micro-batch of the step frees them. Tensors that no recomputation needs (a checkpoint stops
 * before its last operators) stay on the host forever upstream; here their layer frees them.
 *
 * If the layers' inputs leave too, their engine (hidden_states.c) has a separate stream.
 */
#include <assert.h>

#include "sim/config/checks.h"
#include "sim/offload/hidden_states.h"
#include "sim/offload/systems.h"

enum { STASH = 2 }; /* upstream's max_fwd_stash_size */

/* Smaller outputs do not move (SacOffloadEngine's min_offload_bytes). */
#define OUTPUT_MIN_BYTES (INT64_C(1) << 20)

static bool output_leaves(const chunk_shape *c, uint32_t entry)
{
  assert(entry > 0 && entry < c->entry_count);
  const saved_entry *e = &c->entries[entry];

  return e->cached && e->group != 0 && e->bytes >= OUTPUT_MIN_BYTES;
}

typedef struct engine {
  const settings *settings;
  const chunk_shape *shape;
  plan_stream stream; /* copies both ways, and owns the reloaded memory */
  hidden_states inputs;
  uint32_t packed; /* in this step */
  struct {
    device_buffer source;
    event_id copied;
  } stash[STASH];    /* a ring: number q is at q modulo its length */
  bool *coming;      /* by entry: its copy back has begun ... */
  event_id *back;    /* ... and the event after it */
  int64_t backwards; /* done in this step */
} engine;

static bool moves_inputs(const engine *x)
{
  return x->settings->offload.selective_checkpointing_hidden_states;
}

static void *begin(const rank_shape *r, iteration_kind iteration, arena *a, diag *d)
{
  engine *x = ARENA_NEW(a, engine);
  const chunk_shape *c = only_chunk(r);
  (void)iteration;
  (void)d;

  *x = (engine){ .settings = r->settings,
                 .shape = c,
                 .inputs = { .shape = c, .stream = STREAM_D2H },
                 .coming = ARENA_ARRAY(a, bool, c->entry_count),
                 .back = ARENA_ARRAY(a, event_id, c->entry_count) };
  x->stream = moves_inputs(x) ? STREAM_H2D : STREAM_D2H;
  return x;
}

/* ---- forward ---- */

static void let_oldest_go(const engine *x, walk *w)
{
  uint32_t oldest = x->packed % STASH;

  if (x->packed < STASH) return;
  act_wait(w, STREAM_COMPUTE, x->stash[oldest].copied);
  act_let_go(w, x->stash[oldest].source);
}

static void pack(engine *x, walk *w, instance_id i, uint32_t entry)
{
  assert(act_place(w, i, entry) == PLACE_DEVICE && !x->coming[entry] && "packed once");
  assert(output_leaves(x->shape, entry));
  uint32_t newest = x->packed % STASH;

  let_oldest_go(x, w);
  act_join(w, x->stream, STREAM_COMPUTE);
  act_copy_out(w, i, entry,
               (offload_how){ .form = COPY_STORAGE, .pooled = true, .stream = x->stream });
  x->stash[newest].copied = act_record(w, x->stream);
  x->stash[newest].source = act_hold(w, i, entry);
  act_release(w, i, entry);
  x->packed++;
}

static void entry_ready(void *state, walk *w, instance_id i, uint32_t entry)
{
  engine *x = state;
  assert(entry > 0 && entry < x->shape->entry_count);

  if (output_leaves(x->shape, entry))
    pack(x, w, i, entry);
  else if (moves_inputs(x))
    hidden_states_pack(&x->inputs, w, i, entry);
}

/* ---- backward ---- */

static void start_restore(const engine *x, walk *w, instance_id i, uint32_t entry)
{
  if (x->coming[entry]) return;
  assert(act_place(w, i, entry) == PLACE_HOST && output_leaves(x->shape, entry));
  act_copy_in(w, i, entry, x->stream, x->stream);
  x->back[entry] = act_record(w, x->stream);
  x->coming[entry] = true;
}

static void fetch_layer(const engine *x, walk *w, instance_id i, int32_t layer)
{
  assert(layer >= -1);
  const chunk_shape *c = x->shape;

  for (uint32_t g = 1; g < c->group_count; g++) {
    uint32_t end = c->groups[g].first_entry + c->groups[g].entry_count;
    if (c->groups[g].layer != layer) continue;
    for (uint32_t e = c->groups[g].first_entry; e < end; e++)
      if (output_leaves(c, e)) start_restore(x, w, i, e);
  }
}

static void layer_begin(void *state, walk *w, instance_id i, int32_t layer, layer_pass pass)
{
  if (pass != PASS_RECOMPUTE) return;
  assert(layer >= 0 && !((const engine *)state)->settings->recompute.use_reentrant);
  fetch_layer(state, w, i, layer);
  fetch_layer(state, w, i, layer - 1);
}

static void unpack(void *state, walk *w, instance_id i, uint32_t entry)
{
  engine *x = state;

  if (!x->shape->entries[entry].cached) {
    hidden_states_unpack(&x->inputs, w, i, entry);
    return;
  }
  start_restore(x, w, i, entry);
  assert(x->coming[entry]);
  act_wait(w, STREAM_COMPUTE, x->back[entry]);
  act_record_stream(w, i, entry, STREAM_COMPUTE);
  act_drop_host(w, i, entry);
}

static void node_backward_end(void *state, walk *w, instance_id i, uint32_t first_entry,
                              uint32_t count)
{
  engine *x = state;
  assert(first_entry > 0 && first_entry + count <= x->shape->entry_count);

  for (uint32_t e = first_entry; e < first_entry + count; e++) {
    if (!output_leaves(x->shape, e)) continue;
    if (act_place(w, i, e) == PLACE_HOST) act_drop_host(w, i, e);
    x->coming[e] = false;
  }
}

static void empty_stash(engine *x, walk *w)
{
  assert(x->backwards == x->settings->derived.num_microbatches);
  uint32_t held = x->packed < STASH ? x->packed : STASH;

  for (uint32_t k = 0; k < held; k++)
    act_let_go(w, x->stash[k].source);
  x->packed = 0;
}

static void backward_end(void *state, walk *w, instance_id i)
{
  engine *x = state;
  (void)i;

  if (moves_inputs(x)) hidden_states_finish(&x->inputs, w);
  assert(x->backwards < x->settings->derived.num_microbatches);
  if (++x->backwards == x->settings->derived.num_microbatches) empty_stash(x, w);
}

/* ---- conditions ---- */

static bool conditions(const settings *s, diag *d)
{
  assert(s->offload.system == SYSTEM_selective_checkpointing);
  return need(s, d, s->recompute.selective_checkpointing, KEY_recompute_selective_checkpointing,
              KEY_offload_system,
              "offload system selective_checkpointing needs selective_checkpointing");
}

/* ---- theory ---- */

static uint32_t newer_outputs(const chunk_shape *c, uint32_t entry)
{
  assert(entry < c->entry_count);
  uint32_t newer = 0;

  for (uint32_t e = entry + 1; e < c->entry_count; e++)
    newer += output_leaves(c, e);
  return newer;
}

/* The outputs that checkpoints keep, except the newest. */
static bool theory_entry(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  assert(t->rank->settings->recompute.selective_checkpointing);
  bool inputs = t->rank->settings->offload.selective_checkpointing_hidden_states;

  return (output_leaves(c, entry) && newer_outputs(c, entry) >= STASH) ||
         (inputs && hidden_states_theory(t, c, entry));
}

const offload_descriptor selective_checkpointing_system = {
  .policy = {
    .begin = begin,
    .entry_ready = entry_ready,
    .layer_begin = layer_begin,
    .unpack = unpack,
    .node_backward_end = node_backward_end,
    .backward_end = backward_end,
  },
  .theory = { .group_leaves = theory_every_group, .entry_leaves = theory_entry },
  .conditions = conditions,
  .compared = {
    .variants = {
      { "", KEY_recompute_use_reentrant, false },
    },
    .variant_count = 1,
  },
  .streams = {
    .leaves = "what checkpoints keep of attention",
    .waits_for_copy_out = "compute, two layers later",
    .memory_goes = "then",
    .comes_back = "one layer ahead",
    .into_pool_of = "the copying stream",
  },
};
