/*
 * Axolotl's activation_offloading: hidden_states with non-reentrant checkpoints
 * (axolotl/monkeypatch/checkpoint_activation_offload.py, CheckpointHiddenStatesOffload).
 *
 * The first tensor argument of each checkpointed layer leaves; everything else that autograd saves
 * stays, and the layer's activations are recomputed. When input number q is packed, compute waits
 * for the copy of number q - 2, which is freed: the two newest are always on the device during
 * forward, and when backward begins.
 *
 * One stream copies both ways: out after compute, back at once, into its own memory that is marked
 * as used by compute. Nothing is prefetched: the host issues the copy back of a layer's input when
 * the layer's recomputation needs it.
 *
 * Host buffers come from a pool by shape and type. Upstream keeps at most 64 of them between steps;
 * more go back to PyTorch's allocator of page-locked memory, which keeps them too, so the limit
 * does not matter here. At the end of each micro-batch's training step the host waits for both
 * streams.
 */
#include "sim/offload/hidden_states.h"

#include "sim/config/checks.h"
#include <assert.h>

#include "sim/offload/systems.h"

/* ---- the engine ---- */

static void let_oldest_go(hidden_states *x, walk *w, instance_id i)
{
  uint32_t oldest = x->packed % HIDDEN_STATES_STASH;

  if (x->packed < HIDDEN_STATES_STASH) return;
  assert(act_place(w, i, x->stash[oldest].entry) == PLACE_DEVICE && "the stash keeps the newest");
  act_wait(w, STREAM_COMPUTE, x->stash[oldest].copied);
  act_release(w, i, x->stash[oldest].entry);
}

void hidden_states_pack(hidden_states *x, walk *w, instance_id i, uint32_t entry)
{
  uint32_t newest = x->packed % HIDDEN_STATES_STASH;

  if (!hidden_states_leave(x->shape, entry)) return;
  assert(act_place(w, i, entry) == PLACE_DEVICE && "packed once");
  let_oldest_go(x, w, i);
  act_join(w, x->stream, STREAM_COMPUTE);
  act_copy_out(w, i, entry,
               (offload_how){ .form = COPY_VIEW, .pooled = true, .stream = x->stream });
  x->stash[newest].entry = entry;
  x->stash[newest].copied = act_record(w, x->stream);
  x->packed++;
  assert(x->packed < x->shape->entry_count && "each saved tensor is packed once");
}

static void take_from_stash(const hidden_states *x, walk *w, instance_id i, uint32_t entry)
{
  assert(act_place(w, i, entry) == PLACE_DEVICE && x->packed > 0);
  for (uint32_t k = 0; k < HIDDEN_STATES_STASH; k++)
    if (x->stash[k].entry == entry) act_wait(w, STREAM_COMPUTE, x->stash[k].copied);
  act_drop_host(w, i, entry);
}

static void bring_back(const hidden_states *x, walk *w, instance_id i, uint32_t entry)
{
  assert(act_place(w, i, entry) == PLACE_HOST && "its copy is done and its memory freed");
  act_reload(w, i, entry, x->stream, x->stream);
  act_join(w, STREAM_COMPUTE, x->stream);
  act_record_stream(w, i, entry, STREAM_COMPUTE);
}

void hidden_states_unpack(hidden_states *x, walk *w, instance_id i, uint32_t entry)
{
  assert(hidden_states_leave(x->shape, entry) && "the others never left");
  if (act_place(w, i, entry) == PLACE_DEVICE)
    take_from_stash(x, w, i, entry);
  else
    bring_back(x, w, i, entry);
}

void hidden_states_finish(hidden_states *x, walk *w)
{
  assert(x->packed < x->shape->entry_count && "each saved tensor is packed once");
  act_host_wait(w, act_record(w, STREAM_COMPUTE));
  act_host_wait(w, act_record(w, x->stream));
  x->packed = 0;
}

/* ---- the policy ---- */

static void *begin(const rank_shape *r, iteration_kind iteration, arena *a, diag *d)
{
  hidden_states *x = ARENA_NEW(a, hidden_states);
  (void)iteration;
  (void)d;

  *x = (hidden_states){ .shape = only_chunk(r), .stream = STREAM_D2H };
  return x;
}

static void entry_ready(void *state, walk *w, instance_id i, uint32_t entry)
{
  assert(entry > 0);
  hidden_states_pack(state, w, i, entry);
}

static void unpack(void *state, walk *w, instance_id i, uint32_t entry)
{
  assert(((const hidden_states *)state)->packed > 0 && "forward packed it");
  hidden_states_unpack(state, w, i, entry);
}

static void backward_end(void *state, walk *w, instance_id i)
{
  (void)i;

  hidden_states_finish(state, w);
}

/* ---- conditions ---- */

bool hidden_states_need_checkpoints(const settings *s, diag *d)
{
  assert(s->offload.system != SYSTEM_EMPTY);
  setting_key key = KEY_offload_system, granularity = KEY_recompute_recompute_granularity;

  return need(s, d, s->recompute.recompute_granularity == GRANULARITY_FULL, key, granularity,
              "offload system %s moves the inputs of checkpoints; it needs recompute_granularity "
              "full",
              chosen_word(s, key));
}

static bool conditions(const settings *s, diag *d)
{
  assert(s->offload.system == SYSTEM_hidden_states);
  return hidden_states_need_checkpoints(s, d) &&
         need(s, d, !s->recompute.use_reentrant, KEY_recompute_use_reentrant, KEY_offload_system,
              "offload system hidden_states needs use_reentrant false; with reentrant checkpoints "
              "the system is hidden_states_reentrant");
}

/* ---- theory ---- */

bool hidden_states_theory(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  assert(t->rank->chunk_count == 1 && entry < c->entry_count);

  return hidden_states_leave(c, entry) && hidden_states_newer(c, entry) >= HIDDEN_STATES_STASH;
}

const offload_descriptor hidden_states_system = {
  .policy = {
    .begin = begin,
    .entry_ready = entry_ready,
    .unpack = unpack,
    .backward_end = backward_end,
  },
  .theory = { .group_leaves = theory_every_group, .entry_leaves = hidden_states_theory },
  .conditions = conditions,
  .compared = {
    .variants = {
      { "", KEY_recompute_use_reentrant, false },
    },
    .variant_count = 1,
  },
  .streams = {
    .leaves = "inputs of checkpoints",
    .waits_for_copy_out = "compute, two layers later",
    .memory_goes = "then",
    .comes_back = "on demand",
    .into_pool_of = "the copying stream",
  },
};
