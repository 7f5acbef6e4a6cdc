/*
 * Megatron's fine-grained offloading: issue orders as the real manager produces them (its control
 * flow run against stubbed streams and tensors), residency, counts, the keep rules, the defects.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sim/offload/group_table.h"
#include "tests/unit/fake_walk.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

static fake_result got;

/* ---- issue orders ---- */

static void test_issue_order(void **state)
{
  static const struct {
    const char *what;
    fake_setup setup;
    const char *log;
  } cases[] = {
    { "A: one rank, three layers, one module; every micro-batch alike",
      { .layers = "c c c", .microbatches = 2, .iteration = ITERATION_STEADY },
      "F0 Dl0 Dl1 | B0 l2 Hl1 l1 Hl0 l0 | F1 Dl0 Dl1 | B1 l2 Hl1 l1 Hl0 l0" },
    { "A: first iteration: everything leaves, all comes back on the compute stream",
      { .layers = "c c c", .microbatches = 1, .iteration = ITERATION_WARMUP },
      "F0 Dl0 Dl1 Dl2 | B0 l2! l1! l0!" },
    { "B: four modules",
      { .layers = "cpfa cpfa", .iteration = ITERATION_STEADY },
      "F0 Dl0c Dl0p Dl0f Dl0a | "
      "B0 l1a Hl0a l1f Hl0f l1p Hl0p l1c Hl0c l0a l0f l0p l0c" },
    { "B7: all seven; the stack has the order of commits, the triggers that of starts",
      { .layers = "nqcpmfa nqcpmfa", .iteration = ITERATION_STEADY },
      "F0 Dl0q Dl0c Dl0p Dl0n Dl0f Dl0a Dl0m | "
      "B0 l1a Hl0m l1f Hl0a l1m Hl0f l1p Hl0n l1c Hl0p l1q Hl0c l1n Hl0q "
      "l0a l0f l0m l0p l0c l0q l0n" },
    { "C: first of two ranks: the next micro-batch is fetched ahead",
      { .layers = "c c", .stages = 2, .microbatches = 3, .iteration = ITERATION_STEADY },
      "F0 Dl0 | F1 Dl0 Dl1 | B0 l1 Hl0 l0 Hm1l1 | F2 Dl0 Dl1 | "
      "B1 l1 Hl0 l0 Hm2l1 | B2 l1 Hl0 l0" },
    { "D: last of two ranks: what comes back at once stays, each time",
      { .layers = "c c", .stages = 2, .rank = 1, .microbatches = 2, .iteration = ITERATION_STEADY },
      "F0 Dl0 | B0 l1 Hl0 l0 | F1 Dl0 | B1 l1 Hl0 l0" },
    { "C: first iteration: the trigger pops a group that is back already",
      { .layers = "c c", .stages = 2, .microbatches = 2, .iteration = ITERATION_WARMUP },
      "F0 Dl0 Dl1 | F1 Dl0 Dl1 | B0 l1! l0! | B1 l1! l0!" },
    { "first iteration, modules that commit as they start: every trigger comes too late",
      { .layers = "cp cp", .iteration = ITERATION_WARMUP },
      "F0 Dl0c Dl0p Dl1c Dl1p | B0 l1p! l1c! l0p! l0c!" },
    { "dense and MoE layers: a dense layer has fewer groups",
      { .layers = "cp cp cpfa", .iteration = ITERATION_STEADY },
      "F0 Dl0c Dl0p Dl1c Dl1p | B0 l2a Hl1p l2f Hl1c l2p Hl0p l2c Hl0c l1p l1c l0p l0c" },
    { "a name that only a later chunk has: its margin lies there",
      { .layers = "cf cf / c c",
        .stages = 2,
        .virtual_stages = 2,
        .rank = 1,
        .microbatches = 2,
        .iteration = ITERATION_STEADY },
      "F0 Dl0c Dl0f Dl1c | F1 Dl0c Dl0f Dl1c Dl1f | F0.1 Dl0c | B0.1 l1c Hl0c l0c | F1.1 Dl0c | "
      "B1.1 l1c Hl0c l0c Hm0l1c | B0 l1f Hl0f l1c Hl0c l0f Hm1l1f l0c Hm1l1c | "
      "B1 l1f Hl0f l1c Hl0c l0f l0c" },
    { "multi-token prediction: one more layer with the same names at the end of the last chunk",
      { .layers = "cfa cfa cfa", .stages = 2, .rank = 1, .iteration = ITERATION_STEADY },
      "F0 Dl0c Dl0f Dl0a Dl1c Dl1f Dl1a | "
      "B0 l2a Hl1a l2f Hl1f l2c Hl1c l1a Hl0a l1f Hl0f l1c Hl0c l0a l0f l0c" },
  };
  (void)state;

  for (size_t i = 0; i < COUNT(cases); i++) {
    fake_run_logs(&cases[i].setup, cases[i].what, cases[i].log, &got);
  }
}

