/*
 * One line of a trace: members of a JSON object in the order in which they are written. Private to
 * traces.
 *
 * If the text is wrong, a function reports what it found and what would be right, and returns
 * false. The line must not be read further then.
 */
#ifndef OFFSIM_TRACES_RECORD_LINE_H
#define OFFSIM_TRACES_RECORD_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/diag.h"
#include "sim/plan/intern.h"

typedef struct record_line {
  const char *begin, *next, *end;
  const char *file;
  int number; /* 1-based */
  intern_table *texts;
  diag *d;
} record_line;

bool record_wrong(const record_line *l, const char *expected);

/* Blanks, then this punctuation; false without a message if something else follows. */
bool record_has(record_line *l, char punctuation);
bool record_expect(record_line *l, const char *punctuation);
/* `"key":`, after a comma unless the object or list just began. */
bool record_key(record_line *l, const char *key);
/* Whether that key is next; does not move on. */
bool record_comes(record_line *l, const char *key);
bool record_end(record_line *l);

bool record_number(record_line *l, const char *key, int64_t least, int64_t most, int64_t *value);
bool record_value(record_line *l, int64_t least, int64_t most, int64_t *value);
bool record_count(record_line *l, const char *key, uint32_t most, uint32_t *value);
bool record_text(record_line *l, const char *key, const char **text);
/* 32 hexadecimal digits, or null: unknown. */
bool record_fingerprint(record_line *l, const char *key, bool *known, uint64_t value[2]);

#endif
