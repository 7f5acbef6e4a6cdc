/* A token's choice of experts: the same for every kernel of a router. */
#ifndef OFFSIM_REF_KERNELS_MOE_CHOICE_H
#define OFFSIM_REF_KERNELS_MOE_CHOICE_H

#include <stdbool.h>

#include "ref/kernels/kernel.h"

/* The `k` largest of `count` scores, the largest first; of equal ones the one with the lower number
 * first. */
void moe_largest(const real *scores, int64_t count, int64_t k, int64_t *chosen);

/*
 * Limited: of `groups` groups of neighbours, the `group_topk` whose k / group_topk largest scores
 * have the largest sum; scores of other groups do not count (Megatron-LM
 * core/transformer/moe/moe_utils.py, group_limited_topk). Forced: choice number n of the rank is
 * expert n modulo the number of experts.
 */
typedef struct moe_limits {
  int64_t experts, k;
  int64_t groups, group_topk; /* 0: all experts */
  bool forced;
} moe_limits;

void moe_choose(const moe_limits *l, int64_t token, const real *scores, int64_t *chosen);

/* Sum of the exponentials of x - its maximum, by ascending index; x becomes the exponentials over
 * it. */
void moe_softmax(real *x, int64_t count);
/* Sigmoid or the root of softplus; the slope from the result. */
real moe_score(router_score s, real x);
real moe_score_slope(router_score s, real y);

#endif
