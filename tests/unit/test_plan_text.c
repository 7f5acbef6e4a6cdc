/*
 * The text form of plans: what is printed reads back to the same plan, and the one message that
 * each bad text gets.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "sim/base/file.h"
#include "sim/plan/text.h"

#define TWO_RANKS "tests/data/plan/two_ranks.plan"

/* The caller frees it. */
static char *printed(const plan *p, const bool *ranks)
{
  char *text = NULL;
  size_t length = 0;
  FILE *out = open_memstream(&text, &length);
  plan_print(out, p, ranks);
  fclose(out);
  return text;
}

static void read_plan(plan *p, const char *text, arena *a)
{
  diag d = { 0 };
  plan_parse(p, "t.plan", text, strlen(text), a, &d);
  assert_string_equal(d.message, "");
}

/* The text's plan, printed again. The caller frees it. */
static char *reprinted(const char *text, const bool *ranks)
{
  arena a = { 0 };
  plan p;
  read_plan(&p, text, &a);
  char *again = printed(&p, ranks);
  plan_release(&p);
  arena_release(&a);
  return again;
}

static void assert_prints(const char *text, const char *expected)
{
  char *again = reprinted(text, NULL);
  assert_string_equal(again, expected);
  free(again);
}

static const char *two_ranks(arena *a)
{
  diag d = { 0 };
  size_t length;
  const char *text = file_read(a, TWO_RANKS, PLAN_TEXT_LIMIT_BYTES, &length, &d);
  assert_string_equal(d.message, "");
  return text;
}

/* ---- what reads back ---- */

static void test_prints_what_it_read(void **state)
{
  (void)state;
  arena a = { 0 };
  const char *text = two_ranks(&a);
  assert_prints(text, text);
  arena_release(&a);
}

/* The free of "%2 after d2h", and the copy before it. */
static void check_first_rank(const plan *p)
{
  const rank_plan *r = &p->ranks[0];
  assert_int_equal(r->residents, 2);
  assert_int_equal(r->buffers.count, 8);
  assert_int_equal(r->events, 6);
  assert_int_equal(r->marks.count, 5);
  assert_int_equal(r->marks.items[2].kind, MARK_BACKWARD);
  assert_int_equal(r->buffers.items[1].mark, 0);
  assert_int_equal(r->buffers.items[6].mark, 2);
  assert_int_equal(r->buffers.items[5].host_key, 1);
  assert_int_equal(r->buffers.items[5].stream, STREAM_HOST);
  const plan_op *released = &r->ops.items[12];
  assert_int_equal(released->kind, OP_FREE);
  assert_int_equal(released->stream, STREAM_COMPUTE);
  assert_int_equal(released->arg, 2);
  assert_int_equal(released->operands, 1 << STREAM_D2H);
  const plan_op *copy = &r->ops.items[10];
  assert_int_equal(copy->kind, OP_D2H);
  assert_int_equal(copy->reads, 1);
  assert_int_equal(copy->writes, 1);
  assert_int_equal(r->operands.items[copy->operands], 2);
  assert_int_equal(r->operands.items[copy->operands + 1], 5);
  assert_string_equal(p->sites.items[copy->site].module, "embedding");
}

static void check_tables(const plan *p)
{
  const rank_plan *r = &p->ranks[0];
  const plan_op *norm = &r->ops.items[5];
  const plan_call *c = &p->calls.items[norm->arg];
  assert_int_equal(c->kind, KERNEL_RMSNORM_FORWARD);
  assert_int_equal(c->dtype, DTYPE_BF16);
  assert_int_equal(c->dims[0], 1024);
  assert_int_equal(c->dims[1], 512);
  assert_int_equal(c->bytes, 2101248);
  assert_int_equal(p->sites.items[norm->site].layer, 0);
  const plan_call *reduce = &p->calls.items[r->ops.items[6].arg];
  assert_int_equal(reduce->is_collective, 1);
  assert_int_equal(reduce->kind, COLLECTIVE_ALL_REDUCE);
  assert_int_equal(reduce->group, GROUP_TP);
  assert_int_equal(reduce->group_size, 8);
  assert_int_equal(reduce->group_stride, 1);
  const plan_tensor *t = &p->tensors.items[r->buffers.items[2].tensor];
  assert_string_equal(t->name, "hidden_states");
  assert_int_equal(t->rank, 3);
  assert_int_equal(t->shape[2], 512);
  assert_int_equal(p->messages.count, 2);
  assert_int_equal(p->messages.items[1].from_rank, 1);
  assert_int_equal(p->messages.items[1].to_rank, 0);
  assert_int_equal(p->messages.items[1].bytes, 1048576);
  assert_string_equal(p->sites.items[0].module, "");
  assert_int_equal(p->sites.items[0].layer, -1);
}

