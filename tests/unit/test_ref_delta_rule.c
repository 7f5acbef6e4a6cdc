/* Linear attention: the gated delta rule by chunks against the recurrence that it computes, and
 * gradients of all its kernels against differences. */
#include "tests/unit/finite_difference.h"

#include <math.h>

enum {
  BATCH = 2,
  TOKENS = 7,
  KEY_HEADS = 1,
  HEADS = 2,
  KEY = 3,
  VALUE = 2,
  CHUNK = 4,
  CHUNKS = 2,
  POSITIONS = BATCH * TOKENS,
  KEYS = POSITIONS * KEY_HEADS * KEY,
  WIDE_KEYS = POSITIONS * HEADS * KEY,
  VALUES = POSITIONS * HEADS * VALUE,
  NUMBERS = POSITIONS * HEADS,
  STATES = BATCH * CHUNKS * HEADS * KEY * VALUE,
  PARTS = 2 /* of the columns of keys */
};

typedef struct rule {
  double q[KEYS], k[KEYS], v[VALUES], decay[NUMBERS], beta[NUMBERS];
  double sums[NUMBERS], inverses[NUMBERS * CHUNK], read[WIDE_KEYS], write[VALUES];
  double states[STATES], values[VALUES], o[VALUES], go[VALUES];
  double local[VALUES], of_states[STATES], of_values[VALUES], of_read[WIDE_KEYS];
  double wide_gq[WIDE_KEYS], wide_gk[WIDE_KEYS], more_gk[WIDE_KEYS];
  double of_sums[PARTS * NUMBERS], more_sums[NUMBERS];
  double gq[KEYS], gk[KEYS], gv[VALUES], gdecay[NUMBERS], gbeta[NUMBERS];
} rule;

static const exec_tensor end = { .data = NULL };

static exec_tensor flat(double *data, int64_t count)
{
  return numbers(data, count, 0);
}

static void run_delta(kernel_kind kind, const exec_tensor *reads, const exec_tensor *writes)
{
  run_kernel((kernel_call){ kind, { BATCH, TOKENS, KEY_HEADS, HEADS, KEY, VALUE, CHUNK }, { 0 } },
             reads, writes);
}

static void sum_in_chunks(double *from, double *to, bool reversed)
{
  run_kernel((kernel_call){ KERNEL_CHUNK_SUMS, { BATCH, TOKENS, HEADS, CHUNK }, { reversed } },
             (exec_tensor[]){ flat(from, NUMBERS), end },
             (exec_tensor[]){ flat(to, NUMBERS), end });
}

static void forward(void *state)
{
  rule *t = state;
  exec_tensor k = flat(t->k, KEYS), sums = flat(t->sums, NUMBERS), beta = flat(t->beta, NUMBERS);
  exec_tensor inverses = flat(t->inverses, NUMBERS * CHUNK);
  exec_tensor read = flat(t->read, WIDE_KEYS), write = flat(t->write, VALUES);
  exec_tensor states = flat(t->states, STATES), values = flat(t->values, VALUES);
  sum_in_chunks(t->decay, t->sums, false);
  run_delta(KERNEL_DELTA_INVERSE, (exec_tensor[]){ k, sums, beta, end },
            (exec_tensor[]){ inverses, end });
  run_delta(KERNEL_DELTA_UPDATES,
            (exec_tensor[]){ k, flat(t->v, VALUES), beta, inverses, sums, end },
            (exec_tensor[]){ read, write, end });
  run_delta(KERNEL_DELTA_STATES, (exec_tensor[]){ k, read, write, sums, end },
            (exec_tensor[]){ states, values, end });
  run_delta(KERNEL_DELTA_OUTPUT, (exec_tensor[]){ flat(t->q, KEYS), k, values, states, sums, end },
            (exec_tensor[]){ flat(t->o, VALUES), end });
}

/* Both value heads share a key head. */
static void add_heads(const double *wide, double *to)
{
  for (int p = 0; p < POSITIONS; p++)
    for (int h = 0; h < HEADS; h++)
      for (int w = 0; w < KEY; w++)
        to[p * KEY + w] += wide[(p * HEADS + h) * KEY + w];
}

