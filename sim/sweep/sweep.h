/*
 * Predicts every setting of a space, on the threads of all processes.
 *
 *     given settings + space -> each: resolve, predict -> sweep_row
 *
 * A row depends on its setting alone: whichever thread of whichever process predicts it,
 * and whenever, it is the same.
 */
#ifndef OFFSIM_SIM_SWEEP_SWEEP_H
#define OFFSIM_SIM_SWEEP_SWEEP_H

#include "sim/predict/prediction.h"
#include "sim/sweep/space.h"

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

/* Takes a row, which is valid during the call. Calls come one at a time, from any thread. False
 * ends the sweep; the diag then has the error. */
typedef bool sweep_take(void *to, const sweep_row *row, diag *d);

typedef struct sweep_taker {
  void *to;
  sweep_take *take;
  bool (*settle)(void *to, diag *d); /* no further row waits; as `take` */
} sweep_taker;

typedef struct sweep {
  const settings *given; /* as they were read */
  const machine *machine;
  const space *space;
  const bool *done; /* by index: left out; NULL: none */
  uint32_t threads; /* of this process */
} sweep;

/* All processes (sim/world) call it; rows come to process 0. False after a diag error: a row could
 * not be taken, or a resource was refused. */
bool sweep_run(const sweep *w, const sweep_taker *to, diag *d);

#endif
