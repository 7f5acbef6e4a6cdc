/* Labels of tokens as columns of a row. */
#ifndef OFFSIM_CUDA_KERNELS_FAST_LABELS_CUH
#define OFFSIM_CUDA_KERNELS_FAST_LABELS_CUH

#include "cuda/kernels/fast/row_pass.cuh"

/* Of a vocabulary that is split over ranks, this rank's part begins at `first`. */
struct own_labels {
  layout labels;
  int64_t first;
  int32_t columns;
  /* -1: another rank's, or none. */
  __device__ int32_t of(uint32_t token) const
  {
    int64_t label = index_at(labels, token) - first;
    return label >= 0 && label < columns ? (int32_t)label : -1;
  }
};

static inline bool own_labels_of(const exec_call *c, const tensor &t, own_labels *l)
{
  l->columns = (int32_t)c->call->dims[1];
  l->first = c->call->dims[1] * c->rank->group[GROUP_TP].index;
  return indices_suit(t, c->call->dims[0], &l->labels);
}

/* A call's label that is `ignored` counts for nothing. */
static inline bool all_labels_of(const exec_call *c, const tensor &t, own_labels *l)
{
  l->columns = (int32_t)c->call->dims[1];
  l->first = 0;
  return indices_suit(t, c->call->dims[0], &l->labels) &&
         (c->call->scalars[0] < 0 || c->call->scalars[0] >= (double)c->call->dims[1]);
}

/* The element of `x`, from `column` on, that the label picks. */
template <int V> static __device__ inline bool picks(int32_t label, int32_t column)
{
  return label >= column && label < column + V;
}

template <int V>
static __device__ inline float picked(int32_t label, int32_t column, const float *x)
{
  float value = 0;
#pragma unroll
  for (int j = 0; j < V; j++)
    if (label == column + j) value = x[j];
  return value;
}

/* A rule as the functions of a row: R::of(c, rule, operands) gives the vector, 0: it does not
 * suit. */
#define ROW_PASS_KERNEL(name, rule)                                                                \
  KERNEL_SUITS(name)                                                                               \
  {                                                                                                \
    row_operands<rule::INPUTS> o;                                                                  \
    rule r;                                                                                        \
    return rule::of(c, &r, &o) != 0;                                                               \
  }                                                                                                \
  KERNEL_LAUNCH(name)                                                                              \
  {                                                                                                \
    row_operands<rule::INPUTS> o;                                                                  \
    rule r;                                                                                        \
    int v = rule::of(c->of, &r, &o);                                                               \
    row_pass(c, v, o, r);                                                                          \
  }

#endif
