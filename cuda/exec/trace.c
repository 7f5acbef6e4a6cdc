#include "cuda/exec/trace.h"

#include <assert.h>

#include "traces/recorder.h"

static void record_rank(trace_recorder *to, const cuda_run *run, const cuda_exec *e, uint32_t step,
                        uint32_t rank)
{
  uint32_t stage = run->layout->ranks[rank].stage, ops = to->plan->ranks[stage].ops.count;
  assert(rank < run->layout->rank_count && stage < to->plan->rank_count);
  cuda_times times = cuda_exec_times(e, rank);
  exec_tally requested = cuda_exec_tally(e, rank);
  for (uint32_t i = 0; i < ops; i++) {
    bool clocked = times.begin_ps[i] >= 0;
    assert(!clocked || times.begin_ps[i] <= times.end_ps[i]);
    trace_op known = { .step = step,
                       .rank = rank,
                       .begin_ps = clocked ? times.begin_ps[i] : 0,
                       .end_ps = clocked ? times.end_ps[i] : 0,
                       .requested_bytes = requested.after_op[i],
                       .live_bytes = times.live_bytes[i],
                       .reserved_bytes = times.reserved_bytes[i],
                       .host_bytes = times.host_bytes[i] };
    recorder_op(to, stage, i, &known, NULL);
  }
}

void record_last_step(const cuda_run *run, const cuda_exec *e, uint32_t step, const plan *p,
                      void *to)
{
  trace_recorder *recorder = to;
  assert(step < run->steps);
  recorder_plan(recorder, p);
  for (uint32_t rank = 0; rank < run->ranks; rank++)
    record_rank(recorder, run, e, step, rank);
  trace_put_steps(&recorder->writer, run->steps_ps, run->steps);
  for (uint32_t rank = 0; rank < run->ranks; rank++) {
    const cuda_memory *m = &run->memory[rank];
    trace_figures f = trace_no_figures();
    f.requested_peak_bytes = m->requested_peak_bytes;
    f.live_peak_bytes = m->live_peak_bytes;
    f.reserved_peak_bytes = m->reserved_peak_bytes;
    f.pinned_peak_bytes = m->pinned_peak_bytes;
    f.driver_used_bytes = m->driver_used_bytes;
    f.outside_bytes = m->outside_bytes;
    trace_put_figures(&recorder->writer, rank, &f);
  }
}
