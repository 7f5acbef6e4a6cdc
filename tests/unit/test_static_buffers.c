/* Static memory of a rank, against what a real run of the same settings allocated. */
#include <stdlib.h>

#include "sim/memory/caching_allocator.h"
#include "sim/residents/fsdp_buffers.h"
#include "tests/unit/static_settings.h"

static int64_t replayed_bytes(const static_allocation_list *list, arena *a)
{
  allocator_options options = { .capacity_bytes = ALLOCATOR_UNLIMITED_BYTES,
                                .return_at_once = true };
  caching_allocator *allocator = caching_allocator_new(&options);
  uint32_t *blocks = ARENA_ARRAY(a, uint32_t, list->count);
  for (uint32_t i = 0; i < list->event_count; i++) {
    const static_event *e = &list->events[i];
    if (e->is_free)
      caching_allocator_free(allocator, blocks[e->allocation]);
    else
      assert_int_equal(caching_allocator_alloc(allocator, 0, list->items[e->allocation].bytes,
                                               &blocks[e->allocation]),
                       ALLOCATOR_OK);
  }
  int64_t bytes = caching_allocator_stats(allocator)->allocated.current_bytes;
  caching_allocator_delete(allocator);
  return bytes;
}

/* gpt3_mcore_te_tp1_pp1_dist_optimizer on 8 H100: 581,489,664 bytes after the step. */
static void distributed_optimizer_case_is_exact(void **state)
{
  (void)state;
  static const char *const keys[][2] = { { "parallel.use_distributed_optimizer", "true" },
                                         { NULL, NULL } };
  arena a = { 0 };
  settings s;
  small_gpt(&s, keys, &a);
  static_allocation_list list = static_allocations(&s, 90, 0, &a);
  assert_int_equal(static_requested_bytes(&list), 581489664);
  assert_true(replayed_bytes(&list, &a) >= 581489664);
  assert_true(replayed_bytes(&list, &a) < 581489664 + 16 * 1048576);
  arena_release(&a);
}

static void phases_do_not_run_backwards(void **state)
{
  (void)state;
  static const char *const keys[][2] = { { "parallel.pipeline_model_parallel_size", "2" },
                                         { NULL, NULL } };
  arena a = { 0 };
  settings s;
  small_gpt(&s, keys, &a);
  static_allocation_list list = static_allocations(&s, 90, 1, &a);
  for (uint32_t i = 1; i < list.count; i++)
    assert_true(list.items[i - 1].phase <= list.items[i].phase);
  arena_release(&a);
}

static int64_t bytes_of_class(const static_allocation_list *list, buffer_class class)
{
  int64_t sum = 0;
  for (uint32_t i = 0; i < list->count; i++)
    if (list->items[i].purpose == class) sum += list->items[i].bytes;
  return sum;
}

/* 8 ranks own an eighth each of weights, gradients and states. */
static void fsdp_cuts_everything(void **state)
{
  (void)state;
  static const char *const whole[][2] = { { NULL, NULL } };
  static const char *const cut[][2] = {
    { "parallel.use_megatron_fsdp", "true" },
    { "parallel.data_parallel_sharding_strategy", "optim_grads_params" },
    { "software.megatron_day", "2025-08-20" }, /* nothing is padded */
    { NULL, NULL },
  };
  arena a = { 0 };
  settings plain, sharded;
  small_gpt(&plain, whole, &a);
  small_gpt(&sharded, cut, &a);
  static_allocation_list all = static_allocations(&plain, 90, 0, &a);
  static_allocation_list part = static_allocations(&sharded, 90, 0, &a);
  static const buffer_class classes[] = { CLASS_WEIGHT, CLASS_GRADIENT, CLASS_OPTIMIZER };
  for (size_t i = 0; i < 3; i++)
    assert_int_equal(bytes_of_class(&part, classes[i]), bytes_of_class(&all, classes[i]) / 8);
  arena_release(&a);
}

static int64_t bytes_named(const static_allocation_list *list, const char *name)
{
  int64_t sum = 0;
  for (uint32_t i = 0; i < list->count; i++)
    if (strcmp(list->items[i].name, name) == 0) sum += list->items[i].bytes;
  return sum;
}

