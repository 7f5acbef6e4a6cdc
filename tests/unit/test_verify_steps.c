/*
 * The verifier: rendezvous of several ranks, cycles of waits, contents that nothing writes, and one
 * step after another.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "sim/base/arena.h"
#include "sim/plan/text.h"
#include "sim/verify/verify.h"

#define GRADIENT "  resident   compute  %0 gradient fp32[1024] 4096 bytes gradient\n"
#define KERNEL   "elementwise fp32 elements=1024 8192 bytes"

typedef struct checked {
  plan plan;
  verification v;
  arena memory;
} checked;

static void check(checked *c, const char *text)
{
  diag d = { 0 };
  *c = (checked){ 0 };
  plan_parse(&c->plan, "t.plan", text, strlen(text), &c->memory, &d);
  assert_string_equal(d.message, "");
  verify_plan(&c->v, &c->plan, NULL, 1, &c->memory);
}

static void release(checked *c)
{
  verification_release(&c->v);
  plan_release(&c->plan);
  arena_release(&c->memory);
}

/* The only error, or NULL: the plan is safe. */
static const finding *error_of(const checked *c)
{
  const finding *found = NULL;
  for (uint32_t i = 0; i < c->v.findings.count; i++) {
    const finding *f = &c->v.findings.items[i];
    if (finding_severity_of((finding_kind)f->kind) != SEVERITY_ERROR) continue;
    assert_null(found);
    found = f;
  }
  assert_int_equal(c->v.safe, found == NULL);
  return found;
}

static void expect(const char *text, finding_kind kind, uint32_t rank, uint32_t second)
{
  checked c;
  check(&c, text);
  const finding *f = error_of(&c);
  assert_non_null(f);
  assert_string_equal(finding_name((finding_kind)f->kind), finding_name(kind));
  assert_int_equal(f->rank, rank);
  assert_int_equal(f->second, second);
  release(&c);
}

static void expect_safe(const char *text, uint64_t assumed)
{
  checked c;
  check(&c, text);
  assert_null(error_of(&c));
  assert_int_equal(c.v.assumed, assumed);
  release(&c);
}

/* ---- collectives ---- */

#define REDUCE(group, stride)                                                                      \
  "  collective comm     all_reduce " group " stride " stride " 4096 bytes %0 -> %0\n"
#define OTHER_WORK "  kernel     comm     " KERNEL " %0 -> %0\n"

static void test_a_collective_that_one_rank_never_issues(void **state)
{
  (void)state;
  expect("offsim-plan 1\nranks 2\nrank 0\n" GRADIENT REDUCE("world of 2",
                                                            "1") "rank 1\n" GRADIENT OTHER_WORK,
         FINDING_MISSING_COLLECTIVE, 0, 0);
  /* each rank of the plan represents both members */
  expect_safe("offsim-plan 1\nranks 2 of 4\nrank 0\n" GRADIENT REDUCE(
                  "tp of 2", "1") "rank 1\n" GRADIENT OTHER_WORK,
              0);
  /* the first and the last of three; the one between them is no member */
  expect("offsim-plan 1\nranks 3 of 6\nrank 0\n" GRADIENT REDUCE(
             "embd of 2", "4") "rank 1\n" GRADIENT OTHER_WORK "rank 2\n" GRADIENT OTHER_WORK,
         FINDING_MISSING_COLLECTIVE, 0, 0);
  expect_safe("offsim-plan 1\nranks 3 of 6\nrank 0\n" GRADIENT REDUCE(
                  "embd of 2", "4") "rank 1\n" GRADIENT OTHER_WORK
                                    "rank 2\n" GRADIENT REDUCE("embd of 2", "4"),
              0);
}

/* Four ranks of two GPUs each, groups of two at a distance of four: ranks 1 and 3 share groups,
 * the others are no members. */
static void test_a_group_to_the_end_of_its_block(void **state)
{
  (void)state;
#define MEMBER REDUCE("embd of 2", "4")
  expect_safe("offsim-plan 1\nranks 4 of 8\nrank 0\n" GRADIENT OTHER_WORK "rank 1\n" GRADIENT MEMBER
              "rank 2\n" GRADIENT OTHER_WORK "rank 3\n" GRADIENT MEMBER,
              0);
  expect("offsim-plan 1\nranks 4 of 8\nrank 0\n" GRADIENT OTHER_WORK "rank 1\n" GRADIENT OTHER_WORK
         "rank 2\n" GRADIENT OTHER_WORK "rank 3\n" GRADIENT MEMBER,
         FINDING_MISSING_COLLECTIVE, 3, 0);
}

