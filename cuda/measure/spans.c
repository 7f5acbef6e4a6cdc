#include "cuda/measure/spans.h"

#include <stdlib.h>

static int order(int64_t a, int64_t b)
{
  return (a > b) - (a < b);
}

static int compare_activities(const void *left, const void *right)
{
  const activity *a = left, *b = right;
  int by_launch = order(a->launch, b->launch);
  return by_launch != 0 ? by_launch : order(a->begin_ns, b->begin_ns);
}

static int compare_claims(const void *left, const void *right)
{
  const claim *a = left, *b = right;
  return order(a->launch, b->launch);
}

static void widen(measure_span *s, const activity *a)
{
  if (s->end_ns == 0 || a->begin_ns < s->begin_ns) s->begin_ns = a->begin_ns;
  if (a->end_ns > s->end_ns) s->end_ns = a->end_ns;
  s->device = a->device;
}

static void give_to_op(measure_span *s, const activity *items, uint32_t count)
{
  for (uint32_t i = 0; i < count; i++)
    widen(s, &items[i]);
  s->launches += count;
}

/* A graph is a chain: its nodes run in the order of capture. If fewer or more activities ran than
 * were captured, they cannot be assigned to ops. */
static void give_to_graph(rank_spans *r, uint32_t end, const activity *items, uint32_t count)
{
  uint32_t first = r->graph_first[end], captured = 0, next = 0;
  for (uint32_t op = first; op < end; op++)
    captured += r->captured[op];
  for (uint32_t op = first; op < end; op++) {
    if (r->captured[op] == 0) continue;
    if (captured == count)
      give_to_op(&r->spans[op], items + next, r->captured[op]);
    else
      for (uint32_t i = 0; i < count; i++)
        widen(&r->spans[op], &items[i]);
    next += r->captured[op];
  }
}

static void give(rank_spans *ranks, const claim *c, const activity *items, uint32_t count)
{
  rank_spans *r = &ranks[c->rank];
  if (c->of_graph)
    give_to_graph(r, c->op, items, count);
  else
    give_to_op(&r->spans[c->op], items, count);
}

measure_tally spans_join(activity_array *activities, claim_array *claims, rank_spans *ranks)
{
  measure_tally tally = { 0 };
  uint32_t at = 0; /* first claim that does not belong to an earlier launch */
  if (activities->count > 0)
    qsort(activities->items, activities->count, sizeof(activity), compare_activities);
  if (claims->count > 0) qsort(claims->items, claims->count, sizeof(claim), compare_claims);
  for (uint32_t i = 0, count; i < activities->count; i += count) {
    const activity *first = &activities->items[i];
    for (count = 1; i + count < activities->count && first[count].launch == first->launch;)
      count++;
    while (at < claims->count && claims->items[at].launch < first->launch)
      at++;
    bool claimed = at < claims->count && claims->items[at].launch == first->launch;
    if (claimed) give(ranks, &claims->items[at], first, count);
    *(claimed ? &tally.records : &tally.foreign) += count;
  }
  return tally;
}
