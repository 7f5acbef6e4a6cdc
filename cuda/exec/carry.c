/*
 * From one iteration to the next: what the last one has left is what the next begins with. As in
 * ref/exec, residents find their predecessors by class, bytes, name and place, in order of
 * allocation.
 */
#include <string.h>

#include "cuda/exec/state.h"

static bool is_same_place(const plan *a, uint32_t site_a, const plan *b, uint32_t site_b)
{
  const plan_site *left = &a->sites.items[site_a], *right = &b->sites.items[site_b];
  return left->layer == right->layer && strcmp(left->module, right->module) == 0;
}

static bool is_same(const plan *a, const plan_buffer *left, const plan *b, const plan_buffer *right)
{
  const plan_tensor *s = &a->tensors.items[left->tensor], *t = &b->tensors.items[right->tensor];
  return left->purpose == right->purpose && left->bytes == right->bytes &&
         strcmp(s->name, t->name) == 0 && is_same_place(a, s->site, b, t->site);
}

/* The survivor that becomes the resident, NO_BUFFER. Both mostly stand in the same order: the
 * search begins behind the one found last. */
static uint32_t predecessor(const past *before, const plan *now, const plan_buffer *resident,
                            uint32_t *cursor)
{
  uint32_t count = before->stage->ops_of->buffers.count;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t b = (*cursor + i) % count;
    if (!before->buffers[b].alive ||
        !is_same(before->plan, stage_buffer(before->stage, b), now, resident))
      continue;
    *cursor = (b + 1) % count;
    return b;
  }
  return NO_BUFFER;
}

static void hold_residents(rank_run *r, const past *before)
{
  uint32_t cursor = 0;
  for (uint32_t b = 0; b < r->stage->ops_of->residents && is_going(r); b++) {
    uint32_t survivor = before->plan == NULL ? NO_BUFFER
                                             : predecessor(before, r->exec->plan,
                                                           stage_buffer(r->stage, b), &cursor);
    if (survivor == NO_BUFFER) {
      held_alloc(r, b);
      continue;
    }
    r->buffers[b] = before->buffers[survivor];
    before->buffers[survivor].alive = false;
    held_count(r, b, 1);
  }
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
