/*
 * A run of several steps, of which the last one is kept: as if its record had begun with it.
 */
#include <assert.h>
#include <string.h>

#include "traces/import/real_run.h"

/* The first of the last passes of these kinds; REAL_NONE: the run has none before them, or others. */
static uint32_t first_of_last(const real_run *r, const real_pass_kind *kinds, uint32_t count)
{
  uint32_t passes = r->passes.count;
  while (passes > 0 && r->passes.items[passes - 1].kind == REAL_FINISH)
    passes--;
  if (count == 0 || passes <= count) return REAL_NONE;
  for (uint32_t i = 0; i < count; i++)
    if (r->passes.items[passes - count + i].kind != kinds[i]) return REAL_NONE;
  return passes - count;
}

static bool is_kept(const real_span *s, uint32_t first, int64_t from_ns)
{
  bool of_pass = real_span_is_work((real_span_kind)s->kind) && s->pass != REAL_NONE;
  return of_pass ? s->pass >= first : s->begin_ns >= from_ns;
}

static void keep_spans(real_run *r, uint32_t first, int64_t from_ns)
{
  uint32_t kept = 0;
  for (uint32_t i = 0; i < r->spans.count; i++) {
    real_span s = r->spans.items[i];
    if (!is_kept(&s, first, from_ns)) continue;
    if (s.pass != REAL_NONE) s.pass -= first;
    r->spans.items[kept++] = s;
  }
  r->spans.count = kept;
}

static void keep_passes(real_run *r, uint32_t first)
{
  uint32_t numbers[REAL_PASS_KINDS] = { 0 };
  r->passes.count -= first;
  memmove(r->passes.items, r->passes.items + first, r->passes.count * sizeof *r->passes.items);
  for (uint32_t i = 0; i < r->passes.count; i++)
    r->passes.items[i].number = numbers[r->passes.items[i].kind]++;
}

static void keep_events(real_run *r, int64_t from_ns)
{
  uint32_t first = 0;
  while (first < r->events.count && r->events.items[first].time_ns < from_ns)
    first++;
  if (first == 0) return;
  r->events.count -= first;
  memmove(r->events.items, r->events.items + first, r->events.count * sizeof *r->events.items);
}

uint32_t real_run_keep_last(real_run *r, const real_pass_kind *kinds, uint32_t count)
{
  assert(r->is_finished);
  uint32_t first = first_of_last(r, kinds, count);
  if (first == REAL_NONE) return 0;
  int64_t from_ns = r->passes.items[first].issued_from_ns;
  keep_spans(r, first, from_ns);
  keep_passes(r, first);
  keep_events(r, from_ns);
  return first;
}
