/*
 * Permutation, exchange and experts, in double: gradients against finite differences; a whole layer
 * against the dense computation over all experts; what an exchange leaves out.
 */
#include "tests/unit/finite_difference.h"

enum {
  TOKENS = 6,
  EXPERTS = 4,
  K = 2,
  ROWS = TOKENS * K,
  WIDTH = 3,
  FFN = 2,
  INDEX = 2 * EXPERTS + 1,
  CELLS = TOKENS * EXPERTS
};

/* Expert 2 has no token, expert 0 five. */
static const uint8_t uneven[CELLS] = { 1, 1, 0, 0, 1, 0, 0, 1, 1, 1, 0, 0,
                                       0, 1, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0 };

static exec_tensor bytes(const uint8_t *data, int64_t count)
{
  return tensor_of((void *)(uintptr_t)data, DTYPE_BYTE, count, 0, 0, 0);
}

static exec_tensor row_map(int32_t *index)
{
  return tensor_of(index, DTYPE_INT32, TOKENS, INDEX, 0, 0);
}

static void test_counts(void **state)
{
  (void)state;
  int64_t counts[EXPERTS];
  run_kernel((kernel_call){ KERNEL_MOE_COUNT, { TOKENS, EXPERTS }, { 0 } },
             (exec_tensor[]){ bytes(uneven, CELLS), { 0 } },
             (exec_tensor[]){ tensor_of(counts, DTYPE_INT64, 1, EXPERTS, 0, 0), { 0 } });
  const int64_t expected[EXPERTS] = { 5, 4, 0, 3 };
  assert_memory_equal(counts, expected, sizeof expected);
}

/* ---- permutation ----------------------------------------------------------------------------- */

typedef struct permuted {
  bool slotted;
  int32_t index[TOKENS * INDEX];
  int64_t cells[ROWS], all_cells[CELLS];
  double x[TOKENS * WIDTH], probs[CELLS], rows[ROWS * WIDTH], row_probs[ROWS];
  double gx[TOKENS * WIDTH], gprobs[CELLS], grows[ROWS * WIDTH], grow_probs[ROWS];
} permuted;

static permuted filled_permuted(bool slotted)
{
  permuted t = { .slotted = slotted };
  fill_with_noise(t.x, TOKENS * WIDTH, 1);
  fill_with_noise(t.probs, CELLS, 2);
  fill_with_noise(t.grows, ROWS * WIDTH, 3);
  fill_with_noise(t.grow_probs, ROWS, 4);
  return t;
}

static void permute_forward(void *state)
{
  permuted *t = state;
  uint8_t scratch[1] = { 0 };
  run_kernel(
      (kernel_call){ KERNEL_MOE_PERMUTE_FORWARD, { ROWS, WIDTH, TOKENS, EXPERTS }, { t->slotted } },
      (exec_tensor[]){ numbers(t->x, TOKENS, WIDTH),
                       numbers(t->probs, TOKENS, EXPERTS),
                       bytes(uneven, CELLS),
                       { 0 } },
      (exec_tensor[]){ bytes(scratch, 1),
                       numbers(t->rows, ROWS, WIDTH),
                       row_map(t->index),
                       numbers(t->row_probs, ROWS, 0),
                       { 0 } });
}

static void permute_backward(void *state)
{
  permuted *t = state;
  run_kernel(
      (kernel_call){ KERNEL_MOE_PERMUTE_BACKWARD, { ROWS, WIDTH, TOKENS, EXPERTS }, { 0 } },
      (exec_tensor[]){ numbers(t->grows, ROWS, WIDTH),
                       numbers(t->grow_probs, ROWS, 0),
                       row_map(t->index),
                       { 0 } },
      (exec_tensor[]){ numbers(t->gx, TOKENS, WIDTH), numbers(t->gprobs, TOKENS, EXPERTS), { 0 } });
}

static void test_permute_gradients(void **state)
{
  (void)state;
  for (int slotted = 0; slotted < 2; slotted++) {
    permuted t = filled_permuted(slotted);
    assert_gradients((gradient_check){
        .forward = permute_forward,
        .backward = permute_backward,
        .state = &t,
        .outputs = { { t.rows, t.grows, ROWS * WIDTH }, { t.row_probs, t.grow_probs, ROWS } },
        .inputs = { { t.x, t.gx, TOKENS * WIDTH }, { t.probs, t.gprobs, CELLS } } });
  }
}

