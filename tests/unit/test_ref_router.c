/*
 * The router's kernels, in double: gradients against finite differences, choices by hand, and the
 * fused kernel against the sequence without fusion.
 */
#include "tests/unit/finite_difference.h"

enum { TOKENS = 6, EXPERTS = 8, K = 4, CELLS = TOKENS * EXPERTS, CHOSEN = TOKENS * K };

/* ---- the fused kernel ------------------------------------------------------------------------ */

typedef struct fused_case {
  router_score score;
  double groups, group_topk, forced;
  double logits[CELLS], probs[CELLS], scores[CELLS], glogits[CELLS], gprobs[CELLS];
  uint8_t map[CELLS];
} fused_case;

static void fused_forward(void *state)
{
  fused_case *t = state;
  run_kernel((kernel_call){ KERNEL_ROUTER_FORWARD,
                            { TOKENS, EXPERTS, K },
                            { t->score, t->groups, t->group_topk, t->forced } },
             (exec_tensor[]){ numbers(t->logits, TOKENS, EXPERTS), { 0 } },
             (exec_tensor[]){ numbers(t->probs, TOKENS, EXPERTS),
                              tensor_of(t->map, DTYPE_BYTE, TOKENS, EXPERTS, 0, 0),
                              numbers(t->scores, TOKENS, EXPERTS),
                              { 0 } });
}

static void fused_backward(void *state)
{
  fused_case *t = state;
  run_kernel((kernel_call){ KERNEL_ROUTER_BACKWARD, { TOKENS, EXPERTS, K }, { t->score } },
             (exec_tensor[]){ numbers(t->gprobs, TOKENS, EXPERTS),
                              tensor_of(t->map, DTYPE_BYTE, TOKENS, EXPERTS, 0, 0),
                              numbers(t->scores, TOKENS, EXPERTS),
                              { 0 } },
             (exec_tensor[]){ numbers(t->glogits, TOKENS, EXPERTS), { 0 } });
}

static fused_case fused(router_score score)
{
  fused_case t = { .score = score };
  fill_with_noise(t.logits, CELLS, 11);
  fill_with_noise(t.gprobs, CELLS, 12);
  return t;
}

static void check_fused(fused_case t)
{
  assert_gradients((gradient_check){ .forward = fused_forward,
                                     .backward = fused_backward,
                                     .state = &t,
                                     .outputs = { { t.probs, t.gprobs, CELLS } },
                                     .inputs = { { t.logits, t.glogits, CELLS } } });
}

static void test_fused_gradients(void **state)
{
  (void)state;
  for (int s = ROUTER_SOFTMAX; s <= ROUTER_SQRT_SOFTPLUS; s++) {
    fused_case t = fused((router_score)s);
    check_fused(t);
    t.groups = 4;
    t.group_topk = 2;
    check_fused(t);
    t.groups = t.group_topk = 0;
    t.forced = 1;
    check_fused(t);
  }
}

static double row_sum(const double *x)
{
  double sum = 0;
  for (int e = 0; e < EXPERTS; e++)
    sum += x[e];
  return sum;
}

static void test_probabilities_sum_to_one_unless_chosen_afterwards(void **state)
{
  (void)state;
  for (int s = ROUTER_SOFTMAX; s <= ROUTER_SQRT_SOFTPLUS; s++) {
    fused_case t = fused((router_score)s);
    fused_forward(&t);
    double sum = row_sum(t.probs);
    if (s == ROUTER_PRE_SOFTMAX)
      assert_true(sum > 0.5 && sum < 0.999);
    else
      assert_true(sum > 1 - 1e-12 && sum < 1 + 1e-12);
  }
}

/* The score of a single chosen expert stays: over itself it would be 1, without a gradient. */
static void test_a_single_choice_keeps_its_score(void **state)
{
  (void)state;
  double logits[EXPERTS] = { 0, 2, 1 }, probs[EXPERTS], scores[EXPERTS];
  uint8_t map[EXPERTS];
  run_kernel((kernel_call){ KERNEL_ROUTER_FORWARD, { 1, EXPERTS, 1 }, { ROUTER_SIGMOID } },
             (exec_tensor[]){ numbers(logits, 1, EXPERTS), { 0 } },
             (exec_tensor[]){ numbers(probs, 1, EXPERTS),
                              tensor_of(map, DTYPE_BYTE, 1, EXPERTS, 0, 0),
                              numbers(scores, 1, EXPERTS),
                              { 0 } });
  assert_true(magnitude_of(probs[1] - 0.8807970779778823) < 1e-15);
  assert_int_equal(map[1], 1);
  assert_true(row_sum(probs) == probs[1]);
}

