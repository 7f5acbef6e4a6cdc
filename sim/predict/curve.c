#include "sim/predict/curve.h"

#include <assert.h>

static uint32_t count_on_compute(const rank_plan *p)
{
  uint32_t count = 0;
  for (uint32_t i = 0; i < p->ops.count; i++)
    count += p->ops.items[i].stream == STREAM_COMPUTE && op_takes_time(&p->ops.items[i]);
  return count;
}

static void add_point(curve_point *points, uint32_t *count, int64_t at_ps, int64_t bytes)
{
  assert(*count == 0 || points[*count - 1].at_ps <= at_ps);
  if (*count > 0 && points[*count - 1].bytes == bytes) return;
  points[(*count)++] = (curve_point){ at_ps, bytes };
}

const curve_point *curve_on_compute(const rank_plan *p, const rank_timeline *t,
                                    const int64_t *bytes, uint32_t *count, arena *a)
{
  curve_point *points = ARENA_ARRAY(a, curve_point, count_on_compute(p) + 1);
  int64_t highest = INT64_MIN, end_ps = 0, last = 0;
  *count = 0;
  for (uint32_t i = 0; i < p->ops.count; i++) {
    const plan_op *o = &p->ops.items[i];
    if (op_is_memory((op_kind)o->kind) && (i == 0 || bytes[i] != last))
      highest = bytes[i] > highest ? bytes[i] : highest;
    last = bytes[i];
    if (o->stream != STREAM_COMPUTE || !op_takes_time(o)) continue;
    add_point(points, count, op_start_ps(t, i), highest != INT64_MIN ? highest : last);
    highest = INT64_MIN;
    end_ps = op_end_ps(t, i);
  }
  add_point(points, count, end_ps, last);
  assert(*count > 0);
  return points;
}

const int64_t *pinned_curve(const rank_plan *p, arena *a)
{
  int64_t *bytes = ARENA_ARRAY(a, int64_t, (size_t)p->ops.count + 1), now = 0;
  for (uint32_t i = 0; i < p->ops.count; i++) {
    const plan_op *o = &p->ops.items[i];
    bool changes = o->kind == OP_HOST_ALLOC || o->kind == OP_HOST_FREE;
    const plan_buffer *b = changes ? &p->buffers.items[o->arg] : NULL;
    if (b != NULL && b->purpose == CLASS_PINNED_HOST)
      now += o->kind == OP_HOST_ALLOC ? b->bytes : -b->bytes;
    bytes[i] = now;
  }
  return bytes;
}
