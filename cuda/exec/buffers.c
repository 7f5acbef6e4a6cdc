/* Allocation and free as the host issues them, and what has been asked for so far. */
#include <assert.h>

#include "cuda/exec/state.h"
#include "sim/base/units.h"

void held_count(rank_run *r, uint32_t buffer, int sign)
{
  int64_t bytes = r->buffers[buffer].bytes;
  if (side_of(r, buffer) != ON_DEVICE) {
    r->held_host_bytes += side_of(r, buffer) == ON_HOST ? sign * bytes : 0;
    return;
  }
  r->requested_bytes += sign * round_up(bytes, ALLOCATOR_ROUNDING_BYTES);
  r->requested_peak_bytes = max_i64(r->requested_peak_bytes, r->requested_bytes);
}

static bool take_file(rank_run *r, held_buffer *h)
{
  cuda_exec *e = r->exec;
  diag d = { 0 };
  pthread_mutex_lock(&e->disk_lock);
  bool taken = disk_take(&e->disk, h->bytes, &h->file_at, &d);
  pthread_mutex_unlock(&e->disk_lock);
  if (!taken) rank_refused(r, "%s", d.message);
  return taken;
}

static bool take(rank_run *r, uint32_t buffer, held_buffer *h)
{
  const plan_buffer *b = stage_buffer(r->stage, buffer);
  switch (side_of(r, buffer)) {
  case ON_DEVICE: return device_take(r, b, h);
  case ON_HOST: return host_take(r, b, h);
  case ON_DISK: return take_file(r, h);
  case ANY_SIDE: break;
  }
  assert(false && "a buffer lies somewhere");
  return false;
}

void held_alloc(rank_run *r, uint32_t buffer)
{
  held_buffer *h = &r->buffers[buffer];
  *h = (held_buffer){ .bytes = r->stage->bytes[buffer],
                      .stream = stage_buffer(r->stage, buffer)->stream };
  if (!take(r, buffer, h)) return;
  h->alive = true;
  held_count(r, buffer, 1);
  held_fill(r, buffer);
}

static void give_file(rank_run *r, const held_buffer *h)
{
  cuda_exec *e = r->exec;
  pthread_mutex_lock(&e->disk_lock);
  disk_give(&e->disk, h->file_at, h->bytes);
  pthread_mutex_unlock(&e->disk_lock);
}

void held_return(rank_run *r, uint32_t buffer, uint32_t streams)
{
  held_buffer *h = &r->buffers[buffer];
  buffer_side side = side_of(r, buffer);
  h->alive = false;
  held_count(r, buffer, -1);
  if (side == ON_DEVICE) {
    guards_end(r, buffer);
    device_give(r, h, streams);
  } else if (side == ON_HOST) {
    host_give(r, buffer);
  } else {
    give_file(r, h);
  }
}

void held_free(rank_run *r, uint32_t op)
{
  const plan_op *o = stage_op(r->stage, op);
  held_return(r, o->arg, o->kind == OP_FREE ? o->operands : 0);
}
