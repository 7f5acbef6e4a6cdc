/*
 * Transformer Engine's layer-level engines on plans of a real small model: closed forms of their
 * times on the machine `ideal`, to the picosecond; what moves, and what is on the device between
 * layers.
 *
 * With L equal layers, forward and backward times Tf and Tb of a layer, and a copy of C each way:
 *
 *   te_v1, N = L - 1   forward Tf + (L - 1) max(Tf, C), backward (L - 1) max(Tb, C) + Tb
 *   te_v2, N = L - 1   forward at most L Tf + (L - 1) C: a copy begins before its layer ends
 *   te_v2, N = L - 2   a copy can hide under one layer: L Tf where C <= Tf
 */
#include "tests/unit/layer_times.h"

#include <stdio.h>

#include "sim/base/units.h"
#include "sim/offload/systems.h"

static void begin_run(run *r, const char *offload, iteration_kind iteration)
{
  char changes[256];
  snprintf(changes, sizeof changes, "model: {num_layers: %d}\noffload: {%s}\n", LAYERS, offload);
  run_begin(r, SMALL_DENSE, changes, iteration);
}

/* ---- times ---------------------------------------------------------------------------------- */

static int64_t layer_bytes(const run *r)
{
  int64_t bytes = 0;
  for (uint32_t i = 0; i < r->rank->ops.count; i++) {
    const plan_op *o = &r->rank->ops.items[i];
    if (o->kind == OP_D2H && layer_of(r, o) == 1)
      bytes += r->rank->buffers.items[r->rank->operands.items[o->operands + 1]].bytes;
  }
  return bytes;
}

static int64_t length(const passes *p, int pass)
{
  return p->end_ps[pass] - p->begin_ps[pass];
}

/* Rates at which a byte takes a whole number of picoseconds, from copy-bound to compute-bound. */
static const int64_t rates[] = { 100, 1000, 10000, 50000, 100000, 250000, 1000000 };

enum { RATES = sizeof rates / sizeof rates[0] };

static void test_closed_form_of_te_v1(void **state)
{
  (void)state;
  static const char *const engines[] = {
    "system: te_v1, cpu_offloading_num_layers: 5",
    "system: te_v1, cpu_offloading_num_layers: 5, cpu_offloading_double_buffering: true"
  };
  for (int e = 0; e < 2; e++) {
    run r;
    bool bound_by_copies = false, bound_by_compute = false;
    begin_run(&r, engines[e], ITERATION_STEADY);
    for (int k = 0; k < RATES; k++) {
      passes p = time_at(&r, rates[k], &r.memory);
      int64_t copy_ps = layer_bytes(&r) * (PS_PER_US / rates[k]);
      int64_t forward_ps = p.layer_ps[FORWARD][0], backward_ps = p.layer_ps[BACKWARD][0];
      assert_int_equal(length(&p, FORWARD),
                       forward_ps + (LAYERS - 1) * max_i64(forward_ps, copy_ps));
      assert_int_equal(length(&p, BACKWARD),
                       (LAYERS - 1) * max_i64(backward_ps, copy_ps) + backward_ps);
      bound_by_copies = bound_by_copies || copy_ps > backward_ps;
      bound_by_compute = bound_by_compute || copy_ps < forward_ps;
    }
    assert_true(bound_by_copies && bound_by_compute);
    run_end(&r);
  }
}

static void test_bounds_of_te_v2(void **state)
{
  (void)state;
  run all_but_one, all_but_two;
  begin_run(&all_but_one, "system: te_v2, cpu_offloading_num_layers: 5", ITERATION_STEADY);
  begin_run(&all_but_two, "system: te_v2, cpu_offloading_num_layers: 4", ITERATION_STEADY);
  for (int k = 0; k < RATES; k++) {
    int64_t copy_ps = layer_bytes(&all_but_one) * (PS_PER_US / rates[k]);
    passes p = time_at(&all_but_one, rates[k], &all_but_one.memory);
    int64_t forward_ps = p.layer_ps[FORWARD][0];
    assert_true(length(&p, FORWARD) < LAYERS * forward_ps + (LAYERS - 1) * copy_ps);
    assert_true(length(&p, FORWARD) >= max_i64(LAYERS * forward_ps, (LAYERS - 1) * copy_ps));
    p = time_at(&all_but_two, rates[k], &all_but_two.memory);
    if (copy_ps <= forward_ps) assert_int_equal(length(&p, FORWARD), LAYERS * forward_ps);
  }
  run_end(&all_but_one);
  run_end(&all_but_two);
}

/* ---- what moves ----------------------------------------------------------------------------- */

typedef struct traffic {
  int64_t out_bytes, back_bytes;
  uint32_t host_taken, host_given;
} traffic;

static traffic traffic_of(const run *r)
{
  traffic t = { 0 };
  for (uint32_t i = 0; i < r->rank->ops.count; i++) {
    const plan_op *o = &r->rank->ops.items[i];
    const uint32_t *operand = &r->rank->operands.items[o->operands];
    if (o->kind == OP_D2H)
      t.out_bytes += r->rank->buffers.items[operand[1]].bytes;
    else if (o->kind == OP_H2D)
      t.back_bytes += r->rank->buffers.items[operand[0]].bytes;
    t.host_taken += o->kind == OP_HOST_ALLOC;
    t.host_given += o->kind == OP_HOST_FREE;
  }
  return t;
}

