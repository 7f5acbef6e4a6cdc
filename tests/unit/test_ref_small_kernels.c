/*
 * Kernels of one line each: what they write, for numbers where one sees it, and gradients against
 * finite differences. In double.
 */
#include "tests/unit/finite_difference.h"

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

/* ---- choices --------------------------------------------------------------------------------- */

enum { TOKENS = 3, EXPERTS = 4, TOPK = 2, CELLS = TOKENS * EXPERTS, CHOICES = TOKENS * TOPK };

static int64_t chosen[CHOICES] = { 2, 0, 1, 3, 0, 1 };
static const uint8_t map_of_chosen[CELLS] = { 1, 0, 1, 0, 0, 1, 0, 1, 1, 1, 0, 0 };

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
    cmocka_unit_test(test_sums_of_pairs),
    cmocka_unit_test(test_parts_of_another_length),
    cmocka_unit_test(test_columns_of_a_rank),
    cmocka_unit_test(test_choices_among_all_experts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
