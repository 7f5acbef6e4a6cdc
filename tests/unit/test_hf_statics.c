/* Optimizer states and workspaces of plain PyTorch, by hand. */
#include "sim/residents/hf_statics.h"

#include "tests/unit/static_settings.h"

static hf_parameter items[] = {
  { .name = "embed",
    .elements = 1 << 20,
    .rows = 1024,
    .layer = -1,
    .type = DTYPE_BF16,
    .trainable = true,
    .embedding = true },
  { .name = "frozen", .elements = 1 << 20, .rows = 1024, .layer = 0, .type = DTYPE_BF16 },
  { .name = "weight",
    .elements = 1000000,
    .rows = 1000,
    .layer = 0,
    .type = DTYPE_BF16,
    .trainable = true },
  { .name = "small",
    .elements = 5000,
    .rows = 5,
    .layer = 0,
    .type = DTYPE_BF16,
    .trainable = true },
  { .name = "norm",
    .elements = 512,
    .rows = 512,
    .layer = 0,
    .type = DTYPE_BF16,
    .trainable = true },
};

enum {
  EMBED = 1 << 20,
  WEIGHT = 1000000,
  SMALL = 5000,
  NORM = 512,
  TRAINABLE = EMBED + WEIGHT + SMALL + NORM
};

static static_allocation_list list_on(const char *gpus, const char *optimizer, const char *fsdp,
                                      arena *a)
{
  static const char *const base[][2] = {
    { "model.implementation", "hf" },
    { "model.num_layers", "2" },
    { "model.hidden_size", "512" },
    { "model.num_attention_heads", "8" },
    { "model.vocab_size", "1024" },
    { "model.normalization", "RMSNorm" },
    { "model.swiglu", "true" },
    { "model.add_bias_linear", "false" },
    { "model.hidden_dropout", "0" },
    { "model.attention_dropout", "0" },
    { "model.position_embedding_type", "rope" },
    { "training.seq_length", "1024" },
    { "training.bf16", "true" },
    { NULL, NULL },
  };
  settings *s = ARENA_NEW(a, settings);
  hf_parameter_list parameters = { items, sizeof items / sizeof items[0] };
  diag d = { .quiet = true };
  settings_init(s, a);
  set_keys(s, base, a, &d);
  assert_true(settings_set(s, "parallel.world_size", gpus, (source_pos){ 0 }, a, &d));
  assert_true(settings_set(s, "training.optimizer", optimizer, (source_pos){ 0 }, a, &d));
  assert_true(settings_set(s, "parallel.fsdp", fsdp, (source_pos){ 0 }, a, &d));
  assert_true(settings_set(s, "parallel.fsdp_model_dtype", *fsdp != '\0' ? "fp32" : "",
                           (source_pos){ 0 }, a, &d));
  settings_resolve(s, NULL, a, &d);
  assert_string_equal(d.message, "");
  return hf_static_allocations(s, 90, &parameters, a);
}

static static_allocation_list list_for(const char *optimizer, const char *fsdp, arena *a)
{
  return list_on(*fsdp != '\0' ? "4" : "1", optimizer, fsdp, a);
}

static int64_t state_bytes(const char *optimizer, const char *fsdp)
{
  arena a = { 0 };
  static_allocation_list list = list_for(optimizer, fsdp, &a);
  int64_t bytes = 0;
  for (uint32_t i = 0; i < list.count; i++)
    if (list.items[i].purpose == CLASS_OPTIMIZER) bytes += list.items[i].bytes;
  arena_release(&a);
  return bytes;
}

/* What only lives during the step. */
static int64_t step_bytes(const char *optimizer, const char *fsdp)
{
  arena a = { 0 };
  static_allocation_list list = list_for(optimizer, fsdp, &a);
  int64_t bytes = 0;
  for (uint32_t i = 0; i < list.count; i++)
    if (list.items[i].in_step) bytes += list.items[i].bytes;
  arena_release(&a);
  return bytes;
}

static void torch_states_have_the_parameters_type(void **state)
{
  (void)state;
  assert_int_equal(state_bytes("adamw_torch", ""), 2 * 2 * TRAINABLE);
  assert_int_equal(state_bytes("adam", ""), 2 * 2 * TRAINABLE);
  assert_int_equal(step_bytes("adamw_torch", ""), 2 * TRAINABLE);
  assert_int_equal(state_bytes("adamw_torch_fused", ""), 2 * 2 * TRAINABLE + 4 * 4);
  assert_int_equal(step_bytes("adamw_torch_fused", ""), 0);
  assert_int_equal(state_bytes("sgd", ""), 0);
  assert_int_equal(state_bytes("none", ""), 0);
}

