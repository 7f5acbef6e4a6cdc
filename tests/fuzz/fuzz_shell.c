#include "tests/fuzz/fuzz.h"

#include <assert.h>

#include "sim/text/shell_words.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  arena a = { 0 };
  diag d = { .quiet = true };
  shell_text t;
  bool good = shell_split(&a, "input", (const char *)data, size, &t, &d);
  assert(good == diag_ok(&d));
  if (good) assert(t.word_count + t.assignment_count <= size);
  arena_release(&a);
  return 0;
}
