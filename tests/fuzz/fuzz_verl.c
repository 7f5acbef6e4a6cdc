/*
 * Any bytes as a verl configuration: YAML or shell text, with unknown keys refused and skipped.
 */
#include "tests/fuzz/fuzz.h"

#include "sim/config/verl/verl.h"

static void read_once(const char *text, size_t size, bool ignore_unknown)
{
  const verl_options options = { .ignore_unknown = ignore_unknown };
  arena a = { 0 };
  diag d = { .quiet = true };
  settings s;
  settings_init(&s, &a);
  /* What comes after the model's shape is only reached with one. */
  settings_set(&s, "model.num_layers", "4", (source_pos){ 0 }, &a, &d);
  verl_parse(&s, "fuzz", text, size, &options, &a, &d);
  arena_release(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  arena a = { 0 };
  const char *text = arena_strndup(&a, (const char *)data, size);
  read_once(text, size, false);
  read_once(text, size, true);
  arena_release(&a);
  return 0;
}
