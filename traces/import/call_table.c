#include "traces/import/call_table.h"

#include <stdlib.h>

static int by_correlation(const void *left, const void *right)
{
  const numbered_call *a = left, *b = right;
  if (a->correlation != b->correlation) return a->correlation < b->correlation ? -1 : 1;
  return (a->span > b->span) - (a->span < b->span);
}

call_table call_table_of(const real_run *r)
{
  call_table t = { 0 };
  for (uint32_t i = 0; i < r->spans.count; i++) {
    const real_span *s = &r->spans.items[i];
    if (s->kind == REAL_CALL && s->correlation != 0)
      *ARRAY_PUSH(&t) = (numbered_call){ s->correlation, i };
  }
  if (t.count > 0) qsort(t.items, t.count, sizeof *t.items, by_correlation);
  return t;
}

uint32_t call_table_find(const call_table *t, uint32_t correlation)
{
  const numbered_call key = { .correlation = correlation };
  uint32_t at = array_count_before(t->items, t->count, sizeof key, &key, by_correlation);
  bool found = at < t->count && t->items[at].correlation == correlation;
  return found && correlation != 0 ? t->items[at].span : REAL_NONE;
}
