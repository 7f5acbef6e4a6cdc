/* Zones of known bytes around device memory. */
#include <assert.h>

#include "cuda/memory/device_memory.h"
#include "sim/base/units.h"

enum { GUARD_PATTERN = 0xC3 };

static bool has_guards(const device_memory *m, int64_t bytes)
{
  return m->guards && bytes > 0;
}

/* For a buffer with memory, unless something has failed. */
static bool are_checked(const device_memory *m, const held_buffer *h)
{
  return has_guards(m, h->bytes) && h->data != NULL && sink_is_open(m->queue->sink);
}

int64_t guarded_bytes(const device_memory *m, int64_t bytes)
{
  assert(bytes >= 0);
  if (!has_guards(m, bytes)) return bytes;
  return round_up(bytes, ALLOCATOR_ROUNDING_BYTES) + 2 * GUARD_BYTES;
}

/* The rear zone begins after the last byte that the allocator would count. */
static int64_t hind_zone(const held_buffer *h)
{
  assert(h->bytes > 0 && h->data != NULL);
  return round_up(h->bytes, ALLOCATOR_ROUNDING_BYTES);
}

unsigned char *guarded_begin(const device_memory *m, const held_buffer *h)
{
  return has_guards(m, h->bytes) && h->data != NULL ? h->data - GUARD_BYTES : h->data;
}

static void count_guards(device_memory *m, int sign)
{
  assert(m->guards && (sign == 1 || sign == -1));
  m->guard_bytes += sign * 2 * GUARD_BYTES;
  assert(m->guard_bytes >= 0 && "ended guards have begun");
  m->guard_peak_bytes = max_i64(m->guard_peak_bytes, m->guard_bytes);
}

bool guards_begin(device_memory *m, held_buffer *h)
{
  const gpu_driver *driver = m->queue->driver;
  if (!has_guards(m, h->bytes) || h->data == NULL) return true;
  gpu_stream *s = pool_stream(m->queue, h->stream);
  h->data += GUARD_BYTES;
  count_guards(m, 1);
  return sink_ok(m->queue->sink,
                 driver->fill(h->data - GUARD_BYTES, GUARD_PATTERN, GUARD_BYTES, s)) &&
         sink_ok(m->queue->sink,
                 driver->fill(h->data + hind_zone(h), GUARD_PATTERN, GUARD_BYTES, s));
}

static int64_t broken_bytes(const rank_queue *q, const unsigned char *zone)
{
  unsigned char found[GUARD_BYTES];
  assert(zone != NULL && q->inspector != NULL);
  int64_t broken = 0;
  if (!sink_ok(q->sink, q->driver->copy(found, zone, GUARD_BYTES, GPU_D2H, q->inspector)) ||
      !sink_ok(q->sink, q->driver->stream_synchronize(q->inspector)))
    return 0;
  for (int i = 0; i < GUARD_BYTES; i++)
    broken += found[i] != GUARD_PATTERN;
  return broken;
}

void guards_check(device_memory *m, const stage *s, uint32_t buffer, const held_buffer *h)
{
  if (!are_checked(m, h)) return;
  int64_t broken = broken_bytes(m->queue, h->data - GUARD_BYTES) +
                   broken_bytes(m->queue, h->data + hind_zone(h));
  m->broken_guards += broken;
  if (broken == 0) return;
  failure_sink *sink = m->queue->sink;
  arena scratch = { 0 };
  sink->wrong(sink->context, NO_OP,
              arena_printf(&scratch, "a kernel wrote outside of %s (%d bytes of its guard zones)",
                           stage_buffer_text(s, buffer, &scratch), (int)broken));
  arena_release(&scratch);
}

void guards_end(device_memory *m, const stage *s, uint32_t buffer, const held_buffer *h)
{
  assert(h->state == FREED && "a buffer has guards until its free");
  if (!are_checked(m, h)) return;
  count_guards(m, -1);
  if (queue_synchronize(m->queue)) guards_check(m, s, buffer, h);
}
