/*
 * Bytes that begin as a record of offsim record does, as a real run.
 */
#include <string.h>

#include "tests/fuzz/real_run_target.h"
#include "traces/issued/rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  bool fits = size >= ISSUED_MAGIC_BYTES && memcmp(data, ISSUED_MAGIC, ISSUED_MAGIC_BYTES) == 0;
  return fits ? read_as_real_run(data, size) : 0;
}
