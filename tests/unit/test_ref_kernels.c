/* Norms, activations, dropout and embedding: backward against differences of forward, and what
 * forward says against its definition. */
#include "tests/unit/finite_difference.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

enum { ROWS = 3, WIDTH = 5, TOKENS = 4, VOCAB = 7 };

/* ---- norms ----------------------------------------------------------------------------------- */

typedef struct norm_test {
  bool centres;
  double zero_centred;
  double x[ROWS * WIDTH], gamma[WIDTH], beta[WIDTH], y[ROWS * WIDTH], rstd[ROWS], mean[ROWS];
  double gy[ROWS * WIDTH], gx[ROWS * WIDTH], ggamma[WIDTH], gbeta[WIDTH];
} norm_test;

static const double epsilon = 1e-3;

static void norm_forward(void *state)
{
  norm_test *t = state;
  kernel_call k = { .kind = t->centres ? KERNEL_LAYERNORM_FORWARD : KERNEL_RMSNORM_FORWARD,
                    .dims = { ROWS, WIDTH },
                    .scalars = { epsilon, t->zero_centred } };
  exec_tensor reads[4] = { numbers(t->x, ROWS, WIDTH), numbers(t->gamma, WIDTH, 0) };
  exec_tensor writes[4] = { numbers(t->y, ROWS, WIDTH), numbers(t->rstd, ROWS, 0) };
  if (t->centres) {
    reads[2] = numbers(t->beta, WIDTH, 0);
    writes[2] = numbers(t->mean, ROWS, 0);
  }
  run_kernel(k, reads, writes);
}

static void norm_backward(void *state)
{
  norm_test *t = state;
  kernel_call k = { .kind = t->centres ? KERNEL_LAYERNORM_BACKWARD : KERNEL_RMSNORM_BACKWARD,
                    .dims = { ROWS, WIDTH },
                    .scalars = { t->zero_centred } };
  exec_tensor reads[6] = { numbers(t->gy, ROWS, WIDTH), numbers(t->x, ROWS, WIDTH),
                           numbers(t->rstd, ROWS, 0) };
  exec_tensor writes[4] = { numbers(t->gx, ROWS, WIDTH), numbers(t->ggamma, WIDTH, 0) };
  int count = 3;
  if (t->centres) {
    reads[count++] = numbers(t->mean, ROWS, 0);
    writes[2] = numbers(t->gbeta, WIDTH, 0);
  }
  reads[count] = numbers(t->gamma, WIDTH, 0);
  run_kernel(k, reads, writes);
}

static void norms(void **state)
{
  (void)state;
  for (int i = 0; i < 4; i++) {
    norm_test t = { .centres = i & 1, .zero_centred = i >> 1 };
    fill_with_noise(t.x, ROWS * WIDTH, 1);
    fill_with_noise(t.gamma, WIDTH, 2);
    fill_with_noise(t.beta, WIDTH, 3);
    fill_with_noise(t.gy, ROWS * WIDTH, 4);
    gradient_check check = { .forward = norm_forward,
                             .backward = norm_backward,
                             .state = &t,
                             .outputs = { { t.y, t.gy, ROWS * WIDTH } },
                             .inputs = { { t.x, t.gx, ROWS * WIDTH },
                                         { t.gamma, t.ggamma, WIDTH } } };
    if (t.centres) check.inputs[2] = (checked_tensor){ t.beta, t.gbeta, WIDTH };
    assert_gradients(check);
  }
}

/* Inference keeps no statistics. */
static void norms_without_statistics(void **state)
{
  (void)state;
  for (int centres = 0; centres < 2; centres++) {
    norm_test t = { .centres = centres };
    double y[ROWS * WIDTH];
    fill_with_noise(t.x, ROWS * WIDTH, 1);
    fill_with_noise(t.gamma, WIDTH, 2);
    fill_with_noise(t.beta, WIDTH, 3);
    norm_forward(&t);
    run_kernel((kernel_call){ centres ? KERNEL_LAYERNORM_FORWARD : KERNEL_RMSNORM_FORWARD,
                              { ROWS, WIDTH },
                              { epsilon, 0 } },
               (exec_tensor[]){ numbers(t.x, ROWS, WIDTH),
                                numbers(t.gamma, WIDTH, 0),
                                centres ? numbers(t.beta, WIDTH, 0) : (exec_tensor){ 0 },
                                { 0 } },
               (exec_tensor[]){ numbers(y, ROWS, WIDTH), { 0 }, { 0 }, { 0 } });
    assert_memory_equal(y, t.y, sizeof y);
  }
}

