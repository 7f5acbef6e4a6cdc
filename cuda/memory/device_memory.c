#include "cuda/memory/device_memory.h"

#include <assert.h>
#include <inttypes.h>

#include "sim/base/units.h"

/* Granules of expandable segments (sim/memory/caching_allocator.h): they come and go one by one. */
#define LARGE_GRANULE_BYTES (20 * MIB)

/* Address space for this many times the device's memory: addresses are never used twice, and every
 * expandable segment can hold all of the memory. Processes have 128 TiB, of which all ranks take
 * half. */
enum { SPACE_TIMES = 32 };
#define SPACE_OF_ALL (INT64_C(64) << 40)

static bool ok(const device_memory *m, const char *answer)
{
  return sink_ok(m->queue->sink, answer);
}

/* ---- segments -------------------------------------------------------------------------------- */

static int64_t piece_bytes(const device_memory *m, int64_t bytes)
{
  assert(bytes > 0 && "the allocator maps no empty segment");
  return m->expandable_segments ? min_i64(bytes, LARGE_GRANULE_BYTES) : bytes;
}

static void unmap(device_memory *m, int64_t address, int64_t bytes)
{
  int64_t piece = piece_bytes(m, bytes);
  assert(bytes % piece == 0 && "granules come whole");
  for (int64_t at = 0; at < bytes; at += piece)
    ok(m, m->queue->driver->space_unmap(&m->space, address + at, piece));
}

static bool give_segment(void *context, int64_t address, int64_t bytes)
{
  device_memory *m = context;
  int64_t piece = piece_bytes(m, bytes);
  assert(address >= 0 && bytes % piece == 0 && "granules come whole");
  if (address + bytes > m->space.bytes) return false;
  for (int64_t at = 0; at < bytes; at += piece)
    if (m->queue->driver->space_map(&m->space, address + at, piece) != NULL) {
      if (at > 0) unmap(m, address, at);
      return false;
    }
  return true;
}

/* Work already issued to the rank's streams may still use it. */
static void take_back_segment(void *context, int64_t address, int64_t bytes)
{
  device_memory *m = context;
  assert(address >= 0 && address + bytes <= m->space.bytes);
  if (queue_synchronize(m->queue)) unmap(m, address, bytes);
}

/* Address space for `capacity` of device memory, or less if the system refuses it (a limit of the
 * process, a sanitizer). */
static bool reserve_space(device_memory *m, int64_t *capacity)
{
  const char *why;
  assert(*capacity > 0 && m->space.bytes == 0);
  for (;; *capacity /= 2) {
    int64_t granules = ceil_div(*capacity, LARGE_GRANULE_BYTES);
    why = m->queue->driver->space_new(m->gpu, granules * LARGE_GRANULE_BYTES * SPACE_TIMES,
                                      &m->space);
    if (why == NULL || granules == 1) return ok(m, why);
  }
}

static bool caching_new(device_memory *m, uint32_t ranks)
{
  int64_t unused, total;
  if (!ok(m, m->queue->driver->memory(m->gpu, &unused, &total))) return false;
  int64_t capacity = min_i64(total, SPACE_OF_ALL / ranks / SPACE_TIMES);
  if (!reserve_space(m, &capacity)) return false;
  m->blocks =
      caching_allocator_new(&(allocator_options){ .capacity_bytes = capacity,
                                                  .expandable_segments = m->expandable_segments,
                                                  .driver = { give_segment, take_back_segment, m },
                                                  .event_done = memory_event_done,
                                                  .event_context = m->queue });
  return true;
}

/* ---- from new to release --------------------------------------------------------------------- */

bool device_memory_new(device_memory *m, bool caching, uint32_t ranks)
{
  assert(m->queue != NULL && ranks > 0 && m->blocks == NULL && m->order == NULL);
  if (caching) return caching_new(m, ranks);
  return ok(m, m->queue->driver->stream_new(&m->queue->side)) &&
         ok(m, m->queue->driver->event_new(&m->order));
}

void device_memory_release(device_memory *m)
{
  assert((m->order == NULL || m->blocks == NULL) && "one of two kinds");
  if (m->order != NULL) m->queue->driver->event_delete(m->order);
  if (m->blocks == NULL) return;
  caching_allocator_delete(m->blocks);
  m->queue->driver->space_delete(&m->space);
}

void device_memory_begin(device_memory *m)
{
  assert(m->guards || m->guard_bytes == 0);
  m->broken_guards = 0;
  m->guard_peak_bytes = m->guard_bytes;
  m->requested_bytes = m->requested_peak_bytes = 0;
  if (m->blocks != NULL)
    caching_allocator_reset_peaks(m->blocks);
  else
    ok(m, m->queue->driver->pool_reset_high(m->gpu));
}

void device_memory_end(device_memory *m)
{
  int64_t unused, total, now;
  const gpu_driver *driver = m->queue->driver;
  if (ok(m, driver->memory(m->gpu, &unused, &total))) m->driver_used_bytes = total - unused;
  if (m->blocks == NULL)
    ok(m, driver->pool_used(m->gpu, &now, &m->pool_high_bytes));
  else
    m->reserved_peak_bytes =
        max_i64(m->reserved_peak_bytes, caching_allocator_stats(m->blocks)->reserved.peak_bytes);
}

/* ---- caching --------------------------------------------------------------------------------- */

