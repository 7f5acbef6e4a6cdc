/*
 * When things happen: hand-made plans on the machine `ideal`, whose times can be worked out in the
 * head, and Megatron's offloading against its recurrence. Times in these plans are thousands of
 * picoseconds.
 */
#include <stdio.h>

#include "tests/unit/small_plan.h"
#include "tests/unit/small_runs.h"

#include "sim/base/units.h"
#include "sim/engine/engine.h"

enum { RANKS = 3 };

typedef struct bench {
  arena memory;
  plan plan;
  machine *machine;
  rank_place places[RANKS];
  timeline times;
} bench;

static bench *bench_new(arena *holder)
{
  bench *b = ARENA_NEW(holder, bench);
  b->plan = plan_new(RANKS, &b->memory);
  b->machine = ideal_machine(&b->memory);
  for (uint32_t r = 0; r < RANKS; r++)
    b->places[r] = (rank_place){ .host = 0, .gpu = r, .multiplicity = 1 };
  return b;
}

static void bench_run(bench *b)
{
  diag d = { 0 };
  simulate(&b->times, &b->plan, b->machine, b->places, &d);
  assert_string_equal(d.message, "");
}

static void bench_end(bench *b, arena *holder)
{
  timeline_release(&b->times);
  plan_release(&b->plan);
  arena_release(&b->memory);
  arena_release(holder);
}

static int64_t start_of(const bench *b, uint32_t rank, uint32_t op)
{
  return op_start_ps(&b->times.ranks[rank], op);
}

static int64_t end_of(const bench *b, uint32_t rank, uint32_t op)
{
  return op_end_ps(&b->times.ranks[rank], op);
}

#define K 1000

/* ---- streams, events, the host ---- */

static void test_streams_run_in_order_and_beside_each_other(void **state)
{
  (void)state;
  arena holder = { 0 };
  bench *b = bench_new(&holder);
  uint32_t first = add_kernel(&b->plan, 0, STREAM_COMPUTE, 5 * K);
  uint32_t beside = add_kernel(&b->plan, 0, STREAM_COMM, 3 * K);
  uint32_t second = add_kernel(&b->plan, 0, STREAM_COMPUTE, 2 * K);
  bench_run(b);
  assert_int_equal(start_of(b, 0, first), 0);
  assert_int_equal(end_of(b, 0, first), 5 * K);
  assert_int_equal(start_of(b, 0, beside), 0);
  assert_int_equal(start_of(b, 0, second), 5 * K);
  assert_int_equal(b->times.ranks[0].compute_busy_ps, 7 * K);
  assert_int_equal(b->times.ranks[0].end_of_rank_ps, 7 * K);
  assert_int_equal(b->times.step_ps, 7 * K);
  bench_end(b, &holder);
}

static void test_event_orders_two_streams(void **state)
{
  (void)state;
  arena holder = { 0 };
  bench *b = bench_new(&holder);
  rank_plan *r = &b->plan.ranks[0];
  add_kernel(&b->plan, 0, STREAM_COMM, 6 * K);
  add_kernel(&b->plan, 0, STREAM_COMPUTE, 1 * K);
  add_join(r, STREAM_COMPUTE, STREAM_COMM);
  uint32_t after = add_kernel(&b->plan, 0, STREAM_COMPUTE, 1 * K);
  add_join(r, STREAM_COMM, STREAM_COMPUTE); /* has happened: delays nothing */
  uint32_t last = add_kernel(&b->plan, 0, STREAM_COMM, 1 * K);
  bench_run(b);
  assert_int_equal(start_of(b, 0, after), 6 * K);
  assert_int_equal(start_of(b, 0, last), 7 * K);
  assert_int_equal(b->times.ranks[0].comm_wait_ps, 5 * K);
  bench_end(b, &holder);
}

static void test_host_issues_one_op_after_another(void **state)
{
  (void)state;
  arena holder = { 0 };
  bench *b = bench_new(&holder);
  rank_plan *r = &b->plan.ranks[0];
  b->machine->issue.kernel_ns = 4;
  b->machine->issue.alloc_ns = 1;
  b->machine->issue.event_ns = 2;
  uint32_t buffer = add_buffer(r, 512, STREAM_COMPUTE);
  uint32_t taken = add_op(r, OP_ALLOC, STREAM_COMPUTE, buffer);
  uint32_t first = add_kernel(&b->plan, 0, STREAM_COMPUTE, 1 * K);
  uint32_t second = add_kernel(&b->plan, 0, STREAM_COMPUTE, 10 * K);
  uint32_t event = add_record(r, STREAM_COMPUTE);
  uint32_t wait = add_op(r, OP_HOST_WAIT, STREAM_HOST, event);
  uint32_t third = add_kernel(&b->plan, 0, STREAM_COMPUTE, 1 * K);
  bench_run(b);
  assert_int_equal(start_of(b, 0, taken), 1 * K);
  assert_int_equal(start_of(b, 0, first), 5 * K);
  assert_int_equal(start_of(b, 0, second), 9 * K); /* launch-bound: the stream has waited */
  assert_int_equal(end_of(b, 0, wait), 19 * K);
  assert_int_equal(start_of(b, 0, third), 23 * K);
  bench_end(b, &holder);
}

