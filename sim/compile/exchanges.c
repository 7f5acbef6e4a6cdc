#include "sim/compile/exchanges.h"

#include "sim/compile/timers.h"

#include <assert.h>

/* The number of a message follows from the boundary between virtual stages, the micro-batch and the
 * direction, so both ranks compute the same number. */
static uint32_t message_of(const walk *w, const schedule_step *step)
{
  uint32_t microbatches = (uint32_t)w->settings->derived.num_microbatches;
  uint32_t stage = step->chunk * w->plan->rank_count + w->pp_rank;
  bool towards_next = step->kind == STEP_SEND_FORWARD || step->kind == STEP_RECV_BACKWARD;
  bool backward = step->kind == STEP_SEND_BACKWARD || step->kind == STEP_RECV_BACKWARD;
  assert((towards_next || stage > 0) && step->microbatch < microbatches);
  uint32_t boundary = towards_next ? stage : stage - 1;
  return (boundary * microbatches + step->microbatch) * 2 + backward;
}

static place_id exchanged_place(const chunk_program *p, step_kind kind)
{
  switch (kind) {
  case STEP_SEND_FORWARD: return p->output;
  case STEP_RECV_FORWARD: return p->input;
  case STEP_SEND_BACKWARD: return p->input_gradient;
  case STEP_RECV_BACKWARD: return p->output_gradient;
  case STEP_FORWARD:
  case STEP_BACKWARD:
  case STEP_WAIT:
  case STEP_SYNCHRONIZE:
  case STEP_RELEASE_OUTPUT:
  case STEP_LAYERS:
  case STEP_FINISH: break;
  }
  assert(0 && "not an exchange");
  return 0;
}

static bool is_send(const schedule_step *step)
{
  return step->kind == STEP_SEND_FORWARD || step->kind == STEP_SEND_BACKWARD;
}

static bool is_exchange(const schedule_step *step)
{
  assert(step->kind <= STEP_FINISH);
  return is_send(step) || step->kind == STEP_RECV_FORWARD || step->kind == STEP_RECV_BACKWARD;
}

/* Without overlap all exchanges use the pipeline group's communicator. With overlap each neighbour
 * has a communicator, and so a stream. */
static plan_stream exchange_stream(const walk *w, const schedule_step *step)
{
  assert(is_exchange(step));
  if (!w->settings->parallel.overlap_p2p_comm) return STREAM_COMM;
  bool towards_next = step->kind == STEP_SEND_FORWARD || step->kind == STEP_RECV_BACKWARD;
  return towards_next ? STREAM_NEXT : STREAM_PREVIOUS;
}

static void emit_exchange(walk *w, const schedule_step *step)
{
  instance_id i = step->microbatch * w->chunk_count + step->chunk;
  const chunk_program *p = walk_program(w, i);
  place_id place = exchanged_place(p, (step_kind)step->kind);
  bool sends = is_send(step);
  assert(place != 0 && p->places.items[place].bytes > 0);
  uint32_t message = message_of(w, step);
  assert(message < w->plan->messages.count);
  w->plan->messages.items[message].bytes = p->places.items[place].bytes;
  assert(walk_instance(w, i)->buffer_of[place] != NO_BUFFER);
  uint32_t first = w->rank->operands.count;
  uint32_t buffer = walk_instance(w, i)->buffer_of[place];
  *ARRAY_PUSH(&w->rank->operands) = buffer;
  plan_op *made = walk_emit(w, sends ? OP_SEND : OP_RECV, exchange_stream(w, step), message);
  /* ProcessGroupNCCL.cpp, pointToPoint: recordStream */
  walk_mark_stream(w, buffer, exchange_stream(w, step));
  made->operands = first;
  made->reads = sends;
  made->writes = !sends;
}

/* Megatron posts a pair's forward exchanges, and waits for the send, on the stream of the token
 * exchange. */
static plan_stream issuing_stream(const walk *w, const schedule_step *step)
{
  assert(is_exchange(step));
  bool forward = step->kind == STEP_SEND_FORWARD || step->kind == STEP_RECV_FORWARD;
  return w->exchanges_of_pair && forward ? STREAM_A2A : STREAM_COMPUTE;
}

/* What arrives is allocated on the stream that posts the exchange, so it belongs to that stream's
 * pool (p2p_communication.py, create_tensor_recv_prev). */
static void alloc_received(walk *w, const schedule_step *step)
{
  instance_id i = step->microbatch * w->chunk_count + step->chunk;
  instance *in = walk_open_instance(w, i);
  const chunk_program *p = walk_program(w, i);
  if (is_send(step)) return;
  assert(i / w->chunk_count == step->microbatch && step->chunk < w->chunk_count);
  place_id place = exchanged_place(p, (step_kind)step->kind);
  const program_place *what = &p->places.items[place];
  assert(in->buffer_of[place] == NO_BUFFER && "a place refers to one buffer");
  in->buffer_of[place] = walk_alloc(w, what->bytes, what->tensor, (buffer_class)what->purpose,
                                    issuing_stream(w, step));
}

/* Exchanges in a row are one call of upstream, with one timer. Without overlap a wait for everything follows
 * in any case. */
static void timer_around_call(walk *w, uint32_t neighbour, bool stops)
{
  const schedule_step *steps = w->schedule.steps;
  assert(w->schedule.count > 0);
  if (stops && !w->settings->parallel.overlap_p2p_comm) return;
  if (neighbour >= w->schedule.count || !is_exchange(&steps[neighbour])) timers_around_pass(w);
}

uint32_t exchanges_post(walk *w, uint32_t first)
{
  const schedule_step *steps = w->schedule.steps;
  uint32_t end = first;
  for (; end < w->schedule.count && is_exchange(&steps[end]) &&
         steps[end].batch == steps[first].batch;
       end++)
    alloc_received(w, &steps[end]);
  assert(end > first);
  timer_around_call(w, first - 1, false);
  plan_stream stream = exchange_stream(w, &steps[first]);
  act_join(w, stream, issuing_stream(w, &steps[first]));
  for (uint32_t k = first; k < end; k++) {
    assert(exchange_stream(w, &steps[k]) == stream && "one event follows the whole batch");
    emit_exchange(w, &steps[k]);
  }
  event_id done = act_record(w, stream);
  for (uint32_t k = first; k < end; k++)
    w->posted[k] = done;
  timer_around_call(w, end, true);
  return end - first;
}

void exchanges_wait(walk *w, uint32_t target)
{
  const schedule_step *step = &w->schedule.steps[target];
  assert(target < w->schedule.count && is_exchange(step));
  act_wait(w, issuing_stream(w, step), w->posted[target]);
  if (step->kind != STEP_SEND_BACKWARD) return;
  instance_id i = step->microbatch * w->chunk_count + step->chunk;
  walk_drop_place(w, i, walk_program(w, i)->input_gradient);
  walk_close_instance(w, i);
}
