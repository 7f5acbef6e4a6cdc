/*
 * The steady iteration of a prediction as a trace (traces/record.h): ops with their times. A rank
 * is a pipeline rank; contents are not known.
 */
#ifndef OFFSIM_SIM_REPORT_RECORD_H
#define OFFSIM_SIM_REPORT_RECORD_H

#include "sim/report/prediction.h"

/* `scenario`: what was predicted, by name. */
bool prediction_record(const prediction *p, const char *scenario, const char *path, arena *a,
                       diag *d);

#endif
