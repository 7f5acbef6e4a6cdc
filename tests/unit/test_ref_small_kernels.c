/*
 * Kernels of one line each: what they write, for numbers where one sees it, and gradients against
 * finite differences. In double.
 */
#include "tests/unit/finite_difference.h"

#include "ref/kernels/dropout.h"
#include "ref/kernels/moe_flex.h"

enum { COUNT = 6 };

static exec_tensor bytes(const uint8_t *data, int64_t count)
{
  return tensor_of((void *)(uintptr_t)data, DTYPE_BYTE, count, 0, 0, 0);
}

/* Operands are complete; one without data ends the list. */
static void run(kernel_call call, exec_tensor a, exec_tensor b, exec_tensor y)
{
  const exec_tensor none = { 0 };
  run_kernel(call, (exec_tensor[]){ a, b, none }, (exec_tensor[]){ y, none });
}

static void assert_numbers(const double *found, const double *expected, int64_t count)
{
  for (int64_t i = 0; i < count; i++)
    if (!(magnitude_of(found[i] - expected[i]) <= 1e-15 * magnitude_of(expected[i])))
      fail_msg("element %lld is %.17g, not %.17g", (long long)i, found[i], expected[i]);
}

/* ---- of one operand -------------------------------------------------------------------------- */

static const struct {
  kernel_call call;
  double of_half, of_minus_2;
} unary[] = {
  { { KERNEL_DIVIDE, { COUNT }, { 4 } }, 0.125, -0.5 },
  { { KERNEL_DIVIDE_STRIDED, { COUNT }, { 4 } }, 0.125, -0.5 },
  { { KERNEL_NEGATE_STRIDED, { COUNT }, { 0 } }, -0.5, 2 },
  { { KERNEL_COSINE, { COUNT }, { 0 } }, 0.87758256189037276, -0.41614683654714241 },
  { { KERNEL_SINE, { COUNT }, { 0 } }, 0.47942553860420301, -0.90929742682568171 },
  { { KERNEL_COPY_STRIDED, { COUNT }, { 0 } }, 0.5, -2 },
  { { KERNEL_RELU_FORWARD, { COUNT }, { 0 } }, 0.5, 0 },
  { { KERNEL_SILU_FORWARD_STRIDED, { COUNT }, { 0 } }, 0.31122966560092728, -0.23840584404423515 },
  { { KERNEL_OWN_PART, { COUNT }, { GROUP_TP } }, 0.5, -2 },
};

static void test_values(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof unary / sizeof unary[0]; i++) {
    double x[COUNT] = { 0.5, -2, 0.5, -2, 0.5, -2 }, y[COUNT];
    run(unary[i].call, numbers(x, COUNT, 0), (exec_tensor){ 0 }, numbers(y, COUNT, 0));
    for (int k = 0; k < COUNT; k++)
      assert_numbers(&y[k], k % 2 == 0 ? &unary[i].of_half : &unary[i].of_minus_2, 1);
  }
}

typedef struct pair {
  kernel_call forward, backward;
  double x[COUNT], y[COUNT], gy[COUNT], gx[COUNT];
} pair;

static void pair_forward(void *state)
{
  pair *p = state;
  run(p->forward, numbers(p->x, COUNT, 0), (exec_tensor){ 0 }, numbers(p->y, COUNT, 0));
}

static void pair_backward(void *state)
{
  pair *p = state;
  run(p->backward, numbers(p->gy, COUNT, 0), numbers(p->x, COUNT, 0), numbers(p->gx, COUNT, 0));
}

static const struct {
  kernel_kind forward, backward;
} pairs[] = {
  { KERNEL_RELU_FORWARD, KERNEL_RELU_BACKWARD },
  { KERNEL_SQUARE, KERNEL_SQUARE_BACKWARD },
  { KERNEL_SILU_FORWARD_STRIDED, KERNEL_SILU_BACKWARD_STRIDED },
};