/* Finite differences do not see it: backward would be that of the same gamma. */
static void a_zero_centred_gamma_has_one_added(void **state)
{
  (void)state;
  norm_test t = { .zero_centred = true, .gamma = { 0, 1, -1, 0.5, -0.5 } };
  norm_test plain = { .gamma = { 1, 2, 0, 1.5, 0.5 } };
  fill_with_noise(t.x, ROWS * WIDTH, 1);
  memcpy(plain.x, t.x, sizeof t.x);
  norm_forward(&t);
  norm_forward(&plain);
  assert_memory_equal(t.y, plain.y, sizeof t.y);
}

static void norm_of_a_row(void **state)
{
  (void)state;
  norm_test t = { .centres = true, .x = { 1, 2, 3, 4, 5 }, .gamma = { 1, 1, 2, 1, 1 } };
  t.beta[2] = 0.5;
  norm_forward(&t);
  assert_true(t.mean[0] == 3 && fabs(t.rstd[0] - 1 / sqrt(2 + epsilon)) < 1e-15);
  assert_true(t.y[2] == 0.5 && fabs(t.y[4] - 2 * t.rstd[0]) < 1e-15);
  t.centres = false;
  norm_forward(&t);
  assert_true(fabs(t.rstd[0] - 1 / sqrt(11 + epsilon)) < 1e-15);
}

static void unscaled_forward(void *state)
{
  norm_test *t = state;
  run_kernel((kernel_call){ KERNEL_UNSCALED_NORM_FORWARD, { ROWS, WIDTH }, { epsilon } },
             (exec_tensor[]){ numbers(t->x, ROWS, WIDTH), { 0 } },
             (exec_tensor[]){ numbers(t->y, ROWS, WIDTH), numbers(t->rstd, ROWS, 0), { 0 } });
}

static void unscaled_backward(void *state)
{
  norm_test *t = state;
  run_kernel((kernel_call){ KERNEL_UNSCALED_NORM_BACKWARD, { ROWS, WIDTH }, { 0 } },
             (exec_tensor[]){ numbers(t->gy, ROWS, WIDTH),
                              numbers(t->x, ROWS, WIDTH),
                              numbers(t->rstd, ROWS, 0),
                              { 0 } },
             (exec_tensor[]){ numbers(t->gx, ROWS, WIDTH), { 0 } });
}

static void unscaled_norms(void **state)
{
  (void)state;
  norm_test t = { .x = { 1, 2, 3, 4, 5 } }, plain = { .gamma = { 1, 1, 1, 1, 1 } };
  fill_with_noise(t.x + WIDTH, (ROWS - 1) * WIDTH, 1);
  fill_with_noise(t.gy, ROWS * WIDTH, 4);
  memcpy(plain.x, t.x, sizeof t.x);
  unscaled_forward(&t);
  norm_forward(&plain);
  assert_true(fabs(t.rstd[0] - 1 / sqrt(11 + epsilon)) < 1e-15);
  assert_memory_equal(t.y, plain.y, sizeof t.y);
  assert_gradients((gradient_check){ .forward = unscaled_forward,
                                     .backward = unscaled_backward,
                                     .state = &t,
                                     .outputs = { { t.y, t.gy, ROWS * WIDTH } },
                                     .inputs = { { t.x, t.gx, ROWS * WIDTH } } });
}

/* ---- activations ----------------------------------------------------------------------------- */

