/*
 * The elements of a view in their order, as runs that lie one after the other:
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
  int64_t at;                    /* where it begins, elements from the array's begin */
  bool over;
} view_runs;

view_runs runs_of(const plan_view *v);
bool runs_next(view_runs *w, int64_t *at);

/* Elements of the array that the view reaches to: one more than the place of the last. 0: it has
 * none. */
int64_t view_reach(const plan_view *v);

#endif