static void test_gradients(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
    pair p = { .forward = { pairs[i].forward, { COUNT }, { 0 } },
               .backward = { pairs[i].backward, { COUNT }, { 0 } } };
    fill_with_noise(p.x, COUNT, 1);
    fill_with_noise(p.gy, COUNT, 2);
    assert_gradients((gradient_check){ .forward = pair_forward,
                                       .backward = pair_backward,
                                       .state = &p,
                                       .outputs = { { p.y, p.gy, COUNT } },
                                       .inputs = { { p.x, p.gx, COUNT } } });
  }
}

/* ---- of two ---------------------------------------------------------------------------------- */

static const uint8_t mask[COUNT] = { 1, 0, 0, 1, 1, 0 };

static void test_masks(void **state)
{
  (void)state;
  double x[COUNT] = { 1, 2, 3, 4, 5, 6 }, y[COUNT];
  run((kernel_call){ KERNEL_ROUTER_MASK, { COUNT }, { 0 } }, numbers(x, COUNT, 0),
      bytes(mask, COUNT), numbers(y, COUNT, 0));
  assert_numbers(y, (double[]){ 1, 0, 0, 4, 5, 0 }, COUNT);
  run((kernel_call){ KERNEL_DROPOUT_BACKWARD, { COUNT }, { 0.5 } }, numbers(x, COUNT, 0),
      bytes(mask, COUNT), numbers(y, COUNT, 0));
  assert_numbers(y, (double[]){ 2, 0, 0, 8, 10, 0 }, COUNT);
}

/* The first output of splitmix64 of seed 0 is 0xe220a8397b1dcdaf; its upper 53 bits are the number that a
 * probability is compared with. */
static void test_kept_from_the_probability_on(void **state)
{
  (void)state;
  double number = (double)(UINT64_C(0xe220a8397b1dcdaf) >> 11) * 0x1p-53;
  assert_true(ref_is_kept(0, 0, number));
  assert_false(ref_is_kept(0, 0, number + 0x1p-53));
}

static uint64_t dropout_key_of(exec_rank rank, uint32_t step, uint32_t microbatch, int32_t layer,
                               const char *module)
{
  const exec_step at = { .seed = 1, .number = step };
  const plan_site site = { .module = module, .layer = layer };
  return ref_dropout_key(
      &(exec_call){ .rank = &rank, .step = &at, .site = &site, .microbatch = microbatch });
}

/* TP ranks have parts of one tensor, so of one mask; data-parallel ranks have other samples. */
static void test_masks_differ_where_data_does(void **state)
{
  (void)state;
  exec_rank first = { .group = { [GROUP_DP] = { 0, 2 }, [GROUP_TP] = { 0, 2 } } };
  exec_rank same_data = first, other_data = first;
  same_data.group[GROUP_TP].index = 1;
  other_data.group[GROUP_DP].index = 1;
  uint64_t key = dropout_key_of(first, 1, 2, 3, "mlp");
  assert_true(dropout_key_of(same_data, 1, 2, 3, "mlp") == key);
  assert_true(dropout_key_of(other_data, 1, 2, 3, "mlp") != key);
  assert_true(dropout_key_of(first, 0, 2, 3, "mlp") != key);
  assert_true(dropout_key_of(first, 1, 0, 3, "mlp") != key);
  assert_true(dropout_key_of(first, 1, 2, 0, "mlp") != key);
  assert_true(dropout_key_of(first, 1, 2, 3, "mlq") != key);
}

/* gy (1 - y y), from y = tanh x. */
static void test_gradient_of_tanh(void **state)
{
  (void)state;
  double gy[COUNT] = { 1, 2, 3, 4, 8, 6 }, y[COUNT] = { 0, 0.5, -0.5, 1, 0.25, -1 }, gx[COUNT];
  run((kernel_call){ KERNEL_TANH_BACKWARD, { COUNT }, { 0 } }, numbers(gy, COUNT, 0),
      numbers(y, COUNT, 0), numbers(gx, COUNT, 0));
  assert_numbers(gx, (double[]){ 1, 1.5, 2.25, 0, 7.5, 0 }, COUNT);
}

