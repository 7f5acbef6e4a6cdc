/* Order, padding and shards of the gradient buffers. */
#include "sim/residents/gradient_buffers.h"
#include "tests/unit/static_settings.h"

static gradient_buffer_list buffers_of(settings *s, const char *const (*keys)[2], uint32_t pp_rank,
                                       parameter_list *parameters, arena *a)
{
  small_gpt(s, keys, a);
  *parameters = parameters_of_rank(s, pp_rank, a);
  return gradient_buffers_of_rank(s, pp_rank, parameters, a);
}

static void plain_data_parallel_pads_nothing(void **state)
{
  (void)state;
  static const char *const keys[][2] = { { NULL, NULL } };
  arena a = { 0 };
  settings s;
  parameter_list parameters;
  gradient_buffer_list list = buffers_of(&s, keys, 0, &parameters, &a);
  int64_t sum = 0;
  for (uint32_t i = 0; i < parameters.count; i++)
    sum += parameter_elements(&parameters.items[i]);
  assert_int_equal(list.count, 1);
  assert_int_equal(list.items[0].elements, sum);
  assert_int_equal(list.items[0].gradient_bytes, 4 * sum);
  assert_int_equal(list.items[0].parameter_bytes, 0);
  assert_int_equal(list.items[0].slots[0].parameter, parameters.count - 1);
  arena_release(&a);
}

static void distributed_optimizer_aligns_slots_and_buckets(void **state)
{
  (void)state;
  static const char *const keys[][2] = { { "parallel.use_distributed_optimizer", "true" },
                                         { "parallel.overlap_grad_reduce", "true" },
                                         { "parallel.ddp_bucket_size", "10000000" },
                                         { NULL, NULL } };
  arena a = { 0 };
  settings s;
  parameter_list parameters;
  gradient_buffer_list list = buffers_of(&s, keys, 0, &parameters, &a);
  const gradient_buffer *b = &list.items[0];
  for (uint32_t i = 0; i < b->slot_count; i++)
    assert_int_equal(b->slots[i].start % 64, 0);
  for (uint32_t i = 0; i < b->bucket_count; i++)
    assert_int_equal(b->buckets[i].end % 128, 0);
  assert_int_equal(b->bucket_count,
                   4); /* 37.8 million elements in the layers, then the embeddings */
  assert_int_equal(b->parameter_bytes, 2 * b->elements);
  arena_release(&a);
}

/* The last rank owns the end of each bucket; all shards together are a rank's share of what is
 * there. */
static void shards_are_the_last_ranks_share(void **state)
{
  (void)state;
  static const char *const keys[][2] = { { "parallel.use_distributed_optimizer", "true" },
                                         { NULL, NULL } };
  arena a = { 0 };
  settings s;
  parameter_list parameters;
  gradient_buffer_list list = buffers_of(&s, keys, 0, &parameters, &a);
  optimizer_shard_list shards = optimizer_shards_of(&s, &parameters, &list, &a);
  int64_t owned = 0;
  for (uint32_t i = 0; i < shards.count; i++)
    owned += shards.items[i].elements;
  assert_int_equal(list.items[0].ranks, 8);
  assert_true(owned <= list.items[0].elements / 8);
  assert_true(owned > list.items[0].elements / 8 - 1024);
  assert_int_equal(shards.items[shards.count - 1].parameter, 0); /* the embedding registers first */
  arena_release(&a);
}

static void a_shared_embedding_has_a_bucket_of_its_own(void **state)
{
  (void)state;
  static const char *const keys[][2] = { { "parallel.use_distributed_optimizer", "true" },
                                         { "parallel.pipeline_model_parallel_size", "2" },
                                         { NULL, NULL } };
  arena a = { 0 };
  settings s;
  parameter_list parameters;
  gradient_buffer_list list = buffers_of(&s, keys, 1, &parameters, &a);
  assert_int_equal(list.items[0].bucket_count, 2);
  assert_int_equal(list.items[0].buckets[0].end, 50304 * 512);
  arena_release(&a);
}

/* 8 ranks, dense layers of 512: matrices in one buffer, no matrix over two shards; all else as
 * usual. */
static void a_layer_wise_layout_keeps_matrices_whole(void **state)
{
  (void)state;
  static const char *const keys[][2] = { { "training.optimizer", "muon" },
                                         { "parallel.use_distributed_optimizer", "true" },
                                         { "parallel.use_layer_wise_param_layout", "true" },
                                         { NULL, NULL } };
  arena a = { 0 };
  settings s;
  parameter_list parameters;
  gradient_buffer_list list = buffers_of(&s, keys, 0, &parameters, &a);
  assert_int_equal(list.count, 2);
  const gradient_buffer *b = &list.items[1];
  assert_int_equal(b->slot_count, 12 * 4 + 1); /* and the position embeddings */
  assert_int_equal(b->bucket_count, 1);
  assert_int_equal(b->elements % (8 * 64), 0);
  int64_t shard = b->elements / 8;
  for (uint32_t i = 0; i < b->slot_count; i++) {
    int64_t start = b->slots[i].start;
    int64_t end = start + parameter_elements(&parameters.items[b->slots[i].parameter]);
    assert_int_equal(start % 64, 0);
    assert_int_equal(start / shard, (end - 1) / shard);
  }
  arena_release(&a);
}

static void a_layer_wise_bucket_takes_what_fits_into_its_padding(void **state)
{
  (void)state;
  static const char *const keys[][2] = { { "training.optimizer", "muon" },
                                         { "parallel.use_distributed_optimizer", "true" },
                                         { "parallel.use_layer_wise_param_layout", "true" },
                                         { "parallel.overlap_grad_reduce", "true" },
                                         { "parallel.ddp_bucket_size", "1000" },
                                         { NULL, NULL } };
  arena a = { 0 };
  settings s;
  parameter_list parameters;
  gradient_buffer_list list = buffers_of(&s, keys, 0, &parameters, &a);
  const gradient_buffer *b = &list.items[1];
  assert_true(b->bucket_count > 1);
  for (uint32_t i = 1; i < b->slot_count; i++)
    assert_true(b->slots[i - 1].bucket <= b->slots[i].bucket);
  for (uint32_t i = 0; i < b->bucket_count; i++)
    assert_true(b->buckets[i].end - b->buckets[i].start >= INT64_C(8) * 1048576 * 9 / 10);
  arena_release(&a);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(plain_data_parallel_pads_nothing),
    cmocka_unit_test(distributed_optimizer_aligns_slots_and_buckets),
    cmocka_unit_test(shards_are_the_last_ranks_share),
    cmocka_unit_test(a_shared_embedding_has_a_bucket_of_its_own),
    cmocka_unit_test(a_layer_wise_layout_keeps_matrices_whole),
    cmocka_unit_test(a_layer_wise_bucket_takes_what_fits_into_its_padding),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
