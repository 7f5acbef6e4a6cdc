/*
 * Files in hand-made plans: when they are written and read, who shares the disks, and copies of
 * memory that is not page-locked. Machine `ideal` moves 50 bytes a nanosecond over a link and 10 to
 * or from the disks of a host.
 */
#include "tests/unit/small_plan.h"

#include "sim/base/units.h"
#include "sim/engine/engine.h"
#include "sim/engine/replay.h"
#include "sim/machine/link_share.h"

enum { RANKS = 3, FILE_BYTES = 1000 * 1000 };
#define FILE_PS (100 * PS_PER_US) /* one alone */
#define LINK_PS (20 * PS_PER_US)

typedef struct bench {
  arena memory;
  plan plan;
  machine *machine;
  rank_place places[RANKS];
  timeline times;
} bench;

/* In place: the plan refers to the bench's memory. */
static void bench_begin(bench *b)
{
  *b = (bench){ 0 };
  b->plan = plan_new(RANKS, &b->memory);
  b->machine = ideal_machine(&b->memory);
  for (uint32_t r = 0; r < RANKS; r++)
    b->places[r] = (rank_place){ .host = 0, .gpu = r, .multiplicity = 1 };
}

static void bench_run(bench *b)
{
  diag d = { 0 };
  simulate(&b->times, &b->plan, b->machine, b->places, &d);
  assert_string_equal(d.message, "");
}

static void bench_end(bench *b)
{
  timeline_release(&b->times);
  plan_release(&b->plan);
  arena_release(&b->memory);
}

static uint32_t add_memory(rank_plan *r, buffer_class class)
{
  bool on_device = class_side(class) == ON_DEVICE;
  uint32_t made = add_buffer(r, FILE_BYTES, on_device ? STREAM_COMPUTE : STREAM_HOST);
  r->buffers.items[made].purpose = (uint8_t) class;
  add_op(r, on_device ? OP_ALLOC : OP_HOST_ALLOC, (plan_stream)r->buffers.items[made].stream, made);
  return made;
}

/* Between new buffers of these classes. */
static uint32_t add_move(rank_plan *r, op_kind kind, plan_stream stream, buffer_class from,
                         buffer_class to)
{
  uint32_t source = add_memory(r, from), target = add_memory(r, to);
  uint32_t op = add_op(r, kind, stream, 0);
  r->ops.items[op].operands = r->operands.count;
  r->ops.items[op].reads = r->ops.items[op].writes = 1;
  *ARRAY_PUSH(&r->operands) = source;
  *ARRAY_PUSH(&r->operands) = target;
  return op;
}

static uint32_t add_write(rank_plan *r)
{
  return add_move(r, OP_DISK_WRITE, STREAM_DISK_OUT, CLASS_PAGEABLE_HOST, CLASS_DISK);
}

static uint32_t add_read(rank_plan *r)
{
  return add_move(r, OP_DISK_READ, STREAM_DISK_IN, CLASS_DISK, CLASS_PAGEABLE_HOST);
}

/* ---- tests ---- */

static void test_one_after_another_and_both_ways_at_once(void **state)
{
  (void)state;
  bench b;
  bench_begin(&b);
  rank_plan *r = &b.plan.ranks[0];
  uint32_t writes[2] = { add_write(r), add_write(r) };
  uint32_t read = add_read(r);
  bench_run(&b);
  const rank_timeline *t = &b.times.ranks[0];
  assert_int_equal(op_end_ps(t, writes[0]), FILE_PS);
  assert_int_equal(op_start_ps(t, writes[1]), FILE_PS);
  assert_int_equal(op_end_ps(t, writes[1]), 2 * FILE_PS);
  assert_int_equal(op_start_ps(t, read), 0);
  assert_int_equal(op_end_ps(t, read), FILE_PS);
  assert_int_equal(t->d2h_busy_ps + t->h2d_busy_ps, 0);
  bench_end(&b);
}

/* Reads and writes go as fast as the machine says of each. */
static void test_rates(void **state)
{
  (void)state;
  bench b;
  bench_begin(&b);
  b.machine->disk.write_bytes_per_us = 2500;
  uint32_t write = add_write(&b.plan.ranks[0]), read = add_read(&b.plan.ranks[0]);
  bench_run(&b);
  assert_int_equal(op_end_ps(&b.times.ranks[0], write), 4 * FILE_PS);
  assert_int_equal(op_end_ps(&b.times.ranks[0], read), FILE_PS);
  bench_end(&b);
}

/* Two ranks of one host, one of which represents three; a third rank on another host. */
static void test_a_host_shares_its_disks(void **state)
{
  (void)state;
  bench b;
  bench_begin(&b);
  uint32_t op[RANKS];
  for (uint32_t r = 0; r < RANKS; r++)
    op[r] = add_write(&b.plan.ranks[r]);
  b.places[0].multiplicity = 3;
  b.places[1].gpu = 3;
  b.places[2].host = 1;
  bench_run(&b);
  for (uint32_t r = 0; r < 2; r++)
    assert_int_equal(op_end_ps(&b.times.ranks[r], op[r]), 4 * FILE_PS);
  assert_int_equal(op_end_ps(&b.times.ranks[2], op[2]), FILE_PS);
  bench_end(&b);
}

