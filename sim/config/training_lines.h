/*
 * What may be written into a training file so that it says a setting: choices for a search, which reads
 * the file with each of their combinations (sim/cli/paste.c). So a line is printed only if the file's
 * reader takes it for the setting.
 */
#ifndef OFFSIM_SIM_CONFIG_TRAINING_LINES_H
#define OFFSIM_SIM_CONFIG_TRAINING_LINES_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/arena.h"
#include "sim/config/settings.h"

enum { TRAINING_ROWS = 32, TRAINING_CHOICES = 6 };

/* One line of these; "" leaves the file as it is. */
typedef struct training_row {
  const char *choices[TRAINING_CHOICES];
  uint32_t count;
} training_row;

typedef struct training_lines {
  training_row rows[TRAINING_ROWS]; /* the first varies fastest */
  uint32_t count;
  const char *variable; /* of the environment, for expandable segments; NULL: none */
} training_lines;

void training_need(training_lines *to, const char *line);  /* always there */
void training_offer(training_lines *to, const char *line); /* there or not */

/* `wanted` is resolved; `sets`, "key=value", are where it differs from the file. */
typedef struct training_wish {
  const settings *wanted;
  const char *const *sets;
  uint32_t set_count;
} training_wish;

/* A program names its keys in one of several ways, `naming`; lines live in the arena. */
typedef void training_rows(training_lines *to, const training_wish *w, uint32_t naming, arena *a);

typedef struct training_program {
  const char *name;
  training_rows *rows;
  uint32_t namings;
  const char *separator, *variable; /* for people: between lines; what precedes a variable */
} training_program;

/* The key and the value of "key=value". */
setting_key training_key(const char *set, const char **value, arena *a);

#endif
