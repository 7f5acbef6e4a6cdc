/*
 * The work of a real run as the ops of a record, so that it is drawn as a measurement of offsim's own
 * executor is. Private to sim/report.
 */
#ifndef OFFSIM_SIM_REPORT_REAL_TRACE_H
#define OFFSIM_SIM_REPORT_REAL_TRACE_H

#include "traces/import/real_comparison.h"

/* All ops are of the prediction's rank. ARRAY_FREE(&t.ops) releases it; texts are the run's. */
trace real_trace_of(const real_comparison *c);

#endif
