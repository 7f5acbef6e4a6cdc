/*
 * JSON of any length, read once from front to back without keeping it: a profiler's trace has
 * gigabytes. Private to traces/import.
 *
 *     json_pull j = { .in = &in };
 *     for (bool more = json_enter(&j, '{'); more; more = json_more(&j, '}')) {
 *       if (!json_key(&j)) break;
 *       if (strcmp(j.text, "ts") == 0) json_scaled(&j, 3, &ts);
 *       else json_skip(&j);
 *     }
 *     if (in.failed) return false;
 *
 * Any function returns false after a message; then nothing must be read any more.
 */
#ifndef OFFSIM_TRACES_IMPORT_JSON_PULL_H
#define OFFSIM_TRACES_IMPORT_JSON_PULL_H

#include "traces/input.h"

enum { JSON_DEPTH = 64, JSON_TEXT_BYTES = 1 << 16 };

typedef struct json_pull {
  input *in;
  char *text; /* the last key or string, with a NUL after it; cut at JSON_TEXT_BYTES */
  size_t length, capacity;
} json_pull;

void json_release(json_pull *j);

/* The next character that is not blank, not taken; INPUT_END. */
int json_peek(json_pull *j);

/* `open` is next: whether anything is inside. False, too, after a message. */
bool json_enter(json_pull *j, char open);
/* After a value: whether another one follows; takes the comma, or `close`. */
bool json_more(json_pull *j, char close);

bool json_key(json_pull *j);  /* with its colon: j->text */
bool json_text(json_pull *j); /* j->text */
bool json_skip(json_pull *j); /* any value */
/* A number times 10^digits; further decimals are dropped. It must fit, and may have a negative exponent. */
bool json_scaled(json_pull *j, int digits, int64_t *value);
/* A whole number, or -1 for any other value: kinds of a number that only programs like this one
 * write. */
bool json_whole_or_skip(json_pull *j, int64_t *value);

bool json_is_at_end(json_pull *j); /* false after a message: something follows */

#endif
