/* The verifier on plans of a few lines: what it finds in each, and nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sim/plan/text.h"
#include "sim/verify/verify.h"

enum { TEXT_BYTES = 512 };

#define BF16   " bf16[1024,512] 1048576 bytes "
#define KERNEL "  kernel compute elementwise bf16 elements=524288 1048576 bytes "

/* Without warnings and advice, the same errors are found. */
static void assert_errors_alone(const verification *all)
{
  arena a = { 0 };
  verification v;
  uint32_t same = 0;
  verify_errors(&v, all->plan, NULL, 1, &a);
  assert_int_equal(v.safe, all->safe);
  for (uint32_t i = 0; i < all->findings.count; i++) {
    const finding *f = &all->findings.items[i];
    if (finding_severity_of((finding_kind)f->kind) != SEVERITY_ERROR) continue;
    assert_true(same < v.findings.count);
    assert_int_equal(v.findings.items[same].kind, f->kind);
    assert_int_equal(v.findings.items[same].rank, f->rank);
    assert_int_equal(v.findings.items[same].first, f->first);
    assert_int_equal(v.findings.items[same].second, f->second);
    same++;
  }
  assert_int_equal(same, v.findings.count);
  assert_int_equal(same, v.counts[SEVERITY_ERROR]);
  verification_release(&v);
  arena_release(&a);
}

/* The plan's errors in order: "read_before_write 3" if the second op is number 3 of its rank. Advice,
 * warnings and races with the step before are left out. `missing`: how many of rank 0's last ops are
 * left out. */
static void assert_errors_without(const char *text, uint32_t missing, const char *expected)
{
  arena a = { 0 };
  diag d = { 0 };
  plan p;
  verification v;
  char found[TEXT_BYTES] = "";
  plan_parse(&p, "t.plan", text, strlen(text), &a, &d);
  assert_string_equal(d.message, "");
  p.ranks[0].ops.count -= missing;
  verify_plan(&v, &p, NULL, 1, &a);
  assert_int_equal(plan_is_safe(&p, NULL), v.safe);
  assert_errors_alone(&v);
  for (uint32_t i = 0; i < v.findings.count; i++) {
    const finding *f = &v.findings.items[i];
    size_t length = strlen(found);
    if (finding_severity_of((finding_kind)f->kind) == SEVERITY_ERROR && !f->step_before)
      snprintf(found + length, sizeof found - length, "%s%s %u", length > 0 ? ", " : "",
               finding_name((finding_kind)f->kind), f->second);
  }
  assert_string_equal(found, expected);
  assert_true(*expected == '\0' || !v.safe);
  verification_release(&v);
  plan_release(&p);
  arena_release(&a);
}

static void assert_errors(const char *text, const char *expected)
{
  assert_errors_without(text, 0, expected);
}

#define ONE_RANK "offsim-plan 1\nranks 1\n\nrank 0\n"
#define QUERY    "  resident compute %0 query" BF16 "saved\n"
#define OUT      "  host_alloc host %1 query" BF16 "pinned_host\n  d2h d2h %0 -> %1\n"

/* The host's wait for an event orders what it issues afterwards, if the event is recorded already. */
static void test_host_waits(void **state)
{
  (void)state;
  assert_errors(ONE_RANK QUERY OUT "  record d2h e0\n  host_wait host e0\n" KERNEL "-> %0\n"
                                   "  host_free host %1\n",
                "");
  assert_errors(ONE_RANK QUERY OUT "  alloc h2d %2 query" BF16 "reload\n"
                                   "  host_wait host e0\n  h2d h2d %1 -> %2\n  record d2h e0\n"
                                   "  host_free host %1\n  free h2d %2\n",
                "wait_before_record 3, read_before_write 4");
  assert_errors(ONE_RANK QUERY OUT "  alloc h2d %2 query" BF16 "reload\n"
                                   "  record d2h e0\n  host_wait host e0\n"
                                   "  h2d h2d %1 -> %2\n  record h2d e1\n  host_wait host e1\n"
                                   "  host_free host %1\n  free h2d %2\n",
                "");
}

/* What rank 0 had done when it sent comes back to its communication stream through ranks 1 and 2, so that its
 * copy needs no other wait. Without the middle of the way it does. */
#define RANK_0_SENDS                                                                               \
  "offsim-plan 1\nranks 3\n\nrank 0\n" QUERY "  resident compute %1 grad" BF16 "saved\n" KERNEL    \
  "-> %0\n  record compute e0\n  wait comm e0\n  send comm msg 0 to rank 1 1048576 bytes %0\n"
