#include "sim/fit/fit.h"

#include <assert.h>
#include <string.h>

#include "sim/base/array.h"
#include "sim/base/units.h"
#include "sim/fit/parts.h"
#include "sim/machine/call_time.h"
#include "sim/predict/places.h"

/* Above this part of the step without work on the GPU, the host decides how long the step is; above this
 * part in which only copies run, they do. */
enum { HOST_BOUND_PERMILLE = 100, COPY_BOUND_PERMILLE = 100 };

/* What a profiler adds to an event where the step does not show it: measured 2026-11, PyTorch 2.11's
 * profiler beside Megatron-LM, 2 to 4 us. And the most that is tried. */
#define USUAL_EVENT_NS 3000
#define MOST_EVENT_NS  20000

enum { LEAST_CLOCK = 700, MOST_CLOCK = 1500 };

const char *fit_class_name(fit_class c)
{
  static const char *const names[FIT_CLASSES] = {
    [FIT_GEMM] = "gemm",      [FIT_ATTENTION] = "attention",
    [FIT_D2H] = "D2H copies", [FIT_COMMUNICATION] = "communication",
    [FIT_H2D] = "H2D copies", [FIT_OTHER] = "other kernels",
  };
  return names[c];
}

/* ---- trials ---- */

/* The result with other keys, and the step that it predicts. */
typedef struct trial {
  const fit_input *input;
  const host_stretches *host;
  fit_result *result;
} trial;

static bool predicted_step(const trial *t, int64_t *step_ps, diag *d)
{
  arena scratch = { 0 };
  prediction p;
  const machine *m =
      calibration_machine(t->input->base, &t->result->keys, &t->result->calls, &scratch);
  bool ok = predict_alone(&p, t->input->settings, m, &scratch, d);
  if (ok) *step_ps = p.result.step_ps;
  prediction_release(&p);
  arena_release(&scratch);
  return ok;
}

/* Sets what is tried. */
typedef void trial_set(const trial *t, int64_t value);

static void set_event(const trial *t, int64_t value)
{
  fit_host(t->host, value, &t->result->keys);
  t->result->event_ns = value;
}

/* The time of products and attention is multiplied by a permille. */
static void set_clock(const trial *t, int64_t value)
{
  fit_result *r = t->result;
  for (uint32_t i = 0; i < r->found_calls; i++) {
    sampled_call *c = &r->calls.items[i];
    if (call_slowed_kind(&c->call) == SLOWED_KINDS) continue;
    c->ps = muldiv_i64(c->ps, value, r->clock_permille);
  }
  r->clock_permille = value;
}

/* The value from `low` to `high` with the step nearest to the input's: the step grows with it, or shrinks
 * (`shrinks`). */
static bool search(const trial *t, trial_set *set, int64_t low, int64_t high, bool shrinks, diag *d)
{
  while (low < high) {
    int64_t middle = low + (high - low) / 2, step_ps;
    set(t, middle);
    if (!predicted_step(t, &step_ps, d)) return false;
    if ((step_ps < t->input->step_ps) == shrinks)
      high = middle;
    else
      low = middle + 1;
  }
  set(t, low);
  return true;
}

/* ---- the step ---- */

static void look_at_step(fit_result *r, const issues *x, arena *a)
{
  run_summary s = run_summary_of(x->run, a);
  int64_t length_ns = max_i64(1, x->end_ns - x->begin_ns);
  assert(s.kernel_busy_ns <= s.work_busy_ns);
  r->idle_permille = muldiv_i64(max_i64(0, length_ns - s.work_busy_ns), 1000, length_ns);
  r->copies_permille = muldiv_i64(s.work_busy_ns - s.kernel_busy_ns, 1000, length_ns);
}

static bool fit_step(const trial *t, diag *d)
{
  fit_result *r = t->result;
  bool knows_step = t->input->step_ps > 0, host_bound = r->idle_permille > HOST_BOUND_PERMILLE;
  bool copy_bound = r->copies_permille > COPY_BOUND_PERMILLE;
  if (r->host_rows > 0) set_event(t, knows_step ? USUAL_EVENT_NS : 0);
  if (knows_step && host_bound && r->host_rows > 0) {
    if (!search(t, set_event, 0, MOST_EVENT_NS, true, d)) return false;
  } else if (knows_step && !host_bound && !copy_bound) {
    if (!search(t, set_clock, LEAST_CLOCK, MOST_CLOCK, false, d)) return false;
  }
  return predicted_step(t, &r->step_ps, d);
}

/* ---- the whole ---- */

static void count(fit_result *r, const matches *m)
{
  for (uint32_t i = 0; i < m->predicted.count; i++)
    r->rows[m->predicted.items[i].class].ops++;
  for (uint32_t i = 0; i < m->measured.count; i++)
    r->rows[m->measured.items[i].class].kernels++;
  for (uint32_t i = 0; i < m->count; i++) {
    fit_row *row = &r->rows[m->measured.items[m->items[i].first].class];
    row->matched_ops++;
    row->matched_kernels += m->items[i].count;
  }
}

static bool has_call(const sampled_calls *all, const plan_call *call)
{
  for (uint32_t i = 0; i < all->count; i++)
    if (memcmp(&all->items[i].call, call, sizeof *call) == 0) return true;
  return false;
}

/* Calls that the base has measured and the trace does not show. */
static void keep_calls(fit_result *r, const machine *base)
{
  sampled_calls known = { 0 };
  calibration_keep_calls(base, &known);
  for (uint32_t i = 0; i < known.count; i++)
    if (!has_call(&r->calls, &known.items[i].call)) *ARRAY_PUSH(&r->calls) = known.items[i];
  ARRAY_FREE(&known);
}

static bool fit_sides_of(fit_result *r, const fit_sides *f, arena *a, diag *d)
{
  count(r, f->matched);
  r->passes_agree = f->matched->passes_agree;
  look_at_step(r, f->issued, a);
  fit_kernels(f, r, a);
  r->found_calls = r->calls.count;
  keep_calls(r, f->input->base);
  fit_copies(f, r);
  fit_exchanges(f, r);
  host_stretches *host = host_stretches_of(f, a);
  r->host_rows = host_stretch_count(host);
  const trial t = { .input = f->input, .host = host, .result = r };
  bool ok = fit_step(&t, d);
  host_stretches_release(host);
  return ok;
}

bool fit_machine(fit_result *r, const fit_input *input, arena *a, diag *d)
{
  prediction p;
  matches m = { .count = 0 };
  *r = (fit_result){ .event_ns = -1, .clock_permille = 1000 };
  assert(input->run->is_finished && input->run->has_profile);
  bool ok = predict_alone(&p, input->settings, input->base, a, d);
  if (ok) {
    issues x = issues_of(input->run, a);
    assert(input->rank < p.rank_count);
    r->base_step_ps = p.result.step_ps;
    fit_sides f = { .input = input,
                    .predicted = &p,
                    .own = machine_of(input->settings, input->base, a),
                    .issued = &x,
                    .matched = &m };
    ok = match_rank(&m, &p, f.own, input->rank, &x, a, d) && fit_sides_of(r, &f, a, d);
  }
  matches_release(&m);
  prediction_release(&p);
  return ok;
}