static void test_collectives_without_operands(void **state)
{
  (void)state;
#define BARE "  collective comm     all_reduce world of 2 stride 1 4096 bytes\n"
  expect_safe("offsim-plan 1\nranks 2\nrank 0\n" BARE "rank 1\n" BARE, 0);
}

static void test_members_that_the_plan_does_not_have(void **state)
{
  (void)state;
  expect_safe("offsim-plan 1\nranks 2\nrank 0\n" GRADIENT REDUCE(
                  "dp of 8", "1") "rank 1\n" GRADIENT OTHER_WORK,
              1);
  expect_safe("offsim-plan 1\nranks 2\nrank 1\n" GRADIENT REDUCE("dp of 2", "1"), 1);
  expect_safe("offsim-plan 1\nranks 3\nrank 1\n" GRADIENT
              "  recv       comm     msg 0 from rank 0 4096 bytes -> %0\n" OTHER_WORK
              "  send       comm     msg 1 to rank 2 4096 bytes %0\n",
              2);
}

static void test_collectives_in_another_order(void **state)
{
  (void)state;
#define TWO   "  resident   compute  %1 other fp32[512] 2048 bytes gradient\n"
#define SMALL "  collective comm     all_reduce world of 2 stride 1 2048 bytes %1 -> %1\n"
  expect("offsim-plan 1\nranks 2\nrank 0\n" GRADIENT TWO REDUCE("world of 2", "1") SMALL
         "rank 1\n" GRADIENT TWO SMALL REDUCE("world of 2", "1"),
         FINDING_MISMATCHED_COLLECTIVES, 1, 0);
  expect_safe("offsim-plan 1\nranks 2\nrank 0\n" GRADIENT TWO REDUCE("world of 2", "1") SMALL
              "rank 1\n" GRADIENT TWO REDUCE("world of 2", "1") SMALL,
              0);
  checked c;
  check(&c, "offsim-plan 1\nranks 2\nrank 0\n" GRADIENT TWO REDUCE("world of 2", "1") SMALL
        "rank 1\n" GRADIENT TWO SMALL REDUCE("world of 2", "1"));
  const finding *f = error_of(&c);
  assert_int_equal(f->place_count, 1); /* what it does not match */
  assert_int_equal(c.v.places.items[f->places].rank, 0);
  assert_int_equal(c.v.places.items[f->places].op, 0);
  release(&c);
  /* two communicators on one stream: each rank is at the other's second */
  check(&c, "offsim-plan 1\nranks 2\nrank 0\n" GRADIENT REDUCE("world of 2", "1")
                REDUCE("dp of 2", "1") "rank 1\n" GRADIENT REDUCE("dp of 2", "1")
                    REDUCE("world of 2", "1"));
  assert_int_equal(error_of(&c)->kind, FINDING_DEADLOCK);
  release(&c);
}

/* Rank 1 writes on comm what rank 0's message brought to d2h: a collective between comm of both
 * ranks comes after rank 0's send, and the send after rank 1's receive has begun, not ended. So a
 * kernel before the send on rank 0 is done, and a receive on another stream is not. */
static void test_knowledge_travels_through_collectives(void **state)
{
  (void)state;
#define RANK_0 "offsim-plan 1\nranks 2\nrank 0\n" GRADIENT REDUCE("world of 2", "1")
#define ROUND                                                                                      \
  "rank 1\n" GRADIENT "  resident   compute  %1 x fp32[1024] 4096 bytes saved\n"                   \
  "  kernel     d2h      " KERNEL " %1 -> %1\n"                                                    \
  "  send       d2h      msg 0 to rank 0 4096 bytes %1\n"
#define BACK                                                                                       \
  REDUCE("world of 2", "1")                                                                        \
  "  kernel     comm     " KERNEL " %1 -> %1\n"                                                    \
  "  record     comm     e0\n  wait       d2h      e0\n"
  checked c;
  /* rank 0 receives before the collective: what rank 1 did before the send is done after it */
  check(&c, "offsim-plan 1\nranks 2\nrank 0\n" GRADIENT
            "  recv       comm     msg 0 from rank 1 4096 bytes -> %0\n" REDUCE("world of 2", "1")
                ROUND BACK);
  const finding *f = error_of(&c);
  assert_int_equal(f->kind, FINDING_WRITE_BEFORE_READ); /* the send itself may go on */
  assert_int_equal(f->first, 1);
  release(&c);
  /* without the message back, the kernel may go on too: its write is not done */
  check(&c, RANK_0 "  recv       comm     msg 0 from rank 1 4096 bytes -> %0\n" ROUND BACK);
  bool kernel_is_done = true;
  for (uint32_t i = 0; i < c.v.findings.count; i++)
    if (c.v.findings.items[i].kind == FINDING_READ_BEFORE_WRITE) kernel_is_done = false;
  assert_false(kernel_is_done);
  release(&c);
}

