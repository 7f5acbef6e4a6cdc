/*
 * The offload of Megatron-LM's PR #1752 as it was when the pull request's table was measured
 * (megatron/core/pipeline_parallel/cpu_offload.py and megatron/core/transformer/attention.py at
 * af236f1118), with offload_modules core_attn: the inputs of core attention, query, key and value.
 *
 * One group for each layer. Forward, at a layer's commit: d2h waits for compute, and compute for
 * the copies of the previous layer, so at most one layer is being copied out. Backward: before a
 * layer compute waits for the last copy back; after it each of its start markers, one for each
 * tensor that moves, reloads one tensor of the previous layer or, after the first layer, of the
 * last layer of the chunk that comes back next. Tensors come back in no other way: a tensor that
 * was not reloaded stops the run.
 *
 * Needs virtual stages and only core_attn in offload_modules (checked with the settings).
 *
 * Two modes. A copy back relies only on compute's wait for the copies of the previous layer. So
 * nothing waits for the copies of the last layer that leaves, and `as_released` may read data that
 * has not arrived on the host. In `fixed` the h2d stream waits for them, as for each group in the
 * version that Megatron-LM has merged.
 *
 * What stays: the last layer of the first chunk of the last virtual stage, and the last layer of a
 * chunk that comes back next. There is no warm-up: every iteration is alike.
 */
#include <assert.h>

#include "sim/config/checks.h"
#include "sim/offload/actions.h"
#include "sim/offload/chunk_order.h"
#include "sim/offload/megatron_conditions.h"
#include "sim/offload/systems.h"

typedef struct handler {
  uint32_t layer;     /* number of committed groups whose backward has not run */
  uint32_t offloaded; /* layers before this one are on the host, or stay */
} handler;

typedef struct manager {
  const rank_shape *rank;
  diag *diag;
  chunk_order order;
  handler *handlers;      /* by position */
  uint32_t first_last;    /* the first position of the last virtual stage */
  uint32_t backward_next; /* place in order.backward */
  uint32_t backward_known;
  uint32_t backward_current; /* position, UINT32_MAX before the first */
  bool copied_out, copied_back;
  event_id last_out, last_back;
  uint32_t last_out_position, last_out_layer;
  bool as_released;
  uint32_t unordered_reloads;
} manager;

static uint32_t first_of_last_stage(const chunk_order *o)
{
  uint32_t p = 0;

  while (chunk_at(o, p) != o->chunk_count - 1)
    p++;
  assert(p < o->count && "the last stage has forwards");
  return p;
}

static void *begin(const rank_shape *r, iteration_kind iteration, arena *a, diag *d)
{
  manager *m = ARENA_NEW(a, manager);
  (void)iteration;

  *m = (manager){ .rank = r,
                  .diag = d,
                  .order = chunk_order_new(r->schedule, r->chunk_count, a),
                  .backward_current = UINT32_MAX,
                  .last_out_position = UINT32_MAX,
                  .as_released = r->settings->offload.mode == MODE_AS_RELEASED };
  if (m->order.defect != NULL) {
    diag_error(
        d, r->settings->at[KEY_offload_system],
        "pipeline rank %u: PR #1752 cannot predict the order of backward for this schedule and "
        "stops with an assertion; choose other num_microbatches",
        r->pp_rank);
    return NULL;
  }
  assert(r->chunk_count > 1 && "it needs virtual stages");
  m->handlers = ARENA_ARRAY(a, handler, m->order.count);
  m->first_last = first_of_last_stage(&m->order);
  return m;
}

/* ---- what a group is here ---- */

static uint32_t layer_count(const manager *m, uint32_t position)
{
  assert(m->rank->chunks[chunk_at(&m->order, position)].group_count > 1);
  return m->rank->chunks[chunk_at(&m->order, position)].group_count - 1;
}

/* Whether the group's commit empties the slot: one of core attention's arguments. */
static bool is_emptied(const saved_group *g, uint32_t slot)
{
  for (uint32_t k = 0; k < 4 && g->released[k] != 0; k++)
    if (g->released[k] == slot) return true;
  return false;
}

/* Whether the entry is the first in its group with one of core attention's arguments. */
static bool is_registered(const chunk_shape *c, uint32_t entry)
{
  assert(entry > 0 && entry < c->entry_count && c->entries[entry].group > 0);
  const saved_group *g = &c->groups[c->entries[entry].group];
  uint32_t slot = c->entries[entry].slot;

  if (c->entries[entry].parameter) return false;
  for (uint32_t e = g->first_entry; e < entry; e++)
    if (c->entries[e].slot == slot) return false;
  return is_emptied(g, slot);
}

static uint32_t start_markers(const saved_group *g)
{
  uint32_t count = 0;

  while (count < 4 && g->released[count] != 0)
    count++;
  return count;
}

/* The position that comes back next, UINT32_MAX if none is known. */
static uint32_t front_backward(const manager *m)
{
  assert(m->backward_next <= m->backward_known && m->backward_known <= m->order.backward_count);
  return m->backward_next < m->backward_known ? m->order.backward[m->backward_next] : UINT32_MAX;
}

