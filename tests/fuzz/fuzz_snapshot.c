/*
 * Bytes that begin as a memory snapshot does.
 */
#include "tests/fuzz/real_run_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  bool fits = size > 0 && data[0] == 0x80;
  return fits ? read_as_real_run(data, size) : 0;
}
