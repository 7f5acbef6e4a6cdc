/*
 * What host, links and GPUs of this machine do, apart from kernels: measured with the executor's
 * own means (streams, copies, page-locked memory, allocations of cuda/device), as keys of a machine
 * file.
 *
 * What 1, 2, .. all GPUs copy at once is sampled at many moments: who else uses the host comes and
 * goes within seconds, and the same copies of four GPUs get 112 GB/s now and 135 then. The middle
 * sample counts, of each number of GPUs and of each direction.
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
  sample_list rates_bytes_per_us[CALIBRATED_GPUS][COPY_DIRECTIONS]; /* of [gpus - 1] together */
  sample_list small_ps[COPY_BOTH];                                  /* of one small copy */
} link_samples;

/* Takes the memory that is copied; link_samples_close in any case. False after a diag error. */
bool link_samples_open(link_samples *l, const gpu_driver *driver, uint32_t gpus, diag *d);

void link_samples_close(link_samples *l);

/* One more sample: of one GPU, of all and, the first time, of each number between them, later of
 * one of these in turn; medians so far as keys. False after a diag error. */
bool link_samples_take(link_samples *l, calibration *to, diag *d);

/* Enough samples to tell the host from its moment, where nothing else is measured in between. */
bool link_samples_take_more(link_samples *l, calibration *to, calibrate_progress *progress,
                            void *context, diag *d);

/* The samples as keys of a machine file (link.*, host.*) and its list at_once. */
void link_samples_put(link_samples *l, calibration *to);

/* Everything, of `gpus` GPUs (0: as many as there are). Opens `links` and takes their first sample.
 * False after a diag error; link_samples_close in any case. */
bool calibrate_links(uint32_t gpus, link_samples *links, calibration *c,
                     calibrate_progress *progress, void *context, diag *d);

#endif
