/*
 * The executor of GPUs with the CPU instead: plans as texts, exact kernels, streams that are
 * threads. With OFFSIM_TEST_GPUS=1 in the environment, on a GPU.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cuda/exec/exec.h"
#include "tests/unit/exec_plans.h"

/* ---- runs ---------------------------------------------------------------------------------- */

typedef struct bench {
  arena memory;
  plan plan;
  exec_layout layout;
  cuda_options options;
  exec_hooks hooks;
  cuda_exec *exec;
  diag d;
} bench;

static uint32_t gpus_to_use(void)
{
  const char *asked = getenv("OFFSIM_TEST_GPUS");
  return asked == NULL ? 0 : (uint32_t)strtoul(asked, NULL, 10);
}

static void bench_init(bench *b, const char *text)
{
  *b = (bench){ .options = { .arithmetic = CUDA_EXACT, .gpus = gpus_to_use() } };
  b->plan = plan_of(&b->memory, text);
  b->layout = exec_layout_of_stages(&b->plan, &b->memory);
}

static exec_outcome run(bench *b)
{
  static const exec_step step = { 0 };
  if (b->exec == NULL) b->exec = cuda_exec_new(&b->layout, &b->options, &b->hooks, &b->d);
  assert_string_equal(b->d.message, "");
  assert_non_null(b->exec);
  return cuda_exec_iteration(b->exec, &b->plan, &step, &b->d);
}

static void expect_done(bench *b)
{
  exec_outcome end = run(b);
  assert_string_equal(cuda_exec_finding(b->exec) == NULL ? "" : cuda_exec_finding(b->exec), "");
  assert_string_equal(b->d.message, "");
  assert_int_equal(end, EXEC_DONE);
}

static void bench_release(bench *b)
{
  cuda_exec_release(b->exec);
  plan_release(&b->plan);
  arena_release(&b->memory);
}

static void assert_all(const bench *b, uint32_t rank, uint32_t buffer, float expected)
{
  const float *data = cuda_exec_data(b->exec, rank, buffer);
  assert_non_null(data);
  for (int i = 0; i < ELEMENTS; i++)
    assert_float_equal(data[i], expected, 0);
}

#define ADD(a, b, sum) "  kernel compute add fp32 elements=8 96 bytes " a " " b " -> " sum "\n"

/* ---- movement ------------------------------------------------------------------------------ */

/* Through host memory and a file, and back into another buffer; ops that use a freed buffer still
 * has been given it before. */
static void test_contents_move(void **state)
{
  (void)state;
  bench b;
  bench_init(&b, AWAY_AND_BACK);
  for (int i = 0; i < 3; i++) {
    expect_done(&b);
    assert_null(cuda_exec_data(b.exec, 0, 0));
    assert_null(cuda_exec_data(b.exec, 0, 2));
    assert_all(&b, 0, 4, 3);
    assert_all(&b, 0, 3, 3);
  }
  bench_release(&b);
}

/* The even elements as rows, then a transpose of all, which is copied element by element. The first goes back
 * to where it was; its second half also alone. */
static void test_views_are_copied(void **state)
{
  (void)state;
  bench b;
  bench_init(
      &b,
      ONE_RANK ALLOC("%0", "x") FILL("%0", "1") HOST("%1", "pinned_host") HOST("%2", "pinned_host")
          ALLOC("%3", "y") ALLOC(
              "%4", "y") "  kernel compute fill fp32 elements=4 value=2 16 bytes -> "
                         "%0{fp32+1:4/2}\n"
                         "  d2h compute %0{fp32+0:2x4/1x2} -> %1\n"
                         "  d2h compute %0{fp32+0:2x2x2/1x4x2} -> %2\n"
                         "  h2d compute %1 -> %3\n"
                         "  h2d compute %2 -> %4\n" ALLOC("%5", "y") FILL(
                             "%5", "7") "  h2d compute %1 -> %5{fp32+0:2x4/1x2}\n" ALLOC("%6", "y")
                             FILL("%6", "7") "  h2d compute %1{fp32+4:4} -> %6\n"
                                             "  d2h compute %6{fp32+0:2} -> %2{fp32+6:2}\n"
                                             "  h2d compute %2{fp32+6:2} -> %6{fp32+4:2}\n");
  expect_done(&b);
  const float *back = cuda_exec_data(b.exec, 0, 5), *before = cuda_exec_data(b.exec, 0, 0);
  assert_memory_equal(back, before, ELEMENTS * sizeof *back);
  const float *half = cuda_exec_data(b.exec, 0, 6);
  for (int i = 0; i < ELEMENTS; i++)
    assert_float_equal(half[i], i < 6 ? 2 : 7, 0);
  for (uint32_t buffer = 3; buffer < 5; buffer++) {
    const float *data = cuda_exec_data(b.exec, 0, buffer);
    for (int i = 0; i < ELEMENTS; i++)
      assert_float_equal(data[i], i < 4 ? 1 : 2, 0);
  }
  bench_release(&b);
}