/* The embedding and what has less than 4096 elements are in fp32; the rest has blocks of 256. */
static void bitsandbytes_states(void **state)
{
  (void)state;
  int64_t tables = 2 * 256 * 4, norm = 2 * 4 * NORM;
  int64_t weight = 2 * (WEIGHT + 4 * 3907), small = 2 * (SMALL + 4 * 20);
  assert_int_equal(state_bytes("adamw_8bit", ""), tables + 2 * 4 * EMBED + weight + small + norm);
  /* Paged: from 100000 elements on, outside the device's memory; the maxima are not. */
  assert_int_equal(state_bytes("paged_adamw_8bit", ""), tables + 2 * 4 * 3907 + small + norm);
  assert_int_equal(state_bytes("paged_adamw_32bit", ""), 2 * 4 * (SMALL + NORM));
}

/* One moment, and no table for unsigned numbers. */
static void lion_states(void **state)
{
  (void)state;
  int64_t weight = WEIGHT + 4 * 3907, small = SMALL + 4 * 20;
  assert_int_equal(state_bytes("lion_8bit", ""), 256 * 4 + 4 * EMBED + weight + small + 4 * NORM);
  assert_int_equal(state_bytes("paged_lion_8bit", ""), 256 * 4 + 4 * 3907 + small + 4 * NORM);
  assert_int_equal(state_bytes("lion_32bit", ""), 4 * TRAINABLE);
  assert_int_equal(state_bytes("paged_lion_32bit", ""), 4 * (SMALL + NORM));
}

/* The weight and the small one are no whole number of blocks: states in bf16, as the norm's. */
static void torchao_states(void **state)
{
  (void)state;
  int64_t others = 2 * 2 * (WEIGHT + SMALL + NORM), scales = 2 * 4 * (EMBED / 256);
  assert_int_equal(state_bytes("adamw_torch_8bit", ""), others + scales + 2 * EMBED + 2 * 4 * 256);
  assert_int_equal(state_bytes("adamw_torch_4bit", ""), others + scales + EMBED + 2 * 4 * 16);
  assert_int_equal(state_bytes("ao_adamw_fp8", ""), others + scales + 2 * EMBED);
  assert_int_equal(step_bytes("adamw_torch_8bit", ""), 0);
}

/* A quarter of each unit's trainable parameters, in fp32. */
static void shards_have_states_of_their_own(void **state)
{
  (void)state;
  int64_t unit = (WEIGHT + SMALL + NORM + 3) / 4, root = EMBED / 4;
  assert_int_equal(state_bytes("adamw_torch", "fsdp"), 2 * 4 * (unit + root));
  assert_int_equal(step_bytes("adamw_torch", "fsdp"), 4 * (unit + root));
  int64_t rows = 250 * 1000 + 2 * 1000 + 128;
  assert_int_equal(state_bytes("adamw_torch", "fsdp2"), 2 * 4 * (rows + root));
}

static void workspaces_and_what_is_left(void **state)
{
  (void)state;
  arena a = { 0 };
  static_allocation_list list = list_for("none", "", &a);
  int64_t bytes[2] = { 0 };
  for (uint32_t i = 0; i < list.count; i++) {
    if (i > 0) assert_true(list.items[i - 1].phase <= list.items[i].phase);
    bytes[list.items[i].purpose == CLASS_RETAINED] += list.items[i].bytes;
  }
  assert_int_equal(bytes[0], 2 * 33554432 + 32 * 4); /* cuBLAS twice; 64 / 2 frequencies */
  assert_int_equal(bytes[1], 1024 * 8 + 4);          /* token ids, loss */
  arena_release(&a);
}

/* Data parallel replicas: the first bucket ends with the weight, which makes it full. */
static void buckets_of_replicas(void **state)
{
  (void)state;
  arena a = { 0 };
  static_allocation_list list = list_on("4", "none", "", &a);
  int64_t bytes[2] = { 0 };
  uint32_t count = 0;
  for (uint32_t i = 0; i < list.count; i++)
    if (list.items[i].purpose == CLASS_GRADIENT) {
      assert_true(count < 2);
      bytes[count++] = list.items[i].bytes;
    }
  assert_int_equal(count, 2);
  assert_int_equal(bytes[0], 2 * (NORM + SMALL + WEIGHT));
  assert_int_equal(bytes[1], 2 * EMBED);
  arena_release(&a);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(torch_states_have_the_parameters_type),
    cmocka_unit_test(bitsandbytes_states),
    cmocka_unit_test(lion_states),
    cmocka_unit_test(torchao_states),
    cmocka_unit_test(shards_have_states_of_their_own),
    cmocka_unit_test(workspaces_and_what_is_left),
    cmocka_unit_test(buckets_of_replicas),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
