/*
 * Which settings a comparison tries. A system reads what was given for it; where nothing was given
 * it gets what moves most: Megatron's module-level offloading every module that this model has, the
 * layer-level engines all layers but one (te_v1) or two (te_v2, whose copies then overlap).
 */
#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "sim/report/comparison.h"

enum { MOST_VARIANTS = 2, MOST_RECOMPUTES = 3, MOST_FOR_SYSTEM = MOST_VARIANTS * MOST_RECOMPUTES };

typedef struct candidate_list {
  candidate *items;
  uint32_t count;
} candidate_list;

/* ---- what differs within a system ---- */

/* Settings that a system cannot do without, and those whose effect on it users ask about. */
typedef struct variant {
  system_choice system;
  const char *title, *key;
  size_t member; /* of `settings`, a FLAG */
  bool value;
} variant;

#define FLAG_KEY(section, key) #key, offsetof(settings, section.key)

static const variant variants[] = {
  { SYSTEM_trl, "", FLAG_KEY(offload, trl_params_registered), true },
  { SYSTEM_trl, " unregistered", FLAG_KEY(offload, trl_params_registered), false },
  { SYSTEM_trl_sync, "", FLAG_KEY(offload, trl_params_registered), true },
  { SYSTEM_trl_sync, " unregistered", FLAG_KEY(offload, trl_params_registered), false },
  { SYSTEM_hidden_states, "", FLAG_KEY(recompute, use_reentrant), false },
  { SYSTEM_hidden_states_reentrant, "", FLAG_KEY(recompute, use_reentrant), true },
  { SYSTEM_selective_checkpointing, "", FLAG_KEY(recompute, use_reentrant), false },
};

enum { VARIANTS = sizeof variants / sizeof *variants };

static void add_set(candidate *c, const char *key, const char *value, arena *a)
{
  assert(c->set_count < CANDIDATE_SETS);
  c->sets[c->set_count++] = arena_printf(a, "%s=%s", key, value);
}

static void set_flag(candidate *c, const char *key, bool is, bool wanted, arena *a)
{
  if (is != wanted) add_set(c, key, wanted ? "true" : "false", a);
}

static void set_variant(candidate *c, const settings *given, const variant *v, arena *a)
{
  set_flag(c, v->key, *(const bool *)((const char *)given + v->member), v->value, a);
}

static void set_number(candidate *c, const char *key, int64_t value, arena *a)
{
  add_set(c, key, arena_printf(a, "%" PRId64, value), a);
}

/* ---- what each system needs ---- */

/* Of the modules that offload_modules knows, those that this model has. */
static const char *modules_of_model(const settings *resolved, arena *a)
{
  const struct model_settings *m = &resolved->model;
  bool moe = m->num_experts > 0, fused = m->use_transformer_engine_op_fuser;
  return arena_printf(a, "%sqkv_linear,core_attn,attn_proj%s%s",
                      m->multi_latent_attention ? "attn_norm," : "", moe ? ",mlp_norm" : "",
                      !moe    ? ""
                      : fused ? ",fused_group_mlp"
                              : ",expert_fc1,moe_act");
}

static void need_modules(candidate *c, const settings *given, const settings *resolved, arena *a)
{
  bool variant_of_megatron = c->system == SYSTEM_megatron_pr1752;
  const choice_list *modules = &given->offload.offload_modules;
  bool core_attention_alone = modules->count == 1 && has_choice(modules, OFFLOAD_CORE_ATTN);
  if (variant_of_megatron && !core_attention_alone)
    add_set(c, "offload_modules", "core_attn", a);
  else if (c->system == SYSTEM_megatron && modules->count == 0)
    add_set(c, "offload_modules", modules_of_model(resolved, a), a);
}

static void need_layers(candidate *c, const settings *given, arena *a)
{
  bool second = c->system == SYSTEM_te_v2;
  int64_t most = given->model.num_layers - (second ? 2 : 1);
  bool by_hand = second && given->offload.cpu_offloading_manual_synchronization;
  if (given->offload.cpu_offloading_num_layers == 0 && !by_hand)
    set_number(c, "cpu_offloading_num_layers", most < 1 ? 1 : most, a);
}

static void leave_manual_mode(candidate *c, const settings *given, arena *a)
{
  const struct offload_settings *o = &given->offload;
  set_flag(c, "cpu_offloading_manual_synchronization", o->cpu_offloading_manual_synchronization,
           false, a);
  set_flag(c, "cpu_offloading_retain_pinned_cpu_buffers",
           o->cpu_offloading_retain_pinned_cpu_buffers, false, a);
  if (o->cpu_offloading_layers.count > 0) add_set(c, "cpu_offloading_layers", "", a);
  if (o->cpu_offloading_stream != OFFLOAD_STREAM_OWN) add_set(c, "cpu_offloading_stream", "", a);
}

/* What was given for another system would turn that on too, or be refused. */
static void leave_other_scopes(candidate *c, const settings *given, const offload_system *row,
                               arena *a)
{
  const struct offload_settings *o = &given->offload;
  if (row->scope != OFFLOAD_MODULES)
    set_flag(c, "fine_grained_activation_offloading", o->fine_grained_activation_offloading, false,
             a);
  if (row->scope != OFFLOAD_EXPERTS) set_flag(c, "moe_paged_stash", o->moe_paged_stash, false, a);
  if (c->system != SYSTEM_te_v2) leave_manual_mode(c, given, a);
  if (row->scope == OFFLOAD_LAYERS && row->implementation == OFFLOAD_ON_MEGATRON) return;
  set_flag(c, "cpu_offloading", o->cpu_offloading, false, a);
  if (o->cpu_offloading_num_layers != 0) set_number(c, "cpu_offloading_num_layers", 0, a);
}

