/*
 * A rank's step as it ran: times of its ops on the GPU are known, those of the host are not.
 */
#ifndef OFFSIM_TRACES_MEASURED_TIMELINE_H
#define OFFSIM_TRACES_MEASURED_TIMELINE_H

#include "traces/timeline.h"

typedef struct measured_rank {
  uint32_t number;
  const rank_plan *ops;
  const int64_t *begin_ps, *end_ps; /* by op; -1: unknown */
  /* By op, when the host had issued it; a curve has the values of compute's ops at their begins. */
  const int64_t *live_bytes, *reserved_bytes, *pinned_bytes;
} measured_rank;

void timeline_put_measured(timeline_file *t, const measured_rank *r);

#endif