/* A pass that runs in turns with another one is prepared once, a pass of its own each time. */
static void test_host_prepares_a_pass_once(void **state)
{
  static const plan_mark marks[] = {
    { MARK_FORWARD, 1, 0 },  { MARK_BACKWARD, 0, 1 }, { MARK_FORWARD, 1, 0 },
    { MARK_BACKWARD, 0, 1 }, { MARK_FORWARD, 1, 1 },  { MARK_FORWARD, 2, 1 },
  };
  (void)state;
  arena holder = { 0 };
  bench *b = bench_new(&holder);
  rank_plan *r = &b->plan.ranks[0];
  b->machine->issue.forward_ns = 10;
  b->machine->issue.backward_ns = 3;
  for (uint32_t i = 0; i < sizeof marks / sizeof *marks; i++) {
    *ARRAY_PUSH(&r->marks) = marks[i];
    add_op(r, OP_MARK, STREAM_HOST, r->marks.count - 1);
  }
  uint32_t last = add_kernel(&b->plan, 0, STREAM_COMPUTE, 1 * K);
  bench_run(b);
  assert_int_equal(start_of(b, 0, last), (3 * 10 + 3) * K);
  bench_end(b, &holder);
}

/* The first stage's first chunk and the last stage's last one get a batch, the others none. */
static void test_host_gets_batches_at_both_ends(void **state)
{
  static const int64_t expected[RANKS][2] = { { 1, 0 }, { 0, 0 }, { 0, 1 } };
  (void)state;
  arena holder = { 0 };
  bench *b = bench_new(&holder);
  uint32_t kernels[RANKS][2];
  b->machine->issue.batch_ns = 7;
  for (uint32_t rank = 0; rank < RANKS; rank++)
    for (uint32_t chunk = 0; chunk < 2; chunk++) {
      rank_plan *r = &b->plan.ranks[rank];
      *ARRAY_PUSH(&r->marks) = (plan_mark){ MARK_FORWARD, 0, chunk };
      add_op(r, OP_MARK, STREAM_HOST, r->marks.count - 1);
      kernels[rank][chunk] = add_kernel(&b->plan, rank, STREAM_COMPUTE, 0);
    }
  bench_run(b);
  for (uint32_t rank = 0; rank < RANKS; rank++) {
    int64_t first = start_of(b, rank, kernels[rank][0]);
    assert_int_equal(first, 7 * K * expected[rank][0]);
    assert_int_equal(start_of(b, rank, kernels[rank][1]) - first, 7 * K * expected[rank][1]);
  }
  bench_end(b, &holder);
}

/* The host gets no further ahead than the queues reach; memory is no part of them. */
static void test_full_queue_holds_the_host(void **state)
{
  (void)state;
  arena holder = { 0 };
  bench *b = bench_new(&holder);
  rank_plan *r = &b->plan.ranks[0];
  b->machine->issue.queue_ops = 3;
  uint32_t buffer = add_buffer(r, 512, STREAM_COMPUTE), ahead[6];
  for (int i = 0; i < 6; i++) {
    add_kernel(&b->plan, 0, STREAM_COMPUTE, 10 * K);
    ahead[i] = add_op(r, i % 2 == 0 ? OP_ALLOC : OP_FREE, STREAM_COMPUTE, buffer);
  }
  uint32_t other = add_kernel(&b->plan, 0, STREAM_COMM, 1 * K);
  bench_run(b);
  assert_int_equal(start_of(b, 0, ahead[2]), 0);
  assert_int_equal(start_of(b, 0, ahead[3]), 0); /* the first kernel has begun */
  assert_int_equal(start_of(b, 0, ahead[4]), 10 * K);
  assert_int_equal(start_of(b, 0, ahead[5]), 20 * K);
  assert_int_equal(start_of(b, 0, other), 20 * K);
  assert_int_equal(b->times.ranks[0].comm_wait_ps, 0);
  assert_int_equal(b->times.step_ps, 60 * K);
  bench_end(b, &holder);
}

/* A copy leaves the queue when it begins, not when it ends: what the host issues then is in time. */
static void test_full_queue_of_copies(void **state)
{
  (void)state;
  arena holder = { 0 };
  bench *b = bench_new(&holder);
  rank_plan *r = &b->plan.ranks[0];
  b->machine->issue.queue_ops = 1;
  add_kernel(&b->plan, 0, STREAM_COMPUTE, 2 * K);
  add_join(r, STREAM_H2D, STREAM_COMPUTE);
  uint32_t first = add_copy(r, OP_H2D, STREAM_H2D, 8 * K);
  uint32_t second = add_copy(r, OP_H2D, STREAM_H2D, 8 * K);
  uint32_t other = add_copy(r, OP_D2H, STREAM_D2H, 8 * K);
  bench_run(b);
  assert_int_equal(start_of(b, 0, first), 2 * K);
  assert_int_equal(start_of(b, 0, second), end_of(b, 0, first));
  assert_int_equal(start_of(b, 0, other), 2 * K);
  assert_true(end_of(b, 0, first) > 2 * K);
  bench_end(b, &holder);
}

static void test_graph_is_issued_at_once(void **state)
{
  (void)state;
  arena holder = { 0 };
  bench *b = bench_new(&holder);
  rank_plan *r = &b->plan.ranks[0];
  b->machine->issue.kernel_ns = 4;
  b->machine->issue.event_ns = 2;
  b->machine->issue.framework_ns = 10;
  b->machine->issue.graph_launch_ns = 7;
  uint32_t before = add_kernel(&b->plan, 0, STREAM_COMPUTE, 1 * K);
  uint32_t begin = add_op(r, OP_GRAPH_BEGIN, STREAM_HOST, 0);
  uint32_t first = add_kernel(&b->plan, 0, STREAM_COMPUTE, 2 * K);
  add_join(r, STREAM_COMM, STREAM_COMPUTE);
  uint32_t second = add_kernel(&b->plan, 0, STREAM_COMPUTE, 2 * K);
  add_op(r, OP_GRAPH_END, STREAM_HOST, 0);
  uint32_t after = add_kernel(&b->plan, 0, STREAM_COMPUTE, 1 * K);
  bench_run(b);
  assert_int_equal(start_of(b, 0, before), 14 * K);
  assert_int_equal(end_of(b, 0, begin), 31 * K);
  assert_int_equal(start_of(b, 0, first), 31 * K);
  assert_int_equal(start_of(b, 0, second), 33 * K);
  assert_int_equal(start_of(b, 0, after), 45 * K);
  bench_end(b, &holder);
}

