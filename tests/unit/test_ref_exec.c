/*
 * The reference executor with test kernels: buffers of fp32 numbers, plans as texts.
 *
 *     fill   every element of the target becomes `value`
 *     copy   elements of the source, one after the other
 *     add    element by element
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ref/exec/exec.h"
#include "tests/unit/exec_plans.h"
#include "tests/unit/unread_saved.h"

/* ---- arithmetic ---------------------------------------------------------------------------- */

static int64_t count_of(const exec_tensor *t)
{
  int64_t count = 1;
  for (int i = 0; i < t->rank; i++)
    count *= t->shape[i];
  return count;
}

/* Element `i` in row-major order. */
static float *element(const exec_tensor *t, int64_t i)
{
  int64_t at = 0;
  for (int k = t->rank; k-- > 0; i /= t->shape[k])
    at += i % t->shape[k] * t->strides[k];
  return (float *)t->data + at;
}

static void fill(const exec_call *c)
{
  for (int64_t i = 0; i < count_of(&c->writes[0]); i++)
    *element(&c->writes[0], i) = (float)c->call->scalars[0];
}

static void copy(const exec_call *c)
{
  for (int64_t i = 0; i < count_of(&c->writes[0]); i++)
    *element(&c->writes[0], i) = *element(&c->reads[0], i);
}

static void add(const exec_call *c)
{
  for (int64_t i = 0; i < count_of(&c->writes[0]); i++)
    *element(&c->writes[0], i) = *element(&c->reads[0], i) + *element(&c->reads[1], i);
}

static void write_one_too_many(const exec_call *c)
{
  fill(c);
  ((float *)c->writes[0].data)[count_of(&c->writes[0])] = 1;
}

static void sum_everywhere(const exec_call *const *members, uint32_t count)
{
  for (int64_t i = 0; i < count_of(&members[0]->reads[0]); i++) {
    float sum = 0;
    for (uint32_t m = 0; m < count; m++)
      sum += *element(&members[m]->reads[0], i);
    for (uint32_t m = 0; m < count; m++)
      *element(&members[m]->writes[0], i) = sum;
  }
}

static ref_kernel *const kernels[KERNEL_KINDS] = {
  [KERNEL_FILL] = fill,
  [KERNEL_COPY] = copy,
  [KERNEL_ADD] = add,
  [KERNEL_SQUARE] = write_one_too_many,
};
static ref_collective *const collectives[COLLECTIVE_KINDS] = {
  [COLLECTIVE_ALL_REDUCE] = sum_everywhere,
};

/* ---- runs ---------------------------------------------------------------------------------- */

typedef struct bench {
  arena memory;
  plan plan;
  exec_layout layout;
  ref_options options;
  exec_hooks hooks;
  ref_exec *exec;
  diag d;
} bench;

static void bench_init(bench *b, const char *text)
{
  *b = (bench){ .options = { .arithmetic = REF_EXACT,
                             .kernels = kernels,
                             .collectives = collectives,
                             .fingerprints = true } };
  b->plan = plan_of(&b->memory, text);
  b->layout = exec_layout_of_stages(&b->plan, &b->memory);
}

static exec_outcome run_seed(bench *b, const exec_order *order)
{
  static const exec_step step = { 0 };
  if (b->exec == NULL) b->exec = ref_exec_new(&b->layout, &b->options, &b->hooks);
  return ref_exec_iteration(b->exec, &b->plan, order, &step, &b->d);
}

static exec_outcome run(bench *b)
{
  return run_seed(b, &(exec_order){ 0 });
}

static void bench_release(bench *b)
{
  ref_exec_release(b->exec);
  plan_release(&b->plan);
  arena_release(&b->memory);
}

static float value_at(const bench *b, uint32_t rank, uint32_t buffer, int i)
{
  const float *data = ref_exec_data(b->exec, rank, buffer);
  assert_non_null(data);
  return data[i];
}