static void test_sums_of_pairs(void **state)
{
  (void)state;
  double a[COUNT] = { 1, 2, 3, 4, 5, 6 }, b[COUNT] = { 1, -1, 0, 2, 0, 1 }, y[COUNT];
  run((kernel_call){ KERNEL_ADD_STRIDED, { COUNT }, { 0 } }, numbers(a, COUNT, 0),
      numbers(b, COUNT, 0), numbers(y, COUNT, 0));
  assert_numbers(y, (double[]){ 2, 1, 3, 6, 5, 7 }, COUNT);
  run((kernel_call){ KERNEL_ROW_DOT, { 2, 3 }, { 0 } }, numbers(a, 2, 3), numbers(b, 2, 3),
      numbers(y, 2, 0));
  assert_numbers(y, (double[]){ -1, 14 }, 2);
}

/* ---- rows and columns ------------------------------------------------------------------------ */

static void test_parts_of_another_length(void **state)
{
  (void)state;
  double x[COUNT] = { 1, 2, 3, 4, 5, 6 }, shorter[4], longer[8];
  const kernel_call call = { KERNEL_RESIZE_ROWS, { 0, 2 }, { 0 } };
  run(call, numbers(x, COUNT, 0), (exec_tensor){ 0 }, numbers(shorter, 4, 0));
  assert_numbers(shorter, (double[]){ 1, 2, 4, 5 }, 4);
  run(call, numbers(x, COUNT, 0), (exec_tensor){ 0 }, numbers(longer, 8, 0));
  assert_numbers(longer, (double[]){ 1, 2, 3, 0, 4, 5, 6, 0 }, 8);
}

/* [rows, all] of which a rank has [rows, cols]: rank `index` of two. */
static void run_columns(kernel_kind kind, uint32_t index, const exec_tensor *x,
                        const exec_tensor *y)
{
  enum { MATRIX_ROWS = 3, MATRIX_COLS = 1, MATRIX_ALL = 2 };
  plan_call call = { .kind = (uint8_t)kind, .dims = { MATRIX_ROWS, MATRIX_COLS, MATRIX_ALL } };
  exec_rank rank = { .group[GROUP_EP] = { index, 2 } };
  ref_kernels[kind](&(exec_call){
      .call = &call, .reads = x, .writes = y, .read_count = 1, .write_count = 1, .rank = &rank });
}

static void test_columns_of_a_rank(void **state)
{
  (void)state;
  double all[COUNT] = { 1, 2, 3, 4, 5, 6 }, own[3], back[COUNT];
  exec_tensor whole = numbers(all, 3, 2), part = numbers(own, 3, 0), again = numbers(back, 3, 2);
  run_columns(KERNEL_MOE_LOCAL_COLUMNS_FORWARD, 1, &whole, &part);
  assert_numbers(own, (double[]){ 2, 4, 6 }, 3);
  run_columns(KERNEL_MOE_LOCAL_COLUMNS_BACKWARD, 1, &part, &again);
  assert_numbers(back, (double[]){ 0, 2, 0, 4, 0, 6 }, COUNT);
}

/* ---- the optimizer --------------------------------------------------------------------------- */

/* One parameter of one element in step 0 of a rate of 1/2, without clipping: it becomes p, its states become
 * `state`. */
static double stepped(int64_t states, double decay, double gradient, double p, double *state)
{
  plan_call call = { .kind = KERNEL_OPTIMIZER_STEP,
                     .dims = { 1, 1, states, 0 },
                     .scalars = { decay, 0.25, 0.5, 0 } };
  const exec_step step = { .learning_rate = 0.5, .clip_coefficient = 1 };
  const exec_rank rank = { .global = 0 };
  double after = 0, new_state[2] = { 0 };
  const exec_tensor reads[] = { numbers(&gradient, 1, 0), numbers(&p, 1, 0),
                                numbers(&state[0], 1, 0), numbers(&state[1], 1, 0) };
  const exec_tensor writes[] = { numbers(&after, 1, 0), numbers(&new_state[0], 1, 0),
                                 numbers(&new_state[1], 1, 0) };
  ref_kernels[KERNEL_OPTIMIZER_STEP](&(exec_call){ .call = &call,
                                                   .step = &step,
                                                   .rank = &rank,
                                                   .reads = reads,
                                                   .writes = writes,
                                                   .read_count = 2 + (uint32_t)states,
                                                   .write_count = 1 + (uint32_t)states });
  memcpy(state, new_state, sizeof new_state);
  return after;
}

