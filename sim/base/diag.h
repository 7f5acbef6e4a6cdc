/*
 * Diagnostics: the only way in which offsim reports on its input.
 *
 * Input is wrong: the error is kept with its place, the verb prints it and exits
 * with status 2. Every message says what was found and what would be right:
 *
 *     run.yaml:12:28: error: hidden_size is 7167; it must be divisible by num_attention_heads (128)
 *
 * What is found wrong after an error may follow from it, so it is dropped. A reader that goes on
 * with the next entry says so with diag_go_on: what is found there is an error of its own. The verb
 * prints all errors in the order of their places.
 *
 * A resource was refused: as an error, with status 3, saying what was asked and what there was.
 * Notes go to stderr at once in the order in which they are made and never change the exit status.
 */
#ifndef OFFSIM_SIM_BASE_DIAG_H
#define OFFSIM_SIM_BASE_DIAG_H

#include <stdbool.h>
#include <stdio.h>

/* A place in a text. `file` NULL: nowhere (a default); line 0: the whole file. `file` must outlive
 * the diag; it is also the name of a command-line option ("--set"). */
typedef struct source_pos {
  const char *file;
  int line;
  int column;
} source_pos;

/* An error, complete with its place, without newline. */
typedef struct diag_entry {
  source_pos at;
  char message[1024];
} diag_entry;

enum { DIAG_FURTHER = 31 };

/* Exit statuses. */
enum { DIAG_WRONG = 2, DIAG_REFUSED = 3 };

typedef struct diag {
  int exit_status;    /* 0 as long as nothing is wrong, then DIAG_WRONG or DIAG_REFUSED */
  char message[1024]; /* the first error */
  source_pos at;      /* of the first error */
  bool quiet;         /* notes are dropped: fuzzers, tests */
  bool follows;       /* an error is dropped: it may follow from the one before */
  int further_count;  /* errors beside the first; those above DIAG_FURTHER are only counted */
  diag_entry further[DIAG_FURTHER];
} diag;

/* Both return false, so that `return diag_error(...)` reads well. */
bool diag_error(diag *d, source_pos at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool diag_refused(diag *d, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* On standard error at once, unless the diag is quiet. */
void diag_note(const diag *d, source_pos at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* What comes now does not depend on what was wrong so far. */
static inline void diag_go_on(diag *d)
{
  d->follows = false;
}

/* The result of a reader's step; the next step has errors of its own. */
static inline bool diag_step(diag *d, bool good)
{
  diag_go_on(d);
  return good;
}

/* What was wrong so far does not matter: the input is none of the kind that it was read as. */
static inline void diag_forget(diag *d)
{
  d->exit_status = d->further_count = 0;
  d->message[0] = '\0';
  d->follows = false;
}

static inline bool diag_ok(const diag *d)
{
  return d->exit_status == 0;
}

/* The first error is a resource that was refused: another input may go well. */
static inline bool diag_is_refusal(const diag *d)
{
  return d->exit_status == DIAG_REFUSED;
}

/* Prints the errors, if any, one on a line. */
void diag_print(const diag *d, FILE *out);
/* ... to stderr and returns the exit status. */
int diag_finish(const diag *d);

/* Ends the program with exit status 3. For requests that no caller can do without: memory. */
void die_refused(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

#endif