static void test_host_works_between_launches(void **state)
{
  (void)state;
  arena holder = { 0 };
  bench *b = bench_new(&holder);
  b->machine->issue.operator_ns = 7;
  uint32_t first = add_kernel(&b->plan, 0, STREAM_COMPUTE, 1 * K);
  add_op(&b->plan.ranks[0], OP_HOST_WORK, STREAM_HOST, 3);
  uint32_t after = add_kernel(&b->plan, 0, STREAM_COMPUTE, 1 * K);
  bench_run(b);
  int64_t launch_ps = start_of(b, 0, first);
  assert_int_equal(start_of(b, 0, after), 2 * launch_ps + 21 * K);
  bench_end(b, &holder);
}

static void test_host_waits_for_a_copy(void **state)
{
  (void)state;
  arena holder = { 0 };
  bench *b = bench_new(&holder);
  rank_plan *r = &b->plan.ranks[0];
  add_kernel(&b->plan, 0, STREAM_COMPUTE, 3 * K);
  add_copy(r, OP_D2H, STREAM_D2H, 8 * K);
  uint32_t event = add_record(r, STREAM_D2H);
  add_op(r, OP_HOST_WAIT, STREAM_HOST, event);
  uint32_t after = add_kernel(&b->plan, 0, STREAM_COMPUTE, 1 * K);
  bench_run(b);
  assert_int_equal(start_of(b, 0, after), 8 * K);
  assert_int_equal(b->times.ranks[0].exposed_d2h_ps, 5 * K); /* compute had ended at 3 */
  bench_end(b, &holder);
}

/* Idle time has one cause: where compute waits for a stream or works, the host's wait costs nothing. */
static void test_a_wait_beside_the_hosts_counts_once(void **state)
{
  (void)state;
  arena holder = { 0 };
  bench *b = bench_new(&holder);
  rank_plan *r = &b->plan.ranks[0];
  add_kernel(&b->plan, 0, STREAM_COMM, 6 * K);
  add_kernel(&b->plan, 0, STREAM_COMPUTE, 3 * K);
  add_join(r, STREAM_COMPUTE, STREAM_COMM);
  add_kernel(&b->plan, 0, STREAM_COMPUTE, 1 * K);
  add_copy(r, OP_D2H, STREAM_D2H, 8 * K);
  uint32_t event = add_record(r, STREAM_D2H);
  add_op(r, OP_HOST_WAIT, STREAM_HOST, event);
  uint32_t after = add_kernel(&b->plan, 0, STREAM_COMPUTE, 1 * K);
  bench_run(b);
  const rank_timeline *t = &b->times.ranks[0];
  assert_int_equal(start_of(b, 0, after), 8 * K);
  assert_int_equal(t->comm_wait_ps, 3 * K);
  assert_int_equal(t->exposed_d2h_ps, 1 * K);
  assert_int_equal(t->compute_busy_ps + t->comm_wait_ps + t->exposed_d2h_ps, t->end_of_rank_ps);
  bench_end(b, &holder);
}

/* What the host reads has the engine after the copies that were issued before, unless these wait. */
static void test_host_reads_after_copies(void **state)
{
  (void)state;
  arena holder = { 0 };
  bench *b = bench_new(&holder);
  rank_plan *r = &b->plan.ranks[0];
  b->machine->link.d2h_latency_ns = 1;
  add_kernel(&b->plan, 0, STREAM_COMPUTE, 3 * K);
  add_copy(r, OP_D2H, STREAM_D2H, 8 * K);
  add_copy(r, OP_D2H, STREAM_D2H, 4 * K);
  uint32_t event = add_record(r, STREAM_COMPUTE);
  add_kernel(&b->plan, 0, STREAM_COMM, 90 * K);
  add_join(r, STREAM_PACK, STREAM_COMM);
  uint32_t waits = add_copy(r, OP_D2H, STREAM_PACK, 5 * K);
  add_op(r, OP_HOST_READ, STREAM_HOST, event);
  uint32_t after = add_kernel(&b->plan, 0, STREAM_COMPUTE, 1 * K);
  bench_run(b);
  assert_int_equal(start_of(b, 0, after), 15 * K); /* 3 copies have a latency */
  assert_int_equal(start_of(b, 0, waits), 90 * K);
  assert_int_equal(b->times.ranks[0].exposed_d2h_ps, 11 * K); /* from 3 to 14 */
  bench_end(b, &holder);
}

/* ---- copies ---- */