/* ---- memory -------------------------------------------------------------------------------- */

/* Copies out on a separate stream; the free names it, so that the block waits for the copy. */
#define OFFLOAD(marks)                                                                             \
  ONE_RANK ALLOC("%0", "x") FILL("%0", "4") "  record compute e0\n  wait d2h e0\n" HOST(           \
      "%1", "pinned_host key 1") "  d2h d2h %0 -> %1\n  free compute %0" marks "\n" ALLOC("%2",    \
                                                                                          "y")     \
      FILL("%2", "5") "  record d2h e1\n  wait h2d e1\n"                                           \
                      "  alloc h2d %3 " BUFFER(                                                    \
                          "x") " reload\n  h2d h2d %1 -> %3\n  host_free host %1\n"                \
                               "  record h2d e2\n  wait compute e2\n" ADD(                         \
                                   "%2", "%3", "%2") "  free h2d %3 after compute\n"

static void test_offload(void **state)
{
  (void)state;
  static const cuda_backing backings[] = { CUDA_CACHING, CUDA_MALLOC_ASYNC };
  for (int i = 0; i < 8; i++) {
    bench b;
    bench_init(&b, OFFLOAD(" after d2h"));
    b.options.backing = backings[i % 2];
    b.options.expandable_segments = i / 2 % 2 == 1;
    b.options.guards = i / 4 == 1;
    for (int step = 0; step < 3; step++) {
      expect_done(&b);
      assert_all(&b, 0, 2, 9);
    }
    cuda_memory m = cuda_exec_memory(b.exec, 0);
    assert_int_equal(m.requested_peak_bytes, 1024);
    assert_int_equal(m.broken_guards, 0);
    assert_int_equal(m.pinned_peak_bytes, 32);
    if (backings[i % 2] == CUDA_CACHING) assert_int_equal(m.reserved_peak_bytes, 4 << 20);
    bench_release(&b);
  }
}

static void test_tally(void **state)
{
  (void)state;
  bench b;
  bench_init(&b,
             ONE_RANK "  resident compute %0 weight fp32[200] 800 bytes weight\n" ALLOC("%1", "x")
                 HOST("%2", "pinned_host") ALLOC("%3", "x") "  free compute %1\n" ALLOC("%4", "x"));
  expect_done(&b);
  static const int64_t expected[] = { 1536, 1536, 2048, 1536, 2048 };
  exec_tally t = cuda_exec_tally(b.exec, 0);
  assert_memory_equal(t.after_op, expected, sizeof expected);
  assert_int_equal(t.peak_bytes, 2048);
  bench_release(&b);
}

static void test_out_of_memory(void **state)
{
  (void)state;
  bench b;
  bench_init(&b,
             ONE_RANK "  alloc compute %0 x u8[1125899906842624] 1125899906842624 bytes saved\n");
  b.exec = cuda_exec_new(&b.layout, &b.options, &b.hooks, &b.d);
  assert_false(cuda_exec_fits(b.exec, &b.plan, &b.d));
  assert_int_equal(b.d.exit_status, 3);
  b.d = (diag){ 0 };
  assert_int_equal(run(&b), EXEC_REFUSED);
  assert_int_equal(b.d.exit_status, 3);
  assert_non_null(strstr(b.d.message, "rank 0: op 0 (alloc): out of device memory: requested "
                                      "1125899906842624 bytes"));
  bench_release(&b);
}

/* ---- iterations ---------------------------------------------------------------------------- */

/* A weight to which 1 is added, iteration by iteration. */
#define TRAINING                                                                                   \
  ONE_RANK "  resident compute %0 " BUFFER("weight") " weight\n" ALLOC("%1", "x") FILL("%1", "1")  \
      ADD("%0", "%1", "%0") "  free compute %1\n"