static void test_forced_choice_is_balanced(void **state)
{
  (void)state;
  fused_case t = fused(ROUTER_SIGMOID);
  t.forced = 1;
  fused_forward(&t);
  for (int e = 0; e < EXPERTS; e++) {
    int count = 0;
    for (int i = 0; i < TOKENS; i++)
      count += t.map[i * EXPERTS + e];
    assert_int_equal(count, CHOSEN / EXPERTS);
  }
}

/* ---- the sequence of kernels ----------------------------------------------------------------- */

typedef struct topk_case {
  double groups, group_topk;
  double scores[CELLS], top[CHOSEN], gscores[CELLS], gtop[CHOSEN];
  int64_t chosen[CHOSEN];
  uint8_t scratch[4];
} topk_case;

static void topk_forward(void *state)
{
  topk_case *t = state;
  run_kernel((kernel_call){ KERNEL_ROUTER_TOPK_FORWARD,
                            { TOKENS, EXPERTS, K },
                            { t->groups, t->group_topk } },
             (exec_tensor[]){ numbers(t->scores, TOKENS, EXPERTS), { 0 } },
             (exec_tensor[]){ tensor_of(t->scratch, DTYPE_BYTE, 4, 0, 0, 0),
                              numbers(t->top, TOKENS, K),
                              tensor_of(t->chosen, DTYPE_INT64, TOKENS, K, 0, 0),
                              { 0 } });
}

static void topk_backward(void *state)
{
  topk_case *t = state;
  run_kernel((kernel_call){ KERNEL_ROUTER_TOPK_BACKWARD, { TOKENS, EXPERTS, K }, { 0 } },
             (exec_tensor[]){ numbers(t->gtop, TOKENS, K),
                              tensor_of(t->chosen, DTYPE_INT64, TOKENS, K, 0, 0),
                              { 0 } },
             (exec_tensor[]){ numbers(t->gscores, TOKENS, EXPERTS), { 0 } });
}

static void test_topk_gradients(void **state)
{
  (void)state;
  topk_case t = { .groups = 4, .group_topk = 2 };
  fill_with_noise(t.scores, CELLS, 1);
  fill_with_noise(t.gtop, CHOSEN, 2);
  assert_gradients((gradient_check){ .forward = topk_forward,
                                     .backward = topk_backward,
                                     .state = &t,
                                     .outputs = { { t.top, t.gtop, CHOSEN } },
                                     .inputs = { { t.scores, t.gscores, CELLS } } });
}

/* The largest first; of equal ones the lower number. */
static void test_topk_by_hand(void **state)
{
  (void)state;
  topk_case t = { .scores = { 1, 3, 2, 3, 0, 2, 2, 1 } };
  topk_forward(&t);
  const int64_t expected[K] = { 1, 3, 2, 5 };
  for (int j = 0; j < K; j++)
    assert_int_equal(t.chosen[j], expected[j]);
}

/* Two groups of four neighbours, one of which may be used: the sum of the two largest decides. */
static void test_groups_by_hand(void **state)
{
  (void)state;
  topk_case t = { .groups = 2, .group_topk = 1, .scores = { 9, 0, 0, 0, 3, 5, 4, 4 } };
  topk_forward(&t);
  const int64_t expected[K] = { 5, 6, 7, 4 };
  for (int j = 0; j < K; j++)
    assert_int_equal(t.chosen[j], expected[j]);
}

static void run_rows(kernel_kind kind, double scalar, const exec_tensor *reads, double *y,
                     double *second)
{
  bool sums = kind == KERNEL_ROW_SUM_FORWARD;
  run_kernel((kernel_call){ kind, { TOKENS, K }, { scalar } }, reads,
             (exec_tensor[]){ numbers(y, TOKENS, sums ? 1 : K),
                              second != NULL ? numbers(second, TOKENS, 1) : (exec_tensor){ 0 },
                              { 0 } });
}

