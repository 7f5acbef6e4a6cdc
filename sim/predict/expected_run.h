/*
 * A prediction as the comparison with a real run needs it (traces/import/real_comparison.h).
 */
#ifndef OFFSIM_SIM_PREDICT_EXPECTED_RUN_H
#define OFFSIM_SIM_PREDICT_EXPECTED_RUN_H

#include "sim/predict/prediction.h"
#include "traces/import/real_comparison.h"

/* The prediction as a record in memory, `texts` from the arena; release it. The prediction must
 * have kept its curves. False after a diag error. */
bool expected_record(trace *t, const prediction *p, const char *scenario, arena *a, diag *d);

/* The rest of what is predicted of a pipeline rank. The record must outlive it. */
predicted_run expected_run(const trace *record, const prediction *p, uint32_t rank, arena *a);

#endif
