/* Fused adapters, Liger's kernels and 4-bit weights: gradients against differences, codes against
 * values. */
#include "tests/unit/finite_difference.h"

#include <math.h>
#include <stdlib.h>

#include "sim/exec/code_books.h"

enum { ROWS = 5, WIDTH = 7, VOCABULARY = 6, RANK = 3 };

static const exec_tensor end = { .data = NULL };

/* ---- silu(gate) up ---- */

typedef struct gated {
  double gate[ROWS * WIDTH], up[ROWS * WIDTH], y[ROWS * WIDTH], gy[ROWS * WIDTH];
  double ggate[ROWS * WIDTH], gup[ROWS * WIDTH], again[ROWS * WIDTH];
} gated;

static const kernel_call gated_forward = { KERNEL_GATED_SILU_FORWARD, { ROWS, WIDTH }, { 0 } };
static const kernel_call gated_backward = { KERNEL_GATED_SILU_BACKWARD, { ROWS, WIDTH }, { 0 } };

static void run_gated_forward(void *state)
{
  gated *t = state;
  run_kernel(gated_forward,
             (exec_tensor[]){ numbers(t->gate, ROWS, WIDTH), numbers(t->up, ROWS, WIDTH), end },
             (exec_tensor[]){ numbers(t->y, ROWS, WIDTH), end });
}

static void run_gated_backward(void *state)
{
  gated *t = state;
  run_kernel(gated_backward,
             (exec_tensor[]){ numbers(t->gy, ROWS, WIDTH), numbers(t->gate, ROWS, WIDTH),
                              numbers(t->up, ROWS, WIDTH), end },
             (exec_tensor[]){ numbers(t->again, ROWS, WIDTH), numbers(t->ggate, ROWS, WIDTH),
                              numbers(t->gup, ROWS, WIDTH), end });
}

static void gated_gradients(void **state)
{
  (void)state;
  gated t;
  fill_with_noise(t.gate, ROWS * WIDTH, 1);
  fill_with_noise(t.up, ROWS * WIDTH, 2);
  fill_with_noise(t.gy, ROWS * WIDTH, 3);
  assert_gradients((gradient_check){
      .forward = run_gated_forward,
      .backward = run_gated_backward,
      .state = &t,
      .outputs = { { t.y, t.gy, ROWS * WIDTH } },
      .inputs = { { t.gate, t.ggate, ROWS * WIDTH }, { t.up, t.gup, ROWS * WIDTH } } });
  assert_memory_equal(t.again, t.y, sizeof t.y);
}

/* The gradients take the place of what they were made from. */
static void gated_in_place(void **state)
{
  (void)state;
  gated t;
  fill_with_noise(t.gate, ROWS * WIDTH, 1);
  fill_with_noise(t.up, ROWS * WIDTH, 2);
  fill_with_noise(t.gy, ROWS * WIDTH, 3);
  run_gated_backward(&t);
  exec_tensor gate = numbers(t.gate, ROWS, WIDTH), up = numbers(t.up, ROWS, WIDTH);
  run_kernel(gated_backward, (exec_tensor[]){ numbers(t.gy, ROWS, WIDTH), gate, up, end },
             (exec_tensor[]){ gate, up, end });
  assert_memory_equal(t.gate, t.ggate, sizeof t.gate);
  assert_memory_equal(t.up, t.gup, sizeof t.up);
}

/* ---- cross-entropy ---- */

typedef struct loss_rows {
  double logits[ROWS * VOCABULARY], gradient[ROWS * VOCABULARY], losses[ROWS], ones[ROWS];
  int64_t labels[ROWS];
} loss_rows;

static void run_loss(loss_rows *t, double *to)
{
  exec_tensor labels = tensor_of(t->labels, DTYPE_INT64, ROWS, 0, 0, 0);
  run_kernel((kernel_call){ KERNEL_ROWS_CROSS_ENTROPY, { ROWS, VOCABULARY }, { 0 } },
             (exec_tensor[]){ numbers(t->logits, ROWS, VOCABULARY), labels, labels, end },
             (exec_tensor[]){ numbers(to, ROWS, VOCABULARY), numbers(t->losses, ROWS, 0), end });
}

static void run_losses(void *state)
{
  loss_rows *t = state;
  run_loss(t, t->gradient);
}

static void nothing(void *state)
{
  (void)state;
}

static void loss_gradient(void **state)
{
  (void)state;
  loss_rows t = { .labels = { 2, 0, -100, 5, 2 }, .ones = { 1, 1, 1, 1, 1 } };
  double gradient[ROWS * VOCABULARY];
  fill_with_noise(t.logits, ROWS * VOCABULARY, 4);
  run_loss(&t, gradient);
  assert_gradients((gradient_check){ .forward = run_losses,
                                     .backward = nothing,
                                     .state = &t,
                                     .outputs = { { t.losses, t.ones, ROWS } },
                                     .inputs = { { t.logits, gradient, ROWS * VOCABULARY } } });
  assert_true(t.losses[2] == 0 && t.gradient[2 * VOCABULARY] == 0);
  double sum = 0;
  for (int i = 0; i < VOCABULARY; i++)
    sum += exp(t.logits[i]);
  assert_true(fabs(4 * t.losses[0] - (log(sum) - t.logits[2])) < 1e-12);
}

