/* What the kernels of routers have in common: a warp for each token. */
#ifndef OFFSIM_CUDA_KERNELS_FAST_MOE_ROUTER_CUH
#define OFFSIM_CUDA_KERNELS_FAST_MOE_ROUTER_CUH

#include "cuda/kernels/fast/moe_choice.cuh"

enum { TOKENS, EXPERTS, TOPK };             /* dims */
enum { SCORE, GROUPS, GROUP_TOPK, FORCED }; /* scalars */

struct router {
  expert_limits l;
  router_score score;
  layout in[3], out[3]; /* as ref/kernels/moe_router.c has them */
};

static __device__ inline bool is_softmax(router_score s)
{
  return s == ROUTER_SOFTMAX || s == ROUTER_PRE_SOFTMAX;
}

template <int PER>
static __device__ inline void load_scores(const router &r, const layout &from, int32_t token,
                                          uint32_t own, float *x)
{
#pragma unroll
  for (int j = 0; j < PER; j++)
    x[j] =
        own >> j & 1 ? number_at(from, (uint32_t)(token * r.l.experts + own_lane() + j * 32)) : 0;
}

template <int PER>
static __device__ inline void store_scores(const router &r, const layout &to, int32_t token,
                                           uint32_t own, const float *x)
{
#pragma unroll
  for (int j = 0; j < PER; j++)
    if (own >> j & 1)
      store_one(to, place_of(to, (uint32_t)(token * r.l.experts + own_lane() + j * 32)), x[j]);
}

/* ---- operands ------------------------------------------------------------------------------- */

static inline int32_t small_dim(const exec_call *c, int i)
{
  int64_t dim = c->call->dims[i];
  return dim < INT32_MAX ? (int32_t)dim : 0;
}

/* Of a call whose scalars from `first` on limit the choice; 0 or less: nothing does. */
static inline router router_of(const exec_call *c, int32_t k, int first)
{
  router r = {};
  r.l.tokens = small_dim(c, TOKENS);
  r.l.experts = small_dim(c, EXPERTS);
  r.l.k = k;
  if (first < 0) return r;
  r.l.groups = (int32_t)c->call->scalars[first];
  r.l.group_topk = (int32_t)c->call->scalars[first + 1];
  r.l.forced = c->call->scalars[first + 2] != 0;
  return r;
}

#endif
