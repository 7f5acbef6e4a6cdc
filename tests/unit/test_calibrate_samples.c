/* What samples of a training say of its calls, against hand computation. */
#include "sim/calibrate/samples.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "sim/base/units.h"

#define MS PS_PER_MS

/* 100 W between kernels, at most 500 W; product() takes 26 J. */
static machine limited(void)
{
  machine m;
  memset(&m, 0, sizeof m);
  m.gpu.power_limit_w = 500;
  m.gpu.power_base_w = 100;
  m.gpu.product_energy_fj = 13 * 1000 * 1000;
  return m;
}

static plan_call product(int64_t k)
{
  plan_call c;
  memset(&c, 0, sizeof c);
  c.kind = KERNEL_GEMM;
  c.dtype = DTYPE_BF16;
  c.dims[0] = c.dims[1] = 1000;
  c.dims[2] = k;
  c.dims[3] = 1;
  return c;
}

/* A model whose step is one product. */
typedef struct fixture {
  arena memory;
  machine machine;
  model_samples samples;
  intern_table known;
  sampled_calls calls;
} fixture;

static void begin(fixture *f)
{
  memset(f, 0, sizeof *f);
  f->machine = limited();
  f->samples.calls.memory = f->known.memory = &f->memory;
}

static void end(fixture *f)
{
  samples_release(&f->samples);
  ARRAY_FREE(&f->calls);
  arena_release(&f->memory);
}

static uint32_t add(fixture *f, int64_t k, sample_kind kind, int64_t ps)
{
  plan_call c = product(k);
  return samples_add(&f->samples, &c, kind, ps);
}

static void take(fixture *f, slowdown_sums *slowdowns)
{
  samples_take(&f->machine, &f->samples, &f->known, &f->calls, slowdowns, &f->memory);
}

/* Of ten samples the longest and the shortest do not count; what follows at once does. */
static void test_mean(void **state)
{
  fixture f;
  (void)state;
  begin(&f);
  for (int64_t i = 0; i < 8; i++)
    add(&f, 1000, AT_WORK, (10 + i % 2) * MS);
  add(&f, 1000, AT_WORK, 1000 * MS);
  add(&f, 1000, AT_WORK, 1);
  add(&f, 1000, GAP, 2 * MS);
  add(&f, 500, AT_WORK, 7 * MS);
  take(&f, NULL);
  assert_int_equal(f.calls.count, 2);
  assert_int_equal(f.calls.items[0].ps, 21 * MS / 2 + 2 * MS);
  assert_int_equal(f.calls.items[1].ps, 7 * MS);
  assert_int_equal(f.calls.items[1].call.dims[2], 500);
  assert_int_equal(f.calls.items[0].slowdown_permille, -1);
  end(&f);
}

/* A call that an earlier model had keeps that model's time; the layout of its operands does not
 * matter. */
static void test_known(void **state)
{
  fixture f;
  (void)state;
  begin(&f);
  plan_call same = product(1000);
  same.views = 5;
  same.view_count = 3;
  same = call_without_views(&same);
  intern(&f.known, &same, sizeof same);
  add(&f, 1000, AT_WORK, 5 * MS);
  add(&f, 500, AT_WORK, 5 * MS);
  take(&f, NULL);
  assert_int_equal(f.calls.count, 1);
  assert_int_equal(f.calls.items[0].call.dims[2], 500);
  end(&f);
}

/* 26 J in a step of `rest_ps` at full clock, `idle_ms` after the previous one. */
static sampled_call slowed(int64_t rest_ps, int64_t work_ps, int64_t idle_ms, slowdown_sums *to)
{
  fixture f;
  begin(&f);
  add(&f, 1000, AT_WORK, work_ps);
  *ARRAY_PUSH(&f.samples.step) = add(&f, 1000, AT_REST, rest_ps);
  f.samples.steps.idle_ps = 3 * idle_ms * MS;
  f.samples.steps.count = 3;
  take(&f, to);
  assert_int_equal(f.calls.count, 1);
  sampled_call c = f.calls.items[0];
  end(&f);
  return c;
}

static void assert_near(int64_t found, int64_t expected)
{
  assert_in_range(found, expected - expected / 100, expected + expected / 100);
}

static int64_t of_products(const slowdown_sums *s)
{
  return samples_slowdown_permille(s, SLOWED_PRODUCT);
}

/* 650 W and 100 W are half more than 500 W: a quarter longer is a slowdown of 0.5. */
static void test_slowdown(void **state)
{
  (void)state;
  slowdown_sums sums = { 0 };
  sampled_call c = slowed(40 * MS, 50 * MS, 0, &sums);
  assert_int_equal(c.ps, 40 * MS);
  assert_int_equal(c.slowdown_permille, -1);
  assert_near(of_products(&sums), 500);
  assert_int_equal(samples_slowdown_permille(&sums, SLOWED_ATTENTION), -1);
}

/* With 10 ms between steps the mean is 520 W and 100 W: 24 percent more. */
static void test_idle_between_steps(void **state)
{
  (void)state;
  slowdown_sums sums = { 0 };
  slowed(40 * MS, 50 * MS, 10, &sums);
  assert_near(of_products(&sums), 250 * 1000 / 240);
}

/* With 40 ms it lacks nothing, and what made it longer is not known. */
static void test_enough_power(void **state)
{
  (void)state;
  slowdown_sums sums = { 0 };
  slowed(40 * MS, 50 * MS, 40, &sums);
  assert_int_equal(of_products(&sums), -1);
}

/* The line that is nearest to both: 10 and 0 ms longer where 0.5 and 0.24 of 40 ms were lacking. */
static void test_two_models(void **state)
{
  (void)state;
  slowdown_sums sums = { 0 };
  slowed(40 * MS, 50 * MS, 0, &sums);
  slowed(40 * MS, 40 * MS, 10, &sums);
  assert_near(of_products(&sums), 1000 * 10 * 500 / (40 * (500 * 500 + 240 * 240) / 1000));
}

/* Behind a pause a kernel may be slower than at work. */
static void test_faster_at_work(void **state)
{
  (void)state;
  slowdown_sums sums = { 0 };
  sampled_call c = slowed(40 * MS, 38 * MS, 0, &sums);
  assert_int_equal(c.ps, 38 * MS);
  assert_int_equal(of_products(&sums), 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_mean),         cmocka_unit_test(test_known),
    cmocka_unit_test(test_slowdown),     cmocka_unit_test(test_idle_between_steps),
    cmocka_unit_test(test_enough_power), cmocka_unit_test(test_faster_at_work),
    cmocka_unit_test(test_two_models),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
