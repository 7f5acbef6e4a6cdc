#include "sim/tune/tune.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/predict/baselines.h"
#include "sim/predict/bounds.h"
#include "sim/predict/safety_summary.h"
#include "sim/world/deal.h"

/* ---- what settings are the same, and which share a bound ---- */

/* The same run without offload in memory that is never short. */
static settings run_of(const settings *s)
{
  settings without = settings_without_offload(s);
  without.software.expandable_segments = false;
  return without;
}

typedef struct option {
  uint32_t index; /* of the space */
  bool legal;
  XXH128_hash_t self, run;
  int64_t step_bound_ps; /* of its run */
} option;

typedef struct tuning {
  const tune_request *of;
  tuned *to;
  option *options;
  uint32_t count;
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

static bool look_at(void *of, uint32_t i)
{
  tuning *x = of;
  arena a = { 0 };
  diag quiet = { .quiet = true };
  settings s;
  x->options[i] = (option){ .index = i, .legal = settings_of(x, i, &s, &a, &quiet) };
  if (x->options[i].legal) {
    settings run = run_of(&s);
    x->options[i].self = settings_digest(&s, &a);
    x->options[i].run = settings_digest(&run, &a);
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

static int by_bound(const void *left, const void *right)
{
  const option *a = left, *b = right;
  if (a->step_bound_ps != b->step_bound_ps) return a->step_bound_ps < b->step_bound_ps ? -1 : 1;
  return a->index < b->index ? -1 : a->index > b->index;
}

/* Leaves the legal ones, each once, the first of the space. */
static void drop_others(tuning *x)
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

/* ---- predictions ---- */

/* Settings that are predicted before bounds are compared again: enough for any machine's cores to
 * have work, few enough to stop soon. */
enum { WAVE = 32 };

typedef enum outcome { TOO_LARGE, DOMINATED, PREDICTED, FOUND, FOUND_UNSAFE } outcome;

typedef struct trial {
  outcome outcome;
  tuned_setting found; /* `tried` is of the process that predicted it */
} trial;

typedef struct wave {
  tuning *x;
  const option *options; /* [count] */
  trial trials[WAVE];
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
static bool is_dominated(const tuning *x, int64_t step_bound_ps, int64_t allocated_bound_bytes)
{
  for (uint32_t i = 0; i < x->to->count; i++) {
    const sweep_row *r = &x->to->items[i].row;
    if (r->step_ps < step_bound_ps && r->reserved_peak_bytes <= allocated_bound_bytes) return true;
  }
  return false;
}

/* It may still become one of the best, of which no two take the same time. */
static bool is_among_best(const tuning *x, const tuned_setting *s)
{
  const tuned *t = x->to;
  if (x->of->front) return is_on_front(t, s);
  for (uint32_t i = 0; i < t->count; i++)
    if (t->items[i].row.step_ps == s->row.step_ps) return is_better(s, &t->items[i]);
  return t->count < x->of->best || is_better(s, &t->items[t->count - 1]);
}

static outcome predict_option(const tuning *x, const option *o, const settings *s,
                              int64_t bound_bytes, tuned_setting *found, arena *a, diag *d)
{
  prediction p;
  outcome out = PREDICTED;
  bool ok = predict_alone(&p, s, x->of->machine, a, d);
  if (ok) sweep_row_take(&found->row, &p);
  prediction_release(&p);
  if (!ok) return out;
  assert(found->row.step_ps >= o->step_bound_ps && "the step bound holds");
  assert(found->row.allocated_peak_bytes >= bound_bytes && "the allocated bound holds");
  if (found->row.verdict == SWEEP_FITS && is_among_best(x, found)) {
    found->unsafe = !settings_are_safe(s, d);
    out = found->unsafe ? FOUND_UNSAFE : FOUND;
  }
  return out;
}

static bool try_option(void *of, uint32_t i)
{
  wave *w = of;
  trial *t = &w->trials[i];
  const option *o = &w->options[i];
  arena a = { 0 };
  diag quiet = { .quiet = true };
  settings s;
  int64_t bytes = 0;
  t->found = (tuned_setting){ .row.tried = space_at(w->x->of->space, o->index) };
  t->outcome = PREDICTED;
  if (settings_of(w->x, o->index, &s, &a, &quiet) && allocated_bound(&bytes, &s, &a, &quiet)) {
    bool bounded = !w->x->of->exhaustive;
    if (bounded && bytes > machine_usable_bytes(w->x->of->machine))
      t->outcome = TOO_LARGE;
    else if (bounded && w->x->of->front && is_dominated(w->x, o->step_bound_ps, bytes))
      t->outcome = DOMINATED;
    else
      t->outcome = predict_option(w->x, o, &s, bytes, &t->found, &a, &quiet);
  }
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
  for (; at > 0 && is_better(s, &t->items[at - 1]); at--)
    t->items[at] = t->items[at - 1];
  t->items[at] = *s;
}

static void take_trial(tuning *x, const trial *t)
{
  tuned_setting *unsafe = &x->to->faster_unsafe;
  x->to->too_large += t->outcome == TOO_LARGE;
  x->to->dominated += t->outcome == DOMINATED;
  x->to->predicted += t->outcome >= PREDICTED;
  x->to->unsafe += t->outcome == FOUND_UNSAFE;
  if (t->outcome == FOUND_UNSAFE && !x->of->allow_unsafe &&
      (unsafe->row.step_ps == 0 || is_better(&t->found, unsafe)))
    *unsafe = t->found;
  if (t->outcome == FOUND || (t->outcome == FOUND_UNSAFE && x->of->allow_unsafe))
    insert(x, &t->found);
}

/* No option from here on can be among the best. */
static bool is_over(const tuning *x, const option *next)
{
  const tuned *t = x->to;
  return !x->of->exhaustive && !x->of->front && t->count == x->of->best &&
         next->step_bound_ps > t->items[t->count - 1].row.step_ps;
}

static void predict_all(tuning *x, tune_progress *show)
{
  uint32_t next = 0;
  while (next < x->count && diag_ok(x->diag) && !is_over(x, &x->options[next])) {
    wave w = { .x = x, .options = &x->options[next] };
    if (show != NULL) show(next, x->count, "predicted, or too large");
    while (w.count < WAVE && next < x->count && !is_over(x, &x->options[next]))
      w.count++, next++;
    if (!deal_items(w.trials, w.count, sizeof *w.trials, x->of->threads, try_option, &w)) break;
    for (uint32_t i = 0; i < w.count; i++) {
      w.trials[i].found.row.tried = space_at(x->of->space, w.options[i].index);
      take_trial(x, &w.trials[i]);
    }
  }
  x->to->too_slow = x->count - next;
}

/* ---- all ---- */

bool tune(tuned *t, const tune_request *r, tune_progress *show, arena *a, diag *d)
{
  uint32_t all = space_count(r->space);
  assert(r->best >= 1 && r->threads >= 1);
  *t = (tuned){ .items = ARENA_ARRAY(a, tuned_setting, r->front ? all : r->best), .all = all };
  tuning x = { .of = r, .to = t, .options = ARENA_ARRAY(a, option, all), .count = all, .diag = d };
  pthread_mutex_init(&x.lock, NULL);
  if (show != NULL) show(0, all, "settings: which are legal?");
  deal_items(x.options, all, sizeof *x.options, r->threads, look_at, &x);
  drop_others(&x);
  if (show != NULL) show(0, x.count, "bounds");
  if (diag_ok(d)) bound_runs(&x, a);
  if (x.count > 0) t->fastest_bound_ps = x.options[0].step_bound_ps;
  predict_all(&x, show);
  if (t->count > 0 && t->faster_unsafe.row.step_ps >= t->items[0].row.step_ps)
    t->faster_unsafe = (tuned_setting){ 0 };
  pthread_mutex_destroy(&x.lock);
  assert(!diag_ok(d) ||
         t->refused + t->same + t->too_large + t->too_slow + t->dominated + t->predicted == t->all);
  return diag_ok(d);
}
