/*
 * Environment variables of a training job that change memory or time, as settings of section
 * software.
 */
#ifndef OFFSIM_SIM_CONFIG_ENVIRONMENT_H
#define OFFSIM_SIM_CONFIG_ENVIRONMENT_H

#include <stdbool.h>

#include "sim/base/arena.h"
#include "sim/base/diag.h"
#include "sim/config/settings.h"

/* Takes `name`=`value`, which is at `at`. Variables that change nothing are ignored.
 * False after a diag error. */
bool environment_set(settings *s, const char *name, const char *value, source_pos at, arena *a,
                     diag *d);

/* The variable is one of those that environment_set takes. */
bool environment_matters(const char *name);

/* Whether an environment was given, even if no variable of it matters here. */
bool environment_given(settings *s, source_pos at, arena *a, diag *d);

#endif