/* Half of the first file alone, then both at half the rate. */
static void test_who_comes_later_shares_from_then_on(void **state)
{
  (void)state;
  bench b;
  bench_begin(&b);
  uint32_t first = add_write(&b.plan.ranks[0]);
  add_kernel(&b.plan, 1, STREAM_COMPUTE, FILE_PS / 2);
  add_join(&b.plan.ranks[1], STREAM_DISK_OUT, STREAM_COMPUTE);
  uint32_t second = add_write(&b.plan.ranks[1]);
  bench_run(&b);
  assert_int_equal(op_end_ps(&b.times.ranks[0], first), FILE_PS * 3 / 2);
  assert_int_equal(op_end_ps(&b.times.ranks[1], second), FILE_PS * 2);
  bench_end(&b);
}

/* Out, into a file, back from it, in: each waits for the one before. */
static void test_round_trip(void **state)
{
  (void)state;
  bench b;
  bench_begin(&b);
  rank_plan *r = &b.plan.ranks[0];
  add_move(r, OP_D2H, STREAM_COMPUTE, CLASS_SAVED, CLASS_PAGEABLE_HOST);
  add_join(r, STREAM_DISK_OUT, STREAM_COMPUTE);
  add_write(r);
  uint32_t written = add_record(r, STREAM_DISK_OUT);
  add_op(r, OP_HOST_WAIT, STREAM_HOST, written);
  add_read(r);
  uint32_t read = add_record(r, STREAM_DISK_IN);
  add_op(r, OP_HOST_WAIT, STREAM_HOST, read);
  uint32_t back = add_move(r, OP_H2D, STREAM_COMPUTE, CLASS_PAGEABLE_HOST, CLASS_RELOAD);
  bench_run(&b);
  const rank_timeline *t = &b.times.ranks[0];
  assert_int_equal(op_end_ps(t, back), 2 * LINK_PS + 2 * FILE_PS);
  /* The time that compute waits for copies out and back. */
  assert_int_equal(t->exposed_d2h_ps, LINK_PS + FILE_PS);
  assert_int_equal(t->exposed_h2d_ps, FILE_PS + LINK_PS);
  assert_int_equal(t->comm_wait_ps, 0);
  bench_end(&b);
}

static void test_pageable_memory_is_slower(void **state)
{
  (void)state;
  bench b;
  bench_begin(&b);
  b.machine->link.pageable_d2h_bytes_per_us = 10000;
  b.machine->link.pageable_h2d_bytes_per_us = 25000;
  rank_plan *r = &b.plan.ranks[0];
  uint32_t out = add_move(r, OP_D2H, STREAM_D2H, CLASS_SAVED, CLASS_PAGEABLE_HOST);
  uint32_t pinned = add_move(r, OP_D2H, STREAM_D2H, CLASS_SAVED, CLASS_PINNED_HOST);
  uint32_t in = add_move(r, OP_H2D, STREAM_H2D, CLASS_PAGEABLE_HOST, CLASS_RELOAD);
  bench_run(&b);
  assert_int_equal(op_end_ps(&b.times.ranks[0], out), 5 * LINK_PS);
  assert_int_equal(op_end_ps(&b.times.ranks[0], pinned), 6 * LINK_PS);
  assert_int_equal(op_end_ps(&b.times.ranks[0], in), 2 * LINK_PS);
  bench_end(&b);
}

/* On a host that is full, the slow copy leaves the others what it cannot use. */
static void test_pageable_memory_leaves_the_rest(void **state)
{
  (void)state;
  arena a = { 0 };
  machine *m = ideal_machine(&a);
  host_flow flows[] = { { .gpu = 0, .pageable = true, .multiplicity = 1 },
                        { .gpu = 1, .multiplicity = 1 } };
  m->link.pageable_d2h_bytes_per_us = 10000;
  m->host.d2h_bytes_per_us = 40000;
  link_share_host(m, flows, 2);
  assert_int_equal(flows[0].rate_bytes_per_us, 10000);
  assert_int_equal(flows[1].rate_bytes_per_us, 30000);
  arena_release(&a);
}

