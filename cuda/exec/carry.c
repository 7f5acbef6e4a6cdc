/*
 * From one iteration to the next: what the last one has left is what the next begins with.
 */
#include "cuda/exec/state.h"
#include "sim/exec/residents.h"

static survivors survivors_of(const past *before, arena *a)
{
  if (before->plan == NULL) return (survivors){ .stage = NULL };
  uint32_t count = before->stage->ops_of->buffers.count;
  survivors s = { .stage = before->stage, .there = ARENA_ARRAY(a, bool, count) };
  for (uint32_t b = 0; b < count; b++)
    s.there[b] = before->buffers[b].alive;
  return s;
}

static void hold_residents(rank_run *r, const past *before)
{
  arena scratch = { 0 };
  survivors left = survivors_of(before, &scratch);
  for (uint32_t b = 0; b < r->stage->ops_of->residents && is_going(r); b++) {
    uint32_t survivor = survivors_take(&left, r->exec->plan, stage_buffer(r->stage, b));
    if (survivor == NO_BUFFER) {
      held_alloc(r, b);
      continue;
    }
    r->buffers[b] = before->buffers[survivor];
    before->buffers[survivor].alive = false;
    held_count(r, b, 1);
  }
  arena_release(&scratch);
}

/* Pools have had all their buffers back when the iteration ended. */
static bool is_pooled(const past *before, uint32_t buffer)
{
  return stage_buffer(before->stage, buffer)->host_key != 0;
}

/* What nobody takes over is freed in the terms of the plan that it comes from. */
static void return_others(rank_run *r, const past *before)
{
  if (before->plan == NULL) return;
  int64_t peak_bytes = r->requested_peak_bytes;
  const stage *now = r->stage;
  held_buffer *buffers = r->buffers;
  r->stage = before->stage;
  r->buffers = before->buffers;
  for (uint32_t b = 0; b < before->stage->ops_of->buffers.count; b++)
    if (before->buffers[b].alive && !is_pooled(before, b)) {
      held_count(r, b, 1);
      held_return(r, b, 0);
    }
  r->stage = now;
  r->buffers = buffers;
  r->requested_peak_bytes = peak_bytes;
}

void carry_residents(rank_run *r, const past *before)
{
  r->requested_bytes = r->requested_peak_bytes = r->held_host_bytes = 0;
  hold_residents(r, before);
  return_others(r, before);
}
