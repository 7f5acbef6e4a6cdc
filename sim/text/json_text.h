/*
 * Pieces of JSON as text: strings and exact decimals.
 */
#ifndef OFFSIM_SIM_TEXT_JSON_TEXT_H
#define OFFSIM_SIM_TEXT_JSON_TEXT_H

#include <stdint.h>
#include <stdio.h>

/* A string, quoted and escaped; bytes that are not UTF-8 become U+FFFD. */
void json_string(FILE *out, const char *text);

/* [ the strings ], and a member of an object: "key": a string. */
void json_strings(FILE *out, const char *const *texts, uint32_t count);
void json_member(FILE *out, const char *key, const char *text);

/* value / 10^digits as an exact decimal with `digits` decimals, 0 <= digits <= 18: 1500, 3 -> 1.500 */
void json_decimal(FILE *out, int64_t value, int digits);

#endif
