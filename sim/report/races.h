/* Races of a real run (traces/races), for people and for programs. */
#ifndef OFFSIM_SIM_REPORT_RACES_H
#define OFFSIM_SIM_REPORT_RACES_H

#include <stdio.h>

#include "traces/races/races.h"

void races_table(const races *r, FILE *out, arena *a);

/* docs/reference/issued.md, "JSON". */
void races_json(const races *r, FILE *out, arena *a);

#endif
