/* exact_math.h against the C library's long double functions, over dense sweeps and at the
 * edges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdbool.h>

#include "ref/kernels/exact_math.h"

/* Steps of the last place of the type between `y` and the true value. */
static long double ulps(double y, long double truth, int digits, int lowest)
{
  if (isnan(y) || isnan((double)truth)) return isnan(y) && isnan((double)truth) ? 0 : 1e9L;
  if (isinf(y))
    return truth == (long double)y || fabsl(truth) > (digits == 53 ? 0x1p1023L : 0x1p127L) ? 0
                                                                                           : 1e9L;
  int exponent;
  frexpl(truth, &exponent);
  if (exponent < lowest) exponent = lowest;
  return fabsl((long double)y - truth) / ldexpl(1, exponent - digits);
}

typedef struct function {
  const char *name;
  double (*exact)(double);
  float (*exactf)(float);
  long double (*truth)(long double);
  double from, to; /* swept in equal steps */
} function;

static long double true_rsqrt(long double x)
{
  return 1 / sqrtl(x);
}

static long double true_sigmoid(long double x)
{
  return 1 / (1 + expl(-x));
}

static const function functions[] = {
  { "exp", exact_exp, exact_expf, expl, -750, 715 },
  { "exp", exact_exp, exact_expf, expl, -2, 2 },
  { "exp", exact_exp, exact_expf, expl, -105, 90 },
  { "expm1", exact_expm1, exact_expm1f, expm1l, -60, 715 },
  { "expm1", exact_expm1, exact_expm1f, expm1l, -2, 2 },
  { "expm1", exact_expm1, exact_expm1f, expm1l, -1e-9, 1e-9 },
  { "log", exact_log, exact_logf, logl, 0, 4 },
  { "log", exact_log, exact_logf, logl, 0, 1e300 },
  { "log", exact_log, exact_logf, logl, 0, 1e-310 },
  { "log", exact_log, exact_logf, logl, 1 - 1e-6, 1 + 1e-6 },
  { "sin", exact_sin, exact_sinf, sinl, -10, 10 },
  { "sin", exact_sin, exact_sinf, sinl, -1e5, 1e5 },
  { "sin", exact_sin, exact_sinf, sinl, 0, 8.3e6 },
  { "cos", exact_cos, exact_cosf, cosl, -10, 10 },
  { "cos", exact_cos, exact_cosf, cosl, -1e5, 1e5 },
  { "cos", exact_cos, exact_cosf, cosl, 0, 8.3e6 },
  { "tanh", exact_tanh, exact_tanhf, tanhl, -25, 25 },
  { "tanh", exact_tanh, exact_tanhf, tanhl, -1, 1 },
  { "erf", exact_erf, exact_erff, erfl, -7, 7 },
  { "erf", exact_erf, exact_erff, erfl, -1.01, 1.01 },
  { "erf", exact_erf, exact_erff, erfl, -1e-300, 1e-300 },
  { "sigmoid", exact_sigmoid, exact_sigmoidf, true_sigmoid, -740, 50 },
  { "sigmoid", exact_sigmoid, exact_sigmoidf, true_sigmoid, -2, 2 },
  { "rsqrt", exact_rsqrt, exact_rsqrtf, true_rsqrt, 1e-12, 8 },
};
enum { FUNCTIONS = sizeof functions / sizeof functions[0], STEPS = 100000 };

/* Steps that are no round numbers. */
static double swept(const function *f, int i)
{
  return f->from + (f->to - f->from) * ((double)i + 0.3819660113) / STEPS;
}

static void accurate_in_double(void **state)
{
  (void)state;
  for (int k = 0; k < FUNCTIONS; k++) {
    long double worst = 0;
    double at = 0;
    for (int i = 0; i < STEPS; i++) {
      double x = swept(&functions[k], i);
      long double off = ulps(functions[k].exact(x), functions[k].truth(x), 53, -1021);
      if (off <= worst) continue;
      worst = off;
      at = x;
    }
    if (worst > 4) fail_msg("%s(%.17g) is off by %.2Lf ulp", functions[k].name, at, worst);
  }
}

