/*
 * A warp for each token: lane `l` has the experts l, l + 32, ..., PER of them. Sums and comparisons
 * over the warp go along one tree.
 */
#ifndef OFFSIM_CUDA_KERNELS_FAST_MOE_CHOICE_CUH
#define OFFSIM_CUDA_KERNELS_FAST_MOE_CHOICE_CUH

#include <float.h>

#include "cuda/kernels/fast/layout.cuh"

enum { CHOICE_LANES = 32, CHOICE_THREADS = 128, CHOICE_MOST_EXPERTS = 512 };

/* What is chosen among: see ref/kernels/moe_choice.h. */
struct expert_limits {
  int32_t tokens, experts, k;
  int32_t groups, group_topk; /* 0: all experts */
  bool forced;
};

static inline bool limits_suit(const expert_limits &l)
{
  return l.tokens > 0 && l.experts > 0 && l.experts <= CHOICE_MOST_EXPERTS && l.k > 0 &&
         l.k <= CHOICE_LANES && l.k <= l.experts &&
         (l.group_topk == 0 || (l.groups > 0 && l.groups <= CHOICE_LANES));
}

static inline uint32_t choice_blocks(const expert_limits &l)
{
  return blocks_of(l.tokens, CHOICE_THREADS / CHOICE_LANES);
}

static __device__ inline int32_t own_token(void)
{
  return (int32_t)((blockIdx.x * CHOICE_THREADS + threadIdx.x) / CHOICE_LANES);
}

static __device__ inline int32_t own_lane(void)
{
  return (int32_t)(threadIdx.x % CHOICE_LANES);
}

static __device__ inline float warp_sum(float x)
{
#pragma unroll
  for (int step = CHOICE_LANES / 2; step > 0; step /= 2)
    x += __shfl_xor_sync(0xffffffffU, x, step);
  return x;
}

static __device__ inline float warp_largest(float x)
{
#pragma unroll
  for (int step = CHOICE_LANES / 2; step > 0; step /= 2)
    x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, step));
  return x;
}

/* A number and where it is; -1: none. Of equal ones the first is better. */
struct candidate {
  float x;
  int32_t at;
};

static __device__ inline candidate better(candidate a, candidate b)
{
  bool second = b.at >= 0 && (a.at < 0 || b.x > a.x || (b.x == a.x && b.at < a.at));
  return second ? b : a;
}

static __device__ inline candidate warp_best(candidate best)
{
#pragma unroll
  for (int step = CHOICE_LANES / 2; step > 0; step /= 2) {
    candidate other = { __shfl_xor_sync(0xffffffffU, best.x, step),
                        __shfl_xor_sync(0xffffffffU, best.at, step) };
    best = better(best, other);
  }
  return best;
}

/* The best expert whose bit in `left` is set. */
template <int PER> static __device__ inline candidate best_expert(const float *x, uint32_t left)
{
  candidate best = { 0, -1 };
#pragma unroll
  for (int j = 0; j < PER; j++) {
    candidate next = { x[j], left >> j & 1 ? own_lane() + j * CHOICE_LANES : -1 };
    best = better(best, next);
  }
  return warp_best(best);
}

static __device__ inline uint32_t without(uint32_t left, int32_t expert)
{
  return expert % CHOICE_LANES == own_lane() ? left & ~(1U << expert / CHOICE_LANES) : left;
}

/* Of a lane's experts those that there are: a bit each. */
template <int PER> static __device__ inline uint32_t own_experts(const expert_limits &l)
{
  uint32_t own = 0;
#pragma unroll
  for (int j = 0; j < PER; j++)
    own |= (uint32_t)(own_lane() + j * CHOICE_LANES < l.experts) << j;
  return own;
}

/* ... of the groups whose bits are set. */
template <int PER>
static __device__ inline uint32_t experts_of_groups(const expert_limits &l, uint32_t groups)
{
  uint32_t own = own_experts<PER>(l), some = 0;
  int32_t size = l.experts / l.groups;
#pragma unroll
  for (int j = 0; j < PER; j++)
    some |= (groups >> (own_lane() + j * CHOICE_LANES) / size & 1) << j;
  return own & some;
}

/* The groups with the largest sums of their k / group_topk largest scores: a bit each. */
template <int PER>
static __device__ inline uint32_t best_groups(const expert_limits &l, const float *x)
{
  candidate own = { 0, own_lane() < l.groups ? own_lane() : -1 };
  uint32_t chosen = 0;
  for (int32_t g = 0; g < l.groups; g++) {
    uint32_t left = experts_of_groups<PER>(l, 1U << g);
    float sum = 0;
    for (int32_t i = 0; i < l.k / l.group_topk; i++) {
      candidate best = best_expert<PER>(x, left);
      left = without(left, best.at);
      sum += best.x;
    }
    if (own_lane() == g) own.x = sum;
  }
  for (int32_t i = 0; i < l.group_topk; i++) {
    candidate best = warp_best(own);
    chosen |= 1U << best.at;
    if (best.at == own_lane()) own.at = -1;
  }
  return chosen;
}

/* Calls take(j, expert) for the k experts in order; returns those of the lane's that are chosen. */
template <int PER, class F>
static __device__ inline uint32_t choose(const expert_limits &l, int32_t token, const float *x,
                                         F take)
{
  uint32_t all = own_experts<PER>(l), left = all;
  if (l.group_topk > 0 && !l.forced) left = experts_of_groups<PER>(l, best_groups<PER>(l, x));
  uint32_t rest = left;
  for (int32_t j = 0; j < l.k; j++) {
    int32_t e =
        l.forced ? (int32_t)(((int64_t)token * l.k + j) % l.experts) : best_expert<PER>(x, rest).at;
    rest = without(rest, e);
    take(j, e);
  }
  return left & ~rest;
}

struct take_nothing {
  __device__ inline void operator()(int32_t, int32_t) const
  {
  }
};

template <int N> struct experts_each {
  enum { PER = N };
};

/* Calls `call` with as many experts for each lane as there must be. */
template <class C> static inline void with_experts(int32_t experts, C call)
{
  if (experts <= 64)
    call(experts_each<2>{});
  else if (experts <= 256)
    call(experts_each<8>{});
  else
    call(experts_each<16>{});
}

#endif
