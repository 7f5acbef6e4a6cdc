/*
 * Contents that come from outside: weights, optimizer states, tokens. The hook writes host memory;
 * from there they go through a ring of page-locked slots, in the order of the buffer's stream, so
 * that the host waits only when it is a whole ring ahead.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/exec/state.h"
#include "cuda/kernels/draw.h"
#include "sim/base/units.h"

#define SLOT_BYTES MIB

static bool ask_hook(rank_run *r, uint32_t buffer, void *data, int64_t bytes)
{
  cuda_exec *e = r->exec;
  pthread_mutex_lock(&e->hook_lock);
  bool filled = e->hooks.fill(e->hooks.context, r->number, buffer, data, bytes);
  pthread_mutex_unlock(&e->hook_lock);
  return filled;
}

static bool area_reserve(rank_run *r, int64_t bytes)
{
  fill_uploads *u = &r->uploads;
  if (bytes <= u->area_bytes) return true;
  free(u->area);
  u->area = malloc((size_t)bytes);
  u->area_bytes = u->area == NULL ? 0 : bytes;
  if (u->area == NULL)
    rank_refused(r, "no host memory for %lld bytes of a buffer's contents", (long long)bytes);
  return u->area != NULL;
}

static bool ring_new(rank_run *r)
{
  fill_uploads *u = &r->uploads;
  void *memory = NULL;
  if (u->ring != NULL) return true;
  const char *why = r->driver->allocate_pinned(&memory, UPLOAD_SLOTS * SLOT_BYTES);
  if (why != NULL) {
    rank_refused(r, "no page-locked memory for uploads: %s", why);
    return false;
  }
  u->ring = memory;
  for (uint32_t i = 0; i < UPLOAD_SLOTS; i++) {
    u->slots[i].data = u->ring + i * SLOT_BYTES;
    if (!rank_ok(r, r->driver->event_new(&u->slots[i].event))) return false;
  }
  return true;
}

static bool upload_piece(rank_run *r, unsigned char *to, const unsigned char *from, int64_t bytes,
                         gpu_stream *stream)
{
  upload_slot *s = &r->uploads.slots[r->uploads.next++ % UPLOAD_SLOTS];
  if (s->used && !rank_ok(r, r->driver->event_synchronize(s->event))) return false;
  s->used = true;
  memcpy(s->data, from, (size_t)bytes);
  return rank_ok(r, r->driver->copy(to, s->data, bytes, GPU_H2D, stream)) &&
         rank_ok(r, r->driver->event_record(s->event, stream));
}

static void upload(rank_run *r, const held_buffer *h, const unsigned char *from)
{
  gpu_stream *stream = r->streams[h->stream];
  bool outside = stream == NULL; /* the pool of a stream that runs nothing */
  graph_launch(r);
  if (!ring_new(r)) return;
  if (outside) stream = r->inspector;
  for (int64_t at = 0; at < h->bytes; at += SLOT_BYTES)
    if (!upload_piece(r, h->data + at, from + at, min_i64(SLOT_BYTES, h->bytes - at), stream))
      return;
  if (outside) rank_ok(r, r->driver->stream_synchronize(stream));
}

/* ---- made on the device ---------------------------------------------------------------------- */

static void launch_draw(const rank_run *r, cuda_call *call, void *buffer, const exec_drawn *part)
{
#ifdef OFFSIM_WITH_CUDA
  if (r->exec->options.gpus > 0) {
    cuda_exact_draw(call, buffer, part);
    return;
  }
#endif
  (void)r;
  host_exact_draw(call, buffer, part);
}

static bool ask_draw(rank_run *r, uint32_t buffer, const exec_drawn **parts, uint32_t *count)
{
  cuda_exec *e = r->exec;
  if (e->hooks.draw == NULL) return false;
  pthread_mutex_lock(&e->hook_lock);
  bool drawn = e->hooks.draw(e->hooks.context, r->number, buffer, parts, count);
  pthread_mutex_unlock(&e->hook_lock);
  return drawn;
}

/* The stream that owns the buffer sees it; that of a pool whose stream runs nothing is waited for.
 */
static void draw_parts(rank_run *r, const held_buffer *h, const exec_drawn *parts, uint32_t count)
{
  gpu_stream *stream = r->streams[h->stream];
  bool outside = stream == NULL;
  graph_launch(r);
  if (outside) stream = r->inspector;
  cuda_call call = { .stream = stream };
  if (!rank_ok(r, r->driver->fill(h->data, 0, h->bytes, stream))) return;
  for (uint32_t i = 0; i < count && call.failure == NULL; i++)
    launch_draw(r, &call, h->data, &parts[i]);
  if (rank_ok(r, call.failure) && outside) rank_ok(r, r->driver->stream_synchronize(stream));
}

void held_fill(rank_run *r, uint32_t buffer)
{
  const held_buffer *h = &r->buffers[buffer];
  const exec_drawn *parts;
  uint32_t count;
  if (r->exec->hooks.fill == NULL || h->data == NULL || h->bytes == 0) return;
  if (side_of(r, buffer) == ON_HOST) {
    ask_hook(r, buffer, h->data, h->bytes);
    return;
  }
  if (ask_draw(r, buffer, &parts, &count)) {
    draw_parts(r, h, parts, count);
    return;
  }
  if (area_reserve(r, h->bytes) && ask_hook(r, buffer, r->uploads.area, h->bytes))
    upload(r, h, r->uploads.area);
}

void uploads_release(rank_run *r)
{
  fill_uploads *u = &r->uploads;
  free(u->area);
  if (u->ring == NULL) return;
  for (uint32_t i = 0; i < UPLOAD_SLOTS; i++)
    if (u->slots[i].event != NULL) r->driver->event_delete(u->slots[i].event);
  (void)r->driver->release_pinned(u->ring);
}
