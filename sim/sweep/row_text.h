/*
 * A row of a sweep as a line of JSON or CSV. The beginning of a line names the sweep and the
 * setting; no line's beginning is the beginning of another's.
 *
 *     {"sweep":"5c1b...","set":{"recompute_num_layers":"2"},"verdict":"fits",...}
 *     5c1b...,"recompute_num_layers=2",fits,...
 *
 * docs/reference/json.md has the keys, which are CSV's columns too.
 */
#ifndef OFFSIM_SIM_SWEEP_ROW_TEXT_H
#define OFFSIM_SIM_SWEEP_ROW_TEXT_H

#include <stdio.h>

#include "sim/sweep/sweep.h"

typedef enum row_format { ROW_JSON, ROW_CSV } row_format;

/* What --set takes, as a column of CSV: in quotes, with blanks between. */
void csv_sets(FILE *out, const candidate *tried);
/* The line above all others, without a newline; "" in JSON. */
const char *row_head(row_format format, arena *a);
/* `fingerprint`: that of the sweep (journal.h). */
const char *row_begin(row_format format, const char *fingerprint, const candidate *tried, arena *a);
/* The same with all that follows it, and a newline. */
const char *row_line(row_format format, const char *fingerprint, const sweep_row *row, arena *a);
/* The verdict and the figures of a line, read from where row_begin's text ends; `tried` and `reason`
 * stay what they are. False: it is no such line. */
bool row_read(row_format format, const char *rest, sweep_row *row);

#endif
