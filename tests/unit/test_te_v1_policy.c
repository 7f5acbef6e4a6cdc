/*
 * Transformer Engine's double buffer: windows, issue order, residency; and, on plans of a real
 * small model and the machine `ideal`, the closed forms of its times, byte for byte and picosecond
 * for picosecond.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/fake_walk.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

static fake_result got;

static fake_setup setup_of(const char *layers, int64_t offloaded)
{
  return (fake_setup){ .layers = layers,
                       .microbatches = 1,
                       .system = SYSTEM_te_v1,
                       .offloaded_layers = offloaded,
                       .iteration = ITERATION_STEADY,
                       .waits = true };
}

/* ---- order ---- */

static void test_issue_order(void **state)
{
  static const struct {
    const char *what, *layers;
    int64_t offloaded;
    const char *log;
  } cases[] = {
    { "all but one: every layer's copy has one layer to hide behind", "c c c c", 3,
      "F0 Dl0 w Rl0 Dl1 w Rl1 Dl2 w Rl2 | B0 Hl2 l3 Hl1 l2 Hl0 l1 l0" },
    { "two of five: windows end at layers 2 and 4", "c c c c c", 2,
      "F0 Dl0 w Rl0 Dl1 w Rl1 | B0 Hl1 l4 l3 Hl0 l2 l1 l0" },
    { "three of seven: windows end at layers 2, 4, 6", "c c c c c c c", 3,
      "F0 Dl0 w Rl0 Dl1 w Rl1 Dl2 w Rl2 | B0 Hl2 l6 l5 Hl1 l4 l3 Hl0 l2 l1 l0" },
    { "one of four: the window is the whole forward", "c c c c", 1,
      "F0 Dl0 w Rl0 | B0 Hl0 l3 l2 l1 l0" },
    { "one of two", "c c", 1, "F0 Dl0 w Rl0 | B0 Hl0 l1 l0" },
  };
  (void)state;

  for (size_t i = 0; i < COUNT(cases); i++) {
    fake_setup setup = setup_of(cases[i].layers, cases[i].offloaded);
    fake_run_logs(&setup, cases[i].what, cases[i].log, &got);
  }
}

/* The second micro-batch finds the engine as the first did. */
static void test_micro_batches_are_alike(void **state)
{
  fake_setup setup = setup_of("c c c", 2);
  (void)state;

  setup.microbatches = 2;
  fake_run(&setup, &got);
  assert_string_equal(got.log, "F0 Dl0 w Rl0 Dl1 w Rl1 | B0 Hl1 l2 Hl0 l1 l0 | "
                               "F1 Dl0 w Rl0 Dl1 w Rl1 | B1 Hl1 l2 Hl0 l1 l0");
}

/* Layer i comes back into set i mod 2. */
static void test_double_buffering(void **state)
{
  fake_setup setup = setup_of("c c c c", 3);
  (void)state;

  setup.double_buffering = true;
  for (int k = 0; k < 2; k++) {
    setup.iteration = k == 0 ? ITERATION_WARMUP : ITERATION_STEADY;
    fake_run(&setup, &got);
    assert_string_equal(got.log, "F0 Dl0 w Rl0 Dl1 w Rl1 Dl2 w Rl2 | "
                                 "B0 H0l2 l3 H1l1 l2 H0l0 l1 l0");
    assert_int_equal(got.own_bytes, 2 * FAKE_GROUP_BYTES);
  }
}

/* ---- residency ---- */

/* With all but one offloaded: two layers in forward and backward, one at the turn. In general a
 * window's layers and the one before. */
static void test_residency(void **state)
{
  (void)state;

  for (uint32_t layers = 2; layers <= 12; layers++)
    for (uint32_t offloaded = 1; offloaded < layers; offloaded++) {
      fake_setup setup = setup_of(fake_layers(layers), offloaded);
      uint32_t window = (layers + offloaded - 1) / offloaded;
      fake_run(&setup, &got);
      assert_int_equal(got.d2h_groups, offloaded);
      assert_int_equal(got.h2d_groups, offloaded);
      assert_int_equal(got.forward_end_bytes, (int64_t)(layers - offloaded) * FAKE_GROUP_BYTES);
      assert_int_equal(got.theoretical_bytes, (int64_t)offloaded * FAKE_GROUP_BYTES);
      if (offloaded == layers - 1) assert_int_equal(got.peak_bytes, 2 * FAKE_GROUP_BYTES);
      assert_true(got.peak_bytes <= (int64_t)(layers - offloaded + window) * FAKE_GROUP_BYTES);
    }
}

/* Marks alone decide: small tensors leave too. */
static void test_no_minimum_size(void **state)
{
  fake_setup setup = setup_of("c c", 1);
  (void)state;

  setup.elements = 1;
  fake_run(&setup, &got);
  assert_int_equal(got.d2h_groups, 1);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_issue_order),      cmocka_unit_test(test_micro_batches_are_alike),
    cmocka_unit_test(test_double_buffering), cmocka_unit_test(test_residency),
    cmocka_unit_test(test_no_minimum_size),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
