#include "cuda/exec/trace.h"

#include <assert.h>

#include "traces/measured_timeline.h"

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

static void record_step(trace_recorder *recorder, const cuda_run *run, const cuda_exec *e,
                        uint32_t step, const plan *p)
{
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

/* Each global rank does what its pipeline rank's ops say. */
static void put_timeline(const step_outputs *to, const cuda_run *run, const cuda_exec *e,
                         const plan *p)
{
  arena scratch = { 0 };
  timeline_file t;
  uint32_t first = 0;
  while (!to->ranks[first])
    first++;
  timeline_begin(&t, to->timeline, p, first, run->ranks, &scratch);
  for (uint32_t rank = first; rank < run->ranks; rank++) {
    if (!to->ranks[rank]) continue;
    cuda_times times = cuda_exec_times(e, rank);
    timeline_put_measured(&t, &(measured_rank){ .number = rank,
                                                .ops = &p->ranks[run->layout->ranks[rank].stage],
                                                .begin_ps = times.begin_ps,
                                                .end_ps = times.end_ps,
                                                .live_bytes = times.live_bytes,
                                                .reserved_bytes = times.reserved_bytes,
                                                .pinned_bytes = times.host_bytes });
  }
  timeline_end(&t);
  arena_release(&scratch);
}

void put_last_step(const cuda_run *run, const cuda_exec *e, uint32_t step, const plan *p, void *to)
{
  const step_outputs *outputs = to;
  assert(step < run->steps);
  if (outputs->record != NULL) record_step(outputs->record, run, e, step, p);
  if (outputs->timeline != NULL) put_timeline(outputs, run, e, p);
}
