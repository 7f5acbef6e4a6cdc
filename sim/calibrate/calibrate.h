/*
 * From measurements to a machine file.
 *
 *     copies, links, host costs (cuda/calibrate) --+
 *     trainings on GPUs -> samples of kernels -----+--> calibration, sampled calls -> machine file
 *                       -> samples of exchanges ---+
 *
 * Nothing here drives a GPU: a function of the bench trains.
 */
#ifndef OFFSIM_SIM_CALIBRATE_CALIBRATE_H
#define OFFSIM_SIM_CALIBRATE_CALIBRATE_H

#include "sim/base/diag.h"
#include "sim/calibrate/calibration.h"
#include "sim/calibrate/samples.h"
#include "sim/config/settings.h"
#include "sim/machine/machine.h"

/* ---- trainings ---- */

/* The begin and end of a rank's ops in a step, by op; equal: unknown. */
typedef struct measured_ops {
  const int64_t *begin_ps, *end_ps;
} measured_ops;

typedef struct measured_step {
  uint32_t number; /* in the training, from 0 */
  const plan *plan;
  uint32_t ranks;
  const measured_ops *times; /* [ranks] */
  int64_t now_ps;            /* the host's clock at the end of the step */
} measured_step;

/* A training in fast arithmetic. */
typedef struct calibration_run {
  const settings *settings;
  const plan *first, *steady;
  uint32_t ranks; /* a GPU for each */
  uint32_t steps;
  uint32_t times_from, times_every; /* steps to measure; times_every 0: every step from there on */
  uint32_t rests_from; /* from this step on the GPU rests after each kernel; 0: never */
  void (*step_done)(const struct calibration_run *run,
                    const measured_step *s); /* of a measured step */
  void *context;                             /* its */
} calibration_run;

/* Functions that measure, and progress reports. */
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
 * Times of kernels, from models that ship with offsim (sim/calibrate/models). Each model is trained
 * on one GPU until the GPU has its clock under load; then the kernels of a few steps are samples of
 * their calls. If the machine has a power limit (sim/engine/power.h), steps follow in which the GPU
 * rests after each kernel. They show the kernels' times at full clock, and so how much the limit
 * slows products and attention, which are keys of the machine.
 *
 * `m`: has the power limit. Models run one after the other; a note names those that do not fit the
 * GPU. A call of several models has the time of the first. False after a diag error.
 */
bool calibrate_kernels(const calibration_bench *b, const machine *m, sampled_calls *calls, arena *a,
                       diag *d);

/*
 * NCCL between GPUs, from trainings on two and on all GPUs: rates of collectives and messages of
 * two GPUs, as keys of a machine file, and times of the collectives one by one. Also the slowdown
 * of copies while streams wait (sim/engine/slowdown.h), which needs exchanges of two GPUs.
 *
 * Corrects the rates of `m` in b->to, and adds to the calls; does nothing with one GPU. A note
 * names a training that the machine refuses. False after a diag error.
 */
bool calibrate_exchanges(const calibration_bench *b, const machine *m, sampled_calls *calls,
                         arena *a, diag *d);

/* ---- the machine file ---- */

/* The shipped machine whose GPU's name is part of the device's: "H200" in "NVIDIA H200". NULL after
 * a diag error. */
const machine *calibration_base_of(const char *gpu_name, arena *a, diag *d);

/* Adds the measured calls of `base` as samples. */
void calibration_keep_calls(const machine *base, sampled_calls *calls);

/* The machine that the file of calibration_write gives, but for its name; in the arena. */
const machine *calibration_machine(const machine *base, const calibration *c,
                                   const sampled_calls *calls, arena *a);

/* Writes a machine called `name`: the measured keys, and the others of `base`. False after a diag
 * error. */
bool calibration_write(const char *path, const char *name, const calibration *c,
                       const sampled_calls *calls, const machine *base, diag *d);

#endif