/* ---- residency and counts ---- */

static void test_residency(void **state)
{
  static const struct {
    fake_setup setup;
    int64_t forward_end, peak;
  } cases[] = {
    { { .layers = "c c c c", .stages = 4, .rank = 0, .microbatches = 8 }, 1, 2 },
    { { .layers = "c c c c", .stages = 4, .rank = 1, .microbatches = 8 }, 1, 2 },
    { { .layers = "c c c c", .stages = 4, .rank = 2, .microbatches = 8 }, 1, 2 },
    { { .layers = "c c c c", .stages = 4, .rank = 3, .microbatches = 8 }, 1, 1 },
    { { .layers = "c c c c c c c c" }, 1, 1 },
    { { .layers = "cp cp cp cp cp cp cp cp" }, 2, 2 },
    { { .layers = "cpf cpf cpf cpf cpf cpf cpf cpf" }, 3, 3 },
    { { .layers = "c c / c c", .stages = 2, .virtual_stages = 2, .rank = 0, .microbatches = 8 },
      1,
      2 },
    { { .layers = "c c / c c", .stages = 2, .virtual_stages = 2, .rank = 1, .microbatches = 8 },
      1,
      2 },
  };
  static const fake_setup warmup = { .layers = "c c c c c c c c", .iteration = ITERATION_WARMUP };
  (void)state;

  for (size_t i = 0; i < COUNT(cases); i++) {
    fake_setup setup = cases[i].setup;
    setup.iteration = ITERATION_STEADY;
    fake_run(&setup, &got);
    assert_int_equal(got.forward_end_bytes, cases[i].forward_end * FAKE_GROUP_BYTES);
    assert_int_equal(got.peak_bytes, cases[i].peak * FAKE_GROUP_BYTES);
    assert_int_equal(got.inline_groups, 0);
    assert_int_equal(got.h2d_groups, got.d2h_groups);
  }
  fake_run(&warmup, &got);
  assert_int_equal(got.forward_end_bytes, 0);
  assert_int_equal(got.peak_bytes, FAKE_GROUP_BYTES);
}

/* PR #1752's pipeline: 8 micro-batches, 2 virtual stages of 2 layers on each of 2 ranks. */
static void test_groups_per_iteration(void **state)
{
  static const struct {
    uint32_t rank;
    iteration_kind iteration;
    uint32_t out;
  } cases[] = {
    { 0, ITERATION_STEADY, 31 },
    { 1, ITERATION_STEADY, 24 },
    { 0, ITERATION_WARMUP, 32 },
    { 1, ITERATION_WARMUP, 32 },
  };
  (void)state;

  for (size_t i = 0; i < COUNT(cases); i++) {
    fake_run(&(fake_setup){ .layers = "c c / c c",
                            .stages = 2,
                            .virtual_stages = 2,
                            .microbatches = 8,
                            .rank = cases[i].rank,
                            .iteration = cases[i].iteration },
             &got);
    assert_int_equal(got.d2h_groups, cases[i].out);
    assert_int_equal(got.h2d_groups + got.inline_groups, got.d2h_groups);
  }
}

/* First iteration on the first of four ranks. Groups that commit later than they start are on the
 * stack above groups that backward needs first: these come ahead of their use. */
static void test_warmup_is_partly_fetched_ahead(void **state)
{
  static const struct {
    const char *layers;
    int64_t microbatches;
    uint32_t out, ahead;
  } cases[] = {
    { "c c c c", 8, 32, 0 },
    { "nqcpmfa nqcpmfa nqcpmfa", 8, 168, 48 },
  };
  (void)state;

  for (size_t i = 0; i < COUNT(cases); i++) {
    fake_run(&(fake_setup){ .layers = cases[i].layers,
                            .stages = 4,
                            .microbatches = cases[i].microbatches,
                            .iteration = ITERATION_WARMUP },
             &got);
    assert_int_equal(got.d2h_groups, cases[i].out);
    assert_int_equal(got.h2d_groups, cases[i].ahead);
    assert_int_equal(got.inline_groups, cases[i].out - cases[i].ahead);
  }
}