static void assert_all(const bench *b, uint32_t rank, uint32_t buffer, float expected)
{
  for (int i = 0; i < ELEMENTS; i++)
    assert_float_equal(value_at(b, rank, buffer, i), expected, 0);
}

static void expect_finding(const char *text, const char *finding)
{
  bench b;
  bench_init(&b, text);
  assert_int_equal(run(&b), EXEC_WRONG);
  assert_string_equal(ref_exec_finding(b.exec), finding);
  bench_release(&b);
}

/* ---- movement ------------------------------------------------------------------------------ */

static void test_contents_move(void **state)
{
  (void)state;
  bench b;
  bench_init(&b, AWAY_AND_BACK);
  assert_int_equal(run(&b), EXEC_DONE);
  assert_null(ref_exec_data(b.exec, 0, 0));
  assert_null(ref_exec_data(b.exec, 0, 2));
  assert_all(&b, 0, 4, 3);
  const exec_fingerprint *prints = ref_exec_fingerprints(b.exec, 0);
  assert_memory_equal(&prints[1], &prints[14], sizeof *prints); /* the fill and the copy back */
  bench_release(&b);
}

static void test_views(void **state)
{
  (void)state;
  bench b;
  bench_init(
      &b,
      ONE_RANK ALLOC("%0", "x") ALLOC("%1", "y") FILL(
          "%0", "1") "  kernel compute fill fp32 elements=4 value=2 16 bytes -> %0{fp32+1:4/2}\n"
                     "  kernel compute copy fp32 elements=8 64 bytes %0{fp32+0:2x4/1x2} -> %1\n");
  assert_int_equal(run(&b), EXEC_DONE);
  for (int i = 0; i < ELEMENTS; i++)
    assert_float_equal(value_at(&b, 0, 1, i), i < 4 ? 1 : 2, 0);
  bench_release(&b);
}

/* Only elements of the view count as written. */
static void test_part_is_unwritten(void **state)
{
  (void)state;
  expect_finding(
      ONE_RANK ALLOC("%0", "x") ALLOC(
          "%1", "y") "  kernel compute fill fp32 elements=4 value=2 16 bytes -> %0{fp32+0:4/2}\n"
                     "  kernel compute copy fp32 elements=8 64 bytes %0 -> %1 @ layer 2 mlp\n",
      "rank 0: op 3 (copy @ layer 2 mlp) reads element 1 of %0 x, which nothing has "
      "written");
}

static void test_fresh_memory_is_unwritten(void **state)
{
  (void)state;
  expect_finding(ONE_RANK ALLOC("%0", "x") HOST("%1", "pinned_host") "  d2h compute %0 -> %1\n",
                 "rank 0: op 2 (d2h) reads element 0 of %0 x, which nothing has written");
}

static void test_guard_zones(void **state)
{
  (void)state;
  expect_finding(
      ONE_RANK ALLOC("%0", "x") "  kernel compute square fp32 elements=8 32 bytes -> %0 @ loss\n",
      "rank 0: op 1 (square @ loss) writes outside of %0 x");
}

/* ---- iterations ---------------------------------------------------------------------------- */

/* A weight that is added to itself, iteration by iteration; an activation that is made anew. */
#define TRAINING                                                                                   \
  ONE_RANK "  resident compute %0 " BUFFER("weight") " weight\n" ALLOC("%1", "x")                  \
      FILL("%1", "1") "  kernel compute add fp32 elements=8 96 bytes %0 %1 -> %0\n"                \
                      "  free compute %1\n"

static void test_residents_stay(void **state)
{
  (void)state;
  int fills = 0;
  bench b;
  bench_init(&b, TRAINING);
  b.hooks = (exec_hooks){ .context = &fills, .fill = fill_with_seven };
  for (int i = 0; i < 3; i++) {
    assert_int_equal(run(&b), EXEC_DONE);
    assert_all(&b, 0, 0, (float)(8 + i));
  }
  assert_int_equal(fills, 1);
  bench_release(&b);
}

