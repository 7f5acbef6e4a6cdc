/*
 * Which trainings calibrate runs, and running them. Private to sim/calibrate.
 */
#ifndef OFFSIM_SIM_CALIBRATE_TRAININGS_H
#define OFFSIM_SIM_CALIBRATE_TRAININGS_H

#include "sim/calibrate/calibrate.h"
#include "sim/config/settings.h"

enum { CALIBRATION_SETTINGS = 12 };

/* A training: a model that ships with offsim, and what is set in it, up to a NULL key. Without a
 * world_size it takes as many GPUs as it is given. The last one of a list has a NULL name. */
typedef struct calibration_setting {
  const char *key, *value;
} calibration_setting;

typedef struct calibration_model {
  const char *name, *base;
  calibration_setting set[CALIBRATION_SETTINGS];
} calibration_model;

extern const calibration_model calibration_models[];    /* of one GPU: kernels */
extern const calibration_model calibration_exchanges[]; /* of several: what they give each other */

/* Its settings, not yet resolved. False after a diag error. */
bool calibration_read(settings *s, const calibration_model *of, arena *a, diag *d);

/* Scenarios of sim/calibrate/models, in the program; the last one has a NULL name. */
typedef struct calibration_base {
  const char *name, *text;
} calibration_base;

extern const calibration_base calibration_bases[];

/* Sets the steps of a run of the plan `p`. */
typedef void calibrate_steps(calibration_run *run, const plan *p, const machine *m);

/* On `m`, whatever machine the model names, with a GPU for each of run->ranks, which a model's
 * world_size replaces; the rest of *run is the caller's. False after a diag error; exit status 3:
 * no such GPUs, or not enough memory. */
bool calibrate_train(const calibration_bench *b, const calibration_model *of, const machine *m,
                     calibrate_steps *set_steps, calibration_run *run, arena *a, diag *d);

/* What is done with a model. False after a diag error. */
typedef bool calibrate_one(const calibration_model *of, void *job, diag *d);

/* Does it with all of a list; one whose resources are refused (exit status 3) is left out with a
 * note. Samples the links before each. False after another diag error. */
bool calibrate_each(const calibration_bench *b, const calibration_model *list, calibrate_one *one,
                    void *job, diag *d);

#endif
