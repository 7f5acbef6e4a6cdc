/* Contents that come from outside: weights, optimizer states, tokens. */
#include <assert.h>
#include <string.h>

#include "cuda/exec/state.h"
#include "cuda/kernels/draw.h"

static bool ask_hook(rank_run *r, uint32_t buffer, void *data, int64_t bytes)
{
  assert(data != NULL && bytes > 0 && buffer < r->stage->ops_of->buffers.count);
  cuda_exec *e = r->exec;
  pthread_mutex_lock(&e->hook_lock);
  bool filled = e->hooks.fill(e->hooks.context, r->number, buffer, data, bytes);
  pthread_mutex_unlock(&e->hook_lock);
  return filled;
}

/* ---- drawn in place -------------------------------------------------------------------------- */

static void launch_draw(const rank_run *r, cuda_call *call, void *buffer, const exec_drawn *part)
{
  assert(part->offset_bytes >= 0 && call->failure == NULL);
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
  assert(!drawn || *count == 0 || *parts != NULL);
  pthread_mutex_unlock(&e->hook_lock);
  return drawn;
}

/* The stream that owns the buffer copies it; the host waits for a pool's stream that runs no
 * ops. */
static void draw_parts(rank_run *r, const held_buffer *h, const exec_drawn *parts, uint32_t count)
{
  assert(h->data != NULL && h->bytes > 0 && (count == 0 || parts != NULL));
  gpu_stream *stream = pool_stream(&r->queue, h->stream);
  bool outside = stream == r->queue.inspector;
  graph_launch(&r->queue);
  cuda_call call = { .stream = stream };
  if (!rank_ok(r, r->driver->fill(h->data, 0, h->bytes, stream))) return;
  for (uint32_t i = 0; i < count && call.failure == NULL; i++) {
    assert(parts[i].offset_bytes >= 0 && parts[i].offset_bytes < h->bytes);
    launch_draw(r, &call, h->data, &parts[i]);
  }
  if (rank_ok(r, call.failure) && outside) rank_ok(r, r->driver->stream_synchronize(stream));
}

/* By the rank's own thread. */
static void draw_on_host(const held_buffer *h, const exec_drawn *parts, uint32_t count)
{
  cuda_call call = { .stream = NULL };
  memset(h->data, 0, (size_t)h->bytes);
  for (uint32_t i = 0; i < count; i++) {
    assert(parts[i].offset_bytes >= 0 && parts[i].offset_bytes < h->bytes);
    host_exact_draw(&call, h->data, &parts[i]);
  }
  assert(call.failure == NULL && "the host launches nothing");
}

void held_fill(rank_run *r, uint32_t buffer)
{
  const held_buffer *h = &r->buffers[buffer];
  const exec_drawn *parts;
  uint32_t count;
  assert(h->state == HELD);
  if (r->exec->hooks.fill == NULL || h->data == NULL || h->bytes == 0) return;
  bool on_host = side_of(r->stage, buffer) == ON_HOST;
  if (ask_draw(r, buffer, &parts, &count)) {
    assert((on_host || side_of(r->stage, buffer) == ON_DEVICE) && "a file has no data");
    if (on_host)
      draw_on_host(h, parts, count);
    else
      draw_parts(r, h, parts, count);
    return;
  }
  if (on_host) {
    ask_hook(r, buffer, h->data, h->bytes);
    return;
  }
  void *area = upload_area(&r->uploads, h->bytes);
  if (area != NULL && ask_hook(r, buffer, area, h->bytes)) upload(&r->uploads, h);
}
