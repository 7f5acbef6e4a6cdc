#include "sim/cli/calibrate_models.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/cli/run_cuda.h"
#include "sim/compile/compile.h"
#include "sim/plan/intern.h"

/* Long enough that the clocks are those of a GPU at work: products draw power, and within a second or two
 * the GPU slows itself down. */
enum { STEPS = 60 };

/* A kernel that begins so soon behind another was held up by nothing but the GPU's own start of
 * kernels, which counts as part of the one before. */
#define SUCCESSION_PS (5 * PS_PER_US)

/* All samples of all calls, until medians are taken. */
typedef struct sample {
  plan_call call;
  int64_t ps;
  uint32_t order; /* of the first sample of the call */
} sample;

typedef struct sample_array {
  sample *items;
  uint32_t count, capacity;
} sample_array;

/* What counts for the time: neither views nor the group of ranks. */
static plan_call bare(const plan_call *c)
{
  plan_call b = *c;
  b.views = b.view_count = 0;
  return b;
}

static int64_t taken_ps(const cuda_times *t, uint32_t op, uint32_t next)
{
  int64_t ps = t->end_ps[op] - t->begin_ps[op];
  int64_t gap = next != UINT32_MAX ? t->begin_ps[next] - t->end_ps[op] : -1;
  return gap >= 0 && gap < SUCCESSION_PS ? ps + gap : ps;
}

static bool is_sampled(const plan_op *o, const cuda_times *t, uint32_t i)
{
  return o->kind == OP_KERNEL && o->stream == STREAM_COMPUTE && t->end_ps[i] > t->begin_ps[i];
}

static void take_samples(const run_cuda *run, const cuda_exec *e, uint32_t step, const plan *p,
                         void *context)
{
  (void)run;
  (void)step;
  sample_array *to = context;
  const rank_plan *r = &p->ranks[0];
  cuda_times t = cuda_exec_times(e, 0);
  for (uint32_t i = r->ops.count, next = UINT32_MAX; i-- > 0;) {
    const plan_op *o = &r->ops.items[i];
    if (!is_sampled(o, &t, i)) continue;
    *ARRAY_PUSH(to) = (sample){ bare(&p->calls.items[o->arg]), taken_ps(&t, i, next), 0 };
    next = i;
  }
}

/* ---- one model ------------------------------------------------------------------------------- */

typedef struct model_run {
  settings settings;
  compilation first, steady;
} model_run;

static bool train(model_run *m, sample_array *samples, arena *a, diag *d)
{
  train_input in = { &m->settings, &m->first.plan, &m->steady.plan };
  run_cuda run = {
    .options = { .arithmetic = CUDA_FAST, .gpus = 1, .times = true, .times_from = STEPS - 1 },
    .steps = STEPS,
    .ranks = 1,
    .last_step = take_samples,
    .context = samples,
    .memory_of = a
  };
  train_executor on_cuda = train_on_cuda(&run);
  train_options o = {
    .seed = 1, .steps = STEPS, .learning_rate = 1e-4, .executor = &on_cuda, .no_prints = true
  };
  train_result result;
  return token_stream_open(&o.tokens, &m->settings, NULL, 0, 1, false, d) &&
         train_run(&in, &o, &result, a, d);
}

static bool run_model(const calibration_model *of, sample_array *samples, arena *a, diag *d)
{
  model_run m;
  memset(&m, 0, sizeof m);
  settings_init(&m.settings, a);
  bool ok = settings_read_scenario(&m.settings, of->name, of->text, strlen(of->text), a, d) &&
            settings_resolve(&m.settings, a, d) &&
            compile(&m.first, &m.settings, ITERATION_WARMUP, a, d) &&
            compile(&m.steady, &m.settings, ITERATION_STEADY, a, d) && train(&m, samples, a, d);
  compilation_release(&m.first);
  compilation_release(&m.steady);
  return ok;
}

/* ---- medians --------------------------------------------------------------------------------- */

static int by_order(const void *left, const void *right)
{
  const sample *a = left, *b = right;
  if (a->order != b->order) return a->order < b->order ? -1 : 1;
  return (a->ps > b->ps) - (a->ps < b->ps);
}

static void take_medians(sample_array *samples, sampled_calls *calls, arena *a)
{
  intern_table rows = { .memory = a };
  for (uint32_t i = 0; i < samples->count; i++)
    samples->items[i].order = intern(&rows, &samples->items[i].call, sizeof(plan_call));
  if (samples->count > 0) qsort(samples->items, samples->count, sizeof(sample), by_order);
  for (uint32_t i = 0, next; i < samples->count; i = next) {
    for (next = i; next < samples->count && samples->items[next].order == samples->items[i].order;)
      next++;
    const sample *median = &samples->items[i + (next - i) / 2];
    *ARRAY_PUSH(calls) = (sampled_call){ median->call, median->ps, next - i };
  }
}

bool calibrate_kernels(sampled_calls *calls, calibrate_progress *progress, void *context, arena *a,
                       diag *d)
{
  sample_array samples = { 0 };
  uint32_t count = 0;
  while (calibration_models[count].name != NULL)
    count++;
  bool ok = true;
  for (uint32_t i = 0; i < count && ok; i++) {
    arena scratch = { 0 };
    diag one = { 0 };
    progress(context, calibration_models[i].name, i, count);
    ok = run_model(&calibration_models[i], &samples, &scratch, &one) || one.exit_status == 3;
    if (one.exit_status == 3)
      diag_note(d, (source_pos){ 0 }, "%s is left out: %s", calibration_models[i].name,
                one.message);
    else if (!ok)
      *d = one;
    arena_release(&scratch);
  }
  if (ok) take_medians(&samples, calls, a);
  ARRAY_FREE(&samples);
  return ok;
}
