/*
 * The kernels of eager PyTorch: gradients against finite differences, in double, and of what has no
 * gradient the values.
 */
#include "tests/unit/finite_difference.h"

enum { ROWS = 3, COLUMNS = 5, ELEMENTS = ROWS * COLUMNS };

/* Numbers for one case: what forward reads and writes, and backward. */
typedef struct numbers_of_case {
  double a[ELEMENTS], b[ELEMENTS], y[ELEMENTS], gy[ELEMENTS], ga[ELEMENTS], gb[ELEMENTS];
} numbers_of_case;

static void fill(numbers_of_case *t)
{
  fill_with_noise(t->a, ELEMENTS, 1);
  fill_with_noise(t->b, ELEMENTS, 2);
  fill_with_noise(t->gy, ELEMENTS, 3);
  for (int i = 0; i < ELEMENTS; i++)
    t->y[i] = t->ga[i] = t->gb[i] = 0;
}

static exec_tensor all(double *data)
{
  return numbers(data, ROWS, COLUMNS);
}

/* A number of each row in all its columns. */
static exec_tensor spread(double *data)
{
  exec_tensor t = numbers(data, ROWS, COLUMNS);
  t.strides[0] = 1;
  t.strides[1] = 0;
  return t;
}

static void run_one(kernel_kind kind, double scalar, exec_tensor x, exec_tensor y)
{
  run_kernel((kernel_call){ .kind = kind, .dims = { ROWS, COLUMNS }, .scalars = { scalar } },
             (exec_tensor[]){ x, { 0 } }, (exec_tensor[]){ y, { 0 } });
}

static void run_two(kernel_kind kind, exec_tensor a, exec_tensor b, exec_tensor y)
{
  run_kernel((kernel_call){ .kind = kind, .dims = { ROWS, COLUMNS } },
             (exec_tensor[]){ a, b, { 0 } }, (exec_tensor[]){ y, { 0 } });
}

/* ---- elementwise ----------------------------------------------------------------------------- */

static void silu_forward(void *state)
{
  numbers_of_case *t = state;
  run_one(KERNEL_SILU_FORWARD, 0, all(t->a), all(t->y));
}

static void silu_backward(void *state)
{
  numbers_of_case *t = state;
  run_two(KERNEL_SILU_BACKWARD, all(t->gy), all(t->a), all(t->ga));
}

/* The gradients of a product with a number for each row, as the model makes them. */
static void multiply_forward(void *state)
{
  numbers_of_case *t = state;
  run_two(KERNEL_MULTIPLY_STRIDED, all(t->a), spread(t->b), all(t->y));
}

static void multiply_backward(void *state)
{
  numbers_of_case *t = state;
  double wide[ELEMENTS];
  run_two(KERNEL_MULTIPLY_STRIDED, all(t->gy), spread(t->b), all(t->ga));
  run_two(KERNEL_MULTIPLY, all(t->gy), all(t->a), all(wide));
  run_one(KERNEL_SUM, 1, all(wide), numbers(t->gb, ROWS, 1));
}

/* 1 / sqrt(mean of squares + a number), and the chain of kernels of its gradient. */
static void rstd_forward(void *state)
{
  numbers_of_case *t = state;
  double squares[ELEMENTS], means[ROWS];
  run_one(KERNEL_SQUARE, 0, all(t->a), all(squares));
  run_one(KERNEL_SUM, 1.0 / COLUMNS, all(squares), numbers(means, ROWS, 1));
  run_one(KERNEL_ADD_NUMBER, 0.125, numbers(means, ROWS, 1), numbers(means, ROWS, 1));
  run_one(KERNEL_RSQRT, 0, numbers(means, ROWS, 1), numbers(t->y, ROWS, 1));
}

static void rstd_backward(void *state)
{
  numbers_of_case *t = state;
  double cubes[ROWS], halves[ROWS], of_mean[ROWS], of_square[ELEMENTS], twice[ELEMENTS];
  run_one(KERNEL_CUBE, 0, numbers(t->y, ROWS, 1), numbers(cubes, ROWS, 1));
  run_one(KERNEL_SCALE, -0.5, numbers(t->gy, ROWS, 1), numbers(halves, ROWS, 1));
  run_two(KERNEL_MULTIPLY, numbers(halves, ROWS, 1), numbers(cubes, ROWS, 1),
          numbers(of_mean, ROWS, 1));
  run_one(KERNEL_DIVIDE_STRIDED, COLUMNS, spread(of_mean), all(of_square));
  run_one(KERNEL_SCALE, 2, all(t->a), all(twice));
  run_two(KERNEL_MULTIPLY, all(of_square), all(twice), all(t->ga));
}