/* ---- recomputation ---- */

typedef struct recompute_list {
  recompute_granularity_choice items[MOST_RECOMPUTES];
  uint32_t count;
} recompute_list;

static void add_recompute(recompute_list *l, recompute_granularity_choice granularity)
{
  for (uint32_t i = 0; i < l->count; i++)
    if (l->items[i] == granularity) return;
  l->items[l->count++] = granularity;
}

static recompute_list recomputes_for(const settings *resolved, const offload_system *row)
{
  recompute_list l = { .count = 0 };
  if (uses_hf(resolved)) add_recompute(&l, GRANULARITY_NONE);
  add_recompute(&l, resolved->recompute.recompute_granularity);
  if (uses_hf(resolved) || row->implementation == OFFLOAD_ON_ANY)
    add_recompute(&l, GRANULARITY_FULL);
  return l;
}

static const char *recompute_word(recompute_granularity_choice granularity)
{
  return choice_word(KEY_recompute_recompute_granularity, granularity);
}

static void set_recompute(candidate *c, const settings *given, arena *a)
{
  if (given->recompute.recompute_granularity == c->recompute) return;
  add_set(c, "recompute_granularity", recompute_word(c->recompute), a);
  if (c->recompute == GRANULARITY_NONE)
    set_flag(c, "recompute.selective_checkpointing", given->recompute.selective_checkpointing,
             false, a);
  if (c->recompute != GRANULARITY_FULL) return;
  if (given->recompute.recompute_method == METHOD_NONE)
    add_set(c, "recompute_method", "uniform", a);
  if (given->recompute.recompute_num_layers == UNSET) set_number(c, "recompute_num_layers", 1, a);
}

static const char *title_of_recompute(recompute_granularity_choice granularity, arena *a)
{
  return granularity == GRANULARITY_NONE
             ? ""
             : arena_printf(a, ", %s recompute", recompute_word(granularity));
}

/* ---- the candidates ---- */

static candidate new_candidate(const settings *given, const settings *resolved,
                               system_choice system, const variant *v,
                               recompute_granularity_choice recompute, arena *a)
{
  const offload_system *row = &offload_systems[system];
  candidate c = { .system = system, .recompute = recompute };
  c.name = arena_printf(a, "%s%s%s", row->name, v != NULL ? v->title : "",
                        title_of_recompute(recompute, a));
  add_set(&c, "offload.system", row->name, a);
  if (given->model.implementation == IMPLEMENTATION_EMPTY && uses_hf(resolved))
    add_set(&c, "model.implementation", "hf", a);
  leave_other_scopes(&c, given, row, a);
  if (row->scope == OFFLOAD_MODULES) need_modules(&c, given, resolved, a);
  if (row->scope == OFFLOAD_LAYERS && row->implementation == OFFLOAD_ON_MEGATRON)
    need_layers(&c, given, a);
  set_recompute(&c, given, a);
  if (v != NULL) set_variant(&c, given, v, a);
  return c;
}

/* The variants of a system; a single NULL where it has none. */
static uint32_t variants_of(system_choice system, const variant *found[MOST_VARIANTS])
{
  uint32_t count = 0;
  found[0] = NULL;
  for (uint32_t i = 0; i < VARIANTS; i++)
    if (variants[i].system == system) found[count++] = &variants[i];
  return count == 0 ? 1 : count;
}

static void add_system(candidate_list *l, const settings *given, const settings *resolved,
                       system_choice system, arena *a)
{
  recompute_list recomputes = recomputes_for(resolved, &offload_systems[system]);
  const variant *found[MOST_VARIANTS];
  uint32_t count = variants_of(system, found);
  for (uint32_t r = 0; r < recomputes.count; r++)
    for (uint32_t v = 0; v < count; v++) {
      l->items[l->count] = new_candidate(given, resolved, system, found[v], recomputes.items[r], a);
      l->items[l->count].order = l->count;
      l->count++;
    }
}

const candidate *comparison_candidates(const settings *given, const settings *resolved,
                                       uint32_t *count, arena *a)
{
  candidate_list l = { .items = ARENA_ARRAY(a, candidate, OFFLOAD_SYSTEM_COUNT * MOST_FOR_SYSTEM) };
  for (uint32_t system = SYSTEM_EMPTY + 1; system < OFFLOAD_SYSTEM_COUNT; system++)
    add_system(&l, given, resolved, (system_choice)system, a);
  *count = l.count;
  return l.items;
}

bool candidate_settings(settings *s, const settings *given, const candidate *c, arena *a, diag *d)
{
  *s = *given;
  for (uint32_t i = 0; i < c->set_count; i++) {
    size_t key = strcspn(c->sets[i], "=");
    if (!settings_set(s, arena_strndup(a, c->sets[i], key), c->sets[i] + key + 1,
                      (source_pos){ "--compare-systems", 0, 0 }, a, d))
      return false;
  }
  return settings_resolve(s, a, d);
}