static void check_traffic(const char *offload, int64_t expected_bytes)
{
  for (int iteration = ITERATION_WARMUP; iteration <= ITERATION_STEADY; iteration++) {
    run r;
    begin_run(&r, offload, (iteration_kind)iteration);
    traffic t = traffic_of(&r);
    assert_int_equal(t.out_bytes, expected_bytes);
    assert_int_equal(t.back_bytes, expected_bytes);
    assert_int_equal(t.host_taken, t.host_given);
    run_end(&r);
  }
}

/*
 * What a layer of SMALL_DENSE saves, in units of 4096 tokens x 1024 x 2 bytes: the input and the
 * normed rows of both norm-linears (4), query, key, value and output of attention (4), the
 * projection's input (a view of the output, 1), fc1's output (8), fc2's input (4). Beside, 4096 x 4
 * bytes each: 1/rms of both norms, log-sum-exp for 8 heads, and attention's 16 bytes of random
 * state.
 */
enum { UNIT = 4096 * 1024 * 2, ROW = 4096 * 4 };

static void test_traffic(void **state)
{
  (void)state;
  int64_t v1_bytes = 21 * (int64_t)UNIT + (2 + 8) * ROW + 16;
  int64_t v2_bytes = 20 * (int64_t)UNIT; /* the projection's input is attention's output */
  check_traffic("system: te_v1, cpu_offloading_num_layers: 3", 3 * v1_bytes);
  check_traffic(
      "system: te_v1, cpu_offloading_num_layers: 3, cpu_offloading_double_buffering: true",
      3 * v1_bytes);
  check_traffic("system: te_v2, cpu_offloading_num_layers: 3", 3 * v2_bytes);
}

/* The second engine copies the storage that projection's input and attention's output share
 * once. */
static void test_saving_is_whole_storages(void **state)
{
  (void)state;
  run r;
  begin_run(&r, "system: te_v2, cpu_offloading_num_layers: 3", ITERATION_STEADY);
  assert_int_equal(theoretical_saving_bytes(&r.compiled.shapes[0], &r.memory),
                   3 * 20 * (int64_t)UNIT);
  run_end(&r);
}

/* ---- what is on the device ------------------------------------------------------------------ */

/* Bytes taken at the first kernel of each layer in forward, relative to layer 0's. */
static void read_boundaries(const run *r, int64_t bytes[LAYERS])
{
  int64_t now = 0, first = 0;
  int32_t last = OUTSIDE;
  for (uint32_t i = 0; i < r->rank->ops.count && last < LAYERS - 1; i++) {
    const plan_op *o = &r->rank->ops.items[i];
    if (o->kind == OP_ALLOC || o->kind == OP_FREE)
      now += (o->kind == OP_ALLOC ? 1 : -1) * r->rank->buffers.items[o->arg].bytes;
    if (o->kind != OP_KERNEL || o->stream != STREAM_COMPUTE || layer_of(r, o) <= last) continue;
    last = layer_of(r, o);
    if (last == 0) first = now;
    bytes[last] = now - first;
  }
}

/* Memory grows by a layer with each layer, until the first is released; then it stays level. */
static void check_level(const char *engine, int offloaded, int level_from)
{
  run with, without;
  int64_t kept[LAYERS], all[LAYERS];
  char offload[128];
  snprintf(offload, sizeof offload, "system: %s, cpu_offloading_num_layers: %d", engine, offloaded);
  begin_run(&with, offload, ITERATION_STEADY);
  begin_run(&without, "system: none", ITERATION_STEADY);
  read_boundaries(&with, kept);
  read_boundaries(&without, all);
  for (int layer = 0; layer < level_from; layer++)
    assert_int_equal(kept[layer], all[layer]);
  /* What does not leave, in te_v2 the small tensors, adds up; the embedding's output has one more
   * reference, so layer 0's goes on counting. */
  for (int layer = level_from; layer + 1 < LAYERS; layer++)
    assert_true(kept[layer + 1] - kept[layer] < UNIT);
  run_end(&with);
  run_end(&without);
}

static void test_memory_between_layers(void **state)
{
  (void)state;
  for (int offloaded = 1; offloaded < LAYERS; offloaded++)
    check_level("te_v2", offloaded, LAYERS - offloaded);
  check_level("te_v1", LAYERS - 1, 2);
}

static int64_t reload_residents(const run *r)
{
  int64_t bytes = 0;
  for (uint32_t i = 0; i < r->rank->residents; i++)
    if (r->rank->buffers.items[i].purpose == CLASS_RELOAD) bytes += r->rank->buffers.items[i].bytes;
  return bytes;
}