/* d2h knows of the second message when it waits for the first: that wait adds nothing, also about
 * the rank that sent them. */
static void test_a_wait_that_adds_nothing(void **state)
{
  (void)state;
#define SEND(n) "  send       comm     msg " n " to rank 1 4096 bytes %0\n"
#define TAKE(n) "  recv       comm     msg " n " from rank 0 4096 bytes -> %0\n"
  checked c;
  check(&c,
        "offsim-plan 1\nranks 2\nrank 0\n" GRADIENT SEND("0")
            OTHER_WORK SEND("1") "rank 1\n" GRADIENT TAKE("0") "  record     comm     e0\n" TAKE(
                "1") "  record     comm     e1\n  wait       d2h      e1\n  wait       d2h      "
                     "e0\n");
  uint32_t implied = 0;
  for (uint32_t i = 0; i < c.v.findings.count; i++) {
    const finding *f = &c.v.findings.items[i];
    if (f->kind != FINDING_IMPLIED_WAIT) continue;
    assert_int_equal(f->rank, 1);
    assert_int_equal(f->second, 5);
    implied++;
  }
  assert_int_equal(implied, 1);
  release(&c);
}

/* ---- contents ---- */

static void test_a_block_that_nothing_writes(void **state)
{
  (void)state;
#define BLOCK "  alloc      compute  %1 x fp32[1024] 4096 bytes saved"
#define USE   "  kernel     compute  " KERNEL " %1 -> %0\n  free       compute  %1\n"
  expect("offsim-plan 1\nranks 1\nrank 0\n" GRADIENT BLOCK "\n" USE, FINDING_NEVER_WRITTEN, 0, 1);
  expect_safe("offsim-plan 1\nranks 1\nrank 0\n" GRADIENT BLOCK " filled\n" USE, 0);
  expect_safe("offsim-plan 1\nranks 1\nrank 0\n" GRADIENT "setup\n" BLOCK "\nforward m0 c0\n" USE,
              0);
}

/* ---- messages of one exchange ---- */

static void test_an_exchange_has_no_order(void **state)
{
  (void)state;
#define RECEIVE(n) "  recv       comm     msg " n " from rank 0 4096 bytes -> %0\n"
  expect("offsim-plan 1\nranks 2\nrank 1\n" GRADIENT RECEIVE("0") RECEIVE("1"),
         FINDING_WRITE_BEFORE_WRITE, 1, 1);
  expect_safe("offsim-plan 1\nranks 2\nrank 1\n" GRADIENT RECEIVE("0") OTHER_WORK RECEIVE("1"), 2);
}

/* ---- one step after another ---- */

static void test_the_next_step(void **state)
{
  (void)state;
#define OUT "  resident   host     %1 copy fp32[1024] 4096 bytes pinned_host\n"
#define STEP                                                                                       \
  "  kernel     compute  " KERNEL                                                                  \
  " %0 -> %0\n  record     compute  e0\n  wait       d2h      e0\n"                                \
  "  d2h        d2h      %0 -> %1\n"
#define END "  record     d2h      e1\n  wait       compute  e1\n"
  checked c;
  check(&c, "offsim-plan 1\nranks 1\nrank 0\n" GRADIENT OUT STEP);
  const finding *f = error_of(&c);
  assert_int_equal(f->kind, FINDING_WRITE_BEFORE_READ);
  assert_true(f->step_before);
  assert_int_equal(f->first, 3);
  assert_int_equal(f->second, 0);
  assert_int_equal(c.plan.ranks[0].lines.items[f->first], 9);
  release(&c);
  expect_safe("offsim-plan 1\nranks 1\nrank 0\n" GRADIENT OUT STEP END, 0);
  /* a step that builds the model is not repeated */
  expect_safe("offsim-plan 1\nranks 1\nrank 0\n" GRADIENT OUT "setup\n" STEP, 0);
}

/* What the step before wrote: the first read by a stream is the race, and the reads after it are
 * the same one. */
