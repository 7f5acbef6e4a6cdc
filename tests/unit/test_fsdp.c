/*
 * PyTorch's fully sharded data parallel: what units and shards are, and, on plans of a small model,
 * how often units are gathered and reduced, how many are whole at once, in which types, and that
 * nothing is left.
 */
#include "tests/unit/small_runs.h"

#include <stdio.h>

#include "sim/residents/fsdp_units.h"

enum { LAYERS = 4, RANKS = 8 };

#define SMALL_HF                                                                                   \
  "model: {implementation: hf, num_layers: 4, hidden_size: 512, ffn_hidden_size: 1024,\n"          \
  "  num_attention_heads: 4, normalization: RMSNorm, swiglu: true, position_embedding_type: "      \
  "rope,\n"                                                                                        \
  "  add_bias_linear: false, hidden_dropout: 0.0, attention_dropout: 0.0,\n"                       \
  "  untie_embeddings_and_output_weights: true, vocab_size: 1024}\n"                               \
  "parallel: {world_size: 8}\n"                                                                    \
  "training: {micro_batch_size: 1, global_batch_size: 8, seq_length: 256, bf16: true}\n"           \
  "machine: {name: ideal}\n"

#define FSDP1 "parallel: {fsdp: fsdp}\n"
#define FSDP2 "parallel: {fsdp: fsdp2}\n"
#define MIXED(version)                                                                             \
  "parallel: {fsdp: " version ", fsdp_model_dtype: fp32, fsdp_reduce_dtype: fp32}\n"
#define RECOMPUTE                                                                                  \
  "recompute: {recompute_granularity: full, recompute_method: uniform, recompute_num_layers: 1}\n"

/* Weights of a layer (4 of attention, 3 of the MLP, 2 norms), and of everything else. */
static const int64_t layer_elements = 4 * 512 * 512 + 3 * 512 * 1024 + 2 * 512;
static const int64_t root_elements = 2 * 1024 * 512 + 512;

/* ---- units ---- */

/* An embedding of 10 x 4, two layers of a frozen 6 x 4 and a trainable 3 x 4, a head of 10 x 4. */
static fsdp_layout layout_with(const char *changes, arena *a)
{
  static hf_parameter items[] = {
    { .name = "embed",
      .elements = 40,
      .rows = 10,
      .layer = -1,
      .trainable = true,
      .embedding = true },
    { .name = "big", .elements = 24, .rows = 6, .layer = 0 },
    { .name = "small", .elements = 12, .rows = 3, .layer = 0, .trainable = true },
    { .name = "big", .elements = 24, .rows = 6, .layer = 1 },
    { .name = "small", .elements = 12, .rows = 3, .layer = 1, .trainable = true },
    { .name = "head", .elements = 40, .rows = 10, .layer = -1, .trainable = true },
  };
  hf_parameter_list list = { items, sizeof items / sizeof items[0] };
  return fsdp_layout_of(small_settings(SMALL_HF, changes, a), &list, a);
}

static void test_flat_parameters(void **state)
{
  (void)state;
  arena a = { 0 };
  fsdp_layout l = layout_with(FSDP1, &a);
  static const int64_t expected[] = { 10, 2, 3, 2, 3 }; /* 80, 12, 24, 12 and 24, over 8 */
  assert_int_equal(l.unit_count, 3);
  assert_int_equal(l.shard_count, 5);
  for (uint32_t i = 0; i < l.shard_count; i++)
    assert_int_equal(l.shards[i].elements, expected[i]);
  assert_int_equal(l.units[0].layer, -1);
  assert_int_equal(l.units[2].layer, 1);
  assert_int_equal(l.units[2].shard_count, 2);
  assert_true(l.shards[3].trainable && !l.shards[4].trainable);
  arena_release(&a);
}

static void test_shards_by_rows(void **state)
{
  (void)state;
  arena a = { 0 };
  fsdp_layout l =
      layout_with("parallel: {fsdp: fsdp2, fsdp_size: 4, fsdp_wrap_embedding: true}\n", &a);
  static const int64_t expected[] = {
    3 * 4, 3 * 4, 2 * 4, 4, 2 * 4, 4
  }; /* rows over 4, rounded up */
  assert_int_equal(l.unit_count, 4);
  assert_int_equal(l.embedding_unit, 1);
  for (uint32_t i = 0; i < 6; i++)
    assert_int_equal(l.shards[i].elements, expected[i]);
  assert_string_equal(l.shards[l.units[0].first_shard].name, "head");
  assert_string_equal(l.shards[l.units[1].first_shard].name, "embed");
  arena_release(&a);
}

