#include "ref/kernels/moe_choice.h"

#include <assert.h>
#include <stdlib.h>

#include "ref/kernels/moe_rows.h"
#include "ref/kernels/real_math.h"
#include "ref/kernels/storage.h"

static bool is_among(const int64_t *list, int64_t count, int64_t x)
{
  for (int64_t i = 0; i < count; i++)
    if (list[i] == x) return true;
  return false;
}

void moe_largest(const real *scores, int64_t count, int64_t k, int64_t *chosen)
{
  assert(k <= count);
  for (int64_t j = 0; j < k; j++) {
    int64_t best = -1;
    for (int64_t e = 0; e < count; e++)
      if (!is_among(chosen, j, e) && (best < 0 || scores[e] > scores[best])) best = e;
    chosen[j] = best;
  }
}

/* Sum of the largest scores of a group, the largest first. */
static real group_score(const real *scores, int64_t size, int64_t k)
{
  int64_t *best = moe_numbers(k);
  real sum = 0;
  moe_largest(scores, size, k, best);
  for (int64_t i = 0; i < k; i++)
    sum += scores[best[i]];
  free(best);
  return sum;
}

static void choose_in_groups(const moe_limits *l, const real *scores, int64_t *chosen)
{
  int64_t size = l->experts / l->groups;
  int64_t *groups = moe_numbers(l->group_topk);
  real *limited = ref_reals(l->experts), *of_group = ref_reals(l->groups);
  assert(l->experts % l->groups == 0 && l->k % l->group_topk == 0);
  for (int64_t i = 0; i < l->groups; i++)
    of_group[i] = group_score(scores + i * size, size, l->k / l->group_topk);
  moe_largest(of_group, l->groups, l->group_topk, groups);
  for (int64_t e = 0; e < l->experts; e++)
    limited[e] = is_among(groups, l->group_topk, e / size) ? scores[e] : -real_infinity();
  moe_largest(limited, l->experts, l->k, chosen);
  free(groups);
  free(limited);
  free(of_group);
}

void moe_choose(const moe_limits *l, int64_t token, const real *scores, int64_t *chosen)
{
  if (l->forced)
    for (int64_t j = 0; j < l->k; j++)
      chosen[j] = (token * l->k + j) % l->experts;
  else if (l->group_topk > 0)
    choose_in_groups(l, scores, chosen);
  else
    moe_largest(scores, l->experts, l->k, chosen);
}

void moe_softmax(real *x, int64_t count)
{
  real largest = x[0], sum = 0;
  for (int64_t i = 1; i < count; i++)
    largest = x[i] > largest ? x[i] : largest;
  for (int64_t i = 0; i < count; i++) {
    x[i] = real_exp(x[i] - largest);
    sum += x[i];
  }
  for (int64_t i = 0; i < count; i++)
    x[i] /= sum;
}

static real softplus(real x)
{
  real tail = real_log(1 + real_exp(x > 0 ? -x : x));
  return x > 0 ? x + tail : tail;
}

real moe_score(router_score s, real x)
{
  return s == ROUTER_SIGMOID ? real_sigmoid(x) : real_sqrt(softplus(x));
}

/* The root y of softplus(x): sigmoid(x) / (2 y), and sigmoid(x) = 1 - exp(-y y). */
real moe_score_slope(router_score s, real y)
{
  return s == ROUTER_SIGMOID ? y * (1 - y) : -real_expm1(-(y * y)) / (2 * y);
}
