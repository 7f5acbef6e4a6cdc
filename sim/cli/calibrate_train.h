/* Trains models that ship with offsim (cuda/calibrate/models), for what is measured on the way. */
#ifndef OFFSIM_SIM_CLI_CALIBRATE_TRAIN_H
#define OFFSIM_SIM_CLI_CALIBRATE_TRAIN_H

#include "cuda/calibrate/calibrate.h"
#include "cuda/exec/executor.h"
#include "sim/base/arena.h"
#include "sim/base/diag.h"
#include "sim/cli/calibrate_lists.h"
#include "sim/machine/machine.h"

/* Sets the steps of a run, of which `p` is one. */
typedef void calibrate_steps(cuda_run *run, const plan *p, const machine *m);

/* On `m`, whatever machine the model names; in fast arithmetic, with times, a GPU for each of
 * run->ranks, which a model's world_size replaces; the rest of *run is the caller's. False after a
 * diag error; exit status 3: no such GPUs, or not enough memory. */
bool calibrate_train(const calibration_model *of, const machine *m, calibrate_steps *set_steps,
                     cuda_run *run, arena *a, diag *d);

/* What goes on beside the trainings: a sample of the links before each, and what is told. */
typedef struct calibrate_beside {
  link_samples *links;
  calibration *to;
  calibrate_progress *progress;
  void *context;
} calibrate_beside;

/* What is done with a model. False after a diag error. */
typedef bool calibrate_one(const calibration_model *of, void *job, diag *d);

/* Does it with all of a list; one whose resources are refused (exit status 3) is left out with a
 * note. False after another diag error. */
bool calibrate_each(const calibration_model *list, calibrate_one *one, void *job,
                    const calibrate_beside *beside, diag *d);

#endif
