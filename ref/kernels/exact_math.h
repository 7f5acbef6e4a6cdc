/*
 * exp, expm1, log, pow, sin, cos, tanh, erf, sigmoid and rsqrt with the same bits everywhere: they
 * consist of IEEE additions, multiplications, divisions and square roots of doubles, each rounded
 * once, in the order written here. No libm and no fused operation; compile with -ffp-contract=off
 * (nvcc: -fmad=false, no -use_fast_math).
 *
 * exact_X is for double, error at most 4 ulp (see the tests; sin and cos: relative to the result,
 * also near their zeros). exact_Xf is for float: the double function rounded once, which is the
 * nearest float except in one of some hundred million cases.
 *
 * NaN yields NaN; infinities, signed zeros and denormal numbers follow IEEE 754. Outside its stated
 * range a function yields NaN, never something almost right.
 *
 * The methods are textbook ones: a reduction of the argument and a polynomial (Muller: Elementary
 * Functions). C11 and CUDA C++.
 */
#ifndef OFFSIM_REF_KERNELS_EXACT_MATH_H
#define OFFSIM_REF_KERNELS_EXACT_MATH_H

#include <math.h> /* sqrt, which IEEE 754 defines to the bit */

#include "sim/exec/number_formats.h"

EXACT_FUNCTION double exact_abs(double x)
{
  return exact_of_bits(exact_bits(x) & ~(UINT64_C(1) << 63));
}

/* The magnitude of `x` with the sign of `sign`. */
EXACT_FUNCTION double exact_with_sign(double x, double sign)
{
  return exact_of_bits(exact_bits(exact_abs(x)) | (exact_bits(sign) & (UINT64_C(1) << 63)));
}

/* The nearest whole number, ties to even; |x| < 2^51. */
EXACT_FUNCTION double exact_round(double x)
{
  const double shift = 0x1.8p52;
  return x + shift - shift;
}

/* x 2^n, rounded once; -2000 < n < 2000. */
EXACT_FUNCTION double exact_scale(double x, int n)
{
  return x * exact_power_of_two(n / 2) * exact_power_of_two(n - n / 2);
}

EXACT_FUNCTION double exact_rsqrt(double x)
{
  return 1 / sqrt(x);
}

/* ---- exponentials ---------------------------------------------------------------------------- */

/* x = n ln 2 + the result, which is at most ln(2)/2 in magnitude. */
EXACT_FUNCTION double exact_less_powers_of_two(double x, int *n)
{
  const double log2_e = 0x1.71547652b82fep+0;
  const double ln2_high = 0x1.62e42fefp-1,
               ln2_low = 0x1.473de6af278edp-34; /* n ln2_high is exact */
  double whole = exact_round(x * log2_e);
  *n = (int)whole;
  return (x - whole * ln2_high) - whole * ln2_low;
}

/* e^r - 1 for |r| <= ln(2)/2, by the Taylor series: the first omitted term is below 2^-57 of r. */
EXACT_FUNCTION double exact_expm1_reduced(double r)
{
  double sum = 1.0 / 6227020800; /* 1/13! */
  sum = sum * r + 1.0 / 479001600;
  sum = sum * r + 1.0 / 39916800;
  sum = sum * r + 1.0 / 3628800;
  sum = sum * r + 1.0 / 362880;
  sum = sum * r + 1.0 / 40320;
  sum = sum * r + 1.0 / 5040;
  sum = sum * r + 1.0 / 720;
  sum = sum * r + 1.0 / 120;
  sum = sum * r + 1.0 / 24;
  sum = sum * r + 1.0 / 6;
  sum = sum * r + 0.5;
  return r + r * r * sum;
}

EXACT_FUNCTION double exact_exp(double x)
{
  int n;
  if (x != x) return exact_nan();
  if (x > 709.8) return exact_infinity();
  if (x < -745.2) return 0;
  double r = exact_less_powers_of_two(x, &n);
  return exact_scale(1 + exact_expm1_reduced(r), n);
}

