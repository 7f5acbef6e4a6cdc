/* Ranks that exchange data (cuda/peers/exchange.h), on the host driver. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/peers/turns.h"
#include "sim/plan/text.h"
#include "tests/unit/exchange_bench.h"

static bench_setup setup(uint32_t stages, uint32_t width)
{
  return (bench_setup){ .driver = &gpu_driver_host,
                        .collectives = host_exact_collectives,
                        .stages = stages,
                        .width = width,
                        .streams_pause = true,
                        .absent = BENCH_RANKS };
}

#define RESIDENT(name) "  resident compute " name " x fp32[8] 32 bytes weight\n"
#define STAGES(count)  "offsim-plan 1\nranks " count "\nrank 0\n"

static void expect_same_bits(const bench_setup *s, const char *text)
{
  arena a = { 0 };
  const char *wrong = bench_check(s, text, &a);
  if (wrong != NULL) fail_msg("%s in\n%s", wrong, text);
  arena_release(&a);
}

static void expect_finding(const bench_setup *s, const char *text, const char *expected)
{
  arena a = { 0 };
  const char *wrong = bench_finding(s, text, &a);
  assert_non_null(wrong);
  assert_string_equal(wrong, expected);
  arena_release(&a);
}

/* Each host issues first what the other issues last; neither may wait. */
static void test_messages_cross(void **state)
{
  (void)state;
  bench_setup s = setup(2, 1);
  expect_same_bits(
      &s, STAGES("2") RESIDENT("%0")
              RESIDENT("%1") "  send comm msg 0 to rank 1 32 bytes %0\n"
                             "  recv next msg 1 from rank 1 32 bytes -> %1\n"
                             "rank 1\n" RESIDENT("%0")
                                 RESIDENT("%1") "  send next msg 1 to rank 0 32 bytes %0\n"
                                                "  recv comm msg 0 from rank 0 32 bytes -> %1\n");
}

/* What rank 1 sends first depends on the second message of the exchange that receives it. */
static void test_messages_of_an_exchange_have_no_order(void **state)
{
  (void)state;
  bench_setup s = setup(2, 1);
  expect_same_bits(&s, STAGES("2") RESIDENT("%0")
                           RESIDENT("%1") "  recv comm msg 0 from rank 1 32 bytes -> %1\n"
                                          "  send comm msg 1 to rank 1 32 bytes %0\n"
                                          "rank 1\n" RESIDENT("%0") RESIDENT(
                                              "%1") "  recv comm msg 1 from rank 0 32 bytes -> %1\n"
                                                    "  record comm e0\n"
                                                    "  wait next e0\n"
                                                    "  send next msg 0 to rank 0 32 bytes %1\n");
}

/* A collective of two in one order, of all in the other. */
static void test_groups_cross(void **state)
{
  (void)state;
  bench_setup s = setup(2, 2);
#define OF_TWO "  collective comm all_reduce fp32 tp of 2 stride 1 32 bytes %0 -> %0\n"
#define OF_ALL "  collective next all_reduce fp32 world of 4 stride 1 32 bytes %1 -> %1\n"
  expect_same_bits(&s, STAGES("2") RESIDENT("%0") RESIDENT("%1") OF_TWO OF_ALL
                   "rank 1\n" RESIDENT("%0") RESIDENT("%1") OF_ALL OF_TWO);
}

static int gates, gates_to_make;

static const char *make_gate(uint32_t **gate)
{
  if (gates_to_make-- <= 0) return "no more gates";
  gates++;
  return gpu_driver_host.gate_new(gate);
}

static void delete_gate(uint32_t *gate)
{
  gates--;
  gpu_driver_host.gate_delete(gate);
}

/* Whichever gate cannot be made, the others and their lanes are deleted. */
static void test_a_gate_that_cannot_be_made(void **state)
{
  (void)state;
  gpu_driver driver = gpu_driver_host;
  driver.gate_new = make_gate;
  driver.gate_delete = delete_gate;
  bench_setup s = setup(2, 1);
  s.driver = &driver;
  for (int made = 0; made < 8; made++) {
    arena a = { 0 };
    gates_to_make = made;
    const char *wrong = bench_finding(&s, random_exchanges(1, 2, 1, &a), &a);
    assert_string_equal(wrong, "offsim: error: gates between ranks: no more gates");
    assert_int_equal(gates, 0);
    arena_release(&a);
  }
}

static void test_random_plans(void **state)
{
  static const uint32_t shapes[][2] = { { 1, 2 }, { 2, 1 }, { 2, 2 }, { 4, 1 }, { 3, 2 } };
  (void)state;
  for (uint64_t seed = 1; seed <= 50; seed++) {
    const uint32_t *shape = shapes[seed % (sizeof shapes / sizeof shapes[0])];
    arena a = { 0 };
    bench_setup s = setup(shape[0], shape[1]);
    s.jitter = seed;
    expect_same_bits(&s, random_exchanges(seed, shape[0], shape[1], &a));
    arena_release(&a);
  }
}

static void expect_turns(const char *text, const char *refusal)
{
  arena a = { 0 };
  diag d = { 0 };
  plan p = { 0 };
  stage stages[2];
  assert_true(plan_parse(&p, "t", text, strlen(text), &a, &d));
  for (uint32_t i = 0; i < p.rank_count; i++)
    stages[i] = stage_new(&p, i, &a);
  assert_int_equal(turns_agree(&p, stages, &d), refusal == NULL);
  if (refusal != NULL) assert_non_null(strstr(d.message, refusal));
  plan_release(&p);
  arena_release(&a);
}