static void test_optimizers_by_hand(void **state)
{
  (void)state;
  double none[2] = { 0 }, momentum[2] = { 8, 0 }, moments[2] = { 8, 1 };
  double plain = stepped(0, 0.5, 3, 4, none);     /* 4 - (3 + 2) / 2 */
  double moved = stepped(1, 0.5, 3, 4, momentum); /* m = 8 / 4 + 3 + 2 = 7; 4 - 7 / 2 */
  double adapted =
      stepped(2, 0.5, 4, 16, moments); /* m = 5, v = 8.5; 16 - (5 / 0.75 / sqrt(17) + 8) / 2 */
  assert_numbers(&plain, (double[]){ 1.5 }, 1);
  assert_numbers(&moved, (double[]){ 0.5 }, 1);
  assert_numbers(momentum, (double[]){ 7 }, 1);
  assert_numbers(moments, (double[]){ 5, 8.5 }, 2);
  assert_numbers(&adapted, (double[]){ 11.191547916545556 }, 1);
}

/* ---- choices --------------------------------------------------------------------------------- */

enum { TOKENS = 3, EXPERTS = 4, TOPK = 2, CELLS = TOKENS * EXPERTS, CHOICES = TOKENS * TOPK };

static int64_t chosen[CHOICES] = { 2, 0, 1, 3, 0, 1 };
static const uint8_t map_of_chosen[CELLS] = { 1, 0, 1, 0, 0, 1, 0, 1, 1, 1, 0, 0 };

/* Rank 1 of 3 has experts 2 and 3 of 6; -1 is no expert. */
static void test_choices_among_a_ranks_experts(void **state)
{
  (void)state;
  enum { HOT_TOKENS = 3, HOT_CHOICES = 6 };
  int64_t experts_of[HOT_CHOICES] = { 3, 0, -1, 2, 5, -1 };
  double p[HOT_CHOICES] = { 1, 2, 3, 4, 5, 6 }, columns[HOT_CHOICES], back[HOT_CHOICES];
  int64_t map[HOT_CHOICES];
  static const int64_t expected_map[HOT_CHOICES] = { 0, 1, 1, 0, 0, 0 };
  plan_call call = { .kind = KERNEL_MOE_MULTIHOT_FORWARD, .dims = { HOT_TOKENS, 2, 2 } };
  exec_rank rank = { .group[GROUP_EP] = { 1, 3 } };
  const exec_tensor probabilities = numbers(p, HOT_TOKENS, 2),
                    choices = tensor_of(experts_of, DTYPE_INT64, HOT_TOKENS, 2, 0, 0);
  const exec_tensor reads[] = { probabilities, choices };
  const exec_tensor writes[] = { numbers(columns, HOT_TOKENS, 2),
                                 tensor_of(map, DTYPE_INT64, HOT_TOKENS, 2, 0, 0) };
  ref_kernels[call.kind](&(exec_call){ .call = &call,
                                       .reads = reads,
                                       .writes = writes,
                                       .read_count = 2,
                                       .write_count = 2,
                                       .rank = &rank });
  assert_numbers(columns, (double[]){ 0, 1, 4, 0, 0, 0 }, HOT_CHOICES);
  assert_memory_equal(map, expected_map, sizeof map);
  call.kind = KERNEL_MOE_MULTIHOT_BACKWARD;
  const exec_tensor gradients[] = { writes[0], choices }, to = numbers(back, HOT_TOKENS, 2);
  ref_kernels[call.kind](&(exec_call){ .call = &call,
                                       .reads = gradients,
                                       .writes = &to,
                                       .read_count = 2,
                                       .write_count = 1,
                                       .rank = &rank });
  assert_numbers(back, (double[]){ 1, 0, 0, 4, 0, 0 }, HOT_CHOICES);
}

