#include "sim/cli/run_cuda_trace.h"

#include "traces/record_plan.h"

typedef struct recording {
  const cuda_run *run;
  const cuda_exec *exec;
  trace_writer *to;
} recording;

static void record_rank(const recording *x, uint32_t step, uint32_t rank, plan_describer *t)
{
  uint32_t stage = x->run->layout->ranks[rank].stage;
  const rank_plan *r = &t->plan->ranks[stage];
  cuda_times times = cuda_exec_times(x->exec, rank);
  exec_tally requested = cuda_exec_tally(x->exec, rank);
  trace_output outputs[TRACE_OUTPUTS];
  for (uint32_t i = 0; i < r->ops.count; i++) {
    if (!trace_tells(&r->ops.items[i])) continue;
    bool known = times.begin_ps[i] >= 0;
    trace_op op = { .step = step,
                    .begin_ps = known ? times.begin_ps[i] : 0,
                    .end_ps = known ? times.end_ps[i] : 0,
                    .requested_bytes = requested.after_op[i],
                    .live_bytes = times.live_bytes[i],
                    .reserved_bytes = times.reserved_bytes[i],
                    .host_bytes = times.host_bytes[i] };
    describe_op(t, stage, i, &op, outputs);
    op.rank = rank;
    trace_put(x->to, &op, outputs);
  }
}

static void record_figures(const cuda_run *run, trace_writer *to)
{
  trace_put_steps(to, run->steps_ps, run->steps);
  for (uint32_t rank = 0; rank < run->ranks; rank++) {
    const cuda_memory *m = &run->memory[rank];
    trace_figures f = trace_no_figures();
    f.requested_peak_bytes = m->requested_peak_bytes;
    f.live_peak_bytes = m->live_peak_bytes;
    f.reserved_peak_bytes = m->reserved_peak_bytes;
    f.pinned_peak_bytes = m->pinned_peak_bytes;
    f.driver_used_bytes = m->driver_used_bytes;
    f.outside_bytes = m->outside_bytes;
    trace_put_figures(to, rank, &f);
  }
}

void record_last_step(const cuda_run *run, const cuda_exec *e, uint32_t step, const plan *p,
                      void *to)
{
  recording x = { run, e, to };
  plan_describer t = plan_describer_new(p, run->memory_of);
  for (uint32_t rank = 0; rank < run->ranks; rank++)
    record_rank(&x, step, rank, &t);
  record_figures(run, to);
}