/* Scores of the chosen, over their sum, among all experts: as the fused kernel has it. */
static void test_sequence_is_the_fused_kernel(void **state)
{
  (void)state;
  fused_case t = fused(ROUTER_SIGMOID);
  topk_case u = { 0 };
  double sums[TOKENS], quotients[CHOSEN], probs[CELLS];
  uint8_t map[CELLS], scratch[1];
  fused_forward(&t);
  run_kernel((kernel_call){ KERNEL_ROUTER_SCORE_FORWARD, { CELLS }, { ROUTER_SIGMOID } },
             (exec_tensor[]){ numbers(t.logits, TOKENS, EXPERTS), { 0 } },
             (exec_tensor[]){ numbers(u.scores, TOKENS, EXPERTS), { 0 } });
  topk_forward(&u);
  run_rows(KERNEL_ROW_SUM_FORWARD, 0, (exec_tensor[]){ numbers(u.top, TOKENS, K), { 0 } }, sums,
           NULL);
  run_rows(KERNEL_ROW_DIVIDE_FORWARD, 1e-20,
           (exec_tensor[]){ numbers(u.top, TOKENS, K), numbers(sums, TOKENS, 1), { 0 } }, quotients,
           NULL);
  run_kernel((kernel_call){ KERNEL_ROUTER_SCATTER_FORWARD, { TOKENS, EXPERTS, K }, { 0 } },
             (exec_tensor[]){ numbers(quotients, TOKENS, K),
                              tensor_of(u.chosen, DTYPE_INT64, TOKENS, K, 0, 0),
                              { 0 } },
             (exec_tensor[]){ tensor_of(scratch, DTYPE_BYTE, 1, 0, 0, 0),
                              numbers(probs, TOKENS, EXPERTS),
                              tensor_of(map, DTYPE_BYTE, TOKENS, EXPERTS, 0, 0),
                              { 0 } });
  assert_memory_equal(probs, t.probs, sizeof probs);
  assert_memory_equal(map, t.map, sizeof map);
}

/* ---- pieces of the sequence ------------------------------------------------------------------ */

typedef struct piece {
  double x[CELLS], sum[TOKENS], y[CELLS], gx[CELLS], gsum[TOKENS], gy[CELLS];
  router_score score;
} piece;

static piece filled_piece(void)
{
  piece t = { .score = ROUTER_SIGMOID };
  fill_with_noise(t.x, CELLS, 21);
  fill_with_noise(t.gy, CELLS, 22);
  for (int i = 0; i < TOKENS; i++)
    t.sum[i] = 1.5 + 0.25 * i;
  return t;
}

static void score_forward(void *state)
{
  piece *t = state;
  run_kernel((kernel_call){ KERNEL_ROUTER_SCORE_FORWARD, { CELLS }, { t->score } },
             (exec_tensor[]){ numbers(t->x, CELLS, 0), { 0 } },
             (exec_tensor[]){ numbers(t->y, CELLS, 0), { 0 } });
}

static void score_backward(void *state)
{
  piece *t = state;
  run_kernel((kernel_call){ KERNEL_ROUTER_SCORE_BACKWARD, { CELLS }, { t->score } },
             (exec_tensor[]){ numbers(t->gy, CELLS, 0), numbers(t->y, CELLS, 0), { 0 } },
             (exec_tensor[]){ numbers(t->gx, CELLS, 0), { 0 } });
}

static void divide_forward(void *state)
{
  piece *t = state;
  run_rows(KERNEL_ROW_DIVIDE_FORWARD, 1e-20,
           (exec_tensor[]){ numbers(t->x, TOKENS, K), numbers(t->sum, TOKENS, 1), { 0 } }, t->y,
           NULL);
}

static void divide_backward(void *state)
{
  piece *t = state;
  run_rows(
      KERNEL_ROW_DIVIDE_BACKWARD, 1e-20,
      (exec_tensor[]){
          numbers(t->gy, TOKENS, K), numbers(t->x, TOKENS, K), numbers(t->sum, TOKENS, 1), { 0 } },
      t->gx, t->gsum);
}

static void sum_forward(void *state)
{
  piece *t = state;
  run_rows(KERNEL_ROW_SUM_FORWARD, 0, (exec_tensor[]){ numbers(t->x, TOKENS, K), { 0 } }, t->y,
           NULL);
}

static void sum_backward(void *state)
{
  piece *t = state;
  run_rows(KERNEL_ROW_SUM_BACKWARD, 0, (exec_tensor[]){ numbers(t->gy, TOKENS, 1), { 0 } }, t->gx,
           NULL);
}

static void log_sum_forward(void *state)
{
  piece *t = state;
  run_kernel((kernel_call){ KERNEL_ROUTER_LOG_SUM, { TOKENS, EXPERTS }, { 0 } },
             (exec_tensor[]){ numbers(t->x, TOKENS, EXPERTS), { 0 } },
             (exec_tensor[]){ numbers(t->sum, TOKENS, 1), { 0 } });
  for (int i = 0; i < TOKENS; i++)
    t->y[i] = t->sum[i] * t->sum[i] / 2;
}

