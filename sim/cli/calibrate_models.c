#include "sim/cli/calibrate_models.h"

#include "sim/base/units.h"
#include "sim/cli/calibrate_train.h"

/*
 * Steps of a training: long enough that the clocks are those of a GPU at work (products draw power,
 * and within a second or two the GPU slows itself down), some that are sampled at these clocks, and
 * some in which the GPU rests; its clock needs the first of them to rise.
 */
enum { WORKING_STEPS = 45, SAMPLED_STEPS = 5, COOLING_STEPS = 1, RESTING_STEPS = 3 };
enum {
  TIMES_FROM = WORKING_STEPS,
  RESTS_FROM = TIMES_FROM + SAMPLED_STEPS,
  RESTED_FROM = RESTS_FROM + COOLING_STEPS,
  ALL_STEPS = RESTED_FROM + RESTING_STEPS
};

/* A kernel that begins so soon behind another was held up by nothing but the GPU's own start of
 * kernels, which counts as part of the one before. */
#define SUCCESSION_PS (5 * PS_PER_US)

/* What counts for the time: neither views nor the group of ranks. */
static plan_call bare(const plan_call *c)
{
  plan_call b = *c;
  b.views = b.view_count = 0;
  return b;
}

static bool is_sampled(const plan_op *o, const cuda_times *t, uint32_t i)
{
  return o->kind == OP_KERNEL && o->stream == STREAM_COMPUTE && t->end_ps[i] > t->begin_ps[i];
}

static void add_sample(model_samples *to, uint32_t call, sample_kind kind, int64_t ps)
{
  *ARRAY_PUSH(&to->all) = (sample){ call, kind, ps };
}

/* From the last op to the first: what follows a kernel is known then. */
static void take_samples(const run_cuda *run, const cuda_exec *e, uint32_t step, const plan *p,
                         void *context)
{
  (void)run;
  if (step >= RESTS_FROM && step < RESTED_FROM) return;
  model_samples *to = context;
  const rank_plan *r = &p->ranks[0];
  cuda_times t = cuda_exec_times(e, 0);
  to->step.count = 0;
  for (uint32_t i = r->ops.count, next = UINT32_MAX; i-- > 0;) {
    const plan_op *o = &r->ops.items[i];
    if (!is_sampled(o, &t, i)) continue;
    plan_call call = bare(&p->calls.items[o->arg]);
    uint32_t row = intern(&to->calls, &call, sizeof call);
    int64_t gap_ps = next == UINT32_MAX ? 0 : t.begin_ps[next] - t.end_ps[i];
    add_sample(to, row, step >= RESTED_FROM ? AT_REST : AT_WORK, t.end_ps[i] - t.begin_ps[i]);
    if (step < RESTS_FROM)
      add_sample(to, row, GAP, gap_ps < SUCCESSION_PS ? max_i64(0, gap_ps) : 0);
    *ARRAY_PUSH(&to->step) = row;
    next = i;
  }
}

/* ---- all of them ----------------------------------------------------------------------------- */

static bool calibrate_model(const calibration_model *of, const machine *m, intern_table *known,
                            sampled_calls *calls, diag *d)
{
  arena scratch = { 0 };
  bool rests = m->gpu.power_limit_w > 0;
  model_samples samples = { .calls = { .memory = &scratch } };
  run_cuda run = { .options = { .times_from = TIMES_FROM, .rests_from = rests ? RESTS_FROM : 0 },
                   .steps = rests ? ALL_STEPS : RESTS_FROM,
                   .ranks = 1,
                   .step_done = take_samples,
                   .context = &samples };
  bool ok = calibrate_train(of, m, &run, &scratch, d);
  if (ok) samples_take(m, rests, &samples, known, calls, &scratch);
  ARRAY_FREE(&samples.all);
  ARRAY_FREE(&samples.step);
  arena_release(&scratch);
  return ok;
}

bool calibrate_kernels(const machine *m, sampled_calls *calls, calibrate_progress *progress,
                       void *context, arena *a, diag *d)
{
  intern_table known = { .memory = a };
  uint32_t count = 0;
  while (calibration_models[count].name != NULL)
    count++;
  for (uint32_t i = 0; i < count; i++) {
    diag one = { 0 };
    progress(context, calibration_models[i].name, i, count);
    if (calibrate_model(&calibration_models[i], m, &known, calls, &one)) continue;
    if (one.exit_status != 3) {
      *d = one;
      return false;
    }
    diag_note(d, (source_pos){ 0 }, "%s is left out: %s", calibration_models[i].name, one.message);
  }
  return true;
}
