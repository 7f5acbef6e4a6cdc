/*
 * The elements of a view in order, as contiguous runs:
 *
 *     int64_t at;
 *     for (view_runs w = runs_of(&v); runs_next(&w, &at);)
 *       ... w.length elements from `at` on ...
 */
#ifndef OFFSIM_SIM_EXEC_RUNS_H
#define OFFSIM_SIM_EXEC_RUNS_H

#include "sim/plan/plan.h"

typedef struct view_runs {
  const plan_view *view;
  int64_t length;                /* of every run, elements */
  int outer;                     /* dimensions above the run */
  int64_t index[PLAN_VIEW_DIMS]; /* of the next run */
  int64_t at;                    /* where it begins, in elements from the beginning of the array */
  bool over;
} view_runs;

view_runs runs_of(const plan_view *v);
bool runs_next(view_runs *w, int64_t *at);

/* The length of the array that the view needs: one more than the index of its last element. 0: it
 * has no elements. */
int64_t view_reach(const plan_view *v);

#endif
