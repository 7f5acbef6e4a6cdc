/*
 * Turns that the engine leaves out: all times and figures are those of the run in full, for drawn settings on
 * several machines.
 */
#include "tests/unit/small_runs.h"

#include <stdio.h>
#include <stdlib.h>

#include "sim/engine/engine.h"
#include "sim/predict/places.h"

static uint32_t seed;

/* A linear congruential generator: the same draws everywhere. */
static uint32_t draw(uint32_t below)
{
  seed = seed * 1664525 + 1013904223;
  return (seed >> 8) % below;
}

#define PICK(words) (words)[draw(sizeof(words) / sizeof *(words))]

/* Nobody has looked for repeats. */
static void forget_repeats(plan *p)
{
  for (uint32_t i = 0; i < p->rank_count; i++)
    p->ranks[i].repeat.turns = 0;
}

static void assert_same_rank(const rank_plan *r, const rank_timeline *full,
                             const rank_timeline *left_out)
{
  for (uint32_t i = 0; i < r->ops.count; i++) {
    assert_int_equal(op_start_ps(full, i), op_start_ps(left_out, i));
    assert_int_equal(op_end_ps(full, i), op_end_ps(left_out, i));
  }
  assert_int_equal(full->end_of_rank_ps, left_out->end_of_rank_ps);
  assert_int_equal(full->compute_busy_ps, left_out->compute_busy_ps);
  assert_int_equal(full->d2h_busy_ps, left_out->d2h_busy_ps);
  assert_int_equal(full->h2d_busy_ps, left_out->h2d_busy_ps);
  assert_int_equal(full->waiting_slows_ps, left_out->waiting_slows_ps);
  assert_int_equal(full->exposed_d2h_ps, left_out->exposed_d2h_ps);
  assert_int_equal(full->exposed_h2d_ps, left_out->exposed_h2d_ps);
  assert_int_equal(full->comm_wait_ps, left_out->comm_wait_ps);
}

/* Returns the turns left out. */
static uint32_t compare(plan *p, const machine *m, const rank_place *places, const hold_list *holds)
{
  diag d = { 0 };
  timeline full, left_out;
  assert_true(simulate_held(&left_out, p, m, places, holds, 3, &d));
  forget_repeats(p);
  assert_true(simulate_held(&full, p, m, places, holds, 1, &d));
  assert_int_equal(full.turns_left_out, 0);
  assert_int_equal(full.step_ps, left_out.step_ps);
  for (uint32_t i = 0; i < p->rank_count; i++)
    assert_same_rank(&p->ranks[i], &full.ranks[i], &left_out.ranks[i]);
  uint32_t turns = left_out.turns_left_out;
  timeline_release(&full);
  timeline_release(&left_out);
  return turns;
}

/* Every now and then a host thread waits for an op some way back, or makes calls of the driver. */
static hold_list draw_holds(const rank_plan *r)
{
  hold_list l = { 0 };
  uint32_t at = 0;
  for (uint32_t n = draw(4); n > 0; n--) {
    at += 1 + draw(r->ops.count / 4);
    while (at < r->ops.count && r->ops.items[at].kind != OP_ALLOC)
      at++;
    if (at >= r->ops.count) break;
    uint32_t until = at - 1 - draw(at);
    bool on_stream = op_runs_on_stream((op_kind)r->ops.items[until].kind);
    *ARRAY_PUSH(&l) = (host_hold){ .at = at,
                                   .until = on_stream ? until : HOLD_FOR_NOTHING,
                                   .driver_calls = 1 + draw(5) };
  }
  return l;
}

/* `alter`: NULL: the machine is as it was loaded. */
static uint32_t check(const char *base, const char *changes, const char *name, bool held,
                      void (*alter)(machine *m))
{
  uint32_t left_out = 0;
  for (int kind = 0; kind < 2; kind++) {
    arena a = { 0 };
    diag d = { 0 };
    compilation c;
    const settings *s = small_settings(base, changes, &a);
    machine m = *machine_load(&a, name, &d);
    if (alter != NULL) alter(&m);
    small_compile(&c, s, kind == 0 ? ITERATION_WARMUP : ITERATION_STEADY, &a);
    hold_list *holds = ARENA_ARRAY(&a, hold_list, c.plan.rank_count);
    for (uint32_t i = 0; held && i < c.plan.rank_count; i++)
      holds[i] = draw_holds(&c.plan.ranks[i]);
    left_out += compare(&c.plan, &m, places_of_ranks(s, &m, &a), held ? holds : NULL);
    for (uint32_t i = 0; i < c.plan.rank_count; i++)
      ARRAY_FREE(&holds[i]);
    compilation_release(&c);
    arena_release(&a);
  }
  return left_out;
}

/* ---- drawn settings ----------------------------------------------------------------------------- */

static const char *const machines[] = { "H100-SXM", "H200-SXM-vm", "GB200", "A100-SXM-PCIe4",
                                        "ideal" };
static const char *const systems[] = {
  "offload: {system: none}\n",
  "offload: {fine_grained_activation_offloading: true, offload_modules: [core_attn]}\n",
  "offload: {fine_grained_activation_offloading: true, offload_modules: [core_attn, attn_proj]}\n",
  ("offload: {fine_grained_activation_offloading: true, offload_modules: [core_attn], "
   "activation_offload_fraction: 0.5}\n"),
};

