/* PR #1752: issue order, and residency of its published case and its neighbours. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/fake_walk.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

static fake_result got;

/* dp4 ep4 pp2 vpp2 of the pull request, seen from one rank. */
static fake_setup setup_of(const char *layers, uint32_t rank)
{
  return (fake_setup){ .layers = layers,
                       .stages = 2,
                       .virtual_stages = 2,
                       .microbatches = 8,
                       .rank = rank,
                       .system = SYSTEM_megatron_pr1752,
                       .iteration = ITERATION_STEADY };
}

static void test_issue_order(void **state)
{
  fake_setup setup = setup_of("c c / c c", 1);
  (void)state;

  setup.microbatches = 2;
  setup.waits = true;
  fake_run(&setup, &got);
  assert_string_equal(got.message, "");
  /* The copy of the layer before is waited for at each commit, also where nothing leaves. */
  assert_string_equal(got.log, "F0 Dl0 w Dl1 | F1 w Dl0 w Dl1 | F0.1 w Dl0 w | "
                               "B0.1 l1 Hl0 l0 | F1.1 w Dl0 w | B1.1 l1 Hl0 l0 Hm0l1 | "
                               "B0 l1 Hl0 l0 Hm1l1 | B1 l1 Hl0 l0");
}

/* Groups of memory saved, by layers a chunk: 1, 2, 3, 4, 6. */
static void test_residency(void **state)
{
  static const struct {
    const char *layers;
    uint32_t rank;
    uint32_t in_flight; /* groups, without offload */
    uint32_t saved_at_peak, saved_at_forward_end;
  } cases[] = {
    { "c / c", 0, 5, 3, 4 },
    { "c / c", 1, 3, 1, 2 },
    { "c c / c c", 0, 10, 8, 9 },
    { "c c / c c", 1, 6, 4, 5 },
    { "c c c / c c c", 0, 15, 13, 14 },
    { "c c c / c c c", 1, 9, 7, 8 },
    { "c c c c / c c c c", 0, 20, 18, 19 },
    { "c c c c / c c c c", 1, 12, 10, 11 },
    { "c c c c c c / c c c c c c", 0, 30, 28, 29 },
    { "c c c c c c / c c c c c c", 1, 18, 16, 17 },
  };
  (void)state;

  for (size_t i = 0; i < COUNT(cases); i++) {
    fake_setup setup = setup_of(cases[i].layers, cases[i].rank), without = setup;
    without.system = SYSTEM_none;
    fake_run(&without, &got);
    assert_int_equal(got.peak_bytes, (int64_t)cases[i].in_flight * FAKE_GROUP_BYTES);
    fake_run(&setup, &got);
    assert_string_equal(got.message, "");
    assert_int_equal(got.inline_groups, 0);
    assert_int_equal(got.peak_bytes,
                     (int64_t)(cases[i].in_flight - cases[i].saved_at_peak) * FAKE_GROUP_BYTES);
    assert_int_equal(got.forward_end_bytes,
                     (int64_t)(cases[i].in_flight - cases[i].saved_at_forward_end) *
                         FAKE_GROUP_BYTES);
    assert_int_equal(got.theoretical_bytes,
                     (int64_t)cases[i].saved_at_forward_end * FAKE_GROUP_BYTES);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_issue_order),
    cmocka_unit_test(test_residency),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
