/* What a kernel is given, by the letters of sim/plan/kernels.h: the twins of exec_dim and
 * ref_scalar. */
#ifndef OFFSIM_CUDA_KERNELS_OPERANDS_CUH
#define OFFSIM_CUDA_KERNELS_OPERANDS_CUH

#include <assert.h>

#include "cuda/kernels/tensor.cuh"

static inline int64_t dim_of(const exec_call *c, uint32_t i)
{
  return c->call->dims[i];
}

static inline float scalar_of(const exec_call *c, uint32_t i)
{
  return (float)c->call->scalars[i];
}

/* The same elements by as few dimensions as can be: an element is found faster. */
static inline tensor merged(tensor t)
{
  int rank = 0;
  for (int d = 0; d < t.rank; d++) {
    if (t.shape[d] == 1) continue;
    if (rank > 0 && t.strides[rank - 1] == t.shape[d] * t.strides[d]) {
      t.shape[rank - 1] *= t.shape[d];
    } else {
      t.shape[rank] = t.shape[d];
      rank++;
    }
    t.strides[rank - 1] = t.strides[d];
  }
  t.rank = (uint8_t)rank;
  return t;
}

static inline tensor read_of(const exec_call *c, uint32_t i)
{
  return merged(c->reads[i]);
}

static inline tensor write_of(const exec_call *c, uint32_t i)
{
  return merged(c->writes[i]);
}

/* The last is number 1: what comes before may be unused scratch. */
static inline tensor write_from_end(const exec_call *c, uint32_t back)
{
  return merged(c->writes[c->write_count - back]);
}

EXACT_FUNCTION int64_t least(int64_t a, int64_t b)
{
  return a < b ? a : b;
}

/* Sets all elements to 0, integers too. */
static inline void clear(cuda_call *c, tensor t)
{
  tensor all = is_words(t) ? as_words(t) : t;
  for_each(
      c, elements_of(all), KERNEL_LAMBDA(int64_t i) { clear_element(all, i); });
}

#endif