#define RANK_0_RECEIVES                                                                            \
  "  recv d2h msg 2 from rank 2 1048576 bytes -> %1\n  host_alloc host %2 query" BF16              \
  "pinned_host\n  d2h d2h %0 -> %2\n  host_free host %2\n\n"
#define RANK_1                                                                                     \
  "rank 1\n" QUERY "  recv comm msg 0 from rank 0 1048576 bytes -> %0\n  record comm e0\n"         \
  "  wait compute e0\n  send compute msg 1 to rank 2 1048576 bytes %0\n\n"
#define RANK_2_RECEIVES "  recv comm msg 1 from rank 1 1048576 bytes -> %0\n"
#define RANK_2_SENDS    "  send compute msg 2 to rank 0 1048576 bytes %0\n"

static void test_messages_carry_the_order_on(void **state)
{
  (void)state;
  assert_errors(RANK_0_SENDS RANK_0_RECEIVES RANK_1
                "rank 2\n" QUERY RANK_2_RECEIVES
                "  record comm e0\n  wait compute e0\n" RANK_2_SENDS,
                "");
  assert_errors(RANK_0_SENDS RANK_0_RECEIVES RANK_1 "rank 2\n" QUERY RANK_2_SENDS RANK_2_RECEIVES,
                "read_before_write 6, write_before_read 1");
}

/* The reader of plans refuses such a text; a compiled plan would have it by mistake. */
static void test_missing_send(void **state)
{
  (void)state;
  static const char text[] = "offsim-plan 1\nranks 2\n\nrank 0\n" QUERY KERNEL
                             "%0 -> %0\n  record compute e0\n  wait comm e0\n"
                             "  send comm msg 0 to rank 1 1048576 bytes %0\n\nrank 1\n" QUERY
                             "  recv comm msg 0 from rank 0 1048576 bytes -> %0\n";
  assert_errors(text, "");
  assert_errors_without(text, 1, "deadlock 0, mismatched_messages 0");
}

/* A copy that nothing reads may be overwritten, but not what a kernel reads. */
static void test_overwritten_reads(void **state)
{
  (void)state;
  static const char copied[] = ONE_RANK QUERY OUT KERNEL "-> %0\n  host_free host %1\n";
  static const char used[] = ONE_RANK QUERY
      "  resident compute %1 sum" BF16 "saved\n"
      "  kernel comm elementwise bf16 elements=524288 2097152 bytes %0 -> %1\n" KERNEL "-> %0\n";
  assert_errors(copied, "");
  assert_errors(used, "write_before_read 1");
}

/* The first write into a block answers for its former uses. */
static void test_a_reused_block_is_reported_once(void **state)
{
  (void)state;
  assert_errors(ONE_RANK QUERY "  alloc compute %1 key" BF16 "saved\n" KERNEL "-> %1\n"
                               "  record compute e0\n  wait d2h e0\n"
                               "  host_alloc host %2 key" BF16 "pinned_host\n  d2h d2h %1 -> %2\n"
                               "  free compute %1\n  alloc compute %3 sum" BF16 "saved\n" KERNEL
                               "-> %3\n" KERNEL "-> %3\n  host_free host %2\n  free compute %3\n",
                "block_reused 8");
}

#define HALF     "  kernel compute elementwise bf16 elements=262144 1048576 bytes "
#define OTHERS   "  kernel comm elementwise bf16 elements=262144 1048576 bytes "
#define ROWS     "%0{bf16+0:262144}"
#define REST     "%0{bf16+262144:262144}"
#define MIDDLE   "%0{bf16+131072:262144}"
#define BACKWARD "%0{bf16+524287:262144/-1}"

/* Ops on different parts of a buffer need no order, ops on parts that meet do; a use of the whole
 * answers for all parts. */
