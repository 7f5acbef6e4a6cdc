/* Traces: what is written reads back, wrong lines are reported with their place, and two are
 * compared. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "traces/compare.h"
#include "traces/packed.h"
#include "traces/record.h"

enum { PATH_BYTES = 512 };

static void new_path(char *path)
{
  const char *folder = getenv("TMPDIR");
  snprintf(path, PATH_BYTES, "%s/offsim-trace-XXXXXX", folder != NULL ? folder : "/tmp");
  int file = mkstemp(path);
  assert_true(file >= 0);
  close(file);
}

/* An op of which a test only says what it is about. */
static trace_op op_of(uint32_t rank, uint32_t op, const char *call)
{
  return (trace_op){ .rank = rank,
                     .op = op,
                     .kind = "kernel",
                     .name = "add",
                     .call = call,
                     .stream = "compute",
                     .layer = 3,
                     .module = "mlp \"x\"\\\t",
                     .phase = "forward",
                     .requested_bytes = 512 * (int64_t)op,
                     .output_count = 1 };
}

static trace_output output_of(uint64_t low)
{
  return (trace_output){ .buffer = "sum", .known = true, .fingerprint = { UINT64_MAX - 7, low } };
}

/* ---- reading ---- */

static void round_trip(void **state)
{
  (void)state;
  char path[PATH_BYTES];
  diag d = { 0 };
  arena a = { 0 };
  trace_writer w;
  new_path(path);
  assert_true(trace_open(&w, path, &(trace_header){ "ref", "a/\xc3\xbc.yaml", 2, 3 }, &d));
  trace_op later = op_of(1, 9, "add bf16 elements=4 24 bytes"), sooner = op_of(0, 4, "");
  later.step = 2;
  later.begin_ps = INT64_MAX;
  sooner.layer = -1;
  sooner.output_count = 2;
  trace_output two[2] = { output_of(5), { .buffer = "work" } };
  trace_put(&w, &later, two);
  trace_put(&w, &sooner, two);
  trace_figures figures = trace_no_figures();
  figures.live_peak_bytes = 4096;
  trace_put_steps(&w, (int64_t[]){ 5, 7, 6 }, 3);
  trace_put_figures(&w, 1, &figures);
  assert_true(trace_close(&w, &d));

  trace t;
  intern_table texts = { .memory = &a };
  assert_true(trace_read(&t, path, &texts, &d));
  assert_string_equal(t.header.scenario, "a/\xc3\xbc.yaml");
  assert_int_equal(t.header.ranks, 2);
  assert_int_equal(t.header.steps, 3);
  assert_int_equal(t.ops.count, 2);
  const trace_op *first = &t.ops.items[0], *second = &t.ops.items[1];
  assert_int_equal(first->op, 4);
  assert_int_equal(first->place, 1);
  assert_int_equal(first->layer, -1);
  assert_int_equal(first->output_count, 2);
  assert_true(t.outputs.items[first->first_output].known);
  assert_true(t.outputs.items[first->first_output].fingerprint[0] == UINT64_MAX - 7);
  assert_false(t.outputs.items[first->first_output + 1].known);
  assert_string_equal(second->module, "mlp \"x\"\\\t");
  assert_ptr_equal(first->module, second->module);
  assert_true(second->begin_ps == INT64_MAX);
  assert_int_equal(t.steps_ps[1], 7);
  assert_int_equal(t.figures[1].live_peak_bytes, 4096);
  assert_int_equal(t.figures[1].driver_used_bytes, -1);
  assert_int_equal(t.figures[0].live_peak_bytes, -1);
  trace_release(&t);
  arena_release(&a);
  unlink(path);
}

#define HEADER                                                                                     \
  "{\"format_version\":2,\"source\":\"ref\",\"scenario\":\"s\",\"ranks\":1,\"steps\":1}\n"
#define MEMBERS                                                                                    \
  "\"kind\":\"kernel\",\"name\":\"add\",\"call\":\"\",\"stream\":\"compute\",\"layer\":-1,"        \
  "\"module\":\"\",\"phase\":\"setup\",\"microbatch\":0,\"chunk\":0,\"begin_ps\":0,\"end_ps\":0,"  \
  "\"requested_bytes\":0,\"live_bytes\":0,\"reserved_bytes\":0,\"host_bytes\":0,"
