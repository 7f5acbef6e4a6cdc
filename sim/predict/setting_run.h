/*
 * One setting from an empty device on: its first iteration and its steady ones, compiled, timed and
 * replayed.
 *
 *     compile        first      steady       independent
 *     simulate       first      steady       independent; again with the holds that the replay found
 *     replay         first  ->  steady ...   by rank: the second begins with what the first leaves
 *
 * Where nothing depends on another, threads work side by side. Results do not depend on their number.
 * If another setting with the same plans has been predicted, its figures are taken instead.
 */
#ifndef OFFSIM_SIM_PREDICT_SETTING_RUN_H
#define OFFSIM_SIM_PREDICT_SETTING_RUN_H

#include "sim/predict/prediction.h"

typedef struct setting_run {
  const settings *settings;
  const given_plans *plans; /* take the place of the compiled ones; NULL: none do */
  common_plans *common;     /* what is missing is added */
  const machine *machine;
  const rank_place *places;
  int64_t capacity_bytes;
  bool verifies;        /* both plans, into `safety` */
  bool steady_alone;    /* the first iteration is asked for its peaks alone */
  bool explains_peaks;  /* where they are, and what lives there */
  memory_curve *curves; /* by rank: of the steady state; NULL: not kept */
  uint32_t threads;

  /* Results, by iteration_kind. */
  timeline held[ITERATION_KINDS]; /* where memory was refused: these times, not those of `common` */
  iteration_prediction predicted[ITERATION_KINDS];
  safety_summary safety;
} setting_run;

/* False after a diag error. Release it in either case. */
bool setting_run_predict(setting_run *r, arena *a, diag *d);
/* The iteration's times, of a run that was predicted. */
timeline *setting_run_times(setting_run *r, iteration_kind kind);
void setting_run_release(setting_run *r);

#endif