/* Compact: tokens 0 1 2 4 5, 0 2 3 5, none, 1 3 4. Slots of three hold 0 1 2, 0 2 3, none, 1 3
 * 4. */
static void test_order_of_rows(void **state)
{
  (void)state;
  const int compact[ROWS] = { 0, 1, 2, 4, 5, 0, 2, 3, 5, 1, 3, 4 };
  const int slotted[ROWS] = { 0, 1, 2, 0, 2, 3, -1, -1, -1, 1, 3, 4 };
  for (int slots = 0; slots < 2; slots++) {
    permuted t = filled_permuted(slots);
    permute_forward(&t);
    for (int i = 0; i < ROWS; i++) {
      int token = slots ? slotted[i] : compact[i];
      for (int j = 0; j < WIDTH; j++)
        assert_true(t.rows[i * WIDTH + j] == (token < 0 ? 0 : t.x[token * WIDTH + j]));
    }
  }
}

static exec_tensor sorted_cells(permuted *t)
{
  return tensor_of(t->cells, DTYPE_INT64, ROWS, 0, 0, 0);
}

static void sort_cells(permuted *t)
{
  run_kernel((kernel_call){ KERNEL_MOE_SORT_CELLS, { ROWS, TOKENS, EXPERTS }, { t->slotted } },
             (exec_tensor[]){ bytes(uneven, CELLS), { 0 } },
             (exec_tensor[]){
                 tensor_of(t->all_cells, DTYPE_INT64, CELLS, 0, 0, 0), sorted_cells(t), { 0 } });
}

static void unfused_forward(void *state)
{
  permuted *t = state;
  sort_cells(t);
  run_kernel((kernel_call){ KERNEL_MOE_PERMUTE_PROBS_FORWARD, { ROWS, TOKENS, EXPERTS }, { 0 } },
             (exec_tensor[]){ numbers(t->probs, TOKENS, EXPERTS), sorted_cells(t), { 0 } },
             (exec_tensor[]){ numbers(t->row_probs, ROWS, 0), { 0 } });
  run_kernel((kernel_call){ KERNEL_PERMUTE, { ROWS, WIDTH }, { 0 } },
             (exec_tensor[]){ numbers(t->x, TOKENS, WIDTH), sorted_cells(t), { 0 } },
             (exec_tensor[]){ numbers(t->rows, ROWS, WIDTH), { 0 } });
}

static void unfused_backward(void *state)
{
  permuted *t = state;
  run_kernel((kernel_call){ KERNEL_MOE_PERMUTE_PROBS_BACKWARD, { ROWS, TOKENS, EXPERTS }, { 0 } },
             (exec_tensor[]){ numbers(t->grow_probs, ROWS, 0), sorted_cells(t), { 0 } },
             (exec_tensor[]){ numbers(t->gprobs, TOKENS, EXPERTS), { 0 } });
  run_kernel((kernel_call){ KERNEL_UNPERMUTE, { ROWS, WIDTH }, { 0 } },
             (exec_tensor[]){ numbers(t->grows, ROWS, WIDTH), sorted_cells(t), { 0 } },
             (exec_tensor[]){ numbers(t->gx, TOKENS, WIDTH), { 0 } });
}

static void test_unfused_is_the_fused_permutation(void **state)
{
  (void)state;
  for (int slotted = 0; slotted < 2; slotted++) {
    permuted fused = filled_permuted(slotted), apart = filled_permuted(slotted);
    permute_forward(&fused);
    permute_backward(&fused);
    unfused_forward(&apart);
    unfused_backward(&apart);
    assert_memory_equal(fused.rows, apart.rows, sizeof fused.rows);
    assert_memory_equal(fused.row_probs, apart.row_probs, sizeof fused.row_probs);
    assert_memory_equal(fused.gx, apart.gx, sizeof fused.gx);
    assert_memory_equal(fused.gprobs, apart.gprobs, sizeof fused.gprobs);
  }
}