/* Newer software: gradients in the weights' type and fp32 copies; what is outside the layers stays
 * gathered, and logging the norm frees the rest. */
static void fsdp_keeps_weights_gathered(void **state)
{
  (void)state;
  static const char *const keys[][2] = {
    { "parallel.use_megatron_fsdp", "true" },
    { "parallel.data_parallel_sharding_strategy", "optim_grads_params" },
    { "software.container", "pytorch:26.06-py3" },
    { NULL, NULL },
  };
  const int64_t outside = (50304 + 1024 + 2 + 6) * 512; /* to a multiple of 8 rows */
  arena a = { 0 };
  settings s;
  small_gpt(&s, keys, &a);
  static_allocation_list list = static_allocations(&s, 90, 0, &a);
  int64_t cut = bytes_named(&list, "fsdp.gradients");
  assert_int_equal(cut, bytes_named(&list, "fsdp.weights"));
  assert_int_equal(bytes_named(&list, "main_weights.grad"), bytes_named(&list, "exp_avg"));
  assert_int_equal(bytes_named(&list, "fsdp.gathered_weights"), 8 * cut);
  s.training.log_params_norm = true;
  list = static_allocations(&s, 90, 0, &a);
  assert_int_equal(bytes_named(&list, "fsdp.gathered_weights"), 2 * outside);
  arena_release(&a);
}

/* Gradients in the weights' type, and what is outside the layers gathered through the step: both with the
 * newest code, too. */
static void fsdp_changes_with_days(void **state)
{
  (void)state;
  static const struct {
    const char *day;
    int64_t gradient_bytes;
    bool stays;
  } rows[] = { { "2025-10-21", 4, true },
               { "2025-10-22", 4, false },
               { "2026-05-29", 4, false },
               { "2026-05-30", 4, true },
               { "2026-07-01", 4, true },
               { "2026-07-02", 2, true },
               { "", 2, true } };
  arena a = { 0 };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const char *keys[][2] = { { "parallel.use_megatron_fsdp", "true" },
                              { "parallel.data_parallel_sharding_strategy", "optim_grads_params" },
                              { "software.megatron_day", rows[i].day },
                              { NULL, NULL } };
    settings s;
    small_gpt(&s, (const char *const(*)[2])keys, &a);
    static_allocation_list list = static_allocations(&s, 90, 0, &a);
    int64_t elements = bytes_named(&list, "fsdp.weights") / 2;
    assert_int_equal(bytes_named(&list, FSDP_GRADIENTS), elements * rows[i].gradient_bytes);
    bool stays = false;
    for (uint32_t k = 0; k < list.count; k++)
      stays |= list.items[k].purpose == CLASS_WORKSPACE &&
               strcmp(list.items[k].name, "fsdp.gathered_weights") == 0;
    assert_int_equal(stays, rows[i].stays);
  }
  arena_release(&a);
}

/* Transformer Engine 2.10 and 2.11: a state has the shape of the whole parameter, over data and tensor
 * parallel ranks; norms and the position embedding are not split over the latter. */
static void fsdp_states_of_two_engines_are_whole(void **state)
{
  (void)state;
  static const struct {
    const char *day, *split;
    bool whole;
  } rows[] = { { "2025-12-04", "1", false },
               { "2025-12-05", "1", true },
               { "2026-01-26", "2", true },
               { "2026-01-27", "2", false },
               { "", "1", false } };
  arena a = { 0 };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const char *keys[][2] = { { "parallel.use_megatron_fsdp", "true" },
                              { "parallel.data_parallel_sharding_strategy", "optim_grads_params" },
                              { "parallel.tensor_model_parallel_size", rows[i].split },
                              { "software.megatron_day", rows[i].day },
                              { NULL, NULL } };
    settings s;
    small_gpt(&s, (const char *const(*)[2])keys, &a);
    static_allocation_list list = static_allocations(&s, 90, 0, &a);
    int64_t cut = bytes_named(&list, "fsdp.main_weights"), elements = 0;
    for (uint32_t k = 0; k < list.parameters.count; k++) {
      const parameter *p = &list.parameters.items[k];
      elements += parameter_elements(p) *
                  (p->split_dimension >= 0 ? s.parallel.tensor_model_parallel_size : 1);
    }
    if (rows[i].whole)
      assert_int_equal(bytes_named(&list, "exp_avg"), 4 * elements);
    else /* padding has no state */
      assert_in_range(bytes_named(&list, "exp_avg"), cut * 9 / 10, cut);
    assert_int_equal(bytes_named(&list, "exp_avg_sq"), bytes_named(&list, "exp_avg"));
  }
  arena_release(&a);
}

