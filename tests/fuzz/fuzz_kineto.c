/*
 * Bytes that begin as a profiler's trace does.
 */
#include <string.h>

#include "tests/fuzz/real_run_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  bool fits = size > 0 && (data[0] == '{' || data[0] == ' ') &&
              (size < 8 || memcmp(data, "{\"real_r", 8) != 0) &&
              (size < 8 || memcmp(data, "{\"format", 8) != 0);
  return fits ? read_as_real_run(data, size) : 0;
}
