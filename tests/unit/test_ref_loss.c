/* Cross entropy in its three forms: backward against differences of forward, the losses against
 * their definition; what multi-token prediction needs. */
#include "tests/unit/finite_difference.h"

#include <math.h>

enum { WIDTH = 5, TOKENS = 4, VOCAB = 7 };

typedef struct loss_test {
  int64_t labels[TOKENS], target[TOKENS];
  uint8_t mask[TOKENS];
  double logits[TOKENS * VOCAB], work[TOKENS * VOCAB], softmax[TOKENS * VOCAB], maxima[TOKENS];
  double predicted[TOKENS], sums[TOKENS], losses[TOKENS], gy[TOKENS], gx[TOKENS * VOCAB];
  double parts[TOKENS * 3], gradient[TOKENS * VOCAB];
  double x[TOKENS * WIDTH], weight[VOCAB * WIDTH], x_gradient[TOKENS * WIDTH];
  double weight_gradient[VOCAB * WIDTH];
} loss_test;

static loss_test loss_case(void)
{
  loss_test t = { .labels = { 3, 0, 6, 3 } };
  fill_with_noise(t.logits, TOKENS * VOCAB, 14);
  fill_with_noise(t.gy, TOKENS, 15);
  fill_with_noise(t.x, TOKENS * WIDTH, 16);
  fill_with_noise(t.weight, VOCAB * WIDTH, 17);
  return t;
}

static kernel_call vocabulary(kernel_kind kind)
{
  return (kernel_call){ .kind = kind, .dims = { TOKENS, VOCAB } };
}

static exec_tensor of_tokens(double *x)
{
  return numbers(x, TOKENS, 0);
}

static exec_tensor of_vocabulary(double *x)
{
  return numbers(x, TOKENS, VOCAB);
}

static exec_tensor integers(int64_t *x)
{
  return tensor_of(x, DTYPE_INT64, TOKENS, 0, 0, 0);
}

/* clang-format off */
#define LIST(...) (const exec_tensor[]){ __VA_ARGS__, { 0 } }
/* clang-format on */

static void eager_forward(void *state)
{
  loss_test *t = state;
  exec_tensor mask = tensor_of(t->mask, DTYPE_BYTE, TOKENS, 0, 0, 0);
  run_kernel(vocabulary(KERNEL_CROSS_ENTROPY_MAXIMA), LIST(of_vocabulary(t->logits)),
             LIST(of_vocabulary(t->work), of_tokens(t->maxima)));
  run_kernel(vocabulary(KERNEL_CROSS_ENTROPY_SUMS),
             LIST(of_vocabulary(t->work), integers(t->labels), of_tokens(t->maxima)),
             LIST(of_vocabulary(t->softmax), mask, integers(t->target), of_tokens(t->predicted),
                  of_tokens(t->sums)));
  run_kernel(vocabulary(KERNEL_CROSS_ENTROPY_LOSS),
             LIST(of_vocabulary(t->softmax), of_tokens(t->sums), of_tokens(t->predicted)),
             LIST(of_tokens(t->losses), of_vocabulary(t->softmax)));
}

static void eager_backward(void *state)
{
  loss_test *t = state;
  exec_tensor mask = tensor_of(t->mask, DTYPE_BYTE, TOKENS, 0, 0, 0);
  run_kernel(vocabulary(KERNEL_CROSS_ENTROPY_BACKWARD),
             LIST(of_tokens(t->gy), of_vocabulary(t->softmax), mask, integers(t->target)),
             LIST(of_vocabulary(t->gx)));
}

static void te_forward(void *state)
{
  loss_test *t = state;
  run_kernel(vocabulary(KERNEL_ONLINE_SOFTMAX), LIST(of_vocabulary(t->logits), integers(t->labels)),
             LIST(numbers(t->parts, 12, 0)));
  run_kernel(vocabulary(KERNEL_FUSED_CROSS_ENTROPY),
             LIST(of_vocabulary(t->logits), integers(t->labels), numbers(t->parts, 12, 0)),
             LIST(of_tokens(t->losses), of_vocabulary(t->gradient)));
}

static void te_backward(void *state)
{
  loss_test *t = state;
  run_kernel(vocabulary(KERNEL_SCALE_ROWS), LIST(of_tokens(t->gy), of_vocabulary(t->gradient)),
             LIST(of_vocabulary(t->gx)));
}

