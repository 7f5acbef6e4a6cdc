/* Sums of eager PyTorch. */
#include <assert.h>
#include <stdlib.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/storage.h"

/* y[i] = factor (x[i w] + x[i w + 1] + ...), ascending, from 0; w: number of elements read over
 * number written. */
void ref_sum(const exec_call *c)
{
  const exec_tensor *x = &c->reads[0], *y = &c->writes[0];
  int64_t sums = exec_elements(y), width = exec_elements(x) / sums;
  real *row = ref_reals(width);
  assert(sums * width == exec_elements(x));
  for (int64_t i = 0; i < sums; i++) {
    real sum = 0;
    ref_load_row(x, i * width, width, row);
    for (int64_t k = 0; k < width; k++)
      sum += row[k];
    ref_store(y, i, sum * ref_scalar(c, 0));
  }
  free(row);
}

/* y[k] = x[0][k] + x[1][k] + ..., ascending, from 0; rows are as long as y. */
void ref_column_sums(const exec_call *c)
{
  const exec_tensor *x = &c->reads[0], *y = &c->writes[0];
  int64_t columns = exec_elements(y), rows = exec_elements(x) / columns;
  real *sums = ref_reals(2 * columns), *row = sums + columns;
  assert(rows * columns == exec_elements(x));
  for (int64_t k = 0; k < columns; k++)
    sums[k] = 0;
  for (int64_t i = 0; i < rows; i++) {
    ref_load_row(x, i * columns, columns, row);
    for (int64_t k = 0; k < columns; k++)
      sums[k] += row[k];
  }
  ref_store_row(y, 0, columns, sums);
  free(sums);
}

/* Reads gy, x, rstd; of each column the sum over rows, ascending, of gy (x rstd). */
void ref_rmsnorm_gain(const exec_call *c)
{
  const exec_tensor *gain = &c->writes[0];
  int64_t columns = exec_elements(gain), rows = exec_elements(&c->reads[0]) / columns;
  real *sums = ref_reals(3 * columns), *gy = sums + columns, *x = gy + columns;
  assert(c->read_count == 3 && exec_elements(&c->reads[2]) == rows);
  for (int64_t k = 0; k < columns; k++)
    sums[k] = 0;
  for (int64_t i = 0; i < rows; i++) {
    real rstd = ref_load(&c->reads[2], i);
    ref_load_row(&c->reads[0], i * columns, columns, gy);
    ref_load_row(&c->reads[1], i * columns, columns, x);
    for (int64_t k = 0; k < columns; k++)
      sums[k] += gy[k] * (x[k] * rstd);
  }
  ref_store_row(gain, 0, columns, sums);
  free(sums);
}
