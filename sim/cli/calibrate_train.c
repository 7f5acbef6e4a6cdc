#include "sim/cli/calibrate_train.h"

#include <string.h>

#include "cuda/calibrate/link_samples.h"
#include "sim/compile/compile.h"
#include "sim/train/train.h"

typedef struct model_run {
  settings settings;
  compilation first, steady;
} model_run;

static bool train(model_run *m, cuda_run *run, arena *a, diag *d)
{
  train_input in = { &m->settings, &m->first.plan, &m->steady.plan };
  executor on_cuda = cuda_executor(run);
  train_options o = {
    .seed = 1, .steps = run->steps, .learning_rate = 1e-4, .executor = &on_cuda, .no_prints = true
  };
  train_result result;
  return token_stream_open(&o.tokens, &m->settings, NULL, 0, 1, false, d) &&
         train_run(&in, &o, &result, a, d);
}

static void agree_on_ranks(model_run *m, cuda_run *run)
{
  int64_t *world_size = &m->settings.parallel.world_size;
  if (*world_size == UNSET) *world_size = run->ranks;
  run->ranks = run->options.gpus = (uint32_t)*world_size;
}

bool calibrate_train(const calibration_model *of, const machine *on, calibrate_steps *set_steps,
                     cuda_run *run, arena *a, diag *d)
{
  model_run m;
  memset(&m, 0, sizeof m);
  run->options.arithmetic = CUDA_FAST;
  run->options.times = true;
  run->memory_of = a;
  settings_init(&m.settings, a);
  m.settings.derived.compute_capability = (int)on->gpu.compute_capability;
  bool ok = calibration_read(&m.settings, of, a, d);
  if (ok) agree_on_ranks(&m, run);
  ok = ok && settings_resolve(&m.settings, a, d) &&
       compile(&m.first, &m.settings, ITERATION_WARMUP, a, d) &&
       compile(&m.steady, &m.settings, ITERATION_STEADY, a, d);
  if (ok) {
    set_steps(run, &m.steady.plan, on);
    ok = train(&m, run, a, d);
  }
  compilation_release(&m.first);
  compilation_release(&m.steady);
  return ok;
}

bool calibrate_each(const calibration_model *list, calibrate_one *one, void *job,
                    const calibrate_beside *beside, diag *d)
{
  uint32_t count = 0;
  while (list[count].name != NULL)
    count++;
  for (uint32_t i = 0; i < count; i++) {
    diag own = { 0 };
    beside->progress(beside->context, list[i].name, i, count);
    if (!link_samples_take(beside->links, beside->to, d)) return false;
    if (one(&list[i], job, &own)) continue;
    if (own.exit_status != 3) {
      *d = own;
      return false;
    }
    diag_note(d, (source_pos){ 0 }, "%s is left out: %s", list[i].name, own.message);
  }
  return true;
}
