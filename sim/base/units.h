/*
 * Time is whole picoseconds, size is whole bytes, a rate is bytes per microsecond (= MB/s).
 */
#ifndef OFFSIM_SIM_BASE_UNITS_H
#define OFFSIM_SIM_BASE_UNITS_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#define KIB INT64_C(1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

#define NS_PER_S  INT64_C(1000000000)
#define PS_PER_NS INT64_C(1000)
#define PS_PER_US (1000 * PS_PER_NS)
#define PS_PER_MS (1000 * PS_PER_US)
#define PS_PER_S  (1000 * PS_PER_MS)

static inline int64_t min_i64(int64_t a, int64_t b)
{
  return a < b ? a : b;
}

static inline int64_t max_i64(int64_t a, int64_t b)
{
  return a > b ? a : b;
}

/* Both for a >= 0 and b > 0. */
static inline int64_t ceil_div(int64_t a, int64_t b)
{
  return a / b + (a % b != 0);
}

__extension__ typedef unsigned __int128 wide_uint;

/* Products mostly fit 64 bits, where a division is several times as fast. */
static inline wide_uint wide_muldiv(uint64_t a, uint64_t b, uint64_t c)
{
  wide_uint product = (wide_uint)a * b;

  return product >> 64 == 0 ? (uint64_t)product / c : product / c;
}

/* a * b / c, rounded down and rounded up, without overflow of the product. For a, b >= 0 and c > 0;
 * the quotient must fit. */
static inline int64_t muldiv_i64(int64_t a, int64_t b, int64_t c)
{
  wide_uint quotient = wide_muldiv((uint64_t)a, (uint64_t)b, (uint64_t)c);

  assert(quotient <= INT64_MAX);
  return (int64_t)quotient;
}

static inline int64_t muldiv_up_i64(int64_t a, int64_t b, int64_t c)
{
  wide_uint quotient = ((wide_uint)(uint64_t)a * (uint64_t)b + (uint64_t)c - 1) / (uint64_t)c;

  assert(quotient <= INT64_MAX);
  return (int64_t)quotient;
}

/*
 * Arithmetic on values from input files, which may overflow int64: a product, or a * b / c rounded
 * down or up, saturating at CAP. The sum of three such values fits; callers refuse a time that
 * large. For a, b >= 0 and c > 0.
 */
#define CAP (INT64_MAX / 4)

static inline int64_t capped_muldiv(int64_t a, int64_t b, int64_t c)
{
  assert((a | b) >= 0 && c > 0);
  wide_uint quotient = wide_muldiv((uint64_t)a, (uint64_t)b, (uint64_t)c);
  bool capped = quotient > 0 && max_i64(a, b) >= CAP;
  return capped || quotient > CAP ? CAP : (int64_t)quotient;
}

static inline int64_t capped_muldiv_up(int64_t a, int64_t b, int64_t c)
{
  int64_t down = capped_muldiv(a, b, c);
  bool exact = down == CAP || (uint64_t)down * (uint64_t)c == (uint64_t)a * (uint64_t)b;

  return down + !exact;
}

static inline int64_t capped_mul(int64_t a, int64_t b)
{
  return capped_muldiv(a, b, 1);
}

/* For a, b > 0; the result must fit. */
static inline int64_t least_common_multiple(int64_t a, int64_t b)
{
  int64_t divisor = a, rest = b;

  while (rest != 0) {
    int64_t next = divisor % rest;
    divisor = rest;
    rest = next;
  }
  return a / divisor * b;
}

static inline int64_t round_up(int64_t a, int64_t multiple)
{
  return ceil_div(a, multiple) * multiple;
}

#endif