/* ---- plans ---- */

typedef struct counts {
  uint32_t gathers, scatters, all_reduces;
  int64_t gathered_bytes, scattered_bytes; /* parts, wholes */
  uint32_t most_whole;                     /* units that are whole at once */
  int64_t left_bytes;                      /* taken less given back */
} counts;

static bool is_named(const plan *p, const plan_buffer *b, const char *name)
{
  return strcmp(p->tensors.items[b->tensor].name, name) == 0;
}

static void count_collective(const plan *p, const plan_op *o, counts *c)
{
  const plan_call *call = &p->calls.items[o->arg];
  if (call->kind == COLLECTIVE_ALL_GATHER) {
    c->gathers++;
    c->gathered_bytes += call->bytes;
  } else if (call->kind == COLLECTIVE_REDUCE_SCATTER) {
    c->scatters++;
    c->scattered_bytes += call->bytes;
  } else {
    c->all_reduces++;
  }
}

static counts counts_of(const char *changes, const char *whole, iteration_kind iteration)
{
  run one;
  counts c = { 0 };
  uint32_t now = 0;
  run_begin(&one, SMALL_HF, changes, iteration);
  const plan *p = one.plan;
  const rank_plan *r = one.rank;
  for (uint32_t i = 0; i < r->ops.count; i++) {
    const plan_op *o = &r->ops.items[i];
    if (o->kind == OP_COLLECTIVE) count_collective(p, o, &c);
    if (o->kind != OP_ALLOC && o->kind != OP_FREE) continue;
    int sign = o->kind == OP_ALLOC ? 1 : -1;
    c.left_bytes += sign * r->buffers.items[o->arg].bytes;
    if (is_named(p, &r->buffers.items[o->arg], whole)) now += (uint32_t)sign;
    if (now > c.most_whole) c.most_whole = now;
  }
  run_end(&one);
  return c;
}

