/* Transformer Engine's second engine: issue order, residency, which tensors leave. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "sim/offload/te_entries.h"
#include "tests/unit/fake_walk.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

static fake_result got;

static fake_setup setup_of(const char *layers, int64_t offloaded)
{
  return (fake_setup){ .layers = layers,
                       .microbatches = 1,
                       .system = SYSTEM_te_v2,
                       .offloaded_layers = offloaded,
                       .iteration = ITERATION_STEADY,
                       .waits = true };
}

static void test_issue_order(void **state)
{
  static const struct {
    const char *what, *layers;
    int64_t offloaded;
    const char *log;
  } cases[] = {
    { "all but one: a layer is waited for as soon as its copy is issued", "c c c c", 3,
      "F0 Dl0 w Rl0 Dl1 w Rl1 Dl2 w Rl2 | B0 l3 Hl2 l2 Hl1 l1 Hl0 l0" },
    { "all but two: one layer of overlap", "c c c c", 2,
      "F0 Dl0 Dl1 w Rl0 w Rl1 | B0 l3 Hl1 l2 Hl0 l1 l0" },
    { "one of four", "c c c c", 1, "F0 Dl0 w Rl0 | B0 l3 Hl0 l2 l1 l0" },
    { "none", "c c", 0, "F0 | B0 l1 l0" },
  };
  (void)state;

  for (size_t i = 0; i < COUNT(cases); i++) {
    fake_setup setup = setup_of(cases[i].layers, cases[i].offloaded);
    fake_run_logs(&setup, cases[i].what, cases[i].log, &got);
  }
}

static void test_micro_batches_are_alike(void **state)
{
  fake_setup setup = setup_of("c c c", 1);
  (void)state;

  setup.microbatches = 2;
  fake_run(&setup, &got);
  assert_string_equal(got.log, "F0 Dl0 w Rl0 | B0 l2 Hl0 l1 l0 | F1 Dl0 w Rl0 | B1 l2 Hl0 l1 l0");
}

/* L - N layers at most, forward and backward, with the layer under way; so L - N - 1 when one
 * begins. */
static void test_residency(void **state)
{
  (void)state;

  for (uint32_t layers = 2; layers <= 12; layers++)
    for (uint32_t offloaded = 1; offloaded < layers; offloaded++) {
      fake_setup setup = setup_of(fake_layers(layers), offloaded);
      fake_run(&setup, &got);
      assert_int_equal(got.d2h_groups, offloaded);
      assert_int_equal(got.h2d_groups, offloaded);
      assert_int_equal(got.boundary_bytes, (int64_t)(layers - offloaded - 1) * FAKE_GROUP_BYTES);
      assert_int_equal(got.peak_bytes, (int64_t)(layers - offloaded) * FAKE_GROUP_BYTES);
      assert_int_equal(got.theoretical_bytes, (int64_t)offloaded * FAKE_GROUP_BYTES);
    }
}

/* Ten layers of one 32 MiB tensor, nine offloaded: one tensor. */
static void test_ten_layers(void **state)
{
  fake_setup setup = setup_of("c c c c c c c c c c", 9);
  (void)state;

  fake_run(&setup, &got);
  assert_int_equal(got.peak_bytes, FAKE_GROUP_BYTES);
}

static void test_minimum_size(void **state)
{
  static const struct {
    int64_t elements;
    uint32_t copies;
  } cases[] = { { 262143, 0 }, { 262144, 2 } };
  (void)state;

  for (size_t i = 0; i < COUNT(cases); i++) {
    fake_setup setup = setup_of("c c c", 2);
    setup.elements = cases[i].elements;
    fake_run(&setup, &got);
    assert_int_equal(got.d2h_groups, cases[i].copies);
  }
}

/* ---- the manual mode ---- */

static fake_setup manual_setup(const char *layers, const char *moves, int64_t after, int64_t ahead)
{
  fake_setup setup = setup_of(layers, 0);

  setup.manual_layers = moves;
  setup.release_after = after;
  setup.reload_ahead = ahead;
  return setup;
}

static void test_manual_issue_order(void **state)
{
  static const struct {
    const char *what, *moves;
    int64_t after, ahead;
    const char *log;
  } cases[] = {
    { "every other layer", "1010", 1, 1, "F0 Dl0 w Rl0 Dl2 w Rl2 | B0 Hl2 l3 l2 Hl0 l1 l0" },
    { "each at once, the last one too", "1111", 0, 0,
      "F0 Dl0 w Rl0 Dl1 w Rl1 Dl2 w Rl2 Dl3 w Rl3 | B0 Hl3 l3 Hl2 l2 Hl1 l1 Hl0 l0" },
    { "released after the forward, back before the backward", "1111", 4, 4,
      "F0 Dl0 Dl1 Dl2 Dl3 w Rl0 w Rl1 w Rl2 w Rl3 | B0 Hl3 Hl2 Hl1 Hl0 l3 l2 l1 l0" },
    { "two layers of overlap", "1100", 2, 2, "F0 Dl0 Dl1 w Rl0 w Rl1 | B0 Hl1 l3 Hl0 l2 l1 l0" },
    { "none", "0000", 1, 1, "F0 | B0 l3 l2 l1 l0" },
  };
  (void)state;

  for (size_t i = 0; i < COUNT(cases); i++) {
    fake_setup setup = manual_setup("c c c c", cases[i].moves, cases[i].after, cases[i].ahead);
    fake_run_logs(&setup, cases[i].what, cases[i].log, &got);
  }
}

