/* Weights, tokens and groups that do not depend on how the model is shared out; collectives; the
 * optimizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ref/kernels/functions.h"
#include "sim/train/generator.h"
#include "sim/train/layout.h"
#include "sim/train/parameters.h"
#include "sim/train/tokens.h"
#include "tests/unit/static_settings.h"

/* ---- numbers --------------------------------------------------------------------------------- */

/* splitmix64 from state 0: the first outputs of the published generator. */
static void bits_are_those_of_splitmix64(void **state)
{
  (void)state;
  assert_true(generator_bits(0, 0) == UINT64_C(0xe220a8397b1dcdaf));
  assert_true(generator_bits(0, 1) == UINT64_C(0x6e789e6aa1b965f4));
  assert_true(generator_bits(0, 2) == UINT64_C(0x06c45d188009454f));
}

static void numbers_have_mean_0_and_variance_1(void **state)
{
  (void)state;
  enum { NUMBERS = 100000 };
  double sum = 0, squares = 0;
  uint64_t key = generator_key(7, "layers.0.mlp.linear_fc1.weight");
  for (uint64_t i = 0; i < NUMBERS; i++) {
    double x = generator_normal(key, i);
    sum += x;
    squares += x * x;
    assert_true(x > -3.47 && x < 3.47);
  }
  assert_true(sum / NUMBERS < 0.01 && sum / NUMBERS > -0.01);
  assert_true(squares / NUMBERS < 1.01 && squares / NUMBERS > 0.99);
}

/* ---- parts of tensors ------------------------------------------------------------------------ */

/* Every element of the tensor is in one part, under its own number. */
static void check_parts(int64_t rows, int64_t columns, uint32_t tensors, uint32_t ranks,
                        bool by_rows)
{
  char *seen = calloc((size_t)(rows * columns), 1);
  for (uint32_t r = 0; r < ranks; r++) {
    train_part p = { .rows = rows, .columns = columns, .tensors = tensors, .index = r };
    p.own_rows = by_rows ? rows / ranks : rows;
    p.own_columns = by_rows ? columns : columns / ranks;
    for (int64_t i = 0; i < p.own_rows * p.own_columns; i++)
      assert_int_equal(seen[train_part_element(&p, i)]++, 0);
  }
  for (int64_t i = 0; i < rows * columns; i++)
    assert_int_equal(seen[i], 1);
  free(seen);
}

static void parts_cover_their_tensor_once(void **state)
{
  (void)state;
  check_parts(12, 5, 1, 1, true);
  check_parts(12, 5, 1, 4, true);
  check_parts(12, 5, 2, 3, true);
  check_parts(6, 8, 1, 4, false);
}

