#include "traces/import/compare_waits.h"

#include <stdlib.h>

#include "traces/import/call_table.h"
#include "traces/import/copy_waits.h"

/* ---- what the host of the run did ---- */

typedef struct issue {
  int64_t at_ns;
  uint32_t span;
} issue;

static int by_time(const void *left, const void *right)
{
  const issue *a = left, *b = right;
  if (a->at_ns != b->at_ns) return a->at_ns < b->at_ns ? -1 : 1;
  return (a->span > b->span) - (a->span < b->span);
}

static bool is_action(real_span_kind kind)
{
  return real_span_is_work(kind) || (kind >= REAL_WAIT && kind <= REAL_ALL_DONE);
}

/* The host goes on when its wait ends. */
static int64_t issue_time(const real_run *r, const call_table *calls, const real_span *s)
{
  if (s->kind >= REAL_STREAM_DONE && s->kind <= REAL_ALL_DONE) return s->end_ns;
  uint32_t call = call_table_find(calls, s->correlation);
  return call == REAL_NONE ? s->begin_ns : r->spans.items[call].begin_ns;
}

static issue *issues_in_order(const real_run *r, uint32_t *count, arena *a)
{
  call_table calls = call_table_of(r);
  issue *all = ARENA_ARRAY(a, issue, (size_t)r->spans.count + 1);
  *count = 0;
  for (uint32_t i = 0; i < r->spans.count; i++)
    if (is_action((real_span_kind)r->spans.items[i].kind))
      all[(*count)++] = (issue){ issue_time(r, &calls, &r->spans.items[i]), i };
  qsort(all, *count, sizeof *all, by_time);
  ARRAY_FREE(&calls);
  return all;
}

static action action_of(const measured_run *m, uint32_t span)
{
  static const action_kind kinds[REAL_SPAN_KINDS] = {
    [REAL_WAIT] = ACTION_WAIT,
    [REAL_RECORD] = ACTION_RECORD,
    [REAL_STREAM_DONE] = ACTION_STREAM_DONE,
    [REAL_EVENT_DONE] = ACTION_EVENT_DONE,
    [REAL_ALL_DONE] = ACTION_ALL_DONE,
  };
  const real_span *s = &m->run->spans.items[span];
  bool copy = (s->kind == REAL_D2H && s->track == m->summary->offload_stream) ||
              (s->kind == REAL_H2D && s->track == m->summary->reload_stream);
  action a = { .kind = copy ? ACTION_COPY : kinds[s->kind], .stream = s->track, .pass = s->pass };
  a.number = copy ? span : (uint32_t)s->bytes;
  return a;
}

static copy_wait *measured_waits(const measured_run *m, arena *a)
{
  const real_run *r = m->run;
  uint32_t count, streams = r->streams.count;
  const issue *issues = issues_in_order(r, &count, a);
  action_array actions = { 0 };
  uint8_t *kinds = ARENA_ARRAY(a, uint8_t, (size_t)streams + 1);
  copy_wait *waits = ARENA_ARRAY(a, copy_wait, (size_t)r->spans.count + 1);
  for (uint32_t i = 0; i < streams; i++)
    kinds[i] = r->streams.items[i].kind;
  for (uint32_t i = 0; i < count; i++)
    *ARRAY_PUSH(&actions) = action_of(m, issues[i].span);
  find_copy_waits(&actions, kinds, streams, m->summary->compute, waits);
  ARRAY_FREE(&actions);
  return waits;
}

/* ---- findings ---- */

static uint32_t find_pass(const real_comparison *c, const predicted_pass *of)
{
  for (uint32_t i = 0; i < c->pass_count; i++)
    if (c->passes[i].kind == of->kind && c->passes[i].microbatch == of->microbatch &&
        c->passes[i].chunk == of->chunk)
      return i;
  return c->pass_count;
}

/* Its place among the passes of the comparison; after all of them for what follows the last one. */
static uint32_t predicted_pass_of(const real_comparison *c, uint32_t mark)
{
  if (mark == AWAITED_NEVER) return mark;
  return c->same_passes ? find_pass(c, &c->predicted.mark_passes[mark]) : 0;
}

static uint32_t measured_pass_of(const real_comparison *c, uint32_t pass)
{
  if (pass == AWAITED_NEVER) return pass;
  return !c->same_passes ? 0 : pass < c->pass_count ? pass : c->pass_count;
}

/* Small kernels that one side lacks may be all that is new; then the other side waits for nothing
 * else. */
static wait_finding compare_before(copy_before predicted, copy_before measured)
{
  if (predicted == BEFORE_WAITS && measured == BEFORE_DOES_NOT) return WAIT_MISSING;
  if (predicted == BEFORE_DOES_NOT && measured == BEFORE_WAITS) return WAIT_ADDITIONAL;
  return WAIT_SAME;
}

static wait_finding compare_after(uint32_t predicted, uint32_t measured)
{
  if (predicted == measured) return WAIT_SAME;
  if (measured == AWAITED_NEVER) return WAIT_MISSING;
  if (predicted == AWAITED_NEVER) return WAIT_ADDITIONAL;
  return measured < predicted ? WAIT_EARLY : WAIT_LATE;
}

static void compare_direction(const real_comparison *c, direction_comparison *d,
                              const copy_wait *predicted, const copy_wait *measured)
{
  for (uint32_t i = 0; i < d->copy_count; i++) {
    compared_copy *copy = &d->copies[i];
    if (copy->op == REAL_NONE || copy->span == REAL_NONE) continue;
    const copy_wait *p = &predicted[c->predicted.record->ops.items[copy->op].op];
    const copy_wait *m = &measured[copy->span];
    copy->awaited[SIDE_PREDICTED] = predicted_pass_of(c, p->awaited);
    copy->awaited[SIDE_MEASURED] = measured_pass_of(c, m->awaited);
    copy->wait[WAIT_BEFORE] = compare_before(p->before, m->before);
    copy->wait[WAIT_AFTER] =
        compare_after(copy->awaited[SIDE_PREDICTED], copy->awaited[SIDE_MEASURED]);
    for (int order = 0; order < WAIT_ORDERS; order++)
      d->waits[order][copy->wait[order]]++;
  }
}

void compare_waits(real_comparison *c)
{
  arena scratch = { 0 };
  const predicted_run *p = &c->predicted;
  c->waits_compared = p->action_count > 0 && c->measured.run->waits_are_resolved &&
                      c->measured.summary->compute != REAL_NONE;
  if (!c->waits_compared) return;
  copy_wait *predicted = ARENA_ARRAY(&scratch, copy_wait, (size_t)p->op_count + 1);
  const action_array actions = { (action *)p->actions, p->action_count, p->action_count };
  find_copy_waits(&actions, NULL, p->stream_count, p->compute_stream, predicted);
  const copy_wait *measured = measured_waits(&c->measured, &scratch);
  compare_direction(c, &c->d2h, predicted, measured);
  compare_direction(c, &c->h2d, predicted, measured);
  arena_release(&scratch);
}
