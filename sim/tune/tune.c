#include "sim/tune/tune.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/predict/baselines.h"
#include "sim/predict/bounds.h"
#include "sim/predict/common_plans.h"
#include "sim/predict/requested.h"
#include "sim/tune/larger_budget.h"
#include "sim/world/deal.h"

/* ---- what settings are the same, and which share a bound ---- */

/* The same run without offload in memory that is never short. */
static settings run_of(const settings *s)
{
  settings without = settings_without_offload(s);
  return common_settings(&without);
}

typedef struct option {
  uint32_t index; /* of the space */
  uint32_t first; /* index of the first that has its plans in common with it */
  bool legal;
  bool own; /* offsim's: no framework has it today */
  bool offloads;
  XXH128_hash_t self, common, run;
  int64_t step_bound_ps; /* of its run */
} option;

typedef struct tuning {
  const tune_request *of;
  tuned *to;
  option *options;
  uint32_t count;
  misfit *misfits;
  uint32_t misfit_count;
  pthread_mutex_t lock; /* of the diag */
  diag *diag;
} tuning;

static bool settings_of(const tuning *x, uint32_t index, settings *s, arena *a, diag *d)
{
  candidate c = space_at(x->of->space, index);
  return candidate_settings(s, x->of->given, &c, "tune", a, d);
}

/* What the rules refuse is an answer; a resource that was refused ends the search: false. */
static bool take_refusal(tuning *x, const diag *quiet)
{
  if (!diag_is_refusal(quiet)) return true;
  pthread_mutex_lock(&x->lock);
  if (diag_ok(x->diag)) *x->diag = *quiet;
  pthread_mutex_unlock(&x->lock);
  return false;
}

/* verl's FSDP engines recompute whole layers, and have an offload of their own. */
static bool verl_lacks(const settings *s)
{
  system_choice system = s->offload.system;
  return s->derived.of_verl && uses_hf(s) &&
         ((system != SYSTEM_none && system != SYSTEM_verl && system != SYSTEM_veomni) ||
          s->offload.layer_offloading || s->recompute.selective_checkpointing ||
          s->recompute.every_n_layers != 1);
}

static bool is_own(const settings *s)
{
  return verl_lacks(s) || s->offload.system == SYSTEM_planned ||
         s->derived.layer_keeps_mlp != NULL || s->derived.layer_keeps_activation != NULL ||
         s->derived.layer_recomputes_mlp != NULL || strcmp(s->recompute.recompute_layers, "1") != 0;
}

static bool look_at(void *of, uint32_t i)
{
  tuning *x = of;
  arena a = { 0 };
  diag quiet = { .quiet = true };
  settings s;
  x->options[i] = (option){ .index = i, .legal = settings_of(x, i, &s, &a, &quiet) };
  if (x->options[i].legal) {
    settings run = run_of(&s), common = common_settings(&s);
    x->options[i].own = is_own(&s);
    x->options[i].offloads = !is_without_offload(&s);
    x->options[i].self = settings_digest(&s);
    x->options[i].common = settings_digest(&common);
    x->options[i].run = settings_digest(&run);
  }
  arena_release(&a);
  return take_refusal(x, &quiet);
}

/* Illegal ones last; the same ones together. */
static int by_self(const void *left, const void *right)
{
  const option *a = left, *b = right;
  if (a->legal != b->legal) return a->legal ? -1 : 1;
  int order = XXH128_cmp(&a->self, &b->self);
  return order != 0 ? order : a->index < b->index ? -1 : a->index > b->index;
}

static int by_run(const void *left, const void *right)
{
  const option *a = left, *b = right;
  int order = XXH128_cmp(&a->run, &b->run);
  return order != 0 ? order : a->index < b->index ? -1 : a->index > b->index;
}

static int by_common(const void *left, const void *right)
{
  const option *a = left, *b = right;
  int order = XXH128_cmp(&a->common, &b->common);
  return order != 0 ? order : a->index < b->index ? -1 : a->index > b->index;
}

/* Those with the same plans, which have the same bound, together. */
static int by_bound(const void *left, const void *right)
{
  const option *a = left, *b = right;
  if (a->step_bound_ps != b->step_bound_ps) return a->step_bound_ps < b->step_bound_ps ? -1 : 1;
  if (a->first != b->first) return a->first < b->first ? -1 : 1;
  return a->index < b->index ? -1 : a->index > b->index;
}

/* Why the first setting of the space is refused. */
static const char *first_refusal(const tuning *x, arena *a)
{
  arena scratch = { 0 };
  diag quiet = { .quiet = true };
  settings s;
  bool legal = settings_of(x, 0, &s, &scratch, &quiet);
  assert(!legal);
  const char *message = arena_strdup(a, quiet.message);
  arena_release(&scratch);
  return message;
}

