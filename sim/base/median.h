/* Values in order, and the one in the middle. */
#ifndef OFFSIM_SIM_BASE_MEDIAN_H
#define OFFSIM_SIM_BASE_MEDIAN_H

#include <stdint.h>

/* Ascending, in place. */
void sort_i64(int64_t *values, uint32_t count);

/* The median of at least one value, the upper one of two; sorts the values. */
int64_t median_i64(int64_t *values, uint32_t count);

/* Samples of one thing, a growing array (array.h). */
typedef struct sample_list {
  int64_t *items;
  uint32_t count, capacity;
} sample_list;

/* Of at least one sample; sorts the samples. */
static inline int64_t sample_median(sample_list *s)
{
  return median_i64(s->items, s->count);
}

#endif