static void linear_forward(void *state)
{
  loss_test *t = state;
  run_kernel(
      (kernel_call){ .kind = KERNEL_LINEAR_CROSS_ENTROPY_FORWARD,
                     .dims = { TOKENS, VOCAB, WIDTH, 1 } },
      LIST(numbers(t->x, TOKENS, WIDTH), numbers(t->weight, VOCAB, WIDTH), integers(t->labels)),
      LIST(of_tokens(t->losses), of_tokens(t->maxima), of_tokens(t->sums)));
}

static kernel_call product(int64_t m, int64_t n, int64_t k, gemm_layout layout)
{
  return (kernel_call){ .kind = KERNEL_GEMM, .dims = { m, n, k, 1 }, .scalars = { layout } };
}

static void linear_backward(void *state)
{
  loss_test *t = state;
  exec_tensor gx = of_vocabulary(t->gx), x = numbers(t->x, TOKENS, WIDTH);
  exec_tensor weight = numbers(t->weight, VOCAB, WIDTH);
  run_kernel((kernel_call){ .kind = KERNEL_LINEAR_CROSS_ENTROPY_BACKWARD,
                            .dims = { TOKENS, VOCAB, WIDTH, 1 } },
             LIST(x, weight, of_tokens(t->gy), integers(t->labels), of_tokens(t->maxima),
                  of_tokens(t->sums)),
             LIST(gx));
  run_kernel(product(TOKENS, WIDTH, VOCAB, GEMM_NN), LIST(gx, weight),
             LIST(numbers(t->x_gradient, TOKENS, WIDTH)));
  run_kernel(product(VOCAB, WIDTH, TOKENS, GEMM_TN), LIST(gx, x),
             LIST(numbers(t->weight_gradient, VOCAB, WIDTH)));
}

static void cross_entropies(void **state)
{
  (void)state;
  loss_test t = loss_case();
  gradient_check check = { .forward = eager_forward,
                           .backward = eager_backward,
                           .state = &t,
                           .outputs = { { t.losses, t.gy, TOKENS } },
                           .inputs = { { t.logits, t.gx, TOKENS * VOCAB } } };
  assert_gradients(check);
  check.forward = te_forward;
  check.backward = te_backward;
  assert_gradients(check);
  check.forward = linear_forward;
  check.backward = linear_backward;
  check.inputs[0] = (checked_tensor){ t.x, t.x_gradient, TOKENS * WIDTH };
  check.inputs[1] = (checked_tensor){ t.weight, t.weight_gradient, VOCAB * WIDTH };
  assert_gradients(check);
}

/* The three ways agree with the definition: log of the sum of exponentials, less the label's
 * logit. */
static void losses_agree(void **state)
{
  (void)state;
  loss_test t = loss_case();
  run_kernel(product(TOKENS, VOCAB, WIDTH, GEMM_NT),
             LIST(numbers(t.x, TOKENS, WIDTH), numbers(t.weight, VOCAB, WIDTH)),
             LIST(of_vocabulary(t.logits)));
  void (*const ways[])(void *) = { eager_forward, te_forward, linear_forward };
  for (int w = 0; w < 3; w++) {
    ways[w](&t);
    for (int i = 0; i < TOKENS; i++) {
      double sum = 0;
      for (int k = 0; k < VOCAB; k++)
        sum += exp(t.logits[i * VOCAB + k]);
      assert_true(fabs(t.losses[i] - (log(sum) - t.logits[i * VOCAB + t.labels[i]])) < 1e-13);
    }
  }
}

static void parts_and_rolls(void **state)
{
  (void)state;
  int64_t x[6] = { 1, 2, 3, 4, 5, 6 }, y[6];
  run_kernel((kernel_call){ .kind = KERNEL_ROLL, .dims = { 2, 3 } },
             LIST(tensor_of(x, DTYPE_INT64, 2, 3, 0, 0)),
             LIST(tensor_of(y, DTYPE_INT64, 2, 3, 0, 0)));
  assert_memory_equal(y, ((int64_t[]){ 2, 3, 0, 5, 6, 0 }), sizeof y);
  double gradient[6];
  run_kernel(
      (kernel_call){ .kind = KERNEL_MTP_LOSS_GRADIENT, .dims = { 2, 3 }, .scalars = { 2, 1 } },
      (const exec_tensor[]){ { 0 } }, LIST(numbers(gradient, 2, 3)));
  assert_memory_equal(gradient, ((double[]){ 0.5, 0.5, 0, 0.5, 0.5, 0 }), sizeof gradient);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(cross_entropies),
    cmocka_unit_test(losses_agree),
    cmocka_unit_test(parts_and_rolls),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
