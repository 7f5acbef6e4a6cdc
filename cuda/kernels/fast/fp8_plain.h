/*
 * A product in fp8 as one in bf16, of the numbers that its factors encode: for scales and layouts
 * that Hopper's tensor cores do not support. The factors are written to scratch memory first.
 */
#ifndef OFFSIM_CUDA_KERNELS_FAST_FP8_PLAIN_H
#define OFFSIM_CUDA_KERNELS_FAST_FP8_PLAIN_H

#include "cuda/kernels/fast/fp8_values.h"
#include "cuda/kernels/fast/grouped.h"

enum { FP8_PLAIN_READS = 2 * GROUPED_EXPERTS_MOST + 2 };

typedef struct fp8_plain {
  exec_call of; /* gemm or grouped_gemm, whose reads and call are those below */
  plan_call call;
  exec_tensor reads[FP8_PLAIN_READS];
  fp8_source copies[2];
  uint32_t copy_count, weight_count; /* weights are reads 1 .. weight_count */
  fp8_weight weight;                 /* any of them; of one operand, `experts` */
  int64_t experts;
  int64_t bytes; /* of scratch */
} fp8_plain;

/* `scratch` NULL: only counts p->bytes. False: the operands have another layout. */
bool fp8_plain_of(const exec_call *c, char *scratch, fp8_plain *p);
/* Writes the factors. */
void fp8_plain_fill(cuda_call *c, const fp8_plain *p, const exec_call *original);

#endif