/* NCCL has the first message each way, then the second ones. */
static void test_turns_of_an_exchange(void **state)
{
  (void)state;
#define AT(number)       "rank " number "\n" RESIDENT("%0") RESIDENT("%1")
#define SEND(m, to)      "  send comm msg " m " to rank " to " 32 bytes %0\n"
#define RECEIVE(m, from) "  recv comm msg " m " from rank " from " 32 bytes -> %1\n"
#define BETWEEN          "  record compute e0\n  wait comm e0\n"
#define TWO_AND_ONE                                                                                \
  "offsim-plan 1\nranks 2\n" AT("0") SEND("0", "1") SEND("1", "1") RECEIVE("2", "1")
  expect_turns(TWO_AND_ONE AT("1") RECEIVE("0", "0") RECEIVE("1", "0") SEND("2", "0"), NULL);
  expect_turns(TWO_AND_ONE AT("1") RECEIVE("0", "0") BETWEEN RECEIVE("1", "0") SEND("2", "0"),
               NULL);
  expect_turns(TWO_AND_ONE AT("1") RECEIVE("0", "0") SEND("2", "0") BETWEEN RECEIVE("1", "0"),
               NULL);
  expect_turns(TWO_AND_ONE AT("1") RECEIVE("0", "0") RECEIVE("1", "0") BETWEEN SEND("2", "0"),
               "pipeline rank 0 has message 2 before message 1, and pipeline rank 1 after it");
  bench_setup s = setup(2, 1);
  expect_same_bits(&s,
                   TWO_AND_ONE AT("1") RECEIVE("0", "0") RECEIVE("1", "0") BETWEEN SEND("2", "0"));
}

static void test_unlike_collectives(void **state)
{
  (void)state;
  bench_setup s = setup(2, 1);
  expect_finding(
      &s,
      STAGES("2") RESIDENT("%0")
          RESIDENT("%1") "  collective comm all_reduce fp32 world of 2 stride 1 32 bytes %0 -> %0\n"
                         "rank 1\n" RESIDENT("%0")
                             RESIDENT("%1") "  collective comm all_to_all fp32 world of 2 stride 1 "
                                            "32 bytes %0 -> %1\n",
      "rank 0: op 0 (all_reduce) is paired with rank 1: op 0 (all_to_all)");
}

static void test_messages_in_another_order(void **state)
{
  (void)state;
  bench_setup s = setup(2, 1);
  expect_finding(&s,
                 STAGES("2") RESIDENT("%0")
                     RESIDENT("%1") "  send comm msg 0 to rank 1 32 bytes %0\n"
                                    "  send comm msg 1 to rank 1 32 bytes %1\n"
                                    "rank 1\n" RESIDENT("%0") RESIDENT(
                                        "%1") "  recv next msg 1 from rank 0 32 bytes -> %1\n"
                                              "  recv next msg 0 from rank 0 32 bytes -> %0\n",
                 "rank 1: op 0 (recv) receives message 1 where the other side sends message 0");
}

/* Streams whose partners never come are released. */
static void test_nobody_comes(void **state)
{
  (void)state;
  bench_setup s = setup(2, 1);
  expect_finding(
      &s,
      STAGES("2")
          RESIDENT("%0") "  collective comm all_reduce fp32 world of 2 stride 1 32 bytes %0 -> %0\n"
                         "  collective comm all_reduce fp32 world of 2 stride 1 32 bytes %0 -> %0\n"
                         "  collective next all_reduce fp32 edp of 2 stride 1 32 bytes %0 -> %0\n"
                         "rank 1\n" RESIDENT("%0") "  collective comm all_reduce fp32 world of 2 "
                                                   "stride 1 32 bytes %0 -> %0\n",
      "deadlock: rank 0 comm waits at op 1 (all_reduce), rank 0 next waits at op 2 "
      "(all_reduce)");
}

static void test_a_failure_stops_all(void **state)
{
  (void)state;
  for (uint64_t seed = 1; seed <= 20; seed++) {
    arena a = { 0 };
    bench_setup s = setup(2, 2);
    s.jitter = seed;
    s.absent = (uint32_t)(seed % 4);
    expect_finding(&s, random_exchanges(seed, 2, 2, &a), "stopped");
    arena_release(&a);
  }
}

/* Any driver but the host's has as many queues as a GPU. */
static void test_too_many_streams(void **state)
{
  (void)state;
  gpu_driver few = gpu_driver_host;
  bench_setup s = setup(1, 8);
  s.driver = &few;
#define ON(stream, buffer)                                                                         \
  "  collective " stream " all_reduce fp32 tp of 8 stride 1 32 bytes " buffer " -> " buffer "\n"
#define FOUR                                                                                       \
  RESIDENT("%0")                                                                                   \
  RESIDENT("%1")                                                                                   \
  RESIDENT("%2")                                                                                   \
  RESIDENT("%3")                                                                                   \
  RESIDENT("%4") ON("compute", "%0") ON("comm", "%1") ON("next", "%2") ON("previous", "%3")
  expect_same_bits(&s, STAGES("1") FOUR);
  expect_finding(
      &s, STAGES("1") FOUR ON("a2a", "%4"),
      "offsim: error: 8 ranks on GPU 0 would have 40 streams that wait for each other; a GPU has "
      "queues for 32: raise --gpus");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_messages_cross),
    cmocka_unit_test(test_messages_of_an_exchange_have_no_order),
    cmocka_unit_test(test_groups_cross),
    cmocka_unit_test(test_a_gate_that_cannot_be_made),
    cmocka_unit_test(test_random_plans),
    cmocka_unit_test(test_turns_of_an_exchange),
    cmocka_unit_test(test_unlike_collectives),
    cmocka_unit_test(test_messages_in_another_order),
    cmocka_unit_test(test_nobody_comes),
    cmocka_unit_test(test_a_failure_stops_all),
    cmocka_unit_test(test_too_many_streams),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
