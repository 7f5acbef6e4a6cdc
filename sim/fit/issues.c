#include "sim/fit/issues.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/array.h"
#include "sim/base/median.h"
#include "sim/base/units.h"
#include "sim/plan/intern.h"
#include "traces/import/call_table.h"
#include "traces/import/classes.h"

/* A call that takes this many times as long as most calls of its name waits for the GPU. */
enum { BLOCKED_TIMES = 4 };
#define LEAST_BLOCKED_NS 20000

/* ---- work ---- */

static fit_class class_of(const run_summary *s, uint32_t span)
{
  static const fit_class classes[KERNEL_CLASS_COUNT] = { [CLASS_GEMM] = FIT_GEMM,
                                                         [CLASS_ATTENTION] = FIT_ATTENTION,
                                                         [CLASS_COMMUNICATION] = FIT_COMMUNICATION,
                                                         [CLASS_OTHER] = FIT_OTHER };
  const real_span *w = &s->run->spans.items[span];
  if (w->kind == REAL_KERNEL) return classes[kernel_class_of(w->name)];
  if (real_span_is_copy((real_span_kind)w->kind) && !s->is_offload[span]) return FIT_CLASSES;
  return w->kind == REAL_D2H ? FIT_D2H : w->kind == REAL_H2D ? FIT_H2D : FIT_OTHER;
}

static int by_issue(const void *left, const void *right)
{
  const issue *a = left, *b = right;
  if (a->at_ns != b->at_ns) return a->at_ns < b->at_ns ? -1 : 1;
  return a->span < b->span ? -1 : a->span > b->span;
}

static void collect(issues *x, const run_summary *s, arena *a)
{
  const real_run *r = x->run;
  call_table calls = call_table_of(r);
  uint32_t called = 0, work = 0;
  x->items = ARENA_ARRAY(a, issue, (size_t)r->spans.count + 1);
  for (uint32_t i = 0; i < r->spans.count; i++) {
    const real_span *w = &r->spans.items[i];
    fit_class class = real_span_is_work((real_span_kind)w->kind) ? class_of(s, i) : FIT_CLASSES;
    if (class == FIT_CLASSES) continue;
    uint32_t call = call_table_find(&calls, w->correlation);
    const real_span *by = call != REAL_NONE ? &r->spans.items[call] : w;
    work++;
    called += call != REAL_NONE;
    x->items[x->count++] = (issue){ by->begin_ns, by == w ? w->begin_ns : by->end_ns,
                                    capped_mul(w->end_ns - w->begin_ns, PS_PER_NS), i, class };
  }
  ARRAY_FREE(&calls);
  /* A trace that begins within a step lacks the calls of its first kernels. */
  x->has_calls = called > 0 && called >= work - work / 10;
  if (x->count > 0) qsort(x->items, x->count, sizeof *x->items, by_issue);
}

/* ---- kernels at one time ---- */

typedef struct edge {
  int64_t at_ns;
  uint32_t issue;
  bool ends;
} edge;

static int by_edge(const void *left, const void *right)
{
  const edge *a = left, *b = right;
  if (a->at_ns != b->at_ns) return a->at_ns < b->at_ns ? -1 : 1;
  if (a->ends != b->ends) return a->ends ? -1 : 1;
  return a->issue < b->issue ? -1 : a->issue > b->issue;
}

static bool is_kernel(const issue *i)
{
  return i->class == FIT_GEMM || i->class == FIT_ATTENTION || i->class == FIT_OTHER;
}

/* Kernels of several streams, as those of experts, together take the sum of their times: each of them
 * gets an equal part of the time in which they run. */
static void share_time(issues *x, arena *a)
{
  edge *edges = ARENA_ARRAY(a, edge, 2 * (size_t)x->count + 1);
  uint32_t *running = ARENA_ARRAY(a, uint32_t, (size_t)x->count + 1), count = 0, live = 0;
  for (uint32_t i = 0; i < x->count; i++) {
    const real_span *s = &x->run->spans.items[x->items[i].span];
    if (!is_kernel(&x->items[i]) || s->begin_ns == s->end_ns) continue;
    x->items[i].ps = 0;
    edges[count++] = (edge){ s->begin_ns, i, false };
    edges[count++] = (edge){ s->end_ns, i, true };
  }
  if (count > 0) qsort(edges, count, sizeof *edges, by_edge);
  for (uint32_t e = 0; e < count; e++) {
    for (uint32_t k = 0; k < live; k++)
      x->items[running[k]].ps += capped_mul(edges[e].at_ns - edges[e - 1].at_ns, PS_PER_NS) / live;
    if (!edges[e].ends) {
      running[live++] = edges[e].issue;
      continue;
    }
    uint32_t k = 0;
    while (running[k] != edges[e].issue)
      k++;
    running[k] = running[--live];
  }
  assert(live == 0);
}

