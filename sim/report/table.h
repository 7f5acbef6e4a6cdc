/*
 * A prediction as a table for people: at most 120 columns.
 */
#ifndef OFFSIM_SIM_REPORT_TABLE_H
#define OFFSIM_SIM_REPORT_TABLE_H

#include <stdio.h>

#include "sim/report/prediction.h"

/* A user's own logged figures of the last pipeline rank; 0: not given. */
typedef struct measured_bytes {
  int64_t static_bytes;
  int64_t peak_bytes;
} measured_bytes;

void prediction_table(const prediction *p, const measured_bytes *measured, FILE *out, arena *a);

#endif
