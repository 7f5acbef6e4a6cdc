#include "traces/timing.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/median.h"
#include "sim/base/units.h"
#include "traces/align.h"

enum { MILLION = 1000000 };

static int64_t duration(const trace_op *o)
{
  assert(o->begin_ps >= 0 && o->end_ps >= 0);
  return o->end_ps - o->begin_ps;
}

int64_t error_ppm(int64_t predicted, int64_t measured)
{
  int64_t error = predicted - measured;
  if (measured <= 0) return 0;
  int64_t size = muldiv_i64(error < 0 ? -error : error, MILLION, measured);
  return error < 0 ? -size : size;
}

int64_t median_step_ps(const trace *t)
{
  arena scratch = { 0 };
  uint32_t first = t->header.steps > 1, count = t->header.steps - first;
  int64_t *steps = ARENA_ARRAY(&scratch, int64_t, count);
  memcpy(steps, t->steps_ps + first, count * sizeof *steps);
  int64_t median = median_i64(steps, count);
  arena_release(&scratch);
  return median;
}

bool timing_applies(const trace *a, const trace *b, const trace **predicted, const trace **measured)
{
  bool a_first = strcmp(a->header.source, "sim") == 0;
  *predicted = a_first ? a : b;
  *measured = a_first ? b : a;
  return strcmp((*predicted)->header.source, "sim") == 0 &&
         strcmp((*measured)->header.source, "sim") != 0 && median_step_ps(a) > 0 &&
         median_step_ps(b) > 0;
}

/* ---- classes ---- */

typedef struct pair_array {
  timed_pair *items;
  uint32_t count, capacity;
} pair_array;

static int by_class(const void *left, const void *right)
{
  const trace_op *a = ((const timed_pair *)left)->op[MEASURED];
  const trace_op *b = ((const timed_pair *)right)->op[MEASURED];
  int order = strcmp(a->name, b->name);
  if (order == 0) order = (a->rank > b->rank) - (a->rank < b->rank);
  return order != 0 ? order : (a->op > b->op) - (a->op < b->op);
}

static void measure_class(class_timing *c, const timed_pair *pairs, arena *a)
{
  assert(c->count > 0);
  int64_t *errors = ARENA_ARRAY(a, int64_t, c->count);
  for (uint32_t i = 0; i < c->count; i++) {
    int64_t predicted = duration(pairs[i].op[PREDICTED]),
            measured = duration(pairs[i].op[MEASURED]);
    c->total_ps[PREDICTED] += predicted;
    c->total_ps[MEASURED] += measured;
    errors[i] = error_ppm(predicted, measured);
  }
  c->median_error_ppm = median_i64(errors, c->count);
  for (uint32_t i = 0; i < c->count; i++)
    if (errors[i] < 0) errors[i] = -errors[i];
  sort_i64(errors, c->count);
  c->p95_error_ppm = errors[(c->count - 1) * 95 / 100];
}

static int by_measured(const void *left, const void *right)
{
  const class_timing *a = left, *b = right;
  if (a->total_ps[MEASURED] != b->total_ps[MEASURED])
    return a->total_ps[MEASURED] > b->total_ps[MEASURED] ? -1 : 1;
  return strcmp(a->name, b->name);
}

static void find_classes(timing *t, const pair_array *pairs, arena *a)
{
  t->classes = ARENA_ARRAY(a, class_timing, pairs->count);
  for (uint32_t i = 0, next; i < pairs->count; i = next) {
    const char *name = pairs->items[i].op[MEASURED]->name;
    for (next = i; next < pairs->count && pairs->items[next].op[MEASURED]->name == name;)
      next++;
    class_timing *c = &t->classes[t->class_count++];
    *c = (class_timing){ .name = name, .count = next - i };
    measure_class(c, pairs->items + i, a);
  }
  qsort(t->classes, t->class_count, sizeof *t->classes, by_measured);
}

/* ---- the worst ops ---- */

static int64_t miss_ps(const timed_pair *p)
{
  int64_t miss = duration(p->op[PREDICTED]) - duration(p->op[MEASURED]);
  return miss < 0 ? -miss : miss;
}

