/* ref/kernels/moe_router.c for GPUs: scores and counts of the balancing loss. */
#include "cuda/kernels/block.cuh"
#include "cuda/kernels/exact/moe_router.cuh"

enum { AUX_FACTOR, AUX_SEQUENCES }; /* ... of router_aux_gradient */
enum { COUNT_SEQUENCES };           /* ... of router_aux_count */

extern "C" int64_t EXACT(router_aux_forward_scratch)(const exec_call *c)
{
  scratch_arena a = arena_of_nothing();
  (void)take_router_rows(&a, dim_of(c, TOKENS), dim_of(c, EXPERTS), dim_of(c, TOPK));
  return a.used;
}

/* From logits to scores, and to those that sum to 1. */
DEVICE static inline void score_all(router_score s, const router_rows &r, int64_t experts)
{
  bool softmax = s == ROUTER_SOFTMAX || s == ROUTER_PRE_SOFTMAX;
  if (softmax) softmax_row(r.scores, experts);
  for (int64_t e = 0; e < experts && !softmax; e++)
    r.scores[e] = score_of(s, r.scores[e]);
  float sum = softmax ? 1 : sum_of(r.scores, experts) + epsilon;
  for (int64_t e = 0; e < experts; e++)
    r.probs[e] = r.scores[e] / sum;
}

extern "C" void EXACT(router_aux_forward)(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  int64_t tokens = dim_of(c->of, TOKENS), experts = dim_of(c->of, EXPERTS), k = dim_of(c->of, TOPK);
  router_rows rows = take_router_rows(&room, tokens, experts, k);
  router_score s = score_function(c);
  tensor logits = read_of(c->of, 0), probs = write_of(c->of, 0), map = write_of(c->of, 1),
         scores = write_of(c->of, 2);
  for_each(
      c, tokens, KERNEL_LAMBDA(int64_t t) {
        router_rows r = row_of(rows, t, experts, k);
        load_row(logits, t, experts, r.scores);
        score_all(s, r, experts);
        choose_largest(r.scores, experts, k, r.chosen);
        store_row(probs, t, experts, r.probs);
        write_map(map, t, experts, r.chosen, k);
        store_row(scores, t, experts, r.scores);
      });
}

/* Choices counted in [sequences, experts]. */
typedef struct choice_counts {
  int64_t *count;
  router_rows rows;
} choice_counts;

static choice_counts take_counts(scratch_arena *a, const exec_call *c, int64_t sequences)
{
  choice_counts n;
  n.count = take<int64_t>(a, sequences * dim_of(c, EXPERTS));
  n.rows = take_router_rows(a, dim_of(c, TOKENS), dim_of(c, EXPERTS), dim_of(c, TOPK));
  return n;
}

static void count_choices(cuda_call *c, choice_counts n, int64_t sequences)
{
  int64_t experts = dim_of(c->of, EXPERTS), k = dim_of(c->of, TOPK);
  tensor scores = read_of(c->of, 0);
  router_rows rows = n.rows;
  int64_t *count = n.count;
  for_each(
      c, sequences * experts, KERNEL_LAMBDA(int64_t i) { count[i] = 0; });
  for_each(
      c, dim_of(c->of, TOKENS), KERNEL_LAMBDA(int64_t t) {
        router_rows r = row_of(rows, t, experts, k);
        load_row(scores, t, experts, r.scores);
        choose_largest(r.scores, experts, k, r.chosen);
        for (int64_t j = 0; j < k; j++)
          (void)count_up(&count[t % sequences * experts + r.chosen[j]], 1);
      });
}

extern "C" int64_t EXACT(router_aux_count_scratch)(const exec_call *c)
{
  scratch_arena a = arena_of_nothing();
  (void)take_counts(&a, c, (int64_t)c->call->scalars[COUNT_SEQUENCES]);
  return a.used;
}

extern "C" void EXACT(router_aux_count)(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  int64_t sequences = (int64_t)c->of->call->scalars[COUNT_SEQUENCES];
  choice_counts n = take_counts(&room, c->of, sequences);
  int64_t *count = n.count;
  tensor to = write_of(c->of, 0);
  count_choices(c, n, sequences);
  for_each(
      c, elements_of(to), KERNEL_LAMBDA(int64_t i) { store_int(to, i, count[i]); });
}

extern "C" int64_t EXACT(router_aux_gradient_scratch)(const exec_call *c)
{
  scratch_arena a = arena_of_nothing();
  (void)take_counts(&a, c, (int64_t)c->call->scalars[AUX_SEQUENCES]);
  return a.used;
}

static void load_counts(cuda_call *c, tensor from, int64_t *count)
{
  for_each(
      c, elements_of(from), KERNEL_LAMBDA(int64_t i) { count[i] = load_int(from, i); });
}

extern "C" void EXACT(router_aux_gradient)(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  int64_t experts = dim_of(c->of, EXPERTS),
          sequences = (int64_t)c->of->call->scalars[AUX_SEQUENCES];
  choice_counts n = take_counts(&room, c->of, sequences);
  int64_t *count = n.count;
  float factor = scalar_of(c->of, AUX_FACTOR);
  tensor to = write_of(c->of, 0);
  if (c->of->read_count > 1)
    load_counts(c, read_of(c->of, 1), count);
  else
    count_choices(c, n, sequences);
  for_each(
      c, dim_of(c->of, TOKENS) * experts, KERNEL_LAMBDA(int64_t i) {
        int64_t sequence = i / experts % sequences;
        store(to, i, (float)count[sequence * experts + i % experts] * factor);
      });
}
