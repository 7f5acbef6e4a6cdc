/*
 * In which range a measured step should be: the steady iteration is timed again with the machine's
 * rates of each class wrong by their width (sim/machine/error.h), one class at a time. What the plan
 * lacks is a part of its own. Independent errors add up as the root of their squares.
 */
#ifndef OFFSIM_SIM_PREDICT_RANGE_H
#define OFFSIM_SIM_PREDICT_RANGE_H

#include "sim/machine/error.h"
#include "sim/predict/prediction.h"

/* A normal distribution has so much of itself within 1.28 widths. */
enum { RANGE_NOMINAL_PERCENT = 80 };

typedef struct step_range {
  int64_t least_ps, most_ps;
  /* How much faster or slower an error makes the step within that range; >= 0. By rate_class; that of
   * RATE_NONE is what the plan lacks. */
  struct {
    int64_t faster_ps, slower_ps;
  } parts[RATE_CLASSES];
} step_range;

/* Of a prediction whose steady iteration is there. Timings share `p->threads`. */
step_range range_of_step(const prediction *p, arena *a);

/* The greatest part. */
rate_class range_dominant(const step_range *r);

/* "matrix products" */
const char *range_part_name(rate_class c);

#endif