/* ---- keep rules ---- */

static void test_fraction(void **state)
{
  /* The margin keeps one of 11 groups: 10 are eligible. 10 * (1 - 0.9) and 10 * (1 - 0.8) lie just
   * below 1 and 2, 10 * (1 - 0.7) just above 3. */
  static const struct {
    const char *layers;
    double fraction;
    uint32_t out;
  } cases[] = {
    { "c c c c c c c c c c c", 1.0, 10 }, { "c c c c c c c c c c c", 0.9, 10 },
    { "c c c c c c c c c c c", 0.8, 9 },  { "c c c c c c c c c c c", 0.7, 7 },
    { "c c c c c c c c c c c", 0.5, 5 },  { "c c c c c c c c c c c", 0.1, 1 },
    { "c c c c c c c c c c c", 0.0, 0 },
  };
  (void)state;

  for (size_t i = 0; i < COUNT(cases); i++) {
    fake_run(&(fake_setup){ .layers = cases[i].layers,
                            .fraction = &cases[i].fraction,
                            .iteration = ITERATION_STEADY },
             &got);
    assert_int_equal(got.d2h_groups, cases[i].out);
  }
}

/* The tail of the forward stays. As released the kept groups go on fetching, ever further ahead;
 * with PR #7575 each group comes back where it would if everything were offloaded. */
static void test_cadence_of_partial_offload(void **state)
{
  static const double half = 0.5, more = 0.6;
  static const int64_t one = 1;
  static const struct {
    const char *what;
    fake_setup setup;
    const char *released, *fixed;
    int64_t released_peak, fixed_peak; /* groups */
    const char *defect;                /* of it as released */
  } cases[] = {
    { "four groups, of which the first two leave: the example of the pull request",
      { .layers = "c c c c", .fraction = &more },
      "F0 Dl0 Dl1 | B0 l3 Hl1 l2 Hl0 l1 l0",
      "F0 Dl0 Dl1 | B0 l3 l2 Hl1 l1 Hl0 l0",
      2,
      2,
      "up to 2 groups are back early, 1 more than" },
    { "a longer chunk: as released everything is back when half of it is done",
      { .layers = "c c c c c c c c c", .fraction = &half },
      "F0 Dl0 Dl1 Dl2 Dl3 | B0 l8 Hl3 l7 Hl2 l6 Hl1 l5 Hl0 l4 l3 l2 l1 l0",
      "F0 Dl0 Dl1 Dl2 Dl3 | B0 l8 l7 l6 l5 l4 Hl3 l3 Hl2 l2 Hl1 l1 Hl0 l0",
      5,
      5,
      "up to 4 groups are back early, 3 more than" },
    { "two modules: two groups ahead, as with all of them",
      { .layers = "cp cp cp cp", .fraction = &half },
      "F0 Dl0c Dl0p Dl1c | B0 l3p Hl1c l3c Hl0p l2p Hl0c l2c l1p l1c l0p l0c",
      "F0 Dl0c Dl0p Dl1c | B0 l3p l3c l2p l2c Hl1c l1p Hl0p l1c Hl0c l0p l0c",
      5,
      5,
      "up to 3 groups are back early, 1 more than" },
    { "commits in another order than starts",
      { .layers = "npm npm npm", .fraction = &half },
      "F0 Dl0p Dl0n Dl0m | B0 l2m Hl0m l2p Hl0n l2n Hl0p l1m l1p l1n l0m l0p l0n",
      "F0 Dl0p Dl0n Dl0m | B0 l2m l2p l2n l1m Hl0m l1p Hl0n l1n Hl0p l0m l0p l0n",
      6,
      6,
      NULL },
    { "micro-batches in flight: the next one comes back before it is time, and a forward meets it",
      { .layers = "c c c c", .stages = 2, .microbatches = 3, .fraction = &half },
      "F0 Dl0 Dl1 | F1 Dl0 Dl1 | B0 l3 Hl1 l2 Hl0 l1 Hm1l1 l0 Hm1l0 | F2 Dl0 Dl1 | "
      "B1 l3 Hm2l1 l2 Hm2l0 l1 l0 | B2 l3 l2 l1 l0",
      "F0 Dl0 Dl1 | F1 Dl0 Dl1 | B0 l3 l2 Hl1 l1 Hl0 l0 | F2 Dl0 Dl1 | "
      "B1 l3 l2 Hl1 l1 Hl0 l0 | B2 l3 l2 Hl1 l1 Hl0 l0",
      6,
      4,
      "up to 4 groups are back early, 3 more than" },
    { "virtual stages",
      { .layers = "c c c / c c c",
        .stages = 2,
        .virtual_stages = 2,
        .rank = 1,
        .microbatches = 2,
        .fraction = &half },
      "F0 Dl0 Dl1 | F1 Dl0 Dl1 | F0.1 Dl0 | B0.1 l2 Hl0 l1 l0 | F1.1 Dl0 Dl1 | "
      "B1.1 l2 Hl1 l1 Hl0 l0 Hm0l1 | B0 l2 Hl0 l1 Hm1l1 l0 Hm1l0 | B1 l2 l1 l0",
      "F0 Dl0 Dl1 | F1 Dl0 Dl1 | F0.1 Dl0 | B0.1 l2 l1 Hl0 l0 | F1.1 Dl0 Dl1 | "
      "B1.1 l2 Hl1 l1 Hl0 l0 | B0 l2 Hl1 l1 Hl0 l0 | B1 l2 Hl1 l1 Hl0 l0",
      4,
      4,
      "up to 2 groups are back early, 1 more than" },
    { "one copy in flight: the waits of forward are the same",
      { .layers = "c c c c c c", .fraction = &half, .max_inflight = &one, .waits = true },
      "F0 Dl0 Dl1 w Dl2 w | B0 l5 Hl2 l4 Hl1 l3 Hl0 l2 l1 l0",
      "F0 Dl0 Dl1 w Dl2 w | B0 l5 l4 l3 Hl2 l2 Hl1 l1 Hl0 l0",
      3,
      3,
      "up to 3 groups are back early, 2 more than" },
  };
  (void)state;

  for (size_t i = 0; i < COUNT(cases); i++) {
    fake_setup setup = cases[i].setup;
    setup.iteration = ITERATION_STEADY;
    fake_run(&setup, &got);
    assert_string_equal(got.log, cases[i].fixed);
    assert_int_equal(got.peak_bytes, cases[i].fixed_peak * FAKE_GROUP_BYTES);
    assert_null(got.defects);
    setup.mode = MODE_AS_RELEASED;
    fake_run(&setup, &got);
    assert_string_equal(got.log, cases[i].released);
    assert_int_equal(got.peak_bytes, cases[i].released_peak * FAKE_GROUP_BYTES);
    assert_int_equal(got.defects != NULL, cases[i].defect != NULL);
    if (cases[i].defect) assert_non_null(strstr(got.defects, cases[i].defect));
  }
}