static void accurate_in_float(void **state)
{
  (void)state;
  for (int k = 0; k < FUNCTIONS; k++) {
    long double worst = 0;
    float at = 0;
    for (int i = 0; i < STEPS; i++) {
      float x = (float)swept(&functions[k], i);
      if (isinf(x)) continue;
      long double off =
          ulps((double)functions[k].exactf(x), functions[k].truth((long double)x), 24, -125);
      if (off <= worst) continue;
      worst = off;
      at = x;
    }
    if (worst > 0.51L)
      fail_msg("%sf(%.9g) is off by %.3Lf ulp", functions[k].name, (double)at, worst);
  }
}

static void accurate_beside_multiples_of_pi(void **state)
{
  (void)state;
  for (int n = 1; n <= 63662; n++) {
    double x = (double)((long double)n * 1.57079632679489661923132169163975144L);
    for (int d = -1; d <= 1; d++, x = nextafter(x, 1e6)) {
      assert_true(ulps(exact_sin(x), sinl((long double)x), 53, -1021) <= 4);
      assert_true(ulps(exact_cos(x), cosl((long double)x), 53, -1021) <= 4);
    }
  }
}

static void powers(void **state)
{
  (void)state;
  for (int i = 0; i <= 128; i++)
    for (int b = 0; b < 3; b++) {
      const double base = (const double[]){ 10000, 500000, 0.999 }[b], y = -(double)i / 128;
      assert_true(ulps(exact_pow(base, y), powl((long double)base, (long double)y), 53, -1021) <
                  40);
      float single = exact_powf((float)base, (float)y);
      assert_true(ulps((double)single, powl((long double)(float)base, (long double)y), 24, -125) <
                  0.51L);
    }
}

static bool same(double a, double b)
{
  return exact_bits(a) == exact_bits(b);
}

static void edges(void **state)
{
  (void)state;
  const double inf = exact_infinity(), nan = exact_nan();
  double (*const all[])(double) = { exact_exp, exact_expm1, exact_log, exact_sin,
                                    exact_cos, exact_tanh,  exact_erf, exact_sigmoid };
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    assert_true(isnan(all[i](nan)));
  double (*const odd[])(double) = { exact_expm1, exact_sin, exact_tanh, exact_erf };
  for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
    assert_true(same(odd[i](0.0), 0.0) && same(odd[i](-0.0), -0.0));
    if (odd[i] == exact_erf) continue;
    assert_true(same(odd[i](0x1p-1074), 0x1p-1074) && same(odd[i](-0x1p-1060), -0x1p-1060));
  }
  assert_true(same(exact_exp(0.0), 1) && same(exact_exp(-0.0), 1) && same(exact_exp(0x1p-1074), 1));
  assert_true(same(exact_exp(inf), inf) && same(exact_exp(-inf), 0.0) &&
              same(exact_exp(-746), 0.0));
  assert_true(same(exact_expm1(inf), inf) && same(exact_expm1(-inf), -1));
  assert_true(same(exact_log(0.0), -inf) && same(exact_log(-0.0), -inf) &&
              same(exact_log(inf), inf));
  assert_true(same(exact_log(1), 0.0) && isnan(exact_log(-1)));
  assert_true(same(exact_tanh(inf), 1) && same(exact_tanh(-inf), -1));
  assert_true(same(exact_erf(inf), 1) && same(exact_erf(-inf), -1));
  assert_true(same(exact_sigmoid(inf), 1) && same(exact_sigmoid(-inf), 0.0));
  assert_true(same(exact_cos(0.0), 1) && isnan(exact_sin(inf)) && isnan(exact_cos(0x1.1p23)));
  assert_true(same(exact_rsqrt(0.0), inf) && isnan(exact_rsqrt(-1)) && same(exact_rsqrt(4), 0.5));
  assert_true(isinf(exact_expf(89)) && exact_expf(-104) == 0 && exact_expf(-100) == 0x1.bp-145f);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(accurate_in_double),
    cmocka_unit_test(accurate_in_float),
    cmocka_unit_test(accurate_beside_multiples_of_pi),
    cmocka_unit_test(powers),
    cmocka_unit_test(edges),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
