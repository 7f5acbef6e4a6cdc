/* What the benchmarks of whole configurations share: reading the case, and clocks. */
#ifndef OFFSIM_TESTS_BENCH_CASE_H
#define OFFSIM_TESTS_BENCH_CASE_H

#include <sys/resource.h>
#include <time.h>

#include "sim/base/file.h"
#include "sim/config/settings.h"
#include "sim/machine/machine.h"

static inline double now_s(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline double reached_bytes(void)
{
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  return 1024.0 * (double)used.ru_maxrss;
}

/* The settings are not resolved yet. */
static inline const machine *read_case(settings *s, const char *path, arena *a, diag *d)
{
  size_t length;
  settings_init(s, a);
  char *text = file_read(a, path, FILE_TEXT_LIMIT_BYTES, &length, d);
  if (text == NULL || !settings_read_scenario(s, path, text, length, a, d)) return NULL;
  const machine *m = machine_load(a, s->machine.name, d);
  if (m != NULL) s->derived.compute_capability = (int)m->gpu.compute_capability;
  return m;
}

#endif