/* Two pipeline stages: the first has two micro-batches in flight, each with its own states. */
static void test_manual_micro_batches_in_flight(void **state)
{
  fake_setup setup = manual_setup("c c c", "110", 1, 1);
  (void)state;

  setup.stages = 2;
  setup.microbatches = 3;
  fake_run(&setup, &got);
  assert_string_equal(got.log,
                      "F0 Dl0 Dl1 w Rl0 w Rl1 | F1 Dl0 Dl1 w Rl0 w Rl1 | B0 Hl1 l2 Hl0 l1 l0 | "
                      "F2 Dl0 Dl1 w Rl0 w Rl1 | B1 Hl1 l2 Hl0 l1 l0 | B2 Hl1 l2 Hl0 l1 l0");
  assert_int_equal(got.forward_end_bytes, 2 * FAKE_GROUP_BYTES); /* the last layer of each */
  assert_int_equal(got.theoretical_bytes, 2 * 2 * FAKE_GROUP_BYTES);
}

/* One stage's layers have the same buffers in every micro-batch; with micro-batches in flight each
 * counts as layers of its own. */
static void test_retained_host_buffers(void **state)
{
  fake_setup setup = manual_setup("c c c", "101", 1, 1);
  (void)state;

  setup.microbatches = 3;
  fake_run(&setup, &got);
  assert_int_equal(got.own_host_buffers, 0);
  setup.retain_host = true;
  fake_run(&setup, &got);
  assert_int_equal(got.own_host_buffers, 2);
  setup.stages = 2;
  fake_run(&setup, &got);
  assert_int_equal(got.own_host_buffers, 3 * 2);
  setup = setup_of("c c c", 2);
  setup.retain_host = true;
  fake_run(&setup, &got);
  assert_int_equal(got.own_host_buffers, 2);
  assert_string_equal(got.log, "F0 Dl0 w Rl0 Dl1 w Rl1 | B0 l2 Hl1 l1 Hl0 l0");
}

/* ---- one tensor ---- */

static void test_which_tensors_leave(void **state)
{
  const saved_entry plain = {
    .elements = 1 << 20, .bytes = 2 << 20, .storage_bytes = 2 << 20, .contiguous = true
  };
  saved_entry e = plain;
  (void)state;

  assert_true(te_v2_entry_leaves(&e));
  assert_false(te_v1_entry_leaves(&e)); /* no module has marked it */
  e.marked = true;
  assert_true(te_v1_entry_leaves(&e));
  e.parameter = true;
  assert_false(te_v1_entry_leaves(&e));
  assert_false(te_v2_entry_leaves(&e));
  e = plain;
  e.not_offloadable = true;
  assert_false(te_v2_entry_leaves(&e));
  e = plain;
  e.contiguous = false;
  assert_false(te_v2_entry_leaves(&e));
  e.base_leaves = true;
  assert_true(te_v2_entry_leaves(&e));
}

/* Slices of one projection leave as one storage; an unflagged slice leaves alone. */
static void test_what_is_copied_once(void **state)
{
  saved_entry query = {
    .bytes = 1 << 20, .storage_bytes = 3 << 20, .slot = 7, .tensor = 1, .base_leaves = true
  };
  saved_entry key = query, whole = query;
  (void)state;

  key.tensor = 2;
  assert_true(te_v2_same_copy(&query, &key));
  whole.base_leaves = false;
  whole.bytes = whole.storage_bytes;
  assert_true(te_v2_same_copy(&query, &whole));
  key.base_leaves = false;
  assert_false(te_v2_same_copy(&query, &key));
  query.base_leaves = false;
  assert_false(te_v2_same_copy(&query, &key));
  key.tensor = query.tensor;
  assert_true(te_v2_same_copy(&query, &key));
  key.slot++;
  assert_false(te_v2_same_copy(&query, &key));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_issue_order),
    cmocka_unit_test(test_micro_batches_are_alike),
    cmocka_unit_test(test_residency),
    cmocka_unit_test(test_ten_layers),
    cmocka_unit_test(test_minimum_size),
    cmocka_unit_test(test_which_tensors_leave),
    cmocka_unit_test(test_what_is_copied_once),
    cmocka_unit_test(test_manual_issue_order),
    cmocka_unit_test(test_manual_micro_batches_in_flight),
    cmocka_unit_test(test_retained_host_buffers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