static void test_copy_engines(void **state)
{
  (void)state;
  arena holder = { 0 };
  bench *b = bench_new(&holder);
  rank_plan *r = &b->plan.ranks[0];
  uint32_t out = add_copy(r, OP_D2H, STREAM_D2H, 4 * K);
  uint32_t next = add_copy(r, OP_D2H, STREAM_D2H, 2 * K);
  uint32_t in = add_copy(r, OP_H2D, STREAM_H2D, 5 * K); /* the other engine */
  add_join(r, STREAM_COMPUTE, STREAM_H2D);
  uint32_t use = add_kernel(&b->plan, 0, STREAM_COMPUTE, 1 * K);
  bench_run(b);
  assert_int_equal(end_of(b, 0, out), 4 * K);
  assert_int_equal(start_of(b, 0, next), 4 * K);
  assert_int_equal(end_of(b, 0, next), 6 * K);
  assert_int_equal(end_of(b, 0, in), 5 * K);
  assert_int_equal(start_of(b, 0, use), 5 * K);
  assert_int_equal(b->times.ranks[0].exposed_h2d_ps, 5 * K);
  assert_int_equal(b->times.ranks[0].d2h_busy_ps, 6 * K);
  assert_int_equal(b->times.ranks[0].h2d_busy_ps, 5 * K);
  assert_int_equal(b->times.step_ps, 6 * K);
  bench_end(b, &holder);
}

/* One engine for each direction, on any stream: copies are served as they become ready. */
static void test_copy_on_the_compute_stream(void **state)
{
  (void)state;
  arena holder = { 0 };
  bench *b = bench_new(&holder);
  rank_plan *r = &b->plan.ranks[0];
  uint32_t ahead = add_copy(r, OP_H2D, STREAM_H2D, 4 * K);
  add_kernel(&b->plan, 0, STREAM_COMPUTE, 1 * K);
  uint32_t behind = add_copy(r, OP_H2D, STREAM_COMPUTE, 2 * K);
  uint32_t use = add_kernel(&b->plan, 0, STREAM_COMPUTE, 1 * K);
  bench_run(b);
  assert_int_equal(end_of(b, 0, ahead), 4 * K);
  assert_int_equal(start_of(b, 0, behind), 4 * K);
  assert_int_equal(start_of(b, 0, use), 6 * K);
  assert_int_equal(b->times.ranks[0].exposed_h2d_ps, 5 * K);
  bench_end(b, &holder);
}

/* Each host has its own links, with any number of hosts. */
static void test_copies_of_other_hosts_take_no_part(void **state)
{
  (void)state;
  arena holder = { 0 };
  bench *b = bench_new(&holder);
  uint32_t copy[RANKS];
  for (uint32_t r = 0; r < RANKS; r++) {
    b->places[r].host = r;
    copy[r] = add_copy(&b->plan.ranks[r], OP_D2H, STREAM_D2H, (3 + r) * K);
  }
  bench_run(b);
  for (uint32_t r = 0; r < RANKS; r++)
    assert_int_equal(end_of(b, r, copy[r]), (3 + r) * K);
  bench_end(b, &holder);
}

/* Copies of one stream wait for each other, whichever way they go; waiting counts for the last's way. */
static void test_one_stream_copies_both_ways(void **state)
{
  (void)state;
  arena holder = { 0 };
  bench *b = bench_new(&holder);
  rank_plan *r = &b->plan.ranks[0];
  add_copy(r, OP_D2H, STREAM_D2H, 4 * K);
  add_join(r, STREAM_COMPUTE, STREAM_D2H);
  uint32_t back = add_copy(r, OP_H2D, STREAM_D2H, 3 * K);
  add_join(r, STREAM_COMPUTE, STREAM_D2H);
  bench_run(b);
  assert_int_equal(start_of(b, 0, back), 4 * K);
  assert_int_equal(b->times.ranks[0].exposed_d2h_ps, 4 * K);
  assert_int_equal(b->times.ranks[0].exposed_h2d_ps, 3 * K);
  bench_end(b, &holder);
}

/* Two GPUs of a host whose side takes one and a half of their links: both copy at three
 * quarters. */
static void test_ranks_share_the_host(void **state)
{
  (void)state;
  arena holder = { 0 };
  bench *b = bench_new(&holder);
  b->machine->host.d2h_bytes_per_us = 75000;
  uint32_t first = add_copy(&b->plan.ranks[0], OP_D2H, STREAM_D2H, 6 * K);
  uint32_t second = add_copy(&b->plan.ranks[1], OP_D2H, STREAM_D2H, 12 * K);
  b->places[2].host = 1; /* another host: the full rate */
  uint32_t third = add_copy(&b->plan.ranks[2], OP_D2H, STREAM_D2H, 6 * K);
  bench_run(b);
  assert_int_equal(end_of(b, 0, first), 8 * K);
  assert_int_equal(end_of(b, 1, second), 14 * K); /* 6 of 12 in the first 8, then alone */
  assert_int_equal(end_of(b, 2, third), 6 * K);
  bench_end(b, &holder);
}

/* By a tenth for the part that overlaps a copy out, by a fifth for the part that overlaps a copy
 * back. */
static void test_copies_slow_the_kernels_that_they_meet(void **state)
{
  (void)state;
  arena holder = { 0 };
  bench *b = bench_new(&holder);
  rank_plan *r = &b->plan.ranks[0];
  b->machine->link.memory_slowdown_d2h_permille = 100;
  b->machine->link.memory_slowdown_h2d_permille = 200;
  add_copy(r, OP_D2H, STREAM_D2H, 4 * K);
  add_copy(r, OP_D2H, STREAM_D2H, 1 * K);
  add_copy(r, OP_H2D, STREAM_H2D, 2 * K);
  uint32_t both = add_kernel(&b->plan, 0, STREAM_COMPUTE, 4 * K);
  uint32_t rest = add_kernel(&b->plan, 0, STREAM_COMPUTE, 10 * K);
  uint32_t alone = add_kernel(&b->plan, 0, STREAM_COMPUTE, 10 * K);
  bench_run(b);
  assert_int_equal(end_of(b, 0, both), 4 * K + 400 + 400);
  assert_int_equal(end_of(b, 0, rest) - start_of(b, 0, rest), 10 * K + 100);
  assert_int_equal(end_of(b, 0, alone) - start_of(b, 0, alone), 10 * K);
  assert_int_equal(b->times.ranks[0].compute_busy_ps, 24 * K + 900);
  bench_end(b, &holder);
}

