/*
 * verl's activation offload: issue order, what is on the device, too few layers, and what its rule
 * for duplicates cannot bring back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "sim/offload/systems.h"
#include "sim/offload/verl_entries.h"
#include "tests/unit/fake_walk.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

static fake_result got;

static fake_setup setup_of(const char *layers)
{
  return (fake_setup){ .layers = layers,
                       .microbatches = 1,
                       .system = SYSTEM_verl,
                       .iteration = ITERATION_STEADY,
                       .waits = true };
}

static void test_issue_order(void **state)
{
  static const struct {
    const char *what, *layers, *log;
  } cases[] = {
    { "three layers", "c c c", "F0 Dl0 w Rl0 Dl1 w Rl1 | B0 Hl1 l2 Hl0 l1 l0" },
    { "four layers, as in verl's own test", "c c c c",
      "F0 Dl0 w Rl0 Dl1 w Rl1 Dl2 w Rl2 | B0 Hl2 l3 Hl1 l2 Hl0 l1 l0" },
    { "two layers: too few", "c c", "F0 | B0 l1 l0" },
    { "one layer: too few", "c", "F0 | B0 l0" },
  };
  (void)state;

  for (size_t i = 0; i < COUNT(cases); i++) {
    fake_setup setup = setup_of(cases[i].layers);
    fake_run_logs(&setup, cases[i].what, cases[i].log, &got);
  }
}

/* The second micro-batch finds the engine as the first did. */
static void test_micro_batches_are_alike(void **state)
{
  fake_setup setup = setup_of("c c c");
  (void)state;

  setup.microbatches = 2;
  fake_run(&setup, &got);
  assert_string_equal(got.log, "F0 Dl0 w Rl0 Dl1 w Rl1 | B0 Hl1 l2 Hl0 l1 l0 | "
                               "F1 Dl0 w Rl0 Dl1 w Rl1 | B1 Hl1 l2 Hl0 l1 l0");
}

/* At most two layers are on the device, and one at the turn. */
static void test_residency(void **state)
{
  (void)state;

  for (uint32_t layers = 3; layers <= 12; layers++) {
    fake_setup setup = setup_of(fake_layers(layers));
    fake_run(&setup, &got);
    assert_int_equal(got.d2h_groups, layers - 1);
    assert_int_equal(got.h2d_groups, layers - 1);
    assert_int_equal(got.forward_end_bytes, FAKE_GROUP_BYTES);
    assert_int_equal(got.peak_bytes, 2 * FAKE_GROUP_BYTES);
    assert_int_equal(got.theoretical_bytes, (int64_t)(layers - 1) * FAKE_GROUP_BYTES);
  }
}

static void test_too_few_layers(void **state)
{
  (void)state;

  for (uint32_t layers = 1; layers <= 2; layers++) {
    fake_setup setup = setup_of(fake_layers(layers));
    fake_run(&setup, &got);
    assert_int_equal(got.d2h_groups, 0);
    assert_int_equal(got.theoretical_bytes, 0);
    assert_int_equal(got.peak_bytes, (int64_t)layers * FAKE_GROUP_BYTES);
  }
}

/* No size is too small. */
static void test_no_minimum_size(void **state)
{
  fake_setup setup = setup_of("c c c");
  (void)state;

  setup.elements = 1;
  fake_run(&setup, &got);
  assert_int_equal(got.d2h_groups, 2);
}

/* ---- the rules, entry by entry ---- */

static void test_what_leaves(void **state)
{
  (void)state;
  saved_entry weight = { .parameter = true }, transposed = { .of_parameter = true };
  saved_entry scalar = { .elements = 1, .bytes = 8, .slot = 3, .element_bytes = 8 };

  assert_false(verl_entry_leaves(&weight));
  assert_false(verl_entry_leaves(&transposed));
  assert_true(verl_entry_leaves(&scalar));
}

/* Three layers with two entries each, views that begin at the same place of one storage. */
static const char *message_with(int64_t first_elements, int64_t second_elements)
{
  static diag d;
  saved_entry entries[7] = { { 0 } };
  saved_group groups[4] = { { 0 } };
  chunk_shape shape = { .groups = groups, .group_count = 4, .entries = entries, .entry_count = 7 };
  settings s = { 0 };
  rank_shape rank = { .settings = &s, .chunk_count = 1, .chunks = &shape };
  arena a = { 0 };

  for (uint32_t layer = 0; layer < 3; layer++) {
    uint32_t first = 1 + 2 * layer;
    groups[layer + 1] =
        (saved_group){ .layer = (int32_t)layer, .first_entry = first, .entry_count = 2 };
    entries[first] = entries[first + 1] =
        (saved_entry){ .elements = first_elements, .group = layer + 1, .slot = layer + 1 };
    entries[first + 1].elements = second_elements;
  }
  d = (diag){ .quiet = true };
  const offload_policy *policy = &offload_system_of(SYSTEM_verl)->policy;
  assert_non_null(policy);
  void *made = policy->begin(&rank, ITERATION_STEADY, &a, &d);
  assert_true((made != NULL) == diag_ok(&d));
  arena_release(&a);
  return d.message;
}

static void test_views_of_different_size_at_one_place(void **state)
{
  (void)state;

  assert_string_equal(message_with(4096, 4096), "");
  assert_non_null(strstr(message_with(4096, 1024), "layer 0 saves two views that begin at the same "
                                                   "place"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_issue_order),
    cmocka_unit_test(test_micro_batches_are_alike),
    cmocka_unit_test(test_residency),
    cmocka_unit_test(test_too_few_layers),
    cmocka_unit_test(test_no_minimum_size),
    cmocka_unit_test(test_what_leaves),
    cmocka_unit_test(test_views_of_different_size_at_one_place),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
