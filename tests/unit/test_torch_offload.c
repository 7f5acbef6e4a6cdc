/*
 * Hooks for every saved tensor, on plans of a real small model of Hugging Face transformers.
 *
 * Without a copying stream (trl_sync, save_on_cpu) the closed form on the machine `ideal` holds to
 * the picosecond: each byte that leaves adds the link's time to forward and again to backward, in
 * addition to the kernels that gather views. With it (trl), a step takes as long as its copies at
 * least. What is on the device at the turn is what the rules alone say.
 */
#include "tests/unit/small_runs.h"

#include <stdio.h>

#include "sim/base/units.h"
#include "sim/engine/engine.h"
#include "sim/offload/systems.h"
#include "tests/unit/small_plan.h"

enum { FORWARD, BACKWARD, PASSES };

static void begin(run *r, const char *offload, const char *more, iteration_kind iteration)
{
  char changes[512];
  snprintf(changes, sizeof changes, "offload: {%s}\n%s", offload, more);
  run_begin(r, SMALL_EAGER, changes, iteration);
}

static int64_t bytes_of(const run *r, const plan_op *o, uint32_t operand)
{
  return r->rank->buffers.items[r->rank->operands.items[o->operands + operand]].bytes;
}

static bool begins(const run *r, const plan_op *o, mark_kind kind)
{
  return o->kind == OP_MARK && r->rank->marks.items[o->arg].kind == kind;
}

/* ---- what moves ---- */

typedef struct traffic {
  int64_t bytes[PASSES];
  uint32_t copies[PASSES];
} traffic;

static traffic traffic_of(const run *r)
{
  traffic t = { 0 };
  for (uint32_t i = 0; i < r->rank->ops.count; i++) {
    const plan_op *o = &r->rank->ops.items[i];
    if (o->kind != OP_D2H && o->kind != OP_H2D) continue;
    t.bytes[o->kind == OP_H2D] += bytes_of(r, o, o->kind == OP_D2H);
    t.copies[o->kind == OP_H2D]++;
  }
  return t;
}

/* ---- times ---- */

typedef struct passes {
  int64_t end_ps[PASSES];     /* of compute */
  int64_t kernels_ps[PASSES]; /* on any stream */
} passes;

static passes time_at(const run *r, int64_t bytes_per_us, arena *a)
{
  timeline t;
  diag d = { 0 };
  rank_place place = { .host = 0, .gpu = 0, .multiplicity = 1 };
  machine *m = ideal_machine(a);
  passes p = { 0 };
  int pass = FORWARD;
  m->link.d2h_bytes_per_us = m->link.h2d_bytes_per_us = bytes_per_us;
  assert_true(simulate(&t, &r->compiled.plan, m, &place, &d));
  for (uint32_t i = 0; i < r->rank->ops.count; i++) {
    const plan_op *o = &r->rank->ops.items[i];
    if (begins(r, o, MARK_BACKWARD)) pass = BACKWARD;
    if (begins(r, o, MARK_FINISH) || begins(r, o, MARK_OPTIMIZER)) break;
    if (o->kind == OP_KERNEL) p.kernels_ps[pass] += op_taken_ps(&t.ranks[0], i);
    if (o->stream == STREAM_COMPUTE && o->kind != OP_ALLOC && o->kind != OP_FREE)
      p.end_ps[pass] = op_end_ps(&t.ranks[0], i);
  }
  p.end_ps[BACKWARD] -= p.end_ps[FORWARD];
  timeline_release(&t);
  return p;
}

/* Rates at which a byte takes a whole number of picoseconds. */
static const int64_t rates[] = { 1000, 10000, 50000, 250000 };

enum { RATES = sizeof rates / sizeof rates[0] };

static void check_closed_form(const char *offload)
{
  run r;
  begin(&r, offload, "", ITERATION_STEADY);
  traffic t = traffic_of(&r);
  for (int k = 0; k < RATES; k++) {
    passes p = time_at(&r, rates[k], &r.memory);
    for (int pass = 0; pass < PASSES; pass++) {
      assert_true(t.bytes[pass] > 0);
      assert_int_equal(p.end_ps[pass], p.kernels_ps[pass] + t.bytes[pass] * (PS_PER_US / rates[k]));
    }
  }
  run_end(&r);
}

static void test_closed_form_without_the_stream(void **state)
{
  (void)state;
  check_closed_form("system: trl_sync");
  check_closed_form("system: trl_sync, trl_params_registered: false");
  check_closed_form("system: save_on_cpu");
}

