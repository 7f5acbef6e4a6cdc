/*
 * How much longer each kind of thing takes than expected, from sums: each row is a measured time of
 * some things, of which each has an expected time. Private to sim/fit.
 *
 * Rows of the same things become one, with the median of their ratios, so that outliers count little.
 * Then least squares of the relative errors, with a weak pull of each factor towards the factor of all
 * rows together, which decides where rows do not tell things apart.
 */
#ifndef OFFSIM_SIM_FIT_FACTORS_H
#define OFFSIM_SIM_FIT_FACTORS_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/arena.h"

typedef struct factor_term {
  uint32_t thing;
  int64_t expected_ps;
} factor_term;

typedef struct factor_row {
  uint32_t first, count; /* of terms */
  int64_t measured_ps;
} factor_row;

typedef struct factor_rows {
  struct {
    factor_row *items;
    uint32_t count, capacity;
  } rows;
  struct {
    factor_term *items;
    uint32_t count, capacity;
  } terms;
} factor_rows;

/* Begins a row; then terms follow, of which those of one thing are added up. */
void factors_begin(factor_rows *f, int64_t measured_ps);
void factors_add(factor_rows *f, uint32_t thing, int64_t expected_ps);
void factors_release(factor_rows *f);

typedef struct factor {
  double value;
  bool is_seen; /* enough of the expected time of all rows is the thing's */
} factor;

/* By thing. */
factor *factors_solve(const factor_rows *f, uint32_t things, arena *a);

#endif
