/*
 * What standard output and standard error know of the terminal behind them:
 *
 *   width    COLUMNS if it is set, or else the terminal's
 *   colours  on a terminal; never with NO_COLOR (no-color.org) or TERM=dumb, always with FORCE_COLOR
 *
 * Other streams have neither: what goes into a file is the same everywhere.
 */
#ifndef OFFSIM_SIM_BASE_TERMINAL_H
#define OFFSIM_SIM_BASE_TERMINAL_H

#include <stdio.h>

/* How many characters a line may have; 0: any number. */
int terminal_columns(FILE *out);

typedef enum text_style { STYLE_PLAIN, STYLE_ALARM, STYLE_NOTE } text_style;

/* The sequence that begins the style; "" where there are no colours. */
const char *terminal_style(FILE *out, text_style style);

#endif
