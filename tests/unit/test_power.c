/* The clock of a GPU at its power limit, against hand computation. */
#include "sim/engine/power.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { MS = 1000000000 }; /* in ps */

/* 100 W without products, at most 500 W, 1 pJ an operation. */
static machine limited(void)
{
  machine m;
  memset(&m, 0, sizeof m);
  m.gpu.power_limit_w = 500;
  m.gpu.power_base_w = 100;
  m.gpu.product_energy_fj = 1000;
  m.gpu.power_slowdown_permille = 500;
  m.link.d2h_bytes_per_us = m.link.h2d_bytes_per_us = 1000;
  m.issue.kernel_ns = 1000;
  return m;
}

/* 400 W of products are just what is left; 600 W are 700 W of 500 W, of which half counts. */
static void test_demand(void **state)
{
  (void)state;
  machine m = limited();
  rank_load load = { .compute_ps = 100LL * MS, .product_mflops = 40 * 1000000LL };
  assert_int_equal(power_slowdown_ppm(&m, &load), 0);
  load.product_mflops = 60 * 1000000LL;
  assert_int_equal(power_slowdown_ppm(&m, &load), 200000);
  m.gpu.power_limit_w = 0;
  assert_int_equal(power_slowdown_ppm(&m, &load), 0);
}

/* The same products in an iteration that copies or the host thread stretch draw less. */
static void test_stretched(void **state)
{
  (void)state;
  machine m = limited();
  rank_load load = { .compute_ps = 100LL * MS, .product_mflops = 60 * 1000000LL };
  load.h2d_bytes = 200000000; /* 200 ms */
  assert_int_equal(power_slowdown_ppm(&m, &load), 0);
  load.h2d_bytes = 0;
  load.kernels = 125000; /* 125 ms: 480 W of products, 580 W in all */
  assert_int_equal(power_slowdown_ppm(&m, &load), 80000);
}

static void test_nothing(void **state)
{
  (void)state;
  machine m = limited();
  rank_load load = { 0 };
  assert_int_equal(power_slowdown_ppm(&m, &load), 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_demand),
    cmocka_unit_test(test_stretched),
    cmocka_unit_test(test_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