/* Whole gradients: each parameter has elements of its own, which fill the buffer. Sharded ones that no bucket
 * collects: groups follow each other, and parameters of a group share its part. */
static void fsdp_places_fill_the_buffer(void **state)
{
  (void)state;
  static const char *const strategies[] = { "no_shard", "optim", "optim_grads",
                                            "optim_grads_params" };
  arena a = { 0 };
  for (int i = 0; i < 4; i++) {
    const char *keys[][2] = { { "parallel.use_megatron_fsdp", "true" },
                              { "parallel.data_parallel_sharding_strategy", strategies[i] },
                              { "software.megatron_day", "2026-05-19" },
                              { NULL, NULL } };
    settings s;
    small_gpt(&s, (const char *const(*)[2])keys, &a);
    static_allocation_list list = static_allocations(&s, 90, 0, &a);
    rank_parameters r = fsdp_rank_parameters(&s, 0, &a);
    for (uint32_t k = 0; k < r.list.count; k++)
      assert_int_equal(r.places[k].shared, 0);
    s.training.delay_wgrad_compute = true;
    r = fsdp_rank_parameters(&s, 0, &a);
    int64_t elements = bytes_named(&list, FSDP_GRADIENTS) / 4, seen = 0;
    int64_t group_end = 0; /* of the last group that began */
    assert_int_equal(r.list.count, list.parameters.count);
    assert_int_equal(r.buffers.items[0].elements, elements);
    for (uint32_t k = 0; k < r.list.count; k++) {
      const parameter_place *at = &r.places[k];
      int64_t own = parameter_elements(&r.list.items[k]);
      assert_int_equal(at->buffer, 0);
      assert_true(i < 2 ? at->shared == 0 : at->shared > 0);
      assert_true(at->start >= 0 && at->start + (i < 2 ? own : at->shared) <= elements);
      for (uint32_t other = 0; other < k; other++)
        if (i < 2) {
          const parameter_place *before = &r.places[other];
          assert_true(before->start + parameter_elements(&r.list.items[other]) <= at->start ||
                      at->start + own <= before->start);
        }
      if (i < 2) seen += own;
      if (i >= 2 && at->start >= group_end) seen += at->shared, group_end = at->start + at->shared;
    }
    assert_in_range(seen, i == 1 ? elements * 9 / 10 : elements, elements); /* optim pads */
  }
  arena_release(&a);
}

/* The angles of a sequence: one cache for a model chunk, or with latent attention for a layer. */
static void rotary_angles_are_cached(void **state)
{
  (void)state;
  static const char *const rope[][2] = { { "model.position_embedding_type", "rope" },
                                         { NULL, NULL } };
  static const char *const latent[][2] = { { "model.position_embedding_type", "rope" },
                                           { "model.multi_latent_attention", "true" },
                                           { "model.apply_rope_fusion", "false" },
                                           { NULL, NULL } };
  arena a = { 0 };
  settings s;
  small_gpt(&s, rope, &a);
  static_allocation_list list = static_allocations(&s, 90, 0, &a);
  assert_int_equal(bytes_named(&list, "rotary.angles"), 1024 * 64 * 4);
  small_gpt(&s, latent, &a);
  list = static_allocations(&s, 90, 0, &a);
  assert_int_equal(bytes_named(&list, "rotary.angles"), 12 * 1024 * 64 * 4);
  assert_int_equal(bytes_named(&list, "rotary.cosines"), 12 * 4096 * 64 * 2);
  arena_release(&a);
}

