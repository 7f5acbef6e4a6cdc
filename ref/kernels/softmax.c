/*
 * Softmax of rows, and of the scores of attention. The maximum of the visible elements, the
 * exponentials of the elements minus the maximum, their sum in ascending order, then each divided
 * by the sum. Scores are scaled first; those of keys after the query's position count as minus
 * infinity: their probability is 0.
 *
 * Backward: the sum of gy y in ascending order, then (gy - sum) y, times the scale.
 */
#include <assert.h>
#include <stdlib.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/positions.h"
#include "ref/kernels/real_math.h"
#include "ref/kernels/storage.h"

typedef struct softmax_call {
  int64_t rows, columns;
  real scale;
  int64_t queries; /* rows of a matrix of scores; 0: all columns count */
} softmax_call;

static softmax_call plain_softmax(const exec_call *c)
{
  return (softmax_call){ .rows = exec_dim(c, 0), .columns = exec_dim(c, 1), .scale = 1 };
}

static softmax_call causal_softmax(const exec_call *c)
{
  assert(ref_sequence_part(c).size == 1 && "scores of a part of the keys");
  return (softmax_call){ .rows = exec_dim(c, 0),
                         .columns = exec_dim(c, 1),
                         .scale = ref_scalar(c, 0),
                         .queries = (int64_t)c->call->scalars[1] };
}

/* The number of a row's first columns that are visible. */
static int64_t visible(const softmax_call *s, int64_t row)
{
  assert(s->queries <= s->columns && row < s->rows);
  return s->queries == 0 ? s->columns : s->columns - s->queries + row % s->queries + 1;
}

static void softmax_of_row(real *x, int64_t count, real scale)
{
  real most = -real_infinity(), sum = 0;
  for (int64_t i = 0; i < count; i++) {
    x[i] *= scale;
    most = x[i] > most ? x[i] : most;
  }
  for (int64_t i = 0; i < count; i++) {
    x[i] = real_exp(x[i] - most);
    sum += x[i];
  }
  for (int64_t i = 0; i < count; i++)
    x[i] /= sum;
}

static void forward(const exec_call *c, softmax_call s)
{
  real *row = ref_reals(s.columns);
  assert(REF_READS(c, s.rows * s.columns) && REF_WRITES(c, s.rows * s.columns));
  for (int64_t r = 0; r < s.rows; r++) {
    int64_t count = visible(&s, r);
    ref_load_row(&c->reads[0], r * s.columns, s.columns, row);
    softmax_of_row(row, count, s.scale);
    for (int64_t i = count; i < s.columns; i++)
      row[i] = 0;
    ref_store_row(&c->writes[0], r * s.columns, s.columns, row);
  }
  free(row);
}

static void backward(const exec_call *c, softmax_call s)
{
  real *gradient = ref_reals(2 * s.columns), *y = gradient + s.columns;
  assert(REF_READS(c, s.rows * s.columns, s.rows * s.columns));
  assert(REF_WRITES(c, s.rows * s.columns));
  for (int64_t r = 0; r < s.rows; r++) {
    int64_t count = visible(&s, r);
    real sum = 0;
    ref_load_row(&c->reads[0], r * s.columns, s.columns, gradient);
    ref_load_row(&c->reads[1], r * s.columns, s.columns, y);
    for (int64_t i = 0; i < count; i++)
      sum += gradient[i] * y[i];
    for (int64_t i = 0; i < s.columns; i++)
      gradient[i] = i < count ? (gradient[i] - sum) * y[i] * s.scale : 0;
    ref_store_row(&c->writes[0], r * s.columns, s.columns, gradient);
  }
  free(gradient);
}

void ref_softmax_forward(const exec_call *c)
{
  forward(c, plain_softmax(c));
}

void ref_softmax_backward(const exec_call *c)
{
  backward(c, plain_softmax(c));
}

void ref_causal_softmax_forward(const exec_call *c)
{
  forward(c, causal_softmax(c));
}

void ref_causal_softmax_backward(const exec_call *c)
{
  backward(c, causal_softmax(c));
}
