/* Patterns of `case`, [[ == ]] and ${x%p}: * ? [a-z] and backslashes. */
#include <string.h>

#include "sim/shell/parts.h"

bool has_extended_pattern(const char *pattern)
{
  for (const char *p = pattern; *p != '\0'; p++) {
    if (*p == '\\' && p[1] != '\0')
      p++;
    else if (strchr("?*+@!", *p) != NULL && p[1] == '(')
      return true;
  }
  return false;
}

typedef struct character_class {
  const char *name, *ranges; /* pairs of first and last */
} character_class;

static const character_class classes[] = {
  { "[:alnum:]", "azAZ09" }, { "[:alpha:]", "azAZ" },   { "[:digit:]", "09" },
  { "[:lower:]", "az" },     { "[:upper:]", "AZ" },     { "[:xdigit:]", "09afAF" },
  { "[:space:]", "\t\r  " }, { "[:blank:]", "\t\t  " }, { "[:punct:]", "!/:@[`{~" },
};

static bool in_class(const char *p, char c, size_t *length)
{
  for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
    *length = strlen(classes[i].name);
    if (strncmp(p, classes[i].name, *length) != 0) continue;
    for (const char *r = classes[i].ranges; *r != '\0'; r += 2) {
      if (c >= r[0] && c <= r[1]) return true;
    }
    return false;
  }
  *length = 0;
  return false;
}

/* [...] at `p`: the byte after it and whether c is in it; NULL: no bracket expression. */
static const char *bracket(const char *p, char c, bool *found)
{
  const char *start = ++p;
  bool negated = *p == '!' || *p == '^';
  p += negated;
  *found = false;
  const char *first = p;
  while (*p != ']' || p == first) {
    if (*p == '\0') return NULL;
    size_t class_length;
    bool of_class = in_class(p, c, &class_length);
    if (class_length > 0) {
      *found = *found || of_class;
      p += class_length;
      continue;
    }
    if (*p == '\\' && p[1] != '\0') p++;
    char low = *p++, high = low;
    if (*p == '-' && p[1] != ']' && p[1] != '\0') {
      p++;
      if (*p == '\\' && p[1] != '\0') p++;
      high = *p++;
    }
    *found = *found || (c >= low && c <= high);
  }
  (void)start;
  *found = *found != negated;
  return p + 1;
}

/* One character of the pattern against c: the rest of the pattern, or NULL. */
static const char *match_one(const char *pattern, char c)
{
  if (*pattern == '?') return pattern + 1;
  if (*pattern == '[') {
    bool found;
    const char *rest = bracket(pattern, c, &found);
    if (rest != NULL) return found ? rest : NULL;
  }
  if (*pattern == '\\' && pattern[1] != '\0') pattern++;
  return *pattern == c ? pattern + 1 : NULL;
}

/* With one step back: to the last `*`, which is enough. */
bool pattern_matches_part(const char *pattern, const char *text, size_t length)
{
  const char *end = text + length, *star = NULL, *star_text = NULL;
  for (;;) {
    if (*pattern == '*') {
      star = ++pattern;
      star_text = text;
      continue;
    }
    if (text == end && *pattern == '\0') return true;
    const char *rest = text < end && *pattern != '\0' ? match_one(pattern, *text) : NULL;
    if (rest != NULL) {
      pattern = rest;
      text++;
    } else if (star != NULL && star_text < end) {
      pattern = star;
      text = ++star_text;
    } else {
      return false;
    }
  }
}

bool pattern_matches(const char *pattern, const char *text)
{
  return pattern_matches_part(pattern, text, strlen(text));
}