/* A collective by NVLink and compute slow each other for the part of their time that they share; one on the
 * stream of compute, or between hosts, slows nothing. */
static void test_collectives_and_compute_slow_each_other(void **state)
{
  (void)state;
  for (int apart = 0; apart < 2; apart++) {
    arena holder = { 0 };
    bench *b = bench_new(&holder);
    b->machine->nvlink.memory_slowdown_nccl_permille = 100;
    b->machine->nvlink.nccl_slowdown_permille = 500;
    if (apart) b->machine->host.gpus = 1;
    uint32_t gathered = add_gather(&b->plan, 0, STREAM_COMM, 4000);
    uint32_t first = add_kernel(&b->plan, 0, STREAM_COMPUTE, 4 * K);
    uint32_t second = add_kernel(&b->plan, 0, STREAM_COMPUTE, 20 * K);
    uint32_t own = add_gather(&b->plan, 0, STREAM_COMPUTE, 4000);
    bench_run(b);
    int64_t alone_ps = end_of(b, 0, own) - start_of(b, 0, own);
    assert_true(alone_ps > 4 * K && (apart || alone_ps < 24 * K));
    assert_int_equal(end_of(b, 0, gathered), apart ? alone_ps : alone_ps + alone_ps / 2);
    assert_int_equal(end_of(b, 0, first), apart ? 4 * K : 4 * K + 400);
    assert_int_equal(end_of(b, 0, second) - start_of(b, 0, second),
                     apart ? 20 * K : 20 * K + (alone_ps - 4 * K) / 10);
    bench_end(b, &holder);
  }
}

/* The kernel between copies begins when compute's kernel of that time ends, and its copy after it. */
static void test_copying_kernel_waits_for_multiprocessors(void **state)
{
  (void)state;
  arena holder = { 0 };
  bench *b = bench_new(&holder);
  rank_plan *r = &b->plan.ranks[0];
  add_copy(r, OP_D2H, STREAM_D2H, 3 * K);
  uint32_t packed = add_kernel(&b->plan, 0, STREAM_D2H, 2 * K);
  uint32_t copied = add_copy(r, OP_D2H, STREAM_D2H, 1 * K);
  uint32_t first = add_kernel(&b->plan, 0, STREAM_COMPUTE, 10 * K);
  add_kernel(&b->plan, 0, STREAM_COMPUTE, 10 * K);
  uint32_t free = add_kernel(&b->plan, 0, STREAM_COMM, 10 * K);
  bench_run(b);
  assert_int_equal(end_of(b, 0, first), 10 * K);
  assert_int_equal(end_of(b, 0, packed), 12 * K);
  assert_int_equal(end_of(b, 0, copied), 13 * K);
  assert_int_equal(end_of(b, 0, free), 10 * K);
  bench_end(b, &holder);
}

/* A copy out for 10 and one back for 5, while compute works for 8 and `streams` wait for it. */
static void add_copies_beside(bench *b, const plan_stream *streams, uint32_t count,
                              uint32_t copies[2])
{
  rank_plan *r = &b->plan.ranks[0];
  b->machine->link.waiting_slowdown_d2h_permille = 100;
  b->machine->link.waiting_slowdown_h2d_permille = 200;
  copies[0] = add_copy(r, OP_D2H, STREAM_D2H, 10 * K);
  copies[1] = add_copy(r, OP_H2D, STREAM_H2D, 5 * K);
  add_kernel(&b->plan, 0, STREAM_COMPUTE, 8 * K);
  for (uint32_t i = 0; i < count; i++) {
    add_join(r, streams[i], STREAM_COMPUTE);
    add_kernel(&b->plan, 0, streams[i], 1 * K);
  }
}

/* By a tenth and a fifth, for the part that overlaps them. */
static void test_two_streams_that_wait_slow_copies(void **state)
{
  (void)state;
  static const plan_stream two[] = { STREAM_PREVIOUS, STREAM_NEXT };
  arena holder = { 0 };
  bench *b = bench_new(&holder);
  uint32_t copies[2];
  add_copies_beside(b, two, 2, copies);
  bench_run(b);
  assert_int_equal(end_of(b, 0, copies[0]), 10 * K + 800);
  assert_int_equal(end_of(b, 0, copies[1]), 5 * K + 1000);
  bench_end(b, &holder);
}

/* Nor do streams that only copy count. */
static void test_one_stream_that_waits_slows_none(void **state)
{
  (void)state;
  static const plan_stream one[] = { STREAM_COMM };
  arena holder = { 0 };
  bench *b = bench_new(&holder);
  uint32_t copies[2];
  add_copies_beside(b, one, 1, copies);
  add_join(&b->plan.ranks[0], STREAM_H2D, STREAM_COMPUTE);
  bench_run(b);
  assert_int_equal(end_of(b, 0, copies[0]), 10 * K);
  assert_int_equal(end_of(b, 0, copies[1]), 5 * K);
  bench_end(b, &holder);
}

