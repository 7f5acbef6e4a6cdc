#include "sim/predict/range.h"

#include <assert.h>

#include "sim/base/parallel.h"
#include "sim/base/units.h"
#include "sim/predict/places.h"

/* ---- timings ---- */

/* The first is of the machine as it is; then, by class, the slower and the faster one. */
enum { TIMINGS = 1 + 2 * (RATE_CLASSES - 1) };

typedef struct timings {
  const plan *plan;
  const machine *machine;
  const rank_place *places;
  int64_t step_ps[TIMINGS];
} timings;

static void time_one(void *context, uint32_t i)
{
  timings *t = context;
  timeline times = { 0 };
  diag d = { .quiet = true };
  machine m =
      i == 0 ? *t->machine : machine_erring(t->machine, (rate_class)((i + 1) / 2), i % 2 == 1);
  bool ended = simulate(&times, t->plan, &m, t->places, &d);
  assert(ended && "the same plan was timed before");
  t->step_ps[i] = ended ? times.step_ps : 0;
  timeline_release(&times);
}

/* ---- sums ---- */

/* Of the step, so that squares fit; no error makes a step a hundred times as long. */
enum { MILLION = 1000000, LARGEST_PPM = 100 * MILLION };

static int64_t square_of(int64_t part_ps, int64_t step_ps)
{
  int64_t ppm = min_i64(muldiv_i64(part_ps, MILLION, step_ps), LARGEST_PPM);
  assert(ppm >= 0);
  return ppm * ppm;
}

/* The largest r with r * r <= n. */
static int64_t root_of(int64_t n)
{
  int64_t low = 0, high = RATE_CLASSES * (int64_t)LARGEST_PPM;
  while (low < high) {
    int64_t middle = low + (high - low + 1) / 2;
    if (middle * middle <= n)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

/* 1.28 widths. */
static int64_t within_range(int64_t ps)
{
  return muldiv_i64(max_i64(ps, 0), 128, 100);
}

/*
 * The width of what no rate describes, in permille of the step: work of the framework that the plan
 * lacks or has too much of, routing of experts, a recipe that was not quite the published one. It is
 * what is left of the errors of 53 steps that Megatron-Bridge publishes
 * (tests/fidelity/published_steps.jsonl) after those of rates; by rates alone, ranges of half of
 * those with experts were too narrow.
 */
enum { PLAN_ERROR_PERMILLE = 30, PLAN_ERROR_WITH_EXPERTS_PERMILLE = 120 };

static int64_t error_of_plan(const prediction *p)
{
  bool experts = p->settings->model.num_experts > 0;
  return within_range(muldiv_i64(
      p->result.step_ps, experts ? PLAN_ERROR_WITH_EXPERTS_PERMILLE : PLAN_ERROR_PERMILLE, 1000));
}

step_range range_of_step(const prediction *p, arena *a)
{
  timings t = { .plan = &p->steady.plan,
                .machine = machine_of(p->settings, p->machine, a),
                .places = places_of_ranks(p->settings, p->machine, a) };
  parallel_for(TIMINGS, p->threads, time_one, &t);
  step_range r = { 0 };
  int64_t step_ps = max_i64(t.step_ps[0], 1), faster = 0, slower = 0;
  r.parts[RATE_NONE].faster_ps = r.parts[RATE_NONE].slower_ps = error_of_plan(p);
  for (uint32_t c = 0; c < RATE_CLASSES; c++) {
    if (c != RATE_NONE) {
      int64_t with_slower_ps = t.step_ps[2 * c - 1] - t.step_ps[0];
      int64_t with_faster_ps = t.step_ps[2 * c] - t.step_ps[0];
      r.parts[c].slower_ps = within_range(max_i64(with_slower_ps, with_faster_ps));
      r.parts[c].faster_ps = within_range(-min_i64(with_slower_ps, with_faster_ps));
    }
    slower += square_of(r.parts[c].slower_ps, step_ps);
    faster += square_of(r.parts[c].faster_ps, step_ps);
  }
  r.most_ps = p->result.step_ps + muldiv_i64(step_ps, root_of(slower), MILLION);
  r.least_ps = max_i64(0, p->result.step_ps - muldiv_i64(step_ps, root_of(faster), MILLION));
  return r;
}

rate_class range_dominant(const step_range *r)
{
  rate_class found = RATE_NONE;
  int64_t most_ps = 0;
  for (rate_class c = 0; c < RATE_CLASSES; c++) {
    int64_t part_ps = max_i64(r->parts[c].faster_ps, r->parts[c].slower_ps);
    if (part_ps <= most_ps) continue;
    found = c;
    most_ps = part_ps;
  }
  return found;
}

const char *range_part_name(rate_class c)
{
  return c == RATE_NONE ? "what is not modelled" : rate_class_name(c);
}
