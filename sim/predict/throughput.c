#include "sim/predict/throughput.h"

#include <assert.h>

#include "sim/base/arena.h"
#include "sim/base/units.h"
#include "sim/machine/call_time.h"
#include "sim/plan/repeats.h"

/* Forward, and gradients of both factors of each product. */
enum { PASSES = 3 };

typedef struct forward_sum {
  const int64_t *flops_of_call;
  const rank_plan *rank;
  bool in_forward;
} forward_sum;

/* Of the ops from `begin` on. */
static int64_t sum_forward(forward_sum *s, uint32_t begin, uint32_t end)
{
  int64_t flops = 0;
  for (uint32_t i = begin; i < end; i++) {
    const plan_op *o = &s->rank->ops.items[i];
    if (o->kind == OP_MARK) s->in_forward = s->rank->marks.items[o->arg].kind == MARK_FORWARD;
    if (o->kind == OP_KERNEL && s->in_forward) flops += s->flops_of_call[o->arg];
  }
  return flops;
}

/* Of a rank's passes of all micro-batches. Turns begin with a mark, or in the phase of the turn before: from
 * the second one on they are equal. */
static int64_t forward_flops(const int64_t *flops_of_call, const rank_plan *r)
{
  forward_sum s = { flops_of_call, r, false };
  const plan_repeat *turns = &r->repeat;
  if (turns->turns < 2) return sum_forward(&s, 0, r->ops.count);
  uint32_t second = turns->first + turns->ops;
  int64_t flops = sum_forward(&s, 0, second);
  flops += (turns->turns - 1) * sum_forward(&s, second, second + turns->ops);
  flops += sum_forward(&s, repeat_end(turns), r->ops.count);
  assert(flops >= 0);
  return flops;
}

/* Of forward and backward; mean of the ranks. */
static int64_t model_flops(const plan *p)
{
  arena scratch = { 0 };
  int64_t *of_call = ARENA_ARRAY(&scratch, int64_t, (size_t)p->calls.count + 1), flops = 0;
  for (uint32_t i = 0; i < p->calls.count; i++)
    of_call[i] = call_flops(&p->calls.items[i]);
  for (uint32_t r = 0; r < p->rank_count; r++)
    flops += forward_flops(of_call, &p->ranks[r]) / p->rank_count * PASSES;
  arena_release(&scratch);
  return flops;
}

static int64_t mfu_millionths(const settings *s, const machine *m, const plan *steady,
                              int64_t step_ps)
{
  int64_t peak_gflops = m->gpu.peak_bf16_gflops;
  if (peak_gflops == 0 || s->lora.adapter != ADAPTER_NONE) return -1;
  /* flops / (gflops * 10^9 * ps / 10^12), in millionths */
  return muldiv_i64(model_flops(steady), INT64_C(1000000000), step_ps) / peak_gflops;
}

int64_t tokens_of_step(const settings *s)
{
  return s->training.global_batch_size * s->training.seq_length;
}

int64_t tokens_per_s(int64_t tokens, int64_t gpus, int64_t step_ps)
{
  assert(tokens >= 0 && gpus > 0 && step_ps > 0);
  return muldiv_i64(tokens, PS_PER_S, step_ps) / gpus;
}

throughput throughput_of(const settings *s, const machine *m, const plan *steady, int64_t step_ps)
{
  int64_t tokens = tokens_of_step(s), gpus = s->parallel.world_size;
  return (throughput){ .tokens_per_s = tokens_per_s(tokens, gpus, step_ps),
                       .mfu_millionths = mfu_millionths(s, m, steady, step_ps) };
}
