/*
 * The parts of a fit, each of which finds keys or calls. Private to sim/fit.
 */
#ifndef OFFSIM_SIM_FIT_PARTS_H
#define OFFSIM_SIM_FIT_PARTS_H

#include "sim/fit/align.h"

/* A step of the run, on both sides. */
typedef struct fit_sides {
  const fit_input *input;
  const prediction *predicted; /* on the base */
  const machine *own;          /* the base as the model's framework sees it */
  const issues *issued;
  const matches *matched;
} fit_sides;

/* Products, attention, and the kernels between them: measured calls. */
void fit_kernels(const fit_sides *f, fit_result *to, arena *a);

/* Rates of copies, alone and while the other direction copies. */
void fit_copies(const fit_sides *f, fit_result *to);

/* NCCL within a host: rates and latency. */
void fit_exchanges(const fit_sides *f, fit_result *to);

/* What the host does between two matched launches. */
typedef struct host_stretches host_stretches;
host_stretches *host_stretches_of(const fit_sides *f, arena *a);
void host_stretches_release(host_stretches *h); /* what is not in the arena */
uint32_t host_stretch_count(const host_stretches *h);
/* Keys of `issue`, if a profiler adds `event_ns` to each event. */
void fit_host(const host_stretches *h, int64_t event_ns, calibration *to);

#endif
