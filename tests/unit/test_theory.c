/*
 * Theoretical savings: counts of groups from schedules, and which storages of a chunk die. Sizes
 * that come out of a simulation do not enter.
 */
#include "sim/offload/systems.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "sim/base/units.h"
#include "tests/unit/fake_walk.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

static fake_result got;

static void test_groups(void **state)
{
  static const double half = 0.5;
  static const struct {
    fake_setup setup;
    int64_t groups;
  } cases[] = {
    /* PR #1752's pipeline, here under Megatron's current code: 5 chunks of 2 in flight, and 3. */
    { { .layers = "c c / c c", .stages = 2, .virtual_stages = 2, .rank = 0, .microbatches = 8 },
      9 },
    { { .layers = "c c / c c", .stages = 2, .virtual_stages = 2, .rank = 1, .microbatches = 8 },
      5 },
    { { .layers = "c c c c", .stages = 4, .rank = 0, .microbatches = 8 }, 15 },
    { { .layers = "c c c c", .stages = 4, .rank = 3, .microbatches = 8 }, 3 },
    { { .layers = "cpf cpf cpf", .microbatches = 2 }, 6 },
    { { .layers = "c c c c c", .fraction = &half }, 2 },
    { { .layers = "c c c", .stages = 2, .rank = 1, .microbatches = 2, .delta_bytes = 1 }, 1 },
    { { .layers = "c c c", .elements = 1 }, 0 },
    { { .layers = "c c c", .system = SYSTEM_none }, 0 },
  };
  (void)state;

  for (size_t i = 0; i < COUNT(cases); i++) {
    fake_setup setup = cases[i].setup;
    setup.iteration = ITERATION_STEADY;
    fake_run(&setup, &got);
    assert_int_equal(got.theoretical_bytes, cases[i].groups * FAKE_GROUP_BYTES);
  }
}

/*
 * One layer, and a second one that the margin keeps. In each case the first group's tensors are
 * given; all have 1 MiB.
 */
typedef struct storage_case {
  const char *what;
  saved_entry entries[4]; /* group 0: saved outside; slots 1 .. */
  uint32_t released;
  uint32_t input_slot;
  int64_t dead_mib;
} storage_case;

static int64_t theory_of(const storage_case *c)
{
  arena a = { 0 };
  saved_group groups[3] = { { 0 },
                            { .name = "core_attn",
                              .first_entry = 1,
                              .released = { c->released },
                              .released_elements = { 1 << 19 } },
                            { .name = "core_attn" } };
  saved_entry entries[5] = { { 0 } };
  chunk_shape chunk = { .groups = groups,
                        .group_count = 3,
                        .entries = entries,
                        .entry_count = 5,
                        .input_slot = c->input_slot };
  settings s = { .parallel.pipeline_model_parallel_size = 1,
                 .derived = { .num_microbatches = 1, .virtual_stages = 1 },
                 .offload = { .system = SYSTEM_megatron,
                              .min_offloaded_tensor_size = 1 << 18,
                              .activation_offload_fraction = 1.0 } };
  schedule order = schedule_of_rank(&s, 0, &a);
  rank_shape rank = { &s, 0, 1, &chunk, &order };

  for (uint32_t e = 0; e < 4; e++) {
    entries[e + 1] = c->entries[e];
    groups[1].entry_count += c->entries[e].group != 0;
    if (c->entries[e].elements == 0) entries[e + 1].elements = 1 << 19;
    entries[e + 1].bytes = entries[e + 1].storage_bytes = MIB;
    entries[e + 1].element_bytes = 2;
    entries[e + 1].contiguous = true;
  }
  int64_t bytes = theoretical_saving_bytes(&rank, &a);
  arena_release(&a);
  return bytes;
}

static void test_storages(void **state)
{
  static const storage_case cases[] = {
    { "four tensors",
      { { .group = 1, .slot = 1 },
        { .group = 1, .slot = 2 },
        { .group = 1, .slot = 3 },
        { .group = 1, .slot = 4 } },
      0,
      0,
      4 },
    { "saved twice in the group: copied twice, freed once",
      { { .group = 1, .slot = 1 }, { .group = 1, .slot = 1 }, { .slot = 5 }, { .slot = 6 } },
      0,
      0,
      1 },
    { "also saved outside: nothing is freed",
      { { .group = 1, .slot = 1 }, { .group = 1, .slot = 2 }, { .slot = 2 }, { .slot = 6 } },
      0,
      0,
      1 },
    { "too small, a parameter, marked",
      { { .group = 1, .slot = 1, .elements = 1 },
        { .group = 1, .parameter = true },
        { .group = 1, .slot = 3, .not_offloadable = true },
        { .slot = 6 } },
      0,
      0,
      0 },
    { "emptied and recomputed anyway",
      { { .group = 1, .slot = 1, .discarded = true },
        { .group = 1, .slot = 2 },
        { .slot = 5 },
        { .slot = 6 } },
      0,
      0,
      1 },
    { "the input, which the schedule holds",
      { { .group = 1, .slot = 1 }, { .group = 1, .slot = 2 }, { .slot = 5 }, { .slot = 6 } },
      0,
      1,
      1 },
    { "the input, emptied under the schedule's reference",
      { { .group = 1, .slot = 1 }, { .group = 1, .slot = 2 }, { .slot = 5 }, { .slot = 6 } },
      1,
      1,
      2 },
    { "emptied, though nobody saved it",
      { { .group = 1, .slot = 1 }, { .slot = 4 }, { .slot = 5 }, { .slot = 6 } },
      3,
      0,
      1 },
  };
  (void)state;

  for (size_t i = 0; i < COUNT(cases); i++) {
    int64_t bytes = theory_of(&cases[i]);
    if (bytes != cases[i].dead_mib * MIB) print_error("%s\n", cases[i].what);
    assert_int_equal(bytes, cases[i].dead_mib * MIB);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_groups),
    cmocka_unit_test(test_storages),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