static void find_worst(timing *t, const pair_array *pairs)
{
  for (uint32_t i = 0; i < pairs->count; i++) {
    uint32_t at = t->worst_count;
    while (at > 0 && miss_ps(&t->worst[at - 1]) < miss_ps(&pairs->items[i]))
      at--;
    if (at == TIMING_WORST) continue;
    if (t->worst_count < TIMING_WORST) t->worst_count++;
    memmove(&t->worst[at + 1], &t->worst[at], (t->worst_count - at - 1) * sizeof *t->worst);
    t->worst[at] = pairs->items[i];
    assert(t->worst_count <= TIMING_WORST);
  }
}

/* ---- copies ---- */

typedef struct interval {
  int64_t begin_ps, end_ps;
} interval;

typedef struct interval_list {
  interval *items;
  uint32_t count;
} interval_list;

static int by_begin(const void *left, const void *right)
{
  const interval *a = left, *b = right;
  if (a->begin_ps != b->begin_ps) return a->begin_ps < b->begin_ps ? -1 : 1;
  return (a->end_ps > b->end_ps) - (a->end_ps < b->end_ps);
}

static bool is_compute(const trace_op *o)
{
  return strcmp(o->kind, "kernel") == 0 && strcmp(o->stream, "compute") == 0;
}

static bool is_d2h(const trace_op *o)
{
  return strcmp(o->kind, "d2h") == 0;
}

static bool is_h2d(const trace_op *o)
{
  return strcmp(o->kind, "h2d") == 0;
}

/* The times at which some op of the kind ran: disjoint, ascending. */
static interval_list when(const trace_slice *s, bool (*is)(const trace_op *o), arena *a)
{
  interval_list l = { ARENA_ARRAY(a, interval, s->count), 0 };
  for (uint32_t i = 0; i < s->count; i++) {
    const trace_op *o = &s->trace->ops.items[s->first + i];
    if (is(o) && o->end_ps > o->begin_ps) l.items[l.count++] = (interval){ o->begin_ps, o->end_ps };
  }
  if (l.count > 0) qsort(l.items, l.count, sizeof *l.items, by_begin);
  uint32_t kept = 0;
  for (uint32_t i = 0; i < l.count; i++)
    if (kept > 0 && l.items[i].begin_ps <= l.items[kept - 1].end_ps)
      l.items[kept - 1].end_ps = max_i64(l.items[kept - 1].end_ps, l.items[i].end_ps);
    else
      l.items[kept++] = l.items[i];
  assert(kept <= l.count);
  l.count = kept;
  return l;
}

static int64_t length_of(const interval_list *l)
{
  int64_t length = 0;
  for (uint32_t i = 0; i < l->count; i++) {
    assert(l->items[i].begin_ps < l->items[i].end_ps);
    length += l->items[i].end_ps - l->items[i].begin_ps;
  }
  return length;
}

static int64_t common_length(const interval_list *a, const interval_list *b)
{
  int64_t length = 0;
  for (uint32_t i = 0, k = 0; i < a->count && k < b->count;) {
    int64_t begin = max_i64(a->items[i].begin_ps, b->items[k].begin_ps);
    int64_t end = min_i64(a->items[i].end_ps, b->items[k].end_ps);
    if (end > begin) length += end - begin;
    if (a->items[i].end_ps < b->items[k].end_ps)
      i++;
    else
      k++;
  }
  return length;
}

static copy_timing copies(const trace_slice *s, bool (*is)(const trace_op *o),
                          const interval_list *compute, arena *a)
{
  interval_list busy = when(s, is, a);
  copy_timing c = { .busy_ps = length_of(&busy) };
  c.exposed_ps = c.busy_ps - common_length(&busy, compute);
  assert(0 <= c.exposed_ps && c.exposed_ps <= c.busy_ps);
  for (uint32_t i = 0; i < s->count; i++) {
    const trace_op *o = &s->trace->ops.items[s->first + i];
    if (is(o)) c.bytes += strtoll(o->call, NULL, 10);
  }
  return c;
}

static void measure_rank(rank_timing *r, timing_side side, const trace_slice *s, arena *a)
{
  interval_list compute = when(s, is_compute, a);
  r->compute_ps[side] = length_of(&compute);
  r->d2h[side] = copies(s, is_d2h, &compute, a);
  r->h2d[side] = copies(s, is_h2d, &compute, a);
}

/* ---- all ---- */

static void add_pairs(pair_array *pairs, const trace_slice *predicted, const trace_slice *measured)
{
  for (uint32_t i = 0; i < predicted->count && i < measured->count; i++) {
    timed_pair p = { { &predicted->trace->ops.items[predicted->first + i],
                       &measured->trace->ops.items[measured->first + i] } };
    bool alike = p.op[0]->name == p.op[1]->name && p.op[0]->call == p.op[1]->call;
    if (alike && p.op[MEASURED]->end_ps > 0) *ARRAY_PUSH(pairs) = p;
  }
}

