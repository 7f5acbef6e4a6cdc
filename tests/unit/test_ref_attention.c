/*
 * Attention and the kernels around it: gradients against finite differences, in double; and that
 * neither layouts, nor strides, nor ranks that share a sequence change a bit of what they must not.
 */
#include "tests/unit/sequence_parts.h"

/* ---- attention ------------------------------------------------------------------------------- */

enum { MOST = 1024, LENGTH = 8 };

typedef struct attention_case {
  int64_t batch, heads, kv_heads, qk, v, queries, keys;
  double dropout;
  bool causal;
  int64_t window;
  attention_layout layout;
  exec_position part;
  double q[MOST], k[MOST], value[MOST], o[MOST], sums[MOST], all[MOST];
  double gq[MOST], gk[MOST], gv[MOST], go[MOST], gall[MOST];
  int64_t state[2];
} attention_case;

static const attention_case plain = { .batch = 2,
                                      .heads = 2,
                                      .kv_heads = 2,
                                      .qk = 3,
                                      .v = 3,
                                      .queries = LENGTH,
                                      .keys = LENGTH,
                                      .causal = true,
                                      .layout = ATTENTION_SBHD };

static int64_t of_q(const attention_case *t)
{
  return t->batch * t->heads * t->queries * t->qk;
}

static int64_t of_o(const attention_case *t)
{
  return t->batch * t->heads * t->queries * t->v;
}

static int64_t of_k(const attention_case *t)
{
  return t->batch * t->kv_heads * t->keys * t->qk;
}

static int64_t of_v(const attention_case *t)
{
  return t->batch * t->kv_heads * t->keys * t->v;
}

static void fill(attention_case *t)
{
  assert_true(of_q(t) <= MOST && of_o(t) <= MOST && of_k(t) + of_v(t) <= MOST);
  fill_with_noise(t->q, MOST, 1);
  fill_with_noise(t->k, MOST, 2);
  fill_with_noise(t->value, MOST, 3);
  fill_with_noise(t->go, MOST, 4);
}

static kernel_call attention_kernel(const attention_case *t, kernel_kind kind)
{
  return (kernel_call){ .kind = kind,
                        .dims = { t->batch, t->heads, t->queries, t->keys, t->qk, t->v, t->causal,
                                  t->window },
                        .scalars = { (double)t->kv_heads, 0.7, t->dropout, t->layout } };
}

static bool is_split(const attention_case *t)
{
  return t->queries < t->keys;
}

static void attention_forward(void *state)
{
  attention_case *t = state;
  int64_t own = is_split(t) ? t->part.size : 1;
  exec_tensor all = is_split(t) ? flat(t->all, of_k(t) + of_v(t)) : (exec_tensor){ 0 };
  run_as(attention_kernel(t, KERNEL_ATTENTION_FORWARD), t->part,
         (exec_tensor[]){ flat(t->q, of_q(t)),
                          flat(t->k, of_k(t) / own),
                          flat(t->value, of_v(t) / own),
                          all,
                          { 0 } },
         (exec_tensor[]){ flat(t->o, of_o(t)),
                          flat(t->sums, t->batch * t->heads * t->queries),
                          tensor_of(t->state, DTYPE_INT64, 2, 0, 0, 0),
                          { 0 } });
}

static void attention_backward(void *state)
{
  attention_case *t = state;
  bool split = is_split(t);
  int64_t own = split ? t->part.size : 1;
  run_as(attention_kernel(t, KERNEL_ATTENTION_BACKWARD), t->part,
         (exec_tensor[]){ flat(t->go, of_o(t)),
                          flat(t->q, of_q(t)),
                          flat(t->k, of_k(t) / own),
                          flat(t->value, of_v(t) / own),
                          flat(t->o, of_o(t)),
                          flat(t->sums, t->batch * t->heads * t->queries),
                          tensor_of(t->state, DTYPE_INT64, 2, 0, 0, 0),
                          split ? flat(t->all, of_k(t) + of_v(t)) : (exec_tensor){ 0 },
                          { 0 } },
         (exec_tensor[]){ flat(t->gq, of_q(t)),
                          split ? flat(t->gall, of_k(t) + of_v(t)) : flat(t->gk, of_k(t)),
                          split ? (exec_tensor){ 0 } : flat(t->gv, of_v(t)),
                          { 0 } });
}

