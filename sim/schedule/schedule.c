#include "sim/schedule/schedule.h"

#include <assert.h>

#include "sim/schedule/steps.h"

/* A single rank with overlapped expert exchange: pairs each backward with the next forward
 * (combined_1f1b_schedule_for_no_pipelining). */
static schedule pairs_without_pipelining(uint32_t microbatches, arena *a)
{
  assert(microbatches > 0);
  step_writer w = step_writer_new(1, 0, false, 4 * microbatches, a);

  write_run(&w, STEP_FORWARD, (work_item){ 0, 0 });
  for (uint32_t i = 0; i + 1 < microbatches; i++) {
    write_paired(&w, STEP_FORWARD, (work_item){ i + 1, 0 });
    write_paired(&w, STEP_BACKWARD, (work_item){ i, 0 });
    write_layers(&w);
    write_finish(&w);
  }
  write_run(&w, STEP_BACKWARD, (work_item){ microbatches - 1, 0 });
  assert(w.count == 2 + 4 * (microbatches - 1) &&
         "the first forward and the last backward are whole");
  return (schedule){ w.steps, w.count };
}

/* A single rank: runs forward and then backward of each micro-batch
 * (forward_backward_no_pipelining). */
static schedule no_pipelining(const settings *s, arena *a)
{
  uint32_t microbatches = (uint32_t)s->derived.num_microbatches;
  if (s->parallel.overlap_moe_expert_parallel_comm)
    return pairs_without_pipelining(microbatches, a);
  step_writer w = step_writer_new(1, 0, false, 2 * microbatches, a);

  for (uint32_t i = 0; i < microbatches; i++) {
    write_run(&w, STEP_FORWARD, (work_item){ i, 0 });
    write_run(&w, STEP_BACKWARD, (work_item){ i, 0 });
  }
  assert(w.count == w.capacity && "no exchanges, no releases");
  return (schedule){ w.steps, w.count };
}

/* Each chunk of each micro-batch runs forward once, and then backward once; its input comes before,
 * its result leaves after. Each exchange has one wait, after it. */
static bool schedule_holds(const schedule *order, const settings *s, arena *a)
{
  enum { NOT_RUN, FORWARD_RUN, BACKWARD_RUN };
  uint32_t chunks = (uint32_t)s->derived.virtual_stages, waits = 0, exchanges = 0, done = 0;
  uint32_t runs = (uint32_t)s->derived.num_microbatches * chunks;
  uint8_t *state = ARENA_ARRAY(a, uint8_t, runs);
  bool *waited = ARENA_ARRAY(a, bool, order->count), holds = true;

  for (uint32_t i = 0; i < order->count && holds; i++) {
    const schedule_step *step = &order->steps[i];
    uint32_t run = step->microbatch * chunks + step->chunk;
    holds = step->chunk < chunks && run < runs;
    if (!holds) break;
    switch ((step_kind)step->kind) {
    case STEP_FORWARD:
      holds = state[run] == NOT_RUN;
      state[run] = FORWARD_RUN;
      break;
    case STEP_BACKWARD:
      holds = state[run] == FORWARD_RUN;
      state[run] = BACKWARD_RUN;
      done++;
      break;
    case STEP_WAIT:
      holds = step->target < i && !waited[step->target];
      if (holds) waited[step->target] = true;
      waits++;
      break;
    case STEP_RECV_FORWARD:
      holds = state[run] == NOT_RUN;
      exchanges++;
      break;
    case STEP_SEND_FORWARD:
      holds = state[run] == FORWARD_RUN;
      exchanges++;
      break;
    case STEP_RECV_BACKWARD:
      holds = state[run] != BACKWARD_RUN;
      exchanges++;
      break;
    case STEP_SEND_BACKWARD:
      holds = state[run] == BACKWARD_RUN;
      exchanges++;
      break;
    case STEP_RELEASE_OUTPUT: holds = state[run] == FORWARD_RUN; break;
    case STEP_SYNCHRONIZE:
    case STEP_LAYERS:
    case STEP_FINISH: break;
    }
  }
  return holds && done == runs && waits == exchanges;
}

schedule schedule_of_rank(const settings *s, uint32_t pp_rank, arena *a)
{
  assert(s->derived.num_microbatches > 0 && s->derived.virtual_stages > 0);
  assert(s->derived.num_microbatches <= UINT32_MAX / 64 / s->derived.virtual_stages);
  assert(pp_rank < s->parallel.pipeline_model_parallel_size);

  schedule order = s->parallel.pipeline_model_parallel_size == 1 ? no_pipelining(s, a)
                   : s->derived.virtual_stages == 1 ? one_forward_one_backward(s, pp_rank, a)
                                                    : interleaved(s, pp_rank, a);
  assert(schedule_holds(&order, s, a));
  return order;
}

int64_t schedule_most_in_flight(const schedule *order, const int64_t *by_chunk)
{
  int64_t now = 0, most = 0;

  for (uint32_t i = 0; i < order->count; i++) {
    const schedule_step *step = &order->steps[i];
    if (step->kind == STEP_FORWARD) now += by_chunk[step->chunk];
    if (step->kind == STEP_BACKWARD) now -= by_chunk[step->chunk];
    if (now > most) most = now;
  }
  assert(now == 0 && "every forward has a backward");
  return most;
}

uint32_t schedule_in_flight_at_first_backward(const schedule *order)
{
  uint32_t forwards = 0;

  for (uint32_t i = 0; i < order->count; i++) {
    if (order->steps[i].kind == STEP_BACKWARD) break;
    forwards += order->steps[i].kind == STEP_FORWARD;
  }
  assert(forwards > 0 && forwards < order->count && "a backward follows its forward");
  return forwards;
}