/* ---- products with a factor ---- */

static void scaled_products(void **state)
{
  (void)state;
  double a[ROWS * WIDTH], b[WIDTH * RANK], c[ROWS * RANK];
  fill_with_noise(a, ROWS * WIDTH, 5);
  fill_with_noise(b, WIDTH * RANK, 6);
  fill_with_noise(c, ROWS * RANK, 7);
  double expected[ROWS * RANK];
  for (int i = 0; i < ROWS * RANK; i++) {
    double sum = 0;
    for (int k = 0; k < WIDTH; k++)
      sum += a[i / RANK * WIDTH + k] * b[k * RANK + i % RANK];
    expected[i] = 1.5 * sum + c[i];
  }
  exec_tensor to = numbers(c, ROWS, RANK);
  run_kernel((kernel_call){ KERNEL_SCALED_GEMM, { ROWS, RANK, WIDTH, 1 }, { GEMM_NN, 1.5 } },
             (exec_tensor[]){ numbers(a, ROWS, WIDTH), numbers(b, WIDTH, RANK), to, end },
             (exec_tensor[]){ to, end });
  assert_memory_equal(c, expected, sizeof c);
}

/* ---- 4-bit weights ---- */

/* Some of the 256 values of bitsandbytes' create_dynamic_map. */
static void dynamic_codes(void **state)
{
  (void)state;
  float codes[CODES_8BIT];
  codes_8bit(codes);
  assert_true(codes[127] == 0 && codes[255] == 1);
  assert_true(codes[128] == 0x1.27476ep-21f && codes[129] == 0x1.b43528p-19f);
  assert_true(codes[200] == 0x1.de6666p-3f && codes[254] == 0x1.fc6666p-1f);
  for (int i = 1; i < CODES_8BIT; i++)
    assert_true(codes[i - 1] < codes[i]);
  for (int i = 0; i < 127; i++)
    assert_true(codes[i] == -codes[254 - i]);
}

/* As the executor does it: scales, plus their mean, elements. */
static void quantised_weights(void **state)
{
  (void)state;
  enum { ELEMENTS = 1000, BLOCK = 8, BLOCKS = ELEMENTS / BLOCK, NESTED = 50, NESTED_BLOCKS = 3 };
  float x[ELEMENTS], nested[NESTED_BLOCKS], mean;
  double noise[ELEMENTS], wide_nested[NESTED_BLOCKS], scales[BLOCKS], y[ELEMENTS];
  uint8_t codes[ELEMENTS / 2], scale_codes[BLOCKS];
  fill_with_noise(noise, ELEMENTS, 8);
  for (int i = 0; i < ELEMENTS; i++)
    x[i] = (float)noise[i];
  quantize_weight(x, ELEMENTS,
                  &(quantized_weight){ codes, scale_codes, nested, &mean, BLOCK, NESTED });
  for (int i = 0; i < NESTED_BLOCKS; i++)
    wide_nested[i] = (double)nested[i];
  run_kernel((kernel_call){ KERNEL_DEQUANTIZE_8BIT, { BLOCKS }, { NESTED } },
             (exec_tensor[]){ tensor_of(scale_codes, DTYPE_BYTE, BLOCKS, 0, 0, 0),
                              numbers(wide_nested, NESTED_BLOCKS, 0), end },
             (exec_tensor[]){ numbers(scales, BLOCKS, 0), end });
  for (int i = 0; i < BLOCKS; i++)
    scales[i] += (double)mean;
  run_kernel((kernel_call){ KERNEL_DEQUANTIZE_4BIT, { ELEMENTS }, { BLOCK } },
             (exec_tensor[]){ tensor_of(codes, DTYPE_BYTE, ELEMENTS / 2, 0, 0, 0),
                              numbers(scales, BLOCKS, 0), end },
             (exec_tensor[]){ numbers(y, ELEMENTS, 0), end });
  for (int i = 0; i < ELEMENTS; i++) {
    double largest = 0;
    for (int k = i / BLOCK * BLOCK; k < (i / BLOCK + 1) * BLOCK; k++)
      largest = fmax(largest, fabs((double)x[k]));
    assert_true(fabs(scales[i / BLOCK] - largest) < 0.01);
    assert_true(fabs(y[i] - (double)x[i]) < 0.16 * largest);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(gated_gradients), cmocka_unit_test(gated_in_place),
    cmocka_unit_test(loss_gradient),   cmocka_unit_test(scaled_products),
    cmocka_unit_test(dynamic_codes),   cmocka_unit_test(quantised_weights),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