/* 4096 tokens, 8 experts, 2 for each token, 12 layers. */
static void dispatchers_keep_their_routing(void **state)
{
  (void)state;
  static const char *const keys[][2] = {
    { "model.num_experts", "8" },         { "model.moe_router_topk", "2" },
    { "model.moe_router_dtype", "fp32" }, { "model.moe_token_dispatcher_type", "alltoall" },
    { "model.add_bias_linear", "false" }, { NULL, NULL },
  };
  arena a = { 0 };
  settings s;
  small_gpt(&s, keys, &a);
  static_allocation_list list = static_allocations(&s, 90, 0, &a);
  assert_int_equal(bytes_of_class(&list, CLASS_RETAINED), 12 * 4096 * (8 * 4 + 8 + 2 * 8));
  s.model.moe_permute_fusion = true;
  list = static_allocations(&s, 90, 0, &a);
  assert_int_equal(bytes_of_class(&list, CLASS_RETAINED), 12 * 4096 * (8 * 4 + 8 + 17 * 4));
  arena_release(&a);
}

/* The output layer gathers its input into a buffer that stays. */
static void sequence_parallel_output_layers_keep_a_buffer(void **state)
{
  (void)state;
  static const char *const keys[][2] = { { "parallel.tensor_model_parallel_size", "2" },
                                         { "parallel.pipeline_model_parallel_size", "2" },
                                         { "parallel.sequence_parallel", "true" },
                                         { NULL, NULL } };
  arena a = { 0 };
  settings s;
  small_gpt(&s, keys, &a);
  static_allocation_list first = static_allocations(&s, 90, 0, &a);
  static_allocation_list last = static_allocations(&s, 90, 1, &a);
  assert_int_equal(bytes_named(&first, "global_memory_buffer"), 0);
  assert_int_equal(bytes_named(&last, "global_memory_buffer"), 4096 * 512 * 2);
  arena_release(&a);
}

/* Five shapes: output layer, fc1, fc2, projection, qkv. With experts no fc1 and fc2, but theirs, grouped. */
static void fused_gradients_leave_one_placeholder_a_shape(void **state)
{
  (void)state;
  static const struct {
    const char *container, *day, *experts;
    int count;
  } cases[] = {
    { "pytorch:26.04-py3", "2026-08-01", "", 5 },  { "pytorch:26.04-py3", "2026-08-01", "4", 5 },
    { "pytorch:25.09-py3", "2025-12-04", "", 5 },  { "pytorch:25.09-py3", "2025-12-04", "4", 3 },
    { "pytorch:25.09-py3", "2025-12-05", "4", 5 }, { "pytorch:25.05-py3", "2025-07-05", "", 4 },
    { "pytorch:25.05-py3", "2025-07-05", "4", 2 }, { "pytorch:25.04-py3", "2025-07-05", "", 0 },
    { "pytorch:24.01-py3", "2025-10-12", "", 0 },
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const char *const keys[][2] = {
      { "training.gradient_accumulation_fusion", "true" },
      { "parallel.pipeline_model_parallel_size", "2" },
      { "software.container", cases[i].container },
      { "software.megatron_day", cases[i].day },
      { cases[i].experts[0] ? "model.num_experts" : NULL, cases[i].experts },
      { "model.moe_grouped_gemm", "true" },
      { NULL, NULL },
    };
    arena a = { 0 };
    settings s;
    small_gpt(&s, keys, &a);
    static_allocation_list list = static_allocations(&s, 90, 1, &a);
    int count = 0;
    for (uint32_t j = 0; j < list.count; j++)
      count += strcmp(list.items[j].name, "gradient_placeholder") == 0;
    assert_int_equal(count, cases[i].count);
    arena_release(&a);
  }
}

static int count_of(const static_allocation_list *list, const char *name, buffer_class class,
                    static_phase phase)
{
  int count = 0;
  for (uint32_t i = 0; i < list->count; i++) {
    const static_allocation *a = &list->items[i];
    count += strcmp(a->name, name) == 0 && a->purpose == class && a->phase == phase;
  }
  return count;
}