static void select_forward(void *state)
{
  permuted *t = state;
  uint8_t mask[CELLS] = { 0 };
  double by_expert[CELLS];
  run_kernel((kernel_call){ KERNEL_TRANSPOSE, { TOKENS, EXPERTS }, { 0 } },
             (exec_tensor[]){ bytes(uneven, CELLS), { 0 } },
             (exec_tensor[]){ bytes(mask, CELLS), { 0 } });
  run_kernel((kernel_call){ KERNEL_TRANSPOSE, { TOKENS, EXPERTS }, { 0 } },
             (exec_tensor[]){ numbers(t->probs, TOKENS, EXPERTS), { 0 } },
             (exec_tensor[]){ numbers(by_expert, EXPERTS, TOKENS), { 0 } });
  run_kernel(
      (kernel_call){ KERNEL_MOE_SELECT_PROBS_FORWARD, { ROWS, TOKENS, EXPERTS }, { t->slotted } },
      (exec_tensor[]){ numbers(by_expert, EXPERTS, TOKENS), bytes(mask, CELLS), { 0 } },
      (exec_tensor[]){ numbers(t->row_probs, ROWS, 0), { 0 } });
}

static void select_backward(void *state)
{
  permuted *t = state;
  uint8_t mask[CELLS] = { 0 };
  double by_expert[CELLS];
  run_kernel((kernel_call){ KERNEL_TRANSPOSE, { TOKENS, EXPERTS }, { 0 } },
             (exec_tensor[]){ bytes(uneven, CELLS), { 0 } },
             (exec_tensor[]){ bytes(mask, CELLS), { 0 } });
  run_kernel(
      (kernel_call){ KERNEL_MOE_SELECT_PROBS_BACKWARD, { ROWS, TOKENS, EXPERTS }, { t->slotted } },
      (exec_tensor[]){ numbers(t->grow_probs, ROWS, 0),
                       numbers(t->probs, EXPERTS, TOKENS),
                       bytes(mask, CELLS),
                       { 0 } },
      (exec_tensor[]){ numbers(by_expert, EXPERTS, TOKENS), { 0 } });
  run_kernel((kernel_call){ KERNEL_TRANSPOSE_BACKWARD, { TOKENS, EXPERTS }, { 0 } },
             (exec_tensor[]){ numbers(by_expert, EXPERTS, TOKENS), { 0 } },
             (exec_tensor[]){ numbers(t->gprobs, TOKENS, EXPERTS), { 0 } });
}

/* Those of a permutation in the same order, too. */
static void test_selected_probabilities(void **state)
{
  (void)state;
  permuted t = filled_permuted(false), fused = filled_permuted(false);
  assert_gradients((gradient_check){ .forward = select_forward,
                                     .backward = select_backward,
                                     .state = &t,
                                     .outputs = { { t.row_probs, t.grow_probs, ROWS } },
                                     .inputs = { { t.probs, t.gprobs, CELLS } } });
  permute_forward(&fused);
  assert_memory_equal(fused.row_probs, t.row_probs, sizeof t.row_probs);
}

static void test_chunks_go_and_come_back(void **state)
{
  (void)state;
  double x[12], y[12], back[12];
  const int order[6] = { 0, 3, 1, 4, 2, 5 };
  fill_with_noise(x, 12, 5);
  kernel_call forward = { KERNEL_MOE_SORT_CHUNKS_FORWARD, { 6, 2, 2, 3 }, { 0 } };
  kernel_call backward = { KERNEL_MOE_SORT_CHUNKS_BACKWARD, { 6, 2, 2, 3 }, { 0 } };
  run_kernel(forward, (exec_tensor[]){ numbers(x, 6, 2), { 0 } },
             (exec_tensor[]){ numbers(y, 6, 2), { 0 } });
  for (int i = 0; i < 12; i++)
    assert_true(y[i] == x[order[i / 2] * 2 + i % 2]);
  run_kernel(backward, (exec_tensor[]){ numbers(y, 6, 2), { 0 } },
             (exec_tensor[]){ numbers(back, 6, 2), { 0 } });
  assert_memory_equal(back, x, sizeof x);
}

/* ---- experts --------------------------------------------------------------------------------- */

typedef struct grouped {
  const permuted *rows; /* NULL: equal parts */
  bool apart;           /* an operand for each expert's weight */
  double x[ROWS * WIDTH], w[EXPERTS * FFN * WIDTH], bias[EXPERTS * FFN], y[ROWS * FFN];
  double gx[ROWS * WIDTH], gw[EXPERTS * FFN * WIDTH], gbias[EXPERTS * FFN], gy[ROWS * FFN];
} grouped;

enum { MOST_OPERANDS = 2 * EXPERTS + 3 };

static void append(exec_tensor *list, exec_tensor t)
{
  int i = 0;
  while (list[i].data != NULL)
    i++;
  list[i] = t;
}

