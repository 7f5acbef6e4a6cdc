/*
 * A prediction as JSON with stable keys: docs/reference/json.md. Times are decimal seconds, exact to the
 * picosecond; sizes are bytes.
 */
#ifndef OFFSIM_SIM_REPORT_JSON_H
#define OFFSIM_SIM_REPORT_JSON_H

#include <stdio.h>

#include "sim/report/prediction.h"

enum { JSON_FORMAT_VERSION = 1 };

void prediction_json(const prediction *p, FILE *out, arena *a);

#endif
