#include "cuda/measure/cupti.h"

#include <stddef.h>

/* Records differ between major versions: it must be the header's. */
static const library cupti_library = {
  .name = "CUPTI",
  .files = { "libcupti.so.13", "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13" },
  .advice = "times of ops need NVIDIA's CUPTI 13, which is part of the CUDA toolkit",
  .functions = { CUPTI_FUNCTIONS(LIBRARY_NAME) },
};

const cupti *cupti_load(diag *d)
{
  static cupti loaded;
  return library_open(&cupti_library, &loaded, d) ? &loaded : NULL;
}

bool cupti_check(const cupti *c, CUptiResult result, const char *call, diag *d)
{
  const char *reason = NULL;
  if (result == CUPTI_SUCCESS) return true;
  c->cuptiGetResultString(result, &reason);
  return diag_refused(d, "times of ops: %s: %s", call, reason == NULL ? "unknown error" : reason);
}