static void append_parameter(exec_tensor *list, const grouped *t, double *data, int64_t rows,
                             int64_t columns)
{
  if (!t->apart) append(list, numbers(data, EXPERTS * rows, columns));
  for (int e = 0; t->apart && e < EXPERTS; e++)
    append(list, numbers(data + e * rows * columns, rows, columns));
}

static void append_index(exec_tensor *list, const grouped *t)
{
  if (t->rows != NULL) append(list, row_map((int32_t *)(uintptr_t)t->rows->index));
}

static void grouped_forward(void *state)
{
  grouped *t = state;
  exec_tensor reads[MOST_OPERANDS] = { numbers(t->x, ROWS, WIDTH) };
  append_parameter(reads, t, t->w, FFN, WIDTH);
  append_parameter(reads, t, t->bias, 1, FFN);
  append_index(reads, t);
  run_kernel((kernel_call){ KERNEL_GROUPED_GEMM,
                            { ROWS, FFN, WIDTH, 1, EXPERTS },
                            { [GEMM_LAYOUT] = GEMM_NT, [GEMM_BIASED] = 1 } },
             reads, (exec_tensor[]){ numbers(t->y, ROWS, FFN), { 0 } });
}

static void grouped_backward(void *state)
{
  grouped *t = state;
  exec_tensor rows[MOST_OPERANDS] = { numbers(t->gy, ROWS, FFN) };
  append_parameter(rows, t, t->w, FFN, WIDTH);
  append_index(rows, t);
  run_kernel((kernel_call){ KERNEL_GROUPED_GEMM,
                            { ROWS, WIDTH, FFN, 1, EXPERTS },
                            { [GEMM_LAYOUT] = GEMM_NN } },
             rows, (exec_tensor[]){ numbers(t->gx, ROWS, WIDTH), { 0 } });
  exec_tensor weights[MOST_OPERANDS] = { numbers(t->gy, ROWS, FFN), numbers(t->x, ROWS, WIDTH) };
  append_index(weights, t);
  run_kernel((kernel_call){ KERNEL_GROUPED_GEMM,
                            { FFN, WIDTH, ROWS, 1, EXPERTS },
                            { [GEMM_LAYOUT] = GEMM_TN } },
             weights, (exec_tensor[]){ numbers(t->gw, EXPERTS * FFN, WIDTH), { 0 } });
  exec_tensor biases[MOST_OPERANDS] = { numbers(t->gy, ROWS, FFN) };
  append_index(biases, t);
  run_kernel((kernel_call){ KERNEL_EXPERT_BIAS_GRAD, { ROWS, FFN, EXPERTS }, { 0 } }, biases,
             (exec_tensor[]){ numbers(t->gbias, EXPERTS, FFN), { 0 } });
}

static void test_grouped_gradients(void **state)
{
  (void)state;
  permuted rows = filled_permuted(false);
  permute_forward(&rows);
  for (int i = 0; i < 4; i++) {
    grouped t = { .rows = i & 1 ? &rows : NULL, .apart = i & 2 };
    fill_with_noise(t.x, ROWS * WIDTH, 6);
    fill_with_noise(t.w, EXPERTS * FFN * WIDTH, 7);
    fill_with_noise(t.bias, EXPERTS * FFN, 8);
    fill_with_noise(t.gy, ROWS * FFN, 9);
    assert_gradients((gradient_check){ .forward = grouped_forward,
                                       .backward = grouped_backward,
                                       .state = &t,
                                       .outputs = { { t.y, t.gy, ROWS * FFN } },
                                       .inputs = { { t.x, t.gx, ROWS * WIDTH },
                                                   { t.w, t.gw, EXPERTS * FFN * WIDTH },
                                                   { t.bias, t.gbias, EXPERTS * FFN } } });
  }
}

/* With add, the product is added to the old contents. */
static void test_grouped_weight_gradient_adds(void **state)
{
  (void)state;
  double gy[4] = { 1, 2, 3, 4 }, x[2] = { 10, 100 }, gw[4] = { 1, 1, 1, 1 };
  const double expected[4] = { 11, 21, 301, 401 };
  run_kernel((kernel_call){ KERNEL_GROUPED_GEMM,
                            { 2, 1, 2, 1, 2 },
                            { [GEMM_LAYOUT] = GEMM_TN, [GEMM_ADD] = 1 } },
             (exec_tensor[]){ numbers(gy, 2, 2), numbers(x, 2, 1), { 0 } },
             (exec_tensor[]){ numbers(gw, 4, 1), { 0 } });
  assert_memory_equal(gw, expected, sizeof gw);
}