/* A copy in a log: "Dl0c", "Hl0c" or "Hm1.1l0c" during a run of `instance`. Writes whose copy it
 * is, as "1.1l0c"; false: no copy. */
static bool copy_of(const char *token, const char *instance, char *whose, size_t room)
{
  const char *own = strchr(token, 'l');

  if ((token[0] != 'D' && token[0] != 'H') || own == NULL) return false;
  if (token[1] == 'm')
    snprintf(whose, room, "%s", token + 2);
  else
    snprintf(whose, room, "%s%s", instance, own);
  return true;
}

/* Whether the log has a copy to the host of that group. */
static bool goes_out(const char *log, const char *whose)
{
  static char words[FAKE_LOG_BYTES];
  char instance[64] = "", out[64];

  memcpy(words, log, strlen(log) + 1);
  for (char *token = strtok(words, " |"); token; token = strtok(NULL, " |")) {
    if (token[0] == 'F' || token[0] == 'B') snprintf(instance, sizeof instance, "%s", token + 1);
    if (token[0] == 'D' && copy_of(token, instance, out, sizeof out) && strcmp(out, whose) == 0)
      return true;
  }
  return false;
}

/* The log without the copies of groups that do not leave in `partial`. */
static void without_kept(const char *log, const char *partial, char *out)
{
  char instance[64] = "", whose[128], token[64];

  out[0] = '\0';
  for (const char *at = log; *at;) {
    size_t length = strcspn(at, " ");
    snprintf(token, sizeof token, "%.*s", (int)length, at);
    at += length + strspn(at + length, " ");
    if (token[0] == 'F' || token[0] == 'B') snprintf(instance, sizeof instance, "%s", token + 1);
    if (copy_of(token, instance, whose, sizeof whose) && !goes_out(partial, whose)) continue;
    strcat(strcat(out, out[0] ? " " : ""), token);
  }
}