static void halves_of_gated_products_are_split_each(void **state)
{
  (void)state;
  train_part p = {
    .rows = 8, .columns = 2, .own_rows = 4, .own_columns = 2, .tensors = 2, .index = 1
  };
  /* Rows 2 and 3 of the gate, then rows 2 and 3 of what it gates. */
  assert_int_equal(train_part_element(&p, 0), 2 * 2);
  assert_int_equal(train_part_element(&p, 3), 3 * 2 + 1);
  assert_int_equal(train_part_element(&p, 4), 6 * 2);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static const char *const eight[][2] = { { "parallel.world_size", "8" },
                                        { "parallel.tensor_model_parallel_size", "2" },
                                        { "parallel.pipeline_model_parallel_size", "2" },
                                        { NULL, NULL } };

static void ranks_stand_as_megatron_numbers_them(void **state)
{
  (void)state;
  arena a = { 0 };
  settings s;
  small_gpt(&s, eight, &a);
  exec_layout l = layout_of_settings(&s, &a);
  assert_int_equal(l.rank_count, 8);
  assert_int_equal(l.ranks[5].stage, 1);
  assert_int_equal(l.ranks[5].group[GROUP_TP].index, 1);
  assert_int_equal(l.ranks[6].group[GROUP_DP].index, 1);
  assert_int_equal(l.groups[GROUP_DP][6].ranks[0], 4);
  assert_int_equal(l.groups[GROUP_TP][6].ranks[1], 7);
  assert_int_equal(l.ranks[6].group[GROUP_TP_DP].index, 2);
  assert_int_equal(l.groups[GROUP_TP_DP][6].ranks[3], 7);
  assert_int_equal(l.groups[GROUP_EMBD][6].ranks[0], 2);
  assert_int_equal(l.pipelines[6].ranks[0], 2);
  arena_release(&a);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

enum { SEQUENCE = 8 };

static settings text_settings(void)
{
  settings s;
  memset(&s, 0, sizeof s);
  s.model.padded_vocab_size = 256;
  s.model.implementation = IMPLEMENTATION_TE;
  s.training.micro_batch_size = 1;
  s.training.seq_length = SEQUENCE;
  s.parallel.context_parallel_size = 1;
  s.derived.data_parallel_size = 1;
  s.derived.num_microbatches = 2;
  return s;
}

static const unsigned char text[] = "abcdefghijklm";

static token_stream text_stream(const settings *s)
{
  token_stream t;
  diag d = { 0 };
  assert_true(token_stream_open(&t, s, text, sizeof text - 1, 1, false, &d));
  return t;
}

static void read(const token_stream *t, const settings *s, const exec_rank *r, const char *name,
                 uint32_t step, uint32_t microbatch, int64_t *to)
{
  plan_tensor tensor = { .name = name, .dtype = DTYPE_INT64 };
  assert_true(token_stream_fill(t, s, r, &tensor, step, microbatch, to));
}

static exec_rank alone(void)
{
  exec_rank r = { 0 };
  for (int g = 0; g < COMM_GROUPS; g++)
    r.group[g].size = 1;
  return r;
}

static void windows_follow_each_other_and_wrap_round(void **state)
{
  (void)state;
  int64_t tokens[SEQUENCE], labels[SEQUENCE];
  settings s = text_settings();
  token_stream t = text_stream(&s);
  exec_rank r = alone();
  read(&t, &s, &r, "tokens", 0, 1, tokens);
  read(&t, &s, &r, "labels", 0, 1, labels);
  assert_int_equal(tokens[0], 'i');
  assert_int_equal(tokens[4], 'm');
  assert_int_equal(tokens[5], 'a');
  assert_int_equal(labels[4], 'a');
  read(&t, &s, &r, "tokens", 1, 0, tokens);
  assert_int_equal(tokens[0], text[2 * SEQUENCE % 13]);
}

static void replicas_share_the_samples_of_a_step(void **state)
{
  (void)state;
  int64_t one[SEQUENCE], other[SEQUENCE];
  settings s = text_settings();
  token_stream t = text_stream(&s);
  exec_rank r = alone();
  read(&t, &s, &r, "tokens", 0, 1, one);
  s.derived.data_parallel_size = 2;
  s.derived.num_microbatches = 1;
  r.group[GROUP_DP] = (exec_position){ 1, 2 };
  read(&t, &s, &r, "tokens", 0, 0, other);
  assert_memory_equal(one, other, sizeof one);
}

static void context_parallel_ranks_have_two_pieces(void **state)
{
  (void)state;
  int64_t tokens[SEQUENCE / 2], positions[SEQUENCE / 2];
  settings s = text_settings();
  token_stream t = text_stream(&s);
  exec_rank r = alone();
  s.parallel.context_parallel_size = 2;
  r.group[GROUP_CP] = r.group[GROUP_DP] = (exec_position){ 1, 2 };
  read(&t, &s, &r, "tokens", 0, 0, tokens);
  read(&t, &s, &r, "position_ids", 0, 0, positions);
  static const char expected[] = "cdef";
  for (int i = 0; i < SEQUENCE / 2; i++) {
    assert_int_equal(tokens[i], expected[i]);
    assert_int_equal(positions[i], i + 2);
  }
}

static void bytes_need_a_token_each(void **state)
{
  (void)state;
  settings s = text_settings();
  token_stream t;
  diag d = { .quiet = true };
  s.model.padded_vocab_size = 128;
  assert_false(token_stream_open(&t, &s, text, 13, 1, false, &d));
  assert_non_null(strstr(d.message, "vocabulary of 128"));
}

/* ---- collectives ----------------------------------------------------------------------------- */

enum { MEMBERS = 2, PART = 2 };

typedef struct exchange {
  float in[MEMBERS][MEMBERS * PART], out[MEMBERS][MEMBERS * PART];
  exec_tensor reads[MEMBERS], writes[MEMBERS];
  exec_call calls[MEMBERS];
  const exec_call *members[MEMBERS];
} exchange;

static exec_tensor row_of(float *data, int64_t count)
{
  return (exec_tensor){
    .data = data, .type = DTYPE_FP32, .rank = 1, .shape = { count }, .strides = { 1 }
  };
}

/* Member m reads 10 m + 0, 10 m + 1, ... */
static void run(exchange *x, ref_collective *collective, int64_t in, int64_t out)
{
  memset(x, 0, sizeof *x);
  for (int m = 0; m < MEMBERS; m++) {
    for (int i = 0; i < MEMBERS * PART; i++)
      x->in[m][i] = (float)(10 * m + i);
    x->reads[m] = row_of(x->in[m], in);
    x->writes[m] = row_of(x->out[m], out);
    x->calls[m] = (exec_call){
      .reads = &x->reads[m], .writes = &x->writes[m], .read_count = 1, .write_count = 1
    };
    x->members[m] = &x->calls[m];
  }
  collective(x->members, MEMBERS);
}

static void assert_row(const float *found, float a, float b, float c, float d)
{
  const float expected[] = { a, b, c, d };
  assert_memory_equal(found, expected, sizeof expected);
}

static void collectives_put_parts_in_the_groups_order(void **state)
{
  (void)state;
  exchange x;
  run(&x, ref_all_reduce, 4, 4);
  assert_row(x.out[1], 10, 12, 14, 16);
  run(&x, ref_all_reduce_max, 4, 4);
  assert_row(x.out[0], 10, 11, 12, 13);
  run(&x, ref_all_gather, 2, 4);
  assert_row(x.out[0], 0, 1, 10, 11);
  run(&x, ref_reduce_scatter, 4, 2);
  assert_row(x.out[1], 14, 16, 0, 0);
  run(&x, ref_all_to_all, 4, 4);
  assert_row(x.out[0], 0, 1, 10, 11);
  assert_row(x.out[1], 2, 3, 12, 13);
}

/* ---- the optimizer --------------------------------------------------------------------------- */

/* By hand: with the bias corrections of the first step m / (1 - beta1) is g and the square root of
 * the other is |g|, so that a weight moves by rate x (g / (|g| + epsilon) + decay p). */
static void first_adam_step_goes_by_the_sign(void **state)
{
  (void)state;
  float gradient[] = { 4 }, main[] = { 2 }, weight[1], m[] = { 0 }, v[] = { 0 };
  exec_tensor reads[] = { row_of(gradient, 1), row_of(main, 1), row_of(m, 1), row_of(v, 1) };
  exec_tensor writes[] = { row_of(weight, 1), row_of(main, 1), row_of(m, 1), row_of(v, 1) };
  plan_call call = { .kind = KERNEL_OPTIMIZER_STEP,
                     .dims = { 1, 1, 2, 1 },
                     .scalars = { 0.5, 0.75, 0.5, 0 } };
  exec_step step = { .learning_rate = 0.25f, .clip_coefficient = 0.5f };
  exec_call c = { .call = &call,
                  .reads = reads,
                  .writes = writes,
                  .read_count = 4,
                  .write_count = 4,
                  .step = &step };
  ref_optimizer_step(&c);
  assert_true(m[0] == 0.5f && v[0] == 2.0f);
  assert_true(main[0] == 2 - 0.25f * (1 + 0.5f * 2) && weight[0] == main[0]);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(bits_are_those_of_splitmix64),
    cmocka_unit_test(numbers_have_mean_0_and_variance_1),
    cmocka_unit_test(parts_cover_their_tensor_once),
    cmocka_unit_test(halves_of_gated_products_are_split_each),
    cmocka_unit_test(ranks_stand_as_megatron_numbers_them),
    cmocka_unit_test(windows_follow_each_other_and_wrap_round),
    cmocka_unit_test(replicas_share_the_samples_of_a_step),
    cmocka_unit_test(context_parallel_ranks_have_two_pieces),
    cmocka_unit_test(bytes_need_a_token_each),
    cmocka_unit_test(collectives_put_parts_in_the_groups_order),
    cmocka_unit_test(first_adam_step_goes_by_the_sign),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
