/*
 * Zones of known bytes on both sides of a device buffer: who writes outside of a buffer is found
 * when it is freed. A run with guards waits for the GPU at every free: it is not for measuring
 * time.
 */
#include "cuda/exec/state.h"
#include "sim/base/units.h"

enum { GUARD_PATTERN = 0xC3 };

static bool has_guards(const rank_run *r, int64_t bytes)
{
  return r->exec->options.guards && bytes > 0;
}

int64_t guarded_bytes(const rank_run *r, int64_t bytes)
{
  if (!has_guards(r, bytes)) return bytes;
  return round_up(bytes, ALLOCATOR_ROUNDING_BYTES) + 2 * GUARD_BYTES;
}

/* The hind zone begins behind the last byte that the allocator would count. */
static int64_t hind_zone(const held_buffer *h)
{
  return round_up(h->bytes, ALLOCATOR_ROUNDING_BYTES);
}

unsigned char *guarded_begin(const rank_run *r, const held_buffer *h)
{
  return has_guards(r, h->bytes) && h->data != NULL ? h->data - GUARD_BYTES : h->data;
}

static gpu_stream *stream_of(const rank_run *r, const held_buffer *h)
{
  return r->streams[h->stream] != NULL ? r->streams[h->stream] : r->inspector;
}

static void count_guards(rank_run *r, int sign)
{
  r->guard_bytes += sign * 2 * GUARD_BYTES;
  r->guard_peak_bytes = max_i64(r->guard_peak_bytes, r->guard_bytes);
}

bool guards_begin(rank_run *r, held_buffer *h)
{
  if (!has_guards(r, h->bytes) || h->data == NULL) return true;
  gpu_stream *s = stream_of(r, h);
  h->data += GUARD_BYTES;
  count_guards(r, 1);
  return rank_ok(r, r->driver->fill(h->data - GUARD_BYTES, GUARD_PATTERN, GUARD_BYTES, s)) &&
         rank_ok(r, r->driver->fill(h->data + hind_zone(h), GUARD_PATTERN, GUARD_BYTES, s));
}

static int64_t broken_bytes(rank_run *r, const unsigned char *zone)
{
  unsigned char found[GUARD_BYTES];
  int64_t broken = 0;
  if (!rank_ok(r, r->driver->copy(found, zone, GUARD_BYTES, GPU_D2H, r->inspector)) ||
      !rank_ok(r, r->driver->stream_synchronize(r->inspector)))
    return 0;
  for (int i = 0; i < GUARD_BYTES; i++)
    broken += found[i] != GUARD_PATTERN;
  return broken;
}

void guards_check(rank_run *r, uint32_t buffer)
{
  const held_buffer *h = &r->buffers[buffer];
  if (!has_guards(r, h->bytes) || h->data == NULL || !is_going(r)) return;
  int64_t broken = broken_bytes(r, h->data - GUARD_BYTES) + broken_bytes(r, h->data + hind_zone(h));
  r->broken_guards += broken;
  if (broken == 0) return;
  arena scratch = { 0 };
  run_wrong(r->exec, "rank %u: somebody wrote outside of %s (%d bytes of its guard zones)",
            r->number, stage_buffer_text(r->stage, buffer, &scratch), (int)broken);
  arena_release(&scratch);
}

void guards_end(rank_run *r, uint32_t buffer)
{
  const held_buffer *h = &r->buffers[buffer];
  if (!has_guards(r, h->bytes) || h->data == NULL || !is_going(r)) return;
  count_guards(r, -1);
  if (streams_synchronize(r)) guards_check(r, buffer);
}