static void test_parts_of_a_buffer(void **state)
{
  (void)state;
  static const struct {
    const char *ops, *errors;
  } cases[] = {
    { HALF "-> " ROWS "\n" OTHERS REST " -> " REST "\n", "" },
    { HALF "-> " ROWS "\n" OTHERS BACKWARD " -> " BACKWARD "\n", "" },
    { HALF "-> " ROWS "\n" OTHERS "-> " MIDDLE "\n", "write_before_write 1" },
    { HALF "-> " ROWS "\n" OTHERS MIDDLE "\n", "read_before_write 1" },
    { HALF ROWS "\n" OTHERS "-> " MIDDLE "\n", "write_before_read 1" },
    { HALF "-> " ROWS "\n" OTHERS "-> " REST "\n" KERNEL "-> %0\n", "write_before_write 2" },
    { HALF "-> " ROWS "\n  record compute e0\n" HALF "-> " REST "\n  wait comm e0\n" OTHERS
           "-> " ROWS "\n" OTHERS "-> " REST "\n",
      "write_before_write 5" },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[4 * TEXT_BYTES];
    snprintf(text, sizeof text, "%s%s", ONE_RANK QUERY, cases[i].ops);
    assert_errors(text, cases[i].errors);
  }
}

#define TURNING(class)                                                                             \
  "  resident compute %0 x u8[16] 16 bytes " class "\n  kernel compute copy 8 bytes "              \
                                                   "%0{u8+0:4@4}\n"
#define SHIFT(to) "  collective comm shift tp of 4 stride 1 by 1 4 bytes %0{u8+0:4@4} -> " to "\n"

/* Two parts that turn meet on all ranks or on none, if all parts of the buffer turn. */
static void test_parts_that_turn(void **state)
{
  (void)state;
  static const struct {
    const char *ops, *errors;
  } cases[] = {
    { TURNING("driver") SHIFT("%0{u8+12:4@4}"), "" },
    { TURNING("driver") SHIFT("%0{u8+0:4@4}"), "write_before_read 1" },
    { TURNING("driver") SHIFT("%0{u8+0:16}"), "write_before_read 1" },
    { TURNING("driver") SHIFT("%0"), "write_before_read 1" },
    { TURNING("saved") SHIFT("%0{u8+12:4@4}"), "write_before_read 1" },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[2 * TEXT_BYTES];
    snprintf(text, sizeof text, "%s%s", ONE_RANK, cases[i].ops);
    assert_errors(text, cases[i].errors);
  }
}

/* Each part's first write answers for the former uses of the block; a part is enough to have written
 * the buffer. */
static void test_parts_of_a_block(void **state)
{
  (void)state;
  static const char text[] =
      ONE_RANK QUERY "  alloc compute %1 key" BF16 "saved\n" KERNEL "-> %1\n"
                     "  record compute e0\n  wait d2h e0\n"
                     "  host_alloc host %2 key" BF16 "pinned_host\n  d2h d2h %1 -> %2\n"
                     "  free compute %1\n  alloc compute %3 sum" BF16 "saved\n" HALF
                     "-> %3{bf16+0:262144}\n" HALF "-> %3{bf16+262144:262144}\n" HALF
                     "-> %3{bf16+0:262144}\n  host_free host %2\n  free compute %3\n";
  static const char half_written[] =
      ONE_RANK QUERY "  alloc compute %1 key" BF16 "saved\n" HALF "-> %1{bf16+0:262144}\n" HALF
                     "%1{bf16+262144:262144}\n  free compute %1\n";
  assert_errors(text, "block_reused 8, block_reused 9");
  assert_errors(half_written, "");
}

/* A block that stays has to be of a pool, class and size that the iteration began with. */
static void test_leaks(void **state)
{
  (void)state;
  static const struct {
    const char *stays, *errors;
  } cases[] = {
    { "  alloc compute %1 query" BF16 "saved\n", "" },
    { "  alloc h2d %1 query" BF16 "saved\n", "leak 1" },
    { "  alloc compute %1 query" BF16 "transient\n", "leak 1" },
    { "  alloc compute %1 query bf16[512,512] 524288 bytes saved\n", "leak 1" },
    { "  alloc compute %1 query" BF16 "saved\n  alloc compute %2 key" BF16 "saved\n", "leak 2" },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[4 * TEXT_BYTES];
    snprintf(text, sizeof text, "%s%s", ONE_RANK QUERY "  free compute %0\n", cases[i].stays);
    assert_errors(text, cases[i].errors);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_host_waits),
    cmocka_unit_test(test_messages_carry_the_order_on),
    cmocka_unit_test(test_missing_send),
    cmocka_unit_test(test_overwritten_reads),
    cmocka_unit_test(test_a_reused_block_is_reported_once),
    cmocka_unit_test(test_parts_of_a_buffer),
    cmocka_unit_test(test_parts_that_turn),
    cmocka_unit_test(test_parts_of_a_block),
    cmocka_unit_test(test_leaks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
