#include "cuda/memory/scratch.h"

#include <assert.h>
#include <inttypes.h>

#include "sim/base/units.h"

enum { SCRATCH_ALIGNMENT = 256 };

static bool grow(const rank_queue *q, uint32_t stream, scratch_area *a, int64_t bytes)
{
  assert(bytes > a->bytes && "contents that a larger area loses are lost once");
  if (!sink_ok(q->sink, q->driver->stream_synchronize(q->streams[stream]))) return false;
  if (a->data != NULL && !sink_ok(q->sink, q->driver->release(a->data))) return false;
  *a = (scratch_area){ 0 };
  const char *why = q->driver->allocate(&a->data, bytes);
  if (why != NULL) sink_refused(q->sink, "no scratch memory of %" PRId64 " bytes: %s", bytes, why);
  a->bytes = why == NULL ? bytes : 0;
  return why == NULL;
}

bool scratch_reserve(scratch_memory *m, uint32_t stream, int64_t bytes)
{
  scratch_area *a = &m->areas[stream];
  assert(stream < DEVICE_STREAMS && bytes >= 0);
  if (bytes <= a->bytes) return true;
  graph_launch(m->queue);
  return grow(m->queue, stream, a, round_up(bytes, SCRATCH_ALIGNMENT));
}

int64_t scratch_bytes(const scratch_memory *m)
{
  int64_t bytes = 0;
  for (uint32_t s = 0; s < DEVICE_STREAMS; s++) {
    assert((m->areas[s].data == NULL) == (m->areas[s].bytes == 0));
    bytes += m->areas[s].bytes;
  }
  return bytes;
}

void scratch_memory_release(scratch_memory *m)
{
  for (uint32_t s = 0; s < DEVICE_STREAMS; s++)
    if (m->areas[s].data != NULL) (void)m->queue->driver->release(m->areas[s].data);
}
