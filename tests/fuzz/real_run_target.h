/*
 * Any bytes as a file of a real run: what is read gives a summary, and writes and reads back.
 */
#ifndef OFFSIM_TESTS_FUZZ_REAL_RUN_TARGET_H
#define OFFSIM_TESTS_FUZZ_REAL_RUN_TARGET_H

#include <assert.h>

#include "tests/fuzz/fuzz.h"
#include "traces/import/run_memory.h"
#include "traces/import/run_summary.h"

static inline void check_real_run(const real_run *r, arena *a)
{
  run_summary s = run_summary_of(r, a);
  assert(s.kernel_busy_ns <= s.work_busy_ns && s.d2h.exposed_ns <= s.d2h.busy_ns);
  if (!r->has_memory) return;
  run_memory m = run_memory_of(r, a);
  int64_t owned = 0;
  for (uint32_t i = 0; i < m.allocated.owner_count; i++)
    owned += m.allocated.owners[i].bytes;
  assert(owned == m.allocated.bytes && m.active.bytes >= m.allocated.bytes);
}

static inline int read_as_real_run(const uint8_t *data, size_t size)
{
  arena a = { 0 };
  diag d = { .quiet = true };
  real_run r;
  real_run_init(&r, &a);
  bool good = real_run_read_bytes(&r, "fuzz", data, size, &d);
  assert(good == diag_ok(&d));
  if (good && real_run_finish(&r, &d)) check_real_run(&r, &a);
  real_run_release(&r);
  arena_release(&a);
  return 0;
}

#endif
