/*
 * Axolotl's layer offloading on plans of a small adapted model: the order of copies and waits,
 * traffic, residency and memory.
 *
 * An order as text: F, B  a pass begins D2 layer 2's weights leave H2 they begin to
 * come back on the transfer stream    L2  they come back on the compute stream    w  compute waits
 * for the transfer stream    2  kernels of layer 2
 */
#include "tests/unit/small_runs.h"

#include <stdio.h>

#include "sim/engine/replay.h"

enum { LAYERS = 4, LOG_BYTES = 1024 };

/* Of SMALL_DENSE in bf16: four projections of attention, three of the MLP, two norms. */
static const int64_t layer_bytes = 2 * (4 * 1024 * 1024 + 3 * 1024 * 4096 + 2 * 1024);

static void begin(run *r, const char *more, iteration_kind iteration)
{
  char changes[1024];
  snprintf(changes, sizeof changes, "model: {implementation: hf, num_layers: %d}\n%s%s", LAYERS,
           more, strstr(more, "lora:") != NULL ? "" : "lora: {adapter: lora}\n");
  run_begin(r, SMALL_DENSE, changes, iteration);
}

#define OFFLOADED "offload: {system: layer_offloading}\n"
#define RECOMPUTED                                                                                 \
  "recompute: {recompute_granularity: full, recompute_method: uniform, recompute_num_layers: 1}\n"
#define REENTRANT                                                                                  \
  "recompute: {recompute_granularity: full, recompute_method: uniform, recompute_num_layers: 1,\n" \
  "  use_reentrant: true}\n"

/* ---- the order ---- */

typedef struct order {
  char text[LOG_BYTES], last[16];
  size_t used;
} order;

/* A layer's parameters move one by one: the same word again says nothing new. */
static void say(order *o, const char *letter, int32_t layer)
{
  char word[16];
  snprintf(word, sizeof word, layer < 0 ? "%s" : "%s%d", letter, layer);
  if (strcmp(word, o->last) == 0 && strcmp(word, "w") != 0) return;
  strcpy(o->last, word);
  o->used +=
      (size_t)snprintf(o->text + o->used, LOG_BYTES - o->used, "%s%s", o->used ? " " : "", word);
  assert_true(o->used < LOG_BYTES);
}

static int32_t layer_at(const run *r, uint32_t site)
{
  return r->plan->sites.items[site].layer;
}

/* By event: its stream. */
static const uint8_t *streams_of_events(run *r)
{
  uint8_t *streams = ARENA_ARRAY(&r->memory, uint8_t, r->rank->events + 1);
  for (uint32_t i = 0; i < r->rank->ops.count; i++)
    if (r->rank->ops.items[i].kind == OP_RECORD)
      streams[r->rank->ops.items[i].arg] = r->rank->ops.items[i].stream;
  return streams;
}

static void say_op(order *o, const run *r, const plan_op *op, const uint8_t *streams)
{
  int32_t layer = layer_at(r, op->site);
  if (op->kind == OP_MARK && r->rank->marks.items[op->arg].kind == MARK_FORWARD)
    say(o, "F", -1);
  else if (op->kind == OP_MARK && r->rank->marks.items[op->arg].kind == MARK_BACKWARD)
    say(o, "B", -1);
  else if (op->kind == OP_D2H)
    say(o, "D", layer);
  else if (op->kind == OP_H2D)
    say(o, op->stream == STREAM_COMPUTE ? "L" : "H", layer);
  else if (op->kind == OP_WAIT && op->stream == STREAM_COMPUTE && streams[op->arg] == STREAM_H2D)
    say(o, "w", -1);
  else if (op->kind == OP_KERNEL && op->stream == STREAM_COMPUTE && layer >= 0)
    say(o, "", layer);
}

static void check_order(const char *more, iteration_kind iteration, const char *expected)
{
  run r;
  order o = { .used = 0 };
  begin(&r, more, iteration);
  const uint8_t *streams = streams_of_events(&r);
  for (uint32_t i = 0; i < r.rank->ops.count; i++)
    say_op(&o, &r, &r.rank->ops.items[i], streams);
  assert_string_equal(o.text, expected);
  run_end(&r);
}

#define FORWARD "w H1 0 w H2 1 D0 w H3 2 D1 w 3 D2 D3 "

static void test_order(void **state)
{
  (void)state;
  check_order(OFFLOADED, ITERATION_STEADY,
              "F w D0 H0 " FORWARD "B L3 w H2 3 w H1 2 D3 w H0 1 D2 w 0 D1 D0 H0");
  check_order(OFFLOADED, ITERATION_WARMUP,
              "D0 D1 D2 D3 F w H0 " FORWARD "B L3 w H2 3 w H1 2 D3 w H0 1 D2 w 0 D1 D0 H0");
}