/* Causal: the first query sees one key, and the logarithm of its sum is the score itself. */
static void attention_sums_scores(void **state)
{
  attention_case t = plain;
  (void)state;
  fill(&t);
  attention_forward(&t);
  double score = 0;
  for (int64_t c = 0; c < t.qk; c++)
    score += 0.7 * t.q[c] * t.k[c];
  assert_true(magnitude_of(t.sums[0] - score) < 1e-14);
}

/* With values of 1 an output is the sum of the kept probabilities over 1 - p: 1 in the mean, and never more
 * than 1 / (1 - p). */
static void attention_drops_its_share(void **state)
{
  attention_case t = plain;
  (void)state;
  t.dropout = 0.4;
  t.heads = t.kv_heads = 8;
  fill(&t);
  for (int i = 0; i < MOST; i++)
    t.value[i] = 1;
  attention_forward(&t);
  int64_t dropped = 0;
  double sum = 0;
  for (int64_t i = 0; i < of_o(&t); i++) {
    assert_true(t.o[i] < 1 / 0.6 + 1e-12);
    dropped += t.o[i] < 1 / 0.6 - 1e-12;
    sum += t.o[i];
  }
  assert_true(dropped > of_o(&t) / 2);
  assert_true(magnitude_of(sum / (double)of_o(&t) - 1) < 0.15);
}

static void attention_gradients(void **state)
{
  attention_case cases[7];
  (void)state;
  for (int i = 0; i < 7; i++)
    cases[i] = plain;
  cases[1].heads = 4; /* two queries to a key */
  cases[1].layout = ATTENTION_BSHD;
  cases[2].qk = 5; /* as in latent attention */
  cases[2].v = 2;
  cases[2].layout = ATTENTION_BHSD;
  cases[3].causal = false;
  cases[4].dropout = 0.4;
  cases[5].part = (exec_position){ 1, 2 }; /* the whole sequence, ranks in turn */
  cases[6].window = 3;
  cases[6].dropout = 0.4;
  for (int i = 0; i < 7; i++) {
    attention_case *t = &cases[i];
    fill(t);
    assert_gradients((gradient_check){ .forward = attention_forward,
                                       .backward = attention_backward,
                                       .state = t,
                                       .outputs = { { t->o, t->go, of_o(t) } },
                                       .inputs = { { t->q, t->gq, of_q(t) },
                                                   { t->k, t->gk, of_k(t) },
                                                   { t->value, t->gv, of_v(t) } } });
  }
}

/* The first query sees one key; the weights of all keys sum up to 1. */
static void attention_averages_values(void **state)
{
  attention_case t = plain;
  (void)state;
  fill(&t);
  attention_forward(&t);
  assert_memory_equal(t.o, t.value, (size_t)(t.batch * t.heads * t.v) * sizeof *t.o);
  for (int i = 0; i < MOST; i++)
    t.value[i] = 1;
  attention_forward(&t);
  for (int64_t i = 0; i < of_o(&t); i++)
    assert_near(t.o[i], 1);
}

/* A query that sees itself alone has its value; one that sees as many keys as there are, the same bits as
 * without a window. */
static void shortest_and_longest_window(void **state)
{
  attention_case t = plain, all = plain;
  (void)state;
  t.window = 1;
  fill(&t);
  attention_forward(&t);
  assert_memory_equal(t.o, t.value, (size_t)of_o(&t) * sizeof *t.o);
  t.window = LENGTH;
  fill(&all);
  attention_case *both[] = { &t, &all };
  for (int i = 0; i < 2; i++) {
    attention_forward(both[i]);
    attention_backward(both[i]);
  }
  assert_memory_equal(t.o, all.o, sizeof t.o);
  assert_memory_equal(t.gq, all.gq, sizeof t.gq);
  assert_memory_equal(t.gk, all.gk, sizeof t.gk);
  assert_memory_equal(t.gv, all.gv, sizeof t.gv);
}

/* Each query is the last one of a sequence that is as long as its window. */
static void window_is_the_end_of_a_sequence(void **state)
{
  enum { WINDOW = 3 };
  attention_case t = plain, end = plain;
  (void)state;
  t.window = WINDOW;
  fill(&t);
  attention_forward(&t);
  end.queries = end.keys = WINDOW;
  int64_t row = t.batch * t.heads * t.qk;
  for (int64_t first = 0; first + WINDOW <= LENGTH; first++) {
    memcpy(end.q, t.q + first * row, (size_t)(WINDOW * row) * sizeof *t.q);
    memcpy(end.k, t.k + first * row, (size_t)(WINDOW * row) * sizeof *t.k);
    memcpy(end.value, t.value + first * row, (size_t)(WINDOW * row) * sizeof *t.value);
    attention_forward(&end);
    int64_t last = (WINDOW - 1) * row;
    assert_memory_equal(t.o + first * row + last, end.o + last, (size_t)row * sizeof *t.o);
  }
}