typedef struct activation_test {
  activation_function function;
  bool gated, biased;
  double x[ROWS * 2 * WIDTH], bias[2 * WIDTH], y[ROWS * WIDTH], gy[ROWS * WIDTH];
  double gx[ROWS * 2 * WIDTH], gbias[2 * WIDTH];
} activation_test;

static int64_t inputs_of(const activation_test *t)
{
  return t->gated ? 2 * WIDTH : WIDTH;
}

static kernel_call activation_call(const activation_test *t, kernel_kind kind)
{
  return (kernel_call){ .kind = kind,
                        .dims = { ROWS, inputs_of(t) },
                        .scalars = { t->function, t->gated } };
}

static void activation_forward(void *state)
{
  activation_test *t = state;
  int64_t inputs = inputs_of(t);
  exec_tensor reads[3] = { numbers(t->x, ROWS, inputs) },
              writes[2] = { numbers(t->y, ROWS, WIDTH) };
  if (t->biased) reads[1] = numbers(t->bias, inputs, 0);
  run_kernel(activation_call(t, KERNEL_ACTIVATION_FORWARD), reads, writes);
}

static void activation_backward(void *state)
{
  activation_test *t = state;
  int64_t inputs = inputs_of(t);
  exec_tensor reads[4] = { numbers(t->gy, ROWS, WIDTH), numbers(t->x, ROWS, inputs) };
  exec_tensor gx[2] = { numbers(t->gx, ROWS, inputs) }, gbias[2] = { numbers(t->gbias, inputs, 0) };
  if (t->biased) reads[2] = numbers(t->bias, inputs, 0);
  run_kernel(activation_call(t, KERNEL_ACTIVATION_BACKWARD), reads, gx);
  run_kernel((kernel_call){ .kind = KERNEL_BIAS_GRAD, .dims = { ROWS, inputs } }, gx, gbias);
}

static void activations(void **state)
{
  (void)state;
  for (int f = ACTIVATION_GELU_TANH; f <= ACTIVATION_SQUARED_RELU; f++)
    for (int i = 0; i < 4; i++) {
      activation_test t = { .function = (activation_function)f, .gated = i & 1, .biased = i >> 1 };
      int64_t inputs = inputs_of(&t);
      fill_with_noise(t.x, ROWS * inputs, 5);
      fill_with_noise(t.bias, inputs, 6);
      fill_with_noise(t.gy, ROWS * WIDTH, 7);
      for (int64_t k = 0; k < ROWS * inputs; k++)
        t.x[k] *= 3;
      gradient_check check = { .forward = activation_forward,
                               .backward = activation_backward,
                               .state = &t,
                               .outputs = { { t.y, t.gy, ROWS * WIDTH } },
                               .inputs = { { t.x, t.gx, ROWS * inputs } } };
      if (t.biased) check.inputs[1] = (checked_tensor){ t.bias, t.gbias, inputs };
      assert_gradients(check);
    }
}

static double activated(activation_function f, double x)
{
  activation_test t = { .function = f, .x = { x } };
  activation_forward(&t);
  return t.y[0];
}

static void values_of_activations(void **state)
{
  (void)state;
  for (double x = -6; x <= 6; x += 0.37) {
    double inner = sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
    assert_true(fabs(activated(ACTIVATION_GELU_TANH, x) - x * (1 + tanh(inner)) / 2) < 1e-14);
    assert_true(fabs(activated(ACTIVATION_GELU_ERF, x) - x * (1 + erf(x / sqrt(2))) / 2) < 1e-14);
    assert_true(fabs(activated(ACTIVATION_SILU, x) - x / (1 + exp(-x))) < 1e-14);
    assert_true(fabs(activated(ACTIVATION_QUICK_GELU, x) - x / (1 + exp(-1.702 * x))) < 1e-14);
    assert_true(activated(ACTIVATION_SQUARED_RELU, x) == (x > 0 ? x * x : 0));
  }
}

/* ---- bias, dropout, residual ----------------------------------------------------------------- */

typedef struct dropout_test {
  double x[ROWS * WIDTH], residual[ROWS * WIDTH], bias[WIDTH], y[ROWS * WIDTH], gy[ROWS * WIDTH];
  double gx[ROWS * WIDTH], gbias[WIDTH];
  uint8_t mask[ROWS * WIDTH];
} dropout_test;

