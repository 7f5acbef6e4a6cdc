/*
 * In which range a measured step should be: the steady iteration is timed again with the machine's
 * rates of each class wrong by their width (sim/machine/error.h), one class at a time. Independent
 * errors add up as the root of their squares.
 */
#ifndef OFFSIM_SIM_PREDICT_RANGE_H
#define OFFSIM_SIM_PREDICT_RANGE_H

#include "sim/machine/error.h"
#include "sim/predict/prediction.h"

/* A normal distribution has so much of itself within 1.28 widths. */
enum { RANGE_NOMINAL_PERCENT = 80 };

typedef struct step_range {
  int64_t least_ps, most_ps;
  /* By rate_class: how much faster or slower its error makes the step within that range; >= 0. */
  struct {
    int64_t faster_ps, slower_ps;
  } parts[RATE_CLASSES];
} step_range;

/* Of a prediction whose steady iteration is there. Timings share `p->threads`. */
step_range range_of_step(const prediction *p, arena *a);

/* The class with the greatest part, RATE_NONE: no error changes the step. */
rate_class range_dominant(const step_range *r);

#endif
