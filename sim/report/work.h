/*
 * What an op is, as a colour: for pictures and pages. Private to sim/report.
 */
#ifndef OFFSIM_SIM_REPORT_WORK_H
#define OFFSIM_SIM_REPORT_WORK_H

#include "sim/base/arena.h"
#include "sim/plan/plan.h"
#include "sim/report/picture.h"
#include "traces/record.h"

extern const char *const paint_names[PAINTS];

/* By op of the rank; only those that take time on a stream mean something. */
const paint *op_paints(const plan *p, uint32_t rank, arena *a);

/* Of a record, which does not say what is recomputed. */
paint trace_op_paint(const trace_op *o);

#endif
