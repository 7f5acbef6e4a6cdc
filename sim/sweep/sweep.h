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

#include "sim/sweep/row.h"
#include "sim/sweep/space.h"

/* Takes a row, which is valid during the call. Calls come one at a time, from any thread. False
 * ends the sweep; the diag then has the error. */
typedef bool sweep_take(void *to, const sweep_row *row, diag *d);

typedef struct sweep_taker {
  void *to;
  sweep_take *take;
  bool (*settle)(void *to,
                 diag *d); /* after some calls of `take`, and beside later ones (deal.h) */
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