/* A vector times every row: its gradient is the sum of rows. */
static void gain_forward(void *state)
{
  numbers_of_case *t = state;
  exec_tensor gain = all(t->b);
  gain.strides[0] = 0;
  run_two(KERNEL_MULTIPLY_STRIDED, all(t->a), gain, all(t->y));
}

static void gain_backward(void *state)
{
  numbers_of_case *t = state;
  double wide[ELEMENTS];
  run_two(KERNEL_MULTIPLY, all(t->gy), all(t->a), all(wide));
  run_one(KERNEL_COLUMN_SUMS, 0, all(wide), numbers(t->gb, 1, COLUMNS));
}

/* The fused norm's gain; y = gain (x rstd). */
static void fused_gain_forward(void *state)
{
  numbers_of_case *t = state;
  for (int i = 0; i < ELEMENTS; i++)
    t->y[i] = t->b[i % COLUMNS] * (t->a[i] * (2 + i / COLUMNS));
}

static void fused_gain_backward(void *state)
{
  numbers_of_case *t = state;
  double rstd[ROWS] = { 2, 3, 4 };
  run_kernel((kernel_call){ .kind = KERNEL_RMSNORM_GAIN, .dims = { ELEMENTS } },
             (exec_tensor[]){ all(t->gy), all(t->a), numbers(rstd, ROWS, 1), { 0 } },
             (exec_tensor[]){ numbers(t->gb, 1, COLUMNS), { 0 } });
}

/* ---- losses ---------------------------------------------------------------------------------- */

enum { IGNORED = -100 };

static void log_softmax_forward(void *state)
{
  numbers_of_case *t = state;
  run_one(KERNEL_LOG_SOFTMAX_FORWARD, 0, all(t->a), all(t->y));
}

static void log_softmax_backward(void *state)
{
  numbers_of_case *t = state;
  run_two(KERNEL_LOG_SOFTMAX_BACKWARD, all(t->gy), all(t->y), all(t->ga));
}

static int64_t labels[ROWS] = { 4, IGNORED, 1 };
static double counted;

static exec_tensor label_tensor(void)
{
  return tensor_of(labels, DTYPE_INT64, ROWS, 0, 0, 0);
}

static kernel_call of_tokens(kernel_kind kind)
{
  return (kernel_call){ .kind = kind, .dims = { ROWS, COLUMNS }, .scalars = { IGNORED } };
}

static void nll_forward(void *state)
{
  numbers_of_case *t = state;
  run_kernel(of_tokens(KERNEL_NLL_FORWARD), (exec_tensor[]){ all(t->a), label_tensor(), { 0 } },
             (exec_tensor[]){ numbers(t->y, 1, 1), numbers(&counted, 1, 1), { 0 } });
}

static void nll_backward(void *state)
{
  numbers_of_case *t = state;
  for (int i = 0; i < ELEMENTS; i++)
    t->ga[i] = 0;
  run_kernel(
      of_tokens(KERNEL_NLL_BACKWARD),
      (exec_tensor[]){ numbers(t->gy, 1, 1), label_tensor(), numbers(&counted, 1, 1), { 0 } },
      (exec_tensor[]){ all(t->ga), { 0 } });
}

static double sums[ROWS], penalties[ROWS];

static void log_probs_forward(void *state)
{
  numbers_of_case *t = state;
  run_kernel(
      of_tokens(KERNEL_LOG_PROBS_FORWARD), (exec_tensor[]){ all(t->a), label_tensor(), { 0 } },
      (exec_tensor[]){
          numbers(t->y, ROWS, 1), numbers(sums, ROWS, 1), numbers(penalties, ROWS, 1), { 0 } });
}

/* In place of the logits, which the check needs again. */
static void log_probs_backward(void *state)
{
  numbers_of_case *t = state;
  memcpy(t->ga, t->a, sizeof t->ga);
  run_kernel(
      of_tokens(KERNEL_LOG_PROBS_BACKWARD),
      (exec_tensor[]){
          numbers(t->gy, ROWS, 1), all(t->ga), numbers(sums, ROWS, 1), label_tensor(), { 0 } },
      (exec_tensor[]){ all(t->ga), { 0 } });
}

/* ---- the table of gradients ------------------------------------------------------------------ */

/* ---- Llama 4 --------------------------------------------------------------------------------- */

enum { COMPLEX = ELEMENTS - 1, CHOSEN = 2 };

