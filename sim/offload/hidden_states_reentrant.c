/*
 * Axolotl's activation_offloading: hidden_states with reentrant checkpoints, after Snowflake's ALST
 * (axolotl/monkeypatch/activation_offload_checkpoint.py, HiddenStatesOffloadCheckpoint).
 *
 * The checkpoint itself, not a hook, moves its first tensor argument, of any size. Forward: the
 * copy is issued on a separate stream; the device tensor stays until the copy is known to be done.
 * Upstream queries the events, and if more than two copies are left the host waits for the oldest.
 * The result of a query depends on the clock, so here no event is found done: the host waits for
 * the copy before the last two, and two tensors stay. That is an upper bound of the memory, and of
 * the time that the host waits.
 *
 * Backward: the copies back of the layer's input, unless already begun, and of the next one begin,
 * into the copying stream's memory. Upstream drops the tensors that remained at the end of forward
 * only when everything is back.
 */
#include <assert.h>

#include "sim/config/checks.h"
#include "sim/offload/actions.h"
#include "sim/offload/hidden_states.h"
#include "sim/offload/systems.h"

static const plan_stream copy_stream = STREAM_D2H;

enum { IN_FLIGHT = 2 }; /* upstream's max_inflight */

typedef struct manager {
  const chunk_shape *shape;
  uint32_t count, left; /* in this micro-batch: number taken; number not needed yet */
  uint32_t *entries;    /* by number */
  struct {
    device_buffer source;
    event_id copied;
  } in_flight[IN_FLIGHT]; /* a ring: number q is at q modulo its length */
  uint32_t ahead;         /* number of the input that is being copied back, UINT32_MAX: none */
  event_id ahead_back;    /* ... and the event after its copy */
} manager;

static void *begin(const rank_shape *r, iteration_kind iteration, arena *a, diag *d)
{
  manager *x = ARENA_NEW(a, manager);
  (void)iteration;
  (void)d;

  *x = (manager){ .shape = only_chunk(r), .ahead = UINT32_MAX };
  x->entries = ARENA_ARRAY(a, uint32_t, x->shape->entry_count);
  return x;
}

/* ---- forward ---- */

static void reap_oldest(const manager *x, walk *w)
{
  assert(x->count == 0 || x->entries[x->count - 1] > 0);
  uint32_t oldest = x->count % IN_FLIGHT;

  if (x->count < IN_FLIGHT) return;
  act_host_wait(w, x->in_flight[oldest].copied);
  act_let_go(w, x->in_flight[oldest].source);
}

static void entry_ready(void *state, walk *w, instance_id i, uint32_t entry)
{
  manager *x = state;
  assert(entry > 0 && entry < x->shape->entry_count);

  if (!is_hidden_states(x->shape, entry)) return;
  act_join(w, copy_stream, STREAM_COMPUTE);
  act_copy_out(w, i, entry, (offload_how){ .form = COPY_VIEW, .stream = copy_stream });
  event_id copied = act_record(w, copy_stream);
  device_buffer source = act_hold(w, i, entry);
  act_release(w, i, entry);
  reap_oldest(x, w);
  assert(x->left == x->count && x->count < x->shape->entry_count && "forward, then backward");
  x->in_flight[x->count % IN_FLIGHT].source = source;
  x->in_flight[x->count % IN_FLIGHT].copied = copied;
  x->entries[x->count++] = entry;
  x->left = x->count;
}

/* ---- backward ---- */

static event_id bring_back(const manager *x, walk *w, instance_id i, uint32_t number)
{
  assert(number < x->count);
  act_copy_in(w, i, x->entries[number], copy_stream, copy_stream);
  return act_record(w, copy_stream);
}

static void forget(manager *x, walk *w)
{
  uint32_t held = x->count < IN_FLIGHT ? x->count : IN_FLIGHT;

  assert(x->left == 0 && "every input is back");

  for (uint32_t k = 0; k < held; k++)
    act_let_go(w, x->in_flight[k].source);
  x->count = 0;
  x->ahead = UINT32_MAX;
}

static void unpack(void *state, walk *w, instance_id i, uint32_t entry)
{
  manager *x = state;
  assert(x->left > 0);
  uint32_t number = --x->left;
  assert(x->entries[number] == entry && "backward asks in reverse");

  event_id back = x->ahead == number ? x->ahead_back : bring_back(x, w, i, number);
  if (number > 0) {
    x->ahead = number - 1;
    x->ahead_back = bring_back(x, w, i, x->ahead);
  }
  act_wait(w, STREAM_COMPUTE, back);
  act_record_stream(w, i, entry, STREAM_COMPUTE);
  act_drop_host(w, i, entry);
  if (x->left == 0) forget(x, w);
}

/* ---- conditions ---- */

static bool conditions(const settings *s, diag *d)
{
  assert(s->offload.system == SYSTEM_hidden_states_reentrant ||
         s->offload.system == SYSTEM_axolotl_disk);
  return hidden_states_need_checkpoints(s, d) &&
         need(s, d, s->recompute.use_reentrant, KEY_recompute_use_reentrant, KEY_offload_system,
              "offload system %s uses reentrant checkpoints; use_reentrant cannot be false",
              chosen_word(s, KEY_offload_system));
}

/* ---- theory ---- */

static bool theory_entry(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  assert(t->rank->chunk_count == 1 && entry < c->entry_count);

  return is_hidden_states(c, entry) && hidden_states_newer(c, entry) >= IN_FLIGHT;
}

const offload_descriptor hidden_states_reentrant_system = {
  .policy = {
    .begin = begin,
    .entry_ready = entry_ready,
    .unpack = unpack,
  },
  .theory = { .group_leaves = theory_every_group, .entry_leaves = theory_entry },
  .conditions = conditions,
  .compared = {
    .variants = {
      { "", KEY_recompute_use_reentrant, true },
    },
    .variant_count = 1,
  },
  .streams = {
    .leaves = "the same",
    .waits_for_copy_out = "the host, two layers later",
    .memory_goes = "then",
    .comes_back = "one layer ahead",
    .into_pool_of = "the copying stream",
  },
};