/* Two ranks with two tokens and two of four experts each: a token's bit for each of a rank's
 * experts, and the rows that arrive for them. */
static void test_table_of_tokens(void **state)
{
  (void)state;
  enum { TABLE_CELLS = 8, TABLE_SIZE = 4 };
  uint8_t maps[2][TABLE_CELLS] = { { 1, 0, 0, 1, 0, 1, 1, 0 }, { 0, 0, 0, 1, 1, 1, 0, 0 } };
  int32_t counts[2][TABLE_SIZE], tables[2][TABLE_SIZE];
  static const int32_t expected_counts[2][TABLE_SIZE] = { { 2, 2, 0, 0 }, { 1, 2, 0, 0 } };
  static const int32_t expected_tables[2][TABLE_SIZE] = { { 1, 2, 2, 1 }, { 0, 2, 3, 0 } };
  exec_rank rank = { .group[GROUP_ETP] = { 0, 1 } };
  exec_tensor reads[2], writes[2][2];
  exec_call calls[2];
  for (int r = 0; r < 2; r++) {
    reads[r] = tensor_of(maps[r], DTYPE_BYTE, 2, 4, 0, 0);
    writes[r][0] = tensor_of(counts[r], DTYPE_INT32, TABLE_SIZE, 0, 0, 0);
    writes[r][1] = tensor_of(tables[r], DTYPE_INT32, 2, 2, 0, 0);
    calls[r] = (exec_call){
      .reads = &reads[r], .writes = writes[r], .read_count = 1, .write_count = 2, .rank = &rank
    };
    assert_true(ref_is_flex_table(&calls[r]));
  }
  ref_flex_table((const exec_call *const[]){ &calls[0], &calls[1] }, 2);
  assert_memory_equal(tables, expected_tables, sizeof tables);
  assert_memory_equal(counts, expected_counts, sizeof counts);
}

static void test_choices_among_all_experts(void **state)
{
  (void)state;
  const exec_tensor none = { 0 };
  double top[CHOICES] = { 1, 2, 3, 4, 5, 6 }, cells[CELLS], back[CHOICES];
  uint8_t map[CELLS], scratch[1];
  exec_tensor choices = tensor_of(chosen, DTYPE_INT64, TOKENS, TOPK, 0, 0);
  kernel_call call = { KERNEL_ROUTER_SCATTER_FORWARD, { TOKENS, EXPERTS, TOPK }, { 0 } };
  run_kernel(call, (exec_tensor[]){ numbers(top, TOKENS, TOPK), choices, none },
             (exec_tensor[]){ bytes(scratch, 1), numbers(cells, TOKENS, EXPERTS), bytes(map, CELLS),
                              none });
  assert_numbers(cells, (double[]){ 2, 0, 1, 0, 0, 3, 0, 4, 5, 6, 0, 0 }, CELLS);
  assert_memory_equal(map, map_of_chosen, CELLS);
  call.kind = KERNEL_ROUTER_SCATTER_BACKWARD;
  run(call, numbers(cells, TOKENS, EXPERTS), choices, numbers(back, TOKENS, TOPK));
  assert_numbers(back, top, CHOICES);
  memset(map, 9, sizeof map);
  call.kind = KERNEL_ROUTER_MAP;
  run(call, choices, (exec_tensor){ 0 }, bytes(map, CELLS));
  assert_memory_equal(map, map_of_chosen, CELLS);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_values),
    cmocka_unit_test(test_gradients),
    cmocka_unit_test(test_masks),
    cmocka_unit_test(test_kept_from_the_probability_on),
    cmocka_unit_test(test_masks_differ_where_data_does),
    cmocka_unit_test(test_optimizers_by_hand),
    cmocka_unit_test(test_sums_of_pairs),
    cmocka_unit_test(test_gradient_of_tanh),
    cmocka_unit_test(test_table_of_tokens),
    cmocka_unit_test(test_choices_among_a_ranks_experts),
    cmocka_unit_test(test_parts_of_another_length),
    cmocka_unit_test(test_columns_of_a_rank),
    cmocka_unit_test(test_choices_among_all_experts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
