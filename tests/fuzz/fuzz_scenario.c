/*
 * Any bytes as a scenario; what it accepts is resolved, printed, and has to print the same again.
 */
#include "sim/offload/systems.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/config/settings.h"

static const char *print(const settings *s, arena *a, size_t *length)
{
  char *text;
  FILE *memory = open_memstream(&text, length);
  settings_print(s, memory);
  fclose(memory);
  const char *copy = arena_strndup(a, text, *length);
  free(text);
  return copy;
}

static bool read_and_resolve(settings *s, const char *text, size_t length, arena *a, diag *d)
{
  settings_init(s, a);
  return settings_read_scenario(s, "fuzz", text, length, a, d) &&
         settings_resolve(s, offload_conditions, a, d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  arena a = { 0 };
  diag d = { .quiet = true };
  settings s;

  const char *text = arena_strndup(&a, (const char *)data, size);
  if (read_and_resolve(&s, text, size, &a, &d)) {
    size_t length, again_length;
    const char *printed = print(&s, &a, &length);
    if (!read_and_resolve(&s, printed, length, &a, &d)) abort();
    if (strcmp(printed, print(&s, &a, &again_length)) != 0) abort();
  }
  arena_release(&a);
  return 0;
}
