/*
 * Engines that move what checkpoints keep, and selective checkpoints, on plans of a real small
 * model of Hugging Face transformers: what is copied, what is not computed again, what lives when,
 * and, where a disk is slow, the closed form of a step.
 */
#include "tests/unit/small_runs.h"

#include <stdio.h>

#include "sim/base/units.h"
#include "sim/engine/engine.h"
#include "sim/offload/systems.h"
#include "tests/unit/small_plan.h"

enum { LAYERS = 4, TOKENS = 4096, HIDDEN = 1024, HEADS = 8 };
#define INPUT_BYTES      ((int64_t)TOKENS * HIDDEN * 2)
#define STATISTICS_BYTES ((int64_t)TOKENS * HEADS * 4)

/* lse is 128 KiB: smaller than what a selective checkpoint moves. */
#define SMALL_HF                                                                                   \
  "model: {implementation: hf, num_layers: 4, hidden_size: 1024, ffn_hidden_size: 4096,\n"         \
  "  num_attention_heads: 8, group_query_attention: true, num_query_groups: 4,\n"                  \
  "  normalization: RMSNorm, position_embedding_type: rope, swiglu: true,\n"                       \
  "  add_bias_linear: false, untie_embeddings_and_output_weights: true, vocab_size: 1024,\n"       \
  "  fused_rms_norm: false}\n"                                                                     \
  "training: {micro_batch_size: 1, global_batch_size: 1, seq_length: 4096, bf16: true,\n"          \
  "  optimizer: none}\n"                                                                           \
  "machine: {name: ideal}\n"
#define CHECKPOINTS                                                                                \
  "recompute_granularity: full, recompute_method: uniform, recompute_num_layers: 1"

#define BUT_ACTIVATIONS                                                                            \
  ", selective_checkpointing: true, selective_checkpointing_save: [attention, \"aten::mm\"], "     \
  "selective_checkpointing_activation_layers: "
#define BY_LAYER                                                                                   \
  ", selective_checkpointing: true, selective_checkpointing_save: [attention, \"aten::mm\"], "     \
  "selective_checkpointing_mlp_layers: "

static void begin(run *r, const char *system, const char *offload, const char *recompute)
{
  char changes[512];
  snprintf(changes, sizeof changes, "offload: {system: %s%s}\nrecompute: {" CHECKPOINTS "%s}\n",
           system, offload, recompute);
  run_begin(r, SMALL_HF, changes, ITERATION_STEADY);
}

static int64_t moved_bytes(const run *r, op_kind kind)
{
  int64_t bytes = 0;
  for (uint32_t i = 0; i < r->rank->ops.count; i++)
    if (r->rank->ops.items[i].kind == kind)
      bytes += copy_host_buffer(r->rank, &r->rank->ops.items[i])->bytes;
  return bytes;
}

static uint32_t kernels(const run *r, kernel_kind kind)
{
  uint32_t count = 0;
  for (uint32_t i = 0; i < r->rank->ops.count; i++) {
    const plan_op *o = &r->rank->ops.items[i];
    count += o->kind == OP_KERNEL && r->compiled.plan.calls.items[o->arg].kind == kind;
  }
  return count;
}

/* ---- what moves ---- */

static void test_traffic(void **state)
{
  static const struct {
    const char *system, *offload;
    int64_t out, back, files, saved; /* inputs of layers */
    int64_t outputs;                 /* of attention, there and back */
  } cases[] = {
    { "hidden_states", "", LAYERS, LAYERS - 2, 0, LAYERS - 2, 0 },
    { "hidden_states_reentrant", "", LAYERS, LAYERS, 0, LAYERS - 2, 0 },
    { "axolotl_disk", "", LAYERS, LAYERS, LAYERS, 0, 0 },
    { "selective_checkpointing", "", 0, 0, 0, LAYERS - 2, LAYERS },
    { "selective_checkpointing", ", selective_checkpointing_hidden_states: true", LAYERS,
      LAYERS - 2, 0, 2 * (LAYERS - 2), LAYERS },
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    run r;
    begin(&r, cases[i].system, cases[i].offload, "");
    assert_int_equal(moved_bytes(&r, OP_D2H), (cases[i].out + cases[i].outputs) * INPUT_BYTES);
    assert_int_equal(moved_bytes(&r, OP_H2D), (cases[i].back + cases[i].outputs) * INPUT_BYTES);
    assert_int_equal(moved_bytes(&r, OP_DISK_WRITE), cases[i].files * INPUT_BYTES);
    assert_int_equal(moved_bytes(&r, OP_DISK_READ), cases[i].files * INPUT_BYTES);
    assert_int_equal(theoretical_saving_bytes(&r.compiled.shapes[0], &r.memory),
                     cases[i].saved * INPUT_BYTES);
    run_end(&r);
  }
}

/* ---- what is computed again ---- */

