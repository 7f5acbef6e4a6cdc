/* A token's choice of experts on the device: the twin of ref/kernels/moe_choice.h. */
#ifndef OFFSIM_CUDA_KERNELS_EXACT_MOE_CHOICE_CUH
#define OFFSIM_CUDA_KERNELS_EXACT_MOE_CHOICE_CUH

#include "cuda/kernels/operands.cuh"
#include "cuda/kernels/scratch.cuh"

extern "C" {
#include "ref/kernels/moe_choice.h"
}

DEVICE static inline bool is_among(const int32_t *list, int64_t count, int64_t x)
{
  for (int64_t i = 0; i < count; i++)
    if (list[i] == x) return true;
  return false;
}

DEVICE static inline void choose_largest(const float *scores, int64_t count, int64_t k,
                                         int32_t *chosen)
{
  for (int64_t j = 0; j < k; j++) {
    int64_t best = -1;
    for (int64_t e = 0; e < count; e++)
      if ((best < 0 || scores[e] > scores[best]) && !is_among(chosen, j, e)) best = e;
    chosen[j] = (int32_t)best;
  }
}

/* Scratch memory of the choice, for all tokens one after the other. */
typedef struct choice_room {
  float *limited, *of_group; /* [experts], [groups] */
  int32_t *groups, *best;    /* [group_topk], [k] */
} choice_room;

static inline choice_room take_choice_room(scratch_arena *a, const moe_limits *l, int64_t tokens)
{
  choice_room r = { 0, 0, 0, 0 };
  if (l->group_topk == 0) return r;
  r.limited = take<float>(a, tokens * l->experts);
  r.of_group = take<float>(a, tokens * l->groups);
  r.groups = take<int32_t>(a, tokens * l->group_topk);
  r.best = take<int32_t>(a, tokens * l->k);
  return r;
}

/* Sum of the largest scores of a group, the largest first. */
DEVICE static inline float group_score(const float *scores, int64_t size, int64_t k, int32_t *best)
{
  float sum = 0;
  choose_largest(scores, size, k, best);
  for (int64_t i = 0; i < k; i++)
    sum += scores[best[i]];
  return sum;
}

DEVICE static inline void choose_in_groups(const moe_limits &l, const choice_room &all,
                                           int64_t token, const float *scores, int32_t *chosen)
{
  int64_t size = l.experts / l.groups;
  float *limited = all.limited + token * l.experts, *of_group = all.of_group + token * l.groups;
  int32_t *groups = all.groups + token * l.group_topk, *best = all.best + token * l.k;
  for (int64_t i = 0; i < l.groups; i++)
    of_group[i] = group_score(scores + i * size, size, l.k / l.group_topk, best);
  choose_largest(of_group, l.groups, l.group_topk, groups);
  for (int64_t e = 0; e < l.experts; e++)
    limited[e] = is_among(groups, l.group_topk, e / size) ? scores[e] : -(float)exact_infinity();
  choose_largest(limited, l.experts, l.k, chosen);
}

DEVICE static inline void choose_experts(const moe_limits &l, const choice_room &room,
                                         int64_t token, const float *scores, int32_t *chosen)
{
  if (l.forced)
    for (int64_t j = 0; j < l.k; j++)
      chosen[j] = (int32_t)((token * l.k + j) % l.experts);
  else if (l.group_topk > 0)
    choose_in_groups(l, room, token, scores, chosen);
  else
    choose_largest(scores, l.experts, l.k, chosen);
}

/* Sum of the exponentials of x - its maximum, by ascending index; x becomes the exponentials over
 * it. */
DEVICE static inline void softmax_row(float *x, int64_t count)
{
  float largest = x[0], sum = 0;
  for (int64_t i = 1; i < count; i++)
    largest = x[i] > largest ? x[i] : largest;
  for (int64_t i = 0; i < count; i++) {
    x[i] = exact_expf(x[i] - largest);
    sum += x[i];
  }
  for (int64_t i = 0; i < count; i++)
    x[i] /= sum;
}

DEVICE static inline float softplus(float x)
{
  float tail = exact_logf(1 + exact_expf(x > 0 ? -x : x));
  return x > 0 ? x + tail : tail;
}

DEVICE static inline float score_of(router_score s, float x)
{
  return s == ROUTER_SIGMOID ? exact_sigmoidf(x) : exact_sqrtf(softplus(x));
}

/* The root y of softplus(x): sigmoid(x) / (2 y), and sigmoid(x) = 1 - exp(-y y). */
DEVICE static inline float score_slope(router_score s, float y)
{
  return s == ROUTER_SIGMOID ? y * (1 - y) : -exact_expm1f(-(y * y)) / (2 * y);
}

static inline bool is_softmax(router_score s)
{
  return s == ROUTER_SOFTMAX || s == ROUTER_PRE_SOFTMAX;
}

#endif