static void backward(void *state)
{
  rule *t = state;
  exec_tensor q = flat(t->q, KEYS), k = flat(t->k, KEYS), sums = flat(t->sums, NUMBERS);
  exec_tensor go = flat(t->go, VALUES), read = flat(t->read, WIDE_KEYS);
  exec_tensor values = flat(t->values, VALUES), states = flat(t->states, STATES);
  exec_tensor local = flat(t->local, VALUES), of_states = flat(t->of_states, STATES);
  exec_tensor of_values = flat(t->of_values, VALUES), of_read = flat(t->of_read, WIDE_KEYS);
  run_delta(KERNEL_DELTA_VALUE_GRADIENT, (exec_tensor[]){ q, k, sums, go, end },
            (exec_tensor[]){ local, end });
  run_delta(KERNEL_DELTA_STATES_BACKWARD, (exec_tensor[]){ q, k, read, sums, go, local, end },
            (exec_tensor[]){ of_states, of_values, end });
  run_delta(KERNEL_DELTA_OUTPUT_BACKWARD,
            (exec_tensor[]){ q, k, values, sums, states, of_values, go, of_states, end },
            (exec_tensor[]){ flat(t->wide_gq, WIDE_KEYS), flat(t->wide_gk, WIDE_KEYS),
                             flat(t->of_sums, PARTS * NUMBERS), of_read, end });
  run_delta(KERNEL_DELTA_UPDATES_BACKWARD,
            (exec_tensor[]){ k, flat(t->v, VALUES), flat(t->beta, NUMBERS), sums,
                             flat(t->inverses, NUMBERS * CHUNK), of_read, of_values, end },
            (exec_tensor[]){ flat(t->more_gk, WIDE_KEYS), flat(t->gv, VALUES),
                             flat(t->gbeta, NUMBERS), flat(t->more_sums, NUMBERS), end });
  memset(t->gq, 0, sizeof t->gq);
  memset(t->gk, 0, sizeof t->gk);
  add_heads(t->wide_gq, t->gq);
  add_heads(t->wide_gk, t->gk);
  add_heads(t->more_gk, t->gk);
  for (int i = 0; i < NUMBERS; i++)
    for (int part = 0; part < PARTS; part++)
      t->more_sums[i] += t->of_sums[part * NUMBERS + i];
  sum_in_chunks(t->more_sums, t->gdecay, true);
}

static void fill(rule *t)
{
  memset(t, 0, sizeof *t);
  fill_with_noise(t->q, KEYS, 1);
  fill_with_noise(t->k, KEYS, 2);
  fill_with_noise(t->v, VALUES, 3);
  fill_with_noise(t->decay, NUMBERS, 4);
  fill_with_noise(t->beta, NUMBERS, 5);
  fill_with_noise(t->go, VALUES, 6);
  for (int i = 0; i < NUMBERS; i++)
    t->decay[i] = (t->decay[i] - 1) / 2; /* below 0 */
}

/* S = exp(g) S; S += beta k (v - k S)^T; o = q S / sqrt(width of a key) */
static void recurrence(const rule *t, double *o)
{
  for (int bh = 0; bh < BATCH * HEADS; bh++) {
    double s[KEY][VALUE] = { 0 };
    for (int i = 0; i < TOKENS; i++) {
      int row = (bh / HEADS * TOKENS + i) * HEADS + bh % HEADS;
      const double *q = t->q + row / HEADS * KEY, *k = t->k + row / HEADS * KEY;
      for (int v = 0; v < VALUE; v++) {
        double predicted = 0, sum = 0;
        for (int w = 0; w < KEY; w++)
          predicted += k[w] * (s[w][v] *= exp(t->decay[row]));
        for (int w = 0; w < KEY; w++) {
          s[w][v] += t->beta[row] * k[w] * (t->v[row * VALUE + v] - predicted);
          sum += q[w] * s[w][v];
        }
        o[row * VALUE + v] = sum / sqrt(KEY);
      }
    }
  }
}

static void chunks_compute_the_recurrence(void **state)
{
  (void)state;
  rule t;
  double o[VALUES];
  fill(&t);
  forward(&t);
  recurrence(&t, o);
  for (int i = 0; i < VALUES; i++)
    assert_true(fabs(t.o[i] - o[i]) < 1e-12);
}

static void delta_rule_gradients(void **state)
{
  (void)state;
  rule t;
  fill(&t);
  assert_gradients((gradient_check){ .forward = forward,
                                     .backward = backward,
                                     .state = &t,
                                     .outputs = { { t.o, t.go, VALUES } },
                                     .inputs = { { t.q, t.gq, KEYS },
                                                 { t.k, t.gk, KEYS },
                                                 { t.v, t.gv, VALUES },
                                                 { t.decay, t.gdecay, NUMBERS },
                                                 { t.beta, t.gbeta, NUMBERS } } });
}

/* ---- the convolution ---- */

enum { CHANNELS = 3, WIDTH = 3, ELEMENTS = BATCH * TOKENS * CHANNELS };

typedef struct convolution {
  double x[ELEMENTS], weight[CHANNELS * WIDTH], y[ELEMENTS], gy[ELEMENTS];
  double gx[ELEMENTS], gweight[CHANNELS * WIDTH];
} convolution;

static kernel_call convolution_call(kernel_kind kind)
{
  return (kernel_call){ kind, { BATCH, TOKENS, CHANNELS, WIDTH }, { 0 } };
}

static void convolve(void *state)
{
  convolution *t = state;
  run_kernel(convolution_call(KERNEL_CAUSAL_CONV_FORWARD),
             (exec_tensor[]){ flat(t->x, ELEMENTS), flat(t->weight, CHANNELS * WIDTH), end },
             (exec_tensor[]){ flat(t->y, ELEMENTS), end });
}