static void test_bounds_with_the_stream(void **state)
{
  (void)state;
  run stream, none;
  begin(&stream, "system: trl", "", ITERATION_STEADY);
  begin(&none, "system: none", "", ITERATION_STEADY);
  traffic t = traffic_of(&stream);
  for (int k = 0; k < RATES; k++) {
    passes with = time_at(&stream, rates[k], &stream.memory);
    passes without = time_at(&none, rates[k], &none.memory);
    int64_t all_ps = with.end_ps[FORWARD] + with.end_ps[BACKWARD];
    int64_t copies_ps = (t.bytes[FORWARD] + t.bytes[BACKWARD]) * (PS_PER_US / rates[k]);
    int64_t kernels_ps = with.kernels_ps[FORWARD] + with.kernels_ps[BACKWARD];
    assert_true(all_ps >= copies_ps && all_ps <= kernels_ps + copies_ps);
    for (int pass = 0; pass < PASSES; pass++)
      assert_true(with.end_ps[pass] >= without.end_ps[pass]);
  }
  run_end(&stream);
  run_end(&none);
}

/* ---- what is on the device ---- */

static bool runs(const run *r, const plan_op *o, kernel_kind kind)
{
  return o->kind == OP_KERNEL && r->compiled.plan.calls.items[o->arg].kind == kind;
}

/* While the loss's backward runs, after its first operator. */
static int64_t bytes_at_turn(const run *r)
{
  int64_t now = 0;
  for (uint32_t i = 0; i < r->rank->ops.count; i++) {
    const plan_op *o = &r->rank->ops.items[i];
    if (runs(r, o, KERNEL_LOG_SOFTMAX_BACKWARD)) return now;
    if (o->kind == OP_ALLOC || o->kind == OP_FREE)
      now += (o->kind == OP_ALLOC ? 1 : -1) * r->rank->buffers.items[o->arg].bytes;
  }
  fail();
  return 0;
}

static void check_turn(const char *offload, const char *more)
{
  run with, none;
  begin(&with, offload, more, ITERATION_STEADY);
  begin(&none, "system: none", more, ITERATION_STEADY);
  int64_t saved = bytes_at_turn(&none) - bytes_at_turn(&with);
  int64_t theory = theoretical_saving_bytes(&with.compiled.shapes[0], &with.memory);
  if (saved != theory)
    print_error("%s: saves %lld, should save %lld\n", offload, (long long)saved, (long long)theory);
  assert_true(saved > 0);
  assert_int_equal(saved, theory);
  run_end(&with);
  run_end(&none);
}

static void test_turn(void **state)
{
  (void)state;
  static const char *const more[] = {
    "", "recompute: {recompute_granularity: full, recompute_method: uniform, "
        "recompute_num_layers: 1}\n"
  };
  for (size_t k = 0; k < 2; k++) {
    check_turn("system: trl_sync", more[k]);
    check_turn("system: save_on_cpu", more[k]);
    check_turn("system: trl", more[k]);
    check_turn("system: trl, mode: as_released", more[k]);
    check_turn("system: trl, max_fwd_stash_size: 1", more[k]);
    check_turn("system: trl, max_fwd_stash_size: 12", more[k]);
  }
}

static void test_everything_is_given_back(void **state)
{
  (void)state;
  static const char *const systems[] = { "system: trl", "system: trl_sync", "system: save_on_cpu",
                                         "system: trl, trl_params_registered: false" };
  for (size_t k = 0; k < sizeof systems / sizeof systems[0]; k++)
    for (int iteration = ITERATION_WARMUP; iteration <= ITERATION_STEADY; iteration++) {
      run r;
      int64_t host = 0;
      begin(&r, systems[k], "training: {global_batch_size: 2}\n", (iteration_kind)iteration);
      for (uint32_t i = 0; i < r.rank->ops.count; i++) {
        const plan_op *o = &r.rank->ops.items[i];
        host += (o->kind == OP_HOST_ALLOC) - (o->kind == OP_HOST_FREE);
      }
      assert_int_equal(host, 0);
      run_end(&r);
    }
}

int main(void)
{
  static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_closed_form_without_the_stream),
    cmocka_unit_test(test_bounds_with_the_stream),
    cmocka_unit_test(test_turn),
    cmocka_unit_test(test_everything_is_given_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
