/*
 * Buffers, from their allocation to their free as the host issues them; and from one iteration to
 * the next, which begins with what the last one has left.
 */
#include <assert.h>

#include "cuda/exec/state.h"
#include "sim/exec/residents.h"

/* ---- allocation ------------------------------------------------------------------------------ */

static bool take_file(rank_run *r, held_buffer *h)
{
  cuda_exec *e = r->exec;
  diag d = { 0 };
  assert(h->state == NOT_HELD && h->data == NULL && h->bytes >= 0);
  pthread_mutex_lock(&e->disk_lock);
  bool taken = disk_take(&e->disk, h->bytes, &h->file_at, &d);
  pthread_mutex_unlock(&e->disk_lock);
  if (!taken) sink_refused(&r->sink, "%s", d.message);
  return taken;
}

static bool take(rank_run *r, uint32_t buffer, held_buffer *h)
{
  const plan_buffer *b = stage_buffer(r->stage, buffer);
  assert(h->state == NOT_HELD && h->stream == b->stream);
  switch (side_of(r->stage, buffer)) {
  case ON_DEVICE: return device_take(&r->device, b, h);
  case ON_HOST: return host_take(&r->host, b, h);
  case ON_DISK: return take_file(r, h);
  case ANY_SIDE: break;
  }
  assert(false && "a buffer lies somewhere");
  return false;
}

static void count(rank_run *r, uint32_t buffer, int sign)
{
  const held_buffer *h = &r->buffers[buffer];
  buffer_side side = side_of(r->stage, buffer);
  assert(sign == 1 || sign == -1);
  if (buffer_is_allocated(stage_buffer(r->stage, buffer))) device_count(&r->device, h, sign);
  if (side == ON_HOST) r->host.held_bytes += sign * h->bytes;
  assert(r->host.held_bytes >= 0 && "a freed buffer was counted");
}

void held_alloc(rank_run *r, uint32_t buffer)
{
  held_buffer *h = &r->buffers[buffer];
  assert(h->state == NOT_HELD && "a plan allocates a buffer once");
  *h = (held_buffer){ .bytes = r->stage->bytes[buffer],
                      .stream = stage_buffer(r->stage, buffer)->stream };
  if (!take(r, buffer, h)) return;
  held_become(h, HELD);
  count(r, buffer, 1);
  held_fill(r, buffer);
}

/* ---- free ------------------------------------------------------------------------------------ */

static void give_file(rank_run *r, const held_buffer *h)
{
  cuda_exec *e = r->exec;
  assert(h->state == FREED);
  pthread_mutex_lock(&e->disk_lock);
  disk_give(&e->disk, h->file_at, h->bytes);
  pthread_mutex_unlock(&e->disk_lock);
}

static uint32_t users_of(const stage *s, uint32_t buffer)
{
  assert(buffer < s->ops_of->buffers.count && s->first_use[buffer] <= s->first_use[buffer + 1]);
  uint32_t streams = 0;
  for (uint32_t i = s->first_use[buffer]; i < s->first_use[buffer + 1]; i++)
    if (s->uses[i].last != NO_OP) streams |= 1u << s->uses[i].stream;
  return streams;
}

/* A buffer of stage `s`; the plan has marked it as used by `marked`. */
static void give(rank_run *r, const stage *s, uint32_t buffer, held_buffer *h, uint32_t marked)
{
  assert(h->state == HELD && marked >> STREAM_HOST == 0);
  held_become(h, FREED);
  switch (side_of(s, buffer)) {
  case ON_DEVICE:
    guards_end(&r->device, s, buffer, h);
    device_give(&r->device, h, marked, users_of(s, buffer));
    return;
  case ON_HOST: host_give(&r->host, s, buffer, h); return;
  case ON_DISK: give_file(r, h); return;
  case ANY_SIDE: break;
  }
  assert(false && "a buffer lies somewhere");
}

void held_free(rank_run *r, const plan_op *o)
{
  assert(o->kind == OP_FREE || o->kind == OP_HOST_FREE);
  assert(r->buffers[o->arg].state == HELD && "a plan frees a live buffer once");
  count(r, o->arg, -1);
  give(r, r->stage, o->arg, &r->buffers[o->arg], o->kind == OP_FREE ? o->operands : 0);
}

/* ---- the next iteration ---------------------------------------------------------------------- */

static survivors survivors_of(const past *before, arena *a)
{
  assert(before->plan == NULL || (before->stage != NULL && before->buffers != NULL));
  if (before->plan == NULL) return (survivors){ .stage = NULL };
  uint32_t buffers = before->stage->ops_of->buffers.count;
  survivors s = { .stage = before->stage, .there = ARENA_ARRAY(a, bool, buffers) };
  for (uint32_t b = 0; b < buffers; b++)
    s.there[b] = before->buffers[b].state == HELD;
  return s;
}

static void hold_residents(rank_run *r, const past *before)
{
  assert(r->stage->ops_of->residents <= r->stage->ops_of->buffers.count);
  arena scratch = { 0 };
  survivors left = survivors_of(before, &scratch);
  for (uint32_t b = 0; b < r->stage->ops_of->residents && is_going(r); b++) {
    uint32_t survivor = survivors_take(&left, r->exec->plan, stage_buffer(r->stage, b));
    if (survivor == NO_BUFFER) {
      held_alloc(r, b);
      continue;
    }
    assert(r->buffers[b].state == NOT_HELD && before->buffers[survivor].state == HELD);
    r->buffers[b] = before->buffers[survivor];
    held_become(&before->buffers[survivor], PASSED_ON);
    count(r, b, 1);
  }
  arena_release(&scratch);
}

/* Buffers that no resident takes over are freed as their own plan would free them; pools got all
 * their buffers back when the iteration ended. */
static void give_others(rank_run *r, const past *before)
{
  const stage *s = before->stage;
  for (uint32_t b = 0; before->plan != NULL && b < s->ops_of->buffers.count; b++)
    if (before->buffers[b].state == HELD && stage_buffer(s, b)->host_key == 0)
      give(r, s, b, &before->buffers[b], 0);
}

void carry_residents(rank_run *r, const past *before)
{
  assert(r->stage != NULL && (before->plan == NULL || before->stage != NULL));
  hold_residents(r, before);
  give_others(r, before);
}