static void test_residents_stay(void **state)
{
  (void)state;
  int fills = 0;
  bench b;
  bench_init(&b, TRAINING);
  b.hooks = (exec_hooks){ .context = &fills, .fill = fill_with_seven };
  for (int i = 0; i < 3; i++) {
    expect_done(&b);
    assert_all(&b, 0, 0, (float)(8 + i));
  }
  assert_int_equal(fills, 1);
  bench_release(&b);
}

typedef struct told {
  bench *b;
  uint32_t count;
  float sums[8];
} told;

static bool watch_adds(void *context, uint32_t rank, uint32_t op)
{
  const told *t = context;
  const plan_op *o = &t->b->plan.ranks[rank].ops.items[op];
  return o->kind == OP_KERNEL && t->b->plan.calls.items[o->arg].kind == KERNEL_ADD;
}

static void note_sum(void *context, uint32_t rank, uint32_t op, exec_fingerprint print)
{
  told *t = context;
  (void)print;
  if (!watch_adds(t, rank, op)) return;
  const rank_plan *r = &t->b->plan.ranks[rank];
  uint32_t written = r->operands.items[r->ops.items[op].operands + 2];
  t->sums[t->count++] = *(const float *)cuda_exec_data(t->b->exec, rank, written);
}

/* Each sum as it was when its op was over, though the next one overwrites it. */
static void test_ops_are_told(void **state)
{
  (void)state;
  for (int every = 0; every < 2; every++) {
    bench b;
    bench_init(&b, ONE_RANK ALLOC("%0", "x") FILL("%0", "1") ADD("%0", "%0", "%0")
                       ADD("%0", "%0", "%0") ADD("%0", "%0", "%0") "  free compute %0\n");
    told t = { .b = &b };
    b.options.every_op = every == 1;
    b.hooks = (exec_hooks){ .context = &t, .op_done = note_sum, .watches = watch_adds };
    b.exec = cuda_exec_new(&b.layout, &b.options, &b.hooks, &b.d);
    expect_done(&b);
    assert_int_equal(t.count, 3);
    for (int i = 0; i < 3; i++)
      assert_float_equal(t.sums[i], (float)(2 << i), 0);
    bench_release(&b);
  }
}

/* ---- graphs -------------------------------------------------------------------------------- */

/* A copy concurrent with the graph that waits for its first kernel, and a kernel that waits for the
 * copy. */
static void test_graphs(void **state)
{
  (void)state;
  bench b;
  bench_init(&b, ONE_RANK ALLOC("%0", "x") ALLOC("%1", "y") ALLOC("%2", "z")
                     HOST("%3", "pinned_host") "  graph_begin host\n" FILL("%0", "1") FILL(
                         "%1", "2") "  record compute e0\n  wait d2h e0\n"
                                    "  d2h d2h %1 -> %3\n  free compute %1 after d2h\n" ADD(
                                        "%0", "%0", "%0") "  record d2h e1\n"
                                                          "  wait compute e1\n"
                                                          "  h2d compute %3 -> %2\n" ADD(
                                                              "%0", "%2", "%0") "  graph_end host\n"
                                                                                "  wait d2h e0\n");
  for (int i = 0; i < 3; i++) {
    expect_done(&b);
    assert_all(&b, 0, 0, 4);
  }
  bench_release(&b);
}

/* ---- several ranks ------------------------------------------------------------------------- */

#define TWO_STAGES                                                                                 \
  "offsim-plan 1\nranks 2\n\nrank 0\n" ALLOC("%0", "x") FILL(                                      \
      "%0", "1") "  collective compute all_reduce fp32 tp of 2 stride 1 32 bytes %0 -> %0\n"       \
                 "  send compute msg 0 to rank 1 32 bytes %0\n"                                    \
                 "\nrank 1\n" ALLOC("%0", "x") "  recv compute msg 0 from rank 0 32 bytes -> %0\n" \
                                               "optimizer\n" ADD("%0", "%0", "%0")

typedef struct optimizer_check {
  bench *b;
  int calls;
} optimizer_check;

static void look_at_sums(void *context)
{
  optimizer_check *c = context;
  c->calls++;
  for (uint32_t r = 2; r < MAX_RANKS; r++)
    assert_all(c->b, r, 0, 2);
}

