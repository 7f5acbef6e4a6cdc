/*
 * One line of a plan text: words separated by blanks, each with its place.
 *
 * If a word is wrong, the function that reads it reports what it found and what would be right, and
 * returns false. The line must not be read further then.
 */
#ifndef OFFSIM_SIM_PLAN_LINE_H
#define OFFSIM_SIM_PLAN_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/diag.h"

typedef struct plan_line {
  const char *next; /* not yet read */
  const char *end;  /* the newline, or the end of the text */
  source_pos at;    /* of `next` */
  diag *d;
} plan_line;

typedef struct plan_word {
  const char *text; /* `length` bytes, no NUL after them */
  size_t length;    /* 0: the end of the line */
  source_pos at;
} plan_word;

/* The next word, or an empty one at the end of the line. */
plan_word line_word(plan_line *l);
plan_word line_peek(const plan_line *l);

bool word_is(const plan_word *w, const char *text);

/* False without a message: the text is not a whole number in digits, or exceeds `most`. */
bool text_number(const char *text, size_t length, int64_t most, int64_t *value);

/* Reports "found X; expected Y" for a word that is not what `expected` says. */
bool line_wrong(plan_line *l, const plan_word *found, const char *expected);

bool line_expect(plan_line *l, const char *word);
/* `what`: "a number of bytes"; `least` is 0 or 1. */
bool line_number(plan_line *l, const char *what, int64_t least, int64_t most, int64_t *value);
bool line_bytes(plan_line *l, int64_t *bytes); /* "16777216 bytes" */

/* A sign and a number: "%12", "e7", "m0". `at`, if not NULL, is set to its place. */
bool line_numbered(plan_line *l, char sign, const char *expected, uint32_t *number, source_pos *at);

/* One of `count` names; the message suggests the nearest, or shows a short list. `what`: "a
 * stream". */
bool line_choice(plan_line *l, const char *what, const char *const *names, uint32_t count,
                 uint32_t *index);

/* The line must end here. */
bool line_end(plan_line *l, const char *expected);

#endif
