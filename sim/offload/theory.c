#include "sim/offload/theory.h"

#include <string.h>

#include "sim/offload/checkpoint_inputs.h"
#include "sim/offload/chunk_order.h"
#include "sim/offload/group_table.h"
#include "sim/offload/keep_rules.h"
#include "sim/offload/stash_arenas.h"
#include "sim/offload/te_entries.h"
#include "sim/offload/torch_entries.h"
#include "sim/offload/verl_entries.h"

/* What becomes of a storage of one chunk. */
typedef struct storage {
  int64_t bytes;
  bool saved;   /* a saved tensor lies in it */
  bool held;    /* ... one that stays on the device */
  bool emptied; /* by a group that left */
  bool absent;  /* without offload it would not be there either, or the schedule holds it */
} storage;

struct offload_theory;
typedef bool (*group_rule)(const struct offload_theory *t, uint32_t position, uint32_t group);
typedef bool (*entry_rule)(const struct offload_theory *t, const chunk_shape *c, uint32_t entry);

typedef struct offload_theory {
  const rank_shape *rank;
  chunk_order order;
  group_table table;
  group_rule group_leaves;
  entry_rule entry_leaves;
  int64_t min_elements; /* of a tensor that a group empties */
  kept_groups kept;
  trl_turn turn; /* trl: of the one chunk */
} offload_theory;

static uint32_t slot_count(const chunk_shape *c)
{
  uint32_t most = 0;

  for (uint32_t e = 1; e < c->entry_count; e++)
    if (c->entries[e].slot > most) most = c->entries[e].slot;
  return most + 1;
}

static void look_at_entry(const offload_theory *t, const chunk_shape *c, uint32_t entry,
                          bool group_leaves, storage *storages)
{
  const saved_entry *e = &c->entries[entry];
  storage *s = &storages[e->slot];

  if (e->parameter || e->of_parameter) return;
  s->bytes = e->storage_bytes;
  s->saved = true;
  s->held = s->held || !(group_leaves && t->entry_leaves(t, c, entry));
  s->absent = s->absent || e->discarded || e->slot == c->input_slot;
}

static void look_at_released(const offload_theory *t, const chunk_shape *c, uint32_t slots,
                             uint32_t group, storage *storages)
{
  const saved_group *g = &c->groups[group];

  for (uint32_t k = 0; k < 4 && g->released[k] != 0; k++)
    if (g->released[k] < slots && g->released_elements[k] >= t->min_elements)
      storages[g->released[k]].emptied = true;
}

/* The schedule's reference does not keep a storage that is emptied under it. */
static bool dies(const storage *s, uint32_t slot, const chunk_shape *c)
{
  if (!s->saved) return false;
  if (s->emptied && slot == c->input_slot) return true;
  return !s->absent && (s->emptied || !s->held);
}

static int64_t freed_bytes(const offload_theory *t, uint32_t position, storage *storages)
{
  const chunk_shape *c = &t->rank->chunks[chunk_at(&t->order, position)];
  uint32_t slots = slot_count(c);
  int64_t freed = 0;

  memset(storages, 0, slots * sizeof *storages);
  for (uint32_t e = 1; e < c->entry_count; e++) {
    uint32_t group = c->entries[e].group;
    look_at_entry(t, c, e, group != 0 && t->group_leaves(t, position, group), storages);
  }
  for (uint32_t g = 1; g < c->group_count; g++)
    if (t->group_leaves(t, position, g)) look_at_released(t, c, slots, g, storages);
  for (uint32_t slot = 1; slot < slots; slot++)
    if (dies(&storages[slot], slot, c)) freed += storages[slot].bytes;
  return freed;
}

static int64_t sum_in_flight(const offload_theory *t, arena *a)
{
  uint32_t in_flight = schedule_in_flight_at_first_backward(t->rank->schedule), slots = 1;
  int64_t sum = 0;

  for (uint32_t c = 0; c < t->rank->chunk_count; c++)
    if (slot_count(&t->rank->chunks[c]) > slots) slots = slot_count(&t->rank->chunks[c]);
  storage *storages = ARENA_ARRAY(a, storage, slots);
  for (uint32_t p = 0; p < in_flight; p++)
    sum += freed_bytes(t, p, storages);
  return sum;
}

