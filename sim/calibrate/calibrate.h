/*
 * From measurements to a machine file.
 *
 *     copies, links, host costs (cuda/calibrate) --+
 *     trainings on GPUs -> samples of kernels -----+--> calibration, sampled calls -> machine file
 *                       -> samples of exchanges ---+
 *
 * Nothing here drives a GPU: who can train is a function of the bench.
 */
#ifndef OFFSIM_SIM_CALIBRATE_CALIBRATE_H
#define OFFSIM_SIM_CALIBRATE_CALIBRATE_H

#include "sim/base/diag.h"
#include "sim/calibrate/calibration.h"
#include "sim/calibrate/samples.h"
#include "sim/config/settings.h"
#include "sim/machine/machine.h"

/* ---- trainings ---- */

/* When the ops of a rank ran in a step, by op; equal: not known. */
typedef struct op_times {
  const int64_t *begin_ps, *end_ps;
} op_times;

typedef struct measured_step {
  uint32_t number; /* in the training, from 0 */
  const plan *plan;
  uint32_t ranks;
  const op_times *times; /* [ranks] */
  int64_t now_ps;        /* the host's clock when the step was over */
} measured_step;

/* A training in fast arithmetic. */
typedef struct calibration_run {
  const settings *settings;
  const plan *first, *steady;
  uint32_t ranks; /* a GPU for each */
  uint32_t steps;
  uint32_t times_from,
      times_every;     /* which steps are measured; times_every 0: each from there on */
  uint32_t rests_from; /* from here on the GPU rests after each kernel; 0: never */
  void (*step_done)(const struct calibration_run *run,
                    const measured_step *s); /* of a measured step */
  void *context;                             /* its */
} calibration_run;

/* Who measures, and what is reported on the way. */
typedef struct calibration_bench {
  calibration *to;
  /* False after a diag error; exit status 3: no such GPUs, or not enough memory. */
  bool (*train)(const calibration_run *run, arena *a, diag *d);
  bool (*sample_links)(void *context,
                       diag *d); /* one more sample of the links; false: diag error */
  calibrate_progress *progress;
  void *context; /* of both */
} calibration_bench;

/*
 * Times of kernels, from models that ship with offsim (sim/calibrate/models). Each is trained on
 * one GPU until that has the clock of a GPU at work; then the kernels of a few steps are samples of
 * their calls. Where the machine has a limit of power (sim/engine/power.h), steps follow in which
 * the GPU rests after each kernel: these show what the kernels take at full clock, and so how much
 * the limit slows products and attention: keys of the machine.
 *
 * `m`: has the limit of power. One after the other; those that do not fit the GPU are left out with
 * a note. A call of several models is what it was in the first. False after a diag error.
 */
bool calibrate_kernels(const calibration_bench *b, const machine *m, sampled_calls *calls, arena *a,
                       diag *d);

/*
 * What GPUs give each other by NCCL, from trainings over two and over all of them: rates of
 * collectives and messages of two, as keys of a machine file, and the collectives one by one. And
 * what copies take longer while streams wait (sim/engine/slowdown.h), which needs two GPUs'
 * exchanges.
 *
 * Corrects the rates of `m` in b->to, and adds to the calls; nothing where there is one GPU. A
 * training that the machine refuses is left out with a note. False after a diag error.
 */
bool calibrate_exchanges(const calibration_bench *b, const machine *m, sampled_calls *calls,
                         arena *a, diag *d);

/* ---- the machine file ---- */

/* The shipped machine whose GPU's name is part of the device's: "H200" in "NVIDIA H200". NULL after
 * a diag error. */
const machine *calibration_base_of(const char *gpu_name, arena *a, diag *d);

/* The calls that `base` has measured, as samples. */
void calibration_keep_calls(const machine *base, sampled_calls *calls);

/* A machine called `name`: what was measured, and the rest of `base`. False after a diag error. */
bool calibration_write(const char *path, const char *name, const calibration *c,
                       const sampled_calls *calls, const machine *base, diag *d);

#endif