/* Leaves the legal ones, each once, the first of the space. */
static void drop_others(tuning *x, arena *a)
{
  uint32_t kept = 0;
  qsort(x->options, x->count, sizeof *x->options, by_self);
  for (uint32_t i = 0; i < x->count; i++) {
    const option *o = &x->options[i];
    if (!o->legal)
      x->to->refused++;
    else if (kept > 0 && XXH128_isEqual(x->options[kept - 1].self, o->self))
      x->to->same++;
    else
      x->options[kept++] = *o;
  }
  x->count = kept;
  if (kept == 0) x->to->refusal = first_refusal(x, a);
}

static void find_firsts(tuning *x)
{
  qsort(x->options, x->count, sizeof *x->options, by_common);
  for (uint32_t i = 0; i < x->count; i++) {
    option *o = &x->options[i];
    bool begins = i == 0 || !XXH128_isEqual(x->options[i - 1].common, o->common);
    o->first = begins ? o->index : x->options[i - 1].first;
  }
}

/* ---- bounds of the runs ---- */

typedef struct bounding {
  tuning *x;
  uint32_t *firsts;       /* by run: its first option; options are in the order of their runs */
  int64_t *step_bound_ps; /* by run */
  uint32_t count;
} bounding;

static bool bound_run(void *of, uint32_t i)
{
  bounding *b = of;
  tuning *x = b->x;
  arena a = { 0 };
  diag quiet = { .quiet = true };
  settings s;
  b->step_bound_ps[i] = 0;
  if (settings_of(x, x->options[b->firsts[i]].index, &s, &a, &quiet)) {
    settings run = run_of(&s);
    if (!step_bound(&b->step_bound_ps[i], &run, x->of->machine, &a, &quiet))
      b->step_bound_ps[i] = 0;
  }
  arena_release(&a);
  return take_refusal(x, &quiet);
}

static void bound_runs(tuning *x, arena *a)
{
  bounding b = { .x = x,
                 .firsts = ARENA_ARRAY(a, uint32_t, x->count),
                 .step_bound_ps = ARENA_ARRAY(a, int64_t, x->count) };
  qsort(x->options, x->count, sizeof *x->options, by_run);
  for (uint32_t i = 0; i < x->count; i++)
    if (i == 0 || !XXH128_isEqual(x->options[i - 1].run, x->options[i].run))
      b.firsts[b.count++] = i;
  deal_items(b.step_bound_ps, b.count, sizeof *b.step_bound_ps, x->of->threads, bound_run, &b);
  for (uint32_t i = 0; i < b.count; i++) {
    uint32_t end = i + 1 < b.count ? b.firsts[i + 1] : x->count;
    for (uint32_t k = b.firsts[i]; k < end; k++)
      x->options[k].step_bound_ps = b.step_bound_ps[i];
  }
  qsort(x->options, x->count, sizeof *x->options, by_bound);
}

/* Offload of frozen weights moves what is no saved tensor. */
static void bound_budget(tuning *x)
{
  const tune_request *r = x->of;
  arena a = { 0 };
  diag quiet = { .quiet = true };
  budget_bounds found;
  if (r->keep_all != NULL && r->keep_all->lora.adapter == ADAPTER_NONE &&
      budget_bound(&found, r->keep_all, r->machine, machine_usable_bytes(r->machine), &a, &quiet))
    x->to->budget = found;
  x->to->budget.step_ps =
      x->to->budget.step_ps == 0 ? 0 : max_i64(x->to->budget.step_ps, x->to->fastest_bound_ps);
  arena_release(&a);
}

/* ---- predictions ---- */

/* Plans that are looked at before bounds are compared again: enough for any machine's cores to have
 * work, few enough to stop soon. At most two settings have their plans in common. */
enum { WAVE = 32, MOST_COMMON = 2 };

typedef enum outcome {
  REFUSED, /* by the offload system, when it meets what released code cannot do */
  TOO_LARGE,
  DOMINATED,
  UNSAFE,
  PREDICTED,
  FOUND,
  FOUND_UNSAFE
} outcome;

typedef struct trial {
  outcome outcome;
  int64_t requested_bytes; /* or less; 0: not known */
  int64_t host_missing_bytes;
  tuned_setting found; /* `tried` is of the process that predicted it */
} trial;

typedef struct common_trials {
  trial of[MOST_COMMON];
} common_trials;