/* ---- forward ---- */

static void forward_begin(void *state, walk *w, instance_id i)
{
  manager *m = state;
  assert(m->order.known[m->order.position[i] + 1] >= m->backward_known && "the order only grows");
  (void)w;

  m->backward_known = m->order.known[m->order.position[i] + 1];
}

static bool should_offload(const manager *m, uint32_t position)
{
  assert(m->handlers[position].layer < layer_count(m, position));
  bool last_layer = m->handlers[position].layer == layer_count(m, position) - 1;

  return !last_layer || (position != m->first_last && front_backward(m) != position);
}

static void copy_out(const manager *m, walk *w, instance_id i, uint32_t group)
{
  const chunk_shape *c = instance_chunk(m->rank, i);
  const saved_group *g = instance_group(m->rank, i, group);

  for (uint32_t e = g->first_entry; e < g->first_entry + g->entry_count; e++)
    if (is_registered(c, e))
      act_offload(w, i, e,
                  (offload_how){ .form = c->entries[e].contiguous ? COPY_VIEW : COPY_GATHERED,
                                 .record_stream = true,
                                 .stream = STREAM_D2H });
}

/* Unfused attention saves an argument more than once, as views that are not registered: their
 * storage would be emptied without a copy. */
static void check_views(const manager *m, const walk *w, instance_id i, uint32_t group)
{
  const chunk_shape *c = instance_chunk(m->rank, i);
  const saved_group *g = instance_group(m->rank, i, group);

  for (uint32_t e = g->first_entry; e < g->first_entry + g->entry_count; e++)
    if (is_emptied(g, c->entries[e].slot) && act_place(w, i, e) == PLACE_DEVICE)
      diag_error(m->diag, m->rank->settings->at[KEY_offload_system],
                 "PR #1752 does not work with unfused attention, whose views of query, key and "
                 "value are emptied without a copy; choose attention_backend fused or flash with "
                 "bf16 or fp16, or offload.system megatron");
}

static void group_commit(void *state, walk *w, instance_id i, uint32_t group)
{
  manager *m = state;
  uint32_t position = m->order.position[i];
  handler *h = &m->handlers[position];
  const saved_group *g = instance_group(m->rank, i, group);

  assert(group == h->layer + 1 && group <= layer_count(m, position) &&
         "one group a layer, in order");
  act_join(w, STREAM_D2H, STREAM_COMPUTE);
  if (m->copied_out) act_wait(w, STREAM_COMPUTE, m->last_out);
  act_join(w, STREAM_D2H, STREAM_COMPUTE);
  if (should_offload(m, position)) {
    copy_out(m, w, i, group);
    check_views(m, w, i, group);
    h->offloaded = h->layer + 1;
    m->last_out = act_record(w, STREAM_D2H);
    m->last_out_position = position;
    m->last_out_layer = h->layer;
    m->copied_out = true;
    for (uint32_t k = 0; k < start_markers(g); k++)
      act_empty_storage(w, i, g->released[k], STREAM_COMPUTE);
  }
  h->layer++;
  assert(h->offloaded <= h->layer);
}

/* ---- backward ---- */

static void group_backward_commit(void *state, walk *w, instance_id i, uint32_t group)
{
  manager *m = state;
  uint32_t position = m->order.position[i];

  if (m->backward_current != position) {
    assert(front_backward(m) == position && "chunks come as expected");
    m->backward_next++;
    m->backward_current = position;
  }
  assert(m->handlers[position].layer == group && "layers go backward in reverse");
  m->handlers[position].layer--;
  act_join(w, STREAM_H2D, STREAM_COMPUTE);
  if (m->copied_back) act_wait(w, STREAM_COMPUTE, m->last_back);
}

/* Waits for the copies of the last layer that left; compute has already waited for the earlier
 * ones. */
static void wait_for_last_out(manager *m, walk *w, uint32_t position, uint32_t layer)
{
  assert(!m->copied_out || m->last_out_layer < m->order.count * m->rank->chunks[0].group_count);
  if (m->last_out_position != position || m->last_out_layer != layer) return;
  m->last_out_position = UINT32_MAX;
  if (m->as_released)
    m->unordered_reloads++;
  else
    act_wait(w, STREAM_H2D, m->last_out);
}

/* Reloads one tensor of the layer, the first that is still on the host. */
static void bring_back_one(manager *m, walk *w, uint32_t position, uint32_t layer)
{
  instance_id i = m->order.forward[position];
  const saved_group *g = instance_group(m->rank, i, layer + 1);
  uint32_t left = 0;

  assert(layer < layer_count(m, position));
  wait_for_last_out(m, w, position, layer);
  for (uint32_t e = g->first_entry; e < g->first_entry + g->entry_count; e++) {
    if (act_place(w, i, e) != PLACE_HOST) continue;
    if (left++ == 0) act_reload(w, i, e, STREAM_H2D, STREAM_H2D);
  }
  if (left <= 1) m->handlers[position].offloaded = layer;
  m->last_back = act_record(w, STREAM_H2D);
  m->copied_back = true;
}

