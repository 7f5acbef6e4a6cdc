/* How many threads a verb uses. */
#ifndef OFFSIM_SIM_CLI_THREADS_H
#define OFFSIM_SIM_CLI_THREADS_H

#include <stdint.h>
#include <unistd.h>

#include "sim/world/world.h"

enum { MOST_THREADS = 1024 };

/* What --threads asked for, or one for each core that this process has. */
static inline uint32_t threads_or_cores(int64_t asked)
{
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  if (asked > 0) return (uint32_t)asked;
  cores /= world_of().host_processes;
  return cores < 1 ? 1 : cores > MOST_THREADS ? MOST_THREADS : (uint32_t)cores;
}

#endif