/* A stream in an exchange has work in hand: one more that waits is enough. */
static void test_exchange_and_a_stream_that_waits_slow_copies(void **state)
{
  (void)state;
  static const plan_stream one[] = { STREAM_NEXT };
  arena holder = { 0 };
  bench *b = bench_new(&holder);
  uint32_t copies[2], message = add_message(&b->plan, 1, 0, 0);
  add_copies_beside(b, one, 1, copies);
  add_op(&b->plan.ranks[0], OP_RECV, STREAM_PREVIOUS, message);
  add_kernel(&b->plan, 1, STREAM_COMM, 4 * K);
  add_op(&b->plan.ranks[1], OP_SEND, STREAM_COMM, message);
  bench_run(b);
  assert_int_equal(end_of(b, 0, copies[0]), 10 * K + 400);
  bench_end(b, &holder);
}

/* A copy that the host slows down more does not get slower: 20 instead of 10. */
static void test_slow_host_hides_what_waiting_costs(void **state)
{
  (void)state;
  static const plan_stream two[] = { STREAM_PREVIOUS, STREAM_NEXT };
  arena holder = { 0 };
  bench *b = bench_new(&holder);
  uint32_t copies[2];
  b->machine->host.d2h_bytes_per_us = 25000;
  add_copies_beside(b, two, 2, copies);
  bench_run(b);
  assert_int_equal(end_of(b, 0, copies[0]), 20 * K);
  bench_end(b, &holder);
}

static void test_copies_have_a_fixed_part(void **state)
{
  (void)state;
  arena holder = { 0 };
  bench *b = bench_new(&holder);
  b->machine->link.d2h_latency_ns = 3;
  add_copy(&b->plan.ranks[0], OP_D2H, STREAM_D2H, 2 * K);
  uint32_t second = add_copy(&b->plan.ranks[0], OP_D2H, STREAM_D2H, 1 * K);
  bench_run(b);
  assert_int_equal(start_of(b, 0, second), 5 * K);
  assert_int_equal(end_of(b, 0, second), 9 * K);
  bench_end(b, &holder);
}

/* ---- messages ---- */

static void test_message_begins_when_both_sides_are_there(void **state)
{
  (void)state;
  arena holder = { 0 };
  bench *b = bench_new(&holder);
  uint32_t message = add_message(&b->plan, 0, 1, 4 * K);
  add_kernel(&b->plan, 0, STREAM_COMPUTE, 7 * K);
  add_join(&b->plan.ranks[0], STREAM_COMM, STREAM_COMPUTE);
  uint32_t send = add_op(&b->plan.ranks[0], OP_SEND, STREAM_COMM, message);
  uint32_t receive = add_op(&b->plan.ranks[1], OP_RECV, STREAM_COMM, message);
  add_join(&b->plan.ranks[1], STREAM_COMPUTE, STREAM_COMM);
  uint32_t use = add_kernel(&b->plan, 1, STREAM_COMPUTE, 1 * K);
  bench_run(b);
  assert_int_equal(end_of(b, 0, send), 11 * K);
  assert_int_equal(start_of(b, 1, receive), 0);
  assert_int_equal(end_of(b, 1, receive), 11 * K);
  assert_int_equal(start_of(b, 1, use), 11 * K);
  assert_int_equal(b->times.ranks[1].comm_wait_ps, 11 * K);
  bench_end(b, &holder);
}

/* Each rank sends before it receives: as one exchange that is no deadlock. */
static void test_exchange(void **state)
{
  (void)state;
  arena holder = { 0 };
  bench *b = bench_new(&holder);
  uint32_t forth = add_message(&b->plan, 0, 1, 4 * K), back = add_message(&b->plan, 1, 0, 6 * K);
  uint32_t sent = add_op(&b->plan.ranks[0], OP_SEND, STREAM_COMM, forth);
  uint32_t received = add_op(&b->plan.ranks[0], OP_RECV, STREAM_COMM, back);
  add_op(&b->plan.ranks[1], OP_SEND, STREAM_COMM, back);
  add_op(&b->plan.ranks[1], OP_RECV, STREAM_COMM, forth);
  uint32_t next = add_kernel(&b->plan, 0, STREAM_COMM, 1 * K);
  bench_run(b);
  assert_int_equal(end_of(b, 0, sent), 6 * K); /* the exchange is done when all of it is */
  assert_int_equal(end_of(b, 0, received), 6 * K);
  assert_int_equal(start_of(b, 0, next), 6 * K);
  bench_end(b, &holder);
}

/* An exchange is one kernel: it starts when its last message is issued. */
static void test_exchange_starts_with_its_last_message(void **state)
{
  (void)state;
  arena holder = { 0 };
  bench *b = bench_new(&holder);
  b->machine->issue.kernel_ns = 2;
  uint32_t forth = add_message(&b->plan, 0, 1, 4 * K), back = add_message(&b->plan, 1, 0, 4 * K);
  uint32_t sent = add_op(&b->plan.ranks[0], OP_SEND, STREAM_COMM, forth);
  add_op(&b->plan.ranks[0], OP_RECV, STREAM_COMM, back);
  add_op(&b->plan.ranks[1], OP_RECV, STREAM_COMM, forth);
  add_op(&b->plan.ranks[1], OP_SEND, STREAM_COMM, back);
  bench_run(b);
  assert_int_equal(start_of(b, 0, sent), 4 * K);
  assert_int_equal(end_of(b, 0, sent), 8 * K);
  bench_end(b, &holder);
}

