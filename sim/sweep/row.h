/*
 * A prediction as one row: the figures by which many settings are compared.
 */
#ifndef OFFSIM_SIM_SWEEP_ROW_H
#define OFFSIM_SIM_SWEEP_ROW_H

#include "sim/predict/candidates.h"
#include "sim/predict/prediction.h"

typedef enum sweep_verdict {
  SWEEP_FITS,
  SWEEP_DOES_NOT_FIT,
  SWEEP_REFUSED,
  SWEEP_VERDICTS
} sweep_verdict;

/* Of each rank, the most; bytes that are copied: of all ranks. */
typedef struct sweep_row {
  candidate tried;
  sweep_verdict verdict;
  const char *reason; /* SWEEP_REFUSED: what the settings' rules say; the rest is then 0 */
  int64_t step_ps, step_without_offload_ps;
  throughput speed; /* of the step */
  int64_t static_bytes, allocated_peak_bytes, reserved_peak_bytes;
  int64_t saving_bytes; /* of the rank that allocates most without offload, at its peak */
  int64_t missing_bytes;
  int64_t host_pinned_total_bytes;
  int64_t d2h_bytes, h2d_bytes;
  int64_t exposed_d2h_ps, exposed_h2d_ps;
} sweep_row;

/* Fills verdict and figures from a prediction; of one alone, without what is beside the run without
 * offload. */
void sweep_row_take(sweep_row *row, const prediction *p);

#endif