typedef struct weighted {
  kernel_kind forward, backward;
  int64_t inputs; /* width of x: of y, or twice that */
  double x[ROWS * 2 * FFN], p[ROWS], y[ROWS * FFN];
  double gx[ROWS * 2 * FFN], gp[ROWS], gy[ROWS * FFN];
} weighted;

static void weighted_forward(void *state)
{
  weighted *t = state;
  run_kernel((kernel_call){ t->forward, { ROWS, FFN }, { ACTIVATION_SILU, t->inputs == FFN } },
             (exec_tensor[]){ numbers(t->x, ROWS, t->inputs), numbers(t->p, ROWS, 0), { 0 } },
             (exec_tensor[]){ numbers(t->y, ROWS, FFN), { 0 } });
}

static void weighted_backward(void *state)
{
  weighted *t = state;
  run_kernel((kernel_call){ t->backward, { ROWS, FFN }, { ACTIVATION_SILU, t->inputs == FFN } },
             (exec_tensor[]){ numbers(t->gy, ROWS, FFN),
                              numbers(t->x, ROWS, t->inputs),
                              numbers(t->p, ROWS, 0),
                              { 0 } },
             (exec_tensor[]){ numbers(t->gx, ROWS, t->inputs), numbers(t->gp, ROWS, 0), { 0 } });
}

static void check_weighted(kernel_kind forward, kernel_kind backward, int64_t inputs)
{
  weighted t = { .forward = forward, .backward = backward, .inputs = inputs };
  fill_with_noise(t.x, ROWS * inputs, 31);
  fill_with_noise(t.p, ROWS, 32);
  fill_with_noise(t.gy, ROWS * FFN, 33);
  assert_gradients(
      (gradient_check){ .forward = weighted_forward,
                        .backward = weighted_backward,
                        .state = &t,
                        .outputs = { { t.y, t.gy, ROWS * FFN } },
                        .inputs = { { t.x, t.gx, ROWS * inputs }, { t.p, t.gp, ROWS } } });
}

static void test_weighted_gradients(void **state)
{
  (void)state;
  kernel_kind forward = KERNEL_WEIGHTED_ACTIVATION_FORWARD,
              backward = KERNEL_WEIGHTED_ACTIVATION_BACKWARD;
  check_weighted(forward, backward, 2 * FFN);
  check_weighted(forward, backward, FFN);
  check_weighted(KERNEL_WEIGHT_ROWS_FORWARD, KERNEL_WEIGHT_ROWS_BACKWARD, FFN);
}

typedef struct halves {
  double x[ROWS * 2 * FFN], gate[ROWS * FFN], up[ROWS * FFN], y[ROWS * FFN];
  double gx[ROWS * 2 * FFN], ggate[ROWS * FFN], gup[ROWS * FFN], gy[ROWS * FFN];
} halves;

static exec_tensor half(double *data)
{
  return numbers(data, ROWS, FFN);
}

static void halves_forward(void *state)
{
  halves *t = state;
  exec_tensor x = numbers(t->x, ROWS, 2 * FFN);
  run_kernel((kernel_call){ KERNEL_GATE_FORWARD, { ROWS, FFN }, { ACTIVATION_QUICK_GELU } },
             (exec_tensor[]){ x, { 0 } }, (exec_tensor[]){ half(t->gate), { 0 } });
  run_kernel((kernel_call){ KERNEL_UP_FORWARD, { ROWS, FFN }, { 0 } }, (exec_tensor[]){ x, { 0 } },
             (exec_tensor[]){ half(t->up), { 0 } });
  run_kernel((kernel_call){ KERNEL_MULTIPLY, { ROWS * FFN }, { 0 } },
             (exec_tensor[]){ half(t->gate), half(t->up), { 0 } },
             (exec_tensor[]){ half(t->y), { 0 } });
}

static void halves_backward(void *state)
{
  halves *t = state;
  double left[ROWS * 2 * FFN], right[ROWS * 2 * FFN];
  run_kernel((kernel_call){ KERNEL_MULTIPLY_BACKWARD, { ROWS * FFN }, { 0 } },
             (exec_tensor[]){ half(t->gy), half(t->gate), half(t->up), { 0 } },
             (exec_tensor[]){ half(t->ggate), half(t->gup), { 0 } });
  run_kernel((kernel_call){ KERNEL_UP_BACKWARD, { ROWS, FFN }, { 0 } },
             (exec_tensor[]){ half(t->gup), { 0 } },
             (exec_tensor[]){ numbers(right, ROWS, 2 * FFN), { 0 } });
  run_kernel((kernel_call){ KERNEL_GATE_BACKWARD, { ROWS, FFN }, { ACTIVATION_QUICK_GELU } },
             (exec_tensor[]){ half(t->ggate), numbers(t->x, ROWS, 2 * FFN), { 0 } },
             (exec_tensor[]){ numbers(left, ROWS, 2 * FFN), { 0 } });
  for (int i = 0; i < ROWS * 2 * FFN; i++)
    t->gx[i] = left[i] + right[i];
}