static void log_sum_backward(void *state)
{
  piece *t = state;
  run_kernel((kernel_call){ KERNEL_ROUTER_Z_LOSS_BACKWARD, { TOKENS, EXPERTS }, { 0 } },
             (exec_tensor[]){ numbers(t->gy, TOKENS, 1),
                              numbers(t->x, TOKENS, EXPERTS),
                              numbers(t->sum, TOKENS, 1),
                              { 0 } },
             (exec_tensor[]){ numbers(t->gx, TOKENS, EXPERTS), { 0 } });
}

static void aux_forward(void *state)
{
  piece *t = state;
  uint8_t map[CELLS];
  double kept[CELLS];
  run_kernel((kernel_call){ KERNEL_ROUTER_AUX_FORWARD, { TOKENS, EXPERTS, K }, { t->score } },
             (exec_tensor[]){ numbers(t->x, TOKENS, EXPERTS), { 0 } },
             (exec_tensor[]){ numbers(t->y, TOKENS, EXPERTS),
                              tensor_of(map, DTYPE_BYTE, TOKENS, EXPERTS, 0, 0),
                              numbers(kept, TOKENS, EXPERTS),
                              { 0 } });
}

static void aux_backward(void *state)
{
  piece *t = state;
  uint8_t map[CELLS];
  double kept[CELLS], scores[CELLS];
  run_kernel((kernel_call){ KERNEL_ROUTER_AUX_FORWARD, { TOKENS, EXPERTS, K }, { t->score } },
             (exec_tensor[]){ numbers(t->x, TOKENS, EXPERTS), { 0 } },
             (exec_tensor[]){ numbers(scores, TOKENS, EXPERTS),
                              tensor_of(map, DTYPE_BYTE, TOKENS, EXPERTS, 0, 0),
                              numbers(kept, TOKENS, EXPERTS),
                              { 0 } });
  run_kernel(
      (kernel_call){ KERNEL_ROUTER_AUX_BACKWARD, { TOKENS, EXPERTS }, { t->score } },
      (exec_tensor[]){ numbers(t->gy, TOKENS, EXPERTS), numbers(kept, TOKENS, EXPERTS), { 0 } },
      (exec_tensor[]){ numbers(t->gx, TOKENS, EXPERTS), { 0 } });
}

static void check_piece(piece *t, void (*forward)(void *), void (*backward)(void *), int64_t y,
                        int64_t x, int64_t sums)
{
  assert_gradients((gradient_check){ .forward = forward,
                                     .backward = backward,
                                     .state = t,
                                     .outputs = { { t->y, t->gy, y } },
                                     .inputs = { { t->x, t->gx, x }, { t->sum, t->gsum, sums } } });
}

static void test_piece_gradients(void **state)
{
  (void)state;
  piece t = filled_piece();
  check_piece(&t, divide_forward, divide_backward, CHOSEN, CHOSEN, TOKENS);
  check_piece(&t, sum_forward, sum_backward, TOKENS, CHOSEN, 0);
  check_piece(&t, log_sum_forward, log_sum_backward, TOKENS, CELLS, 0);
  for (int s = ROUTER_SIGMOID; s <= ROUTER_SQRT_SOFTPLUS; s++) {
    t.score = (router_score)s;
    check_piece(&t, score_forward, score_backward, CELLS, CELLS, 0);
  }
  for (int s = ROUTER_SOFTMAX; s <= ROUTER_SQRT_SOFTPLUS; s++) {
    t.score = (router_score)s;
    check_piece(&t, aux_forward, aux_backward, CELLS, CELLS, 0);
  }
}

/* ---- losses and capacity --------------------------------------------------------------------- */

/* Two sequences of two tokens, three experts, one each. */
static void test_balance_by_hand(void **state)
{
  (void)state;
  double scores[12] = { 3, 2, 1, 1, 2, 3, 3, 1, 2, 1, 3, 2 }, g[12];
  run_kernel((kernel_call){ KERNEL_ROUTER_AUX_GRADIENT, { 4, 3, 1 }, { 0.5, 2 } },
             (exec_tensor[]){ numbers(scores, 4, 3), { 0 } },
             (exec_tensor[]){ numbers(g, 4, 3), { 0 } });
  const double expected[12] = { 1, 0, 0, 0, 0.5, 0.5, 1, 0, 0, 0, 0.5, 0.5 };
  assert_memory_equal(g, expected, sizeof g);
}

