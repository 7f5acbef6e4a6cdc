/*
 * What a machine's host, links and GPUs do, apart from kernels: measured with the executor's own
 * means (streams, copies, page-locked memory, allocations of cuda/device), as keys of a machine
 * file (sim/machine/machine.h).
 */
#ifndef OFFSIM_CUDA_CALIBRATE_CALIBRATE_H
#define OFFSIM_CUDA_CALIBRATE_CALIBRATE_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/diag.h"
#include "sim/machine/contention.h"

typedef struct calibrated_value {
  const char *section, *key; /* "link", "d2h_bytes_per_us" */
  int64_t value, least, most; /* of its samples, where it is their middle */
} calibrated_value;

enum { CALIBRATED_VALUES = 64, CALIBRATED_NAME = 128, CALIBRATED_GPUS = 64 };

typedef struct calibration {
  calibrated_value values[CALIBRATED_VALUES];
  uint32_t count;
  /* What some of the GPUs copy at once, from 2 to one less than all (sim/machine/contention.h). */
  contention at_once[CALIBRATED_GPUS];
  uint32_t at_once_count;
  char gpu_name[CALIBRATED_NAME]; /* "NVIDIA H200" */
} calibration;

/* NULL: not measured. */
const calibrated_value *calibration_find(const calibration *c, const char *section,
                                         const char *key);
/* In place of what was there. The names must outlive it. */
void calibration_put(calibration *c, const char *section, const char *key, int64_t value);
void calibration_put_range(calibration *c, const char *section, const char *key, int64_t value,
                           int64_t least, int64_t most);

/* What it is at; `of` things in all. */
typedef void calibrate_progress(void *context, const char *what, uint32_t at, uint32_t of);

/* Copies between GPUs and host, to be sampled again (cuda/calibrate/link_samples.h). */
typedef struct link_samples link_samples;

/* Of `gpus` GPUs (0: as many as there are). Opens `links` and takes their first sample.
 * False after a diag error; link_samples_close in any case. */
bool calibrate_links(uint32_t gpus, link_samples *links, calibration *c,
                     calibrate_progress *progress, void *context, diag *d);

#endif
