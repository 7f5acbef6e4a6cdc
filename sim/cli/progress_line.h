/*
 * Progress of many settings, on a terminal: how many are decided, how many a second, and the time that is
 * left. The clock decides only what this line says and when.
 */
#ifndef OFFSIM_SIM_CLI_PROGRESS_LINE_H
#define OFFSIM_SIM_CLI_PROGRESS_LINE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct progress_line {
  bool watched;
  uint32_t before; /* decided when the clock began */
  int64_t begin_ns, shown_ns;
} progress_line;

/* Shown if standard error is a terminal and `shows`; the clock begins. */
progress_line progress_line_new(bool shows);

/* The clock begins again: so far `decided` are. */
void progress_line_restart(progress_line *p, uint32_t decided);

/* At most five times a second. `left`: what the estimated time is, such as "left". */
void progress_line_show(progress_line *p, uint32_t decided, uint32_t all, const char *left);

/* Shows work that takes an unknown time. */
void progress_line_tell(const progress_line *p, uint32_t all, const char *doing);

/* Clears the line. */
void progress_line_end(const progress_line *p);

#endif
