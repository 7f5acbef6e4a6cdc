/* The least time of calls at the clock that power allows, against the clock of the same calls with rests
 * between them, drawn at random. */
#include "sim/predict/pace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "sim/base/units.h"
#include "sim/engine/power.h"

enum { CALLS = 400, RUNS = 3000, PPM = 1000000 };

static uint32_t draw(uint64_t *state, uint32_t below)
{
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)((*state >> 33) % below);
}

/* One that draws up to 1000 W more than the GPU at rest, and is slowed by as much as power exceeds its limit
 * at most. */
static call_cost draw_call(uint64_t *state, int64_t most_us)
{
  call_cost c = { .ps = (1 + draw(state, (uint32_t)most_us)) * PS_PER_US };
  c.power_permille = draw(state, 3) == 0 ? 0 : draw(state, 1000);
  c.energy_nj = c.ps / 1000 * (draw(state, 4) == 0 ? draw(state, 100) : draw(state, 1000));
  return c;
}

/* The calls slowed in a step with these rests before them, which repeats; engine: slowdown.c. */
static int64_t slowed_ps(const call_run *r, const int64_t *rests_ps, int64_t step_ps)
{
  power_curve curve = power_curve_new(step_ps);
  int64_t at_ps = 0, sum_ps = 0;
  for (uint32_t i = 0; i < r->count; i++) {
    at_ps += rests_ps[i];
    power_curve_add(&curve, STREAM_COMPUTE, at_ps, at_ps + r->items[i]->ps, r->items[i]->energy_nj);
    at_ps += r->items[i]->ps;
  }
  at_ps = 0;
  for (uint32_t i = 0; i < r->count; i++) {
    at_ps += rests_ps[i];
    int64_t ppm = power_curve_excess_ppm(&curve, r->machine, at_ps);
    sum_ps += r->items[i]->ps + muldiv_i64(pace_slowdown_ps(r->items[i]), ppm, PPM);
    at_ps += r->items[i]->ps;
  }
  power_curve_free(&curve);
  return sum_ps;
}

/* Few long rests, or many short ones. Returns their sum. */
static int64_t draw_rests(uint64_t *state, int64_t *rests_ps, uint32_t count, int64_t most_us)
{
  uint32_t one_of = 1 + draw(state, 50);
  int64_t sum_ps = 0;
  for (uint32_t i = 0; i < count; i++) {
    rests_ps[i] = draw(state, one_of) == 0 ? draw(state, (uint32_t)most_us) * PS_PER_US : 0;
    sum_ps += rests_ps[i];
  }
  return sum_ps;
}

static void test_no_rests_are_faster(void **state)
{
  (void)state;
  uint64_t random = 1;
  uint32_t slowed = 0;
  for (int run = 0; run < RUNS; run++) {
    machine m;
    call_cost costs[CALLS];
    const call_cost *items[CALLS];
    int64_t rests_ps[CALLS];
    memset(&m, 0, sizeof m);
    m.gpu.power_base_w = draw(&random, 150);
    m.gpu.power_limit_w = 200 + draw(&random, 900);
    call_run r = { &m, items, 1 + draw(&random, CALLS) };
    int64_t most_us = draw(&random, 2) == 0 ? 1000 : 20000;
    for (uint32_t i = 0; i < r.count; i++) {
      costs[i] = draw_call(&random, most_us);
      items[i] = &costs[i];
    }
    paced p = pace_of(&r, r.count, true);
    int64_t rest_ps = draw_rests(&random, rests_ps, r.count, most_us);
    int64_t with_ps = rest_ps + slowed_ps(&r, rests_ps, p.step_ps + rest_ps);
    int64_t rounding_ps = r.count + 2 * with_ps / PPM; /* the excess is in parts per million */
    assert_true(pace_least_ps(&p) <= with_ps + rounding_ps);
    slowed += p.before_ps > p.step_ps;
  }
  assert_true(slowed > RUNS / 4);
}

/* 700 W of calls, half of which power slows by all of the excess, and a limit of 500 W. */
static void test_back_to_back(void **state)
{
  (void)state;
  machine m;
  call_cost slowed = { .ps = PS_PER_MS,
                       .power_permille = 1000,
                       .energy_nj = 700 * (PS_PER_MS / 1000) };
  call_cost steady = slowed;
  const call_cost *items[CALLS];
  memset(&m, 0, sizeof m);
  m.gpu.power_limit_w = 500;
  steady.power_permille = 0;
  for (int i = 0; i < CALLS; i++)
    items[i] = i % 2 == 0 ? &slowed : &steady;
  call_run r = { &m, items, CALLS };
  paced p = pace_of(&r, CALLS / 2, true), full = pace_of(&r, CALLS / 2, false);
  assert_int_equal(full.before_ps + full.after_ps, CALLS * PS_PER_MS);
  assert_int_equal(p.before_ps, CALLS / 4 * (PS_PER_MS + PS_PER_MS * 14 / 10));
  assert_int_equal(p.after_ps, p.before_ps);
  assert_int_equal(pace_least_ps(&p), p.before_ps + p.after_ps);
  assert_int_equal(pace_least_ps(&full), CALLS * PS_PER_MS);
}

int main(void)
{
  const struct CMUnitTest tests[] = { cmocka_unit_test(test_no_rests_are_faster),
                                      cmocka_unit_test(test_back_to_back) };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
