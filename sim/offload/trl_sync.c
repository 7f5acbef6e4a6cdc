/*
 * OffloadActivations of TRL without its copying stream (trl/models/activation_offloading.py with
 * use_streams False; Axolotl's activation_offloading: legacy).
 *
 * Each saved tensor that leaves is copied on the compute stream and freed at once; it comes back on
 * the compute stream when its operator needs it. Nothing overlaps: every byte adds the link's time
 * to forward and again to backward. A tensor saved twice is copied twice.
 */
#include "sim/offload/actions.h"
#include "sim/offload/systems.h"
#include "sim/offload/torch_entries.h"

static void *begin(const rank_shape *r, iteration_kind iteration, arena *a, diag *d)
{
  assert(r->chunk_count == 1 && "one stage, one chunk");
  const rank_shape **kept = ARENA_NEW(a, const rank_shape *);
  (void)iteration;
  (void)d;

  *kept = r;
  return kept;
}

static copy_form form_of(const saved_entry *e)
{
  assert(e->bytes > 0 && !e->parameter);
  if (torch_entry_is_broadcast(e)) return COPY_STORAGE;
  return trl_entry_is_cloned(e) ? COPY_GATHERED : COPY_VIEW;
}

static void entry_ready(void *state, walk *w, instance_id i, uint32_t entry)
{
  const rank_shape *r = *(const rank_shape **)state;
  const saved_entry *e = instance_entry(r, i, entry);

  if (trl_entry_leaves(e, r->settings->offload.trl_params_registered))
    act_offload(w, i, entry, (offload_how){ .form = form_of(e), .stream = STREAM_COMPUTE });
}

static void unpack(void *state, walk *w, instance_id i, uint32_t entry)
{
  assert(act_place(w, i, entry) == PLACE_HOST && "it left when it was packed");
  (void)state;

  act_reload(w, i, entry, STREAM_COMPUTE, STREAM_COMPUTE);
}

/* ---- theory ---- */

static bool theory_entry(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  assert(entry < c->entry_count);
  return trl_entry_leaves(&c->entries[entry], t->rank->settings->offload.trl_params_registered) &&
         !torch_needs_at_once(c, entry);
}

const offload_descriptor trl_sync_system = {
  .policy = {
    .begin = begin,
    .entry_ready = entry_ready,
    .unpack = unpack,
  },
  .theory = { .group_leaves = theory_every_group, .entry_leaves = theory_entry },
  .compared = {
    .variants = {
      { "", KEY_offload_trl_params_registered, true },
      { " unregistered", KEY_offload_trl_params_registered, false },
    },
    .variant_count = 2,
  },
  .streams = {
    .leaves = "every saved tensor from 1024 bytes",
    .waits_for_copy_out = "compute, at once: the same stream",
    .memory_goes = "with its last user",
    .comes_back = "on demand",
    .into_pool_of = "compute",
  },
};
