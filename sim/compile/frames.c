#include "sim/compile/frames.h"

#include <assert.h>

#include "sim/compile/attributes.h"
#include "sim/compile/held.h"
#include "sim/compile/leftovers.h"
#include "sim/graph/sizes.h"

static bool interleaves(const settings *s)
{
  return s->derived.virtual_stages > 1;
}

/* The schedule without interleaving holds what its last forward and backward have left. */
static bool holds_last_pass(const settings *s)
{
  assert(s->parallel.pipeline_model_parallel_size >= 1);
  return s->parallel.pipeline_model_parallel_size > 1 && !interleaves(s);
}

static bool keeps_first_steady_input(const settings *s)
{
  assert(s->derived.virtual_stages >= 1);
  return interleaves(s) && s->parallel.overlap_p2p_comm &&
         !s->parallel.overlap_p2p_comm_warmup_flush;
}

/* Adds a reference to the place's buffer, if it has one. */
static void hold(walk *w, held_buffers *held, instance_id i, place_id place)
{
  uint32_t buffer = place == 0 ? NO_BUFFER : walk_instance(w, i)->buffer_of[place];
  if (buffer != NO_BUFFER) held_add(w, held, buffer);
}

static void give_to_iterator(walk *w, instance_id i, place_id place)
{
  uint32_t buffer = walk_instance(w, i)->buffer_of[place];
  assert(buffer != NO_BUFFER && keeps_batches(w->settings));
  walk_refer(w, buffer);
  *ARRAY_PUSH(&w->batches) = buffer;
  walk_drop_place(w, i, place);
}

void frames_forward_done(walk *w, instance_id i)
{
  assert(w->forward_seen && w->instances[i] != NULL);
  w->last_forward = i;
  if (holds_last_pass(w->settings)) held_release(w, &w->held_by_popped);
}

void frames_keep_batch(walk *w, instance_id i)
{
  assert(w->instances[i] != NULL && w->stream == STREAM_COMPUTE);
  const place_id *batch = walk_program(w, i)->batch;
  for (int k = 0; k < BATCH_TENSORS; k++)
    if (batch[k] != 0) give_to_iterator(w, i, batch[k]);
}

void frames_backward_begins(walk *w, instance_id i)
{
  assert(w->forward_seen && w->instances[i] != NULL);
  if (holds_last_pass(w->settings)) {
    held_release(w, &w->held_by_popped);
    hold(w, &w->held_by_popped, i, walk_program(w, i)->input);
  }
  if (w->backward_seen || !keeps_first_steady_input(w->settings)) return;
  w->first_steady = w->last_forward;
  hold(w, &w->held_to_end, w->first_steady, walk_program(w, w->first_steady)->input);
}

void frames_backward_done(walk *w, instance_id i)
{
  assert(w->backward_seen);
  place_id gradient = walk_program(w, i)->input_gradient;
  if (holds_last_pass(w->settings)) {
    hold(w, &w->held_by_popped, i, gradient);
    return;
  }
  held_release(w, &w->held_gradient);
  hold(w, &w->held_gradient, i, gradient);
  if (keeps_first_steady_input(w->settings) && i == w->first_steady)
    hold(w, &w->held_to_end, i, gradient);
}

void frames_end(walk *w)
{
  assert(w->backward_seen && !w->exchanges_of_pair);
  held_release(w, &w->held_gradient);
  held_release(w, &w->held_to_end);
}

bool frames_leave(walk *w, int64_t bytes)
{
  assert(bytes > 0);
  return held_keep_one(w, &w->held_by_popped, bytes) || leftovers_keep_one(w, bytes) ||
         attributes_keep_one(w, bytes);
}

void frames_release(walk *w)
{
  assert(w->held_gradient.count == 0 && w->held_to_end.count == 0 && "frames_end came before");
  held_release(w, &w->held_by_popped);
  for (uint32_t i = 0; i < w->batches.count; i++)
    walk_retain(w, w->batches.items[i]);
  leftovers_end(w);
  attributes_end(w);
}
