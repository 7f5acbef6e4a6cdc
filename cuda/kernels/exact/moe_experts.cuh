/* Parameters of the local experts: one operand, or one for each (ref/kernels/moe_experts.c). */
#ifndef OFFSIM_CUDA_KERNELS_EXACT_MOE_EXPERTS_CUH
#define OFFSIM_CUDA_KERNELS_EXACT_MOE_EXPERTS_CUH

#include "cuda/kernels/exact/moe_rows.cuh"

/* The last read operand, if it is an index. */
static inline const tensor *index_of(const exec_call *c)
{
  const tensor *last = &c->reads[c->read_count - 1];
  return last->type == DTYPE_INT32 || last->type == DTYPE_INT64 ? last : NULL;
}

/* The number of operands for each parameter, if `others` operands are not parameters. */
static inline uint32_t parts_of(const exec_call *c, uint32_t others, uint32_t parameters,
                                int64_t experts)
{
  uint32_t parts = (c->read_count - others - (index_of(c) != NULL)) / parameters;
  assert(parts == 1 || parts == experts);
  return parts;
}

/* The rows from the first one to the end of the last that belongs to an expert. */
DEVICE static inline int64_t rows_of_experts(const row_span *spans, int64_t experts)
{
  return experts == 0 ? 0 : spans[experts - 1].first + spans[experts - 1].count;
}

#endif
