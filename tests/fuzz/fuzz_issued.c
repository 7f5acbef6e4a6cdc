/*
 * Any bytes as a record of offsim record: races, or one message.
 */
#include <assert.h>

#include "tests/fuzz/fuzz.h"
#include "traces/races/races.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  arena a = { 0 };
  diag d = { .quiet = true };
  races r;
  bool good = races_find_bytes(&r, data, size, &a, &d);
  assert(good == diag_ok(&d));
  assert(r.count <= r.found && r.count <= RACES_KEPT);
  races_release(&r);
  arena_release(&a);
  return 0;
}
