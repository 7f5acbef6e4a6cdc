/*
 * What check_fast tries: calls of kernels, each with operands of its own. A family of kernels adds
 * its cases by a function of FAST_FAMILIES.
 *
 *     fast_case *c = add_case(cases, "rmsnorm 8192 x 4096", KERNEL_RMSNORM_FORWARD);
 *     set_dims(c, 2, 8192L, 4096L);
 *     c->scalars[0] = 1e-5;
 *     add_read(c, DTYPE_BF16, DATA_NORMAL, 1, 8192L * 4096L);
 *     ...
 *     add_write(c, DTYPE_BF16, 1, 8192L * 4096L);
 *     c->bytes = ...;                          // what it moves, for GB/s; or c->flops, for TFLOP/s
 */
#ifndef OFFSIM_TESTS_GPU_FAST_CASES_H
#define OFFSIM_TESTS_GPU_FAST_CASES_H

#include "cuda/kernels/kernel.h"

enum { FAST_OPERANDS = 160, FAST_NAME = 64 };

/* An operand's contents before the call. */
typedef enum fast_data {
  DATA_ZERO,
  DATA_NORMAL,   /* mean 0, deviation 1 */
  DATA_SMALL,    /* ... 1/32: weights */
  DATA_POSITIVE, /* from 0.5 to 1.5 */
  DATA_INTEGERS, /* 0 .. limit - 1 */
  DATA_COUNTS,   /* numbers of rows of experts, uneven, `limit` in all */
  DATA_FP8,   /* bytes: a copy in fp8 (sim/plan/fp8_copy.h) of code `limit`, of rows of `inner` */
  DATA_RESULT /* of an earlier case: what its fast kernel wrote */
} fast_data;

typedef struct fast_operand {
  exec_tensor tensor; /* data NULL */
  fast_data holds;
  int64_t limit, inner;
  uint32_t from_case, from_write; /* DATA_RESULT: number of cases back, and which write */
} fast_operand;

typedef struct fast_case {
  char name[FAST_NAME];
  plan_call call;
  fast_operand reads[FAST_OPERANDS], writes[8];
  uint32_t read_count, write_count;
  double flops, bytes;
  bool timed_only; /* too large for the CPU */
} fast_case;

typedef struct fast_cases {
  fast_case *items;
  uint32_t count, capacity;
} fast_cases;

fast_case *add_case(fast_cases *cases, const char *name, kernel_kind kind);
void set_dims(fast_case *c, int count, ...); /* int64_t each */
/* Contiguous, with `rank` dimensions: int64_t each. Valid until the next operand. */
fast_operand *add_read(fast_case *c, dtype type, fast_data holds, int rank, ...);
fast_operand *add_write(fast_case *c, dtype type, int rank, ...); /* initially zeros */

/* A family is one file, check_NAME.c. */
#define FAST_FAMILIES(X) X(products)

#define FAST_FAMILY(name) void add_##name##_cases(fast_cases *cases);
FAST_FAMILIES(FAST_FAMILY)
#undef FAST_FAMILY

#endif