typedef struct wave {
  tuning *x;
  const option *options[WAVE]; /* the first with each plans */
  uint32_t settings[WAVE];     /* that have them in common */
  common_trials trials[WAVE];
  uint32_t count;
} wave;

static bool is_better(const tuned_setting *a, const tuned_setting *b)
{
  const sweep_row *r = &a->row, *s = &b->row;
  if (r->step_ps != s->step_ps) return r->step_ps < s->step_ps;
  if (r->reserved_peak_bytes != s->reserved_peak_bytes)
    return r->reserved_peak_bytes < s->reserved_peak_bytes;
  if (r->host_pinned_total_bytes != s->host_pinned_total_bytes)
    return r->host_pinned_total_bytes < s->host_pinned_total_bytes;
  return r->tried.order < s->tried.order;
}

/* In the table. Of settings that take equally long, one that frameworks have is more useful. */
static bool is_above(const tuned_setting *a, const tuned_setting *b)
{
  if (a->row.step_ps == b->row.step_ps && a->is_own != b->is_own) return b->is_own;
  return is_better(a, b);
}

/* `a` is as good in both figures, and no worse in what decides between equals. */
static bool beats(const tuned_setting *a, const tuned_setting *b)
{
  const sweep_row *r = &a->row, *s = &b->row;
  return r->step_ps <= s->step_ps && r->reserved_peak_bytes <= s->reserved_peak_bytes &&
         is_better(a, b);
}

static bool is_on_front(const tuned *t, const tuned_setting *s)
{
  for (uint32_t i = 0; i < t->count; i++)
    if (beats(&t->items[i], s)) return false;
  return true;
}

/* Whatever its times and its fragmentation are. */
static bool is_dominated(const tuning *x, int64_t step_bound_ps, int64_t requested_bytes)
{
  for (uint32_t i = 0; i < x->to->count; i++) {
    const sweep_row *r = &x->to->items[i].row;
    if (r->step_ps < step_bound_ps && r->reserved_peak_bytes <= requested_bytes) return true;
  }
  return false;
}

/* It may still become one of the best, of which no two take the same time. */
static bool is_among_best(const tuning *x, const tuned_setting *s)
{
  const tuned *t = x->to;
  if (x->of->front) return is_on_front(t, s);
  for (uint32_t i = 0; i < t->count; i++)
    if (t->items[i].row.step_ps == s->row.step_ps) return is_above(s, &t->items[i]);
  return t->count < x->of->best || is_above(s, &t->items[t->count - 1]);
}

/* Faster than the table, and than the fastest unsafe setting so far: a line beside the table names it. */
static bool may_be_named(const tuned *t, int64_t step_bound_ps)
{
  const tuned_setting *unsafe = &t->faster_unsafe;
  return (unsafe->row.step_ps == 0 || step_bound_ps <= unsafe->row.step_ps) &&
         (t->count == 0 || step_bound_ps < t->items[0].row.step_ps);
}

/* The fastest that frameworks have may be named beside offsim's own. */
static bool may_be_todays(const tuned *t, const option *o)
{
  return !o->own && (t->today.row.step_ps == 0 || o->step_bound_ps <= t->today.row.step_ps);
}

/* What is known without times; PREDICTED: it has to be. `bytes`: what a device must have at least. */
static outcome judge_plans(const tuning *x, const option *o, const settings *s, common_plans *plans,
                           int64_t *bytes, arena *a, diag *d)
{
  static const iteration_kind kinds[] = { ITERATION_STEADY, ITERATION_WARMUP };
  bool bounded = !x->of->exhaustive;
  *bytes = 0;
  for (int i = 0; i < ITERATION_KINDS; i++) {
    if (!common_plans_compile(plans, s, kinds[i], a, d)) return REFUSED;
    *bytes = max_i64(*bytes, plan_requested_peak_bytes(&plans->compiled[kinds[i]].plan));
    if (bounded && *bytes > machine_usable_bytes(x->of->machine)) return TOO_LARGE;
  }
  if (bounded && x->of->front && is_dominated(x, o->step_bound_ps, *bytes) &&
      !may_be_todays(x->to, o))
    return DOMINATED;
  return common_plans_are_safe(plans, s, a, d) ? PREDICTED : UNSAFE;
}

