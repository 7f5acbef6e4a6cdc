/* router_sinkhorn of ref/kernels/moe_router_parts.c for GPUs: only the device knows the number of
 * iterations, so one block runs all of them. */
#include "cuda/kernels/block.cuh"
#include "cuda/kernels/exact/moe_choice.cuh"

enum { TOKENS, EXPERTS, TOPK };

typedef struct balance_room {
  float *cost;                    /* [tokens, experts] */
  float *rows, *columns, *before; /* [tokens], [experts], [experts] */
  float *change;                  /* one */
  int32_t *chosen;                /* [tokens, k] */
} balance_room;

static balance_room take_balance_room(scratch_arena *a, const exec_call *c)
{
  int64_t tokens = dim_of(c, TOKENS), experts = dim_of(c, EXPERTS);
  balance_room r = { take<float>(a, tokens * experts),
                     take<float>(a, tokens),
                     take<float>(a, experts),
                     take<float>(a, experts),
                     take<float>(a, 1),
                     take<int32_t>(a, tokens * dim_of(c, TOPK)) };
  return r;
}

extern "C" int64_t EXACT(router_sinkhorn_scratch)(const exec_call *c)
{
  scratch_arena a = arena_of_nothing();
  (void)take_balance_room(&a, c);
  return a.used;
}

/* Of one row (or column) of `cost`: what it is multiplied by, of `count`. */
DEVICE static inline float weigh(const float *cost, const float *weights, int64_t count,
                                 int64_t terms, int64_t step)
{
  const float smallest = 1e-8f;
  float sum = 0;
  for (int64_t j = 0; j < terms; j++)
    sum += weights[j] * cost[j * step];
  return 1 / (float)count * (1 / (sum + smallest));
}

DEVICE static inline float mean_change(const float *before, const float *after, int64_t count)
{
  float change = 0;
  for (int64_t e = 0; e < count; e++)
    change += before[e] > after[e] ? before[e] - after[e] : after[e] - before[e];
  return change / (float)count;
}

static void balance(cuda_call *c, balance_room r)
{
  int64_t tokens = dim_of(c->of, TOKENS), experts = dim_of(c->of, EXPERTS);
  run_block(
      c, KERNEL_LAMBDA(int64_t thread, int64_t threads) {
        const float enough = 1e-4f;
        for (int64_t e = thread; e < experts; e += threads)
          r.columns[e] = 1;
        if (thread == 0) *r.change = 1;
        block_step();
        for (int turn = 0; turn < 1000 && *r.change > enough; turn++) {
          for (int64_t e = thread; e < experts; e += threads)
            r.before[e] = r.columns[e];
          for (int64_t t = thread; t < tokens; t += threads)
            r.rows[t] = weigh(r.cost + t * experts, r.columns, tokens, experts, 1);
          block_step();
          for (int64_t e = thread; e < experts; e += threads)
            r.columns[e] = weigh(r.cost + e, r.rows, experts, tokens, experts);
          block_step();
          if (thread == 0) *r.change = mean_change(r.before, r.columns, experts);
          block_step();
        }
      });
}

extern "C" void EXACT(router_sinkhorn)(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  int64_t tokens = dim_of(c->of, TOKENS), experts = dim_of(c->of, EXPERTS), k = dim_of(c->of, TOPK);
  balance_room r = take_balance_room(&room, c->of);
  tensor logits = read_of(c->of, 0), to = write_from_end(c->of, 1);
  for_each(
      c, tokens * experts, KERNEL_LAMBDA(int64_t i) { r.cost[i] = exact_expf(load(logits, i)); });
  balance(c, r);
  for_each(
      c, tokens, KERNEL_LAMBDA(int64_t t) {
        float *row = r.cost + t * experts;
        for (int64_t e = 0; e < experts; e++)
          row[e] = r.columns[e] * row[e] * r.rows[t];
        choose_largest(row, experts, k, r.chosen + t * k);
        for (int64_t j = 0; j < k; j++)
          store_int(to, t * k + j, r.chosen[t * k + j]);
      });
}
