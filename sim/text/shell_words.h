/*
 * Shell text as words and environment: a launch script's arguments, never evaluated.
 *
 *   blanks          separate words; a newline, `;`, `&&` and a word `&` also end a command
 *   '...' "..."     are taken as in a shell, and joined with what stands beside them
 *   backslash       keeps the next character as it is; before a newline both vanish
 *   #               at the beginning of a word: a comment up to the end of the line
 *   X=Y             at the beginning of a command, or after `export`: environment, no word
 *   X=( ... )       at the same places: what is inside are words; the reference "${X[@]}" vanishes
 *   X="--a 1 ..."   at the beginning of a command: environment; the first $X is its words
 *   everything else is literal: ( ) * [ ] | $VAR `...` < >
 *
 * An array ends at a `)` that closes no `(` of its own word, so `--layout (tt|)*3` keeps its
 * brackets.
 */
#ifndef OFFSIM_SIM_TEXT_SHELL_WORDS_H
#define OFFSIM_SIM_TEXT_SHELL_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/arena.h"
#include "sim/base/diag.h"

typedef struct shell_word {
  const char *text;
  source_pos at;
  uint32_t command; /* words with the same number stand in the same command, or array */
  bool quoted;      /* at least in part */
} shell_word;

typedef struct shell_assignment {
  const char *name;
  const char *value;
  source_pos at;
} shell_assignment;

typedef struct shell_text {
  shell_word *words;
  shell_assignment *assignments; /* in the order of the text; the last one of a name counts */
  uint32_t word_count, assignment_count;
} shell_text;

/* Everything in `out` lives in the arena; `file` is kept for positions. False after a diag error: a
 * limit of limits.h, a quote or an array that does not end. */
bool shell_split(arena *a, const char *file, const char *text, size_t length, shell_text *out,
                 diag *d);

#endif