static bool block_take(device_memory *m, int64_t bytes, held_buffer *h)
{
  caching_allocator *a = m->blocks;
  allocator_status status = caching_allocator_alloc(a, h->stream, bytes, &h->handle);
  if (status == ALLOCATOR_NEEDS_EVENTS) {
    graph_launch(m->queue);
    memory_events_wait(m->queue);
    if (!sink_is_open(m->queue->sink)) return false;
    status = caching_allocator_alloc_after_events(a, h->stream, bytes, &h->handle);
  }
  if (status != ALLOCATOR_OK) return false;
  assert((bytes == 0) == (h->handle == ALLOCATOR_NO_BLOCK));
  h->data = h->handle == ALLOCATOR_NO_BLOCK
                ? NULL
                : (unsigned char *)m->space.base + caching_allocator_block_address(a, h->handle);
  return true;
}

static void block_give(device_memory *m, const held_buffer *h, uint32_t streams)
{
  allocator_use uses[STREAMS];
  uint32_t count = 0;
  for (uint32_t left = streams; left != 0; left &= left - 1) {
    uint32_t stream = (uint32_t)__builtin_ctz(left);
    assert(count < STREAMS);
    if (stream != h->stream)
      uses[count++] = (allocator_use){ stream, memory_event_after(m->queue, stream) };
  }
  caching_allocator_free_after(m->blocks, h->handle, uses, count);
}

/* ---- malloc_async ---------------------------------------------------------------------------- */

/* A pool whose stream runs no ops uses the order of the side stream. */
static gpu_stream *stream_of(const device_memory *m, uint32_t stream)
{
  return m->queue->streams[stream] != NULL ? m->queue->streams[stream] : m->queue->side;
}

static bool async_take(device_memory *m, int64_t bytes, held_buffer *h)
{
  void *memory = NULL;
  assert(m->queue->side != NULL);
  if (bytes > 0 &&
      m->queue->driver->allocate_async(&memory, bytes, stream_of(m, h->stream)) != NULL)
    return false;
  h->data = memory;
  return true;
}

static bool side_waits_for(device_memory *m, uint32_t stream)
{
  const rank_queue *q = m->queue;
  assert(stream < DEVICE_STREAMS && q->side != NULL && m->order != NULL);
  return q->streams[stream] == NULL ||
         (ok(m, q->driver->event_record(m->order, q->streams[stream])) &&
          ok(m, q->driver->stream_wait(q->side, m->order)));
}

static void async_give(device_memory *m, const held_buffer *h, uint32_t streams)
{
  const gpu_driver *driver = m->queue->driver;
  void *data = guarded_begin(m, h);
  assert(h->stream < DEVICE_STREAMS && data != NULL);
  if ((streams & ~(1u << h->stream)) == 0) {
    ok(m, driver->release_async(data, stream_of(m, h->stream)));
    return;
  }
  for (uint32_t left = streams | 1u << h->stream; left != 0; left &= left - 1)
    if (!side_waits_for(m, (uint32_t)__builtin_ctz(left))) return;
  ok(m, driver->release_async(data, m->queue->side));
}

/* ---- buffers --------------------------------------------------------------------------------- */

static void refuse(const device_memory *m, int64_t bytes)
{
  int64_t unused = 0, total = 0;
  (void)m->queue->driver->memory(m->gpu, &unused, &total);
  sink_refused(m->queue->sink,
               "out of device memory: requested %" PRId64 " bytes; the rank holds %" PRId64
               " bytes in buffers and %" PRId64 " in segments; the GPU has %" PRId64
               " bytes free of %" PRId64,
               bytes, m->requested_bytes, device_reserved_bytes(m), unused, total);
}

bool device_take(device_memory *m, const plan_buffer *b, held_buffer *h)
{
  assert(h->state == NOT_HELD && class_side((buffer_class)b->purpose) == ON_DEVICE);
  int64_t bytes = guarded_bytes(m, max_i64(b->bytes, h->bytes));
  h->stream = b->stream;
  bool taken = m->blocks != NULL ? block_take(m, bytes, h) : async_take(m, bytes, h);
  if (!taken) refuse(m, bytes);
  return taken && guards_begin(m, h);
}

void device_give(device_memory *m, const held_buffer *h, uint32_t marked, uint32_t used)
{
  assert((marked | used) < 1u << STREAM_HOST && "only streams of the device use it");
  assert((h->state == HELD || h->state == FREED) &&
         "an iteration that passes it on does not free it");
  if (m->blocks != NULL)
    block_give(m, h, marked);
  else if (h->data != NULL)
    async_give(m, h, marked | used);
}

void device_count(device_memory *m, const held_buffer *h, int sign)
{
  assert((sign == 1 || sign == -1) && h->bytes >= 0);
  m->requested_bytes += sign * round_up(h->bytes, ALLOCATOR_ROUNDING_BYTES);
  assert(m->requested_bytes >= 0 && "a freed buffer was counted");
  m->requested_peak_bytes = max_i64(m->requested_peak_bytes, m->requested_bytes);
}

int64_t device_live_bytes(const device_memory *m)
{
  if (m->blocks != NULL) return allocator_active_bytes(caching_allocator_stats(m->blocks));
  int64_t now = 0, high;
  return m->queue->driver->pool_used(m->gpu, &now, &high) == NULL ? now : 0;
}

int64_t device_live_peak_bytes(const device_memory *m)
{
  return m->blocks == NULL ? m->pool_high_bytes
                           : caching_allocator_stats(m->blocks)->active_peak_bytes;
}

int64_t device_reserved_bytes(const device_memory *m)
{
  return m->blocks == NULL ? 0 : caching_allocator_stats(m->blocks)->reserved.current_bytes;
}
