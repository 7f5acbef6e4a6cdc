/*
 * The router by one kernel after the other (without fusion). Sums go by ascending index.
 *
 * router_topk_forward: reads scores; writes [scratch,] the chosen scores, the largest first, and
 * their experts. Backward: reads the gradient of the former, the latter; zeros elsewhere.
 * router_score_*: backward reads g, the result. row_sum_*: backward: the row's number in each
 * column. row_divide_forward: reads x, a number for each row; writes x / (number + epsilon).
 * Backward: reads g, x, the numbers; writes gx, and the numbers' gradient: - the sum of g x over
 * the square. router_scatter_forward: reads probabilities and experts; writes [scratch,] [tokens,
 * experts] and map. router_sinkhorn: reads logits; writes [scratch,] the experts chosen
 * (router_map: ... as a map). router_mask: reads x, mask. router_capacity: reads map,
 * probabilities; writes [scratch,] a map. router_log_sum: log of the sum of exponentials.
 * router_z_loss_backward: reads g, logits, that; writes g times the log sum times softmax(logits):
 * the gradient of half its square.
 */
#include <assert.h>
#include <stdlib.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/moe_choice.h"
#include "ref/kernels/moe_rows.h"
#include "ref/kernels/real_math.h"
#include "ref/kernels/storage.h"
#include "sim/base/units.h"

enum { TOKENS, EXPERTS, TOPK };
enum { TOPK_GROUPS, TOPK_GROUP_TOPK, TOPK_FORCED };
enum { ROWS, COLS };

static const exec_tensor *write_from_end(const exec_call *c, uint32_t back)
{
  assert(c->write_count >= back);
  return &c->writes[c->write_count - back];
}

void ref_router_topk_forward(const exec_call *c)
{
  moe_limits l = { .experts = exec_dim(c, EXPERTS),
                   .k = exec_dim(c, TOPK),
                   .groups = (int64_t)c->call->scalars[TOPK_GROUPS],
                   .group_topk = (int64_t)c->call->scalars[TOPK_GROUP_TOPK],
                   .forced = c->call->scalars[TOPK_FORCED] != 0 };
  real *scores = ref_reals(l.experts);
  int64_t *chosen = moe_numbers(l.k);
  assert(REF_READS(c, exec_dim(c, TOKENS) * l.experts));
  assert(exec_elements(write_from_end(c, 2)) == exec_dim(c, TOKENS) * l.k &&
         exec_elements(write_from_end(c, 1)) == exec_dim(c, TOKENS) * l.k);
  for (int64_t t = 0; t < exec_dim(c, TOKENS); t++) {
    ref_load_row(&c->reads[0], t * l.experts, l.experts, scores);
    moe_choose(&l, t, scores, chosen);
    for (int64_t j = 0; j < l.k; j++) {
      ref_store(write_from_end(c, 2), t * l.k + j, scores[chosen[j]]);
      ref_store_int(write_from_end(c, 1), t * l.k + j, chosen[j]);
    }
  }
  free(scores);
  free(chosen);
}

/* Cell of choice `i` in [tokens, experts]. */
static int64_t cell_of(const exec_call *c, const exec_tensor *chosen, int64_t i)
{
  return i / exec_dim(c, TOPK) * exec_dim(c, EXPERTS) + ref_load_int(chosen, i);
}

static void put_chosen(const exec_call *c, const exec_tensor *to)
{
  assert(exec_elements(&c->reads[0]) == exec_elements(&c->reads[1]));
  assert(exec_elements(to) == exec_dim(c, TOKENS) * exec_dim(c, EXPERTS));
  ref_clear(to);
  for (int64_t i = 0; i < exec_elements(&c->reads[0]); i++)
    ref_store(to, cell_of(c, &c->reads[1], i), ref_load(&c->reads[0], i));
}

static void map_chosen(const exec_call *c, const exec_tensor *chosen, const exec_tensor *to)
{
  assert(exec_elements(chosen) == exec_dim(c, TOKENS) * exec_dim(c, TOPK));
  assert(exec_elements(to) == exec_dim(c, TOKENS) * exec_dim(c, EXPERTS));
  ref_clear(to);
  for (int64_t i = 0; i < exec_elements(chosen); i++)
    ref_store_int(to, cell_of(c, chosen, i), 1);
}

void ref_router_topk_backward(const exec_call *c)
{
  put_chosen(c, &c->writes[0]);
}

void ref_router_scatter_forward(const exec_call *c)
{
  put_chosen(c, write_from_end(c, 2));
  map_chosen(c, &c->reads[1], write_from_end(c, 1));
}

void ref_router_scatter_backward(const exec_call *c)
{
  int64_t choices = exec_dim(c, TOKENS) * exec_dim(c, TOPK);
  assert(REF_READS(c, exec_dim(c, TOKENS) * exec_dim(c, EXPERTS), choices));
  assert(REF_WRITES(c, choices));
  for (int64_t i = 0; i < exec_elements(&c->writes[0]); i++)
    ref_store(&c->writes[0], i, ref_load(&c->reads[0], cell_of(c, &c->reads[1], i)));
}

