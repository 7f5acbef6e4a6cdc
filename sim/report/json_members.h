/*
 * Members of JSON objects that predictions and comparisons share. Private to sim/report. Each but
 * seconds_member ends with a comma.
 */
#ifndef OFFSIM_SIM_REPORT_JSON_MEMBERS_H
#define OFFSIM_SIM_REPORT_JSON_MEMBERS_H

#include <stdint.h>
#include <stdio.h>

void bytes_member(FILE *out, const char *key, int64_t value);
void seconds_member(FILE *out, const char *key, int64_t ps, const char *after);
/* Six decimals, rounded down; null where nothing is offloaded. */
void ratio_member(FILE *out, const char *key, int64_t part, int64_t whole);

#endif
