/* Text over several lines of a table. Private to sim/report. */
#ifndef OFFSIM_SIM_REPORT_WRAP_H
#define OFFSIM_SIM_REPORT_WRAP_H

#include <stdio.h>

/* Pieces behind a head, `indent` columns from the left, no line longer than 118 characters. A piece
 * ends at a blank, or at the blank that ends `stop` (", "). */
void wrap_text(FILE *out, const char *head, int indent, const char *text, const char *stop);

#endif
