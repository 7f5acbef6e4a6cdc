/* The beginnings and ends of texts. */
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

#endif
