/*
 * Bytes that begin as an SQLite file does, as an export of Nsight Systems.
 */
#include <string.h>

#include "tests/fuzz/real_run_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  bool fits = size >= 15 && memcmp(data, "SQLite format 3", 15) == 0;
  return fits ? read_as_real_run(data, size) : 0;
}
