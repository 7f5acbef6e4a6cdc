#include "sim/predict/comparison.h"

#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/config/key_table.h"
#include "sim/offload/systems.h"

/* ==== candidates ==== */

/*
 * Which settings a comparison tries. A system reads what was given for it; where nothing was given
 * it gets what moves most, which its descriptor says, with its variants (sim/offload/systems.h).
 */
enum { MOST_RECOMPUTES = 3, MOST_FOR_SYSTEM = OFFLOAD_MOST_VARIANTS * MOST_RECOMPUTES };

typedef struct candidate_list {
  candidate *items;
  uint32_t count;
} candidate_list;

/* ---- sets ---- */

static void add_set(candidate *c, const char *key, const char *value, arena *a)
{
  assert(c->set_count < CANDIDATE_SETS);
  c->sets[c->set_count++] = arena_printf(a, "%s=%s", key, value);
}

static void set_flag(candidate *c, const char *key, bool is, bool wanted, arena *a)
{
  if (is != wanted) add_set(c, key, wanted ? "true" : "false", a);
}

static void set_variant(candidate *c, const settings *given, const offload_variant *v, arena *a)
{
  const bool *is = key_member_const(given, v->flag);
  set_flag(c, key_rows[v->flag].name, *is, v->value, a);
}

static void set_number(candidate *c, const char *key, int64_t value, arena *a)
{
  add_set(c, key, arena_printf(a, "%" PRId64, value), a);
}

/* ---- what each system needs ---- */

static void set_what_it_needs(candidate *c, const settings *given, const settings *resolved,
                              arena *a)
{
  const offload_descriptor *o = offload_system_of(c->system);
  const char *value = o->compared.value == NULL ? NULL : o->compared.value(given, resolved, a);
  if (value != NULL) add_set(c, key_rows[o->compared.key].name, value, a);
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
                               system_choice system, const offload_variant *v,
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
  for (uint32_t r = 0; r < recomputes.count; r++)
    for (uint32_t v = 0; v < count; v++) {
      l->items[l->count] = new_candidate(
          given, resolved, system, v < o->compared.variant_count ? &o->compared.variants[v] : NULL,
          recomputes.items[r], a);
      l->items[l->count].order = l->count;
      l->count++;
    }
}

static const candidate *candidates_of(const settings *given, const settings *resolved,
                                      uint32_t *count, arena *a)
{
  candidate_list l = { .items = ARENA_ARRAY(a, candidate, OFFLOAD_SYSTEM_COUNT * MOST_FOR_SYSTEM) };
  for (uint32_t system = SYSTEM_EMPTY + 1; system < OFFLOAD_SYSTEM_COUNT; system++)
    add_system(&l, given, resolved, (system_choice)system, a);
  *count = l.count;
  assert(l.count > 0 && l.items[0].system == SYSTEM_none);
  return l.items;
}

static bool candidate_settings(settings *s, const settings *given, const candidate *c, arena *a,
                               diag *d)
{
  *s = *given;
  for (uint32_t i = 0; i < c->set_count; i++) {
    size_t key = strcspn(c->sets[i], "=");
    assert(c->sets[i][key] == '=');
    if (!settings_set(s, arena_strndup(a, c->sets[i], key), c->sets[i] + key + 1,
                      (source_pos){ "--compare-systems", 0, 0 }, a, d))
      return false;
  }
  return settings_resolve(s, offload_conditions, a, d);
}

/* ==== the comparison ==== */

enum { REFUSED_RESOURCE = 3 }; /* diag's exit status */

typedef struct comparing {
  comparison *to;
  const settings *given, *resolved;
  const machine *machine;
  arena *memory;
} comparing;

/* ---- figures of one candidate ---- */

static void add_rank(comparison_row *row, const rank_prediction *r)
{
  assert(r->allocated_peak_bytes >= 0 && r->d2h_bytes >= 0 && r->h2d_bytes >= 0);
  row->peak_bytes = max_i64(row->peak_bytes, r->allocated_peak_bytes);
  row->theoretical_saving_bytes += r->theoretical_saving_bytes;
  row->simulated_saving_bytes += r->simulated_saving_bytes;
  row->exposed_d2h_ps = max_i64(row->exposed_d2h_ps, r->exposed_d2h_ps);
  row->exposed_h2d_ps = max_i64(row->exposed_h2d_ps, r->exposed_h2d_ps);
  row->d2h_bytes += r->d2h_bytes;
  row->h2d_bytes += r->h2d_bytes;
}

static comparison_row row_of(const candidate *c, const prediction *p)
{
  comparison_row row = { .tried = *c,
                         .step_ps = p->result.step_ps,
                         .host_pinned_total_bytes = p->host_pinned_total_bytes,
                         .fits_device = p->fits_device,
                         .fits_host = p->fits_host };
  for (uint32_t i = 0; i < p->rank_count; i++)
    add_rank(&row, &p->result.ranks[i]);
  return row;
}

static bool moves_nothing(const comparison_row *row)
{
  return row->tried.system != SYSTEM_none && row->d2h_bytes == 0 && row->h2d_bytes == 0;
}

/* ---- refused ---- */

/* Without the place: a candidate is in no file. */
static const char *reason_of(const diag *d, arena *a)
{
  static const char word[] = "error: ";
  const char *found = strstr(d->message, word);
  return arena_strdup(a, found == NULL ? d->message : found + sizeof word - 1);
}