/* Neither is page-locked: no time to lock pages, no bytes in the pool. */
static void test_only_pinned_memory_is_page_locked(void **state)
{
  (void)state;
  bench b;
  bench_begin(&b);
  rank_plan *r = &b.plan.ranks[0];
  *ARRAY_PUSH(&r->marks) = (plan_mark){ .kind = MARK_SETUP };
  add_op(r, OP_MARK, STREAM_HOST, r->marks.count - 1);
  b.machine->issue.pinned_alloc_ns_per_gib = 1000 * 1000 * 1000;
  add_write(r);
  bench_run(&b);
  assert_int_equal(b.times.ranks[0].end_of_rank_ps, FILE_PS);
  replay *memory =
      replay_new(&(replay_options){ .capacity_bytes = machine_usable_bytes(b.machine) }, &b.memory);
  replay_result got = replay_iteration(memory, r, &b.times.ranks[0]);
  assert_int_equal(got.host_exact_peak_bytes, 0);
  replay_release(memory);
  bench_end(&b);
}

/* The time of a setup that takes `buffers` page-locked buffers of a pool, each after the one before
 * came back or not. */
static int64_t pool_ps(uint32_t buffers, bool come_back)
{
  bench b;
  bench_begin(&b);
  rank_plan *r = &b.plan.ranks[0];
  *ARRAY_PUSH(&r->marks) = (plan_mark){ .kind = MARK_SETUP };
  add_op(r, OP_MARK, STREAM_HOST, r->marks.count - 1);
  b.machine->issue.pinned_alloc_ns_per_gib = 1000 * 1000 * 1000;
  for (uint32_t i = 0; i < buffers; i++) {
    uint32_t buffer = add_memory(r, CLASS_PINNED_HOST);
    r->buffers.items[buffer].host_key = 1;
    if (come_back) add_op(r, OP_HOST_FREE, STREAM_HOST, buffer);
  }
  add_kernel(&b.plan, 0, STREAM_COMPUTE, PS_PER_NS); /* after the host's work */
  bench_run(&b);
  int64_t ps = b.times.ranks[0].end_of_rank_ps - PS_PER_NS;
  bench_end(&b);
  return ps;
}

static void test_a_buffer_that_came_back_is_not_locked_again(void **state)
{
  (void)state;
  int64_t one = pool_ps(1, true);
  assert_true(one > 0);
  assert_int_equal(pool_ps(3, true), one);
  assert_int_equal(pool_ps(3, false), 3 * one);
}

/* Compute waits for a write, then for a read. */
static void test_waits_are_exposed_by_direction(void **state)
{
  (void)state;
  bench b;
  bench_begin(&b);
  rank_plan *r = &b.plan.ranks[0];
  add_write(r);
  add_join(r, STREAM_COMPUTE, STREAM_DISK_OUT);
  add_kernel(&b.plan, 0, STREAM_COMPUTE, PS_PER_NS);
  add_join(r, STREAM_DISK_IN, STREAM_COMPUTE);
  add_read(r);
  add_join(r, STREAM_COMPUTE, STREAM_DISK_IN);
  add_kernel(&b.plan, 0, STREAM_COMPUTE, PS_PER_NS);
  bench_run(&b);
  const rank_timeline *t = &b.times.ranks[0];
  assert_int_equal(t->exposed_d2h_ps, FILE_PS);
  assert_int_equal(t->exposed_h2d_ps, FILE_PS);
  assert_int_equal(t->comm_wait_ps, 0);
  bench_end(&b);
}

/* The same for a host thread whose memory is refused until a file is written or read. */
static void test_holds_are_exposed_by_direction(void **state)
{
  (void)state;
  for (int reads = 0; reads < 2; reads++) {
    bench b;
    diag d = { 0 };
    bench_begin(&b);
    rank_plan *r = &b.plan.ranks[0];
    uint32_t until = reads ? add_read(r) : add_write(r);
    add_memory(r, CLASS_TRANSIENT);
    host_hold hold = { .at = until + 1, .until = until };
    hold_list holds[RANKS] = { { &hold, 1, 1 } };
    assert_true(simulate_held(&b.times, &b.plan, b.machine, b.places, holds, 1, &d));
    const rank_timeline *t = &b.times.ranks[0];
    assert_int_equal(t->exposed_d2h_ps, reads ? 0 : FILE_PS);
    assert_int_equal(t->exposed_h2d_ps, reads ? FILE_PS : 0);
    assert_int_equal(t->comm_wait_ps, 0);
    bench_end(&b);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_one_after_another_and_both_ways_at_once),
    cmocka_unit_test(test_rates),
    cmocka_unit_test(test_waits_are_exposed_by_direction),
    cmocka_unit_test(test_holds_are_exposed_by_direction),
    cmocka_unit_test(test_a_host_shares_its_disks),
    cmocka_unit_test(test_who_comes_later_shares_from_then_on),
    cmocka_unit_test(test_round_trip),
    cmocka_unit_test(test_pageable_memory_is_slower),
    cmocka_unit_test(test_pageable_memory_leaves_the_rest),
    cmocka_unit_test(test_only_pinned_memory_is_page_locked),
    cmocka_unit_test(test_a_buffer_that_came_back_is_not_locked_again),
  };

  return cmocka_run_group_tests(tests, NULL, NULL);
}