/* Returns the turns left out. */
static uint32_t check_drawn(uint32_t of)
{
  char changes[1024];
  seed = of;
  unsigned ranks = 1u << draw(3), per_rank = 1u << draw(2), stages = 1 + draw(2);
  unsigned microbatches = ranks * (2 + draw(8)), wide = 1u << draw(2);
  if (ranks == 1) stages = 1;
  char virtual[64] = "";
  if (stages > 1)
    snprintf(virtual, sizeof virtual, ", num_layers_per_virtual_pipeline_stage: %u", per_rank);
  snprintf(changes, sizeof changes,
           "model: {num_layers: %u}\ntraining: {global_batch_size: %u, seq_length: %u}\n"
           "parallel: {world_size: %u, pipeline_model_parallel_size: %u, "
           "use_distributed_optimizer: true%s}\n%s",
           ranks * stages * per_rank, microbatches * wide, 512u << draw(4), ranks * wide, ranks,
           virtual, PICK(systems));
  return check(draw(2) ? SMALL_MOE : SMALL_DENSE, changes, PICK(machines), draw(4) == 0, NULL);
}

static void test_drawn(void **state)
{
  (void)state;
  enum { SETTINGS = 45 };
  uint32_t with_turns = 0;
  for (uint32_t i = 0; i < SETTINGS; i++)
    with_turns += check_drawn(i) > 0;
  /* The others are short, held, or on machine ideal, whose host threads are as far ahead as they like. */
  assert_true(with_turns >= SETTINGS / 4);
}

/* Steps of seconds, in which the windows of power throttling slide from the warm-up into equal turns. Most
 * turns are left out, of the slowed simulation too. */
static void test_long(void **state)
{
  (void)state;
  static const char pipeline[] =
      "model: {num_layers: 16}\ntraining: {global_batch_size: 96, seq_length: 16384}\n"
      "parallel: {world_size: 4, pipeline_model_parallel_size: 4}\n";
  char changes[1024];
  for (size_t i = 0; i < sizeof systems / sizeof *systems; i++) {
    snprintf(changes, sizeof changes, "%s%s", pipeline, systems[i]);
    /* Copies keep pace with compute: without them the clock falls, turn by turn. */
    assert_true(check(SMALL_DENSE, changes, "H200-SXM", false, NULL) >= (i == 0 ? 30 : 100));
  }
}

/* Nothing lengthens kernels or copies, and host threads often wait for a full queue. */
static void without_slowdowns(machine *m)
{
  m->gpu.power_limit_w = 0;
  m->link.memory_slowdown_d2h_permille = m->link.memory_slowdown_h2d_permille = 0;
  m->link.gemm_slowdown_d2h_permille = m->link.gemm_slowdown_h2d_permille = 0;
  m->link.waiting_slowdown_d2h_permille = m->link.waiting_slowdown_h2d_permille = 0;
  m->issue.queue_ops = 8 + draw(1000);
}

/* One simulation is enough, and no times of it may be missing: of short steps, and of steps of seconds. */
static void test_without_slowdowns(void **state)
{
  (void)state;
  char changes[1024];
  uint32_t left_out = 0;
  seed = 0;
  for (size_t i = 0; i < 3 * sizeof systems / sizeof *systems; i++) {
    bool is_long = i % 3 == 0;
    snprintf(changes, sizeof changes,
             "model: {num_layers: 16}\ntraining: {global_batch_size: %u, seq_length: %u}\n"
             "parallel: {world_size: 4, pipeline_model_parallel_size: 4}\n%s",
             is_long ? 96 : 24 + draw(8), is_long ? 16384u : 1024u, systems[i / 3]);
    left_out += check(SMALL_DENSE, changes, "H200-SXM", i % 3 == 1, without_slowdowns);
  }
  assert_true(left_out >= 500);
}

static void assert_refused(const plan *p, const machine *m, const rank_place *places,
                           char message[sizeof(diag)])
{
  diag d = { .quiet = true };
  timeline t;
  assert_false(simulate(&t, p, m, places, &d));
  snprintf(message, sizeof d, "%s", d.message);
}

/* Buffers of 1 PiB each, too many of them: the message names the same one, somewhere among the turns. */
static void test_too_large(void **state)
{
  (void)state;
  static const char changes[] = "training: {global_batch_size: 64}\noffload: {system: none}\n";
  arena a = { 0 };
  diag d = { 0 };
  compilation c;
  char by_turns[sizeof(diag)], one_by_one[sizeof(diag)];
  const settings *s = small_settings(SMALL_DENSE, changes, &a);
  const machine *m = machine_load(&a, "H100-SXM", &d);
  small_compile(&c, s, ITERATION_STEADY, &a);
  rank_plan *r = &c.plan.ranks[0];
  for (uint32_t b = r->residents; b < r->buffers.count; b++)
    r->buffers.items[b].bytes = INT64_C(1) << 50;
  assert_true(r->repeat.turns > 2 && r->buffers.count > 2 * (1 << 11));
  assert_refused(&c.plan, m, places_of_ranks(s, m, &a), by_turns);
  forget_repeats(&c.plan);
  assert_refused(&c.plan, m, places_of_ranks(s, m, &a), one_by_one);
  assert_string_equal(by_turns, one_by_one);
  assert_non_null(strstr(by_turns, "with those before it"));
  compilation_release(&c);
  arena_release(&a);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_drawn),
    cmocka_unit_test(test_long),
    cmocka_unit_test(test_without_slowdowns),
    cmocka_unit_test(test_too_large),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
