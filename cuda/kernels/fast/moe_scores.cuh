/* What the forward kernels of routers have in common: logits become scores, some of them. */
#ifndef OFFSIM_CUDA_KERNELS_FAST_MOE_SCORES_CUH
#define OFFSIM_CUDA_KERNELS_FAST_MOE_SCORES_CUH

#include "cuda/kernels/fast/moe_router.cuh"

static __device__ inline float score_of(router_score s, float x)
{
  if (s == ROUTER_SIGMOID) return 1.0f / (1.0f + expf(-x));
  float tail = log1pf(expf(-fabsf(x)));
  return sqrtf(x > 0 ? x + tail : tail);
}

/* Those of the lane's numbers whose bits are set become their softmax, the others 0. */
template <int PER> static __device__ inline void softmax(float *x, uint32_t some)
{
  float largest = -FLT_MAX, sum = 0;
#pragma unroll
  for (int j = 0; j < PER; j++)
    if (some >> j & 1) largest = fmaxf(largest, x[j]);
  largest = warp_largest(largest);
#pragma unroll
  for (int j = 0; j < PER; j++) {
    x[j] = some >> j & 1 ? expf(x[j] - largest) : 0;
    sum += x[j];
  }
  sum = warp_sum(sum);
#pragma unroll
  for (int j = 0; j < PER; j++)
    x[j] /= sum;
}

/* Those become what they are of their sum, the others 0. */
template <int PER> static __device__ inline void normalise(float *x, uint32_t some)
{
  float sum = 0;
#pragma unroll
  for (int j = 0; j < PER; j++)
    sum += some >> j & 1 ? x[j] : 0;
  sum = warp_sum(sum) + 1e-20f;
#pragma unroll
  for (int j = 0; j < PER; j++)
    x[j] = some >> j & 1 ? x[j] / sum : 0;
}

template <int PER>
static __device__ inline void store_map(const router &r, const layout &to, int32_t token,
                                        uint32_t own, uint32_t chosen)
{
#pragma unroll
  for (int j = 0; j < PER; j++)
    if (own >> j & 1)
      store_index(to, (uint32_t)(token * r.l.experts + own_lane() + j * 32), chosen >> j & 1);
}

/* ---- operands ------------------------------------------------------------------------------- */

/* Reads logits; writes probabilities, map, scores. */
static inline bool forward_of(const exec_call *c, int first, router *r)
{
  *r = router_of(c, small_dim(c, TOPK), first);
  r->score = (router_score)c->call->scalars[SCORE];
  int64_t cells = (int64_t)r->l.tokens * r->l.experts;
  return limits_suit(r->l) && cells < INT32_MAX && numbers_suit(c->reads[0], cells, &r->in[0]) &&
         numbers_suit(c->writes[0], cells, &r->out[0]) &&
         indices_suit(c->writes[1], cells, &r->out[1]) &&
         numbers_suit(c->writes[2], cells, &r->out[2]);
}

#endif