/* A distributed optimizer makes its states twice before it gets those of the checkpoint. */
static void loaded_states_are_there_before_the_first_step(void **state)
{
  (void)state;
  static const char *const keys[][2] = { { "parallel.use_distributed_optimizer", "true" },
                                         { "training.resumes", "true" },
                                         { NULL, NULL } };
  arena a = { 0 };
  settings s;
  small_gpt(&s, keys, &a);
  static_allocation_list list = static_allocations(&s, 90, 0, &a);
  assert_int_equal(static_requested_bytes(&list), 581489664);
  int states = count_of(&list, "exp_avg", CLASS_OPTIMIZER, STATIC_BUILD);
  assert_true(states > 0);
  assert_int_equal(count_of(&list, "exp_avg", CLASS_OPTIMIZER, STATIC_STEP), 0);
  assert_int_equal(count_of(&list, "exp_avg", CLASS_TRANSIENT, STATIC_BUILD), 2 * states);
  assert_int_equal(count_of(&list, "checkpoint.exchanged", CLASS_TRANSIENT, STATIC_BUILD), 0);
  s.parallel.use_distributed_optimizer = false;
  list = static_allocations(&s, 90, 0, &a);
  states = count_of(&list, "exp_avg", CLASS_OPTIMIZER, STATIC_BUILD);
  assert_int_equal(count_of(&list, "exp_avg", CLASS_TRANSIENT, STATIC_BUILD), states);
  arena_release(&a);
}

static int64_t bytes_of(const static_allocation_list *list, const char *name)
{
  int64_t bytes = 0;
  for (uint32_t i = 0; i < list->count; i++)
    if (strcmp(list->items[i].name, name) == 0 && list->items[i].phase == STATIC_BUILD)
      bytes += list->items[i].bytes;
  return bytes;
}

/* 8 ranks, 2 instances of the optimizer: 2 ranks have the same shards, and all the same weights. What a rank
 * does not read is exchanged, and it reads no more than its part of all bytes and the largest tensor. */
static void ranks_exchange_what_they_do_not_read(void **state)
{
  (void)state;
  static const char *const keys[][2] = { { "parallel.use_distributed_optimizer", "true" },
                                         { "parallel.num_distributed_optimizer_instances", "2" },
                                         { "training.resumes", "true" },
                                         { "training.ckpt_fully_parallel_load", "true" },
                                         { NULL, NULL } };
  enum { RANKS = 8, SETS = 4, FIELDS = 3 };
  arena a = { 0 };
  settings s;
  small_gpt(&s, keys, &a);
  static_allocation_list list = static_allocations(&s, 90, 0, &a);
  int64_t weights = 0, largest = 0;
  for (uint32_t i = 0; i < list.parameters.count; i++) {
    const parameter *p = &list.parameters.items[i];
    int64_t bytes = parameter_elements(p) * dtype_bytes((dtype)p->type);
    weights += bytes;
    largest = bytes > largest ? bytes : largest;
  }
  for (uint32_t i = 0; i < list.count; i++)
    if (strcmp(list.items[i].name, "main_param") == 0 && list.items[i].bytes > largest)
      largest = list.items[i].bytes;
  int64_t all = weights + SETS * FIELDS * bytes_of(&list, "main_param");
  int64_t read = all - bytes_of(&list, "checkpoint.exchanged");
  assert_in_range(read, 1, all / RANKS + largest);
  arena_release(&a);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(distributed_optimizer_case_is_exact),
    cmocka_unit_test(phases_do_not_run_backwards),
    cmocka_unit_test(fsdp_cuts_everything),
    cmocka_unit_test(fsdp_keeps_weights_gathered),
    cmocka_unit_test(fsdp_changes_with_days),
    cmocka_unit_test(fsdp_states_of_two_engines_are_whole),
    cmocka_unit_test(fsdp_places_fill_the_buffer),
    cmocka_unit_test(rotary_angles_are_cached),
    cmocka_unit_test(dispatchers_keep_their_routing),
    cmocka_unit_test(sequence_parallel_output_layers_keep_a_buffer),
    cmocka_unit_test(loaded_states_are_there_before_the_first_step),
    cmocka_unit_test(ranks_exchange_what_they_do_not_read),
    cmocka_unit_test(fused_gradients_leave_one_placeholder_a_shape),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