/* By steps: scores, softmax, sum over values. */
static void attention_is_softmax_of_scores(void **state)
{
  attention_case t = plain;
  double scores[LENGTH * LENGTH], weights[LENGTH * LENGTH];
  (void)state;
  t.batch = t.heads = t.kv_heads = 1;
  fill(&t);
  attention_forward(&t);
  for (int i = 0; i < LENGTH * LENGTH; i++) {
    scores[i] = 0;
    for (int64_t c = 0; c < t.qk; c++)
      scores[i] += t.q[i / LENGTH * t.qk + c] * t.k[i % LENGTH * t.qk + c];
  }
  run_kernel((kernel_call){ .kind = KERNEL_CAUSAL_SOFTMAX_FORWARD,
                            .dims = { LENGTH, LENGTH },
                            .scalars = { 0.7, LENGTH } },
             (exec_tensor[]){ flat(scores, LENGTH * LENGTH), { 0 } },
             (exec_tensor[]){ flat(weights, LENGTH * LENGTH), { 0 } });
  for (int64_t i = 0; i < LENGTH * t.v; i++) {
    double sum = 0;
    for (int64_t j = 0; j < LENGTH; j++)
      sum += weights[i / t.v * LENGTH + j] * t.value[j * t.v + i % t.v];
    assert_near(t.o[i], sum);
  }
}

/* Query, key and value inside one projection, one head each in turn, against separate tensors. */
static void attention_does_not_see_strides(void **state)
{
  static double mixed[3 * MOST], separate[MOST];
  attention_case t = plain;
  exec_tensor inside[3];
  (void)state;
  fill_with_noise(mixed, 3 * MOST, 9);
  double *parts[] = { t.q, t.k, t.value };
  for (int p = 0; p < 3; p++) {
    inside[p] = tensor_of(mixed + p * t.qk, DTYPE_FP64, LENGTH, t.batch, t.heads, t.qk);
    const int64_t block = 3 * t.qk,
                  strides[] = { t.batch * t.heads * block, t.heads * block, block, 1 };
    memcpy(inside[p].strides, strides, sizeof strides);
    for (int64_t i = 0; i < of_q(&t); i++)
      parts[p][i] = mixed[i / t.qk * block + p * t.qk + i % t.qk];
  }
  attention_forward(&t);
  run_as(attention_kernel(&t, KERNEL_ATTENTION_FORWARD), t.part,
         (exec_tensor[]){ inside[0], inside[1], inside[2], { 0 } },
         (exec_tensor[]){ flat(separate, of_o(&t)), flat(t.gq, 2 * 2 * LENGTH), { 0 } });
  assert_memory_equal(separate, t.o, (size_t)of_o(&t) * sizeof *t.o);
}

/* ---- ranks that share a sequence ------------------------------------------------------------- */

static int64_t row_of_rank(int64_t ranks, int64_t rank, int64_t row)
{
  int64_t half = LENGTH / ranks / 2;
  return row < half ? rank * half + row : (2 * ranks - 1 - rank) * half + row - half;
}

/* Rows of `columns` numbers, of one rank or of all in turn. */
static void take_rows(const double *from, int64_t ranks, int64_t rank, int64_t columns, double *to)
{
  for (int64_t row = 0; row < LENGTH / ranks; row++)
    memcpy(to + row * columns, from + row_of_rank(ranks, rank, row) * columns,
           (size_t)columns * sizeof *to);
}

enum { RANKS = 2 };

static attention_case case_of_rank(const attention_case *whole, uint32_t rank)
{
  attention_case t = *whole;
  t.queries = LENGTH / RANKS;
  t.part = (exec_position){ rank, RANKS };
  int64_t q = t.batch * t.heads, kv = t.batch * t.kv_heads;
  take_rows(whole->q, RANKS, rank, q * t.qk, t.q);
  take_rows(whole->go, RANKS, rank, q * t.v, t.go);
  double *all = t.all;
  for (int64_t from = 0; from < RANKS; from++) {
    take_rows(whole->k, RANKS, from, kv * t.qk, all);
    all += LENGTH / RANKS * kv * t.qk;
    take_rows(whole->value, RANKS, from, kv * t.v, all);
    all += LENGTH / RANKS * kv * t.v;
  }
  return t;
}

