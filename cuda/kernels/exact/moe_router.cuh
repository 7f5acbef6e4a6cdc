/* Shared by the kernels of a router: a thread for each token, whose row is in scratch. */
#ifndef OFFSIM_CUDA_KERNELS_EXACT_MOE_ROUTER_CUH
#define OFFSIM_CUDA_KERNELS_EXACT_MOE_ROUTER_CUH

#include "cuda/kernels/exact/moe_choice.cuh"

enum { TOKENS, EXPERTS, TOPK };             /* dims */
enum { SCORE, GROUPS, GROUP_TOPK, FORCED }; /* scalars */

static const float epsilon = 1e-20f;

static inline router_score score_function(const cuda_call *c)
{
  return (router_score)c->of->call->scalars[SCORE];
}

DEVICE static inline float sum_of(const float *x, int64_t count)
{
  float sum = 0;
  for (int64_t i = 0; i < count; i++)
    sum += x[i];
  return sum;
}

/* The rows of all tokens, one after the other. */
typedef struct router_rows {
  float *scores, *probs, *chosen_scores; /* [experts], [experts], [k] */
  int32_t *chosen;                       /* [k] */
} router_rows;

static inline router_rows take_router_rows(scratch_arena *a, int64_t tokens, int64_t experts,
                                           int64_t k)
{
  router_rows r = { take<float>(a, tokens * experts), take<float>(a, tokens * experts),
                    take<float>(a, tokens * k), take<int32_t>(a, tokens * k) };
  return r;
}

DEVICE static inline router_rows row_of(const router_rows &all, int64_t t, int64_t experts,
                                        int64_t k)
{
  router_rows r = { all.scores + t * experts, all.probs + t * experts, all.chosen_scores + t * k,
                    all.chosen + t * k };
  return r;
}

DEVICE static inline void load_row(const tensor &from, int64_t t, int64_t count, float *to)
{
  for (int64_t e = 0; e < count; e++)
    to[e] = load(from, t * count + e);
}

DEVICE static inline void store_row(const tensor &to, int64_t t, int64_t count, const float *from)
{
  for (int64_t e = 0; e < count; e++)
    store(to, t * count + e, from[e]);
}

DEVICE static inline void write_map(const tensor &map, int64_t token, int64_t experts,
                                    const int32_t *chosen, int64_t k)
{
  for (int64_t e = 0; e < experts; e++)
    store_int(map, token * experts + e, 0);
  for (int64_t j = 0; j < k; j++)
    store_int(map, token * experts + chosen[j], 1);
}

#endif
