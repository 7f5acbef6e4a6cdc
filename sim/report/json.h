/*
 * Members of JSON objects (docs/reference/json.md): times are decimal seconds, exact to the
 * picosecond; sizes are bytes. Each but seconds_member ends with a comma. Private to sim/report.
 */
#ifndef OFFSIM_SIM_REPORT_JSON_H
#define OFFSIM_SIM_REPORT_JSON_H

#include <stdint.h>
#include <stdio.h>

#include "sim/predict/throughput.h"
#include "sim/text/json_text.h"

enum { JSON_FORMAT_VERSION = 1 };

void bytes_member(FILE *out, const char *key, int64_t value);
void seconds_member(FILE *out, const char *key, int64_t ps, const char *after);
/* Six decimals, rounded down; null where nothing is offloaded. */
void ratio_member(FILE *out, const char *key, int64_t part, int64_t whole);
/* Two members; the model's FLOPs are null where they are not known. */
void throughput_members(FILE *out, throughput t);

#endif
