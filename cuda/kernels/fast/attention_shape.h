/*
 * A call of attention: its sizes, and where the rows of each operand are.
 */
#ifndef OFFSIM_CUDA_KERNELS_FAST_ATTENTION_SHAPE_H
#define OFFSIM_CUDA_KERNELS_FAST_ATTENTION_SHAPE_H

#ifdef __cplusplus
extern "C" {
#endif

#include "cuda/kernels/kernel.h"

/* bf16 [batch, heads, rows, columns]; columns are adjacent. Strides in elements. */
typedef struct attention_operand {
  void *data;
  int64_t batch_stride, head_stride, row_stride;
} attention_operand;

/* In the order of the call's reads and writes. */
enum { FORWARD_QUERY, FORWARD_KEY, FORWARD_VALUE, FORWARD_OUTPUT, FORWARD_OPERANDS };
enum {
  BACKWARD_OUTPUT_GRADIENT,
  BACKWARD_QUERY,
  BACKWARD_KEY,
  BACKWARD_VALUE,
  BACKWARD_OUTPUT,
  BACKWARD_QUERY_GRADIENT,
  BACKWARD_KEY_GRADIENT,
  BACKWARD_VALUE_GRADIENT,
  BACKWARD_OPERANDS
};
enum { ATTENTION_OPERANDS = BACKWARD_OPERANDS };

typedef struct attention_shape {
  int64_t batch, heads, kv_heads, queries, keys, qk, v; /* qk, v: columns */
  bool causal;
  float scale;
  attention_operand operands[ATTENTION_OPERANDS];
  float *log_sums; /* [batch, heads, queries]: of the exponentials of a row's scores */
} attention_shape;

/* False: not in bf16, with dropout, with a window, with the keys of other ranks, or with rows that are
 * apart in a way that kernels cannot take. */
bool attention_forward_shape(const exec_call *c, attention_shape *a);
bool attention_backward_shape(const exec_call *c, attention_shape *a);

#ifdef __cplusplus
}
#endif

#endif
