#include "sim/cli/ranks.h"

#include <stdlib.h>
#include <string.h>

static const source_pos option = { "--trace-ranks", 0, 0 };

static bool wrong(const char *text, diag *d)
{
  return diag_error(d, option, "\"%s\": expected ranks such as 0,2 or 1-3", text);
}

/* A number of at most nine digits; false: there is none. */
static bool take_number(const char **at, uint32_t *number)
{
  size_t digits = strspn(*at, "0123456789");
  if (digits == 0 || digits > 9) return false;
  *number = (uint32_t)strtoul(*at, NULL, 10);
  *at += digits;
  return true;
}

static bool take_range(const char **at, uint32_t *from, uint32_t *to)
{
  if (!take_number(at, from)) return false;
  *to = *from;
  if (**at != '-') return true;
  ++*at;
  return take_number(at, to) && *from <= *to;
}

static bool name_ranks(const char *text, bool *named, uint32_t count, diag *d)
{
  for (const char *at = text;; at++) {
    uint32_t from, to;
    if (!take_range(&at, &from, &to)) return wrong(text, d);
    if (to >= count) return diag_error(d, option, "there is no rank %u; there are %u", to, count);
    for (uint32_t i = from; i <= to; i++)
      named[i] = true;
    if (*at == '\0') return true;
    if (*at != ',') return wrong(text, d);
  }
}

const bool *ranks_named(const char *text, uint32_t count, arena *a, diag *d)
{
  bool *named = ARENA_ARRAY(a, bool, count);
  for (uint32_t i = 0; i < count; i++)
    named[i] = text == NULL;
  return text == NULL || name_ranks(text, named, count, d) ? named : NULL;
}

uint32_t first_rank(const bool *named)
{
  uint32_t first = 0;
  while (!named[first])
    first++;
  return first;
}
