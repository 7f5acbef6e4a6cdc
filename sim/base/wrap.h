/*
 * Lines of words that fit the terminal (sim/base/terminal.h).
 */
#ifndef OFFSIM_SIM_BASE_WRAP_H
#define OFFSIM_SIM_BASE_WRAP_H

#include <stdio.h>

/* How many characters of a text are shown: the sequences of a style are not. */
int terminal_length(const char *text);

/* Pieces after a head, `indent` columns from the left, no line longer than 118 characters or a
 * narrower terminal. A piece ends at a blank, or at the blank that ends `stop` (", "). */
void wrap_text(FILE *out, const char *head, int indent, const char *text, const char *stop);
/* A line of words, of which the first `indent` characters are the head; where no terminal limits it,
 * as long as it is. */
void wrap_line(FILE *out, int indent, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
