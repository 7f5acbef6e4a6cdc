/*
 * A prediction as JSON with stable keys: docs/reference/json.md. Times are decimal seconds, exact to the
 * picosecond; sizes are bytes.
 */
#ifndef OFFSIM_SIM_REPORT_JSON_H
#define OFFSIM_SIM_REPORT_JSON_H

#include <stdio.h>

#include "sim/report/prediction.h"

/* JSON_HOLDINGS: of what lives at a peak, the largest. */
enum { JSON_FORMAT_VERSION = 1, JSON_HOLDINGS = 16 };

void prediction_json(const prediction *p, FILE *out, arena *a);

#endif
