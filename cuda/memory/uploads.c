#include "cuda/memory/uploads.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"

#define SLOT_BYTES MIB

void *upload_area(upload_ring *u, int64_t bytes)
{
  assert(bytes >= 0 && (u->area != NULL) == (u->area_bytes > 0));
  if (bytes <= u->area_bytes) return u->area;
  free(u->area);
  u->area = malloc((size_t)bytes);
  u->area_bytes = u->area == NULL ? 0 : bytes;
  if (u->area == NULL)
    sink_refused(u->queue->sink, "no host memory for %lld bytes of a buffer's contents",
                 (long long)bytes);
  return u->area;
}

static bool ring_new(upload_ring *u)
{
  const gpu_driver *driver = u->queue->driver;
  void *memory = NULL;
  if (u->memory != NULL) return true;
  const char *why = driver->allocate_pinned(&memory, UPLOAD_SLOTS * SLOT_BYTES);
  if (why != NULL) {
    sink_refused(u->queue->sink, "no page-locked memory for uploads: %s", why);
    return false;
  }
  u->memory = memory;
  for (uint32_t i = 0; i < UPLOAD_SLOTS; i++) {
    u->slots[i].data = u->memory + i * SLOT_BYTES;
    if (!sink_ok(u->queue->sink, driver->event_new(&u->slots[i].event))) return false;
  }
  return true;
}

static bool upload_piece(upload_ring *u, unsigned char *to, const unsigned char *from,
                         int64_t bytes, gpu_stream *stream)
{
  const gpu_driver *driver = u->queue->driver;
  failure_sink *sink = u->queue->sink;
  assert(bytes > 0 && bytes <= SLOT_BYTES);
  upload_slot *s = &u->slots[u->next++ % UPLOAD_SLOTS];
  if (s->used && !sink_ok(sink, driver->event_synchronize(s->event))) return false;
  s->used = true;
  memcpy(s->data, from, (size_t)bytes);
  return sink_ok(sink, driver->copy(to, s->data, bytes, GPU_H2D, stream)) &&
         sink_ok(sink, driver->event_record(s->event, stream));
}

void upload(upload_ring *u, const held_buffer *to)
{
  const rank_queue *q = u->queue;
  assert(to->state == HELD && to->bytes <= u->area_bytes);
  graph_launch(u->queue);
  if (!ring_new(u)) return;
  gpu_stream *stream = pool_stream(q, to->stream);
  for (int64_t at = 0; at < to->bytes; at += SLOT_BYTES)
    if (!upload_piece(u, to->data + at, (const unsigned char *)u->area + at,
                      min_i64(SLOT_BYTES, to->bytes - at), stream))
      return;
  if (stream == q->inspector) sink_ok(q->sink, q->driver->stream_synchronize(stream));
}

void uploads_release(upload_ring *u)
{
  free(u->area);
  if (u->memory == NULL) return;
  for (uint32_t i = 0; i < UPLOAD_SLOTS; i++)
    if (u->slots[i].event != NULL) u->queue->driver->event_delete(u->slots[i].event);
  (void)u->queue->driver->release_pinned(u->memory);
}