/* The same for float: fewer terms; the first omitted one is below 2^-31 of the result. */
EXACT_FUNCTION float exact_expf(float x)
{
  int n;
  if (x != x) return (float)exact_nan();
  if (x > 88.8f) return (float)exact_infinity();
  if (x < -104.0f) return 0;
  double r = exact_less_powers_of_two((double)x, &n);
  double sum = 1.0 / 40320;
  sum = sum * r + 1.0 / 5040;
  sum = sum * r + 1.0 / 720;
  sum = sum * r + 1.0 / 120;
  sum = sum * r + 1.0 / 24;
  sum = sum * r + 1.0 / 6;
  sum = sum * r + 0.5;
  return (float)((1 + (r + r * r * sum)) * exact_power_of_two(n));
}

/* e^x - 1 without the cancellation near 0. */
EXACT_FUNCTION double exact_expm1(double x)
{
  int n;
  if (x != x) return exact_nan();
  if (x == 0) return x;
  if (x > 709.8) return exact_infinity();
  if (x < -40) return -1;
  double r = exact_less_powers_of_two(x, &n);
  double e = exact_expm1_reduced(r);
  if (n == 0) return e;
  if (n > 60) return exact_scale(1 + e, n);
  double power = exact_power_of_two(n);
  return power * e + (power - 1);
}

/* 1 / (1 + e^-x). */
EXACT_FUNCTION double exact_sigmoid(double x)
{
  if (x >= 0) return 1 / (1 + exact_exp(-x));
  double e = exact_exp(x);
  return e / (1 + e);
}

EXACT_FUNCTION double exact_tanh(double x)
{
  double magnitude = exact_abs(x);
  if (x != x) return exact_nan();
  if (magnitude > 22) return exact_with_sign(1, x);
  double e = exact_expm1(2 * magnitude);
  double y = magnitude < 0.5 ? e / (e + 2) : 1 - 2 / (e + 2);
  return exact_with_sign(y, x);
}

/* ---- logarithm ------------------------------------------------------------------------------- */

/* x = m 2^n with sqrt(1/2) <= m < sqrt(2); x > 0 and finite. */
EXACT_FUNCTION double exact_less_exponent(double x, int *n)
{
  const uint64_t half_sqrt2 = UINT64_C(0x3fe6a09e667f3bcd);
  int scaled = x < 0x1p-1022 ? 54 : 0;
  uint64_t above = exact_bits(scaled ? x * 0x1p54 : x) - half_sqrt2;
  int64_t exponent = (int64_t)above >> 52;
  *n = (int)exponent - scaled;
  return exact_of_bits(above - ((uint64_t)exponent << 52) + half_sqrt2);
}

/* ln(m) = 2 artanh(s), s = f / (2 + f), f = m - 1; the series of artanh after its first term, such
 * that f, which is exact, leads the sum. */
EXACT_FUNCTION double exact_log(double x)
{
  const double ln2_high = 0x1.62e42fefp-1, ln2_low = 0x1.473de6af278edp-34;
  int n;
  if (x != x || x < 0) return exact_nan();
  if (x == 0) return -exact_infinity();
  if (x == exact_infinity()) return x;
  double f = exact_less_exponent(x, &n) - 1;
  double s = f / (2 + f);
  double z = s * s;
  double sum = 2.0 / 25;
  sum = sum * z + 2.0 / 23;
  sum = sum * z + 2.0 / 21;
  sum = sum * z + 2.0 / 19;
  sum = sum * z + 2.0 / 17;
  sum = sum * z + 2.0 / 15;
  sum = sum * z + 2.0 / 13;
  sum = sum * z + 2.0 / 11;
  sum = sum * z + 2.0 / 9;
  sum = sum * z + 2.0 / 7;
  sum = sum * z + 2.0 / 5;
  sum = sum * z + 2.0 / 3;
  double half_square = 0.5 * f * f;
  double tail = s * (half_square + z * sum) + n * ln2_low;
  return n * ln2_high - ((half_square - tail) - f);
}