/* The first iteration makes what the second finds, under another number. */
static void test_survivors_become_residents(void **state)
{
  static const char made[] = "offsim-plan 1\nranks 1\nrank 0\n"
                             "  alloc compute %0 x fp32[8] 32 bytes saved\n"
                             "  alloc compute %1 weight fp32[8] 32 bytes saved\n"
                             "  kernel compute fill fp32 elements=8 value=5 32 bytes -> %1\n";
  static const char found[] = "offsim-plan 1\nranks 1\nrank 0\n"
                              "  resident compute %0 weight fp32[8] 32 bytes saved\n"
                              "  kernel compute add fp32 elements=8 96 bytes %0 %0 -> %0\n";
  (void)state;
  bench b;
  bench_init(&b, made);
  assert_int_equal(run(&b), EXEC_DONE);
  plan later = plan_of(&b.memory, found);
  assert_int_equal(ref_exec_iteration(b.exec, &later, &(exec_order){ 0 }, &(exec_step){ 0 }, &b.d),
                   EXEC_DONE);
  assert_all(&b, 0, 0, 10);
  ref_exec_release(b.exec);
  b.exec = NULL;
  plan_release(&later);
  bench_release(&b);
}

static void test_tally(void **state)
{
  (void)state;
  bench b;
  bench_init(&b,
             ONE_RANK "  resident compute %0 weight fp32[200] 800 bytes weight\n" ALLOC("%1", "x")
                 HOST("%2", "pinned_host") ALLOC("%3", "x") "  free compute %1\n" ALLOC("%4", "x"));
  assert_int_equal(run(&b), EXEC_DONE);
  static const int64_t expected[] = { 1536, 1536, 2048, 1536, 2048 };
  exec_tally t = ref_exec_tally(b.exec, 0);
  assert_memory_equal(t.after_op, expected, sizeof expected);
  assert_int_equal(t.peak_bytes, 2048);
  bench_release(&b);
}

/* ---- several ranks ------------------------------------------------------------------------- */

#define TWO_STAGES                                                                                 \
  "offsim-plan 1\nranks 2\n\nrank 0\n" ALLOC("%0", "x") FILL(                                      \
      "%0", "1") "  collective compute all_reduce fp32 tp of 2 stride 1 32 bytes %0 -> %0\n"       \
                 "  send compute msg 0 to rank 1 32 bytes %0\n"                                    \
                 "\nrank 1\n" ALLOC("%0", "x") "  recv compute msg 0 from rank 0 32 bytes -> %0\n" \
                                               "optimizer\n"

/* A mark has no op to count: the data itself shows the loss of a step. */
static void add_ten(void *context)
{
  bench *b = context;
  for (uint32_t r = 2; r < MAX_RANKS; r++)
    for (int i = 0; i < ELEMENTS; i++)
      ((float *)ref_exec_data(b->exec, r, 0))[i] += 10;
}

static void test_groups_and_messages(void **state)
{
  (void)state;
  bench b;
  bench_init(&b, TWO_STAGES);
  b.layout = two_by_two();
  b.hooks = (exec_hooks){ .context = &b, .before_optimizer = add_ten };
  for (uint64_t seed = 0; seed < 100; seed++) {
    assert_int_equal(run_seed(&b, &(exec_order){ .interleaved = seed > 0, .seed = seed }),
                     EXEC_DONE);
    for (uint32_t r = 0; r < MAX_RANKS; r++)
      assert_all(&b, r, 0, r < 2 ? 2 : 12);
  }
  bench_release(&b);
}

static void test_deadlock(void **state)
{
  static const char text[] = "offsim-plan 1\nranks 2\n"
                             "rank 0\n"
                             "  alloc compute %0 x fp32[8] 32 bytes saved\n"
                             "  recv comm msg 1 from rank 1 32 bytes -> %0\n"
                             "  record comm e0\n"
                             "  host_wait host e0\n"
                             "  send compute msg 0 to rank 1 32 bytes %0\n"
                             "rank 1\n"
                             "  alloc compute %0 x fp32[8] 32 bytes saved\n"
                             "  recv comm msg 0 from rank 0 32 bytes -> %0\n"
                             "  record comm e0\n"
                             "  send comm msg 1 to rank 0 32 bytes %0\n";
  (void)state;
  expect_finding(text, "deadlock: rank 0 comm waits at op 1 (recv), rank 0 host waits at op 3 "
                       "(host_wait), rank 1 comm waits at op 1 (recv)");
}

