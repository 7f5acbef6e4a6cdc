#include "sim/calibrate/calibrate.h"

#include <assert.h>

#include "sim/base/units.h"
#include "sim/calibrate/trainings.h"
#include "sim/machine/call_time.h"

/*
 * Steps of a training. First enough for the clock under load: products draw power, and within a
 * second or two the GPU throttles. Then enough for three swings of its clock, a second and 5
 * percent each. Then some in which the GPU rests; its clock rises during the first of them. Only
 * some of the second kind are samples, because the GPU rests while samples are read, which it would
 * not do in a training.
 */
#define WORKING_PS (3 * PS_PER_S)
#define SAMPLED_PS (3 * PS_PER_S)
enum { LEAST_STEPS = 6, MOST_STEPS = 90, EVERY_SAMPLED = 3, COOLING_STEPS = 1, RESTING_STEPS = 3 };
_Static_assert(LEAST_STEPS % EVERY_SAMPLED == 0 && MOST_STEPS % EVERY_SAMPLED == 0,
               "the last step before the GPU rests is a sample");

/* A kernel that begins this soon after another waited only for the GPU's kernel launch, which
 * counts as part of the previous kernel. */
#define SUCCESSION_PS (5 * PS_PER_US)

/* The GPU also waits between steps, while the host reads the times. */
static void count_steps(model_samples *to, int64_t busy_ps, int64_t now_ps)
{
  if (to->steps.told_ps != 0) {
    assert(now_ps >= to->steps.told_ps);
    to->steps.idle_ps += max_i64(0, now_ps - to->steps.told_ps - EVERY_SAMPLED * busy_ps);
    to->steps.count += EVERY_SAMPLED;
  }
  to->steps.told_ps = now_ps;
}

/* From the last op to the first, so that the kernel after each is known. */
static void take_samples(const calibration_run *run, const measured_step *s)
{
  bool rests = run->rests_from > 0 && s->number >= run->rests_from;
  if (rests && s->number < run->rests_from + COOLING_STEPS) return;
  model_samples *to = run->context;
  assert(s->ranks == 1 && s->plan->rank_count == 1);
  const rank_plan *r = &s->plan->ranks[0];
  const measured_ops *t = &s->times[0];
  int64_t busy_ps = 0;
  to->step.count = 0;
  for (uint32_t i = r->ops.count, next = UINT32_MAX; i-- > 0;) {
    const plan_op *o = &r->ops.items[i];
    int64_t ps = t->end_ps[i] - t->begin_ps[i];
    if (o->kind != OP_KERNEL || o->stream != STREAM_COMPUTE || ps <= 0) continue;
    plan_call call = call_without_views(&s->plan->calls.items[o->arg]);
    int64_t gap_ps = next == UINT32_MAX ? 0 : t->begin_ps[next] - t->end_ps[i];
    uint32_t row = samples_add(to, &call, rests ? AT_REST : AT_WORK, ps);
    if (!rests) samples_add(to, &call, GAP, gap_ps < SUCCESSION_PS ? max_i64(0, gap_ps) : 0);
    *ARRAY_PUSH(&to->step) = row;
    busy_ps += ps;
    next = i;
  }
  if (!rests) count_steps(to, busy_ps, s->now_ps);
}

/* ---- how many steps ---- */

static uint32_t steps_of(int64_t time_ps, int64_t step_ps)
{
  assert(step_ps > 0);
  int64_t samples = ceil_div(time_ps, step_ps * EVERY_SAMPLED);
  return (uint32_t)min_i64(MOST_STEPS, max_i64(LEAST_STEPS, samples * EVERY_SAMPLED));
}

/* The time of the plan's kernels on the machine with the power limit. */
static int64_t step_ps_of(const plan *p, const machine *m)
{
  int64_t ps = 0;
  const rank_plan *r = &p->ranks[0];
  for (uint32_t i = 0; i < r->ops.count; i++)
    if (r->ops.items[i].kind == OP_KERNEL)
      ps += call_time_of(m, &p->calls.items[r->ops.items[i].arg]).ps;
  return max_i64(1, ps);
}

static void set_steps(calibration_run *run, const plan *p, const machine *m)
{
  int64_t step_ps = step_ps_of(p, m);
  run->times_from = steps_of(WORKING_PS, step_ps);
  run->times_every = EVERY_SAMPLED;
  run->steps = run->times_from + steps_of(SAMPLED_PS, step_ps);
  if (m->gpu.power_limit_w == 0) return;
  assert(run->steps % EVERY_SAMPLED == 0);
  run->rests_from = run->steps;
  run->steps += COOLING_STEPS + RESTING_STEPS;
}

/* ---- all of them ---- */

typedef struct kernels_job {
  const calibration_bench *bench;
  const machine *machine;
  intern_table known; /* calls of earlier models */
  sampled_calls *calls;
  slowdown_sums slowdowns;
} kernels_job;

static bool calibrate_model(const calibration_model *of, void *context, diag *d)
{
  kernels_job *job = context;
  arena scratch = { 0 };
  model_samples samples = { .calls = { .memory = &scratch } };
  calibration_run run = { .ranks = 1, .step_done = take_samples, .context = &samples };
  bool ok = calibrate_train(job->bench, of, job->machine, set_steps, &run, &scratch, d);
  if (ok)
    samples_take(job->machine, &samples, &job->known, job->calls,
                 run.rests_from > 0 ? &job->slowdowns : NULL, &scratch);
  samples_release(&samples);
  arena_release(&scratch);
  return ok;
}

static void put_slowdowns(const slowdown_sums *s, calibration *c)
{
  static const char *const keys[SLOWED_KINDS] = {
    [SLOWED_PRODUCT] = "power_slowdown_permille",
    [SLOWED_ATTENTION] = "attention_slowdown_permille",
  };
  for (slowed_kind kind = 0; kind < SLOWED_KINDS; kind++) {
    int64_t permille = samples_slowdown_permille(s, kind);
    if (permille >= 0) calibration_put(c, "gpu", keys[kind], permille);
  }
}

bool calibrate_kernels(const calibration_bench *b, const machine *m, sampled_calls *calls, arena *a,
                       diag *d)
{
  kernels_job job = { .bench = b, .machine = m, .known = { .memory = a }, .calls = calls };
  if (!calibrate_each(b, calibration_models, calibrate_model, &job, d)) return false;
  put_slowdowns(&job.slowdowns, b->to);
  return true;
}