#define OP_MODULE(step, module)                                                                    \
  "{\"step\":" step ",\"rank\":0,\"op\":0,\"kind\":\"kernel\",\"name\":\"add\",\"call\":\"\","     \
  "\"stream\":\"compute\",\"layer\":-1,\"module\":\"" module                                       \
  "\",\"phase\":\"setup\",\"microbatch\":0,\"chunk\":0,\"begin_ps\":0,\"end_ps\":0,"               \
  "\"requested_bytes\":0,\"live_bytes\":0,\"reserved_bytes\":0,\"host_bytes\":0,\"outputs\":[]}\n"
#define OP "{\"step\":0,\"rank\":0,\"op\":0," MEMBERS "\"outputs\":[]}\n"

static void wrong_lines(void **state)
{
  (void)state;
  static const struct {
    const char *text, *message;
  } cases[] = {
    { "", ":1:1: error: is empty; expected the header of a trace" },
    { "{\"format_version\":1}\n",
      ":1:19: error: found \"1}\"; expected a whole number from 2 to 2" },
    { "{\"version\":1}\n",
      ":1:2: error: found \"\"version\":1}\"; expected the key \"format_version\"" },
    { HEADER "{\"step\":1,", ":2:9: error: found \"1,\"; expected a whole number from 0 to 0" },
    { HEADER "{\"step\":0,\"rank\":0", ":2:19: error: the line ends here; expected \",\"" },
    { HEADER "\n", ":2:1: error: the line ends here; expected \"{\"" },
    { HEADER "{\"step\":0,\"rank\":0,\"op\":0,\"kind\":\"a\\x\"",
      ":2:37: error: found \"x\"\"; expected \"u\"" },
    { HEADER "{\"step\":0,\"rank\":0,\"op\":0,\"kind\":\"a\\ud800\"",
      ":2:42: error: found \"\"\"; expected a different character before this one" },
    { HEADER OP "{\"step\":0,\"rank\":0,\"op\":0," MEMBERS "\"outputs\":[{\"buffer\":\"b\",",
      ":3:267: error: the line ends here; expected the key \"fingerprint\"" },
    { HEADER OP OP, ":3:1: error: op 0 of rank 0 in step 0 is already on line 2" },
    { HEADER "{\"step\":0,\"rank\":0,\"op\":0," MEMBERS "\"outputs\":[]} x\n",
      ":2:256: error: found \"x\"; expected the end of the line" },
    { HEADER "{\"steps_ps\":[1,2]}\n", ":2:15: error: found \",2]}\"; expected \"]\"" },
    { HEADER "{\"figures_of_rank\":1}\n",
      ":2:20: error: found \"1}\"; expected a whole number from 0 to 0" },
    { HEADER "{\"figures_of_rank\":0}\n", ":2:21: error: found \"}\"; expected \",\"" },
  };
  char path[PATH_BYTES];
  new_path(path);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    fputs(cases[i].text, out);
    fclose(out);
    arena a = { 0 };
    diag d = { 0 };
    trace t;
    intern_table texts = { .memory = &a };
    assert_false(trace_read(&t, path, &texts, &d));
    assert_int_equal(d.exit_status, 2);
    assert_string_equal(d.message + strlen(path), cases[i].message);
    trace_release(&t);
    arena_release(&a);
  }
  unlink(path);
}

/* Escaped characters are the same text in UTF-8; an op of each step has the same number. */
static void escapes_and_steps(void **state)
{
  (void)state;
  static const char text[] =
      "{\"format_version\":2,\"source\":\"ref\",\"scenario\":\"s\",\"ranks\":1,\"steps\":2}"
      "\n" OP_MODULE("0", "A\\u0042\\u00e9\\u20ac") OP_MODULE("1", "");
  arena a = { 0 };
  diag d = { 0 };
  trace t = { .ops = { 0 } };
  intern_table texts = { .memory = &a };
  FILE *in = fmemopen((void *)(uintptr_t)text, sizeof text - 1, "rb");
  assert_true(trace_read_stream(&t, "t", in, &texts, &d));
  assert_string_equal(d.message, "");
  assert_int_equal(t.ops.count, 2);
  assert_string_equal(t.ops.items[0].module, "AB\xc3\xa9\xe2\x82\xac");
  fclose(in);
  trace_release(&t);
  arena_release(&a);
}