static void test_halves_gradients(void **state)
{
  (void)state;
  halves t = { 0 };
  fill_with_noise(t.x, ROWS * 2 * FFN, 41);
  fill_with_noise(t.gy, ROWS * FFN, 42);
  assert_gradients((gradient_check){ .forward = halves_forward,
                                     .backward = halves_backward,
                                     .state = &t,
                                     .outputs = { { t.y, t.gy, ROWS * FFN } },
                                     .inputs = { { t.x, t.gx, ROWS * 2 * FFN } } });
}

typedef struct biased {
  const permuted *rows;
  double x[ROWS * WIDTH], p[ROWS], bias[EXPERTS * WIDTH], y[ROWS * WIDTH];
  double gx[ROWS * WIDTH], gp[ROWS], gbias[EXPERTS * WIDTH], gy[ROWS * WIDTH];
} biased;

static exec_tensor index_of(const biased *t)
{
  return t->rows == NULL ? (exec_tensor){ 0 } : row_map((int32_t *)(uintptr_t)t->rows->index);
}

static void biased_forward(void *state)
{
  biased *t = state;
  run_kernel((kernel_call){ KERNEL_EXPERT_BIAS_FORWARD, { ROWS, WIDTH, EXPERTS }, { 0 } },
             (exec_tensor[]){ numbers(t->x, ROWS, WIDTH),
                              numbers(t->p, ROWS, 0),
                              numbers(t->bias, EXPERTS, WIDTH),
                              index_of(t),
                              { 0 } },
             (exec_tensor[]){ numbers(t->y, ROWS, WIDTH), { 0 } });
}

static void biased_backward(void *state)
{
  biased *t = state;
  run_kernel((kernel_call){ KERNEL_EXPERT_BIAS_BACKWARD, { ROWS, WIDTH, EXPERTS }, { 0 } },
             (exec_tensor[]){ numbers(t->gy, ROWS, WIDTH),
                              numbers(t->bias, EXPERTS, WIDTH),
                              numbers(t->p, ROWS, 0),
                              index_of(t),
                              { 0 } },
             (exec_tensor[]){ numbers(t->gx, ROWS, WIDTH),
                              numbers(t->gp, ROWS, 0),
                              numbers(t->gbias, EXPERTS, WIDTH),
                              { 0 } });
}

static void test_expert_bias_gradients(void **state)
{
  (void)state;
  permuted rows = filled_permuted(false);
  permute_forward(&rows);
  for (int exact = 0; exact < 2; exact++) {
    biased t = { .rows = exact ? &rows : NULL };
    fill_with_noise(t.x, ROWS * WIDTH, 51);
    fill_with_noise(t.p, ROWS, 52);
    fill_with_noise(t.bias, EXPERTS * WIDTH, 53);
    fill_with_noise(t.gy, ROWS * WIDTH, 54);
    assert_gradients((gradient_check){ .forward = biased_forward,
                                       .backward = biased_backward,
                                       .state = &t,
                                       .outputs = { { t.y, t.gy, ROWS * WIDTH } },
                                       .inputs = { { t.x, t.gx, ROWS * WIDTH },
                                                   { t.p, t.gp, ROWS },
                                                   { t.bias, t.gbias, EXPERTS * WIDTH } } });
  }
}

/* ---- the layer ------------------------------------------------------------------------------- */

typedef struct layer {
  double x[TOKENS * WIDTH], logits[CELLS], fc1[EXPERTS * 2 * FFN * WIDTH],
      fc2[EXPERTS * WIDTH * FFN];
} layer;

static layer filled_layer(void)
{
  layer l;
  fill_with_noise(l.x, TOKENS * WIDTH, 61);
  fill_with_noise(l.logits, CELLS, 62);
  fill_with_noise(l.fc1, EXPERTS * 2 * FFN * WIDTH, 63);
  fill_with_noise(l.fc2, EXPERTS * WIDTH * FFN, 64);
  return l;
}