/* The first chunk to come back that has the name comes back at once, so its last group stays. */
static bool comes_back_first(const offload_theory *t, uint32_t position, uint32_t group)
{
  const chunk_groups *c = &t->table.chunks[chunk_at(&t->order, position)];
  name_id name = c->name[group];

  for (uint32_t b = 0; b < t->order.backward_count; b++) {
    uint32_t p = t->order.backward[b];
    if (t->table.chunks[chunk_at(&t->order, p)].last[name] != 0)
      return p == position && c->last[name] == group;
  }
  return false;
}

/* ---- megatron ---- */

static bool megatron_group_leaves(const offload_theory *t, uint32_t position, uint32_t group)
{
  return !t->kept.keep[t->kept.base[position] + group] && !comes_back_first(t, position, group);
}

static bool megatron_entry_leaves(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  return entry_leaves(&c->entries[entry], t->min_elements);
}

/* ---- megatron_pr1752: one group a layer, of one name; only what it empties leaves ---- */

static bool pr1752_group_leaves(const offload_theory *t, uint32_t position, uint32_t group)
{
  return !comes_back_first(t, position, group);
}

static bool pr1752_entry_leaves(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  const saved_group *g = &c->groups[c->entries[entry].group];
  (void)t;

  for (uint32_t k = 0; k < 4 && g->released[k] != 0; k++)
    if (g->released[k] == c->entries[entry].slot) return true;
  return false;
}

/* ---- paged_stash: where backward begins, what was saved last is just being packed, if it is
 * packed at all, and what is needed first has just come back ---- */

static bool stash_group_leaves(const offload_theory *t, uint32_t position, uint32_t group)
{
  uint32_t in_flight = schedule_in_flight_at_first_backward(t->rank->schedule);
  const chunk_groups *c = &t->table.chunks[chunk_at(&t->order, position)];
  bool at_the_turn = position + 1 == in_flight || t->order.backward[0] == position;

  return !at_the_turn || group != c->count;
}

static bool stash_entry_leaves(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  (void)t;

  return stash_takes(&c->entries[entry]);
}

/* The arenas stay. */
static int64_t stash_costs(const offload_theory *t, arena *a)
{
  stash_arenas arenas = stash_arenas_new(t->rank, a);

  return stash_device_bytes(&arenas);
}

/* ---- te_v1, te_v2: groups are layers, the first of which leave; none is emptied ---- */

static bool te_group_leaves(const offload_theory *t, uint32_t position, uint32_t group)
{
  (void)position;

  const settings *s = t->rank->settings;
  if (s->offload.cpu_offloading_manual_synchronization)
    return s->derived.layer_is_offloaded[group - 1];
  return group <= s->offload.cpu_offloading_num_layers;
}

static bool te_v1_leaves(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  (void)t;

  return te_v1_entry_leaves(&c->entries[entry]);
}

static bool te_v2_leaves(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  (void)t;

  return te_v2_entry_leaves(&c->entries[entry]);
}

/* ---- verl: groups are layers, all but the last of which leave ---- */

static bool verl_group_leaves(const offload_theory *t, uint32_t position, uint32_t group)
{
  const chunk_shape *c = &t->rank->chunks[chunk_at(&t->order, position)];

  return group <= verl_offloaded_layers(c->group_count - 1);
}

static bool verl_leaves(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  (void)t;

  return verl_entry_leaves(&c->entries[entry]);
}

/* ---- the engines for hidden states: inputs of checkpoints, but for the newest ---- */

static bool every_group_leaves(const offload_theory *t, uint32_t position, uint32_t group)
{
  (void)t;
  (void)position;
  (void)group;

  return true;
}

