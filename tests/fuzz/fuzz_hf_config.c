/*
 * Any bytes as a Hugging Face config.json.
 */
#include "tests/fuzz/fuzz.h"

#include "sim/config/hf/hf_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  arena a = { 0 };
  diag d = { .quiet = true };
  settings s;
  settings_init(&s, &a);
  const char *text = arena_strndup(&a, (const char *)data, size);
  hf_config_facts facts;
  if (hf_config_parse(&s, "fuzz", text, size, &facts, &a, &d)) hf_config_assume(&s, &facts, &a, &d);
  arena_release(&a);
  return 0;
}
