/*
 * Any bytes as Megatron arguments: shell text or mapping, with unknown options refused and skipped.
 */
#include "tests/fuzz/fuzz.h"

#include "sim/config/megatron/args.h"

static void read_once(const char *text, size_t size, bool ignore_unknown)
{
  const megatron_args_options options = { .ignore_unknown = ignore_unknown };
  arena a = { 0 };
  diag d = { .quiet = true };
  settings s;
  settings_init(&s, &a);
  megatron_args_parse(&s, "fuzz", text, size, &options, &a, &d);
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
