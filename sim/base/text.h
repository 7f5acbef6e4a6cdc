/* How texts begin and end, and which of a list one is. */
#ifndef OFFSIM_SIM_BASE_TEXT_H
#define OFFSIM_SIM_BASE_TEXT_H

#include <stdbool.h>
#include <string.h>

static inline bool begins_with(const char *text, const char *with)
{
  return strncmp(text, with, strlen(with)) == 0;
}

static inline bool ends_with(const char *text, const char *with)
{
  size_t length = strlen(text), wanted = strlen(with);
  return length >= wanted && strcmp(text + length - wanted, with) == 0;
}

/* `words` ends with NULL. */
static inline bool is_one_of(const char *text, const char *const *words)
{
  while (*words != NULL && strcmp(*words, text) != 0)
    words++;
  return *words != NULL;
}

#endif
