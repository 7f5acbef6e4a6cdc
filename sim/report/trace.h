/*
 * The steady iteration of a prediction as a timeline for Perfetto: Chrome-trace JSON.
 *
 * One process for each pipeline rank, numbered from 1; in it a track for the host's phases and one for each
 * stream, and counters:
 *   allocated bytes   in program order, at the time at which the compute stream gets there
 *   live bytes        at the host's time
 *   d2h, h2d GB/s     the rate of the copy under way
 * An arrow leads from each copy to the host to the copy that brings the same buffer back.
 */
#ifndef OFFSIM_SIM_REPORT_TRACE_H
#define OFFSIM_SIM_REPORT_TRACE_H

#include <stdio.h>

#include "sim/report/prediction.h"

/* The prediction must have kept its curves. */
void prediction_trace(const prediction *p, FILE *out, arena *a);

#endif
