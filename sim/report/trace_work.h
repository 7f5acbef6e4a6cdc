/*
 * What an op of a record is, as a colour. Private to sim/report.
 */
#ifndef OFFSIM_SIM_REPORT_TRACE_WORK_H
#define OFFSIM_SIM_REPORT_TRACE_WORK_H

#include "sim/report/work.h"
#include "traces/record.h"

/* A record does not say what is recomputed. */
paint trace_op_paint(const trace_op *o);

#endif