static void predict_option(const tuning *x, const option *o, const settings *s, bool unsafe,
                           common_plans *plans, trial *t, diag *d)
{
  prediction p;
  arena a = { 0 };
  sweep_row *row = &t->found.row;
  bool named = unsafe && !x->of->allow_unsafe;
  t->outcome = named ? UNSAFE : PREDICTED;
  t->found.unsafe = unsafe;
  t->found.is_own = o->own;
  if (predict_common(&p, s, x->of->machine, plans, &a, d)) {
    shortage missing = prediction_shortage(&p);
    sweep_row_take(row, &p);
    if (missing.cause == SHORT_ON_HOST) t->host_missing_bytes = missing.missing_bytes;
    assert(row->step_ps >= o->step_bound_ps && "the step bound holds");
    assert(row->verdict != SWEEP_FITS || row->step_ps >= x->to->budget.step_ps);
    if (row->verdict == SWEEP_FITS && (named || is_among_best(x, &t->found)))
      t->outcome = unsafe ? FOUND_UNSAFE : FOUND;
  }
  prediction_release(&p);
  arena_release(&a);
}

static bool try_plans(void *of, uint32_t i)
{
  wave *w = of;
  const tuning *x = w->x;
  const option *first = w->options[i];
  arena a = { 0 };
  diag quiet = { .quiet = true };
  settings s;
  common_plans plans = { 0 };
  int64_t bytes = 0;
  outcome all = REFUSED;
  if (settings_of(x, first->index, &s, &a, &quiet))
    all = judge_plans(x, first, &s, &plans, &bytes, &a, &quiet);
  bool predicts =
      all == PREDICTED ||
      (all == UNSAFE && (x->of->allow_unsafe || may_be_named(x->to, first->step_bound_ps)));
  for (uint32_t k = 0; k < w->settings[i]; k++) {
    trial *t = &w->trials[i].of[k];
    *t = (trial){ .outcome = all, .requested_bytes = bytes };
    if (!predicts || !settings_of(x, first[k].index, &s, &a, &quiet)) continue;
    t->found.row.tried = space_at(x->of->space, first[k].index);
    predict_option(x, &first[k], &s, all == UNSAFE, &plans, t, &quiet);
    assert(t->found.row.step_ps == 0 || t->found.row.allocated_peak_bytes >= bytes);
  }
  common_plans_release(&plans);
  arena_release(&a);
  return take_refusal(w->x, &quiet);
}

/* In the order of their times, as the best are. */
static void insert_into_front(tuned *t, const tuned_setting *s)
{
  uint32_t kept = 0, at;
  for (uint32_t i = 0; i < t->count; i++)
    if (!beats(s, &t->items[i])) t->items[kept++] = t->items[i];
  for (at = kept; at > 0 && is_better(s, &t->items[at - 1]); at--)
    t->items[at] = t->items[at - 1];
  t->items[at] = *s;
  t->count = kept + 1;
  for (uint32_t i = 1; i < t->count; i++)
    assert(t->items[i - 1].row.step_ps < t->items[i].row.step_ps &&
           t->items[i - 1].row.reserved_peak_bytes > t->items[i].row.reserved_peak_bytes);
}

static void insert(tuning *x, const tuned_setting *s)
{
  tuned *t = x->to;
  if (!is_among_best(x, s)) return;
  if (x->of->front) {
    insert_into_front(t, s);
    return;
  }
  uint32_t at = 0;
  while (at < t->count && t->items[at].row.step_ps != s->row.step_ps)
    at++;
  if (at == t->count && t->count == x->of->best)
    at--;
  else if (at == t->count)
    t->count++;
  for (; at > 0 && is_above(s, &t->items[at - 1]); at--)
    t->items[at] = t->items[at - 1];
  t->items[at] = *s;
}

/* What may be the best in more memory. */
static void take_misfit(tuning *x, const option *o, const trial *t)
{
  bool fits = t->outcome != TOO_LARGE && t->found.row.verdict == SWEEP_FITS;
  if (fits || (t->outcome != TOO_LARGE && t->outcome != PREDICTED)) return;
  misfit *m = &x->misfits[x->misfit_count++];
  *m = (misfit){ .first = o->first,
                 .offloads = o->offloads,
                 .step_bound_ps = o->step_bound_ps,
                 .requested_bytes = t->requested_bytes,
                 .host_missing_bytes = t->host_missing_bytes,
                 .setting = t->found };
  m->setting.is_own = o->own;
}