static void test_kept_operators_do_not_run_again(void **state)
{
  static const struct {
    const char *recompute;
    uint32_t attention, products; /* of a layer's forward and recomputation, on average */
  } cases[] = {
    { "", 2, 7 + 6 }, /* a checkpoint stops before its last product */
    { ", use_reentrant: true", 2, 7 + 7 },
    { ", selective_checkpointing: true", 1, 7 + 6 },
    { ", selective_checkpointing: true, selective_checkpointing_save: [attention, \"aten::mm\"]", 1,
      7 },
    { ", selective_checkpointing: true, selective_checkpointing_save: [\"aten::mm\"]", 2, 7 },
    { BY_LAYER "\"([0]*4)\"", 1, 7 + 2 },
    { BY_LAYER "\"([0,1]*2)\"", 1, 7 + 1 },
    { BY_LAYER "1", 1, 7 },
  };
  const uint32_t head = 3, of_backward = 2 * 7; /* products */
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    run r;
    begin(&r, "none", "", cases[i].recompute);
    assert_int_equal(kernels(&r, KERNEL_ATTENTION_FORWARD), LAYERS * cases[i].attention);
    assert_int_equal(kernels(&r, KERNEL_ATTENTION_BACKWARD), LAYERS);
    assert_int_equal(kernels(&r, KERNEL_GEMM), LAYERS * (cases[i].products + of_backward) + head);
    run_end(&r);
  }
}

/* ---- what lives when ---- */

/* Allocated where backward begins. */
static int64_t bytes_at_the_turn(const run *r)
{
  int64_t bytes = 0;
  for (uint32_t i = 0; i < r->rank->ops.count; i++) {
    const plan_op *o = &r->rank->ops.items[i];
    if (o->kind == OP_MARK && r->rank->marks.items[o->arg].kind == MARK_BACKWARD) break;
    if (o->kind != OP_ALLOC && o->kind != OP_FREE) continue;
    int64_t rounded = round_up(r->rank->buffers.items[o->arg].bytes, 512);
    bytes += o->kind == OP_ALLOC ? rounded : -rounded;
  }
  return bytes;
}

/* Output, statistics and the generator's two numbers of each layer; offload keeps two outputs. */
static void test_kept_outputs_at_the_turn(void **state)
{
  (void)state;
  run without, kept, moved;
  begin(&without, "none", "", "");
  begin(&kept, "none", "", ", selective_checkpointing: true");
  begin(&moved, "selective_checkpointing", "", "");
  int64_t small_bytes = STATISTICS_BYTES + 2 * 512;
  assert_int_equal(bytes_at_the_turn(&kept) - bytes_at_the_turn(&without),
                   LAYERS * (INPUT_BYTES + small_bytes));
  assert_int_equal(bytes_at_the_turn(&moved) - bytes_at_the_turn(&without),
                   2 * INPUT_BYTES + LAYERS * small_bytes);
  run_end(&without);
  run_end(&kept);
  run_end(&moved);
}

/* Gate and up of the chosen layers. No recomputation reads the MLP's last product: only the rule by
 * operator keeps it, as PyTorch does. */
static void test_kept_products_at_the_turn(void **state)
{
  const int64_t widened_bytes = INT64_C(2) * TOKENS * 4096 * 2;
  (void)state;
  run no_mlp, second, all, by_operator;
  begin(&no_mlp, "none", "", BY_LAYER "\"([0]*4)\"");
  begin(&second, "none", "", BY_LAYER "\"([0,1,0,0])\"");
  begin(&all, "none", "", BY_LAYER "1");
  begin(&by_operator, "none", "",
        ", selective_checkpointing: true, "
        "selective_checkpointing_save: [attention, \"aten::mm\"]");
  assert_int_equal(bytes_at_the_turn(&second) - bytes_at_the_turn(&no_mlp), widened_bytes);
  assert_int_equal(bytes_at_the_turn(&all) - bytes_at_the_turn(&no_mlp), LAYERS * widened_bytes);
  assert_int_equal(bytes_at_the_turn(&by_operator) - bytes_at_the_turn(&all), LAYERS * INPUT_BYTES);
  run_end(&no_mlp);
  run_end(&second);
  run_end(&all);
  run_end(&by_operator);
}

/* SiLU's result and its product with up. */
static void test_kept_activations_at_the_turn(void **state)
{
  static const char none[] = BUT_ACTIVATIONS "\"([0]*4)\"";
  const int64_t activated_bytes = INT64_C(2) * TOKENS * 4096 * 2;
  (void)state;
  run no_mlp, second, all;
  begin(&no_mlp, "none", "", none);
  begin(&second, "none", "", BUT_ACTIVATIONS "\"([0,1,0,0])\"");
  begin(&all, "none", "", BUT_ACTIVATIONS "1");
  assert_int_equal(bytes_at_the_turn(&second) - bytes_at_the_turn(&no_mlp), activated_bytes);
  assert_int_equal(bytes_at_the_turn(&all) - bytes_at_the_turn(&no_mlp), LAYERS * activated_bytes);
  assert_int_equal(kernels(&no_mlp, KERNEL_SILU_FORWARD), 2 * LAYERS);
  assert_int_equal(kernels(&second, KERNEL_SILU_FORWARD), 2 * LAYERS - 1);
  assert_int_equal(kernels(&all, KERNEL_SILU_FORWARD), LAYERS);
  run_end(&no_mlp);
  run_end(&second);
  run_end(&all);
}

