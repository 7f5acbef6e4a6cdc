#include "sim/compile/walk.h"

#include <assert.h>

#include "sim/compile/combined.h"
#include "sim/compile/ddp.h"
#include "sim/compile/deferred.h"
#include "sim/compile/exchanges.h"
#include "sim/compile/frames.h"
#include "sim/compile/fsdp.h"
#include "sim/compile/fsdp_buckets.h"
#include "sim/compile/hooks.h"
#include "sim/compile/statics.h"
#include "sim/compile/timers.h"
#include "sim/compile/turns.h"

static bool is_in_parts(const walk *w, instance_id i)
{
  return walk_program(w, i)->forward_parts.count > 0;
}

static void begin_forward(walk *w, instance_id i)
{
  assert(i < w->settings->derived.num_microbatches * (int64_t)w->chunk_count);
  walk_open_instance(w, i);
  walk_begin_mark(w, MARK_FORWARD, i / w->chunk_count, i % w->chunk_count);
  if (!w->forward_seen) statics_first_forward(w);
  w->forward_seen = true;
  hook_forward_begin(w, i);
  fsdp_forward_begin(w);
}

static void run_forward(walk *w, instance_id i)
{
  assert(!w->exchanges_of_pair && w->stream == STREAM_COMPUTE);
  const instruction_array *code = &walk_program(w, i)->forward;
  timers_around_pass(w);
  begin_forward(w, i);
  if (is_in_parts(w, i))
    combined_run(w, i, MARK_FORWARD);
  else
    walk_run(w, i, code, 0, code->count);
  timers_around_pass(w);
  frames_forward_done(w, i);
  frames_keep_batch(w, i);
}

static void begin_backward(walk *w, instance_id i)
{
  assert(w->forward_seen && w->instances[i] != NULL && "its forward has run");
  walk_begin_mark(w, MARK_BACKWARD, i / w->chunk_count, i % w->chunk_count);
  if (!w->backward_seen) statics_first_backward(w);
  frames_backward_begins(w, i);
  w->backward_seen = true;
  fsdp_backward_begin(w);
}

static void end_backward(walk *w, instance_id i)
{
  assert(w->backward_seen && w->instances[i] != NULL);
  fsdp_backward_end(w);
  fsdp_buckets_backward_end(w, i % w->chunk_count);
  ddp_backward_end(w, i);
  hook_backward_end(w, i);
  /* The trainers read each micro-batch's loss: transformers' Trainer checks it for NaN
   * (logging_nan_inf_filter), verl logs it. */
  if (uses_hf(w->settings)) walk_host_read(w);
  frames_backward_done(w, i);
  deferred_backward_done(w, i);
  if (walk_program(w, i)->input_gradient == 0) walk_close_instance(w, i);
}

static void run_backward(walk *w, instance_id i)
{
  assert(!w->exchanges_of_pair && w->stream == STREAM_COMPUTE);
  const instruction_array *code = &walk_program(w, i)->backward;
  timers_around_pass(w);
  begin_backward(w, i);
  if (is_in_parts(w, i))
    combined_run(w, i, MARK_BACKWARD);
  else
    walk_run(w, i, code, 0, code->count);
  timers_around_pass(w);
  end_backward(w, i);
}

/* From here on this forward is the instance's latest run. */
static void open_pair_with_forward(walk *w, instance_id i)
{
  assert(!w->exchanges_of_pair && is_in_parts(w, i));
  begin_forward(w, i);
  combined_begin_forward(w, i);
  frames_forward_done(w, i);
}

static void join_pair_with_backward(walk *w, instance_id i)
{
  assert(w->ahead.direction == MARK_FORWARD && is_in_parts(w, i));
  begin_backward(w, i);
  combined_begin_backward(w, i);
}

static void finish_pair(walk *w)
{
  assert(w->ahead.direction == MARK_FORWARD && w->back.direction == MARK_BACKWARD);
  combined_finish(w);
  frames_keep_batch(w, w->ahead.instance);
  end_backward(w, w->back.instance);
}

/* Returns the number of steps that it ran. */
static uint32_t run_steps(walk *w, uint32_t index)
{
  const schedule_step *step = &w->schedule.steps[index];
  instance_id i = step->microbatch * w->chunk_count + step->chunk;
  assert(step->chunk < w->chunk_count &&
         step->microbatch < (uint64_t)w->settings->derived.num_microbatches);
  switch ((step_kind)step->kind) {
  case STEP_FORWARD:
    if (step->paired)
      open_pair_with_forward(w, i);
    else
      run_forward(w, i);
    break;
  case STEP_BACKWARD:
    if (step->paired)
      join_pair_with_backward(w, i);
    else
      run_backward(w, i);
    break;
  case STEP_SEND_FORWARD:
  case STEP_RECV_FORWARD:
  case STEP_SEND_BACKWARD:
  case STEP_RECV_BACKWARD: return exchanges_post(w, index);
  case STEP_WAIT: exchanges_wait(w, step->target); break;
  case STEP_SYNCHRONIZE: walk_device_sync(w); break;
  case STEP_RELEASE_OUTPUT: walk_drop(w, walk_instance(w, i), walk_program(w, i)->output); break;
  case STEP_LAYERS: combined_layers(w); break;
  case STEP_FINISH: finish_pair(w); break;
  }
  return 1;
}

uint32_t walk_rank(walk *w)
{
  assert(!w->forward_seen && !w->backward_seen && w->schedule.count > 0);
  statics_begin(w);
  turns t = turns_of(w);
  for (uint32_t i = 0; i < w->schedule.count;) {
    i = turns_copy(w, &t, i);
    i += run_steps(w, i);
  }
  turns_release(&t);
  assert(w->stream == STREAM_COMPUTE && !w->exchanges_of_pair && "no pair is open");
  deferred_drain(w);
  frames_end(w);
  statics_finish(w);
  if (w->iteration == ITERATION_WARMUP && w->policy->lasting_memory != NULL)
    w->policy->lasting_memory(w->state, w);
  return t.copied;
}
