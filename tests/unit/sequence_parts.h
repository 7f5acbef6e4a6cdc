/* For tests of kernels that know which part of a sequence their rank has. */
#ifndef OFFSIM_TESTS_UNIT_SEQUENCE_PARTS_H
#define OFFSIM_TESTS_UNIT_SEQUENCE_PARTS_H

#include "tests/unit/finite_difference.h"

/* As the rank that has `part` of the sequence; operands without data end their list. */
static inline void run_as(kernel_call k, exec_position part, const exec_tensor *reads,
                          const exec_tensor *writes)
{
  plan_call call = { .kind = (uint8_t)k.kind };
  exec_rank rank = { .group = { [GROUP_CP] = part } };
  exec_step step = { .seed = 7 };
  plan_site site = { .module = "tested" };
  exec_call c = {
    .call = &call, .reads = reads, .writes = writes, .site = &site, .rank = &rank, .step = &step
  };
  memcpy(call.dims, k.dims, sizeof call.dims);
  memcpy(call.scalars, k.scalars, sizeof call.scalars);
  while (reads[c.read_count].data != NULL)
    c.read_count++;
  while (writes[c.write_count].data != NULL)
    c.write_count++;
  ref_kernels[k.kind](&c);
}

static inline void assert_near(double a, double b)
{
  if (magnitude_of(a - b) > 1e-14) fail_msg("%.17g is not %.17g", a, b);
}

static inline exec_tensor flat(double *data, int64_t count)
{
  return numbers(data, count, 0);
}

#endif