static void assert_rows(const double *whole, uint32_t rank, int64_t columns, const double *part)
{
  double rows[MOST];
  take_rows(whole, RANKS, rank, columns, rows);
  assert_memory_equal(part, rows, (size_t)(LENGTH / RANKS * columns) * sizeof *part);
}

/* Outputs and gradients of queries to the bit; those of keys and values are sums of the ranks'
 * parts. */
static void expect_ranks_to_share(int64_t window)
{
  attention_case whole = plain;
  double sums[MOST] = { 0 };
  whole.heads = 4;
  whole.window = window;
  fill(&whole);
  attention_forward(&whole);
  attention_backward(&whole);
  int64_t q = whole.batch * whole.heads, kv = whole.batch * whole.kv_heads;
  for (uint32_t rank = 0; rank < RANKS; rank++) {
    attention_case t = case_of_rank(&whole, rank);
    attention_forward(&t);
    assert_rows(whole.o, rank, q * t.v, t.o);
    attention_backward(&t);
    assert_rows(whole.gq, rank, q * t.qk, t.gq);
    for (int64_t i = 0; i < of_k(&t) + of_v(&t); i++)
      sums[i] += t.gall[i];
  }
  const double *of_rank = sums;
  for (int64_t rank = 0; rank < RANKS; rank++) {
    double keys[MOST], values[MOST];
    take_rows(whole.gk, RANKS, rank, kv * whole.qk, keys);
    take_rows(whole.gv, RANKS, rank, kv * whole.v, values);
    for (int64_t i = 0; i < LENGTH / RANKS * kv * whole.qk; i++)
      assert_near(*of_rank++, keys[i]);
    for (int64_t i = 0; i < LENGTH / RANKS * kv * whole.v; i++)
      assert_near(*of_rank++, values[i]);
  }
}

static void ranks_share_a_sequence(void **state)
{
  (void)state;
  expect_ranks_to_share(0);
  expect_ranks_to_share(3);
}

/* By heads: each rank has the whole sequence, in the order of ranks. */
static void ranks_share_heads(void **state)
{
  attention_case whole = plain;
  (void)state;
  fill(&whole);
  attention_forward(&whole);
  attention_case t = whole;
  t.part = (exec_position){ 0, RANKS };
  int64_t rows = LENGTH / RANKS, q = t.batch * t.heads;
  for (int64_t rank = 0; rank < RANKS; rank++) {
    take_rows(whole.q, RANKS, rank, q * t.qk, t.q + rank * rows * q * t.qk);
    take_rows(whole.k, RANKS, rank, q * t.qk, t.k + rank * rows * q * t.qk);
    take_rows(whole.value, RANKS, rank, q * t.v, t.value + rank * rows * q * t.v);
  }
  attention_forward(&t);
  for (uint32_t rank = 0; rank < RANKS; rank++)
    assert_rows(whole.o, rank, q * t.v, t.o + rank * rows * q * t.v);
}

/* ---- softmax --------------------------------------------------------------------------------- */

enum { MATRICES = 2, QUERIES = 3, KEYS = 3, SCORES = MATRICES * QUERIES * KEYS };

typedef struct softmax_case {
  bool causal;
  double x[SCORES], y[SCORES], gx[SCORES], gy[SCORES];
} softmax_case;

static void run_softmax(const softmax_case *t, kernel_kind one, kernel_kind causal,
                        const exec_tensor *reads, const exec_tensor *writes)
{
  run_kernel((kernel_call){ .kind = t->causal ? causal : one,
                            .dims = { MATRICES * QUERIES, KEYS },
                            .scalars = { t->causal ? 0.3 : 0, t->causal ? QUERIES : 0 } },
             reads, writes);
}

static void softmax_forward(void *state)
{
  softmax_case *t = state;
  run_softmax(t, KERNEL_SOFTMAX_FORWARD, KERNEL_CAUSAL_SOFTMAX_FORWARD,
              (exec_tensor[]){ flat(t->x, SCORES), { 0 } },
              (exec_tensor[]){ flat(t->y, SCORES), { 0 } });
}

static void softmax_backward(void *state)
{
  softmax_case *t = state;
  run_softmax(t, KERNEL_SOFTMAX_BACKWARD, KERNEL_CAUSAL_SOFTMAX_BACKWARD,
              (exec_tensor[]){ flat(t->gy, SCORES), flat(t->y, SCORES), { 0 } },
              (exec_tensor[]){ flat(t->gx, SCORES), { 0 } });
}