/* Whatever stays: a group leaves and comes back at the same places as if everything left. */
static void test_partial_offload_keeps_the_cadence(void **state)
{
  static const char *const layers[] = {
    "c c c c c",       "cp cp cp",  "nqcpmfa nqcpmfa nqcpmfa",
    "cp cp cpfa cpfa", "c c / c c", "cpfa cpfa / cpfa cpfa",
    "cf cf / c c",
  };
  static const double fractions[] = { 0.0, 0.25, 0.5, 0.75 };
  static const int64_t deltas[] = { 0, 1, 5 * (int64_t)FAKE_GROUP_BYTES };
  static char full[FAKE_LOG_BYTES], expected[FAKE_LOG_BYTES];
  (void)state;

  for (size_t l = 0; l < COUNT(layers); l++)
    for (uint32_t rank = 0; rank < 2; rank++)
      for (size_t k = 0; k < COUNT(fractions) * COUNT(deltas); k++) {
        fake_setup setup = { .layers = layers[l],
                             .stages = 2,
                             .virtual_stages = strchr(layers[l], '/') ? 2 : 1,
                             .microbatches = 4,
                             .rank = rank,
                             .iteration = ITERATION_STEADY };
        fake_run(&setup, &got);
        memcpy(full, got.log, sizeof full);
        setup.mode = MODE_AS_RELEASED;
        fake_run(&setup, &got);
        assert_true(got.defects == NULL || strstr(got.defects, "#7575") == NULL);
        setup.mode = MODE_FIXED;
        setup.fraction = &fractions[k % COUNT(fractions)];
        setup.delta_bytes = deltas[k / COUNT(fractions)];
        fake_run(&setup, &got);
        without_kept(full, got.log, expected);
        assert_string_equal(got.log, expected);
      }
}

/* The pull request to the letter: orders as its own code produces them, run against stubbed streams
 * and tensors. With one module they are those of mode fixed. */
static void test_pr7575_to_the_letter(void **state)
{
  static const double half = 0.5, more = 0.6;
  static const struct {
    fake_setup setup;
    const char *log;
  } cases[] = {
    { { .layers = "c c c c", .fraction = &more }, "F0 Dl0 Dl1 | B0 l3 l2 Hl1 l1 Hl0 l0" },
    { { .layers = "cp cp cp cp" },
      "F0 Dl0c Dl0p Dl1c Dl1p Dl2c Dl2p | B0 l3p l3c Hl2p l2p Hl2c l2c Hl1p l1p Hl1c l1c Hl0p l0p "
      "Hl0c l0c" },
    { { .layers = "cp cp cp cp", .fraction = &half },
      "F0 Dl0c Dl0p Dl1c | B0 l3p l3c l2p l2c l1p Hl1c l1c Hl0p l0p Hl0c l0c" },
    { { .layers = "nqcpmfa nqcpmfa" },
      "F0 Dl0q Dl0c Dl0p Dl0n Dl0f Dl0a Dl0m | B0 l1a l1f l1m l1p l1c l1q l1n l0a! Hl0m l0f! l0m "
      "l0p! Hl0n l0c! l0q! l0n" },
    { { .layers = "nqcpmfa nqcpmfa nqcpmfa", .fraction = &half },
      "F0 Dl0q Dl0c Dl0p Dl0n Dl0f Dl0a Dl0m | B0 l2a l2f l2m l2p l2c l2q l2n l1a l1f l1m l1p l1c "
      "l1q l1n l0a! Hl0m l0f! l0m l0p! Hl0n l0c! l0q! l0n" },
    { { .layers = "c c c c", .stages = 2, .microbatches = 3, .fraction = &half },
      "F0 Dl0 Dl1 | F1 Dl0 Dl1 | B0 l3 l2 Hl1 l1 Hl0 l0 | F2 Dl0 Dl1 | B1 l3 l2 Hl1 l1 Hl0 l0 | B2 "
      "l3 l2 Hl1 l1 Hl0 l0" },
    { { .layers = "cp cp cp", .stages = 2, .microbatches = 2, .fraction = &half },
      "F0 Dl0c Dl0p | F1 Dl0c Dl0p Dl1c | B0 l2p l2c l1p l1c Hl0p l0p Hl0c l0c | B1 l2p l2c l1p "
      "Hl1c l1c Hl0p l0p Hl0c l0c" },
    { { .layers = "c c c / c c c",
        .stages = 2,
        .virtual_stages = 2,
        .rank = 1,
        .microbatches = 2,
        .fraction = &half },
      "F0 Dl0 Dl1 | F1 Dl0 Dl1 | F0.1 Dl0 | B0.1 l2 l1 Hl0 l0 | F1.1 Dl0 Dl1 | B1.1 l2 Hl1 l1 Hl0 "
      "l0 | B0 l2 Hl1 l1 Hl0 l0 | B1 l2 Hl1 l1 Hl0 l0" },
    { { .layers = "cp cp / cp cp",
        .stages = 2,
        .virtual_stages = 2,
        .rank = 1,
        .microbatches = 2,
        .fraction = &half },
      "F0 Dl0c Dl0p | F1 Dl0c Dl0p | F0.1 Dl0c | B0.1 l1p l1c l0p Hl0c l0c | F1.1 Dl0c Dl0p | B1.1 "
      "l1p l1c Hl0p l0p Hl0c l0c | B0 l1p l1c Hl0p l0p Hl0c l0c | B1 l1p l1c Hl0p l0p Hl0c l0c" },
    { { .layers = "cp cp cp", .stages = 2, .rank = 1, .microbatches = 2, .delta_bytes = 1 },
      "F0 Dl0p Dl1c Dl1p | B0 l2p l2c Hl1p l1p Hl1c l1c Hl0p l0p l0c | F1 Dl0c Dl0p Dl1c Dl1p | B1 "
      "l2p l2c Hl1p l1p Hl1c l1c Hl0p l0p Hl0c l0c" },
  };
  (void)state;

  for (size_t i = 0; i < COUNT(cases); i++) {
    fake_setup setup = cases[i].setup;
    setup.iteration = ITERATION_STEADY;
    setup.mode = MODE_PR7575;
    fake_run(&setup, &got);
    assert_string_equal(got.log, cases[i].log);
    if (strpbrk(setup.layers, "npqmfa") != NULL) continue;
    setup.mode = MODE_FIXED;
    fake_run(&setup, &got);
    assert_string_equal(got.log, cases[i].log);
  }
}