void ref_router_map(const exec_call *c)
{
  map_chosen(c, &c->reads[0], write_from_end(c, 1));
}

/* ---- scores ---------------------------------------------------------------------------------- */

void ref_router_score_forward(const exec_call *c)
{
  router_score s = (router_score)c->call->scalars[0];
  assert(REF_READS(c, exec_elements(&c->writes[0])));
  for (int64_t i = 0; i < exec_elements(&c->writes[0]); i++)
    ref_store(&c->writes[0], i, moe_score(s, ref_load(&c->reads[0], i)));
}

void ref_router_score_backward(const exec_call *c)
{
  router_score s = (router_score)c->call->scalars[0];
  int64_t elements = exec_elements(&c->writes[0]);
  assert(REF_READS(c, elements, elements));
  for (int64_t i = 0; i < exec_elements(&c->writes[0]); i++)
    ref_store(&c->writes[0], i,
              ref_load(&c->reads[0], i) * moe_score_slope(s, ref_load(&c->reads[1], i)));
}

void ref_row_sum_forward(const exec_call *c)
{
  int64_t cols = exec_dim(c, COLS);
  assert(REF_READS(c, exec_dim(c, ROWS) * cols) && REF_WRITES(c, exec_dim(c, ROWS)));
  for (int64_t i = 0; i < exec_dim(c, ROWS); i++) {
    real sum = 0;
    for (int64_t j = 0; j < cols; j++)
      sum += ref_load(&c->reads[0], i * cols + j);
    ref_store(&c->writes[0], i, sum);
  }
}

void ref_row_sum_backward(const exec_call *c)
{
  assert(REF_READS(c, exec_dim(c, ROWS)));
  assert(REF_WRITES(c, exec_dim(c, ROWS) * exec_dim(c, COLS)));
  for (int64_t i = 0; i < exec_elements(&c->writes[0]); i++)
    ref_store(&c->writes[0], i, ref_load(&c->reads[0], i / exec_dim(c, COLS)));
}

void ref_row_divide_forward(const exec_call *c)
{
  int64_t rows = exec_dim(c, ROWS), cols = exec_dim(c, COLS);
  assert(REF_READS(c, rows * cols, rows) && REF_WRITES(c, rows * cols));
  for (int64_t i = 0; i < exec_elements(&c->writes[0]); i++) {
    real sum = ref_load(&c->reads[1], i / exec_dim(c, COLS)) + ref_scalar(c, 0);
    ref_store(&c->writes[0], i, ref_load(&c->reads[0], i) / sum);
  }
}

void ref_row_divide_backward(const exec_call *c)
{
  int64_t cols = exec_dim(c, COLS);
  int64_t rows = exec_dim(c, ROWS);
  assert(REF_READS(c, rows * cols, rows * cols, rows) && REF_WRITES(c, rows * cols, rows));
  for (int64_t i = 0; i < exec_dim(c, ROWS); i++) {
    real sum = ref_load(&c->reads[2], i) + ref_scalar(c, 0), dot = 0;
    for (int64_t j = i * cols; j < (i + 1) * cols; j++) {
      real g = ref_load(&c->reads[0], j);
      dot += g * ref_load(&c->reads[1], j);
      ref_store(&c->writes[0], j, g / sum);
    }
    ref_store(&c->writes[1], i, -(dot / (sum * sum)));
  }
}

/* ---- masks ----------------------------------------------------------------------------------- */

void ref_router_mask(const exec_call *c)
{
  int64_t elements = exec_elements(&c->writes[0]);
  assert(REF_READS(c, elements, elements));
  for (int64_t i = 0; i < exec_elements(&c->writes[0]); i++)
    ref_store(&c->writes[0], i, ref_load_int(&c->reads[1], i) ? ref_load(&c->reads[0], i) : 0);
}

/*
 * An expert takes the `capacity` tokens of largest probability, of equal ones the first
 * (Megatron-LM's drop policy "probs"); padded: also tokens that have not chosen it, whose
 * probability is 0.
 */
void ref_router_capacity(const exec_call *c)
{
  enum { CAPACITY, PADDED };
  int64_t tokens = exec_dim(c, TOKENS), experts = exec_dim(c, EXPERTS);
  int64_t takes = min_i64((int64_t)c->call->scalars[CAPACITY], tokens);
  const exec_tensor *to = write_from_end(c, 1);
  real *probs = ref_reals(tokens);
  int64_t *taken = moe_numbers(takes);
  assert(REF_READS(c, tokens * experts, tokens * experts));
  assert(exec_elements(to) == tokens * experts);
  ref_clear(to);
  for (int64_t e = 0; e < experts; e++) {
    for (int64_t t = 0; t < tokens; t++)
      probs[t] = ref_load(&c->reads[1], t * experts + e);
    moe_largest(probs, tokens, takes, taken);
    for (int64_t i = 0; i < takes; i++) {
      int64_t cell = taken[i] * experts + e;
      bool wanted = ref_load_int(&c->reads[0], cell) != 0;
      ref_store_int(to, cell, wanted || c->call->scalars[PADDED] != 0);
    }
  }
  free(probs);
  free(taken);
}