static uint32_t op_of_kernel(const run *r, kernel_kind kind, uint32_t from)
{
  for (uint32_t i = from; i < r->rank->ops.count; i++) {
    const plan_op *o = &r->rank->ops.items[i];
    if (o->kind == OP_KERNEL && r->compiled.plan.calls.items[o->arg].kind == kind) return i;
  }
  fail_msg("no %s from op %u on", kernel_name(kind), from);
  return 0;
}

static uint32_t op_of_free(const run *r, uint32_t buffer, uint32_t from)
{
  for (uint32_t i = from; i < r->rank->ops.count; i++)
    if (r->rank->ops.items[i].kind == OP_FREE && r->rank->ops.items[i].arg == buffer) return i;
  fail_msg("%%%u lives on", buffer);
  return 0;
}

/* A layer's input that hooks brought back ends with the recomputation: what the layer's norm saves
 * is a copy in fp32. A reentrant checkpoint keeps it until its backward is done. */
static void test_inputs_that_came_back(void **state)
{
  (void)state;
  for (int reentrant = 0; reentrant < 2; reentrant++) {
    run r;
    begin(&r, reentrant ? "hidden_states_reentrant" : "hidden_states", "", "");
    uint32_t seen = 0;
    for (uint32_t i = 0; i < r.rank->ops.count; i++) {
      const plan_op *o = &r.rank->ops.items[i];
      if (o->kind != OP_H2D) continue;
      uint32_t freed = op_of_free(&r, r.rank->operands.items[o->operands + 1], i);
      /* The last layer's backward is the first of those that follow the copy, or the one after it
       * where the copy has been issued a layer ahead. */
      uint32_t backward = op_of_kernel(&r, KERNEL_ATTENTION_BACKWARD, i);
      if (reentrant && seen > 0)
        backward = op_of_kernel(&r, KERNEL_ATTENTION_BACKWARD, backward + 1);
      assert_int_equal(freed > backward, reentrant);
      seen++;
    }
    assert_int_equal(seen, reentrant ? LAYERS : LAYERS - 2);
    run_end(&r);
  }
}

/* ---- a slow disk ---- */

static int64_t kernel_ps(const run *r, const rank_timeline *t, uint32_t from, uint32_t to)
{
  int64_t sum = 0;
  for (uint32_t i = from; i < to; i++)
    if (r->rank->ops.items[i].kind == OP_KERNEL) sum += op_taken_ps(t, i);
  return sum;
}

static uint32_t find_op(const run *r, op_kind kind, bool last)
{
  uint32_t found = UINT32_MAX;
  for (uint32_t i = 0; i < r->rank->ops.count; i++)
    if (r->rank->ops.items[i].kind == kind && (last || found == UINT32_MAX)) found = i;
  assert_int_not_equal(found, UINT32_MAX);
  return found;
}

/* All files are written one after the other, then read likewise; what comes before the first and
 * after the last is all that computes without them. */
static void test_closed_form_of_a_slow_disk(void **state)
{
  (void)state;
  run r;
  begin(&r, "axolotl_disk", "", "");
  timeline t;
  diag d = { 0 };
  rank_place place = { .host = 0, .gpu = 0, .multiplicity = 2 };
  machine *m = ideal_machine(&r.memory);
  m->disk.write_bytes_per_us = 200; /* of two replicas */
  m->disk.read_bytes_per_us = 400;
  m->link.pageable_h2d_bytes_per_us = 25000;
  assert_true(simulate(&t, &r.compiled.plan, m, &place, &d));
  int64_t out_ps = INPUT_BYTES * PS_PER_US / 50000, back_ps = INPUT_BYTES * PS_PER_US / 25000;
  int64_t write_ps = INPUT_BYTES * PS_PER_US / 100, read_ps = INPUT_BYTES * PS_PER_US / 200;
  int64_t before = kernel_ps(&r, &t.ranks[0], 0, find_op(&r, OP_D2H, false));
  int64_t after = kernel_ps(&r, &t.ranks[0], find_op(&r, OP_H2D, true), r.rank->ops.count);
  assert_int_equal(t.step_ps, before + out_ps + LAYERS * (write_ps + read_ps) + back_ps + after);
  timeline_release(&t);
  run_end(&r);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_traffic),
    cmocka_unit_test(test_kept_operators_do_not_run_again),
    cmocka_unit_test(test_kept_outputs_at_the_turn),
    cmocka_unit_test(test_kept_products_at_the_turn),
    cmocka_unit_test(test_kept_activations_at_the_turn),
    cmocka_unit_test(test_inputs_that_came_back),
    cmocka_unit_test(test_closed_form_of_a_slow_disk),
  };

  return cmocka_run_group_tests(tests, NULL, NULL);
}
