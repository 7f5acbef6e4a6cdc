/*
 * Any bytes as a launch script, with a variable and an argument given and without.
 */
#include "tests/fuzz/fuzz.h"

#include <assert.h>
#include <string.h>

#include "sim/shell/shell.h"

static void evaluate_once(const uint8_t *data, size_t size, const shell_presets *presets)
{
  arena a = { 0 };
  diag d = { .quiet = true };
  shell_script s;
  bool good = shell_evaluate(&a, "-", (const char *)data, size, presets, &s, &d);
  assert(good == diag_ok(&d));
  for (uint32_t i = 0; good && i < s.count; i++) {
    const shell_command *c = &s.commands[i];
    assert(c->count > 0 && c->entry <= c->count);
    for (uint32_t j = 0; j < c->count; j++) {
      assert(strchr(c->words[j].text, 0xFF) == NULL);
    }
  }
  arena_release(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static const char *const environment[] = { "X=1", "HF_TOKEN=0123456789" };
  static const char *const arguments[] = { "--a", "2" };
  evaluate_once(data, size, &(shell_presets){ 0 });
  evaluate_once(data, size, &(shell_presets){ environment, arguments, 2, 2 });
  return 0;
}
