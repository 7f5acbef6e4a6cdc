/* Which parameters each rank has, in which order, in which shape. */
#include "sim/residents/parameters.h"
#include "tests/unit/static_settings.h"

static int64_t elements_of(const parameter_list *list)
{
  int64_t sum = 0;
  for (uint32_t i = 0; i < list->count; i++)
    sum += parameter_elements(&list->items[i]);
  return sum;
}

static const parameter *find(const parameter_list *list, const char *name)
{
  for (uint32_t i = 0; i < list->count; i++)
    if (strcmp(list->items[i].name, name) == 0) return &list->items[i];
  fail_msg("no parameter %s", name);
  return NULL;
}

static parameter_list of_first_rank(const char *const keys[][2], arena *a)
{
  settings s;
  small_gpt(&s, keys, a);
  return parameters_of_rank(&s, 0, a);
}

static uint32_t experts_of(const parameter_list *list)
{
  uint32_t experts = 0;
  for (uint32_t i = 0; i < list->count; i++)
    experts += list->items[i].is_expert;
  return experts;
}

static void dense_gpt_counts(void **state)
{
  (void)state;
  static const char *const keys[][2] = { { NULL, NULL } };
  arena a = { 0 };
  parameter_list list = of_first_rank(keys, &a);
  int64_t layer = 12 * 512 * 512 + 13 * 512;
  assert_int_equal(elements_of(&list), 50304 * 512 + 1024 * 512 + 12 * layer + 2 * 512);
  assert_string_equal(list.items[0].name, "embedding.word_embeddings.weight");
  assert_string_equal(list.items[2].name, "self_attention.linear_proj.weight");
  assert_string_equal(list.items[4].name, "self_attention.linear_qkv.layer_norm_weight");
  arena_release(&a);
}

static void last_stage_has_its_own_copy_of_a_tied_embedding(void **state)
{
  (void)state;
  static const char *const keys[][2] = { { "parallel.pipeline_model_parallel_size", "4" },
                                         { NULL, NULL } };
  arena a = { 0 };
  settings s;
  small_gpt(&s, keys, &a);
  parameter_list first = parameters_of_rank(&s, 0, &a);
  parameter_list last = parameters_of_rank(&s, 3, &a);
  assert_true(find(&first, "embedding.word_embeddings.weight")->shared_embedding);
  assert_true(find(&last, "output_layer.weight")->shared_embedding);
  assert_int_equal(find(&last, "output_layer.weight")->shape[0], 50304);
  assert_int_equal(last.items[0].layer, 9);
  arena_release(&a);
}

static void tensor_parallel_ranks_split_columns_and_rows(void **state)
{
  (void)state;
  static const char *const keys[][2] = { { "parallel.tensor_model_parallel_size", "2" },
                                         { "model.swiglu", "true" },
                                         { "model.ffn_hidden_size", "1024" },
                                         { NULL, NULL } };
  arena a = { 0 };
  parameter_list list = of_first_rank(keys, &a);
  const parameter *fc1 = find(&list, "mlp.linear_fc1.weight");
  const parameter *fc2 = find(&list, "mlp.linear_fc2.weight");
  const parameter *norm = find(&list, "mlp.linear_fc1.layer_norm_weight");
  assert_int_equal(fc1->shape[0], 1024);
  assert_int_equal(fc1->global_shape[0], 2048);
  assert_int_equal(fc1->split_dimension, 0);
  assert_int_equal(fc1->split_parts, 2);
  assert_int_equal(fc2->shape[1], 512);
  assert_int_equal(fc2->split_dimension, 1);
  assert_int_equal(norm->split_dimension, -1);
  arena_release(&a);
}

static void experts_of_a_rank(void **state)
{
  (void)state;
  static const char *const keys[][2] = {
    { "model.num_experts", "8" },
    { "parallel.expert_model_parallel_size", "4" },
    { "model.moe_grouped_gemm", "true" },
    { "model.add_bias_linear", "false" },
    { "model.moe_ffn_hidden_size", "1024" },
    { NULL, NULL },
  };
  arena a = { 0 };
  parameter_list list = of_first_rank(keys, &a);
  assert_int_equal(experts_of(&list), 12 * 2 * 2);
  assert_false(find(&list, "mlp.router.weight")->is_linear);
  assert_int_equal(find(&list, "mlp.router.weight")->shape[0], 8);
  arena_release(&a);
}

static void routers_have_a_bias_where_linears_have(void **state)
{
  (void)state;
  static const char *const keys[][2] = { { "model.num_experts", "8" },
                                         { "model.add_bias_linear", "true" },
                                         { NULL, NULL } };
  arena a = { 0 };
  parameter_list list = of_first_rank(keys, &a);
  assert_int_equal(find(&list, "mlp.router.bias")->shape[0], 8);
  arena_release(&a);
}

/* Transformer Engine before 1.9 has no grouped linear. */
static void experts_of_older_software_are_merged(void **state)
{
  (void)state;
  static const char *const keys[][2] = {
    { "model.num_experts", "8" },
    { "parallel.expert_model_parallel_size", "4" },
    { "model.moe_grouped_gemm", "true" },
    { "model.add_bias_linear", "false" },
    { "model.moe_ffn_hidden_size", "1024" },
    { "software.container", "pytorch:24.01-py3" },
    { NULL, NULL },
  };
  arena a = { 0 };
  parameter_list list = of_first_rank(keys, &a);
  assert_int_equal(experts_of(&list), 12 * 2);
  assert_int_equal(find(&list, "mlp.experts.linear_fc1.weight")->shape[1], 2 * 1024);
  assert_int_equal(find(&list, "mlp.experts.linear_fc2.weight")->shape[0], 2 * 1024);
  arena_release(&a);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(dense_gpt_counts),
    cmocka_unit_test(last_stage_has_its_own_copy_of_a_tied_embedding),
    cmocka_unit_test(tensor_parallel_ranks_split_columns_and_rows),
    cmocka_unit_test(experts_of_a_rank),
    cmocka_unit_test(routers_have_a_bias_where_linears_have),
    cmocka_unit_test(experts_of_older_software_are_merged),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