static void grouped_product(double *x, double *w, int32_t *index, int64_t n, int64_t k, double *y)
{
  run_kernel(
      (kernel_call){ KERNEL_GROUPED_GEMM, { ROWS, n, k, 1, EXPERTS }, { GEMM_NT } },
      (exec_tensor[]){ numbers(x, ROWS, k), numbers(w, EXPERTS * n, k), row_map(index), { 0 } },
      (exec_tensor[]){ numbers(y, ROWS, n), { 0 } });
}

static void layer_by_kernels(layer *l, double *probs, double *y)
{
  uint8_t map[CELLS];
  int32_t index[TOKENS * INDEX];
  double scores[CELLS], rows[ROWS * WIDTH], p[ROWS], wide[ROWS * 2 * FFN], act[ROWS * FFN],
      out[ROWS * WIDTH];
  run_kernel((kernel_call){ KERNEL_ROUTER_FORWARD, { TOKENS, EXPERTS, K }, { ROUTER_SIGMOID } },
             (exec_tensor[]){ numbers(l->logits, TOKENS, EXPERTS), { 0 } },
             (exec_tensor[]){ numbers(probs, TOKENS, EXPERTS),
                              bytes(map, CELLS),
                              numbers(scores, TOKENS, EXPERTS),
                              { 0 } });
  run_kernel(
      (kernel_call){ KERNEL_MOE_PERMUTE_FORWARD, { ROWS, WIDTH, TOKENS, EXPERTS }, { 0 } },
      (exec_tensor[]){
          numbers(l->x, TOKENS, WIDTH), numbers(probs, TOKENS, EXPERTS), bytes(map, CELLS), { 0 } },
      (exec_tensor[]){ numbers(rows, ROWS, WIDTH), row_map(index), numbers(p, ROWS, 0), { 0 } });
  grouped_product(rows, l->fc1, index, 2 * FFN, WIDTH, wide);
  run_kernel(
      (kernel_call){ KERNEL_WEIGHTED_ACTIVATION_FORWARD, { ROWS, FFN }, { ACTIVATION_SILU } },
      (exec_tensor[]){ numbers(wide, ROWS, 2 * FFN), numbers(p, ROWS, 0), { 0 } },
      (exec_tensor[]){ numbers(act, ROWS, FFN), { 0 } });
  grouped_product(act, l->fc2, index, WIDTH, FFN, out);
  run_kernel((kernel_call){ KERNEL_UNPERMUTE, { ROWS, WIDTH }, { 0 } },
             (exec_tensor[]){ numbers(out, ROWS, WIDTH), row_map(index), { 0 } },
             (exec_tensor[]){ numbers(y, TOKENS, WIDTH), { 0 } });
}

/* One expert's answer to one token. */
static void add_expert(const layer *l, int t, int e, double p, double *y)
{
  double wide[2 * FFN] = { 0 };
  for (int f = 0; f < 2 * FFN; f++)
    for (int j = 0; j < WIDTH; j++)
      wide[f] += l->x[t * WIDTH + j] * l->fc1[(e * 2 * FFN + f) * WIDTH + j];
  for (int f = 0; f < FFN; f++) {
    double x = wide[f], act;
    run_kernel((kernel_call){ KERNEL_ACTIVATION_FORWARD, { 1, 1 }, { ACTIVATION_SILU } },
               (exec_tensor[]){ numbers(&x, 1, 1), { 0 } },
               (exec_tensor[]){ numbers(&act, 1, 1), { 0 } });
    for (int j = 0; j < WIDTH; j++)
      y[t * WIDTH + j] += act * wide[FFN + f] * p * l->fc2[(e * WIDTH + j) * FFN + f];
  }
}

/* All experts answer all tokens; the probabilities of those that were not chosen are 0. */
static void test_layer_is_the_dense_computation(void **state)
{
  (void)state;
  layer l = filled_layer();
  double probs[CELLS], y[TOKENS * WIDTH], dense[TOKENS * WIDTH] = { 0 };
  layer_by_kernels(&l, probs, y);
  for (int t = 0; t < TOKENS; t++)
    for (int e = 0; e < EXPERTS; e++)
      add_expert(&l, t, e, probs[t * EXPERTS + e], dense);
  for (int i = 0; i < TOKENS * WIDTH; i++)
    assert_true(magnitude_of(y[i] - dense[i]) < 1e-14);
}

/* ---- exchange -------------------------------------------------------------------------------- */

