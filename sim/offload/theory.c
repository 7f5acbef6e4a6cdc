#include "sim/offload/theory.h"

#include <assert.h>
#include <string.h>

/* ---- rules that several systems have ---- */

bool theory_no_group(const offload_theory *t, uint32_t position, uint32_t group)
{
  assert(position < t->order.count &&
         group < t->table.chunks[chunk_at(&t->order, position)].count + 1);

  return false;
}

bool theory_every_group(const offload_theory *t, uint32_t position, uint32_t group)
{
  return !theory_no_group(t, position, group);
}

bool theory_no_entry(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  assert(entry > 0 && entry < c->entry_count);
  (void)t;

  return false;
}

bool theory_comes_back_first(const offload_theory *t, uint32_t position, uint32_t group)
{
  const chunk_groups *c = &t->table.chunks[chunk_at(&t->order, position)];
  assert(group > 0 && group <= c->count);
  name_id name = c->name[group];

  for (uint32_t b = 0; b < t->order.backward_count; b++) {
    uint32_t p = t->order.backward[b];
    assert(p < t->order.count);
    if (t->table.chunks[chunk_at(&t->order, p)].last[name] != 0)
      return p == position && c->last[name] == group;
  }
  return false;
}

/* ---- the sum ---- */

/* The fate of a storage of one chunk. */
typedef struct storage {
  int64_t bytes;
  bool saved;   /* a saved tensor is in it */
  bool held;    /* ... one that stays on the device */
  bool kept;    /* ... one of a group that stays */
  bool emptied; /* by a group that left */
  bool absent;  /* without offload it would not be alive either, or its caller keeps it */
} storage;

uint32_t theory_slot_count(const chunk_shape *c)
{
  assert(c->entry_count > 0 && "entry 0 is none");
  uint32_t most = 0;

  for (uint32_t e = 1; e < c->entry_count; e++)
    if (c->entries[e].slot > most) most = c->entries[e].slot;
  return most + 1;
}

static void look_at_entry(const offload_theory *t, const theory_rules *rules, const chunk_shape *c,
                          uint32_t entry, bool group_leaves, storage *storages)
{
  const saved_entry *e = &c->entries[entry];
  storage *s = &storages[e->slot];

  assert(entry < c->entry_count && e->group < c->group_count);
  if (e->parameter || e->of_parameter) return;
  s->bytes = e->storage_bytes;
  s->saved = true;
  s->held = s->held || !(group_leaves && rules->entry_leaves(t, c, entry));
  s->kept = s->kept || (e->group != 0 && !group_leaves);
  s->absent = s->absent || e->discarded || e->callers || e->slot == c->input_slot;
}

static void look_at_held(const chunk_shape *c, uint32_t slots, storage *storages)
{
  assert(slots > 0);
  for (uint32_t k = 0; k < c->held_count; k++)
    if (c->held[k] < slots) storages[c->held[k]].held = true;
}

static void look_at_released(const offload_theory *t, const chunk_shape *c, uint32_t slots,
                             uint32_t group, storage *storages)
{
  const saved_group *g = &c->groups[group];
  assert(group > 0 && group < c->group_count);

  for (uint32_t k = 0; k < 4 && g->released[k] != 0; k++)
    if (g->released[k] < slots && g->released_elements[k] >= t->min_elements)
      storages[g->released[k]].emptied = true;
}

/* The schedule's reference does not keep a storage alive that is emptied. */
static bool dies(const storage *s, uint32_t slot, const chunk_shape *c)
{
  bool emptied = s->emptied && !s->kept;
  assert(slot > 0 && s->bytes >= 0);

  if (!s->saved) return false;
  if (emptied && slot == c->input_slot) return true;
  return !s->absent && (emptied || !s->held);
}

static int64_t freed_bytes(const offload_theory *t, const theory_rules *rules, uint32_t position,
                           storage *storages)
{
  const chunk_shape *c = &t->rank->chunks[chunk_at(&t->order, position)];
  uint32_t slots = theory_slot_count(c);
  int64_t freed = 0;

  memset(storages, 0, slots * sizeof *storages);
  for (uint32_t e = 1; e < c->entry_count; e++) {
    uint32_t group = c->entries[e].group;
    bool group_leaves =
        group != 0 && !c->groups[group].recomputed && rules->group_leaves(t, position, group);
    look_at_entry(t, rules, c, e, group_leaves, storages);
  }
  look_at_held(c, slots, storages);
  for (uint32_t g = 1; g < c->group_count; g++)
    if (!c->groups[g].recomputed && rules->group_leaves(t, position, g))
      look_at_released(t, c, slots, g, storages);
  for (uint32_t slot = 1; slot < slots; slot++)
    if (dies(&storages[slot], slot, c)) freed += storages[slot].bytes;
  assert(freed >= 0);
  return freed;
}

static int64_t sum_in_flight(const offload_theory *t, const theory_rules *rules, arena *a)
{
  uint32_t in_flight = schedule_in_flight_at_first_backward(t->rank->schedule), slots = 1;
  int64_t sum = 0;

  for (uint32_t c = 0; c < t->rank->chunk_count; c++)
    if (theory_slot_count(&t->rank->chunks[c]) > slots)
      slots = theory_slot_count(&t->rank->chunks[c]);
  storage *storages = ARENA_ARRAY(a, storage, slots);
  assert(in_flight <= t->order.count);
  for (uint32_t p = 0; p < in_flight; p++)
    sum += freed_bytes(t, rules, p, storages);
  return sum;
}

static offload_theory theory_of(const theory_rules *rules, const rank_shape *r, arena *a)
{
  offload_theory t = { .rank = r };

  t.order = chunk_order_new(r->schedule, r->chunk_count, a);
  t.table = group_table_new(r, a);
  if (rules->prepare != NULL) rules->prepare(&t, a);
  assert(t.order.chunk_count == t.table.chunk_count);
  return t;
}

/* ---- weights that visit the device ---- */

static void hold_weights(const offload_theory *t, const theory_rules *rules, bool *held)
{
  const chunk_shape *c = only_chunk(t->rank);

  for (uint32_t e = 1; e < c->entry_count; e++) {
    const saved_entry *saved = &c->entries[e];
    bool in_forward =
        saved->group != 0 || t->rank->settings->recompute.recompute_granularity != GRANULARITY_FULL;
    bool leaves = saved->group != 0 && rules->group_leaves(t, 0, saved->group) &&
                  rules->entry_leaves(t, c, e);
    assert(saved->parameter_number < c->visiting_count);
    if (saved->of_parameter && in_forward && !leaves) held[saved->parameter_number] = true;
  }
}

int64_t theory_weight_bytes(const theory_rules *rules, const rank_shape *r, arena *a)
{
  offload_theory t = theory_of(rules, r, a);
  const chunk_shape *c = only_chunk(r);
  bool *held = ARENA_ARRAY(a, bool, c->visiting_count);
  int64_t sum = 0;

  hold_weights(&t, rules, held);
  for (uint32_t k = 1; k < c->visiting_count; k++)
    if (!held[k]) sum += c->visiting_bytes[k];
  return sum;
}

int64_t theory_saving_bytes(const theory_rules *rules, const rank_shape *r, arena *a)
{
  offload_theory t = theory_of(rules, r, a);
  int64_t costs = rules->costs != NULL ? rules->costs(&t, a) : 0;
  assert(costs >= 0);
  return sum_in_flight(&t, rules, a) - costs;
}
