/*
 * What a trace's host issued, in that order. Private to sim/fit.
 */
#ifndef OFFSIM_SIM_FIT_ISSUES_H
#define OFFSIM_SIM_FIT_ISSUES_H

#include "sim/fit/fit.h"
#include "traces/import/run_summary.h"

/* Work on a stream with the call that issued it. */
typedef struct issue {
  int64_t at_ns, done_ns; /* of the call; without calls, the begin of the work */
  int64_t ps; /* of copies and communication the whole; kernels that run at one time share it */
  uint32_t span;
  fit_class class;
} issue;

/* Something of which the host's time is a running sum: `total` up to and with `at_ns`. */
typedef struct host_sum {
  int64_t at_ns, total;
} host_sum;

typedef struct host_sums {
  host_sum *items;
  uint32_t count;
} host_sums;

typedef struct issues {
  const real_run *run;
  issue *items; /* [count], by call */
  uint32_t count;
  bool has_calls;
  int64_t begin_ns, end_ns; /* of the step: the profiler's, or of all */
  host_sums events;         /* their number, which profilers slow down */
  host_sums blocked_ns;     /* calls that wait for the GPU */
} issues;

issues issues_of(const real_run *r, arena *a);

/* Of the time after `from_ns` up to and with `to_ns`. */
int64_t host_sum_between(const host_sums *s, int64_t from_ns, int64_t to_ns);

#endif
