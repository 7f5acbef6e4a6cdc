#include <assert.h>

#include "sim/predict/curve.h"
#include "sim/predict/host_times.h"
#include "sim/report/prediction.h"
#include "traces/timeline.h"

typedef struct rank_of {
  const prediction *prediction;
  uint32_t rank;
  const rank_plan *ops;
  const rank_timeline *times;
  arena *memory;
} rank_of;

/* ---- phases ---- */

/* From one mark to the next, at the host's time. */
static timeline_phase *phases_of(const rank_of *r, uint32_t *count)
{
  timeline_phase *phases = ARENA_ARRAY(r->memory, timeline_phase, r->ops->marks.count + 1);
  int64_t now_ps = 0;
  *count = 0;
  for (uint32_t i = 0; i < r->ops->ops.count; i++) {
    const plan_op *o = &r->ops->ops.items[i];
    if (o->kind == OP_MARK || o->kind == OP_ALLOC || o->kind == OP_FREE)
      now_ps = op_start_ps(r->times, i);
    if (o->kind == OP_MARK)
      phases[(*count)++] =
          (timeline_phase){ &r->ops->marks.items[o->arg], op_start_ps(r->times, i), now_ps };
    if (*count > 0) phases[*count - 1].end_ps = now_ps;
  }
  for (uint32_t i = 0; i + 1 < *count; i++)
    phases[i].end_ps = phases[i + 1].begin_ps;
  return phases;
}

/* ---- curves ---- */

enum { CURVES = 4 };

static timeline_curve new_curve(const rank_of *r, const char *name, timeline_point **points)
{
  *points = ARENA_ARRAY(r->memory, timeline_point, (size_t)r->ops->ops.count + 1);
  return (timeline_curve){ .name = name, .points = *points };
}

static timeline_curve allocated(const rank_of *r)
{
  uint32_t count;
  timeline_point *points;
  timeline_curve c = new_curve(r, "allocated bytes", &points);
  const curve_point *from = curve_on_compute(
      r->ops, r->times, r->prediction->curves[r->rank].allocated_bytes, &count, r->memory);
  for (uint32_t i = 0; i < count; i++)
    points[c.count++] = (timeline_point){ from[i].at_ps, from[i].bytes };
  return c;
}

/* Of what happens at one time, or goes up without a stop, the last; of what goes down likewise: the
 * curve keeps every highest and lowest value. */
static timeline_curve live(const rank_of *r)
{
  const int64_t *bytes = r->prediction->curves[r->rank].live_bytes;
  timeline_point *points;
  timeline_curve c = new_curve(r, "live bytes", &points);
  timeline_point last = { .bytes = -1 };
  bool rising = true;
  for (uint32_t i = 0; i < r->ops->ops.count; i++) {
    uint8_t kind = r->ops->ops.items[i].kind;
    if ((kind != OP_ALLOC && kind != OP_FREE) || bytes[i] == last.bytes) continue;
    bool rises = bytes[i] > last.bytes;
    if (last.bytes >= 0 && rises != rising) points[c.count++] = last;
    rising = rises;
    last = (timeline_point){ op_start_ps(r->times, i), bytes[i] };
  }
  if (last.bytes >= 0) points[c.count++] = last;
  return c;
}

/* Each change. */
static timeline_curve changes(const rank_of *r, const char *name, const int64_t *bytes)
{
  int64_t value = -1;
  timeline_point *points;
  timeline_curve c = new_curve(r, name, &points);
  for (uint32_t i = 0; i < r->ops->ops.count; i++) {
    if (!op_is_memory((op_kind)r->ops->ops.items[i].kind) || bytes[i] == value) continue;
    value = bytes[i];
    points[c.count++] = (timeline_point){ op_start_ps(r->times, i), value };
  }
  return c;
}

static timeline_curve *curves_of(const rank_of *r)
{
  timeline_curve *curves = ARENA_ARRAY(r->memory, timeline_curve, CURVES);
  curves[0] = allocated(r);
  curves[1] = live(r);
  /* What the allocator has obtained from the driver; page-locked host memory that buffers hold. */
  curves[2] = changes(r, "reserved bytes", r->prediction->curves[r->rank].reserved_bytes);
  curves[3] = changes(r, "pinned bytes", pinned_curve(r->ops, r->memory));
  return curves;
}

/* ---- all ---- */

static void set_times(timeline_rank *shown, const rank_timeline *t, arena *a)
{
  uint32_t count = shown->ops->ops.count;
  int64_t *start_ps = ARENA_ARRAY(a, int64_t, count), *end_ps = ARENA_ARRAY(a, int64_t, count);
  for (uint32_t i = 0; i < count; i++) {
    start_ps[i] = op_start_ps(t, i);
    end_ps[i] = op_end_ps(t, i);
  }
  shown->start_ps = start_ps;
  shown->end_ps = end_ps;
}

static void put_rank(timeline_file *t, const prediction *p, uint32_t rank)
{
  arena scratch = { 0 };
  const rank_of r = { .prediction = p,
                      .rank = rank,
                      .ops = &p->steady.plan.ranks[rank],
                      .times = &p->steady_timeline.ranks[rank],
                      .memory = &scratch };
  host_times host = host_times_of(p, rank, &scratch);
  timeline_rank shown = { .number = rank,
                          .name = arena_printf(&scratch, "pipeline rank %u", rank),
                          .ops = r.ops,
                          .issued_ps = host.issued_ps,
                          .waited_ps = host.waited_ps,
                          .step_ps = p->result.step_ps,
                          .curves = curves_of(&r),
                          .curve_count = CURVES };
  set_times(&shown, r.times, &scratch);
  shown.phases = phases_of(&r, &shown.phase_count);
  timeline_put(t, &shown);
  arena_release(&scratch);
}

static uint32_t first_of(const bool *ranks)
{
  uint32_t first = 0;
  while (!ranks[first])
    first++;
  return first;
}

void prediction_timeline(const prediction *p, const bool *ranks, FILE *out, arena *a)
{
  timeline_file t;
  assert(p->curves != NULL);
  timeline_begin(&t, out, &p->steady.plan, first_of(ranks), p->rank_count, a);
  for (uint32_t rank = 0; rank < p->rank_count; rank++)
    if (ranks[rank]) put_rank(&t, p, rank);
  timeline_end(&t);
}
