/* Spans of time that follow each other, and how long something meets them. */
#ifndef OFFSIM_SIM_ENGINE_SPANS_H
#define OFFSIM_SIM_ENGINE_SPANS_H

#include <stdint.h>

typedef struct span {
  int64_t begin_ps, end_ps;
} span;

/* None begins before the one before it ends, once they are sorted. */
typedef struct span_list {
  span *items;
  uint32_t count;
} span_list;

void spans_sort(span_list *l);

/* Of the time from begin_ps to end_ps, what lies in sorted spans. */
int64_t spans_meet_ps(const span_list *l, int64_t begin_ps, int64_t end_ps);

#endif