/* By a table, which has no gradient. */
static void multiply_complex(numbers_of_case *t, bool conjugate, double *x, double *y)
{
  run_kernel((kernel_call){ .kind = KERNEL_COMPLEX_MULTIPLY,
                            .dims = { COMPLEX },
                            .scalars = { conjugate } },
             (exec_tensor[]){ numbers(x, COMPLEX, 0), numbers(t->b, COMPLEX, 0), { 0 } },
             (exec_tensor[]){ numbers(y, COMPLEX, 0), { 0 } });
}

static void complex_forward(void *state)
{
  numbers_of_case *t = state;
  multiply_complex(t, false, t->a, t->y);
}

static void complex_backward(void *state)
{
  numbers_of_case *t = state;
  multiply_complex(t, true, t->gy, t->ga);
}

static int64_t chosen[ROWS * CHOSEN] = { 4, 0, 2, 3, 1, 4 };

static void move_columns(kernel_kind kind, exec_tensor x, exec_tensor y)
{
  run_kernel((kernel_call){ .kind = kind, .dims = { ROWS, COLUMNS, CHOSEN } },
             (exec_tensor[]){ x, tensor_of(chosen, DTYPE_INT64, ROWS, CHOSEN, 0, 0), { 0 } },
             (exec_tensor[]){ y, { 0 } });
}

static void scatter_forward(void *state)
{
  numbers_of_case *t = state;
  move_columns(KERNEL_SCATTER_COLUMNS, numbers(t->a, ROWS, CHOSEN), all(t->y));
}

static void scatter_backward(void *state)
{
  numbers_of_case *t = state;
  move_columns(KERNEL_GATHER_COLUMNS, all(t->gy), numbers(t->ga, ROWS, CHOSEN));
}

static const struct {
  const char *name;
  void (*forward)(void *state), (*backward)(void *state);
  int outputs, inputs_a, inputs_b; /* elements; b: 0 if it has no gradient */
} cases[] = {
  { "silu", silu_forward, silu_backward, ELEMENTS, ELEMENTS, 0 },
  { "product with a column", multiply_forward, multiply_backward, ELEMENTS, ELEMENTS, ROWS },
  { "rstd in its kernels", rstd_forward, rstd_backward, ROWS, ELEMENTS, 0 },
  { "complex product", complex_forward, complex_backward, COMPLEX, COMPLEX, 0 },
  { "scattered columns", scatter_forward, scatter_backward, ELEMENTS, ROWS *CHOSEN, 0 },
  { "gain", gain_forward, gain_backward, ELEMENTS, 0, COLUMNS },
  { "fused gain", fused_gain_forward, fused_gain_backward, ELEMENTS, 0, COLUMNS },
  { "log softmax", log_softmax_forward, log_softmax_backward, ELEMENTS, ELEMENTS, 0 },
  { "nll", nll_forward, nll_backward, 1, ELEMENTS, 0 },
  { "log probabilities", log_probs_forward, log_probs_backward, ROWS, ELEMENTS, 0 },
};

static void gradients_are_differences(void **unused)
{
  (void)unused;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    numbers_of_case t;
    fill(&t);
    gradient_check check = { .forward = cases[i].forward,
                             .backward = cases[i].backward,
                             .state = &t,
                             .outputs = { { t.y, t.gy, cases[i].outputs } } };
    int inputs = 0;
    print_message("%s\n", cases[i].name);
    if (cases[i].inputs_a > 0)
      check.inputs[inputs++] = (checked_tensor){ t.a, t.ga, cases[i].inputs_a };
    if (cases[i].inputs_b > 0)
      check.inputs[inputs++] = (checked_tensor){ t.b, t.gb, cases[i].inputs_b };
    assert_gradients(check);
  }
}

/* ---- values ---------------------------------------------------------------------------------- */

static void rotary_angles_of_positions(void **unused)
{
  enum { BATCH = 2, POSITIONS = 3, WIDTH = 4, ANGLES = BATCH * POSITIONS * WIDTH };
  double once[ANGLES / 2], twice[ANGLES];
  (void)unused;
  run_kernel((kernel_call){ .kind = KERNEL_ROTARY_ANGLES,
                            .dims = { ANGLES },
                            .scalars = { 100, POSITIONS, WIDTH } },
             (exec_tensor[]){ { 0 } },
             (exec_tensor[]){ numbers(once, ANGLES / 2, 0), numbers(twice, ANGLES, 0), { 0 } });
  for (int row = 0; row < BATCH * POSITIONS; row++)
    for (int i = 0; i < WIDTH; i++) {
      double angle = row % POSITIONS * (i % 2 == 0 ? 1 : 0.1);
      assert_true(magnitude_of(twice[row * WIDTH + i] - angle) < 1e-15);
      if (i < WIDTH / 2) assert_true(once[row * WIDTH / 2 + i] == twice[row * WIDTH + i]);
    }
}