static uint32_t newer_inputs(const chunk_shape *c, uint32_t entry)
{
  uint32_t newer = 0;

  for (uint32_t e = entry + 1; e < c->entry_count; e++)
    newer += is_hidden_states(c, e);
  return newer;
}

static bool hidden_states_entry_leaves(const offload_theory *t, const chunk_shape *c,
                                       uint32_t entry)
{
  (void)t;

  return hidden_states_leave(c, entry) && newer_inputs(c, entry) >= 2;
}

static bool disk_entry_leaves(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  (void)t;

  return is_hidden_states(c, entry) && newer_inputs(c, entry) >= DISK_OUTSTANDING;
}

static bool reentrant_entry_leaves(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  (void)t;

  return is_hidden_states(c, entry) && newer_inputs(c, entry) >= 2;
}

/* ---- hooks for every saved tensor ---- */

static bool trl_leaves(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  (void)c;

  return t->turn.gone[entry];
}

static bool trl_sync_leaves(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  return trl_entry_leaves(&c->entries[entry], t->rank->settings->offload.trl_params_registered);
}

static bool save_on_cpu_leaves(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  (void)t;

  return save_on_cpu_entry_leaves(&c->entries[entry]);
}

/* ---- selective_checkpointing: what checkpoints keep of operators, but for the newest ---- */

static uint32_t newer_outputs(const chunk_shape *c, uint32_t entry)
{
  uint32_t newer = 0;

  for (uint32_t e = entry + 1; e < c->entry_count; e++)
    newer += cached_output_leaves(c, e);
  return newer;
}

static bool selective_entry_leaves(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  bool inputs = t->rank->settings->offload.selective_checkpointing_hidden_states;

  return (cached_output_leaves(c, entry) && newer_outputs(c, entry) >= 2) ||
         (inputs && hidden_states_entry_leaves(t, c, entry));
}

static const struct {
  const char *system;
  group_rule group_leaves;
  entry_rule entry_leaves;
} rules[] = {
  { "megatron", megatron_group_leaves, megatron_entry_leaves },
  { "megatron_pr1752", pr1752_group_leaves, pr1752_entry_leaves },
  { "paged_stash", stash_group_leaves, stash_entry_leaves },
  { "te_v1", te_group_leaves, te_v1_leaves },
  { "te_v2", te_group_leaves, te_v2_leaves },
  { "trl", every_group_leaves, trl_leaves },
  { "trl_sync", every_group_leaves, trl_sync_leaves },
  { "save_on_cpu", every_group_leaves, save_on_cpu_leaves },
  { "verl", verl_group_leaves, verl_leaves },
  { "axolotl_disk", every_group_leaves, disk_entry_leaves },
  { "selective_checkpointing", every_group_leaves, selective_entry_leaves },
  { "hidden_states", every_group_leaves, hidden_states_entry_leaves },
  { "hidden_states_reentrant", every_group_leaves, reentrant_entry_leaves },
};

int64_t theoretical_saving_bytes(const rank_shape *r, arena *a)
{
  offload_theory t = { .rank = r };

  for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
    if (strcmp(rules[i].system, r->settings->offload.system) == 0) {
      t.group_leaves = rules[i].group_leaves;
      t.entry_leaves = rules[i].entry_leaves;
    }
  if (t.group_leaves == NULL) return 0;
  t.order = chunk_order_new(r->schedule, r->chunk_count, a);
  t.table = group_table_new(r, a);
  if (t.entry_leaves == trl_leaves) t.turn = trl_turn_of(&r->chunks[0], r->settings, a);
  if (t.group_leaves == megatron_group_leaves) {
    t.min_elements = r->settings->offload.min_offloaded_tensor_size;
    t.kept = keep_by_rules(r->settings, r->pp_rank, &t.table, &t.order, a);
  }
  int64_t costs = t.group_leaves == stash_group_leaves ? stash_costs(&t, a) : 0;
  return sum_in_flight(&t, a) - costs - t.turn.in_stash_bytes;
}