/* base^y for base > 0: e^(y ln base), the error grows with |y ln base| (1e-14 of the result at
 * 50). */
EXACT_FUNCTION double exact_pow(double base, double y)
{
  return exact_exp(y * exact_log(base));
}

/* ---- circular functions ---------------------------------------------------------------------- */

/* x = n pi/2 + the result, at most pi/4 in magnitude; returns n modulo 4 in `quadrant`. |x| <=
 * 2^23: n times the first three parts of pi/2 is exact. */
EXACT_FUNCTION double exact_less_quadrants(double x, int *quadrant)
{
  const double two_over_pi = 0x1.45f306dc9c883p-1;
  const double part1 = 0x1.921fb54p+0, part2 = 0x1.10b46118p-30, part3 = 0x1.313198ap-61,
               part4 = 0x1.701b839a25205p-92;
  double n = exact_round(x * two_over_pi);
  *quadrant = (int)((int64_t)n & 3);
  return (((x - n * part1) - n * part2) - n * part3) - n * part4;
}

EXACT_FUNCTION double exact_sin_reduced(double r)
{
  double z = r * r;
  double sum = 1.0 / 355687428096000; /* 1/17! */
  sum = 1.0 / 1307674368000 - sum * z;
  sum = 1.0 / 6227020800 - sum * z;
  sum = 1.0 / 39916800 - sum * z;
  sum = 1.0 / 362880 - sum * z;
  sum = 1.0 / 5040 - sum * z;
  sum = 1.0 / 120 - sum * z;
  sum = 1.0 / 6 - sum * z;
  return r - r * z * sum;
}

EXACT_FUNCTION double exact_cos_reduced(double r)
{
  double z = r * r;
  double sum = 1.0 / 20922789888000; /* 1/16! */
  sum = 1.0 / 87178291200 - sum * z;
  sum = 1.0 / 479001600 - sum * z;
  sum = 1.0 / 3628800 - sum * z;
  sum = 1.0 / 40320 - sum * z;
  sum = 1.0 / 720 - sum * z;
  sum = 1.0 / 24 - sum * z;
  sum = 0.5 - sum * z;
  return 1 - z * sum;
}

/* sin(x + quadrants pi/2). */
EXACT_FUNCTION double exact_turned_sin(double x, int quadrants)
{
  int quadrant;
  if (!(exact_abs(x) <= 0x1p23)) return exact_nan();
  double r = exact_less_quadrants(x, &quadrant);
  quadrant = (quadrant + quadrants) & 3;
  double y = quadrant & 1 ? exact_cos_reduced(r) : exact_sin_reduced(r);
  return quadrant & 2 ? -y : y;
}

/* Both for |x| <= 2^23; NaN beyond. */
EXACT_FUNCTION double exact_sin(double x)
{
  return x == 0 ? x : exact_turned_sin(x, 0);
}

EXACT_FUNCTION double exact_cos(double x)
{
  return exact_turned_sin(x, 1);
}

/* ---- error function -------------------------------------------------------------------------- */

/* erf(x) for |x| <= 1: 2/sqrt(pi) times the sum of (-1)^n x^(2n+1) / (n! (2n+1)). */
EXACT_FUNCTION double exact_erf_near_zero(double x)
{
  double z = x * x;
  double sum = 1.0 / (6402373705728000.0 * 37); /* n = 18 */
  sum = 1.0 / (355687428096000.0 * 35) - sum * z;
  sum = 1.0 / (20922789888000.0 * 33) - sum * z;
  sum = 1.0 / (1307674368000.0 * 31) - sum * z;
  sum = 1.0 / (87178291200.0 * 29) - sum * z;
  sum = 1.0 / (6227020800.0 * 27) - sum * z;
  sum = 1.0 / (479001600.0 * 25) - sum * z;
  sum = 1.0 / (39916800.0 * 23) - sum * z;
  sum = 1.0 / (3628800.0 * 21) - sum * z;
  sum = 1.0 / (362880.0 * 19) - sum * z;
  sum = 1.0 / (40320.0 * 17) - sum * z;
  sum = 1.0 / (5040.0 * 15) - sum * z;
  sum = 1.0 / (720.0 * 13) - sum * z;
  sum = 1.0 / (120.0 * 11) - sum * z;
  sum = 1.0 / (24.0 * 9) - sum * z;
  sum = 1.0 / (6.0 * 7) - sum * z;
  sum = 1.0 / (2.0 * 5) - sum * z;
  sum = 1.0 / 3 - sum * z;
  return 0x1.20dd750429b6dp+0 * (x - x * z * sum);
}

