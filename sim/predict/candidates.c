#include "sim/predict/candidates.h"

#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "sim/config/key_table.h"
#include "sim/offload/systems.h"

/*
 * Which settings a comparison tries. A system reads what was given for it; where nothing was given
 * it gets what moves most, which its descriptor says, with its variants (sim/offload/systems.h).
 */
enum { MOST_RECOMPUTES = 3, MOST_FOR_SYSTEM = 2 * OFFLOAD_MOST_VARIANTS * MOST_RECOMPUTES };

typedef struct candidate_list {
  candidate *items;
  uint32_t count;
} candidate_list;

/* ---- sets ---- */

void candidate_set(candidate *c, const char *key, const char *value, arena *a)
{
  assert(c->set_count < CANDIDATE_SETS);
  c->sets[c->set_count++] = arena_printf(a, "%s=%s", key, value);
}

static void set_flag(candidate *c, const char *key, bool is, bool wanted, arena *a)
{
  if (is != wanted) candidate_set(c, key, wanted ? "true" : "false", a);
}

static void set_variant(candidate *c, const settings *given, const offload_variant *v, arena *a)
{
  const bool *is = key_member_const(given, v->flag);
  set_flag(c, key_rows[v->flag].name, *is, v->value, a);
}

static void set_number(candidate *c, const char *key, int64_t value, arena *a)
{
  candidate_set(c, key, arena_printf(a, "%" PRId64, value), a);
}

/* ---- what each system needs ---- */

static void set_what_it_needs(candidate *c, const settings *given, const settings *resolved,
                              arena *a)
{
  const offload_descriptor *o = offload_system_of(c->system);
  const char *value = o->compared.value == NULL ? NULL : o->compared.value(given, resolved, a);
  if (value != NULL) candidate_set(c, key_rows[o->compared.key].name, value, a);
  /* A variable of the environment is no reason to leave the system out. */
  if (c->system == SYSTEM_megatron && given->software.environment_given)
    set_flag(c, "nvte_cpu_offload_v1", given->software.nvte_cpu_offload_v1, true, a);
}

static void leave_manual_mode(candidate *c, const settings *given, arena *a)
{
  const struct offload_settings *o = &given->offload;
  set_flag(c, "cpu_offloading_manual_synchronization", o->cpu_offloading_manual_synchronization,
           false, a);
  set_flag(c, "cpu_offloading_retain_pinned_cpu_buffers",
           o->cpu_offloading_retain_pinned_cpu_buffers, false, a);
  if (o->cpu_offloading_layers.count > 0) candidate_set(c, "cpu_offloading_layers", "", a);
  if (o->cpu_offloading_stream != OFFLOAD_STREAM_OWN)
    candidate_set(c, "cpu_offloading_stream", "", a);
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
  assert(l->count < MOST_RECOMPUTES);
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
  candidate_set(c, "recompute_granularity", recompute_word(c->recompute), a);
  if (c->recompute == GRANULARITY_NONE) {
    set_flag(c, "recompute.selective_checkpointing", given->recompute.selective_checkpointing,
             false, a);
    if (given->recompute.every_n_layers != 1) set_number(c, "every_n_layers", 1, a);
  }
  if (c->recompute != GRANULARITY_FULL) return;
  if (given->recompute.recompute_method == METHOD_NONE)
    candidate_set(c, "recompute_method", "uniform", a);
  if (given->recompute.recompute_num_layers == UNSET) set_number(c, "recompute_num_layers", 1, a);
}

static const char *title_of_recompute(recompute_granularity_choice granularity, arena *a)
{
  return granularity == GRANULARITY_NONE
             ? ""
             : arena_printf(a, ", %s recompute", recompute_word(granularity));
}

/* ---- the candidates ---- */

/* Frozen weights that visit the device beside it are another candidate. */
typedef struct tried_parts {
  system_choice system;
  const offload_variant *variant; /* NULL: the system has none */
  recompute_granularity_choice recompute;
  bool layers;
} tried_parts;

