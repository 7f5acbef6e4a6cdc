/*
 * CUDA_MALLOC_ASYNC: an allocator of the CUDA driver that shares no code with ours. Memory is taken
 * and given back in the order of the buffer's stream; a free that other streams have to come to
 * first goes to a stream beside, which waits for them.
 */
#include "cuda/exec/state.h"

bool async_memory_new(rank_run *r)
{
  return rank_ok(r, r->driver->stream_new(&r->device.side)) &&
         rank_ok(r, r->driver->event_new(&r->device.order));
}

void async_memory_release(rank_run *r)
{
  if (r->device.side != NULL) r->driver->stream_delete(r->device.side);
  if (r->device.order != NULL) r->driver->event_delete(r->device.order);
  r->device.side = NULL;
  r->device.order = NULL;
}

/* A pool whose stream runs nothing: in the order of the stream beside. */
static gpu_stream *stream_of(const rank_run *r, uint32_t stream)
{
  return r->streams[stream] != NULL ? r->streams[stream] : r->device.side;
}

bool async_take(rank_run *r, int64_t bytes, uint32_t stream, unsigned char **data)
{
  void *memory = NULL;
  if (bytes > 0 && r->driver->allocate_async(&memory, bytes, stream_of(r, stream)) != NULL)
    return false;
  *data = memory;
  return true;
}

static bool side_waits_for(rank_run *r, uint32_t stream)
{
  return r->streams[stream] == NULL ||
         (rank_ok(r, r->driver->event_record(r->device.order, r->streams[stream])) &&
          rank_ok(r, r->driver->stream_wait(r->device.side, r->device.order)));
}

void async_give(rank_run *r, void *data, uint32_t stream, uint32_t streams)
{
  if ((streams & ~(1u << stream)) == 0) {
    rank_ok(r, r->driver->release_async(data, stream_of(r, stream)));
    return;
  }
  for (uint32_t left = streams | 1u << stream; left != 0; left &= left - 1)
    if (!side_waits_for(r, (uint32_t)__builtin_ctz(left))) return;
  rank_ok(r, r->driver->release_async(data, r->device.side));
}