/* e^(x^2) erfc(x) for 1 <= x <= 6: interpolated at 18 Chebyshev nodes in u = (x - 5/2) / (x + 5/2),
 * which leaves an error of 2^-52 of it. */
EXACT_FUNCTION double exact_scaled_erfc(double x)
{
  double u = (x - 2.5) / (x + 2.5);
  double sum = 0x1.2afb1c52ac24cp-24;
  sum = sum * u + 0x1.7192050274bd2p-22;
  sum = sum * u + 0x1.4ddcaf4dae0f3p-24;
  sum = sum * u - 0x1.e3b8c3407cc04p-20;
  sum = sum * u - 0x1.3472778d38e8bp-19;
  sum = sum * u + 0x1.fad8951cd7c81p-18;
  sum = sum * u + 0x1.384c7c85f405ep-16;
  sum = sum * u - 0x1.1ebdcc253f1abp-15;
  sum = sum * u - 0x1.0e46678de05fbp-13;
  sum = sum * u + 0x1.def2c8454f03cp-13;
  sum = sum * u + 0x1.cb3b61b2f73b9p-11;
  sum = sum * u - 0x1.5a5716cd2b488p-9;
  sum = sum * u - 0x1.05bb2fe5b9447p-8;
  sum = sum * u + 0x1.470ba1f67e4f3p-5;
  sum = sum * u - 0x1.0011543716c9bp-3;
  sum = sum * u + 0x1.01c11a735cd99p-2;
  sum = sum * u - 0x1.7ca88dec217a6p-2;
  return sum * u + 0x1.afbb3f3b7343bp-3;
}

EXACT_FUNCTION double exact_erf(double x)
{
  double magnitude = exact_abs(x);
  if (x != x) return exact_nan();
  if (x == 0) return x;
  if (magnitude <= 1) return exact_erf_near_zero(x);
  if (magnitude > 6) return exact_with_sign(1, x);
  return exact_with_sign(1 - exact_exp(-x * x) * exact_scaled_erfc(magnitude), x);
}

/* ---- the same for float ---------------------------------------------------------------------- */

EXACT_FUNCTION float exact_rsqrtf(float x)
{
  return (float)exact_rsqrt((double)x);
}

EXACT_FUNCTION float exact_sqrtf(float x)
{
  return (float)sqrt((double)x);
}

EXACT_FUNCTION float exact_expm1f(float x)
{
  return (float)exact_expm1((double)x);
}

EXACT_FUNCTION float exact_sigmoidf(float x)
{
  return (float)exact_sigmoid((double)x);
}

EXACT_FUNCTION float exact_tanhf(float x)
{
  return (float)exact_tanh((double)x);
}

EXACT_FUNCTION float exact_logf(float x)
{
  return (float)exact_log((double)x);
}

EXACT_FUNCTION float exact_powf(float base, float y)
{
  return (float)exact_pow((double)base, (double)y);
}

EXACT_FUNCTION float exact_sinf(float x)
{
  return (float)exact_sin((double)x);
}

EXACT_FUNCTION float exact_cosf(float x)
{
  return (float)exact_cos((double)x);
}

EXACT_FUNCTION float exact_erff(float x)
{
  return (float)exact_erf((double)x);
}

#endif