enum { RANKS = 2, LOCAL = EXPERTS / RANKS };

/* Two ranks with the same choice. `slot`: rows that one rank has for an expert of another. */
static void exchange(int64_t slot, double *sent, double *arrived, int32_t *index, bool back)
{
  exec_call calls[RANKS];
  exec_tensor reads[RANKS][2], writes[RANKS][1];
  const exec_call *members[RANKS];
  plan_call call = { .is_collective = 1, .kind = COLLECTIVE_ALL_TO_ALL };
  for (int r = 0; r < RANKS; r++) {
    exec_tensor rows = numbers(sent + r * ROWS * WIDTH, ROWS, WIDTH);
    exec_tensor slots =
        tensor_of(arrived + r * EXPERTS * slot * WIDTH, DTYPE_FP64, RANKS, LOCAL, slot, WIDTH);
    reads[r][0] = back ? slots : rows;
    reads[r][1] = row_map(index);
    writes[r][0] = back ? rows : slots;
    calls[r] = (exec_call){
      .call = &call, .reads = reads[r], .writes = writes[r], .read_count = 2, .write_count = 1
    };
    members[r] = &calls[r];
  }
  ref_collectives[COLLECTIVE_ALL_TO_ALL](members, RANKS);
}

/* Rows of rank `source` for expert `e` are in its slot at the expert's rank. */
static double arrived_at(const double *arrived, int64_t slot, int source, int e, int64_t i, int j)
{
  int64_t rank = e / LOCAL, place = (source * LOCAL + e % LOCAL) * slot + i;
  return arrived[(rank * EXPERTS * slot + place) * WIDTH + j];
}

static void test_exchange_by_experts(void **state)
{
  (void)state;
  enum { SLOT = 6 };
  const int first[EXPERTS] = { 0, 5, 9, 9 }, count[EXPERTS] = { 5, 4, 0, 3 };
  static double sent[RANKS * ROWS * WIDTH], arrived[RANKS * EXPERTS * SLOT * WIDTH],
      back[RANKS * ROWS * WIDTH];
  permuted p = filled_permuted(false);
  permute_forward(&p);
  fill_with_noise(sent, RANKS * ROWS * WIDTH, 71);
  exchange(SLOT, sent, arrived, p.index, false);
  for (int r = 0; r < RANKS; r++)
    for (int e = 0; e < EXPERTS; e++)
      for (int i = 0; i < SLOT; i++)
        for (int j = 0; j < WIDTH; j++) {
          int row = r * ROWS + first[e] + i;
          double expected = i < count[e] ? sent[row * WIDTH + j] : 0;
          assert_true(arrived_at(arrived, SLOT, r, e, i, j) == expected);
        }
  exchange(SLOT, back, arrived, p.index, true);
  assert_memory_equal(back, sent, sizeof sent);
}

/* Slots of three rows: experts 0 and 1 have two and one too many, which come back as zeros. */
static void test_exchange_leaves_out(void **state)
{
  (void)state;
  enum { SLOT = 3 };
  const bool kept[ROWS] = { 1, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1 };
  static double sent[RANKS * ROWS * WIDTH], arrived[RANKS * EXPERTS * SLOT * WIDTH],
      back[RANKS * ROWS * WIDTH];
  permuted p = filled_permuted(false);
  permute_forward(&p);
  fill_with_noise(sent, RANKS * ROWS * WIDTH, 72);
  exchange(SLOT, sent, arrived, p.index, false);
  exchange(SLOT, back, arrived, p.index, true);
  for (int i = 0; i < RANKS * ROWS * WIDTH; i++)
    assert_true(back[i] == (kept[i / WIDTH % ROWS] ? sent[i] : 0));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_permute_gradients),
    cmocka_unit_test(test_order_of_rows),
    cmocka_unit_test(test_unfused_is_the_fused_permutation),
    cmocka_unit_test(test_selected_probabilities),
    cmocka_unit_test(test_chunks_go_and_come_back),
    cmocka_unit_test(test_grouped_gradients),
    cmocka_unit_test(test_grouped_weight_gradient_adds),
    cmocka_unit_test(test_weighted_gradients),
    cmocka_unit_test(test_halves_gradients),
    cmocka_unit_test(test_expert_bias_gradients),
    cmocka_unit_test(test_counts),
    cmocka_unit_test(test_layer_is_the_dense_computation),
    cmocka_unit_test(test_exchange_by_experts),
    cmocka_unit_test(test_exchange_leaves_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
