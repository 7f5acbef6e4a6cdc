/*
 * Measures host, links and GPUs of this machine, except kernels, with the executor's functions
 * (streams, copies, page-locked memory, allocations of cuda/device), as keys of a machine file.
 *
 * Concurrent copies of 1, 2, .. all GPUs are sampled at many moments: the host's other users come
 * and go within seconds, and the same copies of four GPUs reach 112 GB/s now and 135 later. The
 * result is the median for each number of GPUs and each direction.
 */
#ifndef OFFSIM_CUDA_CALIBRATE_LINKS_H
#define OFFSIM_CUDA_CALIBRATE_LINKS_H

#include "cuda/calibrate/copies.h"
#include "sim/base/median.h"
#include "sim/calibrate/calibration.h"

/* All zero: nothing open. */
typedef struct link_samples {
  copy_bench copies;
  uint32_t moments;
  sample_list rates_bytes_per_us[CALIBRATED_GPUS][COPY_DIRECTIONS]; /* total of gpus, at [gpus -
                                                                     * 1] */
  sample_list small_ps[COPY_BOTH];                                  /* of one small copy */
} link_samples;

/* Allocates the memory that is copied; call link_samples_close in any case. False after a diag
 * error. */
bool link_samples_open(link_samples *l, const gpu_driver *driver, uint32_t gpus, diag *d);

void link_samples_close(link_samples *l);

/* Takes one more sample: of one GPU, of all GPUs and, the first time, of each number between them,
 * later of one of these in turn; sets keys to the medians so far. False after a diag error. */
bool link_samples_take(link_samples *l, calibration *to, diag *d);

/* Enough samples for a median, if nothing else is measured in between. False after a diag error. */
bool link_samples_take_more(link_samples *l, calibration *to, calibrate_progress *progress,
                            void *context, diag *d);

/* The samples as keys of a machine file (link.*, host.*) and its list at_once. */
void link_samples_put(link_samples *l, calibration *to);

/* Measures everything, with `gpus` GPUs (0: all). Opens `links` and takes their first sample. False
 * after a diag error; call link_samples_close in any case. */
bool calibrate_links(uint32_t gpus, link_samples *links, calibration *c,
                     calibrate_progress *progress, void *context, diag *d);

#endif
