/* ref/kernels/moe_router_parts.c for GPUs. */
#include "cuda/kernels/exact/moe_choice.cuh"

enum { TOKENS, EXPERTS, TOPK };
enum { TOPK_GROUPS, TOPK_GROUP_TOPK, TOPK_FORCED };
enum { ROWS, COLS };

/* ---- choice --------------------------------------------------------------------------------- */

static moe_limits limits_of(const exec_call *c)
{
  moe_limits l = { dim_of(c, EXPERTS), dim_of(c, TOPK), (int64_t)c->call->scalars[TOPK_GROUPS],
                   (int64_t)c->call->scalars[TOPK_GROUP_TOPK], c->call->scalars[TOPK_FORCED] != 0 };
  return l;
}

/* Rows of floats, and the experts that they choose. */
typedef struct chosen_rows {
  float *scores;   /* [tokens, experts] */
  int32_t *chosen; /* [tokens, k] */
} chosen_rows;

static chosen_rows take_chosen_rows(scratch_arena *a, const exec_call *c)
{
  chosen_rows r = { take<float>(a, dim_of(c, TOKENS) * dim_of(c, EXPERTS)),
                    take<int32_t>(a, dim_of(c, TOKENS) * dim_of(c, TOPK)) };
  return r;
}

extern "C" int64_t EXACT(router_topk_forward_scratch)(const exec_call *c)
{
  scratch_arena a = arena_of_nothing();
  moe_limits l = limits_of(c);
  (void)take_chosen_rows(&a, c);
  (void)take_choice_room(&a, &l, dim_of(c, TOKENS));
  return a.used;
}

extern "C" void EXACT(router_topk_forward)(cuda_call *c)
{
  scratch_arena room = arena_of(c);
  moe_limits l = limits_of(c->of);
  chosen_rows r = take_chosen_rows(&room, c->of);
  choice_room choices = take_choice_room(&room, &l, dim_of(c->of, TOKENS));
  tensor from = read_of(c->of, 0), to = write_from_end(c->of, 2),
         numbers = write_from_end(c->of, 1);
  for_each(
      c, dim_of(c->of, TOKENS), KERNEL_LAMBDA(int64_t t) {
        float *scores = r.scores + t * l.experts;
        int32_t *chosen = r.chosen + t * l.k;
        for (int64_t e = 0; e < l.experts; e++)
          scores[e] = load(from, t * l.experts + e);
        choose_experts(l, choices, t, scores, chosen);
        for (int64_t j = 0; j < l.k; j++) {
          store(to, t * l.k + j, scores[chosen[j]]);
          store_int(numbers, t * l.k + j, chosen[j]);
        }
      });
}

/* [tokens, experts] and [tokens, k]. */
typedef struct choice_dims {
  int64_t experts, k;
} choice_dims;

static choice_dims dims_of(const cuda_call *c)
{
  choice_dims d = { dim_of(c->of, EXPERTS), dim_of(c->of, TOPK) };
  return d;
}

/* Cell of choice `i` in [tokens, experts]. */
DEVICE static inline int64_t cell_of(choice_dims d, const tensor &chosen, int64_t i)
{
  return i / d.k * d.experts + load_int(chosen, i);
}

static void put_chosen(cuda_call *c, tensor to)
{
  choice_dims d = dims_of(c);
  tensor from = read_of(c->of, 0), chosen = read_of(c->of, 1);
  clear(c, to);
  for_each(
      c, elements_of(from),
      KERNEL_LAMBDA(int64_t i) { store(to, cell_of(d, chosen, i), load(from, i)); });
}

static void map_chosen(cuda_call *c, tensor chosen, tensor to)
{
  choice_dims d = dims_of(c);
  clear(c, to);
  for_each(
      c, elements_of(chosen),
      KERNEL_LAMBDA(int64_t i) { store_int(to, cell_of(d, chosen, i), 1); });
}

extern "C" void EXACT(router_topk_backward)(cuda_call *c)
{
  put_chosen(c, write_of(c->of, 0));
}

extern "C" void EXACT(router_scatter_forward)(cuda_call *c)
{
  put_chosen(c, write_from_end(c->of, 2));
  map_chosen(c, read_of(c->of, 1), write_from_end(c->of, 1));
}

extern "C" void EXACT(router_scatter_backward)(cuda_call *c)
{
  choice_dims d = dims_of(c);
  tensor g = read_of(c->of, 0), chosen = read_of(c->of, 1), to = write_of(c->of, 0);
  for_each(
      c, elements_of(to),
      KERNEL_LAMBDA(int64_t i) { store(to, i, load(g, cell_of(d, chosen, i))); });
}

extern "C" void EXACT(router_map)(cuda_call *c)
{
  map_chosen(c, read_of(c->of, 0), write_from_end(c->of, 1));
}

/* ---- scores --------------------------------------------------------------------------------- */

extern "C" void EXACT(router_score_forward)(cuda_call *c)
{
  router_score s = (router_score)c->of->call->scalars[0];
  tensor x = read_of(c->of, 0), y = write_of(c->of, 0);
  for_each(
      c, elements_of(y), KERNEL_LAMBDA(int64_t i) { store(y, i, score_of(s, load(x, i))); });
}

