#include "sim/text/scalar.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *skip_sign(const char *s)
{
  return s + (*s == '-' || *s == '+');
}

static const char *skip_digits(const char *s)
{
  return s + strspn(s, "0123456789");
}

static bool is_whole_number(const char *text)
{
  const char *digits = skip_sign(text);
  const char *end = skip_digits(digits);
  return end > digits && *end == '\0';
}

const char scalar_without_zeros[] =
    "a number without leading zeros (010 is 8 to some readers of YAML)";

bool scalar_may_be_octal(const char *text)
{
  const char *digits = skip_sign(text);
  return digits[0] == '0' && digits[1] != '\0' && is_whole_number(text);
}

static bool is_decimal_fraction(const char *text)
{
  const char *digits = skip_sign(text);
  const char *end = skip_digits(digits);
  bool has_digit = end > digits;
  if (*end == '.') {
    const char *fraction = end + 1;
    end = skip_digits(fraction);
    has_digit = has_digit || end > fraction;
  }
  if (!has_digit) return false;
  if (*end != 'e' && *end != 'E') return *end == '\0';
  const char *exponent = skip_sign(end + 1);
  end = skip_digits(exponent);
  return end > exponent && *end == '\0';
}

bool scalar_i64(const char *text, int64_t *value)
{
  if (!is_whole_number(text)) return false;
  errno = 0;
  long long number = strtoll(text, NULL, 10);
  if (errno != 0) return false;
  *value = number;
  return true;
}

bool scalar_double(const char *text, double *value)
{
  if (!is_decimal_fraction(text)) return false;
  double number = strtod(text, NULL);
  if (!isfinite(number)) return false;
  *value = number;
  return true;
}

bool scalar_bool(const char *text, bool *value)
{
  static const char *const words[2][3] = { { "false", "False", "FALSE" },
                                           { "true", "True", "TRUE" } };
  for (int truth = 0; truth < 2; truth++) {
    for (int i = 0; i < 3; i++) {
      if (strcmp(text, words[truth][i]) == 0) {
        *value = truth;
        return true;
      }
    }
  }
  return false;
}

void scalar_print_double(FILE *out, double value)
{
  char text[40];
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, value);
    if (strtod(text, NULL) == value) break;
  }
  fputs(text, out);
}
