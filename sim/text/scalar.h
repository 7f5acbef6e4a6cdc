/*
 * Numbers and truth values as text: the one spelling that all inputs of offsim share.
 *
 *   whole number      -?digits                             "64", "-1"
 *   decimal fraction  -?digits[.digits][e[+-]digits]       "0.5", "1e-2", "64"
 *   truth value       true True TRUE false False FALSE
 *
 * A leading `+` is allowed; spaces, `_`, hexadecimal, suffixes, inf and nan are not.
 */
#ifndef OFFSIM_SIM_TEXT_SCALAR_H
#define OFFSIM_SIM_TEXT_SCALAR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Each returns false, with `value` untouched, if the text has another form or does not fit. */
bool scalar_i64(const char *text, int64_t *value);
bool scalar_double(const char *text, double *value); /* the nearest double, as IEEE rounds */
bool scalar_bool(const char *text, bool *value);

/* A whole number with a leading zero: 010 is 8 to readers of YAML 1.1 such as PyYAML, and 10 to others. */
bool scalar_may_be_octal(const char *text);
extern const char scalar_without_zeros[]; /* what is expected instead */

/* The shortest decimal fraction that scalar_double reads back as the same finite double. */
void scalar_print_double(FILE *out, double value);

#endif