static void test_delta(void **state)
{
  static const struct {
    uint32_t rank;
    int64_t delta_bytes;
    const char *log;
  } cases[] = {
    { 0, FAKE_GROUP_BYTES, "F0 Dl0 Dl1 | F1 Dl0 Dl1 Dl2" },
    { 1, 1, "F0 Dl1 | B0 l2 Hl1 l1 l0" },
    { 1, FAKE_GROUP_BYTES, "F0 Dl1 | B0 l2 Hl1 l1 l0" },
    { 1, FAKE_GROUP_BYTES + 1, "F0 | B0 l2 l1 l0" },
    { 1, 3 * (int64_t)FAKE_GROUP_BYTES, "F0 | B0 l2 l1 l0 | F1 Dl1 | B1" },
    { 1, NO_LIMIT, "F0 | B0 l2 l1 l0 | F1 | B1" },
    { 3, FAKE_GROUP_BYTES / 3, "F0 Dl1 | B0 l2 Hl1 l1 l0" },
    { 3, FAKE_GROUP_BYTES / 3 + 1, "F0 | B0 l2 l1 l0" },
  };
  (void)state;

  for (size_t i = 0; i < COUNT(cases); i++) {
    fake_run(&(fake_setup){ .layers = "c c c",
                            .stages = cases[i].rank < 2 ? 2 : 4,
                            .microbatches = 2,
                            .rank = cases[i].rank,
                            .delta_bytes = cases[i].delta_bytes,
                            .iteration = ITERATION_STEADY },
             &got);
    got.log[strlen(cases[i].log)] = '\0';
    assert_string_equal(got.log, cases[i].log);
  }
}

static void test_max_inflight(void **state)
{
  static const int64_t limits[] = { 0, 1, 2 };
  static const char *const logs[] = {
    "F0 Dl0c w Dl0p w Dl1c w Dl1p w Dl2c w Dl2p w",
    "F0 Dl0c Dl0p Dl1c w Dl1p w Dl2c w Dl2p w",
    "F0 Dl0c Dl0p Dl1c Dl1p Dl2c w Dl2p w",
  };
  (void)state;

  for (size_t i = 0; i < COUNT(limits); i++) {
    fake_run(&(fake_setup){ .layers = "cp cp cp cp",
                            .max_inflight = &limits[i],
                            .waits = true,
                            .iteration = ITERATION_STEADY },
             &got);
    got.log[strlen(logs[i])] = '\0';
    assert_string_equal(got.log, logs[i]);
  }
}

/* delay_offload_until_cuda_graph: the experts' groups leave when the next layer has come to its
 * own, also that of the next micro-batch; what has come back by then stays. The first iteration has
 * no graphs. */