/* ---- the host ---- */

static bool is_synchronisation(const char *name)
{
  return strstr(name, "Synchronize") != NULL;
}

/* By name of a call: the median of their times. */
static const int64_t *usual_ns(const real_run *r, intern_table *names, arena *a)
{
  uint32_t calls = 0;
  uint32_t *number = ARENA_ARRAY(a, uint32_t, (size_t)r->spans.count + 1);
  for (uint32_t i = 0; i < r->spans.count; i++) {
    const real_span *s = &r->spans.items[i];
    number[i] = s->kind == REAL_CALL ? intern(names, s->name, strlen(s->name)) : UINT32_MAX;
    calls += s->kind == REAL_CALL;
  }
  sample_list *lists = ARENA_ARRAY(a, sample_list, (size_t)names->count + 1);
  int64_t *usual = ARENA_ARRAY(a, int64_t, (size_t)names->count + 1);
  for (uint32_t i = 0; i < r->spans.count; i++)
    if (number[i] != UINT32_MAX)
      *ARRAY_PUSH(&lists[number[i]]) = r->spans.items[i].end_ns - r->spans.items[i].begin_ns;
  for (uint32_t i = 0; i < names->count; i++) {
    usual[i] = sample_median(&lists[i]);
    ARRAY_FREE(&lists[i]);
  }
  assert(names->count <= calls);
  return usual;
}

static int64_t blocked_ns(const real_span *s, int64_t usual)
{
  int64_t length = s->end_ns - s->begin_ns;
  if (is_synchronisation(s->name)) return length;
  return length > max_i64(LEAST_BLOCKED_NS, BLOCKED_TIMES * usual) ? length - usual : 0;
}

/* Spans are sorted by begin; a call that waits counts where it ends, as its work is issued then. */
static int by_time(const void *left, const void *right)
{
  const host_sum *a = left, *b = right;
  if (a->at_ns != b->at_ns) return a->at_ns < b->at_ns ? -1 : 1;
  return (a->total > b->total) - (a->total < b->total);
}

static void add_up(host_sums *s)
{
  if (s->count > 0) qsort(s->items, s->count, sizeof *s->items, by_time);
  for (uint32_t i = 1; i < s->count; i++)
    s->items[i].total += s->items[i - 1].total;
}

static void count_host(issues *x, arena *a)
{
  const real_run *r = x->run;
  intern_table names = { .memory = a };
  const int64_t *usual = usual_ns(r, &names, a);
  x->events.items = ARENA_ARRAY(a, host_sum, (size_t)r->spans.count + 1);
  x->blocked_ns.items = ARENA_ARRAY(a, host_sum, (size_t)r->spans.count + 1);
  for (uint32_t i = 0; i < r->spans.count; i++) {
    const real_span *s = &r->spans.items[i];
    if (real_span_is_on_stream((real_span_kind)s->kind)) continue;
    x->events.items[x->events.count++] = (host_sum){ s->begin_ns, 1 };
    if (s->kind != REAL_CALL) continue;
    int64_t waits = blocked_ns(s, usual[intern(&names, s->name, strlen(s->name))]);
    if (waits > 0) x->blocked_ns.items[x->blocked_ns.count++] = (host_sum){ s->end_ns, waits };
  }
  add_up(&x->events);
  add_up(&x->blocked_ns);
}

static int64_t sum_up_to(const host_sums *s, int64_t at_ns)
{
  const host_sum after = { at_ns + 1, INT64_MIN };
  uint32_t count = array_count_before(s->items, s->count, sizeof after, &after, by_time);
  return count == 0 ? 0 : s->items[count - 1].total;
}

int64_t host_sum_between(const host_sums *s, int64_t from_ns, int64_t to_ns)
{
  assert(from_ns <= to_ns);
  return sum_up_to(s, to_ns) - sum_up_to(s, from_ns);
}

issues issues_of(const real_run *r, arena *a)
{
  issues x = { .run = r };
  run_summary s = run_summary_of(r, a);
  x.begin_ns = s.step_count > 0 ? s.steps[0].begin_ns : s.begin_ns;
  x.end_ns = s.step_count > 0 ? s.steps[0].end_ns : s.end_ns;
  collect(&x, &s, a);
  share_time(&x, a);
  count_host(&x, a);
  return x;
}