static bool has_row(const comparison *c, system_choice system)
{
  for (uint32_t i = 0; i < c->row_count; i++)
    if (c->rows[i].tried.system == system) return true;
  return false;
}

/* Systems with the same reason are listed together. */
static void add_refused(comparison *c, const char *system, const char *reason, arena *a)
{
  for (uint32_t i = 0; i < c->refused_count; i++)
    if (strcmp(c->refused[i].reason, reason) == 0) {
      c->refused[i].systems = arena_printf(a, "%s, %s", c->refused[i].systems, system);
      return;
    }
  c->refused[c->refused_count++] = (refused_systems){ system, reason };
}

/* A system is refused if all its candidates are; the last one's reason is given. */
static void list_refused(comparing *x, const candidate *candidates, const char *const *reasons,
                         uint32_t count)
{
  for (uint32_t i = 0; i < count; i++) {
    bool last = i + 1 == count || candidates[i].system != candidates[i + 1].system;
    if (last && !has_row(x->to, candidates[i].system))
      add_refused(x->to, offload_systems[candidates[i].system].name, reasons[i], x->memory);
  }
}

/* ---- one candidate ---- */

/* Whose modules it works on is known beforehand: no message about a setting says it better. */
static const char *other_implementation(const settings *resolved, const candidate *c, arena *a)
{
  offload_host host = offload_systems[c->system].implementation;
  bool hf = uses_hf(resolved);
  if (host == OFFLOAD_ON_ANY || (host == OFFLOAD_ON_HF) == hf) return NULL;
  return arena_printf(a, "for %s; model.implementation is %s",
                      hf ? "Megatron-LM's models" : "models of Hugging Face",
                      chosen_word(resolved, KEY_model_implementation));
}

/* Adds its row, or returns why it has none. */
static const char *try_candidate(comparing *x, const candidate *c, diag *d)
{
  const char *reason = other_implementation(x->resolved, c, x->memory);
  if (reason != NULL) return reason;
  arena scratch = { 0 };
  diag quiet = { .quiet = true };
  settings s;
  if (candidate_settings(&s, x->given, c, &scratch, &quiet)) {
    prediction p;
    if (predict(&p, &s, x->machine, false, &scratch, &quiet)) {
      comparison_row row = row_of(c, &p);
      x->to->capacity_bytes = p.capacity_bytes;
      if (moves_nothing(&row))
        reason = "moves nothing here";
      else
        x->to->rows[x->to->row_count++] = row;
    }
    prediction_release(&p);
  }
  if (!diag_ok(&quiet)) reason = reason_of(&quiet, x->memory);
  if (quiet.exit_status == REFUSED_RESOURCE) *d = quiet;
  arena_release(&scratch);
  return reason;
}

/* ---- the whole ---- */

/* Those that fit first, the fastest first; the order of the candidates decides between equals. */
static int by_use(const void *left, const void *right)
{
  const comparison_row *a = left, *b = right;
  bool a_fits = a->fits_device && a->fits_host, b_fits = b->fits_device && b->fits_host;
  if (a_fits != b_fits) return a_fits ? -1 : 1;
  if (a->step_ps != b->step_ps) return a->step_ps < b->step_ps ? -1 : 1;
  if (a->peak_bytes != b->peak_bytes) return a->peak_bytes < b->peak_bytes ? -1 : 1;
  assert(a == b || a->tried.order != b->tried.order);
  return a->tried.order < b->tried.order ? -1 : 1;
}

/* Rows that fit are in the order of their times: one is on the front if it is smaller than all
 * before it. */
static void find_front(comparison *c)
{
  int64_t least_bytes = INT64_MAX;
  for (uint32_t i = 0; i < c->row_count; i++) {
    comparison_row *row = &c->rows[i];
    row->on_front = row->fits_device && row->fits_host && row->peak_bytes < least_bytes;
    if (row->on_front) least_bytes = row->peak_bytes;
  }
}

static void finish(comparison *c)
{
  assert(c->row_count > 0);
  c->reference = c->rows[0];
  for (uint32_t i = 0; i < c->row_count; i++)
    c->rows[i].saving_bytes = c->reference.peak_bytes - c->rows[i].peak_bytes;
  qsort(c->rows, c->row_count, sizeof *c->rows, by_use);
  find_front(c);
}

bool compare_systems(comparison *c, const settings *given, const settings *resolved,
                     const machine *m, comparison_progress *progress, arena *a, diag *d)
{
  uint32_t count;
  const candidate *candidates = candidates_of(given, resolved, &count, a);
  const char **reasons = ARENA_ARRAY(a, const char *, count);
  comparing x = { c, given, resolved, m, a };
  *c = (comparison){ .machine = m };
  c->rows = ARENA_ARRAY(a, comparison_row, count);
  c->refused = ARENA_ARRAY(a, refused_systems, count);
  for (uint32_t i = 0; i < count && diag_ok(d); i++) {
    if (progress != NULL) progress(i, count, candidates[i].name);
    reasons[i] = try_candidate(&x, &candidates[i], d);
  }
  if (!diag_ok(d)) return false;
  if (!has_row(c, candidates[0].system))
    return diag_error(
        d, (source_pos){ "--compare-systems", 0, 0 },
        "the run without offload, which all others are compared with, cannot be predicted: %s",
        reasons[0]);
  finish(c);
  list_refused(&x, candidates, reasons, count);
  return true;
}