/* ---- orders -------------------------------------------------------------------------------- */

/* The reload waits for the copy to the host, or does not. */
#define RELOAD(wait)                                                                               \
  ONE_RANK ALLOC("%0", "x") FILL("%0", "4") "  record compute e0\n  wait d2h e0\n" HOST(           \
      "%1", "pinned_host") "  d2h d2h %0 -> %1\n  record d2h e1\n" wait                            \
      ALLOC("%2", "x") "  h2d compute %1 -> %2\n"

enum { SEEDS = 200 };

/* SEEDS: none is. */
static uint64_t first_wrong_seed(const char *text)
{
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    bench b;
    bench_init(&b, text);
    exec_outcome end = run_seed(&b, &(exec_order){ .interleaved = true, .seed = seed });
    bench_release(&b);
    if (end == EXEC_WRONG) return seed;
  }
  return SEEDS;
}

static void test_races_show(void **state)
{
  (void)state;
  assert_int_equal(first_wrong_seed(RELOAD("  wait compute e1\n")), SEEDS);
  assert_in_range(first_wrong_seed(RELOAD("")), 0, 20);
}

/* The block of a freed buffer becomes another one's while a copy still reads it. */
#define REUSE(marks)                                                                               \
  ONE_RANK ALLOC("%0", "x") FILL("%0", "4") "  record compute e0\n  wait d2h e0\n" HOST(           \
      "%1", "pinned_host") "  d2h d2h %0 -> %1\n  free compute %0" marks "\n" ALLOC("%2", "y")     \
      FILL("%2", "5")

static void test_blocks_are_reused(void **state)
{
  (void)state;
  assert_int_equal(first_wrong_seed(REUSE(" after d2h")), SEEDS);
  assert_in_range(first_wrong_seed(REUSE("")), 0, 20);
}

/* A pool of page-locked buffers without a spare hands out the one that a copy still reads. */
static void test_pools_hand_out_too_early(void **state)
{
  static const char text[] = "offsim-plan 1\nranks 1\nrank 0\n"
                             "  alloc compute %0 x fp32[8] 32 bytes saved\n"
                             "  alloc compute %1 y fp32[8] 32 bytes saved\n"
                             "  alloc compute %2 x fp32[8] 32 bytes reload\n"
                             "  kernel compute fill fp32 elements=8 value=1 32 bytes -> %0\n"
                             "  kernel compute fill fp32 elements=8 value=2 32 bytes -> %1\n"
                             "  host_alloc host %3 x fp32[8] 32 bytes pinned_host key 1\n"
                             "  d2h compute %0 -> %3\n"
                             "  record compute e0\n"
                             "  wait h2d e0\n"
                             "  h2d h2d %3 -> %2\n"
                             "  host_free host %3\n"
                             "  host_alloc host %4 y fp32[8] 32 bytes pinned_host key 1\n"
                             "  d2h compute %1 -> %4\n";
  (void)state;
  assert_in_range(first_wrong_seed(text), 0, 20);
}

static void test_files_are_removed_too_early(void **state)
{
  static const char text[] = "offsim-plan 1\nranks 1\nrank 0\n"
                             "  alloc compute %0 x fp32[8] 32 bytes saved\n"
                             "  kernel compute fill fp32 elements=8 value=1 32 bytes -> %0\n"
                             "  host_alloc host %1 x fp32[8] 32 bytes pageable_host\n"
                             "  host_alloc host %2 x fp32[8] 32 bytes disk\n"
                             "  d2h compute %0 -> %1\n"
                             "  record compute e0\n"
                             "  wait disk_out e0\n"
                             "  disk_write disk_out %1 -> %2\n"
                             "  host_free host %2\n";
  (void)state;
  assert_in_range(first_wrong_seed(text), 0, 20);
}

