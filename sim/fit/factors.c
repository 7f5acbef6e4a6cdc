#include "sim/fit/factors.h"

#include <assert.h>
#include <stdlib.h>

#include "sim/base/array.h"

/* The pull towards the common factor, relative to what the rows say of a thing; rounds until the factors
 * no longer move; bounds of a factor; the part of all expected time that a thing needs to be seen. */
#define PULL      0.5
#define LEAST     0.02
#define MOST      50.0
#define SEEN_PART 0.0005
enum { ROUNDS = 400 };

void factors_begin(factor_rows *f, int64_t measured_ps)
{
  assert(measured_ps >= 0);
  *ARRAY_PUSH(&f->rows) = (factor_row){ f->terms.count, 0, measured_ps };
}

void factors_add(factor_rows *f, uint32_t thing, int64_t expected_ps)
{
  assert(f->rows.count > 0 && expected_ps >= 0);
  factor_row *row = &f->rows.items[f->rows.count - 1];
  if (expected_ps == 0) return;
  for (uint32_t i = row->first; i < row->first + row->count; i++)
    if (f->terms.items[i].thing == thing) {
      f->terms.items[i].expected_ps += expected_ps;
      return;
    }
  *ARRAY_PUSH(&f->terms) = (factor_term){ thing, expected_ps };
  row->count++;
}

void factors_release(factor_rows *f)
{
  ARRAY_FREE(&f->rows);
  ARRAY_FREE(&f->terms);
}

/* ---- rows of the same things ---- */

/* A row with its ratio of measured to expected time. */
typedef struct sum {
  const factor_term *terms;
  uint32_t count;
  double expected, ratio, weight;
} sum;

static int by_thing(const void *left, const void *right)
{
  const factor_term *a = left, *b = right;
  return a->thing < b->thing ? -1 : a->thing > b->thing;
}

static int by_terms(const sum *a, const sum *b)
{
  if (a->count != b->count) return a->count < b->count ? -1 : 1;
  for (uint32_t i = 0; i < a->count; i++) {
    const factor_term *x = &a->terms[i], *y = &b->terms[i];
    if (x->thing != y->thing) return x->thing < y->thing ? -1 : 1;
    if (x->expected_ps != y->expected_ps) return x->expected_ps < y->expected_ps ? -1 : 1;
  }
  return 0;
}

static int by_terms_and_ratio(const void *left, const void *right)
{
  const sum *a = left, *b = right;
  int order = by_terms(a, b);
  return order != 0 ? order : (a->ratio > b->ratio) - (a->ratio < b->ratio);
}

/* The rows with terms, those of the same things as one. */
static uint32_t sums_of(const factor_rows *f, sum *rows)
{
  uint32_t count = 0, kept = 0;
  for (uint32_t i = 0; i < f->rows.count; i++) {
    const factor_row *row = &f->rows.items[i];
    factor_term *terms = &f->terms.items[row->first];
    sum s = { .terms = terms, .count = row->count };
    if (row->count == 0) continue;
    qsort(terms, row->count, sizeof *terms, by_thing);
    for (uint32_t k = 0; k < row->count; k++)
      s.expected += (double)terms[k].expected_ps;
    s.ratio = (double)row->measured_ps / s.expected;
    rows[count++] = s;
  }
  if (count > 0) qsort(rows, count, sizeof *rows, by_terms_and_ratio);
  for (uint32_t i = 0, same; i < count; i += same) {
    for (same = 1; i + same < count && by_terms(&rows[i], &rows[i + same]) == 0;)
      same++;
    rows[kept] = rows[i + same / 2];
    rows[kept++].weight = (double)same;
  }
  return kept;
}

/* ---- least squares ---- */

static double clamped(double value)
{
  return value < LEAST ? LEAST : value > MOST ? MOST : value;
}

/* Gauss-Seidel: each factor in turn fits what the others leave. A row counts in proportion to its expected
 * time: the square of its relative error times that time. */
static void solve(const sum *rows, uint32_t count, uint32_t things, double common, factor *to,
                  arena *a)
{
  double *measured = ARENA_ARRAY(a, double, things), *squares = ARENA_ARRAY(a, double, things);
  double *left = ARENA_ARRAY(a, double, (size_t)count + 1);
  for (int round = 0; round < ROUNDS; round++) {
    for (uint32_t t = 0; t < things; t++)
      measured[t] = squares[t] = 0;
    for (uint32_t i = 0; i < count; i++) {
      const sum *s = &rows[i];
      left[i] = s->ratio * s->expected;
      for (uint32_t k = 0; k < s->count; k++)
        left[i] -= to[s->terms[k].thing].value * (double)s->terms[k].expected_ps;
      for (uint32_t k = 0; k < s->count; k++) {
        double expected = (double)s->terms[k].expected_ps, weight = s->weight / s->expected;
        measured[s->terms[k].thing] += weight * expected * left[i];
        squares[s->terms[k].thing] += weight * expected * s->expected;
      }
    }
    /* A step of the majorised problem, in which all factors can move at once. */
    for (uint32_t t = 0; t < things; t++) {
      double pull = PULL * squares[t];
      if (squares[t] > 0)
        to[t].value = clamped(to[t].value +
                              (measured[t] + pull * (common - to[t].value)) / (squares[t] + pull));
    }
  }
}

factor *factors_solve(const factor_rows *f, uint32_t things, arena *a)
{
  factor *found = ARENA_ARRAY(a, factor, things);
  double *seen = ARENA_ARRAY(a, double, things), measured = 0, expected = 0;
  sum *rows = ARENA_ARRAY(a, sum, (size_t)f->rows.count + 1);
  uint32_t count = sums_of(f, rows);
  for (uint32_t i = 0; i < count; i++) {
    measured += rows[i].weight * rows[i].ratio * rows[i].expected;
    expected += rows[i].weight * rows[i].expected;
    for (uint32_t k = 0; k < rows[i].count; k++)
      seen[rows[i].terms[k].thing] += rows[i].weight * (double)rows[i].terms[k].expected_ps;
  }
  double common = expected > 0 ? clamped(measured / expected) : 1;
  for (uint32_t t = 0; t < things; t++)
    found[t] = (factor){ common, seen[t] > 0 && seen[t] >= SEEN_PART * expected };
  solve(rows, count, things, common, found, a);
  return found;
}