timing trace_timing(const trace *predicted, const trace *measured, arena *a)
{
  uint32_t ranks = measured->header.ranks;
  pair_array pairs = { 0 };
  timing t = { .of = { predicted, measured },
               .rank_count = ranks,
               .ranks = ARENA_ARRAY(a, rank_timing, ranks),
               .step_ps = { median_step_ps(predicted), median_step_ps(measured) } };
  for (uint32_t r = 0; r < ranks; r++) {
    trace_slice s[] = { trace_slice_of(predicted, r, ranks), trace_slice_of(measured, r, ranks) };
    add_pairs(&pairs, &s[0], &s[1]);
    measure_rank(&t.ranks[r], PREDICTED, &s[0], a);
    measure_rank(&t.ranks[r], MEASURED, &s[1], a);
  }
  find_worst(&t, &pairs);
  if (pairs.count > 0) qsort(pairs.items, pairs.count, sizeof *pairs.items, by_class);
  find_classes(&t, &pairs, a);
  ARRAY_FREE(&pairs);
  return t;
}

/* ---- with and without offload --------------------------------------------------------------- */

const trace_figures *timing_figures(const timing *t, timing_side side, uint32_t rank)
{
  const trace *of = t->of[side];
  assert(rank < t->rank_count);
  return &of->figures[(uint64_t)rank * of->header.ranks / t->rank_count];
}

static int64_t peak_bytes(const trace_figures *f, saved_memory of)
{
  return of == SAVED_LIVE ? f->live_peak_bytes : f->requested_peak_bytes;
}

bool timing_saving(const timings *r, uint32_t rank, saved_memory of, saving_figures *s)
{
  int64_t saved[TIMING_SIDES];
  if (r->without == NULL || rank >= r->without->rank_count) return false;
  for (int side = 0; side < TIMING_SIDES; side++) {
    int64_t with = peak_bytes(timing_figures(&r->with, (timing_side)side, rank), of);
    int64_t without = peak_bytes(timing_figures(r->without, (timing_side)side, rank), of);
    if (with < 0 || without < 0) return false;
    saved[side] = without - with;
  }
  *s = (saving_figures){ timing_figures(&r->with, PREDICTED, rank)->theoretical_saving_bytes,
                         saved[PREDICTED], saved[MEASURED] };
  return true;
}

int64_t timing_overhead_ppm(const timings *r, timing_side side)
{
  assert(r->without != NULL);
  return error_ppm(r->with.step_ps[side], r->without->step_ps[side]);
}

/* ---- the worst of all ranks ---- */

static int64_t size_of(int64_t ppm)
{
  return ppm < 0 ? -ppm : ppm;
}

bool timing_peak_error_ppm(const timings *t, int64_t *ppm)
{
  bool known = false;
  for (uint32_t rank = 0; rank < t->with.rank_count; rank++) {
    int64_t predicted = timing_figures(&t->with, PREDICTED, rank)->live_peak_bytes;
    int64_t measured = timing_figures(&t->with, MEASURED, rank)->live_peak_bytes;
    if (predicted < 0 || measured <= 0) continue;
    int64_t error = size_of(error_ppm(predicted, measured));
    *ppm = known ? max_i64(*ppm, error) : error;
    known = true;
  }
  return known;
}

bool timing_ratio_ppm(const timings *t, int64_t *ppm)
{
  bool known = false;
  for (uint32_t rank = 0; rank < t->with.rank_count; rank++) {
    saving_figures s;
    if (!timing_saving(t, rank, SAVED_LIVE, &s) || s.simulated <= 0) continue;
    int64_t ratio = MILLION + error_ppm(s.measured, s.simulated);
    *ppm = known ? min_i64(*ppm, ratio) : ratio;
    known = true;
  }
  return known;
}

bool timing_step_error_ppm(const timings *t, int64_t *ppm)
{
  *ppm = size_of(error_ppm(t->with.step_ps[PREDICTED], t->with.step_ps[MEASURED]));
  return true;
}

bool timing_overhead_error_ppm(const timings *t, int64_t *ppm)
{
  *ppm = size_of(timing_overhead_ppm(t, PREDICTED) - timing_overhead_ppm(t, MEASURED));
  return true;
}
