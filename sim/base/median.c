#include "sim/base/median.h"

#include <assert.h>
#include <stdlib.h>

static int by_value(const void *left, const void *right)
{
  const int64_t *a = left, *b = right;
  return (*a > *b) - (*a < *b);
}

void sort_i64(int64_t *values, uint32_t count)
{
  if (count > 0) qsort(values, count, sizeof *values, by_value);
}

int64_t median_i64(int64_t *values, uint32_t count)
{
  assert(count > 0);
  sort_i64(values, count);
  return values[count / 2];
}