static void test_delayed_commits(void **state)
{
  static const struct {
    fake_setup setup;
    const char *log;
  } cases[] = {
    { { .layers = "cfa cfa cfa", .iteration = ITERATION_STEADY },
      "F0 Dl0c Dl1c Dl0f Dl0a Dl1f Dl1a | "
      "B0 l2a Hl1a l2f Hl1f l2c Hl0a l1a Hl0f l1f Hl1c l1c Hl0c l0a l0f l0c" },
    { { .layers = "cfa cfa", .stages = 2, .microbatches = 2, .iteration = ITERATION_STEADY },
      "F0 Dl0c Dl0f Dl0a | F1 Dl0c Dl1c Dl0f Dl0a | "
      "B0 l1a Hl0a l1f Hl0f l1c Hl0c l0a Hm1l0a l0f Hm1l0f l0c Hm1l1c | "
      "B1 l1a Hl0c l1f l1c l0a l0f l0c" },
    { { .layers = "cfa cfa", .iteration = ITERATION_WARMUP },
      "F0 Dl0c Dl0f Dl0a Dl1c Dl1f Dl1a | B0 l1a! l1f! l1c! l0a! l0f! l0c!" },
  };
  (void)state;

  for (size_t i = 0; i < COUNT(cases); i++) {
    fake_setup setup = cases[i].setup;
    setup.delays = true;
    fake_run(&setup, &got);
    assert_string_equal(got.log, cases[i].log);
    assert_string_equal(got.message, "");
  }
}

/* A group below the size limit moves nothing and takes its turn all the same. */
static void test_small_tensors_stay(void **state)
{
  (void)state;
  fake_run(
      &(fake_setup){ .layers = "c c c", .elements = (1 << 20) - 1, .iteration = ITERATION_STEADY },
      &got);
  assert_string_equal(got.log, "F0 | B0 l2 l1 l0");
}

/* Views: half of the storage is enough to copy it whole. */
static void test_copy_form(void **state)
{
  static const struct {
    const char *what;
    saved_entry entry;
    copy_form form;
    int64_t copied_bytes;
  } cases[] = {
    { "64 x 96 of bf16, whole",
      { .bytes = 12288, .storage_bytes = 12288, .contiguous = true },
      COPY_VIEW,
      12288 },
    { "its first 80 columns", { .bytes = 10240, .storage_bytes = 12288 }, COPY_STORAGE, 12288 },
    { "its first 48", { .bytes = 6144, .storage_bytes = 12288 }, COPY_STORAGE, 12288 },
    { "its first 47", { .bytes = 6016, .storage_bytes = 12288 }, COPY_GATHERED, 6016 },
    { "its first 8", { .bytes = 1024, .storage_bytes = 12288 }, COPY_GATHERED, 1024 },
    { "80 columns of an odd storage",
      { .bytes = 10240, .storage_bytes = 12289 },
      COPY_GATHERED,
      10240 },
  };
  (void)state;

  for (size_t i = 0; i < COUNT(cases); i++) {
    saved_entry e = cases[i].entry;
    e.element_bytes = 2;
    assert_int_equal(entry_copy_form(&e, false), cases[i].form);
    assert_int_equal(entry_copied_bytes(&e, false), cases[i].copied_bytes);
    /* Up to version 0.19 views with gaps are gathered. */
    assert_int_equal(entry_copy_form(&e, true), e.contiguous ? COPY_VIEW : COPY_GATHERED);
    assert_int_equal(entry_copied_bytes(&e, true), e.bytes);
  }
}

/* ---- as released ---- */

