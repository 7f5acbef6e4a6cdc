/* Values in order, and the one in the middle. */
#ifndef OFFSIM_SIM_BASE_MEDIAN_H
#define OFFSIM_SIM_BASE_MEDIAN_H

#include <stdint.h>

/* Ascending, in place. */
void sort_i64(int64_t *values, uint32_t count);

/* Of one value at least, the upper one of two; sorts them. */
int64_t median_i64(int64_t *values, uint32_t count);

/* Samples of one thing, a growing array (array.h). */
typedef struct sample_list {
  int64_t *items;
  uint32_t count, capacity;
} sample_list;

/* Of one sample at least; sorts them. */
static inline int64_t sample_median(sample_list *s)
{
  return median_i64(s->items, s->count);
}

#endif
