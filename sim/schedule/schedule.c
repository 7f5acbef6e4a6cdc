#include "sim/schedule/schedule.h"

#include <assert.h>

#include "sim/schedule/steps.h"

/* A single rank with overlapped expert exchange: pairs each backward with the next forward
 * (combined_1f1b_schedule_for_no_pipelining). */
static schedule pairs_without_pipelining(uint32_t microbatches, arena *a)
{
  step_writer w = step_writer_new(1, 0, false, 4 * microbatches, a);

  write_run(&w, STEP_FORWARD, (work_item){ 0, 0 });
  for (uint32_t i = 0; i + 1 < microbatches; i++) {
    write_paired(&w, STEP_FORWARD, (work_item){ i + 1, 0 });
    write_paired(&w, STEP_BACKWARD, (work_item){ i, 0 });
    write_layers(&w);
    write_finish(&w);
  }
  write_run(&w, STEP_BACKWARD, (work_item){ microbatches - 1, 0 });
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
  return (schedule){ w.steps, w.count };
}

schedule schedule_of_rank(const settings *s, uint32_t pp_rank, arena *a)
{
  assert(s->derived.num_microbatches > 0 && s->derived.virtual_stages > 0);
  assert(s->derived.num_microbatches <= UINT32_MAX / 64 / s->derived.virtual_stages);
  assert(pp_rank < s->parallel.pipeline_model_parallel_size);

  if (s->parallel.pipeline_model_parallel_size == 1) return no_pipelining(s, a);
  if (s->derived.virtual_stages == 1) return one_forward_one_backward(s, pp_rank, a);
  return interleaved(s, pp_rank, a);
}

uint32_t schedule_in_flight_at_first_backward(const schedule *order)
{
  uint32_t forwards = 0;

  for (uint32_t i = 0; i < order->count; i++) {
    if (order->steps[i].kind == STEP_BACKWARD) break;
    forwards += order->steps[i].kind == STEP_FORWARD;
  }
  return forwards;
}
