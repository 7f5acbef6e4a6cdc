#include "sim/offload/theory_rules.h"

#include "sim/offload/checkpoint_inputs.h"
#include "sim/offload/stash_arenas.h"
#include "sim/offload/te_entries.h"
#include "sim/offload/torch_entries.h"
#include "sim/offload/verl_entries.h"

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

static void megatron_prepare(offload_theory *t, arena *a)
{
  t->min_elements = t->rank->settings->offload.min_offloaded_tensor_size;
  t->kept = keep_by_rules(t->rank->settings, t->rank->pp_rank, &t->table, &t->order, a);
}

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

/* ---- hooks for every saved tensor. It comes back when its operator asks for it, and the first one
 * of backward also empties the stash: what that one has saved is there while the loss's backward
 * runs, and nothing else that has been copied ---- */

static bool is_needed_at_once(const chunk_shape *c, uint32_t entry)
{
  uint32_t last = c->entry_count - 1;

  while (c->entries[last].group == 0) /* recomputations save after everything else */
    last--;
  return c->entries[entry].operator_first == c->entries[last].operator_first;
}

static void trl_prepare(offload_theory *t, arena *a)
{
  t->copied = trl_copied(&t->rank->chunks[0], t->rank->settings, a);
}

static bool trl_leaves(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  return t->copied[entry] && !is_needed_at_once(c, entry);
}

static bool trl_sync_leaves(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  return trl_entry_leaves(&c->entries[entry], t->rank->settings->offload.trl_params_registered) &&
         !is_needed_at_once(c, entry);
}

static bool save_on_cpu_leaves(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  (void)t;

  return save_on_cpu_entry_leaves(&c->entries[entry]) && !is_needed_at_once(c, entry);
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

static const theory_rules rows[OFFLOAD_SYSTEM_COUNT] = {
  [SYSTEM_megatron] = { megatron_group_leaves, megatron_entry_leaves, megatron_prepare, NULL },
  [SYSTEM_megatron_pr1752] = { pr1752_group_leaves, pr1752_entry_leaves, NULL, NULL },
  [SYSTEM_paged_stash] = { stash_group_leaves, stash_entry_leaves, NULL, stash_costs },
  [SYSTEM_te_v1] = { te_group_leaves, te_v1_leaves, NULL, NULL },
  [SYSTEM_te_v2] = { te_group_leaves, te_v2_leaves, NULL, NULL },
  [SYSTEM_trl] = { every_group_leaves, trl_leaves, trl_prepare, NULL },
  [SYSTEM_trl_sync] = { every_group_leaves, trl_sync_leaves, NULL, NULL },
  [SYSTEM_save_on_cpu] = { every_group_leaves, save_on_cpu_leaves, NULL, NULL },
  [SYSTEM_verl] = { verl_group_leaves, verl_leaves, NULL, NULL },
  [SYSTEM_axolotl_disk] = { every_group_leaves, disk_entry_leaves, NULL, NULL },
  [SYSTEM_selective_checkpointing] = { every_group_leaves, selective_entry_leaves, NULL, NULL },
  [SYSTEM_hidden_states] = { every_group_leaves, hidden_states_entry_leaves, NULL, NULL },
  [SYSTEM_hidden_states_reentrant] = { every_group_leaves, reentrant_entry_leaves, NULL, NULL },
};

const theory_rules *theory_rules_of(system_choice system)
{
  return &rows[system];
}
