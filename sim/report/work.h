/*
 * What an op is, as a colour: for pictures and pages. Private to sim/report.
 */
#ifndef OFFSIM_SIM_REPORT_WORK_H
#define OFFSIM_SIM_REPORT_WORK_H

#include "sim/base/arena.h"
#include "sim/plan/plan.h"

/* What a coloured bar means. */
typedef enum paint {
  PAINT_FORWARD,
  PAINT_BACKWARD,
  PAINT_RECOMPUTE,
  PAINT_REDUCTION,
  PAINT_OPTIMIZER,
  PAINT_COMM,
  PAINT_D2H,
  PAINT_H2D,
  PAINTS
} paint;

extern const char *const paint_names[PAINTS];

/* By op of the rank; only those that take time on a stream mean something. */
const paint *op_paints(const plan *p, uint32_t rank, arena *a);

#endif