static void test_recovers_every_field(void **state)
{
  (void)state;
  arena a = { 0 };
  plan p;
  read_plan(&p, two_ranks(&a), &a);
  assert_int_equal(p.rank_count, 2);
  check_first_rank(&p);
  check_tables(&p);
  assert_int_equal(p.ranks[1].residents, 0);
  plan_release(&p);
  arena_release(&a);
}

/* One rank of two reads back alone, and messages keep their numbers. */
static void test_some_of_the_ranks(void **state)
{
  (void)state;
  arena a = { 0 };
  const char *text = two_ranks(&a);
  const bool second[] = { false, true };
  char *part = reprinted(text, second);
  assert_null(strstr(part, "rank 0\n"));
  assert_non_null(strstr(part, "\nrank 1\nsetup\n"));
  assert_prints(part, part);
  free(part);
  arena_release(&a);
}

#define HEAD "offsim-plan 1\nranks 2\n\nrank 0\n"

/* It has ops: a rank is left out only if it has neither. */
static void test_a_rank_without_buffers(void **state)
{
  (void)state;
  static const char text[] = HEAD "forward m0 c0\n";
  assert_prints(text, text);
}

static void test_free_spelling(void **state)
{
  (void)state;
  assert_prints("# a comment\n\noffsim-plan   1\n   ranks 2\n# another\nrank 0\n"
                "forward m0 c0\n"
                "alloc compute %0 x bf16[8] 16 bytes saved\n"
                "  kernel compute gemm bf16 k=3 n=2 m=1 batch=0 9 bytes -> %0 @ layer 7\n"
                "kernel compute square u8 elements=4 0 bytes %0",
                HEAD "forward m0 c0\n"
                     "  alloc      compute  %0 x bf16[8] 16 bytes saved\n"
                     "  kernel     compute  gemm bf16 m=1 n=2 k=3 9 bytes -> %0 @ layer 7\n"
                     "  kernel     compute  square elements=4 0 bytes %0\n");
}

/* Scalars, the largest numbers, and a pool without key. */
static void test_limits_of_fields(void **state)
{
  (void)state;
  const char *text = HEAD
      "forward m4294967295 c4294967295\n"
      "  alloc      previous %0 s fp32[] 9223372036854775807 bytes transient @ layer 2147483647 a\n"
      "  host_alloc host     %1 h u8[1,2,3,1537228672809129301] 0 bytes pinned_host key "
      "1048576\n"
      "  host_alloc host     %2 h u8[0] 0 bytes pinned_host\n"
      "  recv       next     msg 4194303 from rank 1 0 bytes -> %0\n"
      "  collective comm     all_to_all bf16 world of 4294967295 stride 4294967295 1 bytes\n"
      "  collective comm     all_to_all bf16 tp_ep of 64 stride 1 once 1024 7372 bytes\n"
      "  free       previous %0 after compute d2h h2d comm next @ dp\n";
  assert_prints(text, text);
}