static void convolve_backward(void *state)
{
  convolution *t = state;
  run_kernel(convolution_call(KERNEL_CAUSAL_CONV_BACKWARD),
             (exec_tensor[]){ flat(t->gy, ELEMENTS), flat(t->x, ELEMENTS),
                              flat(t->weight, CHANNELS * WIDTH), end },
             (exec_tensor[]){ flat(t->gx, ELEMENTS), flat(t->gweight, CHANNELS * WIDTH), end });
}

static void convolution_gradients(void **state)
{
  (void)state;
  convolution t;
  fill_with_noise(t.x, ELEMENTS, 1);
  fill_with_noise(t.weight, CHANNELS * WIDTH, 2);
  fill_with_noise(t.gy, ELEMENTS, 3);
  convolve(&t);
  double first = t.weight[WIDTH - 1] * t.x[0]; /* nothing comes before */
  assert_true(fabs(t.y[0] - first / (1 + exp(-first))) < 1e-15);
  assert_gradients((gradient_check){
      .forward = convolve,
      .backward = convolve_backward,
      .state = &t,
      .outputs = { { t.y, t.gy, ELEMENTS } },
      .inputs = { { t.x, t.gx, ELEMENTS }, { t.weight, t.gweight, CHANNELS * WIDTH } } });
}

/* ---- of rows and elements ---- */

enum { ROWS = 4, H = 5 };

typedef struct rows {
  kernel_kind forward, backward;
  double x[ROWS * H], y[ROWS * H], gy[ROWS * H], gx[ROWS * H], inverse[ROWS];
} rows;

static void norm(void *state)
{
  rows *t = state;
  run_kernel((kernel_call){ KERNEL_L2NORM_FORWARD, { ROWS, H }, { 0.25 } },
             (exec_tensor[]){ flat(t->x, ROWS * H), end },
             (exec_tensor[]){ flat(t->y, ROWS * H), flat(t->inverse, ROWS), end });
}

static void norm_backward(void *state)
{
  rows *t = state;
  run_kernel(
      (kernel_call){ KERNEL_L2NORM_BACKWARD, { ROWS, H }, { 0 } },
      (exec_tensor[]){ flat(t->gy, ROWS * H), flat(t->y, ROWS * H), flat(t->inverse, ROWS), end },
      (exec_tensor[]){ flat(t->gx, ROWS * H), end });
}

static void check_rows(rows *t, void (*forward_of)(void *), void (*backward_of)(void *))
{
  fill_with_noise(t->x, ROWS * H, 1);
  fill_with_noise(t->gy, ROWS * H, 2);
  t->x[0] = 25; /* softplus is x */
  assert_gradients((gradient_check){ .forward = forward_of,
                                     .backward = backward_of,
                                     .state = t,
                                     .outputs = { { t->y, t->gy, ROWS * H } },
                                     .inputs = { { t->x, t->gx, ROWS * H } } });
}

static void norm_gradients(void **state)
{
  (void)state;
  rows t;
  check_rows(&t, norm, norm_backward);
}

static void map(void *state)
{
  rows *t = state;
  run_kernel((kernel_call){ t->forward, { ROWS * H }, { 0 } },
             (exec_tensor[]){ flat(t->x, ROWS * H), end },
             (exec_tensor[]){ flat(t->y, ROWS * H), end });
}

/* The sigmoid keeps its result, softplus its operand. */
static void map_backward(void *state)
{
  rows *t = state;
  double *kept = t->backward == KERNEL_SIGMOID_BACKWARD ? t->y : t->x;
  run_kernel((kernel_call){ t->backward, { ROWS * H }, { 0 } },
             (exec_tensor[]){ flat(t->gy, ROWS * H), flat(kept, ROWS * H), end },
             (exec_tensor[]){ flat(t->gx, ROWS * H), end });
}

static void function_gradients(void **state)
{
  (void)state;
  rows t = { .forward = KERNEL_SIGMOID_FORWARD, .backward = KERNEL_SIGMOID_BACKWARD };
  check_rows(&t, map, map_backward);
  assert_true(fabs(t.y[1] - 1 / (1 + exp(-t.x[1]))) < 1e-15);
  t = (rows){ .forward = KERNEL_SOFTPLUS_FORWARD, .backward = KERNEL_SOFTPLUS_BACKWARD };
  check_rows(&t, map, map_backward);
  assert_true(t.y[0] == 25 && fabs(t.y[1] - log1p(exp(t.x[1]))) < 1e-15);
  t.forward = KERNEL_EXP;
  map(&t);
  assert_true(fabs(t.y[1] - exp(t.x[1])) < 1e-15);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(chunks_compute_the_recurrence),
    cmocka_unit_test(delta_rule_gradients),
    cmocka_unit_test(convolution_gradients),
    cmocka_unit_test(norm_gradients),
    cmocka_unit_test(function_gradients),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
