/*
 * Any bytes as an Axolotl file, for a small model.
 */
#include "sim/offload/systems.h"
#include "tests/fuzz/fuzz.h"

#include "sim/config/axolotl/axolotl.h"

static void give_model(settings *s, arena *a, diag *d)
{
  static const char *const sets[][2] = { { "num_layers", "2" },
                                         { "hidden_size", "64" },
                                         { "num_attention_heads", "4" },
                                         { "vocab_size", "128" } };
  for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
    settings_set(s, sets[i][0], sets[i][1], (source_pos){ 0 }, a, d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  arena a = { 0 };
  diag d = { .quiet = true };
  settings s;
  settings_init(&s, &a);
  give_model(&s, &a, &d);
  const char *text = arena_strndup(&a, (const char *)data, size);
  axolotl_options options = { .ignore_unknown = true };
  if (axolotl_parse(&s, "fuzz", text, size, &options, &a, &d))
    settings_resolve(&s, offload_conditions, &a, &d);
  arena_release(&a);
  return 0;
}