/* As released a step does not wait for the layer that it pushes out. */
static void test_order_as_released(void **state)
{
  (void)state;
  check_order("offload: {system: layer_offloading, mode: as_released}\n", ITERATION_STEADY,
              "F D0 H0 " FORWARD "B L3 w H2 3 w H1 2 D3 w H0 1 D2 w 0 D1 D0 H0");
}

/* The recomputation's hooks wait once more, for the layer that was just asked for. */
static void test_order_with_checkpoints(void **state)
{
  (void)state;
  check_order(OFFLOADED RECOMPUTED, ITERATION_STEADY,
              "F w D0 H0 " FORWARD "B L3 w H2 w 3 w H1 w 2 D3 w H0 w 1 D2 w w 0 D1 D0 H0");
}

/* A reentrant checkpoint's recomputation comes before the hooks of backward, and ends: the last
 * layer is pushed out and loaded again. */
static void test_order_with_reentrant_checkpoints(void **state)
{
  (void)state;
  check_order(OFFLOADED REENTRANT, ITERATION_STEADY,
              "F w D0 H0 " FORWARD
              "B L3 w 3 D3 L3 w H2 3 w 2 w H1 2 D3 w 1 w H0 1 D2 w 0 w 0 D1 D0 H0");
}

/* Each micro-batch is a separate training step. */
static void test_micro_batches(void **state)
{
  (void)state;
  check_order("training: {global_batch_size: 2}\n" OFFLOADED, ITERATION_STEADY,
              "F w D0 H0 " FORWARD "B L3 w H2 3 w H1 2 D3 w H0 1 D2 w 0 D1 D0 H0 "
              "F w D0 H0 " FORWARD "B L3 w H2 3 w H1 2 D3 w H0 1 D2 w 0 D1 D0 H0");
}

/* ---- traffic and residency ---- */

static int64_t copied(const run *r, op_kind kind)
{
  int64_t bytes = 0;
  for (uint32_t i = 0; i < r->rank->ops.count; i++) {
    const plan_op *o = &r->rank->ops.items[i];
    if (o->kind == kind)
      bytes += r->rank->buffers.items[r->rank->operands.items[o->operands]].bytes;
  }
  return bytes;
}

static void test_traffic(void **state)
{
  (void)state;
  static const char *const settings_texts[] = { OFFLOADED, OFFLOADED RECOMPUTED };
  for (int i = 0; i < 2; i++) {
    run r;
    begin(&r, settings_texts[i], ITERATION_STEADY);
    assert_int_equal(copied(&r, OP_D2H), (2 * LAYERS + 1) * layer_bytes);
    assert_int_equal(copied(&r, OP_H2D), (2 * LAYERS + 1) * layer_bytes);
    run_end(&r);
  }
}

static bool is_frozen_weight(const run *r, const plan_buffer *b)
{
  const plan_tensor *t = &r->plan->tensors.items[b->tensor];
  return b->purpose == CLASS_WEIGHT && layer_at(r, t->site) >= 0 &&
         strcmp(t->name, "weight") == 0 &&
         strstr(r->plan->sites.items[t->site].module, "lora") == NULL;
}

/* Most bytes of frozen layer weights on the device at once, from the first forward on. */
static int64_t resident_bytes(const run *r)
{
  int64_t now = 0, most = 0;
  bool begun = false;
  for (uint32_t i = 0; i < r->rank->residents; i++)
    if (is_frozen_weight(r, &r->rank->buffers.items[i])) now += r->rank->buffers.items[i].bytes;
  for (uint32_t i = 0; i < r->rank->ops.count; i++) {
    const plan_op *o = &r->rank->ops.items[i];
    begun = begun || (o->kind == OP_MARK && r->rank->marks.items[o->arg].kind == MARK_FORWARD);
    if ((o->kind != OP_ALLOC && o->kind != OP_FREE) ||
        !is_frozen_weight(r, &r->rank->buffers.items[o->arg]))
      continue;
    now += (o->kind == OP_ALLOC ? 1 : -1) * r->rank->buffers.items[o->arg].bytes;
    if (begun && now > most) most = now;
  }
  return most;
}

/* Without checkpoints each linear's saved view keeps the block of the forward until backward. */
static void test_residency(void **state)
{
  (void)state;
  run r;
  for (int i = 0; i < 2; i++) {
    begin(&r, i == 0 ? OFFLOADED RECOMPUTED : OFFLOADED REENTRANT, ITERATION_STEADY);
    assert_int_equal(resident_bytes(&r), 3 * layer_bytes);
    run_end(&r);
  }
  begin(&r, OFFLOADED, ITERATION_STEADY);
  assert_true(resident_bytes(&r) > LAYERS * layer_bytes);
  run_end(&r);
}

/* ---- memory ---- */

