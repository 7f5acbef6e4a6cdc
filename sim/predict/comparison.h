/*
 * One model and one machine through every offload system that accepts them: who needs how much
 * memory, at what cost in time.
 *
 *     given settings -> candidates -> each: resolve, predict -> comparison -> table, JSON, plot
 *
 * A candidate is a system of sim/config/offload_systems.h with what it needs to run where nothing
 * was given, each with the recomputation that was given and, on Hugging Face models and without
 * offload, without and with that of whole layers. Candidates that the settings' rules refuse, or
 * that move nothing here, are listed with the reason.
 */
#ifndef OFFSIM_SIM_PREDICT_COMPARISON_H
#define OFFSIM_SIM_PREDICT_COMPARISON_H

#include "sim/predict/candidates.h"
#include "sim/predict/prediction.h"

typedef struct comparison_row {
  candidate tried;
  int64_t peak_bytes;   /* since the process began, of the rank that has most */
  int64_t saving_bytes; /* of the reference's */
  int64_t step_ps;
  throughput speed;
  int64_t host_pinned_total_bytes; /* by all GPUs of the fullest host */
  int64_t host_total_bytes;        /* ... with what is not page-locked */
  /* Of all ranks, beside the same recomputation without offload. */
  int64_t theoretical_saving_bytes, simulated_saving_bytes;
  int64_t exposed_d2h_ps, exposed_h2d_ps; /* of the rank that waits longest */
  int64_t d2h_bytes, h2d_bytes;           /* copied in a step, of all ranks */
  bool fits_device, fits_host;
  bool safe;     /* in every timing */
  bool on_front; /* of those that fit nothing is both faster and smaller */
} comparison_row;

typedef struct refused_systems {
  const char *systems; /* "te_v1, te_v2" */
  const char *reason;
} refused_systems;

typedef struct comparison {
  const machine *machine;
  int64_t capacity_bytes;
  comparison_row reference; /* no offload; savings and overheads are beside it */
  comparison_row *rows;     /* those that fit first, the fastest first */
  uint32_t row_count;
  refused_systems *refused;
  uint32_t refused_count;
} comparison;

/* `given`: settings as they were read, `resolved`: the same, resolved. False after a diag error. */
bool compare_systems(comparison *c, const settings *given, const settings *resolved,
                     const machine *m, uint32_t threads, candidate_progress *progress, arena *a,
                     diag *d);

#endif