/* The same with another rank's choices added to the rank's own. */
static void test_balance_with_others(void **state)
{
  (void)state;
  double scores[12] = { 3, 2, 1, 1, 2, 3, 3, 1, 2, 1, 3, 2 }, g[12];
  int64_t counts[6];
  exec_tensor of_counts = tensor_of(counts, DTYPE_INT64, 2, 3, 0, 0);
  run_kernel((kernel_call){ KERNEL_ROUTER_AUX_COUNT, { 4, 3, 1 }, { 2 } },
             (exec_tensor[]){ numbers(scores, 4, 3), { 0 } }, (exec_tensor[]){ of_counts, { 0 } });
  const int64_t own[6] = { 2, 0, 0, 0, 1, 1 };
  assert_memory_equal(counts, own, sizeof own);
  counts[1] = 4;
  run_kernel((kernel_call){ KERNEL_ROUTER_AUX_GRADIENT, { 4, 3, 1 }, { 0.5, 2 } },
             (exec_tensor[]){ numbers(scores, 4, 3), of_counts, { 0 } },
             (exec_tensor[]){ numbers(g, 4, 3), { 0 } });
  const double expected[12] = { 1, 2, 0, 0, 0.5, 0.5, 1, 2, 0, 0, 0.5, 0.5 };
  assert_memory_equal(g, expected, sizeof g);
}

static void run_capacity(bool padded, uint8_t *to)
{
  uint8_t map[8] = { 1, 0, 1, 0, 1, 0, 0, 1 }, scratch[1];
  double probs[8] = { 0.2, 0, 0.7, 0, 0.5, 0, 0, 0.1 };
  run_kernel((kernel_call){ KERNEL_ROUTER_CAPACITY, { 4, 2, 1 }, { 2, padded } },
             (exec_tensor[]){ tensor_of(map, DTYPE_BYTE, 4, 2, 0, 0), numbers(probs, 4, 2), { 0 } },
             (exec_tensor[]){ tensor_of(scratch, DTYPE_BYTE, 1, 0, 0, 0),
                              tensor_of(to, DTYPE_BYTE, 4, 2, 0, 0),
                              { 0 } });
}

/* The two most probable tokens of each of two experts; padded, another that has not chosen it. */
static void test_capacity_by_hand(void **state)
{
  (void)state;
  const uint8_t only_chosen[8] = { 0, 0, 1, 0, 1, 0, 0, 1 }, filled[8] = { 0, 1, 1, 0, 1, 0, 0, 1 };
  uint8_t map[8];
  run_capacity(false, map);
  assert_memory_equal(map, only_chosen, sizeof map);
  run_capacity(true, map);
  assert_memory_equal(map, filled, sizeof map);
}

/* Every token likes expert 0 best; balanced, each of two experts gets those that like it most. */
static void test_sinkhorn_balances(void **state)
{
  (void)state;
  double logits[8] = { 4, 0, 3, 0, 2, 0, 1, 0 };
  int64_t chosen[4];
  uint8_t scratch[1];
  run_kernel((kernel_call){ KERNEL_ROUTER_SINKHORN, { 4, 2, 1 }, { 0 } },
             (exec_tensor[]){ numbers(logits, 4, 2), { 0 } },
             (exec_tensor[]){ tensor_of(scratch, DTYPE_BYTE, 1, 0, 0, 0),
                              tensor_of(chosen, DTYPE_INT64, 4, 1, 0, 0),
                              { 0 } });
  const int64_t expected[4] = { 0, 0, 1, 1 };
  assert_memory_equal(chosen, expected, sizeof chosen);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_fused_gradients),
    cmocka_unit_test(test_probabilities_sum_to_one_unless_chosen_afterwards),
    cmocka_unit_test(test_a_single_choice_keeps_its_score),
    cmocka_unit_test(test_forced_choice_is_balanced),
    cmocka_unit_test(test_topk_gradients),
    cmocka_unit_test(test_topk_by_hand),
    cmocka_unit_test(test_groups_by_hand),
    cmocka_unit_test(test_sequence_is_the_fused_kernel),
    cmocka_unit_test(test_piece_gradients),
    cmocka_unit_test(test_balance_by_hand),
    cmocka_unit_test(test_balance_with_others),
    cmocka_unit_test(test_capacity_by_hand),
    cmocka_unit_test(test_sinkhorn_balances),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
