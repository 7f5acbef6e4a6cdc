#include "cuda/calibrate/trainings.h"

#include "cuda/device/clock.h"
#include "cuda/exec/executor.h"
#include "sim/train/train.h"

static void step_done(const cuda_run *run, const cuda_exec *e, uint32_t step, const plan *p,
                      void *context)
{
  const calibration_run *of = context;
  measured_ops times[CALIBRATED_GPUS];
  assert(run->ranks <= CALIBRATED_GPUS);
  for (uint32_t r = 0; r < run->ranks; r++) {
    cuda_times t = cuda_exec_times(e, r);
    times[r] = (measured_ops){ t.begin_ps, t.end_ps };
  }
  of->step_done(of, &(measured_step){ step, p, run->ranks, times, clock_now_ps() });
}

bool train_on_gpus(const calibration_run *run, arena *a, diag *d)
{
  cuda_run cuda = { .options = { .gpus = run->ranks,
                                 .arithmetic = CUDA_FAST,
                                 .times = true,
                                 .times_from = run->times_from,
                                 .times_every = run->times_every,
                                 .rests_from = run->rests_from },
                    .steps = run->steps,
                    .ranks = run->ranks,
                    .step_done = step_done,
                    .context = (void *)(uintptr_t)run,
                    .memory_of = a };
  train_input in = { run->settings, run->first, run->steady };
  executor on_cuda = cuda_executor(&cuda);
  train_options o = {
    .seed = 1, .steps = run->steps, .learning_rate = 1e-4, .executor = &on_cuda, .no_prints = true
  };
  train_result result;
  return token_stream_open(&o.tokens, run->settings, NULL, 0, 1, false, d) &&
         train_run(&in, &o, &result, a, d);
}