static void test_deadlock_is_told(void **state)
{
  (void)state;
  arena holder = { 0 };
  bench *b = bench_new(&holder);
  diag d = { 0 };
  uint32_t forth = add_message(&b->plan, 0, 1, 4 * K), back = add_message(&b->plan, 1, 0, 4 * K);
  add_op(&b->plan.ranks[0], OP_RECV, STREAM_COMM, back);
  add_record(&b->plan.ranks[0], STREAM_COMM); /* so receive and send are no exchange */
  add_op(&b->plan.ranks[0], OP_SEND, STREAM_COMM, forth);
  add_op(&b->plan.ranks[1], OP_RECV, STREAM_COMM, forth);
  add_record(&b->plan.ranks[1], STREAM_COMM);
  add_op(&b->plan.ranks[1], OP_SEND, STREAM_COMM, back);
  assert_false(simulate(&b->times, &b->plan, b->machine, b->places, &d));
  assert_non_null(strstr(d.message, "deadlocks: rank 0, stream comm never gets past op 0 (recv)"));
  bench_end(b, &holder);
}

/* ---- Megatron's offloading against its recurrence ---- */

/*
 * One module, one micro-batch, one rank. With kernels' lengths and group sizes from the plan:
 *
 *   forward    compute never waits; D2H of layer l ends at max(its commit, end of D2H l-1) + C
 *   backward   the last layer is kept; H2D of l starts at the latest of: end of the module's
 *              backward in layer l+1, end of H2D l+1, end of D2H l; the module's backward in l
 *              waits for it
 */
enum { LAYERS_LIMIT = 8 };

typedef struct recurrence {
  const rank_plan *rank;
  const rank_timeline *times;
  const plan *plan;
  uint32_t layers;
  int64_t bytes[LAYERS_LIMIT], copies[LAYERS_LIMIT]; /* of the layer's group, from the plan's D2H */
  int64_t commit[LAYERS_LIMIT], d2h_end[LAYERS_LIMIT], h2d_end[LAYERS_LIMIT];
  int64_t ticks; /* copies so far: each may round by one picosecond */
} recurrence;

static const plan_site *site_of(const recurrence *x, const plan_op *o)
{
  return &x->plan->sites.items[o->site];
}

static bool is_module(const recurrence *x, const plan_op *o)
{
  return o->kind == OP_KERNEL && o->stream == STREAM_COMPUTE &&
         strcmp(site_of(x, o)->module, "self_attention.core_attention") == 0;
}

static int64_t copy_ps(const recurrence *x, uint32_t layer, int64_t rate)
{
  return muldiv_up_i64(x->bytes[layer], PS_PER_US, rate);
}

static void assert_near(int64_t got, int64_t expected, int64_t ticks)
{
  if (got < expected - ticks || got > expected + ticks)
    print_error("got %lld, expected %lld, difference %lld\n", (long long)got, (long long)expected,
                (long long)(got - expected));
  assert_true(got >= expected - ticks && got <= expected + ticks);
}

/* Layers leave in order, and all but the last do: the D2H ops between two records are one
 * layer's. */
static void read_groups(recurrence *x)
{
  uint32_t layer = 0;
  for (uint32_t i = 0; i < x->rank->ops.count; i++) {
    const plan_op *o = &x->rank->ops.items[i];
    if (o->kind == OP_D2H) {
      uint32_t host = x->rank->operands.items[o->operands + 1];
      x->bytes[layer] += x->rank->buffers.items[host].bytes;
      x->copies[layer]++;
    } else if (o->kind == OP_RECORD && o->stream == STREAM_D2H) {
      layer++;
    }
  }
  assert_int_equal(layer, x->layers - 1);
}

/* The end of the last op of that kind before the n-th record on its stream. */
static int64_t copies_end(const recurrence *x, op_kind kind, plan_stream stream, uint32_t n)
{
  int64_t end = 0;
  for (uint32_t i = 0, seen = 0; i < x->rank->ops.count && seen <= n; i++) {
    const plan_op *o = &x->rank->ops.items[i];
    if (o->kind == kind && o->stream == stream) end = op_end_ps(x->times, i);
    seen += o->kind == OP_RECORD && o->stream == stream;
  }
  return end;
}

/* Compute in [from, to) of the plan, from time `at` on; returns where each layer's module ends. */
static int64_t run_forward(recurrence *x, uint32_t to, int64_t at)
{
  for (uint32_t i = 0; i < to; i++) {
    const plan_op *o = &x->rank->ops.items[i];
    if (o->kind != OP_KERNEL || o->stream != STREAM_COMPUTE) continue;
    assert_int_equal(op_start_ps(x->times, i), at);
    at += op_taken_ps(x->times, i);
    if (is_module(x, o)) x->commit[site_of(x, o)->layer] = at;
  }
  return at;
}

static void check_d2h(recurrence *x, int64_t rate)
{
  int64_t free_ps = 0;
  for (uint32_t l = 0; l + 1 < x->layers; l++) {
    x->d2h_end[l] = free_ps = max_i64(x->commit[l], free_ps) + copy_ps(x, l, rate);
    x->ticks += x->copies[l];
    assert_near(copies_end(x, OP_D2H, STREAM_D2H, l), x->d2h_end[l], x->ticks);
  }
}

static bool module_follows(const recurrence *x, uint32_t from, int32_t layer)
{
  for (uint32_t i = from; i < x->rank->ops.count; i++)
    if (is_module(x, &x->rank->ops.items[i]) && site_of(x, &x->rank->ops.items[i])->layer == layer)
      return true;
  return false;
}