extern "C" void EXACT(router_score_backward)(cuda_call *c)
{
  router_score s = (router_score)c->of->call->scalars[0];
  tensor g = read_of(c->of, 0), y = read_of(c->of, 1), gx = write_of(c->of, 0);
  for_each(
      c, elements_of(gx),
      KERNEL_LAMBDA(int64_t i) { store(gx, i, load(g, i) * score_slope(s, load(y, i))); });
}

extern "C" void EXACT(row_sum_forward)(cuda_call *c)
{
  int64_t cols = dim_of(c->of, COLS);
  tensor x = read_of(c->of, 0), y = write_of(c->of, 0);
  for_each(
      c, dim_of(c->of, ROWS), KERNEL_LAMBDA(int64_t i) {
        float sum = 0;
        for (int64_t j = 0; j < cols; j++)
          sum += load(x, i * cols + j);
        store(y, i, sum);
      });
}

extern "C" void EXACT(row_sum_backward)(cuda_call *c)
{
  int64_t cols = dim_of(c->of, COLS);
  tensor g = read_of(c->of, 0), gx = write_of(c->of, 0);
  for_each(
      c, elements_of(gx), KERNEL_LAMBDA(int64_t i) { store(gx, i, load(g, i / cols)); });
}

extern "C" void EXACT(row_divide_forward)(cuda_call *c)
{
  int64_t cols = dim_of(c->of, COLS);
  float epsilon = scalar_of(c->of, 0);
  tensor x = read_of(c->of, 0), sums = read_of(c->of, 1), y = write_of(c->of, 0);
  for_each(
      c, elements_of(y),
      KERNEL_LAMBDA(int64_t i) { store(y, i, load(x, i) / (load(sums, i / cols) + epsilon)); });
}

extern "C" void EXACT(row_divide_backward)(cuda_call *c)
{
  int64_t cols = dim_of(c->of, COLS);
  float epsilon = scalar_of(c->of, 0);
  tensor gradient = read_of(c->of, 0), x = read_of(c->of, 1), sums = read_of(c->of, 2),
         gx = write_of(c->of, 0), gsums = write_of(c->of, 1);
  for_each(
      c, dim_of(c->of, ROWS), KERNEL_LAMBDA(int64_t i) {
        float sum = load(sums, i) + epsilon, dot = 0;
        for (int64_t j = i * cols; j < (i + 1) * cols; j++) {
          float g = load(gradient, j);
          dot += g * load(x, j);
          store(gx, j, g / sum);
        }
        store(gsums, i, -(dot / (sum * sum)));
      });
}

/* ---- masks ---------------------------------------------------------------------------------- */

extern "C" void EXACT(router_mask)(cuda_call *c)
{
  tensor x = read_of(c->of, 0), mask = read_of(c->of, 1), y = write_of(c->of, 0);
  for_each(
      c, elements_of(y),
      KERNEL_LAMBDA(int64_t i) { store(y, i, load_int(mask, i) ? load(x, i) : 0); });
}

/* A cell is taken if fewer than `capacity` of its expert's come before it: those of larger
 * probability, and of equal ones the earlier tokens. */
extern "C" void EXACT(router_capacity)(cuda_call *c)
{
  enum { CAPACITY, PADDED };
  int64_t tokens = dim_of(c->of, TOKENS), experts = dim_of(c->of, EXPERTS);
  int64_t takes = least((int64_t)c->of->call->scalars[CAPACITY], tokens);
  bool padded = c->of->call->scalars[PADDED] != 0;
  tensor map = read_of(c->of, 0), probs = read_of(c->of, 1), to = write_from_end(c->of, 1);
  for_each(
      c, tokens * experts, KERNEL_LAMBDA(int64_t i) {
        int64_t own = i / experts, e = i % experts, before = 0;
        float p = load(probs, i);
        bool wanted = load_int(map, i) != 0 || padded;
        for (int64_t t = 0; t < tokens && wanted; t++) {
          float other = load(probs, t * experts + e);
          before += other > p || (other == p && t < own);
        }
        store_int(to, i, wanted && before < takes);
      });
}

/* ---- z loss --------------------------------------------------------------------------------- */

extern "C" void EXACT(router_log_sum)(cuda_call *c)
{
  int64_t experts = dim_of(c->of, EXPERTS);
  tensor x = read_of(c->of, 0), y = write_of(c->of, 0);
  for_each(
      c, dim_of(c->of, TOKENS), KERNEL_LAMBDA(int64_t t) {
        float sum = 0, largest = load(x, t * experts);
        for (int64_t e = 1; e < experts; e++) {
          float next = load(x, t * experts + e);
          largest = next > largest ? next : largest;
        }
        for (int64_t e = 0; e < experts; e++)
          sum += exact_expf(load(x, t * experts + e) - largest);
        store(y, t, largest + exact_logf(sum));
      });
}

extern "C" void EXACT(router_z_loss_backward)(cuda_call *c)
{
  int64_t experts = dim_of(c->of, EXPERTS);
  tensor g = read_of(c->of, 0), logits = read_of(c->of, 1), sums = read_of(c->of, 2),
         to = write_of(c->of, 0);
  for_each(
      c, dim_of(c->of, TOKENS) * experts, KERNEL_LAMBDA(int64_t i) {
        float log_sum = load(sums, i / experts);
        float softmax = exact_expf(load(logits, i) - log_sum);
        store(to, i, load(g, i / experts) * log_sum * softmax);
      });
}