/* The copies of what is saved count for it; one that only the forward reads does not count. */
static void test_unread_saved(void **state)
{
  static const char text[] = "offsim-plan 1\nranks 1\nrank 0\n"
                             "forward m0 c0\n"
                             "  alloc compute %0 x fp32[8] 32 bytes saved\n"
                             "  alloc compute %1 y fp32[8] 32 bytes saved\n"
                             "  host_alloc host %2 x fp32[8] 32 bytes pinned_host\n"
                             "  d2h compute %0 -> %2\n"
                             "  kernel compute add fp32 elements=8 96 bytes %0 %1 -> %1\n"
                             "backward m0 c0\n"
                             "  alloc compute %3 x fp32[8] 32 bytes reload\n"
                             "  h2d compute %2 -> %3\n"
                             "  kernel compute add fp32 elements=8 96 bytes %3 %3 -> %3\n";
  (void)state;
  bench b;
  uint32_t unread[4];
  bench_init(&b, text);
  assert_int_equal(unread_saved(&b.plan, 0, unread), 1);
  assert_int_equal(unread[0], 1);
  bench_release(&b);
}

/* ---- refusals ------------------------------------------------------------------------------ */

static void test_memory_is_refused(void **state)
{
  (void)state;
  bench b;
  bench_init(&b, ONE_RANK ALLOC("%0", "x") ALLOC("%1", "x"));
  b.options.memory_limit_bytes = 300;
  assert_int_equal(run(&b), EXEC_REFUSED);
  assert_int_equal(b.d.exit_status, 3);
  assert_non_null(strstr(b.d.message, "no memory for a buffer of 32 bytes: 192 of 300 are in use"));
  bench_release(&b);
}

static void test_disk_is_refused(void **state)
{
  (void)state;
  bench b;
  bench_init(&b, AWAY_AND_BACK);
  b.options.disk_dir = "/nowhere/at/all";
  assert_int_equal(run(&b), EXEC_REFUSED);
  assert_int_equal(b.d.exit_status, 3);
  assert_non_null(strstr(b.d.message, "cannot make a file of 32 bytes in /nowhere/at/all"));
  assert_non_null(strstr(b.d.message, "No such file or directory"));
  bench_release(&b);
}

static void test_unknown_kernel(void **state)
{
  (void)state;
  bench b;
  bench_init(
      &b, ONE_RANK ALLOC(
              "%0",
              "x") "  kernel compute gemm fp32 m=2 n=4 k=1 batch=1 32 bytes -> %0 @ layer 0 mlp\n");
  assert_false(ref_exec_knows(&b.plan, &b.options, &b.d));
  assert_int_equal(b.d.exit_status, 2);
  assert_non_null(
      strstr(b.d.message, "ref has no arithmetic for rank 0's op 1 (gemm @ layer 0 mlp)"));
  bench_release(&b);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_contents_move),
    cmocka_unit_test(test_views),
    cmocka_unit_test(test_part_is_unwritten),
    cmocka_unit_test(test_fresh_memory_is_unwritten),
    cmocka_unit_test(test_guard_zones),
    cmocka_unit_test(test_residents_stay),
    cmocka_unit_test(test_survivors_become_residents),
    cmocka_unit_test(test_tally),
    cmocka_unit_test(test_groups_and_messages),
    cmocka_unit_test(test_deadlock),
    cmocka_unit_test(test_races_show),
    cmocka_unit_test(test_blocks_are_reused),
    cmocka_unit_test(test_pools_hand_out_too_early),
    cmocka_unit_test(test_files_are_removed_too_early),
    cmocka_unit_test(test_unread_saved),
    cmocka_unit_test(test_memory_is_refused),
    cmocka_unit_test(test_disk_is_refused),
    cmocka_unit_test(test_unknown_kernel),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
