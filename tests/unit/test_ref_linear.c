/*
 * A linear layer, y = x w^T + b, as its kernels compute it: the gradients of input, weight and bias
 * are those that central differences of the forward give.
 */
#include "tests/unit/finite_difference.h"

enum { ROWS = 7, INPUTS = 13, OUTPUTS = 9 };

typedef struct layer {
  double x[ROWS * INPUTS], w[OUTPUTS * INPUTS], b[OUTPUTS], y[ROWS * OUTPUTS];
  double gy[ROWS * OUTPUTS], gx[ROWS * INPUTS], gw[OUTPUTS * INPUTS], gb[OUTPUTS];
} layer;

static kernel_call product(int64_t m, int64_t n, int64_t k, gemm_layout layout)
{
  return (kernel_call){ KERNEL_GEMM, { m, n, k, 1 }, { [GEMM_LAYOUT] = layout } };
}

/* The bias is the product's third operand. */
static void forward_fused(void *state)
{
  layer *l = state;
  run_kernel(product(ROWS, OUTPUTS, INPUTS, GEMM_NT),
             (exec_tensor[]){ numbers(l->x, ROWS, INPUTS),
                              numbers(l->w, OUTPUTS, INPUTS),
                              numbers(l->b, OUTPUTS, 0),
                              { 0 } },
             (exec_tensor[]){ numbers(l->y, ROWS, OUTPUTS), { 0 } });
}

/* A separate kernel adds the bias. */
static void forward_apart(void *state)
{
  layer *l = state;
  double before[ROWS * OUTPUTS];
  run_kernel(product(ROWS, OUTPUTS, INPUTS, GEMM_NT),
             (exec_tensor[]){ numbers(l->x, ROWS, INPUTS), numbers(l->w, OUTPUTS, INPUTS), { 0 } },
             (exec_tensor[]){ numbers(before, ROWS, OUTPUTS), { 0 } });
  run_kernel((kernel_call){ KERNEL_BIAS_ADD, { ROWS, OUTPUTS }, { 0 } },
             (exec_tensor[]){ numbers(before, ROWS, OUTPUTS), numbers(l->b, OUTPUTS, 0), { 0 } },
             (exec_tensor[]){ numbers(l->y, ROWS, OUTPUTS), { 0 } });
}

static void backward(void *state)
{
  layer *l = state;
  exec_tensor gy = numbers(l->gy, ROWS, OUTPUTS);
  run_kernel(product(ROWS, INPUTS, OUTPUTS, GEMM_NN),
             (exec_tensor[]){ gy, numbers(l->w, OUTPUTS, INPUTS), { 0 } },
             (exec_tensor[]){ numbers(l->gx, ROWS, INPUTS), { 0 } });
  run_kernel(product(OUTPUTS, INPUTS, ROWS, GEMM_TN),
             (exec_tensor[]){ gy, numbers(l->x, ROWS, INPUTS), { 0 } },
             (exec_tensor[]){ numbers(l->gw, OUTPUTS, INPUTS), { 0 } });
  run_kernel((kernel_call){ KERNEL_BIAS_GRAD, { ROWS, OUTPUTS }, { 0 } },
             (exec_tensor[]){ gy, { 0 } }, (exec_tensor[]){ numbers(l->gb, OUTPUTS, 0), { 0 } });
}

static void check(void (*forward)(void *state))
{
  static layer l;
  fill_with_noise(l.x, ROWS * INPUTS, 1);
  fill_with_noise(l.w, OUTPUTS * INPUTS, 2);
  fill_with_noise(l.b, OUTPUTS, 3);
  fill_with_noise(l.gy, ROWS * OUTPUTS, 4);
  assert_gradients((gradient_check){ .forward = forward,
                                     .backward = backward,
                                     .state = &l,
                                     .outputs = { { l.y, l.gy, ROWS * OUTPUTS } },
                                     .inputs = { { l.x, l.gx, ROWS * INPUTS },
                                                 { l.w, l.gw, OUTPUTS * INPUTS },
                                                 { l.b, l.gb, OUTPUTS } } });
}

static void bias_within_the_product(void **state)
{
  (void)state;
  check(forward_fused);
}

static void bias_apart(void **state)
{
  (void)state;
  check(forward_apart);
}

/* A second micro-batch adds its product to the existing gradient. */
static void weight_gradients_accumulate(void **state)
{
  (void)state;
  static layer l;
  static double sum[OUTPUTS * INPUTS];
  fill_with_noise(l.x, ROWS * INPUTS, 1);
  fill_with_noise(l.gy, ROWS * OUTPUTS, 4);
  fill_with_noise(sum, OUTPUTS * INPUTS, 5);
  backward(&l);
  for (int i = 0; i < OUTPUTS * INPUTS; i++)
    l.gw[i] = l.gw[i] + sum[i];
  kernel_call call = product(OUTPUTS, INPUTS, ROWS, GEMM_TN);
  call.scalars[GEMM_ADD] = 1;
  run_kernel(call,
             (exec_tensor[]){ numbers(l.gy, ROWS, OUTPUTS), numbers(l.x, ROWS, INPUTS), { 0 } },
             (exec_tensor[]){ numbers(sum, OUTPUTS, INPUTS), { 0 } });
  assert_memory_equal(sum, l.gw, sizeof sum);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(bias_within_the_product),
    cmocka_unit_test(bias_apart),
    cmocka_unit_test(weight_gradients_accumulate),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
