/* ref/kernels/moe_router.c for GPUs: the router; moe_balance.cu has the balancing loss. */
#include "cuda/kernels/exact/moe_router.cuh"

/* Turns logits in `scores` into scores and probabilities. */
DEVICE static inline void route(router_score s, const moe_limits &l, const choice_room &room,
                                int64_t token, const router_rows &r)
{
  bool softmax = s == ROUTER_SOFTMAX || s == ROUTER_PRE_SOFTMAX;
  float *top = r.chosen_scores;
  if (s == ROUTER_PRE_SOFTMAX) softmax_row(r.scores, l.experts);
  for (int64_t e = 0; e < l.experts; e++) {
    if (!softmax) r.scores[e] = score_of(s, r.scores[e]);
    r.probs[e] = 0;
  }
  choose_experts(l, room, token, r.scores, r.chosen);
  for (int64_t j = 0; j < l.k; j++)
    top[j] = r.scores[r.chosen[j]];
  if (s == ROUTER_SOFTMAX) softmax_row(top, l.k);
  float sum = softmax || l.k == 1 ? 1 : sum_of(top, l.k) + epsilon;
  for (int64_t j = 0; j < l.k; j++)
    r.probs[r.chosen[j]] = top[j] / sum;
  for (int64_t e = 0; s == ROUTER_SOFTMAX && e < l.experts; e++)
    r.scores[e] = r.probs[e];
}

static moe_limits limits_of(const exec_call *c)
{
  moe_limits l = { dim_of(c, EXPERTS), dim_of(c, TOPK), (int64_t)c->call->scalars[GROUPS],
                   (int64_t)c->call->scalars[GROUP_TOPK], c->call->scalars[FORCED] != 0 };
  return l;
}

extern "C" int64_t EXACT(router_forward_scratch)(const exec_call *c)
{
  scratch_arena a = arena_of_nothing();
  moe_limits l = limits_of(c);
  (void)take_router_rows(&a, dim_of(c, TOKENS), l.experts, l.k);
  (void)take_choice_room(&a, &l, dim_of(c, TOKENS));
  return a.used;
}

extern "C" void EXACT(router_forward)(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  moe_limits l = limits_of(c->of);
  router_rows rows = take_router_rows(&room, dim_of(c->of, TOKENS), l.experts, l.k);
  choice_room choices = take_choice_room(&room, &l, dim_of(c->of, TOKENS));
  router_score s = score_function(c);
  tensor logits = read_of(c->of, 0), probs = write_of(c->of, 0), map = write_of(c->of, 1),
         scores = write_of(c->of, 2);
  for_each(
      c, dim_of(c->of, TOKENS), KERNEL_LAMBDA(int64_t t) {
        router_rows r = row_of(rows, t, l.experts, l.k);
        load_row(logits, t, l.experts, r.scores);
        route(s, l, choices, t, r);
        store_row(probs, t, l.experts, r.probs);
        write_map(map, t, l.experts, r.chosen, l.k);
        store_row(scores, t, l.experts, r.scores);
      });
}

/* ---- backward ------------------------------------------------------------------------------- */

/* One token of a backward: its gradients, which begin with those of the probabilities, its scores,
 * and which are chosen. All of them: there is no map. */
typedef struct token_gradient {
  float *g;
  tensor y, map;
  int64_t first, count;
  bool all;
} token_gradient;

DEVICE static inline bool is_chosen(const token_gradient &t, int64_t e)
{
  return t.all || load_int(t.map, t.first + e) != 0;
}

DEVICE static inline void softmax_gradient(const token_gradient &t)
{
  float dot = 0;
  for (int64_t e = 0; e < t.count; e++)
    dot += t.g[e] * load(t.y, t.first + e);
  for (int64_t e = 0; e < t.count; e++)
    t.g[e] = load(t.y, t.first + e) * (t.g[e] - dot);
}

/* The gradient of score / (sum of the chosen scores + epsilon). */
DEVICE static inline void quotient_gradient(const token_gradient &t)
{
  float sum = 0, dot = 0;
  for (int64_t e = 0; e < t.count; e++) {
    if (!is_chosen(t, e)) continue;
    sum += load(t.y, t.first + e);
    dot += t.g[e] * load(t.y, t.first + e);
  }
  sum += epsilon;
  for (int64_t e = 0; e < t.count; e++)
    t.g[e] = is_chosen(t, e) ? t.g[e] / sum - dot / (sum * sum) : 0;
}

DEVICE static inline void find_gradient(router_score s, const token_gradient &t, int64_t k)
{
  for (int64_t e = 0; e < t.count; e++)
    if (!is_chosen(t, e)) t.g[e] = 0;
  if (s == ROUTER_SOFTMAX || s == ROUTER_PRE_SOFTMAX) {
    softmax_gradient(t);
    return;
  }
  if (k > 1) quotient_gradient(t);
  for (int64_t e = 0; e < t.count; e++)
    t.g[e] = is_chosen(t, e) ? t.g[e] * score_slope(s, load(t.y, t.first + e)) : 0;
}

extern "C" int64_t EXACT(router_backward_scratch)(const exec_call *c)
{
  scratch_arena a = arena_of_nothing();
  (void)take<float>(&a, dim_of(c, TOKENS) * dim_of(c, EXPERTS));
  return a.used;
}

static void go_back(cuda_call *c, tensor y, tensor map, bool all, int64_t k)
{
  scratch_arena room = arena_of(c);
  int64_t tokens = dim_of(c->of, TOKENS), experts = dim_of(c->of, EXPERTS);
  float *g = take<float>(&room, tokens * experts);
  router_score s = score_function(c);
  tensor from = read_of(c->of, 0), to = write_of(c->of, 0);
  for_each(
      c, tokens, KERNEL_LAMBDA(int64_t t) {
        token_gradient one = { g + t * experts, y, map, t * experts, experts, all };
        load_row(from, t, experts, one.g);
        find_gradient(s, one, k);
        store_row(to, t, experts, one.g);
      });
}

extern "C" void EXACT(router_backward)(cuda_call *c)
{
  go_back(c, read_of(c->of, 2), read_of(c->of, 1), false, dim_of(c->of, TOPK));
}

extern "C" void EXACT(router_aux_backward)(cuda_call *c)
{
  tensor y = read_of(c->of, 1);
  go_back(c, y, y, true, dim_of(c->of, EXPERTS));
}
