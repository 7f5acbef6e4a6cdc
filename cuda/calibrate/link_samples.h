/*
 * What 1, 2, .. all GPUs copy at once, sampled at many moments: who else uses the host comes and
 * goes within seconds, and the same copies of four GPUs get 112 GB/s now and 135 then. The middle
 * sample counts, of each number of GPUs and of each direction.
 */
#ifndef OFFSIM_CUDA_CALIBRATE_LINK_SAMPLES_H
#define OFFSIM_CUDA_CALIBRATE_LINK_SAMPLES_H

#include "cuda/calibrate/calibrate.h"
#include "cuda/calibrate/copies.h"
#include "sim/base/median.h"

/* How many of them tell a host from its moment, where nothing else is measured in between. */
enum { LINK_MOMENTS = 16 };

/* All zero: nothing open. */
struct link_samples {
  copy_bench copies;
  uint32_t moments;
  sample_list rates_bytes_per_us[CALIBRATED_GPUS][COPY_DIRECTIONS]; /* of [gpus - 1] together */
  sample_list small_ps[COPY_BOTH];                                  /* of one small copy */
};

/* Takes the memory that is copied; link_samples_close in any case. False after a diag error. */
bool link_samples_open(link_samples *l, const gpu_driver *driver, uint32_t gpus, diag *d);

void link_samples_close(link_samples *l);

/* One more sample: of one GPU, of all and, the first time, of each number between them, later of
 * one of these in turn; medians so far as keys. False after a diag error. */
bool link_samples_take(link_samples *l, calibration *to, diag *d);

/* The samples as keys of a machine file (link.*, host.*) and its list at_once. */
void link_samples_put(link_samples *l, calibration *to);

#endif
