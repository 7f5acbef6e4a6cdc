/* Which trainings calibrate runs. */
#ifndef OFFSIM_SIM_CLI_CALIBRATE_LISTS_H
#define OFFSIM_SIM_CLI_CALIBRATE_LISTS_H

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

/* Scenarios of cuda/calibrate/models, in the program; the last one has a NULL name. */
typedef struct calibration_base {
  const char *name, *text;
} calibration_base;

extern const calibration_base calibration_bases[];

#endif
