/*
 * Bytes that begin as a record of a real run does.
 */
#include <string.h>

#include "tests/fuzz/real_run_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  bool fits = size >= 8 && memcmp(data, "{\"real_r", 8) == 0;
  return fits ? read_as_real_run(data, size) : 0;
}
