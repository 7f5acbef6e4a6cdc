/* What a search for the best setting found: a table with settings to paste, JSON
 * (docs/reference/json.md), or CSV. */
#ifndef OFFSIM_SIM_REPORT_TUNED_H
#define OFFSIM_SIM_REPORT_TUNED_H

#include <stdio.h>

#include "sim/tune/tune.h"

/* Of the best; all NULL if there is none. `flags`: what it sets, or if it is offsim's own the best
 * that frameworks have, as environment variables and options of Megatron-LM, lines of Axolotl's file or
 * overrides of verl's command, and what is to be left out of those that were given; NULL: the program
 * has none for it. */
typedef struct best_notes {
  const char *why;     /* what bounds it */
  const char *program; /* "Megatron-LM", "Axolotl", "verl"; NULL: not known */
  const char *flags, *left_out;
  bool unsafe; /* `check` refuses its plan */
  /* Its step if copies between device and host are SLOWER_COPIES_PERCENT slower; 0: it has none. */
  int64_t slower_copies_ps;
} best_notes;

enum { SLOWER_COPIES_PERCENT = 5 };

void tuned_table(const tuned *t, const tune_request *r, const best_notes *n, FILE *out, arena *a);
/* Four members of an object, a comma after each. */
void best_notes_json(const best_notes *n, FILE *out);
void tuned_json(const tuned *t, const tune_request *r, const best_notes *n, FILE *out);
/* A line for each setting that was found, after one with the names of the columns: RFC 4180. */
void tuned_csv(const tuned *t, FILE *out);

#endif