static void test_reads_of_the_step_before_are_one_race(void **state)
{
  (void)state;
#define READ "  kernel     comm     " KERNEL " %0 -> %1\n"
  checked c;
  check(&c, "offsim-plan 1\nranks 1\nrank 0\n" GRADIENT
            "  resident   compute  %1 sum fp32[1024] 4096 bytes gradient\n" READ READ
            "  record     comm     e0\n  wait       compute  e0\n"
            "  kernel     compute  " KERNEL " -> %0\n");
  const finding *f = error_of(&c);
  assert_int_equal(f->kind, FINDING_READ_BEFORE_WRITE);
  assert_true(f->step_before);
  assert_int_equal(f->first, 4);
  assert_int_equal(f->second, 0);
  release(&c);
}

/* A block that stays is the next step's resident of the same name and size. */
static void test_a_block_that_takes_a_residents_place(void **state)
{
  (void)state;
#define X "x fp32[1024] 4096 bytes saved\n"
#define TAKE_PLACE                                                                                 \
  "offsim-plan 1\nranks 1\nrank 0\n  resident   compute  %0 " X                                    \
  "  resident   compute  %1 sum fp32[1024] 4096 bytes gradient\n"                                  \
  "  kernel     compute  " KERNEL " %0 -> %1\n  free       compute  %0\n"                          \
  "  alloc      compute  %2 " X "  record     compute  e0\n  wait       comm     e0\n"             \
  "  kernel     comm     " KERNEL " -> %2\n"
  checked c;
  check(&c, TAKE_PLACE);
  const finding *f = error_of(&c);
  assert_int_equal(f->kind, FINDING_READ_BEFORE_WRITE);
  assert_true(f->step_before);
  assert_int_equal(f->second, 0);
  release(&c);
  expect_safe(TAKE_PLACE "  record     comm     e1\n  wait       compute  e1\n", 0);
}

/* A step that frees a resident allocates it again: its block may be one that is still copied out. */
static void test_a_resident_that_the_step_frees(void **state)
{
  (void)state;
#define FREE_WHILE_COPIED(marks)                                                                   \
  "offsim-plan 1\nranks 1\nrank 0\n  resident   compute  %0 " X "  kernel     compute  " KERNEL    \
  " -> %0\n  record     compute  e0\n  wait       d2h      e0\n"                                   \
  "  host_alloc host     %1 x fp32[1024] 4096 bytes pinned_host\n"                                 \
  "  d2h        d2h      %0 -> %1\n  free       compute  %0" marks "\n  host_free  host     %1\n"
  checked c;
  check(&c, FREE_WHILE_COPIED(""));
  const finding *f = error_of(&c);
  assert_int_equal(f->kind, FINDING_BLOCK_REUSED);
  assert_true(f->step_before);
  assert_int_equal(f->first, 4);
  assert_int_equal(f->second, 0);
  release(&c);
  expect_safe(FREE_WHILE_COPIED(" after d2h"), 0);
  expect_safe(FREE_WHILE_COPIED("") "  record     d2h      e1\n  wait       compute  e1\n", 0);
}

/* The wait for the step before must not be called redundant. */
static void test_a_wait_for_the_step_before_is_of_use(void **state)
{
  (void)state;
  checked c;
  check(&c, "offsim-plan 1\nranks 1\nrank 0\n" GRADIENT OUT
            "  record     d2h      e0\n  wait       compute  e0\n"
            "  kernel     compute  " KERNEL " %0 -> %0\n  record     compute  e1\n"
            "  wait       d2h      e1\n  d2h        d2h      %0 -> %1\n");
  assert_null(error_of(&c));
  assert_int_equal(c.v.findings.count, 0);
  release(&c);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_collective_that_one_rank_never_issues),
    cmocka_unit_test(test_a_group_to_the_end_of_its_block),
    cmocka_unit_test(test_collectives_without_operands),
    cmocka_unit_test(test_a_wait_that_adds_nothing),
    cmocka_unit_test(test_reads_of_the_step_before_are_one_race),
    cmocka_unit_test(test_a_block_that_takes_a_residents_place),
    cmocka_unit_test(test_a_resident_that_the_step_frees),
    cmocka_unit_test(test_members_that_the_plan_does_not_have),
    cmocka_unit_test(test_collectives_in_another_order),
    cmocka_unit_test(test_knowledge_travels_through_collectives),
    cmocka_unit_test(test_a_block_that_nothing_writes),
    cmocka_unit_test(test_an_exchange_has_no_order),
    cmocka_unit_test(test_the_next_step),
    cmocka_unit_test(test_a_wait_for_the_step_before_is_of_use),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
