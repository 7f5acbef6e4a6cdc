/*
 * Diagnostics: the only way in which offsim reports on its input.
 *
 * Wrong input: the diag keeps the first error with its place and drops later ones; the verb prints
 * it and exits with status 2. Every message says what was found and what would be right:
 *
 *     run.yaml:12:28: error: hidden_size is 7167; it must be divisible by num_attention_heads (128)
 *
 * A refused resource: an error with status 3 that says what was requested and what was available.
 * Notes go to stderr at once, in order, and never change the exit status.
 */
#ifndef OFFSIM_SIM_BASE_DIAG_H
#define OFFSIM_SIM_BASE_DIAG_H

#include <stdbool.h>

/* A place in a text. `file` NULL: nowhere (a default); line 0: the whole file. `file` must outlive
 * the diag; it is also the name of a command-line option ("--set"). */
typedef struct source_pos {
  const char *file;
  int line;
  int column;
} source_pos;

typedef struct diag {
  int exit_status;    /* 0 without an error, else 2 or 3 */
  char message[1024]; /* the first error with its place, without newline */
  bool quiet;         /* notes are dropped: fuzzers, tests */
} diag;

/* Both keep only the first error and return false, so that `return diag_error(...)` reads well. */
bool diag_error(diag *d, source_pos at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool diag_refused(diag *d, const char *format, ...) __attribute__((format(printf, 2, 3)));

void diag_note(const diag *d, source_pos at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static inline bool diag_ok(const diag *d)
{
  return d->exit_status == 0;
}

/* Prints the error, if any, to stderr and returns the exit status. */
int diag_finish(const diag *d);

/* Ends the program with exit status 3. For requests that no caller can do without: memory. */
void die_refused(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

#endif