/* ---- z loss ---------------------------------------------------------------------------------- */

void ref_router_log_sum(const exec_call *c)
{
  int64_t experts = exec_dim(c, EXPERTS);
  real *x = ref_reals(experts);
  assert(REF_READS(c, exec_dim(c, TOKENS) * experts) && REF_WRITES(c, exec_dim(c, TOKENS)));
  for (int64_t t = 0; t < exec_dim(c, TOKENS); t++) {
    real sum = 0, largest;
    ref_load_row(&c->reads[0], t * experts, experts, x);
    largest = x[0];
    for (int64_t e = 1; e < experts; e++)
      largest = x[e] > largest ? x[e] : largest;
    for (int64_t e = 0; e < experts; e++)
      sum += real_exp(x[e] - largest);
    ref_store(&c->writes[0], t, largest + real_log(sum));
  }
  free(x);
}

void ref_router_z_loss_backward(const exec_call *c)
{
  int64_t experts = exec_dim(c, EXPERTS);
  int64_t tokens = exec_dim(c, TOKENS);
  assert(REF_READS(c, tokens, tokens * experts, tokens) && REF_WRITES(c, tokens * experts));
  for (int64_t i = 0; i < tokens * experts; i++) {
    real log_sum = ref_load(&c->reads[2], i / experts);
    real softmax = real_exp(ref_load(&c->reads[1], i) - log_sum);
    ref_store(&c->writes[0], i, ref_load(&c->reads[0], i / experts) * log_sum * softmax);
  }
}

/* ---- sinkhorn -------------------------------------------------------------------------------- */

/* sums[i] of the products of a row (or column) of `cost` with `weights`, by ascending index. */
static void weigh(const real *cost, const real *weights, int64_t count, int64_t terms,
                  int64_t stride, int64_t step, real *scale)
{
  const real smallest = (real)1e-8;
  for (int64_t i = 0; i < count; i++) {
    real sum = 0;
    for (int64_t j = 0; j < terms; j++)
      sum += weights[j] * cost[i * stride + j * step];
    scale[i] = 1 / (real)count * (1 / (sum + smallest));
  }
}

/*
 * Megatron-LM core/transformer/moe/moe_utils.py, sinkhorn: exponentials scaled by row and by column
 * in turn, until the columns' factors change by 1e-4 or less on average; floats need some tens of
 * iterations, and never a thousand.
 */
static void balance(real *cost, int64_t tokens, int64_t experts)
{
  real *rows = ref_reals(tokens), *columns = ref_reals(experts), *before = ref_reals(experts);
  real change = 1;
  for (int64_t e = 0; e < experts; e++)
    columns[e] = 1;
  for (int64_t i = 0; i < tokens * experts; i++)
    cost[i] = real_exp(cost[i]);
  for (int turn = 0; turn < 1000 && change > (real)1e-4; turn++) {
    for (int64_t e = 0; e < experts; e++)
      before[e] = columns[e];
    weigh(cost, columns, tokens, experts, experts, 1, rows);
    weigh(cost, rows, experts, tokens, 1, experts, columns);
    change = 0;
    for (int64_t e = 0; e < experts; e++)
      change += before[e] > columns[e] ? before[e] - columns[e] : columns[e] - before[e];
    change /= (real)experts;
  }
  for (int64_t i = 0; i < tokens * experts; i++)
    cost[i] = columns[i % experts] * cost[i] * rows[i / experts];
  free(rows);
  free(columns);
  free(before);
}

void ref_router_sinkhorn(const exec_call *c)
{
  int64_t tokens = exec_dim(c, TOKENS), experts = exec_dim(c, EXPERTS), k = exec_dim(c, TOPK);
  real *cost = ref_reals(tokens * experts);
  int64_t *chosen = moe_numbers(k);
  assert(REF_READS(c, tokens * experts) && exec_elements(write_from_end(c, 1)) == tokens * k);
  ref_load_row(&c->reads[0], 0, tokens * experts, cost);
  balance(cost, tokens, experts);
  for (int64_t t = 0; t < tokens; t++) {
    moe_largest(cost + t * experts, experts, k, chosen);
    for (int64_t j = 0; j < k; j++)
      ref_store_int(write_from_end(c, 1), t * k + j, chosen[j]);
  }
  free(cost);
  free(chosen);
}
