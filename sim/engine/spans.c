#include "sim/engine/spans.h"

#include <stdlib.h>

#include "sim/base/units.h"

static int by_begin(const void *left, const void *right)
{
  const span *a = left, *b = right;
  return (a->begin_ps > b->begin_ps) - (a->begin_ps < b->begin_ps);
}

void spans_sort(span_list *l)
{
  if (l->count > 0) qsort(l->items, l->count, sizeof *l->items, by_begin);
}

/* The first one that is not over at a time. */
static uint32_t first_after(const span_list *l, int64_t at_ps)
{
  uint32_t low = 0, high = l->count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (l->items[middle].end_ps > at_ps)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

int64_t spans_meet_ps(const span_list *l, int64_t begin_ps, int64_t end_ps)
{
  int64_t ps = 0;
  for (uint32_t i = first_after(l, begin_ps); i < l->count && l->items[i].begin_ps < end_ps; i++)
    ps += min_i64(end_ps, l->items[i].end_ps) - max_i64(begin_ps, l->items[i].begin_ps);
  return ps;
}
