/*
 * A real run at a glance, for people and for programs (docs/reference/real-runs.md).
 */
#ifndef OFFSIM_SIM_REPORT_REAL_RUN_H
#define OFFSIM_SIM_REPORT_REAL_RUN_H

#include <stdio.h>

#include "sim/base/arena.h"
#include "traces/import/align_clocks.h"
#include "traces/import/run_memory.h"
#include "traces/import/run_summary.h"

/* `memory`: NULL without a memory snapshot. */
void real_run_table(const run_summary *s, const run_memory *memory, FILE *out, arena *a);
void real_run_json(const run_summary *s, const run_memory *memory, FILE *out);

/* "megatron/core/x.py:120 forward"; "before the record" of REAL_NONE. */
const char *real_frame_text(const real_run *r, uint32_t frame, arena *a);

/* ---- several ranks ---- */

typedef struct aligned_ranks {
  const real_run *const *runs;
  const char *const *files;
  const rank_clock *clocks;
  uint32_t count;
} aligned_ranks;

void aligned_ranks_table(const aligned_ranks *r, FILE *out, arena *a);
void aligned_ranks_json(const aligned_ranks *r, FILE *out);

#endif