static const double probability = 0.3;

static void dropout_forward(void *state)
{
  dropout_test *t = state;
  exec_tensor reads[] = {
    numbers(t->x, ROWS, WIDTH), numbers(t->residual, ROWS, WIDTH), numbers(t->bias, WIDTH, 0), { 0 }
  };
  exec_tensor writes[] = { numbers(t->y, ROWS, WIDTH),
                           tensor_of(t->mask, DTYPE_BYTE, ROWS, WIDTH, 0, 0),
                           { 0 } };
  run_kernel((kernel_call){ .kind = KERNEL_BIAS_DROPOUT_ADD_FORWARD,
                            .dims = { ROWS * WIDTH },
                            .scalars = { probability } },
             reads, writes);
}

static void dropout_backward(void *state)
{
  dropout_test *t = state;
  exec_tensor reads[] = { numbers(t->gy, ROWS, WIDTH),
                          tensor_of(t->mask, DTYPE_BYTE, ROWS, WIDTH, 0, 0),
                          { 0 } };
  exec_tensor gx[] = { numbers(t->gx, ROWS, WIDTH), { 0 } };
  exec_tensor gbias[] = { numbers(t->gbias, WIDTH, 0), { 0 } };
  run_kernel((kernel_call){ .kind = KERNEL_BIAS_DROPOUT_ADD_BACKWARD,
                            .dims = { ROWS * WIDTH },
                            .scalars = { probability } },
             reads, gx);
  run_kernel((kernel_call){ .kind = KERNEL_BIAS_GRAD, .dims = { ROWS, WIDTH } }, gx, gbias);
}

static void bias_dropout_add(void **state)
{
  (void)state;
  dropout_test t;
  fill_with_noise(t.x, ROWS * WIDTH, 8);
  fill_with_noise(t.residual, ROWS * WIDTH, 9);
  fill_with_noise(t.bias, WIDTH, 10);
  fill_with_noise(t.gy, ROWS * WIDTH, 11);
  assert_gradients((gradient_check){ .forward = dropout_forward,
                                     .backward = dropout_backward,
                                     .state = &t,
                                     .outputs = { { t.y, t.gy, ROWS * WIDTH } },
                                     .inputs = { { t.x, t.gx, ROWS * WIDTH },
                                                 { t.residual, t.gy, ROWS * WIDTH },
                                                 { t.bias, t.gbias, WIDTH } } });
}

/* How many of many elements are dropped, and that they are the same again, wherever a part of them
 * is. */
static void dropout_rate(void **state)
{
  (void)state;
  enum { COUNT = 40000 };
  double *x = malloc(2 * COUNT * sizeof *x), *y = x + COUNT;
  uint8_t *mask = malloc(2 * COUNT);
  int64_t kept = 0;
  exec_tensor reads[] = { numbers(x, COUNT, 0), { 0 } };
  exec_tensor writes[] = { numbers(y, COUNT, 0),
                           tensor_of(mask, DTYPE_BYTE, COUNT, 0, 0, 0),
                           { 0 } };
  kernel_call k = { .kind = KERNEL_DROPOUT_FORWARD, .scalars = { probability, 1 } };
  for (int i = 0; i < COUNT; i++)
    x[i] = 1;
  run_kernel(k, reads, writes);
  for (int i = 0; i < COUNT; i++) {
    assert_true(y[i] == (mask[i] ? 1 / (1 - probability) : 0));
    kept += mask[i];
  }
  assert_true(llabs(kept - (int64_t)(COUNT * (1 - probability))) < 400);
  exec_tensor half_x[] = { numbers(x, COUNT / 2, 0), { 0 } };
  exec_tensor half[] = { numbers(y, COUNT / 2, 0),
                         tensor_of(mask + COUNT, DTYPE_BYTE, COUNT / 2, 0, 0, 0),
                         { 0 } };
  plan_call call = { .kind = KERNEL_DROPOUT_FORWARD, .scalars = { probability, 1 } };
  plan_site site = { .module = "tested" };
  exec_step step = { .seed = 1 };
  exec_rank rank = { .group = { [GROUP_TP] = { 1, 2 }, [GROUP_DP] = { 0, 1 } } };
  ref_kernels[KERNEL_DROPOUT_FORWARD](&(exec_call){ .call = &call,
                                                    .reads = half_x,
                                                    .writes = half,
                                                    .read_count = 1,
                                                    .write_count = 2,
                                                    .site = &site,
                                                    .rank = &rank,
                                                    .step = &step });
  assert_memory_equal(mask + COUNT / 2, mask + COUNT, COUNT / 2);
  free(x);
  free(mask);
}

