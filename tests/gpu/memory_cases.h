/*
 * Calls for check_memory: small ones with odd shapes, and large ones as real plans have them.
 *
 * An operand is TYPE:SHAPE[/STRIDES][+OFFSET][DATA], sizes in elements. DATA: "<N" whole numbers
 * below N, "<N!" some of which are -100, ">" positive numbers; else numbers around 0. "=K" in what
 * is written: the operand that is read as number K.
 */
#ifndef OFFSIM_TESTS_GPU_MEMORY_CASES_H
#define OFFSIM_TESTS_GPU_MEMORY_CASES_H

#include <stddef.h>

typedef struct memory_case {
  const char *row; /* of PLAN_KERNELS */
  const char *dims, *scalars, *reads, *writes;
} memory_case;

extern const memory_case memory_cases[];
extern const size_t memory_case_count;

#endif