/* Of the second steady iteration. */
static replay_result memory_of(const char *more)
{
  static const iteration_kind kinds[] = { ITERATION_WARMUP, ITERATION_STEADY, ITERATION_STEADY };
  arena a = { 0 };
  replay_options options = { .capacity_bytes = INT64_MAX, .expandable_segments = true };
  replay *all = replay_new(&options, &a);
  replay_result result = { 0 };
  int64_t end_bytes = 0;
  for (int i = 0; i < 3; i++) {
    run r;
    begin(&r, more, kinds[i]);
    result = replay_iteration(all, r.rank, NULL);
    if (i == 2) assert_int_equal(result.allocated_end_bytes, end_bytes);
    end_bytes = result.allocated_end_bytes;
    run_end(&r);
  }
  replay_release(all);
  arena_release(&a);
  return result;
}

/* As users observed (axolotl #3797): what is loaded falls to one layer, the peak of training
 * hardly; with checkpoints it does. */
static void test_memory(void **state)
{
  (void)state;
  replay_result keeps = memory_of("offload: {system: none}\n"), moves = memory_of(OFFLOADED);
  assert_int_equal(keeps.allocated_end_bytes - moves.allocated_end_bytes,
                   (LAYERS - 1) * layer_bytes);
  assert_true(moves.allocated_peak_bytes > keeps.allocated_peak_bytes - layer_bytes);

  keeps = memory_of("offload: {system: none}\n" RECOMPUTED);
  moves = memory_of(OFFLOADED RECOMPUTED);
  assert_true(moves.allocated_peak_bytes < keeps.allocated_peak_bytes);
  assert_true(moves.allocated_peak_bytes >=
              keeps.allocated_peak_bytes - (LAYERS - 1) * layer_bytes);
}

static int64_t host_bytes(const run *r)
{
  int64_t bytes = 0;
  for (uint32_t i = 0; i < r->rank->buffers.count; i++)
    if (r->rank->buffers.items[i].purpose == CLASS_PINNED_HOST)
      bytes += r->rank->buffers.items[i].bytes;
  return bytes;
}

/* Every frozen parameter of the layers has one, from the first iteration on. */
static void test_twins(void **state)
{
  (void)state;
  for (int i = ITERATION_WARMUP; i <= ITERATION_STEADY; i++) {
    run r;
    uint32_t taken = 0;
    begin(&r, OFFLOADED, (iteration_kind)i);
    assert_int_equal(host_bytes(&r), LAYERS * layer_bytes);
    for (uint32_t k = 0; k < r.rank->ops.count; k++) {
      assert_int_not_equal(r.rank->ops.items[k].kind, OP_HOST_FREE);
      taken += r.rank->ops.items[k].kind == OP_HOST_ALLOC;
    }
    assert_int_equal(taken > 0, i == ITERATION_WARMUP);
    run_end(&r);
  }
}

/* bitsandbytes' function keeps the weight, in checkpoints too unless they are reentrant: then
 * nothing of what has left is gone before its backward. */
static void test_quantised_weights_are_held(void **state)
{
  (void)state;
  static const char *const texts[] = { "", RECOMPUTED, REENTRANT };
  int64_t saved_bytes[3], packed_bytes = (4 * 1024 * 1024 + 3 * 1024 * 4096) / 2;
  for (int i = 0; i < 3; i++) {
    run r;
    char text[512];
    snprintf(text, sizeof text, "%slora: {adapter: qlora}\n%s", OFFLOADED, texts[i]);
    begin(&r, text, ITERATION_STEADY);
    saved_bytes[i] = resident_bytes(&r) - LAYERS * packed_bytes;
    run_end(&r);
  }
  assert_true(saved_bytes[0] > 0 && saved_bytes[1] > 0);
  assert_true(saved_bytes[2] < 0);
}

/* Of a weight in 4 bits only the packed values are a parameter: their scales stay on the device. */
static void test_quantised_weights(void **state)
{
  (void)state;
  run r;
  int64_t packed_bytes = (4 * 1024 * 1024 + 3 * 1024 * 4096) / 2;
  begin(&r, OFFLOADED "lora: {adapter: qlora}\n", ITERATION_STEADY);
  int64_t norm_bytes = copied(&r, OP_D2H) / (2 * LAYERS + 1) - packed_bytes;
  assert_true(norm_bytes == 2 * 1024 * 2 || norm_bytes == 2 * 1024 * 4); /* bf16 or fp32 */
  run_end(&r);
}

int main(void)
{
  static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_order),
    cmocka_unit_test(test_order_as_released),
    cmocka_unit_test(test_order_with_checkpoints),
    cmocka_unit_test(test_order_with_reentrant_checkpoints),
    cmocka_unit_test(test_micro_batches),
    cmocka_unit_test(test_traffic),
    cmocka_unit_test(test_residency),
    cmocka_unit_test(test_memory),
    cmocka_unit_test(test_twins),
    cmocka_unit_test(test_quantised_weights),
    cmocka_unit_test(test_quantised_weights_are_held),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