static void test_defects_of_the_released_code(void **state)
{
  static const double none = 0.0;
  static const struct {
    const char *what;
    fake_setup setup;
    bool stops;
    const char *log; /* where it does not stop; NULL: as in mode fixed */
  } cases[] = {
    { "one layer, two names, two micro-batches",
      { .layers = "cp", .microbatches = 2 },
      true,
      NULL },
    { "the same with virtual stages",
      { .layers = "cp / cp", .stages = 2, .virtual_stages = 2, .microbatches = 2 },
      true,
      NULL },
    { "the same on the last rank",
      { .layers = "cp", .stages = 2, .rank = 1, .microbatches = 2 },
      true,
      NULL },
    { "the same on the first rank",
      { .layers = "cp", .stages = 2, .rank = 0, .microbatches = 2 },
      true,
      NULL },
    { "one layer, one name", { .layers = "c", .microbatches = 3 }, false, NULL },
    { "one layer, two names, one micro-batch: nothing leaves",
      { .layers = "cp", .microbatches = 1 },
      false,
      "F0 | B0 l0p l0c" },
    { "delta keeps the first group",
      { .layers = "c c c", .stages = 2, .rank = 1, .microbatches = 2, .delta_bytes = 1 },
      true,
      NULL },
    { "delta keeps the first group of three",
      { .layers = "cpf cpf", .stages = 2, .rank = 1, .microbatches = 2, .delta_bytes = 1 },
      true,
      NULL },
    { "delta with attn_norm, which is pending while the others commit; the kept group brings one "
      "back",
      { .layers = "nqcpmfa nqcpmfa", .stages = 2, .rank = 1, .microbatches = 2, .delta_bytes = 1 },
      false,
      "F0 Dl0q Dl0c Dl0p Dl0f Dl0a Dl0m | "
      "B0 l1a Hl0m l1f Hl0a l1m Hl0f l1p Hl0p l1c Hl0c l1q Hl0q l1n l0a l0f l0m l0p l0c l0q l0n | "
      "F1 Dl0q Dl0c Dl0p Dl0n Dl0f Dl0a Dl0m | "
      "B1 l1a Hl0m l1f Hl0a l1m Hl0f l1p Hl0n l1c Hl0p l1q Hl0c l1n Hl0q "
      "l0a l0f l0m l0p l0c l0q l0n" },
    { "fraction 0", { .layers = "cp cp", .microbatches = 2, .fraction = &none }, true, NULL },
    { "fraction 0, one micro-batch",
      { .layers = "cp cp", .microbatches = 1, .fraction = &none },
      false,
      NULL },
    { "several layers", { .layers = "cpfa cpfa", .microbatches = 3 }, false, NULL },
  };
  static char fixed_log[FAKE_LOG_BYTES];
  (void)state;

  for (size_t i = 0; i < COUNT(cases); i++) {
    fake_setup setup = cases[i].setup;
    setup.iteration = ITERATION_STEADY;
    fake_run(&setup, &got);
    assert_string_equal(got.message, "");
    memcpy(fixed_log, got.log, sizeof fixed_log);
    setup.mode = MODE_AS_RELEASED;
    fake_run(&setup, &got);
    if ((strstr(got.message, "Chunk mismatch") != NULL) != cases[i].stops)
      print_error("%s: \"%s\"\n", cases[i].what, got.message);
    assert_int_equal(strstr(got.message, "Chunk mismatch") != NULL, cases[i].stops);
    if (!cases[i].stops)
      assert_string_equal(got.log, cases[i].log ? cases[i].log : fixed_log);
    else
      assert_non_null(strstr(got.message, "#6783"));
    setup.iteration = ITERATION_WARMUP;
    fake_run(&setup, &got);
    assert_string_equal(got.message, "");
  }
}

static void test_unordered_reloads_are_told(void **state)
{
  fake_setup setup = { .layers = "c c c", .iteration = ITERATION_WARMUP, .mode = MODE_AS_RELEASED };
  (void)state;

  fake_run(&setup, &got);
  assert_non_null(got.defects);
  assert_string_equal(got.defects,
                      "3 tensors are copied back on the compute stream without waiting "
                      "for their copy to the host (Megatron-LM issue #7398)");
  setup.layers = "nqcpmfa nqcpmfa";
  fake_run(&setup, &got);
  assert_non_null(got.defects);
  assert_non_null(strstr(got.defects, "(Megatron-LM issue #7398); "));
  assert_non_null(strstr(got.defects, "nothing waits (not reported upstream)"));
  setup.mode = MODE_FIXED;
  fake_run(&setup, &got);
  assert_null(got.defects);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_issue_order),
    cmocka_unit_test(test_residency),
    cmocka_unit_test(test_groups_per_iteration),
    cmocka_unit_test(test_warmup_is_partly_fetched_ahead),
    cmocka_unit_test(test_fraction),
    cmocka_unit_test(test_cadence_of_partial_offload),
    cmocka_unit_test(test_partial_offload_keeps_the_cadence),
    cmocka_unit_test(test_pr7575_to_the_letter),
    cmocka_unit_test(test_delta),
    cmocka_unit_test(test_max_inflight),
    cmocka_unit_test(test_delayed_commits),
    cmocka_unit_test(test_small_tensors_stay),
    cmocka_unit_test(test_copy_form),
    cmocka_unit_test(test_defects_of_the_released_code),
    cmocka_unit_test(test_unordered_reloads_are_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