static void take_trial(tuning *x, const trial *t)
{
  tuned *to = x->to;
  bool named = t->outcome == FOUND_UNSAFE && !x->of->allow_unsafe;
  to->refused += t->outcome == REFUSED;
  to->too_large += t->outcome == TOO_LARGE;
  if (t->outcome == TOO_LARGE &&
      (to->too_large == 1 || t->requested_bytes < to->least_too_large_bytes))
    to->least_too_large_bytes = t->requested_bytes;
  to->dominated += t->outcome == DOMINATED;
  to->unsafe += t->outcome == UNSAFE || named;
  to->predicted += t->outcome >= PREDICTED && !named;
  if (named && (to->faster_unsafe.row.step_ps == 0 || is_better(&t->found, &to->faster_unsafe)))
    to->faster_unsafe = t->found;
  if (t->outcome >= PREDICTED && t->found.row.verdict == SWEEP_FITS && t->found.row.step_ps > 0 &&
      !t->found.unsafe && !t->found.is_own &&
      (to->today.row.step_ps == 0 || is_better(&t->found, &to->today)))
    to->today = t->found;
  if (t->outcome >= FOUND && !named) insert(x, &t->found);
}

/* It cannot be among the best. */
static bool is_too_slow(const tuning *x, const option *o)
{
  const tuned *t = x->to;
  if (x->of->exhaustive || x->of->front || t->count < x->of->best) return false;
  return o->step_bound_ps > t->items[t->count - 1].row.step_ps;
}

/* Nor can any option from here on, or be what is named beside one of offsim's own. */
static bool is_over(const tuning *x, const option *next)
{
  const tuned *t = x->to;
  bool names_today = t->count > 0 && t->items[0].is_own &&
                     (t->today.row.step_ps == 0 || next->step_bound_ps <= t->today.row.step_ps);
  return !names_today && is_too_slow(x, next);
}

/* The settings from `next` on that have their plans in common. */
static uint32_t count_common(const tuning *x, uint32_t next)
{
  uint32_t count = 1;
  while (next + count < x->count && x->options[next + count].first == x->options[next].first)
    count++;
  assert(count <= MOST_COMMON);
  return count;
}

static void predict_all(tuning *x, const tune_progress *show)
{
  uint32_t next = 0;
  while (next < x->count && diag_ok(x->diag) && !is_over(x, &x->options[next])) {
    wave w = { .x = x };
    show->show(show->context, next, x->count, NULL);
    while (w.count < WAVE && next < x->count && !is_over(x, &x->options[next])) {
      uint32_t common = count_common(x, next);
      if (x->options[next].own && is_too_slow(x, &x->options[next])) {
        x->to->too_slow += common;
      } else {
        w.options[w.count] = &x->options[next];
        w.settings[w.count++] = common;
      }
      next += common;
    }
    if (!deal_items(w.trials, w.count, sizeof *w.trials, x->of->threads, try_plans, &w)) break;
    for (uint32_t i = 0; i < w.count; i++)
      for (uint32_t k = 0; k < w.settings[i]; k++) {
        w.trials[i].of[k].found.row.tried = space_at(x->of->space, w.options[i][k].index);
        take_trial(x, &w.trials[i].of[k]);
        take_misfit(x, &w.options[i][k], &w.trials[i].of[k]);
      }
  }
  x->to->too_slow += x->count - next;
}

/* ---- all ---- */

bool tune(tuned *t, const tune_request *r, const tune_progress *show, arena *a, diag *d)
{
  uint32_t all = space_count(r->space);
  assert(r->best >= 1 && r->threads >= 1);
  *t = (tuned){ .items = ARENA_ARRAY(a, tuned_setting, r->front ? all : r->best), .all = all };
  tuning x = { .of = r,
               .to = t,
               .options = ARENA_ARRAY(a, option, all),
               .count = all,
               .misfits = ARENA_ARRAY(a, misfit, all),
               .diag = d };
  pthread_mutex_init(&x.lock, NULL);
  show->show(show->context, 0, all, "settings: which are legal?");
  deal_items(x.options, all, sizeof *x.options, r->threads, look_at, &x);
  drop_others(&x, a);
  find_firsts(&x);
  show->show(show->context, 0, x.count, "bounds");
  if (diag_ok(d)) bound_runs(&x, a);
  if (x.count > 0) t->fastest_bound_ps = x.options[0].step_bound_ps;
  if (diag_ok(d)) bound_budget(&x);
  predict_all(&x, show);
  if (t->count > 0 && t->faster_unsafe.row.step_ps >= t->items[0].row.step_ps)
    t->faster_unsafe = (tuned_setting){ 0 };
  if (t->count == 0 || !t->items[0].is_own) t->today = (tuned_setting){ 0 };
  show->show(show->context, 0, x.misfit_count, "what more memory would buy");
  if (diag_ok(d)) find_larger_budgets(t, r, x.misfits, x.misfit_count, d);
  pthread_mutex_destroy(&x.lock);
  assert(!diag_ok(d) || t->refused + t->same + t->too_large + t->too_slow + t->dominated +
                                t->unsafe + t->predicted ==
                            t->all);
  return diag_ok(d);
}