static void test_groups_and_messages(void **state)
{
  (void)state;
  for (int every = 0; every < 2; every++) {
    bench b;
    bench_init(&b, TWO_STAGES);
    b.layout = two_by_two();
    b.options.every_op = every == 1;
    optimizer_check c = { .b = &b };
    b.hooks = (exec_hooks){ .context = &c, .before_optimizer = look_at_sums };
    for (int i = 0; i < 20; i++) {
      expect_done(&b);
      for (uint32_t r = 0; r < MAX_RANKS; r++)
        assert_all(&b, r, 0, r < 2 ? 2 : 4);
    }
    assert_int_equal(c.calls, 20);
    bench_release(&b);
  }
}

/* One rank is refused its file; the ranks that wait for it end. */
static void test_refusal_stops_all(void **state)
{
  static const char text[] = "offsim-plan 1\nranks 2\n\nrank 0\n" ALLOC("%0", "x") FILL("%0", "1")
      HOST("%1", "disk") "  send compute msg 0 to rank 1 32 bytes %0\n"
                         "\nrank 1\n" ALLOC(
                             "%0", "x") "  recv compute msg 0 from rank 0 32 bytes -> %0\n"
                                        "  record compute e0\n  host_wait host e0\noptimizer\n";
  (void)state;
  bench b;
  bench_init(&b, text);
  setenv("TMPDIR", "/there/is/no/such/folder", 1);
  assert_int_equal(run(&b), EXEC_REFUSED);
  unsetenv("TMPDIR");
  assert_int_equal(b.d.exit_status, 3);
  assert_non_null(strstr(b.d.message, "rank 0: op 2 (host_alloc): "));
  bench_release(&b);
}

/* Fills while the clock says that no time has passed, and then more than any patience, twice. */
static bool fill_for_long(void *context, uint32_t rank, uint32_t buffer, void *data, int64_t bytes)
{
  const bench *b = context;
  (void)rank;
  (void)buffer;
  cuda_exec_note_at(b->exec, 0);
  cuda_exec_note_at(b->exec, INT64_MAX);
  cuda_exec_note_at(b->exec, INT64_MAX);
  memset(data, 0, (size_t)bytes);
  return true;
}

static void test_long_iterations_are_told(void **state)
{
  (void)state;
  bench b;
  char text[256] = "";
  FILE *notes = tmpfile();
  int own = dup(STDERR_FILENO);
  bench_init(&b, "offsim-plan 1\nranks 1\n\nrank 0\n" ALLOC("%0", "x") "optimizer\n");
  b.hooks = (exec_hooks){ .context = &b, .fill = fill_for_long };
  fflush(stderr);
  dup2(fileno(notes), STDERR_FILENO);
  exec_outcome end = run(&b);
  cuda_exec_note_at(b.exec, INT64_MAX); /* no iteration runs */
  fflush(stderr);
  dup2(own, STDERR_FILENO);
  close(own);
  rewind(notes);
  assert_non_null(fgets(text, sizeof text, notes));
  assert_string_equal(text,
                      "offsim: note: step 0 has taken 60 s so far, and goes on; rank 0 is at op 0 "
                      "(alloc)\n");
  assert_null(fgets(text, sizeof text, notes)); /* once */
  assert_int_equal(end, EXEC_DONE);
  fclose(notes);
  bench_release(&b);
}

static uint32_t measured_of(const cuda_options *o, uint32_t steps)
{
  uint32_t bits = 0;
  for (uint32_t step = 0; step < steps; step++)
    bits |= (uint32_t)cuda_measures(o, step) << step;
  return bits;
}

/* Nothing; all from one on; the last of every three; and all in which the GPU rests. */
static void test_which_steps_are_measured(void **state)
{
  (void)state;
  cuda_options o = { .times_from = 2 };
  assert_int_equal(measured_of(&o, 8), 0);
  o.times = true;
  assert_int_equal(measured_of(&o, 8), 0xfc);
  o.times_every = 3;
  assert_int_equal(measured_of(&o, 10), 0x90);
  o.rests_from = 8;
  assert_int_equal(measured_of(&o, 10), 0x390);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_contents_move),
    cmocka_unit_test(test_views_are_copied),
    cmocka_unit_test(test_offload),
    cmocka_unit_test(test_tally),
    cmocka_unit_test(test_out_of_memory),
    cmocka_unit_test(test_residents_stay),
    cmocka_unit_test(test_ops_are_told),
    cmocka_unit_test(test_graphs),
    cmocka_unit_test(test_groups_and_messages),
    cmocka_unit_test(test_refusal_stops_all),
    cmocka_unit_test(test_long_iterations_are_told),
    cmocka_unit_test(test_which_steps_are_measured),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
