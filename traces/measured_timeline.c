#include "traces/measured_timeline.h"

#include "sim/base/units.h"

enum { CURVES = 3 };

/* Work of compute, whose times are in the order of the ops. */
static bool is_clocked(const measured_rank *r, uint32_t op)
{
  const plan_op *o = &r->ops->ops.items[op];
  return o->stream == STREAM_COMPUTE && op_works((op_kind)o->kind) && r->begin_ps[op] >= 0;
}

/* From the first work of compute to the last; without any, a phase is left out. */
static timeline_phase *phases_of(const measured_rank *r, uint32_t *count, arena *a)
{
  timeline_phase *phases = ARENA_ARRAY(a, timeline_phase, (size_t)r->ops->marks.count + 1);
  const plan_mark *mark = NULL;
  *count = 0;
  for (uint32_t i = 0; i < r->ops->ops.count; i++) {
    const plan_op *o = &r->ops->ops.items[i];
    if (o->kind == OP_MARK) mark = &r->ops->marks.items[o->arg];
    if (mark == NULL || !is_clocked(r, i)) continue;
    if (*count == 0 || phases[*count - 1].mark != mark)
      phases[(*count)++] = (timeline_phase){ mark, r->begin_ps[i], r->end_ps[i] };
    phases[*count - 1].end_ps = max_i64(phases[*count - 1].end_ps, r->end_ps[i]);
  }
  return phases;
}

static timeline_curve curve_of(const measured_rank *r, const char *name, const int64_t *bytes,
                               arena *a)
{
  timeline_point *points = ARENA_ARRAY(a, timeline_point, (size_t)r->ops->ops.count + 1);
  timeline_curve c = { .name = name, .points = points };
  for (uint32_t i = 0; i < r->ops->ops.count; i++)
    if (is_clocked(r, i) && (c.count == 0 || points[c.count - 1].bytes != bytes[i]))
      points[c.count++] = (timeline_point){ r->begin_ps[i], bytes[i] };
  return c;
}

static int64_t last_end(const measured_rank *r)
{
  int64_t end_ps = 0;
  for (uint32_t i = 0; i < r->ops->ops.count; i++)
    if (r->begin_ps[i] >= 0) end_ps = max_i64(end_ps, r->end_ps[i]);
  return end_ps;
}

void timeline_put_measured(timeline_file *t, const measured_rank *r)
{
  arena scratch = { 0 };
  const timeline_curve curves[CURVES] = {
    curve_of(r, "live bytes", r->live_bytes, &scratch),
    curve_of(r, "reserved bytes", r->reserved_bytes, &scratch),
    curve_of(r, "pinned bytes", r->pinned_bytes, &scratch),
  };
  timeline_rank shown = { .number = r->number,
                          .name = arena_printf(&scratch, "rank %u", r->number),
                          .ops = r->ops,
                          .start_ps = r->begin_ps,
                          .end_ps = r->end_ps,
                          .step_ps = last_end(r),
                          .curves = curves,
                          .curve_count = CURVES };
  shown.phases = phases_of(r, &shown.phase_count, &scratch);
  timeline_put(t, &shown);
  arena_release(&scratch);
}
