/*
 * Any bytes as a scenario; what it accepts is resolved, printed, and has to print the same again.
 */
#include "sim/offload/systems.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "sim/config/settings.h"

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
    const char *printed = settings_text(&s, &a);
    if (!read_and_resolve(&s, printed, strlen(printed), &a, &d)) abort();
    if (strcmp(printed, settings_text(&s, &a)) != 0) abort();
  }
  arena_release(&a);
  return 0;
}