/* ---- comparing ---- */

typedef struct two_traces {
  arena memory;
  trace of[2];
} two_traces;

/* One rank, one step; the last output is that of a list's op. */
static void put_op(trace *t, trace_op op, uint64_t contents)
{
  op.place = t->ops.count;
  op.first_output = t->outputs.count;
  *ARRAY_PUSH(&t->ops) = op;
  *ARRAY_PUSH(&t->outputs) = output_of(contents);
}

static two_traces empty_traces(void)
{
  two_traces t = { .memory = { 0 } };
  for (int i = 0; i < 2; i++)
    t.of[i].header = (trace_header){ "ref", "s", 1, 1 };
  return t;
}

static trace_comparison compare_both(two_traces *t)
{
  trace_comparison c;
  trace_compare(&c, &t->of[0], &t->of[1], &t->memory);
  return c;
}

static void release_both(two_traces *t)
{
  for (int i = 0; i < 2; i++)
    trace_release(&t->of[i]);
  arena_release(&t->memory);
}

/* Texts are compared as pointers: of a table, as if read. */
static const char add[] = "add", gemm[] = "gemm", copy[] = "d2h", module[] = "mlp";

static trace_op shared_op(uint32_t op, const char *call)
{
  trace_op o = op_of(0, op, call);
  static const char kernel[] = "kernel", name[] = "k", compute[] = "compute", forward[] = "forward";
  o.kind = call == copy ? copy : kernel;
  o.name = name;
  o.stream = compute;
  o.phase = forward;
  o.module = module;
  return o;
}

static void same_traces(void **state)
{
  (void)state;
  two_traces t = empty_traces();
  for (int i = 0; i < 2; i++) {
    put_op(&t.of[i], shared_op(1, add), 10);
    put_op(&t.of[i], shared_op(2, gemm), 20);
  }
  trace_comparison c = compare_both(&t);
  assert_true(c.same_order && c.same_bytes);
  assert_int_equal(c.outputs, 2);
  assert_int_equal(c.outputs_differ, 0);
  assert_int_equal(c.ranks[0].highest_a, 1024);
  release_both(&t);
}

/* The message names the first in time, not the first in the plan. */
static void other_bits_and_bytes(void **state)
{
  (void)state;
  two_traces t = empty_traces();
  for (int i = 0; i < 2; i++) {
    put_op(&t.of[i], shared_op(1, add), 10 + (uint64_t)i);
    put_op(&t.of[i], shared_op(2, gemm), 20 + (uint64_t)i);
    t.of[i].ops.items[0].place = 1;
    t.of[i].ops.items[1].place = 0;
  }
  t.of[1].ops.items[1].requested_bytes += 1;
  trace_comparison c = compare_both(&t);
  assert_true(c.same_order && !c.same_bytes);
  assert_int_equal(c.ranks[0].bytes_differ, 1);
  assert_ptr_equal(c.ranks[0].bytes.b, &t.of[1].ops.items[1]);
  assert_int_equal(c.outputs_differ, 2);
  assert_int_equal(c.output.a->op, 2);
  release_both(&t);
}

static void same_work_on_another_stream(void **state)
{
  (void)state;
  two_traces t = empty_traces();
  for (int i = 0; i < 2; i++)
    put_op(&t.of[i], shared_op(1, add), 10);
  t.of[1].ops.items[0].stream = "comm";
  trace_comparison c = compare_both(&t);
  assert_false(c.same_order);
  assert_ptr_equal(c.ranks[0].order.b, &t.of[1].ops.items[0]);
  release_both(&t);
}

/* A copy that only one has does not put what follows out of step; an op that comes once more, as in
 * a recomputation, is left out with those it could be taken for. */