/* The root once, each layer for forward and for backward. */
static void test_what_is_gathered_and_reduced(void **state)
{
  (void)state;
  static const struct {
    const char *changes;
    int64_t gathered, reduced; /* bytes an element */
  } cases[] = {
    { FSDP1, 2, 2 },          { FSDP2, 2, 2 },           { MIXED("fsdp"), 2, 4 },
    { MIXED("fsdp2"), 2, 4 }, { FSDP1 RECOMPUTE, 2, 2 }, { FSDP2 RECOMPUTE, 2, 2 },
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (int k = ITERATION_WARMUP; k <= ITERATION_STEADY; k++) {
      counts c = counts_of(cases[i].changes, "fsdp.flat_param", (iteration_kind)k);
      assert_int_equal(c.gathers, 1 + 2 * LAYERS);
      assert_int_equal(c.scatters, 1 + LAYERS);
      assert_int_equal(c.all_reduces, 0);
      assert_int_equal(c.gathered_bytes,
                       cases[i].gathered * (root_elements + 2 * LAYERS * layer_elements) / RANKS);
      assert_int_equal(c.scattered_bytes,
                       cases[i].reduced * (root_elements + LAYERS * layer_elements));
    }
}

static void test_layers_may_stay_whole(void **state)
{
  (void)state;
  counts c = counts_of("parallel: {fsdp: fsdp, fsdp_reshard_after_forward: false}\n",
                       "fsdp.flat_param", ITERATION_STEADY);
  assert_int_equal(c.gathers, 1 + LAYERS);
  assert_int_equal(c.most_whole, 1 + LAYERS);
}

/* The root, the unit that runs, and the one that runs next in backward. */
static void test_units_that_are_whole(void **state)
{
  (void)state;
  assert_int_equal(counts_of(FSDP1, "fsdp.flat_param", ITERATION_STEADY).most_whole, 3);
  assert_int_equal(counts_of(MIXED("fsdp"), "fsdp.flat_param", ITERATION_STEADY).most_whole, 3);
  /* FSDP2's buffers: in forward the last unit's is freed when the next one is gathered. */
  assert_int_equal(counts_of(FSDP2, "fsdp.all_gather_output", ITERATION_STEADY).most_whole, 2);
}

/* The host takes memory for a unit only when the GPU is done with all but the last that was given back. */
static void test_host_waits_for_units_given_back(void **state)
{
  (void)state;
  run one;
  run_begin(&one, SMALL_HF, FSDP1, ITERATION_STEADY);
  const plan *p = one.plan;
  const rank_plan *r = one.rank;
  uint32_t given_back = 0, awaited = 0, most_ahead = 0;
  for (uint32_t i = 0; i < r->ops.count; i++) {
    const plan_op *o = &r->ops.items[i];
    bool is_unit = (o->kind == OP_ALLOC || o->kind == OP_FREE) &&
                   is_named(p, &r->buffers.items[o->arg], "fsdp.flat_param");
    given_back += is_unit && o->kind == OP_FREE;
    awaited += o->kind == OP_HOST_WAIT;
    if (is_unit && o->kind == OP_ALLOC && given_back >= 2 && given_back - awaited > most_ahead)
      most_ahead = given_back - awaited;
  }
  assert_int_equal(most_ahead, 1);
  run_end(&one);
}

/* Replicas of sharding groups sum their shards. */
static void test_hybrid_sharding(void **state)
{
  (void)state;
  counts c =
      counts_of("parallel: {fsdp: fsdp2, fsdp_size: 4}\n", "fsdp.flat_param", ITERATION_STEADY);
  assert_int_equal(c.gathers, 1 + 2 * LAYERS);
  assert_int_equal(c.all_reduces, 1 + LAYERS);
  assert_int_equal(c.gathered_bytes, 2 * (root_elements + 2 * LAYERS * layer_elements) / 4);
}

/* Each of several micro-batches gathers and reduces; a steady iteration frees what it allocated. */
static void test_nothing_is_left(void **state)
{
  (void)state;
  static const char *const cases[] = {
    FSDP1,
    FSDP2,
    MIXED("fsdp"),
    MIXED("fsdp2"),
    "parallel: {fsdp: fsdp2, fsdp_wrap_embedding: true}\n",
    "parallel: {fsdp: fsdp, fsdp_forward_prefetch: true}\n",
    "parallel: {fsdp: fsdp, world_size: 1}\n",
    "parallel: {fsdp: fsdp, fsdp_model_dtype: fp32, world_size: 1}\n",
    "parallel: {fsdp: fsdp2, world_size: 1}\n"
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char changes[256];
    snprintf(changes, sizeof changes, "%straining: {global_batch_size: 24}\n", cases[i]);
    assert_int_equal(counts_of(changes, "fsdp.flat_param", ITERATION_STEADY).left_bytes, 0);
  }
  char changes[256];
  snprintf(changes, sizeof changes, "%straining: {global_batch_size: 24}\n", FSDP1);
  assert_int_equal(counts_of(changes, "fsdp.flat_param", ITERATION_STEADY).gathers,
                   3 * (1 + 2 * LAYERS));
}

/* One GPU keeps its parameters whole. */
static void test_one_gpu_gathers_nothing(void **state)
{
  (void)state;
  counts c = counts_of("parallel: {fsdp: fsdp, world_size: 1}\ntraining: {global_batch_size: 1}\n",
                       "fsdp.flat_param", ITERATION_STEADY);
  assert_int_equal(c.gathers + c.scatters + c.all_reduces, 0);
  assert_int_equal(c.most_whole, 0);
}

/* Without FSDP: the last of three micro-batches reduces each layer's gradients, and the rest. */
static void test_replicas_sum_their_gradients(void **state)
{
  (void)state;
  counts c = counts_of("training: {global_batch_size: 24}\n", "", ITERATION_STEADY);
  assert_int_equal(c.gathers + c.scatters, 0);
  assert_int_equal(c.all_reduces, 1 + LAYERS);
  assert_int_equal(c.left_bytes, 0);
}

int main(void)
{
  static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_flat_parameters),
    cmocka_unit_test(test_shards_by_rows),
    cmocka_unit_test(test_what_is_gathered_and_reduced),
    cmocka_unit_test(test_layers_may_stay_whole),
    cmocka_unit_test(test_units_that_are_whole),
    cmocka_unit_test(test_host_waits_for_units_given_back),
    cmocka_unit_test(test_hybrid_sharding),
    cmocka_unit_test(test_nothing_is_left),
    cmocka_unit_test(test_one_gpu_gathers_nothing),
    cmocka_unit_test(test_replicas_sum_their_gradients),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
