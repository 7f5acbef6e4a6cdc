/* Settings to paste. Private to sim/report. */
#ifndef OFFSIM_SIM_REPORT_SETS_H
#define OFFSIM_SIM_REPORT_SETS_H

#include <stdio.h>

#include "sim/predict/candidates.h"

/* A line: a place in a table and what --set takes, quoted where a shell needs it. */
void sets_print(uint32_t place, const candidate *c, FILE *out);

#endif
