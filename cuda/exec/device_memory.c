/*
 * Device memory. CUDA_CACHING: blocks of the caching allocator that the simulator models, whose
 * addresses are offsets into the rank's address space; segments are mapped there when it asks for
 * them.
 */
#include <inttypes.h>

#include "cuda/exec/state.h"
#include "sim/base/units.h"

/* Granules of expandable segments (sim/memory/caching_allocator.h): they come and go one by one. */
#define LARGE_GRANULE_BYTES (20 * MIB)

/* Address space for so many times the device's memory: addresses are never used twice, and every
 * expandable segment has room for all. Processes have 128 TiB, of which all ranks take half. */
enum { SPACE_TIMES = 32 };
#define SPACE_OF_ALL (INT64_C(64) << 40)

/* ---- segments -------------------------------------------------------------------------------- */

static int64_t piece_bytes(const rank_run *r, int64_t bytes)
{
  return r->exec->options.expandable_segments ? min_i64(bytes, LARGE_GRANULE_BYTES) : bytes;
}

static void unmap(rank_run *r, int64_t address, int64_t bytes)
{
  int64_t piece = piece_bytes(r, bytes);
  for (int64_t at = 0; at < bytes; at += piece)
    rank_ok(r, r->driver->space_unmap(&r->device.space, address + at, piece));
}

static bool give_segment(void *context, int64_t address, int64_t bytes)
{
  rank_run *r = context;
  int64_t piece = piece_bytes(r, bytes);
  if (address + bytes > r->device.space.bytes) return false;
  for (int64_t at = 0; at < bytes; at += piece)
    if (r->driver->space_map(&r->device.space, address + at, piece) != NULL) {
      if (at > 0) unmap(r, address, at);
      return false;
    }
  return true;
}

/* What the rank's streams have been given may still use it. */
static void take_back_segment(void *context, int64_t address, int64_t bytes)
{
  rank_run *r = context;
  graph_launch(r);
  if (streams_synchronize(r)) unmap(r, address, bytes);
}

/* Room for `capacity` of device memory; less where the system gives less (a limit of the process, a
 * sanitizer). */
static bool reserve_space(rank_run *r, int64_t *capacity)
{
  const char *why;
  for (;; *capacity /= 2) {
    int64_t granules = ceil_div(*capacity, LARGE_GRANULE_BYTES);
    why = r->driver->space_new(r->gpu, granules * LARGE_GRANULE_BYTES * SPACE_TIMES,
                               &r->device.space);
    if (why == NULL || granules == 1) return rank_ok(r, why);
  }
}

static bool caching_new(rank_run *r)
{
  int64_t unused, total;
  if (!rank_ok(r, r->driver->memory(r->gpu, &unused, &total))) return false;
  int64_t capacity = min_i64(total, SPACE_OF_ALL / r->exec->layout->rank_count / SPACE_TIMES);
  if (!reserve_space(r, &capacity)) return false;
  r->device.blocks = caching_allocator_new(
      &(allocator_options){ .capacity_bytes = capacity,
                            .expandable_segments = r->exec->options.expandable_segments,
                            .driver = { give_segment, take_back_segment, r },
                            .event_done = memory_event_done,
                            .event_context = r });
  return true;
}

bool device_memory_new(rank_run *r)
{
  return r->exec->options.backing == CUDA_CACHING ? caching_new(r) : async_memory_new(r);
}

void device_memory_release(rank_run *r)
{
  async_memory_release(r);
  if (r->device.blocks == NULL) return;
  caching_allocator_delete(r->device.blocks);
  r->driver->space_delete(&r->device.space);
}

int64_t device_live_bytes(const rank_run *r)
{
  if (r->device.blocks != NULL)
    return caching_allocator_stats(r->device.blocks)->active.current_bytes;
  int64_t now = 0, high;
  return r->driver->pool_used(r->gpu, &now, &high) == NULL ? now : 0;
}

int64_t device_reserved_bytes(const rank_run *r)
{
  return r->device.blocks == NULL
             ? 0
             : caching_allocator_stats(r->device.blocks)->reserved.current_bytes;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static void refuse(rank_run *r, int64_t bytes)
{
  int64_t unused = 0, total = 0;
  (void)r->driver->memory(r->gpu, &unused, &total);
  rank_refused(r,
               "out of device memory: asked for %" PRId64 " bytes; the rank holds %" PRId64
               " bytes in buffers and %" PRId64 " in segments; the GPU has %" PRId64
               " bytes free of %" PRId64,
               bytes, r->requested_bytes, device_reserved_bytes(r), unused, total);
}

static bool block_take(rank_run *r, int64_t bytes, held_buffer *h)
{
  caching_allocator *a = r->device.blocks;
  allocator_status status = caching_allocator_alloc(a, h->stream, bytes, &h->handle);
  if (status == ALLOCATOR_NEEDS_EVENTS) {
    memory_events_wait(r);
    if (!is_going(r)) return false;
    status = caching_allocator_alloc_after_events(a, h->stream, bytes, &h->handle);
  }
  if (status != ALLOCATOR_OK) return false;
  h->data = h->handle == ALLOCATOR_NO_BLOCK ? NULL
                                            : (unsigned char *)r->device.space.base +
                                                  caching_allocator_block_address(a, h->handle);
  return true;
}

static void block_give(rank_run *r, const held_buffer *h, uint32_t streams)
{
  allocator_use uses[STREAMS];
  uint32_t count = 0;
  for (uint32_t left = streams; left != 0; left &= left - 1) {
    uint32_t stream = (uint32_t)__builtin_ctz(left);
    if (stream != h->stream)
      uses[count++] = (allocator_use){ stream, memory_event_after(r, stream) };
  }
  caching_allocator_free_after(r->device.blocks, h->handle, uses, count);
}

/* ---- buffers --------------------------------------------------------------------------------- */

bool device_take(rank_run *r, const plan_buffer *b, held_buffer *h)
{
  int64_t bytes = guarded_bytes(r, max_i64(b->bytes, h->bytes));
  h->stream = b->stream;
  bool taken = r->device.blocks != NULL ? block_take(r, bytes, h)
                                        : async_take(r, bytes, b->stream, &h->data);
  if (!taken) refuse(r, bytes);
  return taken && guards_begin(r, h);
}

void device_give(rank_run *r, const held_buffer *h, uint32_t streams)
{
  if (r->device.blocks != NULL)
    block_give(r, h, streams);
  else if (h->data != NULL)
    async_give(r, guarded_begin(r, h), h->stream, streams);
}