static void aligned_by_place(void **state)
{
  (void)state;
  two_traces t = empty_traces();
  put_op(&t.of[0], shared_op(1, add), 10);
  put_op(&t.of[0], shared_op(2, gemm), 20);
  put_op(&t.of[0], shared_op(3, gemm), 30);
  put_op(&t.of[1], shared_op(1, copy), 1);
  put_op(&t.of[1], shared_op(2, add), 10);
  put_op(&t.of[1], shared_op(3, add), 11);
  put_op(&t.of[1], shared_op(4, gemm), 20);
  put_op(&t.of[1], shared_op(5, gemm), 31);
  trace_comparison c = compare_both(&t);
  assert_false(c.same_order);
  assert_int_equal(c.ranks[0].order.a->op, 1);
  assert_ptr_equal(c.ranks[0].order.b->call, copy);
  assert_int_equal(c.pairs, 2);
  assert_int_equal(c.only_a, 1);
  assert_int_equal(c.only_b, 3);
  assert_int_equal(c.outputs_differ, 1);
  assert_int_equal(c.output.a->op, 3);
  assert_int_equal(c.output.b->op, 5);
  release_both(&t);
}

/* The same call that writes another tensor is at another place. */
static void outputs_are_of_the_place(void **state)
{
  (void)state;
  static const char x[] = "x", y[] = "y";
  two_traces t = empty_traces();
  put_op(&t.of[0], shared_op(1, gemm), 10);
  put_op(&t.of[1], shared_op(1, copy), 1); /* puts what follows out of step */
  put_op(&t.of[1], shared_op(2, gemm), 10);
  t.of[0].outputs.items[0].buffer = x;
  t.of[1].outputs.items[1].buffer = y;
  trace_comparison c = compare_both(&t);
  assert_int_equal(c.pairs, 0);
  assert_int_equal(c.only_a, 1);
  assert_int_equal(c.only_b, 2);
  release_both(&t);
}

static void one_ends_sooner(void **state)
{
  (void)state;
  two_traces t = empty_traces();
  put_op(&t.of[0], shared_op(1, add), 10);
  t.of[1].header.ranks = 2;
  trace_comparison c = compare_both(&t);
  assert_int_equal(c.rank_count, 2);
  assert_false(c.same_order);
  assert_null(c.ranks[0].order.b);
  assert_int_equal(c.ranks[0].order.a->op, 1);
  assert_null(c.ranks[1].order.a);
  release_both(&t);
}

/* ---- packed files ---- */

/* Given up, or the disk is full before all is written: refused, and nothing half-written is left. */
static void no_part_of_a_packed_file(void **state)
{
  (void)state;
  char folder[PATH_BYTES], path[PATH_BYTES + 16];
  const char *parent = getenv("TMPDIR");
  snprintf(folder, sizeof folder, "%s/offsim-packed-XXXXXX", parent != NULL ? parent : "/tmp");
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/trace.json.gz", folder);
  struct rlimit before, full;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  full = (struct rlimit){ .rlim_cur = 1 << 12, .rlim_max = before.rlim_max };
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  diag d = { 0 };
  packed_file p;
  assert_true(packed_open(&p, path, &d));
  fputs("[", p.stream);
  packed_discard(&p);
  assert_int_equal(rmdir(folder), 0); /* it is empty */
  assert_int_equal(mkdir(folder, 0700), 0);
  assert_true(packed_open(&p, path, &d));
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &full), 0);
  for (int i = 0; i < 1 << 14; i++)
    fprintf(p.stream, "%d\n", i);
  assert_false(packed_close(&p, &d));
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  assert_int_equal(d.exit_status, DIAG_REFUSED);
  assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(round_trip),
    cmocka_unit_test(wrong_lines),
    cmocka_unit_test(escapes_and_steps),
    cmocka_unit_test(same_traces),
    cmocka_unit_test(other_bits_and_bytes),
    cmocka_unit_test(same_work_on_another_stream),
    cmocka_unit_test(aligned_by_place),
    cmocka_unit_test(one_ends_sooner),
    cmocka_unit_test(outputs_are_of_the_place),
    cmocka_unit_test(no_part_of_a_packed_file),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
