/*
 * Kernels of low-rank adapters and 4-bit weights: PyTorch's addmm with a factor, as Axolotl's fused
 * linears call it (src/axolotl/kernels/lora.py), and bitsandbytes 0.49.1 (functional.py:
 * dequantize_4bit, dequantize_blockwise).
 */
#include <assert.h>
#include <stdlib.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/storage.h"
#include "sim/exec/code_books.h"

enum { SCALED_LAYOUT, SCALED_ALPHA };

/* Reads a, b and optionally an addend, which may be the written operand: alpha (a b) + addend,
 * where a b is the unrounded sum of gemm. */
void ref_scaled_gemm(const exec_call *c)
{
  int64_t elements = exec_dim(c, 0) * exec_dim(c, 1) * exec_dim(c, 3);
  real alpha = ref_scalar(c, SCALED_ALPHA), *product = ref_reals(elements);
  exec_tensor to = { .data = product,
                     .type = sizeof(real) == sizeof(float) ? DTYPE_FP32 : DTYPE_FP64,
                     .rank = 1,
                     .shape = { elements },
                     .strides = { 1 } };
  plan_call call = *c->call;
  exec_call plain = *c;
  call.kind = KERNEL_GEMM;
  for (int i = 0; i < PLAN_SCALARS; i++)
    call.scalars[i] = 0;
  call.scalars[GEMM_LAYOUT] = c->call->scalars[SCALED_LAYOUT];
  plain.call = &call;
  plain.read_count = 2;
  plain.writes = &to;
  assert(c->read_count == 2 || c->read_count == 3);
  ref_gemm(&plain);
  for (int64_t i = 0; i < elements; i++) {
    real x = alpha * product[i];
    if (c->read_count == 3) x += ref_load(&c->reads[2], i);
    ref_store(&c->writes[0], i, x);
  }
  free(product);
}

/* ---- quantised weights ---- */

/* Reads codes, a scale for each block of them; writes code book [code] times scale. */
void ref_dequantize_8bit(const exec_call *c)
{
  int64_t block = (int64_t)c->call->scalars[0];
  float codes[CODES_8BIT];
  assert(block > 0 && c->read_count == 2 && REF_WRITES(c, exec_dim(c, 0)));
  codes_8bit(codes);
  for (int64_t i = 0; i < exec_dim(c, 0); i++)
    ref_store(&c->writes[0], i,
              (real)codes[ref_load_int(&c->reads[0], i)] * ref_load(&c->reads[1], i / block));
}

/* The same for pairs of codes: the first element is the high half of its byte. */
void ref_dequantize_4bit(const exec_call *c)
{
  int64_t block = (int64_t)c->call->scalars[0];
  assert(block > 0 && c->read_count == 2 && REF_WRITES(c, exec_dim(c, 0)));
  for (int64_t i = 0; i < exec_dim(c, 0); i++) {
    int64_t pair = ref_load_int(&c->reads[0], i / 2), code = i % 2 == 0 ? pair >> 4 : pair & 15;
    ref_store(&c->writes[0], i, (real)codes_4bit[code] * ref_load(&c->reads[1], i / block));
  }
}