/* ---- embedding ------------------------------------------------------------------------------- */

typedef struct embedding_test {
  int64_t indices[TOKENS], own[TOKENS];
  uint8_t mask[TOKENS];
  double table[VOCAB * WIDTH], rows[TOKENS * WIDTH], gy[TOKENS * WIDTH], gtable[VOCAB * WIDTH];
} embedding_test;

static void embedding_forward(void *state)
{
  embedding_test *t = state;
  exec_tensor indices[] = { tensor_of(t->indices, DTYPE_INT64, TOKENS, 0, 0, 0), { 0 } };
  exec_tensor own[] = { tensor_of(t->own, DTYPE_INT64, TOKENS, 0, 0, 0),
                        tensor_of(t->mask, DTYPE_BYTE, TOKENS, 0, 0, 0),
                        { 0 } };
  run_kernel((kernel_call){ .kind = KERNEL_VOCABULARY_PART, .scalars = { VOCAB } }, indices, own);
  exec_tensor reads[] = { own[0], numbers(t->table, VOCAB, WIDTH), own[1], { 0 } };
  run_kernel((kernel_call){ .kind = KERNEL_EMBEDDING_FORWARD, .dims = { TOKENS, WIDTH } }, reads,
             (exec_tensor[]){ numbers(t->rows, TOKENS, WIDTH), { 0 } });
}

static void embedding_backward(void *state)
{
  embedding_test *t = state;
  exec_tensor reads[] = { numbers(t->gy, TOKENS, WIDTH),
                          tensor_of(t->own, DTYPE_INT64, TOKENS, 0, 0, 0),
                          tensor_of(t->mask, DTYPE_BYTE, TOKENS, 0, 0, 0),
                          { 0 } };
  run_kernel((kernel_call){ .kind = KERNEL_EMBEDDING_BACKWARD, .dims = { TOKENS, WIDTH } }, reads,
             (exec_tensor[]){ numbers(t->gtable, VOCAB, WIDTH), { 0 } });
}

/* One token twice, one of another rank. */
static void embedding(void **state)
{
  (void)state;
  embedding_test t = { .indices = { 2, 6, 2, VOCAB + 1 } };
  fill_with_noise(t.table, VOCAB * WIDTH, 12);
  fill_with_noise(t.gy, TOKENS * WIDTH, 13);
  assert_gradients((gradient_check){ .forward = embedding_forward,
                                     .backward = embedding_backward,
                                     .state = &t,
                                     .outputs = { { t.rows, t.gy, TOKENS * WIDTH } },
                                     .inputs = { { t.table, t.gtable, VOCAB * WIDTH } } });
  assert_true(t.mask[3] == 1 && t.own[3] == 0 && t.rows[3 * WIDTH] == 0);
  assert_true(t.mask[1] == 0 && t.rows[WIDTH] == t.table[6 * WIDTH]);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(norms),
    cmocka_unit_test(norms_without_statistics),
    cmocka_unit_test(a_zero_centred_gamma_has_one_added),
    cmocka_unit_test(norm_of_a_row),
    cmocka_unit_test(unscaled_norms),
    cmocka_unit_test(activations),
    cmocka_unit_test(values_of_activations),
    cmocka_unit_test(bias_dropout_add),
    cmocka_unit_test(dropout_rate),
    cmocka_unit_test(embedding),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
