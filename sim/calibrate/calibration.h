/*
 * Measurements of a machine, as keys of a machine file (sim/machine/machine.h).
 */
#ifndef OFFSIM_SIM_CALIBRATE_CALIBRATION_H
#define OFFSIM_SIM_CALIBRATE_CALIBRATION_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/machine/contention.h"

typedef struct calibrated_value {
  const char *section, *key;  /* "link", "d2h_bytes_per_us" */
  int64_t value, least, most; /* of its samples, if `value` is their median */
} calibrated_value;

enum { CALIBRATED_VALUES = 64, CALIBRATED_NAME = 128, CALIBRATED_GPUS = 64 };

typedef struct calibration {
  calibrated_value values[CALIBRATED_VALUES];
  uint32_t count;
  /* Rates while some of the GPUs copy at once, from 2 to all but one (sim/machine/contention.h). */
  contention at_once[CALIBRATED_GPUS];
  uint32_t at_once_count;
  char gpu_name[CALIBRATED_NAME]; /* "NVIDIA H200" */
} calibration;

/* NULL: not measured. */
const calibrated_value *calibration_find(const calibration *c, const char *section,
                                         const char *key);
/* Sets or replaces a value. The names must outlive it. */
void calibration_put(calibration *c, const char *section, const char *key, int64_t value);
void calibration_put_range(calibration *c, const char *section, const char *key, int64_t value,
                           int64_t least, int64_t most);

/* Reports the current measurement, number `at` of `of`. */
typedef void calibrate_progress(void *context, const char *what, uint32_t at, uint32_t of);

#endif