/* Two sets, each as large as a layer, from the first iteration on. */
static void test_persistent_buffers(void **state)
{
  (void)state;
  run r;
  begin_run(&r,
            "system: te_v1, cpu_offloading_num_layers: 5, cpu_offloading_double_buffering: true",
            ITERATION_STEADY);
  assert_int_equal(reload_residents(&r), 2 * layer_bytes(&r));
  run_end(&r);
  begin_run(&r, "system: te_v1, cpu_offloading_num_layers: 5", ITERATION_STEADY);
  assert_int_equal(reload_residents(&r), 0);
  run_end(&r);
}

/* ---- the manual mode ------------------------------------------------------------------------ */

#define MANUAL "system: te_v2, cpu_offloading_manual_synchronization: true, "

static void test_manual_traffic(void **state)
{
  (void)state;
  check_traffic(MANUAL "cpu_offloading_layers: [0, 5]", 2 * 20 * (int64_t)UNIT);
  check_traffic(MANUAL "cpu_offloading_layers: [1, 2, 3], cpu_offloading_stream: compute",
                3 * 20 * (int64_t)UNIT);
}

/* Of a layer that stays, large saved tensors that die between the kernels of its backward. */
static uint32_t early_ends(const char *offload)
{
  run r;
  uint32_t ends = 0, pending = 0;
  bool backward = false, begun = false;
  begin_run(&r, offload, ITERATION_STEADY);
  for (uint32_t i = 0; i < r.rank->ops.count; i++) {
    const plan_op *o = &r.rank->ops.items[i];
    if (o->kind == OP_MARK) backward = r.rank->marks.items[o->arg].kind == MARK_BACKWARD;
    if (o->kind == OP_FREE && begun) {
      const plan_buffer *b = &r.rank->buffers.items[o->arg];
      int32_t layer = r.plan->sites.items[r.plan->tensors.items[b->tensor].site].layer;
      pending += b->purpose == CLASS_SAVED && b->bytes >= UNIT && layer == 3;
    }
    if (o->kind != OP_KERNEL || !backward || layer_of(&r, o) != 3) continue;
    begun = true;
    ends += pending;
    pending = 0;
  }
  run_end(&r);
  return ends;
}

/* The engine gets what every layer saves, and drops it at the end of the layer. */
static void test_manual_mode_holds_what_stays(void **state)
{
  (void)state;
  assert_true(early_ends("system: te_v2, cpu_offloading_num_layers: 1") > 0);
  assert_int_equal(early_ends(MANUAL "cpu_offloading_layers: [0]"), 0);
}

/* The buffers of the first pass serve all later ones; what is copied is the same. */
static void test_retained_host_buffers(void **state)
{
  (void)state;
  arena a = { 0 };
  replay_options options = { .capacity_bytes = INT64_MAX, .expandable_segments = true };
  replay *memory = replay_new(&options, &a);
  for (int iteration = ITERATION_WARMUP; iteration <= ITERATION_STEADY; iteration++) {
    run r;
    begin_run(&r,
              "system: te_v2, cpu_offloading_num_layers: 3, "
              "cpu_offloading_retain_pinned_cpu_buffers: true}\n"
              "training: {global_batch_size: 2",
              (iteration_kind)iteration);
    traffic t = traffic_of(&r);
    uint32_t copies = 0;
    for (uint32_t i = 0; i < r.rank->ops.count; i++)
      copies += r.rank->ops.items[i].kind == OP_D2H;
    assert_int_equal(t.out_bytes, 2 * 3 * 20 * (int64_t)UNIT);
    assert_int_equal(t.host_taken, iteration == ITERATION_WARMUP ? copies / 2 : 0);
    assert_int_equal(t.host_given, 0);
    replay_iteration(memory, r.rank, NULL);
    run_end(&r);
  }
  replay_release(memory);
  arena_release(&a);
}

static void test_layers_must_be_alike_for_persistent_buffers(void **state)
{
  (void)state;
  arena a = { 0 };
  diag d = { .quiet = true };
  compilation c;
  const settings *s = small_settings(SMALL_MOE,
                                     "model: {num_layers: 3, moe_layer_freq: '[0,1,1]'}\n"
                                     "offload: {system: te_v1, cpu_offloading_num_layers: 2, "
                                     "cpu_offloading_double_buffering: true}",
                                     &a);
  assert_false(compile(&c, s, ITERATION_WARMUP, &a, &d));
  assert_non_null(strstr(d.message,
                         "cpu_offloading_double_buffering needs layers that save the same "
                         "shapes; layer 1 does not save what layer 0 saves"));
  compilation_release(&c);
  arena_release(&a);
}

int main(void)
{
  static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_closed_form_of_te_v1),
    cmocka_unit_test(test_bounds_of_te_v2),
    cmocka_unit_test(test_traffic),
    cmocka_unit_test(test_saving_is_whole_storages),
    cmocka_unit_test(test_memory_between_layers),
    cmocka_unit_test(test_persistent_buffers),
    cmocka_unit_test(test_layers_must_be_alike_for_persistent_buffers),
    cmocka_unit_test(test_manual_traffic),
    cmocka_unit_test(test_manual_mode_holds_what_stays),
    cmocka_unit_test(test_retained_host_buffers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
