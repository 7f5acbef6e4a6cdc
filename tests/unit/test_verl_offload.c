/*
 * verl's activation offload on plans of a small model of eager PyTorch: closed forms of its times
 * on the machine `ideal`, to the picosecond; what moves, how often, and from whose memory it comes
 * back.
 *
 * With L equal layers, forward and backward times Tf and Tb of a layer, and a copy of C each way:
 * forward Tf + (L - 1) max(Tf, C + G), backward (L - 1) max(Tb, C) + Tb, where G is the gathering
 * of strided views before they leave.
 */
#include "tests/unit/layer_times.h"

#include "sim/base/units.h"
#include "sim/offload/systems.h"

enum { TOKENS = 2048, HIDDEN = 512 };

/* On one GPU FSDP keeps parameters whole. */
#define SMALL_HF                                                                                   \
  "model: {implementation: hf, num_layers: 6, hidden_size: 512, ffn_hidden_size: 1024,\n"          \
  "  num_attention_heads: 4, normalization: RMSNorm, swiglu: true, position_embedding_type: "      \
  "rope,\n"                                                                                        \
  "  add_bias_linear: false, hidden_dropout: 0.0, attention_dropout: 0.0,\n"                       \
  "  untie_embeddings_and_output_weights: true, vocab_size: 1024}\n"                               \
  "parallel: {fsdp: fsdp}\n"                                                                       \
  "training: {micro_batch_size: 1, global_batch_size: 1, seq_length: 2048, bf16: true}\n"          \
  "machine: {name: ideal}\n"

#define RECOMPUTE                                                                                  \
  "recompute: {recompute_granularity: full, recompute_method: uniform, recompute_num_layers: 1}\n"

/* ---- times ---- */

static int64_t copied_bytes(const run *r, op_kind kind)
{
  int64_t bytes = 0;
  for (uint32_t i = 0; i < r->rank->ops.count; i++) {
    const plan_op *o = &r->rank->ops.items[i];
    if (o->kind == (uint8_t)kind)
      bytes +=
          r->rank->buffers.items[r->rank->operands.items[o->operands + (kind == OP_D2H)]].bytes;
  }
  return bytes;
}

/* Rates at which a byte takes a whole number of picoseconds, from copy-bound to compute-bound. */
static const int64_t rates[] = { 100, 1000, 10000, 50000, 100000, 250000, 1000000 };

static void check_closed_form(const char *changes)
{
  run r;
  bool bound_by_copies = false, bound_by_compute = false;
  run_begin(&r, SMALL_HF, changes, ITERATION_STEADY);
  for (size_t k = 0; k < sizeof rates / sizeof rates[0]; k++) {
    passes p = time_at(&r, rates[k], &r.memory);
    int64_t copy_ps = copied_bytes(&r, OP_D2H) / (LAYERS - 1) * (PS_PER_US / rates[k]);
    int64_t gather_ps = p.gather_ps / (LAYERS - 1);
    int64_t forward_ps = p.layer_ps[FORWARD][0], backward_ps = p.layer_ps[BACKWARD][0];
    assert_int_equal(p.end_ps[FORWARD] - p.begin_ps[FORWARD],
                     forward_ps + (LAYERS - 1) * max_i64(forward_ps, copy_ps + gather_ps));
    assert_int_equal(p.end_ps[BACKWARD] - p.begin_ps[BACKWARD],
                     (LAYERS - 1) * max_i64(backward_ps, copy_ps) + backward_ps);
    bound_by_copies = bound_by_copies || copy_ps > backward_ps;
    bound_by_compute = bound_by_compute || copy_ps < forward_ps;
  }
  assert_true(bound_by_copies && bound_by_compute);
  run_end(&r);
}

static void test_closed_form(void **state)
{
  (void)state;
  check_closed_form("offload: {system: verl}\n");
}

static void test_closed_form_with_checkpoints(void **state)
{
  (void)state;
  check_closed_form("offload: {system: verl}\n" RECOMPUTE);
}

/* ---- what moves ---- */

/* Entries that leave, as one for each storage and offset. */
static int64_t distinct_bytes(const chunk_shape *c, uint32_t group)
{
  const saved_group *g = &c->groups[group];
  int64_t bytes = 0;
  for (uint32_t e = g->first_entry; e < g->first_entry + g->entry_count; e++) {
    const saved_entry *entry = &c->entries[e];
    bool again = false;
    for (uint32_t k = g->first_entry; k < e; k++)
      again = again || (c->entries[k].slot == entry->slot &&
                        c->entries[k].offset_elements == entry->offset_elements);
    if (!entry->parameter && !entry->of_parameter && !again) bytes += entry->bytes;
  }
  return bytes;
}

static void test_every_layer_but_the_last_moves_once(void **state)
{
  (void)state;
  run r;
  for (int iteration = ITERATION_WARMUP; iteration <= ITERATION_STEADY; iteration++) {
    run_begin(&r, SMALL_HF, "offload: {system: verl}\n", (iteration_kind)iteration);
    const chunk_shape *c = &r.compiled.shapes[0].chunks[0];
    assert_int_equal(c->group_count, LAYERS + 1);
    int64_t bytes = 0;
    for (uint32_t group = 1; group < LAYERS; group++)
      bytes += distinct_bytes(c, group);
    assert_true(bytes > 0);
    assert_int_equal(copied_bytes(&r, OP_D2H), bytes);
    assert_int_equal(copied_bytes(&r, OP_H2D), bytes);
    run_end(&r);
  }
}

/* A checkpoint's inputs: hidden states alone; the tables come as a pair, which is no tensor. */
static void test_checkpoints_move_their_inputs(void **state)
{
  (void)state;
  run r;
  run_begin(&r, SMALL_HF, "offload: {system: verl}\n" RECOMPUTE, ITERATION_STEADY);
  int64_t hidden = (int64_t)TOKENS * HIDDEN * 2;
  assert_int_equal(copied_bytes(&r, OP_D2H), (LAYERS - 1) * hidden);
  assert_int_equal(theoretical_saving_bytes(&r.compiled.shapes[0], &r.memory),
                   (LAYERS - 1) * hidden);
  run_end(&r);
}

/* From the copying stream's memory, without record_stream. */
static void test_where_reloads_come_from(void **state)
{
  (void)state;
  run r;
  uint32_t reloads = 0;
  run_begin(&r, SMALL_HF, "offload: {system: verl}\n", ITERATION_STEADY);
  for (uint32_t i = 0; i < r.rank->ops.count; i++) {
    const plan_op *o = &r.rank->ops.items[i];
    if (o->kind != OP_ALLOC && o->kind != OP_FREE) continue;
    const plan_buffer *b = &r.rank->buffers.items[o->arg];
    if (b->purpose != CLASS_RELOAD) continue;
    reloads += o->kind == OP_ALLOC;
    assert_int_equal(b->stream, STREAM_H2D);
    if (o->kind == OP_FREE) assert_int_equal(o->operands, 0);
  }
  assert_true(reloads > 0);
  run_end(&r);
}

int main(void)
{
  static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_closed_form),
    cmocka_unit_test(test_closed_form_with_checkpoints),
    cmocka_unit_test(test_every_layer_but_the_last_moves_once),
    cmocka_unit_test(test_checkpoints_move_their_inputs),
    cmocka_unit_test(test_where_reloads_come_from),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
