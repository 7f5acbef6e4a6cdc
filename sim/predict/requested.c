#include "sim/predict/requested.h"

#include <assert.h>

#include "sim/base/units.h"
#include "sim/memory/caching_allocator.h"

static int64_t rounded_bytes(const plan_buffer *b)
{
  assert(b->bytes >= 0);
  if (!buffer_is_allocated(b)) return 0;
  return round_up(b->bytes, ALLOCATOR_ROUNDING_BYTES);
}

int64_t requested_before_bytes(const rank_plan *r)
{
  int64_t bytes = 0;
  assert(r->residents <= r->buffers.count);
  for (uint32_t b = 0; b < r->residents; b++)
    bytes += rounded_bytes(&r->buffers.items[b]);
  return bytes;
}

int64_t requested_change_bytes(const rank_plan *r, const plan_op *o)
{
  if (o->kind != OP_ALLOC && o->kind != OP_FREE) return 0;
  int64_t bytes = rounded_bytes(&r->buffers.items[o->arg]);
  return o->kind == OP_ALLOC ? bytes : -bytes;
}

int64_t requested_peak_bytes(const rank_plan *r)
{
  int64_t now = requested_before_bytes(r), peak = now;
  for (uint32_t i = 0; i < r->ops.count; i++) {
    now += requested_change_bytes(r, &r->ops.items[i]);
    assert(now >= 0);
    peak = max_i64(peak, now);
  }
  return peak;
}

int64_t plan_requested_peak_bytes(const plan *p)
{
  int64_t most = 0;
  for (uint32_t i = 0; i < p->rank_count; i++)
    most = max_i64(most, requested_peak_bytes(&p->ranks[i]));
  return most;
}
