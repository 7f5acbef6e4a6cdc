/*
 * The trainings of calibrate. Private to sim/calibrate.
 */
#ifndef OFFSIM_SIM_CALIBRATE_TRAININGS_H
#define OFFSIM_SIM_CALIBRATE_TRAININGS_H

#include "sim/calibrate/calibrate.h"
#include "sim/config/settings.h"

enum { CALIBRATION_SETTINGS = 12 };

/* A training: a model that ships with offsim, and its changed settings, up to a NULL key. Without a
 * world_size it uses all GPUs that it gets. The last one of a list has a NULL name. */
typedef struct calibration_setting {
  const char *key, *value;
} calibration_setting;

typedef struct calibration_model {
  const char *name, *base;
  calibration_setting set[CALIBRATION_SETTINGS];
} calibration_model;

extern const calibration_model calibration_models[];    /* of one GPU: kernels */
extern const calibration_model calibration_exchanges[]; /* of several: exchanges */

/* Its settings, not yet resolved. False after a diag error. */
bool calibration_read(settings *s, const calibration_model *of, arena *a, diag *d);

/* The scenarios of sim/calibrate/models; the last one has a NULL name. */
typedef struct calibration_base {
  const char *name, *text;
} calibration_base;

extern const calibration_base calibration_bases[];

/* Sets the steps of a run of plan `p`. */
typedef void calibrate_steps(calibration_run *run, const plan *p, const machine *m);

/* Trains on `m`, not on the machine that the model names, with a GPU for each of run->ranks,
 * which a model's world_size replaces; the caller sets the rest of *run. False after a diag
 * error; exit status 3: no such GPUs, or not enough memory. */
bool calibrate_train(const calibration_bench *b, const calibration_model *of, const machine *m,
                     calibrate_steps *set_steps, calibration_run *run, arena *a, diag *d);

/* Runs one model. False after a diag error. */
typedef bool calibrate_one(const calibration_model *of, void *job, diag *d);

/* Runs all models of a list; a note names one whose resources are refused (exit status 3). Samples
 * the links before each. False after another diag error. */
bool calibrate_each(const calibration_bench *b, const calibration_model *list, calibrate_one *one,
                    void *job, diag *d);

#endif