static void angles_as_complex_numbers(void **unused)
{
  double angles[] = { 0, 1.5707963267948966, 2 }, made[6];
  (void)unused;
  run_kernel((kernel_call){ .kind = KERNEL_ROTARY_POLAR, .dims = { 6 } },
             (exec_tensor[]){ numbers(angles, 3, 0), { 0 } },
             (exec_tensor[]){ numbers(made, 6, 0), { 0 } });
  assert_true(made[0] == 1 && made[1] == 0 && magnitude_of(made[2]) < 1e-15 && made[3] == 1);
  assert_true(magnitude_of(made[4] * made[4] + made[5] * made[5] - 1) < 1e-15 && made[4] < 0);
}

/* 1 + log(2) / 2 from the position on that, counted from 1, has the length. */
static void positions_scale_in_steps(void **unused)
{
  double made[7], log2 = 0.69314718055994531;
  (void)unused;
  run_kernel(
      (kernel_call){ .kind = KERNEL_POSITION_SCALE, .dims = { 7 }, .scalars = { 0.5, 3, 1 } },
      (exec_tensor[]){ { 0 } }, (exec_tensor[]){ numbers(made, 7, 0), { 0 } });
  assert_true(made[0] == 1 && made[1] == 1 && magnitude_of(made[2] - 1 - log2 / 2) < 1e-15);
  assert_true(made[4] == made[2] && made[5] > made[4] && made[6] == made[5]);
}

/* Of equal elements the lower column comes first. */
static void largest_elements(void **unused)
{
  double x[] = { 1, 3, 2, 3, 0, 5, 5, 5, 5, 5 }, values[4];
  int64_t columns[4];
  const int64_t wanted[] = { 1, 3, 0, 1 };
  (void)unused;
  run_kernel(
      (kernel_call){ .kind = KERNEL_TOPK, .dims = { 2, 5, 2 } },
      (exec_tensor[]){ numbers(x, 2, 5), { 0 } },
      (exec_tensor[]){ numbers(values, 2, 2), tensor_of(columns, DTYPE_INT64, 2, 2, 0, 0), { 0 } });
  assert_memory_equal(columns, wanted, sizeof wanted);
  assert_true(values[0] == 3 && values[1] == 3 && values[2] == 5 && values[3] == 5);
}

static void masks_hide_the_future(void **unused)
{
  enum { LENGTH = 3 };
  uint16_t mask[2 * LENGTH * LENGTH];
  (void)unused;
  run_kernel((kernel_call){ .kind = KERNEL_CAUSAL_MASK, .dims = { 2 * LENGTH, LENGTH } },
             (exec_tensor[]){ { 0 } },
             (exec_tensor[]){ tensor_of(mask, DTYPE_BF16, 2, LENGTH, LENGTH, 0), { 0 } });
  for (int i = 0; i < 2 * LENGTH * LENGTH; i++) {
    int row = i / LENGTH % LENGTH, column = i % LENGTH;
    assert_int_equal(mask[i], column <= row ? 0 : 0xff7f); /* -3.39e38, the lowest bf16 */
  }
}

static void rows_are_padded(void **unused)
{
  int64_t short_rows[] = { 1, 2, 3, 4 }, long_rows[6];
  const int64_t wanted[] = { 1, 2, IGNORED, 3, 4, IGNORED };
  (void)unused;
  run_kernel((kernel_call){ .kind = KERNEL_PAD, .dims = { 6 }, .scalars = { IGNORED, 3 } },
             (exec_tensor[]){ tensor_of(short_rows, DTYPE_INT64, 2, 2, 0, 0), { 0 } },
             (exec_tensor[]){ tensor_of(long_rows, DTYPE_INT64, 2, 3, 0, 0), { 0 } });
  assert_memory_equal(long_rows, wanted, sizeof wanted);
}

/* Minus the mean of what the labels pick, one of which is ignored. */
static void loss_is_a_mean(void **unused)
{
  numbers_of_case t;
  (void)unused;
  fill(&t);
  nll_forward(&t);
  assert_true(counted == 2);
  assert_true(t.y[0] == (-t.a[4] - t.a[2 * COLUMNS + 1]) / 2);
  log_probs_forward(&t);
  assert_true(t.y[1] == 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(gradients_are_differences), cmocka_unit_test(rotary_angles_of_positions),
    cmocka_unit_test(angles_as_complex_numbers), cmocka_unit_test(positions_scale_in_steps),
    cmocka_unit_test(largest_elements),          cmocka_unit_test(masks_hide_the_future),
    cmocka_unit_test(rows_are_padded),           cmocka_unit_test(loss_is_a_mean),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