static void check_backward(recurrence *x, uint32_t from, int64_t at, int64_t rate)
{
  bool entered[LAYERS_LIMIT] = { false };
  int64_t h2d_free = 0;
  for (uint32_t i = from; i < x->rank->ops.count; i++) {
    const plan_op *o = &x->rank->ops.items[i];
    if (o->kind != OP_KERNEL || o->stream != STREAM_COMPUTE) continue;
    int32_t layer = site_of(x, o)->layer;
    if (is_module(x, o) && !entered[layer] && (uint32_t)layer + 1 < x->layers)
      at = max_i64(at, x->h2d_end[layer]);
    assert_near(op_start_ps(x->times, i), at, x->ticks);
    at += op_taken_ps(x->times, i);
    if (!is_module(x, o)) continue;
    entered[layer] = true;
    if (module_follows(x, i + 1, layer) || layer == 0) continue;
    h2d_free = max_i64(max_i64(at, h2d_free), x->d2h_end[layer - 1]) +
               copy_ps(x, (uint32_t)layer - 1, rate);
    x->h2d_end[layer - 1] = h2d_free;
    x->ticks += x->copies[layer - 1];
    assert_near(copies_end(x, OP_H2D, STREAM_H2D, x->layers - 1 - (uint32_t)layer), h2d_free,
                x->ticks);
  }
}

static uint32_t backward_begins(const rank_plan *r)
{
  for (uint32_t i = 0; i < r->ops.count; i++)
    if (r->ops.items[i].kind == OP_MARK &&
        r->marks.items[r->ops.items[i].arg].kind == MARK_BACKWARD)
      return i;
  return r->ops.count;
}

static void check_recurrence(const compilation *c, uint32_t layers, int64_t rate, machine *m)
{
  timeline t;
  diag d = { 0 };
  rank_place place = { .host = 0, .gpu = 0, .multiplicity = 1 };
  m->link.d2h_bytes_per_us = m->link.h2d_bytes_per_us = rate;
  assert_true(simulate(&t, &c->plan, m, &place, &d));
  recurrence x = {
    .rank = &c->plan.ranks[0], .times = &t.ranks[0], .plan = &c->plan, .layers = layers
  };
  uint32_t split = backward_begins(x.rank);
  read_groups(&x);
  int64_t forward_ps = run_forward(&x, split, 0);
  check_d2h(&x, rate);
  if (layers > 1 && copy_ps(&x, 0, rate) >= forward_ps / layers)
    assert_near(x.d2h_end[layers - 2], x.commit[0] + (layers - 1) * copy_ps(&x, 0, rate), x.ticks);
  check_backward(&x, split, forward_ps, rate);
  timeline_release(&t);
}

static void test_closed_form_of_megatron(void **state)
{
  (void)state;
  static const int64_t rates[] = { 1, 77, 1000, 9999, 50000, 123457, 10000000 };
  static const char *const layers[] = { "model: {num_layers: 1}\n", "model: {num_layers: 2}\n",
                                        "model: {num_layers: 5}\n", "model: {num_layers: 8}\n" };
  for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
    run r;
    char changes[256];
    snprintf(changes, sizeof changes,
             "%straining: {check_for_nan_in_loss_and_grad: false}\n"
             "offload: {fine_grained_activation_offloading: true, offload_modules: [core_attn]}\n",
             layers[i]);
    run_begin(&r, SMALL_DENSE, changes, ITERATION_STEADY);
    for (size_t k = 0; k < sizeof rates / sizeof rates[0]; k++)
      check_recurrence(&r.compiled, (uint32_t)r.settings->model.num_layers, rates[k],
                       ideal_machine(&r.memory));
    run_end(&r);
  }
}

int main(void)
{
  static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_streams_run_in_order_and_beside_each_other),
    cmocka_unit_test(test_event_orders_two_streams),
    cmocka_unit_test(test_host_issues_one_op_after_another),
    cmocka_unit_test(test_host_prepares_a_pass_once),
    cmocka_unit_test(test_host_gets_batches_at_both_ends),
    cmocka_unit_test(test_full_queue_holds_the_host),
    cmocka_unit_test(test_full_queue_of_copies),
    cmocka_unit_test(test_graph_is_issued_at_once),
    cmocka_unit_test(test_host_works_between_launches),
    cmocka_unit_test(test_host_waits_for_a_copy),
    cmocka_unit_test(test_a_wait_beside_the_hosts_counts_once),
    cmocka_unit_test(test_copies_of_other_hosts_take_no_part),
    cmocka_unit_test(test_host_reads_after_copies),
    cmocka_unit_test(test_copy_engines),
    cmocka_unit_test(test_copy_on_the_compute_stream),
    cmocka_unit_test(test_one_stream_copies_both_ways),
    cmocka_unit_test(test_ranks_share_the_host),
    cmocka_unit_test(test_copies_slow_the_kernels_that_they_meet),
    cmocka_unit_test(test_collectives_and_compute_slow_each_other),
    cmocka_unit_test(test_copying_kernel_waits_for_multiprocessors),
    cmocka_unit_test(test_two_streams_that_wait_slow_copies),
    cmocka_unit_test(test_one_stream_that_waits_slows_none),
    cmocka_unit_test(test_exchange_and_a_stream_that_waits_slow_copies),
    cmocka_unit_test(test_slow_host_hides_what_waiting_costs),
    cmocka_unit_test(test_copies_have_a_fixed_part),
    cmocka_unit_test(test_message_begins_when_both_sides_are_there),
    cmocka_unit_test(test_exchange),
    cmocka_unit_test(test_exchange_starts_with_its_last_message),
    cmocka_unit_test(test_deadlock_is_told),
    cmocka_unit_test(test_closed_form_of_megatron),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