static void start_marker_backward(manager *m, walk *w, uint32_t position)
{
  uint32_t layer = m->handlers[position].layer, next = front_backward(m);
  assert(layer < layer_count(m, position) && "the layer's backward has begun");

  act_join(w, STREAM_H2D, STREAM_COMPUTE);
  if (layer > 0)
    bring_back_one(m, w, position, layer - 1);
  else if (next != UINT32_MAX && m->handlers[next].offloaded == layer_count(m, next))
    bring_back_one(m, w, next, layer_count(m, next) - 1);
}

static void group_backward_start(void *state, walk *w, instance_id i, uint32_t group)
{
  manager *m = state;
  assert(group > 0 && m->backward_current == m->order.position[i]);
  const saved_group *g = instance_group(m->rank, i, group);

  for (uint32_t k = 0; k < start_markers(g); k++)
    start_marker_backward(m, w, m->order.position[i]);
}

/* The released code does not copy here. */
static void unpack(void *state, walk *w, instance_id i, uint32_t entry)
{
  const manager *m = state;
  const chunk_shape *c = instance_chunk(m->rank, i);
  assert(c->entries[entry].group > 0);

  if (act_place(w, i, entry) != PLACE_HOST) return;
  diag_error(
      m->diag, m->rank->settings->at[KEY_offload_system],
      "pipeline rank %u: PR #1752 stops with an assertion: core attention of layer %d, "
      "micro-batch %u, needs a tensor that has not been copied back from the host; choose other "
      "num_microbatches or virtual stages, or offload.system megatron",
      m->rank->pp_rank, c->groups[c->entries[entry].group].layer, i / m->rank->chunk_count);
  act_reload(w, i, entry, STREAM_COMPUTE, STREAM_COMPUTE);
}

/* ---- report ---- */

static const char *defects(void *state)
{
  const manager *m = state;
  assert(m->unordered_reloads == 0 || m->as_released);

  return m->unordered_reloads != 0
             ? "the last layer to leave comes back without waiting for its copies to the host "
               "(fixed in the version that Megatron-LM has merged)"
             : NULL;
}

/* ---- conditions ---- */

static bool moves_core_attention_alone(const settings *s)
{
  const choice_list *modules = &s->offload.offload_modules;

  return modules->count == 1 && has_choice(modules, OFFLOAD_CORE_ATTN);
}

static bool has_layer_everywhere(const settings *s)
{
  int64_t count = s->parallel.pipeline_model_parallel_size * s->derived.virtual_stages;
  assert(count > 0);

  for (int64_t k = 0; k < count; k++) {
    if (s->derived.stages[k].layer_count == 0) {
      return false;
    }
  }
  return true;
}

static bool conditions(const settings *s, diag *d)
{
  assert(s->offload.system == SYSTEM_megatron_pr1752);
  setting_key key = KEY_offload_offload_modules;

  return megatron_conditions(s, d) &&
         need(s, d, moves_core_attention_alone(s), key, KEY_offload_system,
              "offload system megatron_pr1752 offloads only core_attn") &&
         need(s, d, s->derived.virtual_stages > 1, KEY_offload_system, KEY_offload_system,
              "offload system megatron_pr1752 needs virtual pipeline stages") &&
         need(s, d, has_layer_everywhere(s), KEY_offload_system,
              KEY_parallel_pipeline_model_parallel_layout,
              "offload system megatron_pr1752 needs a decoder layer on every virtual stage") &&
         need(s, d, s->recompute.recompute_granularity != GRANULARITY_FULL, KEY_offload_system,
              KEY_recompute_recompute_granularity,
              "offload system megatron_pr1752 does not work with recompute_granularity full, which "
              "leaves layers without a group");
}

/* ---- comparison ---- */

static const char *compared_modules(const settings *given, const settings *resolved, arena *a)
{
  (void)resolved;
  (void)a;

  return moves_core_attention_alone(given) ? NULL : "core_attn";
}

/* ---- theory ---- */

static bool theory_group(const offload_theory *t, uint32_t position, uint32_t group)
{
  assert(position < t->order.count && group > 0);
  return !theory_comes_back_first(t, position, group);
}

/* Only tensors whose storage the group empties leave. */
static bool theory_entry(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  assert(entry < c->entry_count && c->entries[entry].group < c->group_count);
  (void)t;

  return is_emptied(&c->groups[c->entries[entry].group], c->entries[entry].slot);
}

const offload_descriptor megatron_pr1752_system = {
  .policy = {
    .begin = begin,
    .forward_begin = forward_begin,
    .group_commit = group_commit,
    .group_backward_commit = group_backward_commit,
    .unpack = unpack,
    .group_backward_start = group_backward_start,
    .defects = defects,
  },
  .theory = { .group_leaves = theory_group, .entry_leaves = theory_entry },
  .conditions = conditions,
  .compared = { .key = KEY_offload_offload_modules, .value = compared_modules },
  .streams = {
    .leaves = "query, key and value",
    .waits_for_copy_out = "compute, before the next layer's leave",
    .memory_goes = "at once, marked",
    .comes_back = "after the next layer's backward",
    .into_pool_of = "the copying stream",
  },
};
