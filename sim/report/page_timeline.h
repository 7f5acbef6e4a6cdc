/*
 * The data of html/timeline.js: slices of lanes, and curves, as numbers in JSON.
 *
 * A page stays small: where there are more ops than PAGE_SLICES, neighbours of one module or one pass
 * are one slice. Private to sim/report.
 */
#ifndef OFFSIM_SIM_REPORT_PAGE_TIMELINE_H
#define OFFSIM_SIM_REPORT_PAGE_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "sim/report/work.h"

enum { PAGE_SLICES = 60000, PAGE_WAITS = PAINTS };

/* What one slice is. */
typedef enum page_detail { DETAIL_OP, DETAIL_MODULE, DETAIL_PASS, DETAILS } page_detail;

/* The begin of the data: an object with the members of html/timeline.js, open. */
void page_timeline_begin(FILE *out, page_detail detail, int64_t step_ps);
/* A member: an array of strings. */
void page_texts(FILE *out, const char *key, const char *const *items, uint32_t count);

typedef struct page_slice {
  int64_t start_ps, end_ps;
  uint32_t kind; /* paint, or PAGE_WAITS */
  int32_t text;
  uint32_t site, phase, count;
} page_slice;

/* A lane while it is written, or only counted. */
typedef struct page_lane {
  FILE *out; /* NULL: slices are counted */
  page_detail detail;
  int64_t gap_ps; /* neighbours that are further apart are separate slices */
  page_slice open;
  uint32_t slices;
  int64_t end_ns; /* of the last one that was written */
} page_lane;

/* Slices come in the order of their starts. */
void page_lane_put(page_lane *l, const page_slice *next);
void page_lane_end(page_lane *l);

/* A curve while it is written: the highest and the last value of each bin, so no peak is lost. */
typedef struct page_curve {
  FILE *out;
  int64_t bin_ps, bin, highest, last; /* of the bin that is open; -1: none */
  bool first;
} page_curve;

/* A member with the curve's name; `step_ps`: what it is over. */
page_curve page_curve_begin(FILE *out, const char *name, int64_t step_ps);
void page_curve_put(page_curve *c, int64_t at_ps, int64_t bytes);
void page_curve_end(page_curve *c);

#endif
