/*
 * A prediction as it is printed: where to, and in which units. Private to sim/report.
 */
#ifndef OFFSIM_SIM_REPORT_PREDICTION_VIEW_H
#define OFFSIM_SIM_REPORT_PREDICTION_VIEW_H

#include <stddef.h>

#include "sim/report/prediction.h"
#include "sim/report/text.h"

typedef struct view {
  const prediction *p;
  FILE *out;
  arena *memory;
  figure_unit bytes, time; /* of the whole table */
  bool offloads;           /* something goes to the host */
} view;

view view_new(const prediction *p, FILE *out, arena *a);

#define OF(member) offsetof(rank_prediction, member)

/* A member that is an int64_t. */
int64_t rank_value(const rank_prediction *r, size_t member);

/* In the table's unit, with its name. */
const char *view_bytes(const view *v, int64_t bytes);

/* The first of the ranks that have most of it. */
uint32_t rank_with_most(const prediction *p, size_t member);

/* The verdict: time, what limits it, does it fit. */
void verdict_table(const view *v);

#endif
