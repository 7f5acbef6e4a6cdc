/*
 * Runs a fuzz target on the files that it is given, without libFuzzer.
 */
#include <stdio.h>

#include "sim/base/arena.h"
#include "sim/base/diag.h"
#include "sim/base/file.h"
#include "tests/fuzz/fuzz.h"

/* Seeds may be longer than what offsim reads: refusing them is part of the test. */
enum { SEED_LIMIT_BYTES = 2 * FILE_TEXT_LIMIT_BYTES };

int main(int argc, char **argv)
{
  for (int i = 1; i < argc; i++) {
    arena a = { 0 };
    diag d = { 0 };
    size_t length = 0;
    const char *bytes = file_read(&a, argv[i], SEED_LIMIT_BYTES, &length, &d);
    if (!bytes) return diag_finish(&d);
    LLVMFuzzerTestOneInput((const uint8_t *)bytes, length);
    arena_release(&a);
  }
  printf("%d inputs\n", argc - 1);
  return 0;
}
