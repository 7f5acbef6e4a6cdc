/*
 * Kernels around attention: rows side by side, and heads that several queries share.
 *
 * The gradient of a repeated row is the sum over its copies, ascending.
 */
#include <assert.h>
#include <stdlib.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/storage.h"

enum { JOIN_ROWS, JOIN_WIDTHS, JOIN_MOST = PLAN_DIMS - JOIN_WIDTHS };

static int64_t joined_width(const exec_call *c)
{
  int64_t width = 0;
  for (uint32_t k = 0; k < JOIN_MOST; k++)
    width += exec_dim(c, JOIN_WIDTHS + k);
  return width;
}

/* The next operand, unless the part is missing. */
static void join_part(const exec_call *c, uint32_t k, int64_t first, int64_t width, uint32_t *read)
{
  bool missing = (uint32_t)c->call->scalars[0] >> k & 1;
  int64_t columns = exec_dim(c, JOIN_WIDTHS + k);
  real *row = ref_reals(columns);
  assert(missing || columns == 0 || *read < c->read_count);
  for (int64_t i = 0; i < columns; i++)
    row[i] = 0;
  for (int64_t r = 0; r < exec_dim(c, JOIN_ROWS); r++) {
    if (!missing) ref_load_row(&c->reads[*read], r * columns, columns, row);
    ref_store_row(&c->writes[0], r * width + first, columns, row);
  }
  *read += !missing;
  free(row);
}

void ref_join(const exec_call *c)
{
  int64_t width = joined_width(c), first = 0;
  uint32_t read = 0;
  assert(width * exec_dim(c, JOIN_ROWS) == exec_elements(&c->writes[0]));
  for (uint32_t k = 0; k < JOIN_MOST && first < width; k++) {
    join_part(c, k, first, width, &read);
    first += exec_dim(c, JOIN_WIDTHS + k);
  }
}

typedef struct repeat_call {
  int64_t rows, times, width; /* rows of the repeated operand */
} repeat_call;

static repeat_call repeat_of(const exec_call *c)
{
  repeat_call r = { .times = (int64_t)c->call->scalars[0], .width = (int64_t)c->call->scalars[1] };
  r.rows = exec_dim(c, 0) / (r.times * r.width);
  assert(r.rows * r.times * r.width == exec_dim(c, 0));
  return r;
}

void ref_repeat_forward(const exec_call *c)
{
  const repeat_call r = repeat_of(c);
  real *row = ref_reals(r.width);
  for (int64_t i = 0; i < r.rows; i++) {
    ref_load_row(&c->reads[0], i * r.width, r.width, row);
    for (int64_t k = 0; k < r.times; k++)
      ref_store_row(&c->writes[0], (i * r.times + k) * r.width, r.width, row);
  }
  free(row);
}

void ref_repeat_backward(const exec_call *c)
{
  const repeat_call r = repeat_of(c);
  real *sum = ref_reals(2 * r.width), *row = sum + r.width;
  for (int64_t i = 0; i < r.rows; i++) {
    ref_load_row(&c->reads[0], i * r.times * r.width, r.width, sum);
    for (int64_t k = 1; k < r.times; k++) {
      ref_load_row(&c->reads[0], (i * r.times + k) * r.width, r.width, row);
      for (int64_t j = 0; j < r.width; j++)
        sum[j] += row[j];
    }
    ref_store_row(&c->writes[0], i * r.width, r.width, sum);
  }
  free(sum);
}