static void softmax_gradients(void **state)
{
  (void)state;
  for (int causal = 0; causal < 2; causal++) {
    softmax_case t = { .causal = causal != 0 };
    fill_with_noise(t.x, SCORES, 1);
    fill_with_noise(t.gy, SCORES, 2);
    assert_gradients((gradient_check){ .forward = softmax_forward,
                                       .backward = softmax_backward,
                                       .state = &t,
                                       .outputs = { { t.y, t.gy, SCORES } },
                                       .inputs = { { t.x, t.gx, SCORES } } });
    for (int row = 0; row < MATRICES * QUERIES; row++) {
      double sum = 0;
      for (int i = 0; i < KEYS; i++)
        sum += t.y[row * KEYS + i];
      assert_near(sum, 1);
      assert_true((t.y[row * KEYS + KEYS - 1] == 0) == (t.causal && row % QUERIES < KEYS - 1));
    }
  }
}

/* ---- rows and heads -------------------------------------------------------------------------- */

static void join_puts_parts_side_by_side(void **state)
{
  double a[] = { 1, 2, 3, 4 }, c[] = { 5, 6 }, y[8];
  static const double expected[] = { 1, 2, 0, 5, 3, 4, 0, 6 };
  (void)state;
  run_kernel((kernel_call){ .kind = KERNEL_JOIN, .dims = { 2, 2, 1, 1 }, .scalars = { 1 << 1 } },
             (exec_tensor[]){ flat(a, 4), flat(c, 2), { 0 } },
             (exec_tensor[]){ flat(y, 8), { 0 } });
  assert_memory_equal(y, expected, sizeof y);
}

enum { REPEATED = 6, TIMES = 3, REPEAT_WIDTH = 2 };

typedef struct repeat_case {
  double x[REPEATED], gx[REPEATED + REPEAT_WIDTH], y[TIMES * REPEATED], gy[TIMES * REPEATED];
} repeat_case;

static kernel_call repeat_kernel(kernel_kind kind)
{
  return (kernel_call){ .kind = kind,
                        .dims = { TIMES * REPEATED },
                        .scalars = { TIMES, REPEAT_WIDTH } };
}

static void repeat_forward(void *state)
{
  repeat_case *t = state;
  run_kernel(repeat_kernel(KERNEL_REPEAT_FORWARD), (exec_tensor[]){ flat(t->x, REPEATED), { 0 } },
             (exec_tensor[]){ flat(t->y, TIMES * REPEATED), { 0 } });
}

static void repeat_backward(void *state)
{
  repeat_case *t = state;
  run_kernel(repeat_kernel(KERNEL_REPEAT_BACKWARD),
             (exec_tensor[]){ flat(t->gy, TIMES * REPEATED), { 0 } },
             (exec_tensor[]){ flat(t->gx, REPEATED), { 0 } });
}

static void repeat_gradients(void **state)
{
  repeat_case t;
  (void)state;
  t.gx[REPEATED] = t.gx[REPEATED + 1] = 7;
  fill_with_noise(t.x, REPEATED, 1);
  fill_with_noise(t.gy, TIMES * REPEATED, 2);
  assert_gradients((gradient_check){ .forward = repeat_forward,
                                     .backward = repeat_backward,
                                     .state = &t,
                                     .outputs = { { t.y, t.gy, TIMES * REPEATED } },
                                     .inputs = { { t.x, t.gx, REPEATED } } });
  assert_true(t.gx[REPEATED] == 7 && t.gx[REPEATED + 1] == 7 && "there is no row after the last");
  assert_true(t.y[2] == t.x[0] && t.y[3] == t.x[1] && t.y[6] == t.x[2]);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(attention_gradients),
    cmocka_unit_test(attention_sums_scores),
    cmocka_unit_test(attention_drops_its_share),
    cmocka_unit_test(attention_averages_values),
    cmocka_unit_test(shortest_and_longest_window),
    cmocka_unit_test(window_is_the_end_of_a_sequence),
    cmocka_unit_test(attention_is_softmax_of_scores),
    cmocka_unit_test(attention_does_not_see_strides),
    cmocka_unit_test(ranks_share_a_sequence),
    cmocka_unit_test(ranks_share_heads),
    cmocka_unit_test(softmax_gradients),
    cmocka_unit_test(join_puts_parts_side_by_side),
    cmocka_unit_test(repeat_gradients),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
