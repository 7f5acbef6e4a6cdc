/*
 * Megatron's paged stash: what is packed and fetched when, the size of its arenas, and what it
 * saves. A tensor has 1024 tokens x 2 experts x the capacity factor rows of 1 KiB (4 MiB with
 * factor 2), half of them with a token.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/fake_walk.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

enum { HALF = FAKE_GROUP_BYTES / 2, PAGE_BYTES = 64 * 1024 };

static fake_result got;

static void run(fake_setup setup)
{
  setup.system = SYSTEM_paged_stash;
  if (setup.capacity_factor == 0) setup.capacity_factor = 2;
  if (setup.device_factor == 0) setup.device_factor = 1.1;
  fake_run(&setup, &got);
}

static void test_issue_order(void **state)
{
  static const struct {
    const char *what;
    fake_setup setup;
    const char *log;
  } cases[] = {
    { "a group goes one group later; the last one comes back at once and stays, and the one before "
      "it is "
      "fetched when its backward is done",
      { .layers = "f f f", .iteration = ITERATION_STEADY },
      "F0 Sl0 Rl0 Sl1 Rl1 | B0 l2 Ul1 l1 Ul0 l0" },
    { "micro-batches in flight: packed last, a group of the other one is fetched at once",
      { .layers = "f f", .stages = 2, .microbatches = 2, .iteration = ITERATION_STEADY },
      "F0 Sl0 Rl0 Sl1 | F1 Rm0l1 Sl0 Rl0 Sl1 Um0l1 | B0 Rm1l1 l1 Ul0 l0 Um1l1 | B1 l1 Ul0 l0" },
    { "the last rank: what comes back at once is not packed",
      { .layers = "f f", .stages = 2, .rank = 1, .microbatches = 2, .iteration = ITERATION_STEADY },
      "F0 Sl0 Rl0 | B0 l1 Ul0 l0 | F1 Sl0 Rl0 | B1 l1 Ul0 l0" },
    { "the first iteration: cut at once, padded again where it is used, on the compute stream",
      { .layers = "f f", .iteration = ITERATION_WARMUP },
      "F0 Sl0 Rl0 Sl1 Rl1 | B0 l1! l0!" },
  };
  (void)state;

  for (size_t i = 0; i < COUNT(cases); i++) {
    run(cases[i].setup);
    if (strcmp(got.log, cases[i].log) != 0) print_error("%s\n", cases[i].what);
    assert_string_equal(got.log, cases[i].log);
    assert_string_equal(got.message, "");
  }
}

/* Rows of the arena: as many tensors as the first iteration keeps at once, those that are never
 * packed too, times the rows of one, times the factor, in whole pages. */
static void test_arena(void **state)
{
  static const struct {
    fake_setup setup;
    int64_t pages, host_pages;
  } cases[] = {
    { { .layers = "f f f" }, 106, 0 }, /* 3 x 2048 x 1.1 = 6758.4 rows */
    { { .layers = "f f f", .device_factor = 1 }, 96, 0 },
    { { .layers = "f f f", .device_factor = -1, .imbalance = 1.5 }, 144, 0 },
    { { .layers = "f f f", .device_factor = 1.5, .imbalance = 1.5 }, 144, 0 },
    { { .layers = "f f f", .host_factor = 0.5 }, 106, 48 },
    { { .layers = "f f", .stages = 2, .microbatches = 4 }, 141, 0 }, /* two in flight: 4 tensors */
    { { .layers = "f f", .stages = 2, .rank = 1, .microbatches = 4 }, 71, 0 },
  };
  (void)state;

  for (size_t i = 0; i < COUNT(cases); i++) {
    fake_setup setup = cases[i].setup;
    setup.iteration = ITERATION_STEADY;
    run(setup);
    assert_string_equal(got.message, "");
    assert_int_equal(got.own_bytes, cases[i].pages * PAGE_BYTES);
    assert_int_equal(got.host_bytes, cases[i].host_pages * PAGE_BYTES);
  }
}

/* Outside the arena one padded tensor at a time: a group is all that a layer here saves. */
static void test_memory(void **state)
{
  (void)state;

  run((fake_setup){ .layers = "f f f f f f f f", .iteration = ITERATION_STEADY });
  assert_int_equal(got.peak_bytes, FAKE_GROUP_BYTES);
  assert_int_equal(got.stashed_bytes, 7 * HALF);
  assert_int_equal(got.theoretical_bytes, 7 * FAKE_GROUP_BYTES - got.own_bytes);
  run((fake_setup){ .layers = "f f f f f f f f", .iteration = ITERATION_WARMUP });
  assert_int_equal(got.forward_end_bytes, 8 * HALF);
}

static void test_overflow(void **state)
{
  (void)state;

  run((fake_setup){ .layers = "f f f f", .imbalance = 1.5, .iteration = ITERATION_STEADY });
  assert_non_null(
      strstr(got.message, "the paged stash overflows: a tensor needs 48 pages of 64 rows"));
  assert_non_null(strstr(got.message, "moe_paged_stash_buffer_size_factor_cuda"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_issue_order),
    cmocka_unit_test(test_arena),
    cmocka_unit_test(test_memory),
    cmocka_unit_test(test_overflow),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
