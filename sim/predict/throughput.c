#include "sim/predict/throughput.h"

#include <assert.h>

#include "sim/base/units.h"
#include "sim/machine/call_time.h"

/* Forward, and gradients of both factors of each product. */
enum { PASSES = 3 };

/* Of a rank's passes of all micro-batches. */
static int64_t forward_flops(const plan *p, const rank_plan *r)
{
  int64_t flops = 0;
  bool in_forward = false;
  for (uint32_t i = 0; i < r->ops.count; i++) {
    const plan_op *o = &r->ops.items[i];
    if (o->kind == OP_MARK) in_forward = r->marks.items[o->arg].kind == MARK_FORWARD;
    if (o->kind == OP_KERNEL && in_forward) flops += call_flops(&p->calls.items[o->arg]);
  }
  assert(flops >= 0);
  return flops;
}

static int64_t mfu_millionths(const prediction *p)
{
  const plan *steady = &p->steady.plan;
  int64_t peak_gflops = p->machine->gpu.peak_bf16_gflops, step_ps = p->result.step_ps, flops = 0;
  bool is_frozen = p->settings->lora.adapter != ADAPTER_NONE;
  if (peak_gflops == 0 || is_frozen) return -1;
  for (uint32_t r = 0; r < steady->rank_count; r++)
    flops += forward_flops(steady, &steady->ranks[r]) / steady->rank_count * PASSES;
  /* flops / (gflops * 10^9 * ps / 10^12), in millionths */
  return muldiv_i64(flops, INT64_C(1000000000), step_ps) / peak_gflops;
}

throughput throughput_of(const prediction *p)
{
  const settings *s = p->settings;
  int64_t step_ps = p->result.step_ps;
  assert(step_ps > 0 && s->parallel.world_size > 0);
  int64_t tokens = s->training.global_batch_size * s->training.seq_length;
  return (throughput){
    .tokens_per_s = muldiv_i64(tokens, PS_PER_S, step_ps) / s->parallel.world_size,
    .mfu_millionths = mfu_millionths(p),
  };
}
