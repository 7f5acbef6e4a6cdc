#include "sim/config/checks.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static source_pos position(const settings *s, setting_key key, setting_key other)
{
  return s->given[key] ? s->at[key] : s->at[other];
}

bool need(const settings *s, diag *d, bool holds, setting_key key, setting_key other,
          const char *format, ...)
{
  if (holds) {
    return true;
  }
  char message[800];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return diag_error(d, position(s, key, other), "%s", message);
}

static int64_t int_value(const settings *s, setting_key key)
{
  return *(const int64_t *)key_member_const(s, key);
}

bool need_multiple(const settings *s, diag *d, setting_key key, setting_key divisor)
{
  int64_t value = int_value(s, key), by = int_value(s, divisor);

  return need(s, d, value % by == 0, key, divisor,
              "%s is %" PRId64 "; it must be divisible by %s (%" PRId64 ")", key_rows[key].name,
              value, key_rows[divisor].name, by);
}

bool need_given(const settings *s, diag *d, setting_key key)
{
  bool of_model = strcmp(key_rows[key].section, "model") == 0;
  return need(s, d, int_value(s, key) != UNSET, key, key,
              "%s.%s is not given and has no default; write it in a scenario, or --set %s=N%s",
              key_rows[key].section, key_rows[key].name, key_rows[key].name,
              of_model ? ", or --hf-config FILE of the model" : "");
}