static bool stops_the_program(const plan *p)
{
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    fclose(stderr);
    signal(SIGABRT, SIG_DFL);
    plan_assert_valid(p);
    _exit(0);
  }
  int status;
  assert_true(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

/* A plan that its own text form would refuse is a wrong program's. */
static void test_wrong_plans_stop_the_program(void **state)
{
  (void)state;
#define HELD "  resident   compute  %0 x u8[16] 16 bytes saved\n"
  static const char text[] =
      "offsim-plan 1\nranks 2\n\nrank 0\n" HELD
      "  send       next     msg 0 to rank 1 16 bytes %0\n\nrank 1\n" HELD
      "forward m0 c0\n  recv       previous msg 0 from rank 0 16 bytes -> %0\n";
  arena a = { 0 };
  plan p;
  read_plan(&p, text, &a);
  assert_false(stops_the_program(&p));
  p.ranks[1].ops.count--; /* nobody receives */
  assert_true(stops_the_program(&p));
  p.ranks[1].ops.count++;
  p.messages.items[0].to_rank = 0; /* rank 0 would send to itself */
  assert_true(stops_the_program(&p));
  p.messages.items[0].to_rank = 1;
  p.ranks[1].buffers.items[0].purpose = CLASS_PINNED_HOST; /* in device memory */
  assert_true(stops_the_program(&p));
  plan_release(&p);
  arena_release(&a);
}

/* A message is sent once and received once, even if each rank alone is valid. */
static void test_wrong_messages_stop_the_program(void **state)
{
  (void)state;
  static const char text[] = "offsim-plan 1\nranks 2\n\nrank 0\n" HELD
                             "  send       next     msg 0 to rank 1 16 bytes %0\n"
                             "  send       next     msg 1 to rank 1 16 bytes %0\n\nrank 1\n" HELD
                             "  recv       previous msg 0 from rank 0 16 bytes -> %0\n"
                             "  recv       previous msg 1 from rank 0 16 bytes -> %0\n";
  arena a = { 0 };
  plan p;
  read_plan(&p, text, &a);
  assert_false(stops_the_program(&p));
  p.ranks[0].ops.items[1].arg = 0; /* message 0 is sent twice, message 1 never */
  assert_true(stops_the_program(&p));
  p.ranks[1].ops.items[1].arg = 0; /* and is received twice */
  assert_true(stops_the_program(&p));
  plan_release(&p);
  arena_release(&a);
}

/* What is printed of one op is its line of the text. */
static void test_an_op_is_its_line(void **state)
{
  (void)state;
  arena a = { 0 };
  plan p;
  const char *text = two_ranks(&a);
  read_plan(&p, text, &a);
  for (uint32_t r = 0; r < p.rank_count; r++)
    for (uint32_t i = 0; i < p.ranks[r].ops.count; i++) {
      const char *line = text;
      for (int32_t n = 1; n < p.ranks[r].lines.items[i]; n++)
        line = strchr(line, '\n') + 1;
      char *found = NULL;
      size_t length = 0;
      FILE *out = open_memstream(&found, &length);
      plan_print_op(out, &p, r, i);
      fclose(out);
      line += strspn(line, " ");
      length = strcspn(line, "\n");
      const char *printed_line = found + strspn(found, " ");
      assert_int_equal(strcspn(printed_line, "\n"), length);
      assert_memory_equal(printed_line, line, length);
      free(found);
    }
  plan_release(&p);
  arena_release(&a);
}

/* ---- messages ---- */

static void assert_message(const char *text, const char *message)
{
  arena a = { 0 };
  diag d = { 0 };
  plan p;
  assert_false(plan_parse(&p, "t.plan", text, strlen(text), &a, &d));
  assert_string_equal(d.message, message);
  assert_int_equal(d.exit_status, 2);
  arena_release(&a);
}

typedef struct bad_text {
  const char *text, *message;
} bad_text;

static void assert_messages(const bad_text *cases, size_t count)
{
  for (size_t i = 0; i < count; i++)
    assert_message(cases[i].text, cases[i].message);
}

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

static void test_head_messages(void **state)
{
  (void)state;
  static const bad_text cases[] = {
    { "", "t.plan:1:1: error: the text ends here; a plan begins with \"offsim-plan\" and the "
          "version of "
          "its format" },
    { "model:\n",
      "t.plan:1:1: error: this is not a plan; a plan begins with \"offsim-plan\" and the "
      "version of its format" },
    { "offsim-plan 2\n",
      "t.plan:1:13: error: version 2 of the plan format; this offsim reads version 1" },
    { "offsim-plan\n",
      "t.plan:1:12: error: the line ends here; expected the number of a version, from "
      "0 to 9223372036854775807" },
    { "offsim-plan 1\n",
      "t.plan:2:1: error: the text ends here; expected \"ranks\" and their number" },
    { "offsim-plan 1\nranks 0\n",
      "t.plan:2:7: error: found \"0\"; expected the number of pipeline ranks, from 1 to 4096" },
    { "offsim-plan 1\nranks 4097\n",
      "t.plan:2:7: error: found \"4097\"; expected the number of pipeline ranks, from 1 to 4096" },
    { "offsim-plan 1\nranks 2\n",
      "t.plan:3:1: error: the text ends here; expected \"rank 0\" and its ops" },
    { "offsim-plan 1\nranks 2\nsetup\n", "t.plan:3:1: error: found \"setup\"; expected \"rank\"" },
    { "offsim-plan 1\nranks 2\nrank 2\n",
      "t.plan:3:6: error: rank 2; the plan has 2 ranks, from 0 on" },
    { HEAD, "t.plan:4:1: error: rank 0 has no ops; omit a rank that is not part of the text" },
    { HEAD "setup\nrank 0\n",
      "t.plan:6:6: error: rank 0 comes after rank 0; ranks come once and in order" },
    { HEAD "setup\n\x01\n",
      "t.plan:6:1: error: byte 0x01; a plan contains only printable ASCII characters, "
      "blanks and newlines" },
    { HEAD "setup\r\n",
      "t.plan:5:6: error: byte 0x0D; a plan contains only printable ASCII characters, blanks "
      "and newlines" },
  };
  assert_messages(cases, COUNT(cases));
}

#define BUFFERS                                                                                    \
  HEAD "  alloc compute %0 x u8[8] 8 bytes saved\n"                                                \
       "  host_alloc host %1 x u8[8] 8 bytes pinned_host\n" /* lines 5 and 6 */

static void test_line_messages(void **state)
{
  (void)state;
  static const bad_text cases[] = {
    { HEAD "kernel compute square elements=4 4 bytes -> x0\n",
      "t.plan:5:45: error: found \"x0\"; expected a buffer such as %0" },
    { HEAD "d2h d2h %x -> %1\n", "t.plan:5:9: error: found \"%x\"; expected a buffer such as %0" },
    { HEAD "aloc compute %0\n",
      "t.plan:5:1: error: found \"aloc\"; expected an op, a phase, a resident "
      "or a rank: did you mean \"alloc\"?" },
    { HEAD "mark host\n",
      "t.plan:5:1: error: found \"mark\"; expected the phase that it begins: setup, "
      "forward, backward, finish or optimizer" },
    { HEAD "forward\n",
      "t.plan:5:8: error: the line ends here; expected a micro-batch such as m0" },
    { HEAD "forward m1 0\n", "t.plan:5:12: error: found \"0\"; expected a chunk such as c0" },
    { HEAD "setup m0\n", "t.plan:5:7: error: found \"m0\"; expected the end of the line" },
    { HEAD "setup\nresident compute %0 x u8[] 0 bytes weight\n",
      "t.plan:6:1: error: a resident after ops; residents come first in their rank" },
    { HEAD "alloc gpu\n",
      "t.plan:5:7: error: found \"gpu\"; expected a stream: compute, d2h, h2d, comm, previous, "
      "next, a2a, disk_out, disk_in, pack, accumulate, weights, weights_odd, cpu, host" },
    { HEAD "alloc compute %1\n",
      "t.plan:5:15: error: found %1; buffers are numbered in the order of "
      "allocation and the next of this rank is %0" },
    { HEAD "alloc compute 0\n", "t.plan:5:15: error: found \"0\"; expected a buffer such as %0" },
    { HEAD "alloc compute %0\n",
      "t.plan:5:17: error: the line ends here; expected the buffer's name" },
    { HEAD "alloc compute %0 x 8\n", "t.plan:5:20: error: found \"8\"; expected type and at most 4 "
                                     "sizes, such as bf16[4096,1,128]" },
    { HEAD "alloc compute %0 x u8[1,2,3,4,5]\n",
      "t.plan:5:20: error: found \"u8[1,2,3,4,5]\"; expected "
      "type and at most 4 sizes, such as bf16[4096,1,128]" },
    { HEAD "alloc compute %0 x int[1]\n",
      "t.plan:5:20: error: found \"int[1]\"; expected a type (u8, "
      "fp8, bf16, fp16, fp32, fp64, i32, i64) and sizes" },
    { HEAD "alloc compute %0 x u8[1] -1 bytes\n",
      "t.plan:5:26: error: found \"-1\"; expected a number "
      "of bytes, from 0 to 9223372036854775807" },
    { HEAD "alloc compute %0 x u8[1] 9223372036854775808 bytes\n",
      "t.plan:5:26: error: found \"9223372036854775808\"; expected a number of bytes, from 0 to "
      "9223372036854775807" },
    { HEAD "alloc compute %0 x u8[1] 1 GiB\n",
      "t.plan:5:28: error: found \"GiB\"; expected \"bytes\"" },
    { HEAD "alloc compute %0 x u8[1] 1 bytes save\n",
      "t.plan:5:34: error: found \"save\"; expected a "
      "class of memory: did you mean \"saved\"?" },
    { HEAD "host_alloc host %0 x u8[1] 1 bytes pinned_host key 0\n",
      "t.plan:5:52: error: found \"0\"; expected the number of a pool key, from 1 to 1048576" },
    { HEAD "host_alloc host %0 x u8[1] 1 bytes pinned_host key 4000000000\n",
      "t.plan:5:52: error: found \"4000000000\"; expected the number of a pool key, from 1 to "
      "1048576" },
    { HEAD "alloc compute %0 x u8[1] 1 bytes saved layer 3\n",
      "t.plan:5:40: error: found \"layer\"; expected the end of the line, or a place such as \"@ "
      "layer 0 "
      "self_attention\"" },
    { HEAD "alloc compute %0 x u8[1] 1 bytes saved @\n",
      "t.plan:5:41: error: the line ends here; "
      "expected \"layer\" and its number, or the name of a module" },
    { HEAD "alloc compute %0 x u8[1] 1 bytes saved @ a b\n",
      "t.plan:5:44: error: found \"b\"; expected the end of the line" },
    { HEAD "kernel compute gemn\n", "t.plan:5:16: error: found \"gemn\"; expected a kernel of "
                                    "docs/reference/plan.md: did you mean \"gemm\"?" },
    { HEAD "kernel compute gemm bf16 m=1 q=2 4 bytes\n",
      "t.plan:5:30: error: found \"q=2\"; expected sizes by the letters m n k batch parts "
      "layout add fp8, each once, "
      "such as "
      "m=64" },
    { HEAD "kernel compute gemm m=1 m=2 4 bytes\n",
      "t.plan:5:25: error: found \"m=2\"; expected sizes by the letters m n k batch parts "
      "layout add fp8, each once, "
      "such as "
      "m=64" },
    { HEAD "kernel compute gemm m=1 4 bytes -> \n",
      "t.plan:5:36: error: the line ends here; expected a buffer such as %0" },
    { HEAD "collective compute all_reduce tp 8\n",
      "t.plan:5:34: error: found \"8\"; expected \"of\"" },
    { HEAD "collective compute all_reduce pp of 8\n",
      "t.plan:5:31: error: found \"pp\"; expected a process group: tp, cp, tp_cp, tp_dp, ep, etp, "
      "tp_ep, "
      "dp, "
      "edp, world, embd" },
    { HEAD "send comm msg 4194304 to rank 1 8 bytes\n",
      "t.plan:5:15: error: found \"4194304\"; expected the number of a message, from 0 to "
      "4194303" },
    { HEAD "send comm msg 0 from rank 1 8 bytes\n",
      "t.plan:5:17: error: found \"from\"; expected \"to\"" },
    { HEAD "send comm msg 0 to rank 0 8 bytes\n",
      "t.plan:5:25: error: rank 0 has no message to rank 0; expected another of the 2 ranks" },
    { BUFFERS "free compute %0 after host\n",
      "t.plan:7:23: error: found \"host\"; expected a device stream: compute, d2h, h2d, comm, "
      "previous, next, a2a, disk_out, disk_in, pack, accumulate, weights, weights_odd, cpu" },
    { HEAD "record compute e1\n",
      "t.plan:5:16: error: found e1; events are recorded once, numbered in "
      "this order, and the next of this rank is e0" },
  };
  assert_messages(cases, COUNT(cases));
}

#define PART                                                                                       \
  "; expected a buffer or a part of one, such as %0, %0{fp32+1024:4096x8/3072x1} or "              \
  "%0{bf16+8:2x4@4}"
#define OUT "t.plan:7:29: error: the part of %0 exceeds it; it has 8 bytes"

static void test_view_messages(void **state)
{
  (void)state;
  static const bad_text cases[] = {
    { BUFFERS "kernel compute copy 8 bytes %0{}\n", "t.plan:7:29: error: found \"{}\"" PART },
    { BUFFERS "kernel compute copy 8 bytes %0{u8+0:8x}\n",
      "t.plan:7:29: error: found \"{u8+0:8x}\"" PART },
    { BUFFERS "kernel compute copy 8 bytes %0{u8+0:2x4/4}\n",
      "t.plan:7:29: error: found \"{u8+0:2x4/4}\"" PART },
    { BUFFERS "kernel compute copy 8 bytes %0{u8+0:1x1x1x1x1x1x1}\n",
      "t.plan:7:29: error: found \"{u8+0:1x1x1x1x1x1x1}\"" PART },
    { BUFFERS "kernel compute copy 8 bytes %0{u8+0:4294967296x4294967296/0x0}\n",
      "t.plan:7:29: error: found \"{u8+0:4294967296x4294967296/0x0}\"" PART },
    { BUFFERS "kernel compute copy 8 bytes %0{u8+1:8}\n", OUT },
    { BUFFERS "kernel compute copy 8 bytes %0{u8+6:8/-1}\n", OUT },
    { BUFFERS "kernel compute copy 8 bytes %0{u8+7:3x3/-6x3}\n", OUT },
    { BUFFERS "kernel compute copy 8 bytes %0{fp64+9223372036854775807}\n", OUT },
    { BUFFERS "h2d h2d %1{u8+0:2x2/4x1} -> %0\n",
      "t.plan:7:9: error: a copy's part of a host buffer is contiguous; this one is not" },
    { BUFFERS "h2d h2d %1{u8+0:4} -> %0{u8+0:8}\n",
      "t.plan:7:23: error: the device's side of the copy has 8 bytes, the host's 4" },
    { BUFFERS "h2d h2d %1 -> %0{u8+5:4}\n",
      "t.plan:7:15: error: the part of %0 exceeds it; it has 8 bytes" },
  };
  assert_messages(cases, COUNT(cases));
}

#define USER HEAD "resident compute %0 x u8[16] 16 bytes driver\n"
#define UNEVEN                                                                                     \
  "t.plan:6:29: error: a part of %0 that turns over 4 ranks must be one of as many equal parts "   \
  "from its beginning"
#define CUTS "t.plan:7:29: error: %0 is of class driver; this part cuts others that turn"

/* Parts that tensor parallel ranks see in turn. */
static void test_turning_views(void **state)
{
  (void)state;
  static const bad_text cases[] = {
    { USER "kernel compute copy 8 bytes %0{u8+0:4@}\n",
      "t.plan:6:29: error: found \"{u8+0:4@}\"" PART },
    { USER "kernel compute copy 8 bytes %0{u8+0:4@1}\n",
      "t.plan:6:29: error: found \"{u8+0:4@1}\"" PART },
    { USER "kernel compute copy 8 bytes %0{u8+0:4@256}\n",
      "t.plan:6:29: error: found \"{u8+0:4@256}\"" PART },
    { USER "kernel compute copy 8 bytes %0{u8+2:4@4}\n", UNEVEN },
    { USER "kernel compute copy 8 bytes %0{u8+8:8@4}\n", UNEVEN },
    { USER "kernel compute copy 8 bytes %0{u8+0:2/2@4}\n", UNEVEN },
    { USER "kernel compute copy 8 bytes %0{u8+0:4@4}\n"
           "kernel compute copy 8 bytes %0{u8+0:8@2}\n",
      CUTS },
    { USER "kernel compute copy 8 bytes %0{u8+0:2@4}\n"
           "kernel compute copy 8 bytes %0{u8+4:4}\n",
      CUTS },
    { USER "kernel compute copy 8 bytes %0{u8+4:4}\n"
           "kernel compute copy 8 bytes %0{u8+0:2@4}\n",
      CUTS },
    { HEAD "collective comm shift tp of 4 stride 1 8 bytes\n",
      "t.plan:5:40: error: found \"8\"; expected \"by\"" },
    { HEAD "collective comm shift tp of 4 stride 1 by 4 8 bytes\n",
      "t.plan:5:43: error: found \"4\"; expected a number below that of the ranks, from 1 to 3" },
  };
  assert_messages(cases, COUNT(cases));
  const char *text =
      HEAD "  resident   compute  %0 x u8[24] 24 bytes driver\n"
           "  kernel     compute  copy 8 bytes %0{u8+12:4@4} -> %0{u8+0:4@4}\n"
           "  kernel     compute  copy 8 bytes %0{u8+0:16} %0{u8+16:8}\n"
           "  collective comm     shift tp of 4 stride 1 by 3 4 bytes %0{u8+0:2x2@4}\n";
  assert_prints(text, text);
}

/* Of ranks 0 to 3, each sees the part that is its index further on. */
static void test_what_a_rank_sees(void **state)
{
  (void)state;
  plan_view v = { .dtype = DTYPE_BF16, .rank = 2, .offset = 24, .shape = { 2, 4 }, .turned = 4 };
  v.strides[0] = 4;
  v.strides[1] = 1;
  static const int64_t offsets[] = { 24, 0, 8, 16 };
  for (uint32_t i = 0; i < COUNT(offsets); i++) {
    plan_view own = view_of_index(&v, i);
    assert_int_equal(own.offset, offsets[i]);
    assert_int_equal(own.turned, 0);
    assert_int_equal(view_elements(&own), 8);
  }
}

static void test_structure_messages(void **state)
{
  (void)state;
  static const bad_text cases[] = {
    { HEAD "alloc host %0 x u8[8] 8 bytes saved\n",
      "t.plan:5:1: error: alloc is in stream host; expected a device stream, such as compute" },
    { HEAD "host_work host 0\n",
      "t.plan:5:16: error: found \"0\"; expected a number of operators, from 1 to 1048576" },
    { HEAD "host_wait compute e0\n",
      "t.plan:5:1: error: host_wait is in stream compute; expected host" },
    { HEAD "alloc compute %0 x u8[8] 8 bytes pinned_host\n",
      "t.plan:5:15: error: %0 of class pinned_host is taken from compute; classes pinned_host, "
      "pageable_host and disk are taken from host, others from device streams" },
    { HEAD "resident compute %0 x u8[8] 8 bytes weight key 1\n",
      "t.plan:5:18: error: %0 has a pool key; only pinned_host buffers have one" },
    { BUFFERS "kernel compute copy 8 bytes %2\n",
      "t.plan:7:29: error: %2 is not allocated yet; rank 0 has allocated 2 buffers before this "
      "line" },
    { BUFFERS "free compute %0\nkernel compute copy 8 bytes -> %0\n",
      "t.plan:8:32: error: %0 is freed before this line; it can be used only from its allocation "
      "to its "
      "free" },
    { BUFFERS "free compute %0\nfree compute %0\n",
      "t.plan:8:14: error: %0 is freed before this line; it can be used only from its allocation "
      "to its "
      "free" },
    { BUFFERS "free d2h %0\n",
      "t.plan:7:10: error: %0 is freed to the pool of d2h; it was taken from that of compute" },
    { BUFFERS "free compute %1\n",
      "t.plan:7:14: error: %1 is in host memory; here free takes device memory" },
    { BUFFERS "host_free host %0\n",
      "t.plan:7:16: error: %0 is in device memory; here host_free takes host memory" },
    { BUFFERS "kernel compute copy 8 bytes %1\n",
      "t.plan:7:29: error: %1 is in host memory; here kernel takes device memory" },
    { BUFFERS "d2h d2h %0\n", "t.plan:7:1: error: d2h has 1 buffers before \"->\" and 0 after it; "
                              "expected one device buffer -> one host buffer" },
    { BUFFERS "h2d h2d %0 -> %1\n",
      "t.plan:7:9: error: %0 is in device memory; here h2d takes host memory" },
    { BUFFERS "host_alloc host %2 y u8[9] 9 bytes pinned_host\nd2h d2h %0 -> %2\n",
      "t.plan:8:9: error: %0 has 8 bytes; the copy is of the 9 bytes of %2 and must fit" },
    { BUFFERS "host_alloc host %2 f u8[8] 8 bytes disk\ndisk_read disk_in %2 -> %1\n",
      "t.plan:8:19: error: %2 is not written before this line; only a file that a disk_write has "
      "written can be read" },
    { BUFFERS "host_alloc host %2 f u8[8] 8 bytes disk\ndisk_write disk_out %0 -> %2\n",
      "t.plan:8:21: error: %0 is in device memory; here disk_write takes host memory" },
    { BUFFERS "host_alloc host %2 f u8[8] 8 bytes disk\nh2d h2d %2 -> %0\n",
      "t.plan:8:9: error: %2 is in files; here h2d takes host memory" },
    { BUFFERS "host_alloc host %2 f u8[9] 9 bytes disk\ndisk_write disk_out %1 -> %2\n"
              "disk_read disk_in %2 -> %1\nhost_free host %2\ndisk_read disk_in %2 -> %1\n",
      "t.plan:11:19: error: %2 is freed before this line; it can be used only from its allocation "
      "to its free" },
    { HEAD "setup\nwait d2h e1\nrecord compute e0\n",
      "t.plan:6:10: error: e1 is never recorded; rank 0 records 1 events, from e0 on" },
    { BUFFERS "send comm msg 3 to rank 1 8 bytes\n",
      "t.plan:7:1: error: send has 0 buffers before \"->\" and 0 after it; expected one device "
      "buffer "
      "that is sent" },
    { BUFFERS "send comm msg 3 to rank 1 8 bytes %0\nsend comm msg 3 to rank 1 8 bytes %0\n",
      "t.plan:8:15: error: msg 3 was sent in line 7; a message is sent once" },
    { BUFFERS "send comm msg 3 to rank 1 8 bytes %0\nrank 1\nalloc comm %0 x u8[8] 8 bytes saved\n"
              "recv comm msg 3 from rank 0 9 bytes -> %0\n",
      "t.plan:10:15: error: msg 3 goes from rank 0 to rank 1 with 9 bytes; line 7 says from rank 0 "
      "to "
      "rank 1 with 8 bytes" },
    { BUFFERS "send comm msg 3 to rank 1 8 bytes %0\nrank 1\nsetup\n",
      "t.plan:7:15: error: msg 3 is never received; rank 1 must receive it" },
    { BUFFERS "recv comm msg 3 from rank 1 8 bytes -> %0\nrank 1\nsetup\n",
      "t.plan:7:15: error: msg 3 is never sent; rank 1 must send it" },
  };
  assert_messages(cases, COUNT(cases));
}

/* A kernel can name 255 buffers on each side, not more. */
static void test_too_many_operands(void **state)
{
  (void)state;
  arena a = { 0 };
  char *text = arena_alloc(&a, 4096, 1);
  strcpy(text, BUFFERS "kernel compute copy 8 bytes");
  for (int i = 0; i < 256; i++)
    strcat(text, " %0");
  assert_message(text,
                 "t.plan:7:794: error: found \"%0\"; expected at most 255 buffers before and after "
                 "\"->\"");
  arena_release(&a);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_prints_what_it_read),
    cmocka_unit_test(test_recovers_every_field),
    cmocka_unit_test(test_some_of_the_ranks),
    cmocka_unit_test(test_free_spelling),
    cmocka_unit_test(test_limits_of_fields),
    cmocka_unit_test(test_head_messages),
    cmocka_unit_test(test_line_messages),
    cmocka_unit_test(test_view_messages),
    cmocka_unit_test(test_turning_views),
    cmocka_unit_test(test_what_a_rank_sees),
    cmocka_unit_test(test_a_rank_without_buffers),
    cmocka_unit_test(test_wrong_messages_stop_the_program),
    cmocka_unit_test(test_structure_messages),
    cmocka_unit_test(test_too_many_operands),
    cmocka_unit_test(test_an_op_is_its_line),
    cmocka_unit_test(test_wrong_plans_stop_the_program),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
