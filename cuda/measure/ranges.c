#define _GNU_SOURCE /* syscall, which NVTX's header calls */

#include "cuda/measure/ranges.h"

#include <nvtx3/nvToolsExt.h>
#include <sys/syscall.h>
#include <unistd.h>

void range_begin(const char *name)
{
  nvtxRangePushA(name);
}

void range_end(void)
{
  nvtxRangePop();
}

void range_name_thread(const char *name)
{
  nvtxNameOsThreadA((uint32_t)syscall(SYS_gettid), name);
}