static candidate new_candidate(const settings *given, const settings *resolved,
                               const tried_parts *of, arena *a)
{
  const offload_system *row = &offload_systems[of->system];
  const offload_variant *v = of->variant;
  candidate c = { .system = of->system, .recompute = of->recompute };
  c.name =
      arena_printf(a, "%s%s%s%s", row->name, v != NULL ? v->title : "",
                   of->layers ? " + layer_offloading" : "", title_of_recompute(of->recompute, a));
  candidate_set(&c, "offload.system", row->name, a);
  if (given->model.implementation == IMPLEMENTATION_EMPTY && uses_hf(resolved))
    candidate_set(&c, "model.implementation", "hf", a);
  leave_other_scopes(&c, given, row, a);
  set_flag(&c, "offload.layer_offloading", given->offload.layer_offloading, of->layers, a);
  set_what_it_needs(&c, given, resolved, a);
  set_recompute(&c, given, a);
  if (v != NULL) set_variant(&c, given, v, a);
  return c;
}

static void add_system(candidate_list *l, const settings *given, const settings *resolved,
                       system_choice system, arena *a)
{
  recompute_list recomputes = recomputes_for(resolved, &offload_systems[system]);
  const offload_descriptor *o = offload_system_of(system);
  uint32_t count = o->compared.variant_count == 0 ? 1 : o->compared.variant_count;
  bool visits = uses_hf(resolved) && resolved->lora.adapter != ADAPTER_NONE &&
                layer_offloading_goes_beside(system);
  for (uint32_t r = 0; r < recomputes.count; r++)
    for (uint32_t v = 0; v < count; v++)
      for (int layers = 0; layers <= visits; layers++) {
        const offload_variant *variant =
            v < o->compared.variant_count ? &o->compared.variants[v] : NULL;
        tried_parts parts = { system, variant, recomputes.items[r], layers != 0 };
        l->items[l->count] = new_candidate(given, resolved, &parts, a);
        l->items[l->count].order = l->count;
        l->count++;
      }
}

const candidate *candidates_of_systems(const settings *given, const settings *resolved,
                                       uint32_t *count, arena *a)
{
  candidate_list l = { .items = ARENA_ARRAY(a, candidate, OFFLOAD_SYSTEM_COUNT * MOST_FOR_SYSTEM) };
  for (uint32_t system = SYSTEM_EMPTY + 1; system < OFFLOAD_SYSTEM_COUNT; system++)
    add_system(&l, given, resolved, (system_choice)system, a);
  *count = l.count;
  assert(l.count > 0 && l.items[0].system == SYSTEM_none);
  return l.items;
}

bool candidate_settings(settings *s, const settings *given, const candidate *c, const char *option,
                        arena *a, diag *d)
{
  *s = *given;
  for (uint32_t i = 0; i < c->set_count; i++) {
    size_t key = strcspn(c->sets[i], "=");
    assert(c->sets[i][key] == '=');
    if (!settings_set(s, arena_strndup(a, c->sets[i], key), c->sets[i] + key + 1,
                      (source_pos){ option, 0, 0 }, a, d))
      return false;
  }
  return settings_resolve(s, offload_conditions, a, d);
}

/* Whose modules it works on is known beforehand: no message about a setting says it better. */
const char *candidate_is_for_others(const settings *resolved, const candidate *c, arena *a)
{
  offload_host host = offload_systems[c->system].implementation;
  bool hf = uses_hf(resolved);
  if (host == OFFLOAD_ON_ANY || (host == OFFLOAD_ON_HF) == hf) return NULL;
  return arena_printf(a, "for %s; model.implementation is %s",
                      hf ? "Megatron-LM's models" : "models of Hugging Face",
                      chosen_word(resolved, KEY_model_implementation));
}

const char *candidate_refusal(const diag *d, arena *a)
{
  static const char word[] = "error: ";
  const char *found = strstr(d->message, word);
  return arena_strdup(a, found == NULL ? d->message : found + sizeof word - 1);
}
