/*
 * The four measures of memory, for hand-made sequences of allocations, and page-locked host memory.
 */
#include "tests/unit/small_plan.h"

#include "sim/base/units.h"
#include "sim/engine/replay.h"

typedef struct tape {
  arena memory;
  plan plan;
  rank_plan *rank;
  rank_timeline times;
  replay *replay;
} tape;

static void tape_begin(tape *t, int64_t capacity_bytes)
{
  *t = (tape){ 0 };
  t->plan = plan_new(1, &t->memory);
  t->rank = &t->plan.ranks[0];
  replay_options options = { .capacity_bytes = capacity_bytes };
  t->replay = replay_new(&options, &t->memory);
}

static void tape_end(tape *t)
{
  replay_release(t->replay);
  plan_release(&t->plan);
  arena_release(&t->memory);
}

static uint32_t take(tape *t, int64_t bytes, plan_stream pool)
{
  uint32_t buffer = add_buffer(t->rank, bytes, pool);
  add_op(t->rank, OP_ALLOC, pool, buffer);
  return buffer;
}

/* `marked`: bit mask of streams that still use the block. */
static void give(tape *t, uint32_t buffer, uint32_t marked)
{
  uint32_t op =
      add_op(t->rank, OP_FREE, (plan_stream)t->rank->buffers.items[buffer].stream, buffer);
  t->rank->ops.items[op].operands = marked;
}

/* One op a nanosecond for the host; a copy takes as long as is said, from its own issue on. */
static replay_result play(tape *t, int64_t copy_ps)
{
  uint32_t count = t->rank->ops.count;
  t->times.ops.rows = ARENA_ARRAY(&t->memory, op_time, count);
  for (uint32_t i = 0; i < count; i++) {
    bool copies = t->rank->ops.items[i].kind == OP_D2H;
    op_time *time = &t->times.ops.rows[i];
    *time = (op_time){ i * PS_PER_NS, i * PS_PER_NS + (copies ? copy_ps : 0) };
    t->times.end_of_rank_ps = max_i64(t->times.end_of_rank_ps, time->end_ps);
  }
  return replay_iteration(t->replay, t->rank, &t->times);
}

#define MARK_OF(stream) (UINT32_C(1) << (stream))

static void test_requested_rounds_and_allocated_counts_tails(void **state)
{
  (void)state;
  tape t;
  tape_begin(&t, GIB);
  uint32_t whole = take(&t, 30 * MIB, STREAM_COMPUTE);
  give(&t, whole, 0);
  take(&t, 30 * MIB - 100 * KIB - 1, STREAM_COMPUTE); /* leaves a tail too small to split */
  replay_result r = play(&t, 0);
  assert_int_equal(r.requested_peak_bytes, 30 * MIB);
  assert_int_equal(r.allocated_peak_bytes, 30 * MIB);
  assert_int_equal(r.allocated_peak_op, 0);
  assert_int_equal(r.allocated_end_bytes, 30 * MIB);
  assert_int_equal(r.reserved_peak_bytes, 30 * MIB);
  tape_end(&t);

  tape_begin(&t, GIB);
  take(&t, 100, STREAM_COMPUTE);
  take(&t, 513, STREAM_COMPUTE);
  r = play(&t, 0);
  assert_int_equal(r.requested_peak_bytes, 512 + 1024);
  assert_int_equal(r.allocated_peak_op, 1);
  assert_int_equal(r.reserved_peak_bytes, 2 * MIB);
  tape_end(&t);
}

/* A block that a copy still reads is free at once in program order, and live until the copy is
 * done. */
static void test_marked_blocks(void **state)
{
  (void)state;
  static const struct {
    int64_t copy_ps, live, reserved;
  } cases[] = {
    { 100 * PS_PER_NS, 60 * MIB, 60 * MIB }, /* under way when the second is taken */
    { 1, 30 * MIB, 30 * MIB },               /* done by then */
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    tape t;
    tape_begin(&t, GIB);
    uint32_t first = take(&t, 30 * MIB, STREAM_COMPUTE);
    add_op(t.rank, OP_D2H, STREAM_D2H, 0);
    give(&t, first, MARK_OF(STREAM_D2H));
    take(&t, 30 * MIB, STREAM_COMPUTE);
    replay_result r = play(&t, cases[i].copy_ps);
    assert_int_equal(r.allocated_peak_bytes, 30 * MIB);
    assert_int_equal(r.requested_peak_bytes, 30 * MIB);
    assert_int_equal(r.live_peak_bytes, cases[i].live);
    assert_int_equal(r.reserved_peak_bytes, cases[i].reserved);
    assert_false(r.out_of_memory);
    tape_end(&t);
  }
}

/* The event is also after the stream's waits, not only after its copies. */
static void test_marked_block_waits_for_the_streams_wait(void **state)
{
  (void)state;
  tape t;
  tape_begin(&t, GIB);
  uint32_t first = take(&t, 30 * MIB, STREAM_COMPUTE);
  uint32_t wait = add_op(t.rank, OP_WAIT, STREAM_D2H, 0);
  give(&t, first, MARK_OF(STREAM_D2H));
  take(&t, 30 * MIB, STREAM_COMPUTE);
  play(&t, 0);
  replay_release(t.replay);
  t.replay = replay_new(&(replay_options){ .capacity_bytes = GIB }, &t.memory);
  t.times.ops.rows[wait].end_ps = 50 * PS_PER_NS;
  replay_result r = replay_iteration(t.replay, t.rank, &t.times);
  assert_int_equal(r.live_peak_bytes, 60 * MIB);
  tape_end(&t);
}

static void test_each_stream_has_its_pool(void **state)
{
  (void)state;
  tape t;
  tape_begin(&t, GIB);
  give(&t, take(&t, 30 * MIB, STREAM_COMPUTE), 0);
  give(&t, take(&t, 30 * MIB, STREAM_H2D), 0);
  replay_result r = play(&t, 0);
  assert_int_equal(r.allocated_peak_bytes, 30 * MIB);
  assert_int_equal(r.reserved_peak_bytes, 60 * MIB);
  tape_end(&t);
}

static void test_capacity(void **state)
{
  (void)state;
  tape t;
  tape_begin(&t, 40 * MIB); /* the second block has to wait for the copy of the first */
  uint32_t first = take(&t, 30 * MIB, STREAM_COMPUTE);
  add_op(t.rank, OP_D2H, STREAM_D2H, 0);
  give(&t, first, MARK_OF(STREAM_D2H));
  take(&t, 30 * MIB, STREAM_COMPUTE);
  replay_result r = play(&t, 100 * PS_PER_NS);
  assert_int_equal(r.refused->count, 1);
  assert_int_equal(r.refused->items[0].at, 3);
  assert_int_equal(r.refused->items[0].until, 1);
  assert_false(r.out_of_memory);
  assert_int_equal(r.reserved_peak_bytes, 30 * MIB);
  tape_end(&t);

  tape_begin(&t, 40 * MIB);
  take(&t, 30 * MIB, STREAM_COMPUTE);
  take(&t, 30 * MIB, STREAM_COMPUTE);
  r = play(&t, 0);
  assert_true(r.out_of_memory);
  assert_int_equal(r.requested_peak_bytes, 60 * MIB); /* what it would have taken */
  assert_int_equal(r.allocated_peak_bytes, 30 * MIB);
  tape_end(&t);
}

static op_time *copy_of_rows(tape *t, const rank_timeline *times)
{
  op_time *rows = ARENA_ARRAY(&t->memory, op_time, t->rank->ops.count);
  return memcpy(rows, times->ops.rows, t->rank->ops.count * sizeof *rows);
}

/* On the machine `ideal`, with memory for 40 MiB. */
static replay_result simulate_tape_on(tape *t, const machine *m, const hold_list *holds)
{
  diag d = { 0 };
  timeline times;
  rank_place place = { .host = 0, .gpu = 0, .multiplicity = 1 };
  replay_release(t->replay);
  t->replay = replay_new(&(replay_options){ .capacity_bytes = 40 * MIB }, &t->memory);
  assert_true(simulate_held(&times, &t->plan, m, &place, holds, 1, &d));
  t->times = times.ranks[0];
  t->times.ops.rows = copy_of_rows(t, &times.ranks[0]);
  replay_result r = replay_iteration(t->replay, t->rank, &times.ranks[0]);
  timeline_release(&times);
  return r;
}

static replay_result simulate_tape(tape *t, const hold_list *holds)
{
  return simulate_tape_on(t, ideal_machine(&t->memory), holds);
}

/* After a refused request the host waits until the copy that the freed block waits for is done. */
static void test_refusal_holds_the_host(void **state)
{
  (void)state;
  tape t;
  tape_begin(&t, GIB);
  uint32_t first = take(&t, 30 * MIB, STREAM_COMPUTE);
  uint32_t copy = add_copy(t.rank, OP_D2H, STREAM_D2H, 7000);
  add_kernel(&t.plan, 0, STREAM_COMPUTE, 2000);
  give(&t, first, MARK_OF(STREAM_D2H));
  uint32_t refused = t.rank->ops.count;
  take(&t, 30 * MIB, STREAM_COMPUTE);
  hold_list holds = { 0 };
  replay_result r = simulate_tape(&t, NULL);
  assert_int_equal(op_start_ps(&t.times, refused), 0);
  assert_true(holds_add(&holds, r.refused));
  assert_false(holds_add(&holds, r.refused));
  assert_int_equal(holds.count, 1);
  assert_int_equal(holds.items[0].at, refused);
  assert_int_equal(holds.items[0].until, copy);
  assert_int_equal(holds.items[0].driver_calls, 2); /* one segment is released, one allocated */

  r = simulate_tape(&t, &holds);
  assert_int_equal(op_start_ps(&t.times, refused), 7000);
  assert_int_equal(t.times.exposed_d2h_ps, 5000); /* the kernel ran during the first part */
  assert_int_equal(r.refused->count, 0);
  assert_false(r.out_of_memory);
  assert_int_equal(r.live_peak_bytes, 30 * MIB);
  ARRAY_FREE(&holds);
  tape_end(&t);
}

/* Cached segments have to go back: the host waits for all work of the GPU and calls the driver. */
static void test_giving_back_waits_for_the_gpu(void **state)
{
  (void)state;
  tape t;
  tape_begin(&t, GIB);
  machine *m = ideal_machine(&t.memory);
  m->issue.driver_alloc_ns = 3;
  give(&t, take(&t, 10 * MIB, STREAM_COMPUTE), 0);
  give(&t, take(&t, 20 * MIB, STREAM_COMPUTE), 0);
  add_kernel(&t.plan, 0, STREAM_COMPUTE, 4000);
  uint32_t longest = add_kernel(&t.plan, 0, STREAM_COMM, 9000);
  uint32_t refused = t.rank->ops.count;
  give(&t, take(&t, 36 * MIB, STREAM_COMPUTE), 0);
  take(&t, MIB, STREAM_COMPUTE); /* 2 MiB more from the driver */
  hold_list holds = { 0 };
  replay_result r = simulate_tape_on(&t, m, NULL);
  assert_int_equal(op_start_ps(&t.times, refused), 0);
  assert_true(holds_add(&holds, r.refused));
  assert_int_equal(holds.count, 2);
  assert_int_equal(holds_that_wait(&holds), 1);
  assert_int_equal(holds.items[0].until, longest);
  assert_int_equal(holds.items[0].driver_calls, 3);
  assert_int_equal(holds.items[1].driver_calls, 1);

  r = simulate_tape_on(&t, m, &holds);
  assert_int_equal(op_start_ps(&t.times, refused), 9000 + 3 * 3 * PS_PER_NS);
  assert_int_equal(op_start_ps(&t.times, refused + 2), 9000 + 4 * 3 * PS_PER_NS);
  assert_false(holds_add(&holds, r.refused)); /* refused again, and already a hold */
  assert_int_equal(r.reserved_peak_bytes, 38 * MIB);
  ARRAY_FREE(&holds);
  tape_end(&t);
}

static void test_holds_stay_in_order(void **state)
{
  (void)state;
  host_hold one[] = { { 4, 1, 0 }, { 9, 2, 0 } };
  host_hold two[] = { { 2, 0, 0 }, { 4, 3, 0 }, { 7, 1, 0 }, { 11, 5, 0 } };
  hold_list l = { 0 };
  assert_true(holds_add(&l, &(hold_list){ one, 2, 2 }));
  assert_true(holds_add(&l, &(hold_list){ two, 4, 4 }));
  static const uint32_t expected[][2] = { { 2, 0 }, { 4, 1 }, { 7, 1 }, { 9, 2 }, { 11, 5 } };
  assert_int_equal(l.count, 5);
  for (uint32_t i = 0; i < 5; i++) {
    assert_int_equal(l.items[i].at, expected[i][0]);
    assert_int_equal(l.items[i].until, expected[i][1]);
  }
  assert_false(holds_add(&l, &(hold_list){ 0 }));
  ARRAY_FREE(&l);
}

/* The next iteration begins with what one leaves. */
static void test_iterations(void **state)
{
  (void)state;
  tape warm, steady;
  tape_begin(&warm, GIB);
  take(&warm, 4 * MIB, STREAM_COMPUTE);
  uint32_t gone = take(&warm, 40 * MIB, STREAM_COMPUTE);
  take(&warm, 6 * MIB, STREAM_COMPUTE);
  give(&warm, gone, 0);
  replay_result r = play(&warm, 0);
  assert_int_equal(r.allocated_start_bytes, 0);
  assert_int_equal(r.allocated_peak_bytes, 50 * MIB);
  assert_int_equal(r.allocated_end_bytes, 10 * MIB);

  tape_begin(&steady, GIB);
  replay_release(steady.replay);
  steady.replay = warm.replay;
  add_buffer(steady.rank, 4 * MIB, STREAM_COMPUTE);
  uint32_t second = add_buffer(steady.rank, 6 * MIB, STREAM_COMPUTE);
  steady.rank->residents = 2;
  give(&steady, take(&steady, 20 * MIB, STREAM_COMPUTE), 0);
  give(&steady, second, 0);
  r = play(&steady, 0);
  assert_int_equal(r.allocated_start_bytes, 10 * MIB);
  assert_int_equal(r.allocated_peak_bytes, 30 * MIB);
  assert_int_equal(r.allocated_end_bytes, 4 * MIB);
  assert_int_equal(r.requested_peak_bytes, 30 * MIB);
  assert_int_equal(r.reserved_peak_bytes, 60 * MIB); /* 20 for the first, 40: nothing new */
  plan_release(&warm.plan);
  tape_end(&steady);
  arena_release(&warm.memory);
}

/* An iteration frees gradients at its beginning, and allocates them again at its end. They are as large as a
 * state, but keep their own place, so the activation between finds the same block in every iteration. */
static void test_residents_made_anew(void **state)
{
  (void)state;
  tape warm, steady;
  tape_begin(&warm, GIB);
  give(&warm, take(&warm, 30 * MIB, STREAM_COMPUTE), 0);
  take(&warm, 26 * MIB, STREAM_COMPUTE); /* gradients, in the block of 30 */
  take(&warm, 26 * MIB, STREAM_COMPUTE); /* a state */
  assert_int_equal(play(&warm, 0).reserved_peak_bytes, 56 * MIB);

  tape_begin(&steady, GIB);
  replay_release(steady.replay);
  steady.replay = warm.replay;
  uint32_t gradients = add_buffer(steady.rank, 26 * MIB, STREAM_COMPUTE);
  add_buffer(steady.rank, 26 * MIB, STREAM_COMPUTE);
  steady.rank->residents = 2;
  give(&steady, gradients, 0);
  give(&steady, take(&steady, 30 * MIB, STREAM_COMPUTE), 0);
  take(&steady, 26 * MIB, STREAM_COMPUTE);
  for (int i = 0; i < 3; i++)
    assert_int_equal(play(&steady, 0).reserved_peak_bytes, 56 * MIB);
  plan_release(&warm.plan);
  tape_end(&steady);
  arena_release(&warm.memory);
}

/* Alone, a steady iteration allocates its residents first. */
static void test_residents_without_an_iteration_before(void **state)
{
  (void)state;
  tape t;
  tape_begin(&t, GIB);
  add_buffer(t.rank, 4 * MIB, STREAM_COMPUTE);
  t.rank->residents = 1;
  take(&t, 30 * MIB, STREAM_COMPUTE);
  replay_result r = play(&t, 0);
  assert_int_equal(r.allocated_start_bytes, 4 * MIB);
  assert_int_equal(r.allocated_peak_bytes, 34 * MIB);
  tape_end(&t);
}

/* Memory that a library takes from the driver: as a resident, and in the first iteration. */
static void test_the_driver_is_not_counted(void **state)
{
  (void)state;
  tape t;
  tape_begin(&t, 32 * MIB);
  uint32_t resident = add_buffer(t.rank, 40 * MIB, STREAM_COMPUTE);
  t.rank->residents = 1;
  t.rank->buffers.items[resident].purpose = CLASS_DRIVER;
  t.rank->buffers.items[take(&t, 8 * MIB, STREAM_COMPUTE)].purpose = CLASS_DRIVER;
  take(&t, 30 * MIB, STREAM_COMPUTE);
  replay_result r = play(&t, 0);
  assert_false(r.out_of_memory);
  assert_int_equal(r.allocated_start_bytes, 0);
  assert_int_equal(r.requested_peak_bytes, 30 * MIB);
  assert_int_equal(r.allocated_peak_bytes, 30 * MIB);
  assert_int_equal(r.reserved_peak_bytes, 30 * MIB);
  tape_end(&t);
}

static uint32_t take_host(tape *t, int64_t bytes, uint32_t key)
{
  uint32_t buffer = add_buffer(t->rank, bytes, STREAM_HOST);
  t->rank->buffers.items[buffer].host_key = key;
  add_op(t->rank, OP_HOST_ALLOC, STREAM_HOST, buffer);
  return buffer;
}

static void test_host_memory(void **state)
{
  (void)state;
  tape t;
  tape_begin(&t, GIB);
  uint32_t first = take_host(&t, 3 * MIB, 1);
  take_host(&t, 5 * MIB, 2);
  add_op(t.rank, OP_HOST_FREE, STREAM_HOST, first);
  take_host(&t, 3 * MIB, 1);                  /* the pool has one */
  uint32_t fresh = take_host(&t, 3 * MIB, 0); /* outside the pool */
  add_op(t.rank, OP_HOST_FREE, STREAM_HOST, fresh);
  take_host(&t, 3 * MIB + 1, 0); /* the freed block serves */
  replay_result r = play(&t, 0);
  assert_int_equal(r.host_exact_peak_bytes, 3 * MIB + 5 * MIB + 3 * MIB + 1);
  assert_int_equal(r.host_pow2_peak_bytes, 4 * MIB + 8 * MIB + 4 * MIB);
  tape_end(&t);
}

/* A block outside Megatron's pool is free again when the last copy back that was issued before its free has
 * ended; other copies do not matter. */
static void test_pinned_block_waits_for_the_last_copy_back(void **state)
{
  (void)state;
  static const struct {
    int64_t out_end_ps, first_back_end_ps, last_back_end_ps, locked_bytes;
  } cases[] = {
    { 0, 0, 90 * PS_PER_NS, 8 * MIB },
    { 0, 90 * PS_PER_NS, 3 * PS_PER_NS, 4 * MIB },
    { 90 * PS_PER_NS, 0, 3 * PS_PER_NS, 4 * MIB },
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    tape t;
    tape_begin(&t, GIB);
    uint32_t block = take_host(&t, 4 * MIB, 0);
    uint32_t copies[] = { add_op(t.rank, OP_D2H, STREAM_D2H, 0),
                          add_op(t.rank, OP_H2D, STREAM_H2D, 0),
                          add_op(t.rank, OP_H2D, STREAM_COMPUTE, 0) };
    add_op(t.rank, OP_HOST_FREE, STREAM_HOST, block);
    take_host(&t, 4 * MIB, 0);
    play(&t, 0);
    t.times.ops.rows[copies[0]].end_ps = cases[i].out_end_ps;
    t.times.ops.rows[copies[1]].end_ps = cases[i].first_back_end_ps;
    t.times.ops.rows[copies[2]].end_ps = cases[i].last_back_end_ps;
    replay_release(t.replay);
    t.replay = replay_new(&(replay_options){ .capacity_bytes = GIB }, &t.memory);
    assert_int_equal(replay_iteration(t.replay, t.rank, &t.times).host_pow2_peak_bytes,
                     cases[i].locked_bytes);
    tape_end(&t);
  }
}

static void test_curve(void **state)
{
  (void)state;
  tape t;
  tape_begin(&t, GIB);
  int64_t allocated[4], live[4], reserved[4];
  memory_curve curve = { allocated, live, reserved };
  uint32_t first = take(&t, 30 * MIB, STREAM_COMPUTE);
  add_op(t.rank, OP_D2H, STREAM_D2H, 0);
  give(&t, first, MARK_OF(STREAM_D2H));
  take(&t, 2 * MIB, STREAM_COMPUTE);
  replay_keep_curve(t.replay, &curve);
  play(&t, 100 * PS_PER_NS);
  assert_int_equal(allocated[0], 30 * MIB);
  assert_int_equal(allocated[2], 0);
  assert_int_equal(reserved[0], 30 * MIB);
  assert_int_equal(live[2], 30 * MIB);
  assert_int_equal(allocated[3], 2 * MIB);
  assert_int_equal(live[3], 32 * MIB);
  tape_end(&t);
}

/* A repeated iteration has the clock's figures of a full replay, with and without expandable
 * segments: what the first leaves behind differs from an empty device. */
static void test_again(void **state)
{
  (void)state;
  for (int expandable = 0; expandable < 2; expandable++) {
    tape t;
    tape_begin(&t, GIB);
    uint32_t first = take(&t, 30 * MIB, STREAM_COMPUTE);
    add_op(t.rank, OP_D2H, STREAM_D2H, 0);
    give(&t, first, MARK_OF(STREAM_D2H));
    uint32_t next = take(&t, 12 * MIB, STREAM_COMPUTE);
    uint32_t host[] = { take_host(&t, 4 * MIB, 0), take_host(&t, 3 * MIB, 1),
                        take_host(&t, 3 * MIB, 1) }; /* the last two of a pool */
    for (size_t i = 0; i < sizeof host / sizeof host[0]; i++)
      add_op(t.rank, OP_HOST_FREE, STREAM_HOST, host[i]);
    give(&t, next, 0);
    play(&t, 100 * PS_PER_NS);
    replay_release(t.replay);
    replay_options options = { .capacity_bytes = GIB, .expandable_segments = expandable };
    replay *full = replay_new(&options, &t.memory);
    t.replay = replay_new(&options, &t.memory);
    replay_iteration(full, t.rank, &t.times);
    replay_iteration(t.replay, t.rank, &t.times);
    for (int i = 0; i < 3; i++) {
      replay_result whole = replay_iteration(full, t.rank, &t.times);
      replay_result again = replay_again(t.replay, &t.times);
      assert_int_equal(again.live_peak_bytes, whole.live_peak_bytes);
      assert_int_equal(again.reserved_peak_bytes, whole.reserved_peak_bytes);
      assert_int_equal(again.host_pow2_peak_bytes, whole.host_pow2_peak_bytes);
      assert_int_equal(again.host_exact_peak_bytes, whole.host_exact_peak_bytes);
      assert_int_equal(again.allocated_end_bytes, whole.allocated_end_bytes);
    }
    replay_release(full);
    tape_end(&t);
  }
}

static void assert_same_figures(const replay_result *a, const replay_result *b)
{
  assert_int_equal(a->requested_peak_bytes, b->requested_peak_bytes);
  assert_int_equal(a->allocated_peak_bytes, b->allocated_peak_bytes);
  assert_int_equal(a->allocated_peak_op, b->allocated_peak_op);
  assert_int_equal(a->allocated_start_bytes, b->allocated_start_bytes);
  assert_int_equal(a->allocated_end_bytes, b->allocated_end_bytes);
  assert_int_equal(a->live_peak_bytes, b->live_peak_bytes);
  assert_int_equal(a->reserved_peak_bytes, b->reserved_peak_bytes);
  assert_int_equal(a->refused->count, b->refused->count);
}

/* Where no block waits, figures need no times, iteration by iteration; also where memory is short. */
static void test_no_block_waits(void **state)
{
  (void)state;
  for (int i = 0; i < 4; i++) {
    bool expandable = i & 1, is_short = i & 2;
    tape t;
    tape_begin(&t, GIB);
    uint32_t first = take(&t, 30 * MIB, STREAM_COMPUTE), second = take(&t, 3 * MIB, STREAM_COMPUTE);
    uint32_t third = take(&t, 5 * MIB + 100, STREAM_COMPUTE);
    give(&t, first, 0);
    give(&t, third, 0);
    give(&t, take(&t, 21 * MIB, STREAM_COMPUTE), 0);
    give(&t, take(&t, 70 * MIB, STREAM_COMPUTE), 0);
    give(&t, second, 0);
    assert_false(replay_needs_times(t.rank));
    play(&t, 0);
    replay_options options = { .capacity_bytes = is_short ? 80 * MIB : GIB,
                               .expandable_segments = expandable };
    replay *untimed = replay_new(&options, &t.memory);
    replay_release(t.replay);
    t.replay = replay_new(&options, &t.memory);
    for (int k = 0; k < 3; k++) {
      replay_result a = replay_iteration(untimed, t.rank, NULL);
      replay_result b = replay_iteration(t.replay, t.rank, &t.times);
      if (k == 0 && is_short) assert_true(a.refused->count > 0);
      assert_same_figures(&a, &b);
    }
    replay_release(untimed);
    tape_end(&t);
  }
}

/* A request that finds a block a little larger keeps all of it; while that block waits, the request has a
 * segment of its own, without a tail. */
static void test_tails_are_those_of_the_blocks_place(void **state)
{
  (void)state;
  for (int late = 0; late < 2; late++) {
    tape t;
    tape_begin(&t, GIB);
    uint32_t larger = take(&t, 24 * MIB + MIB / 2, STREAM_COMPUTE);
    take(&t, MIB + MIB / 2, STREAM_COMPUTE);
    add_op(t.rank, OP_D2H, STREAM_D2H, 0);
    give(&t, larger, MARK_OF(STREAM_D2H));
    take(&t, 24 * MIB, STREAM_COMPUTE);
    replay_result r = play(&t, late ? 100 * PS_PER_NS : 0);
    assert_int_equal(r.requested_peak_bytes, 26 * MIB);
    assert_int_equal(r.allocated_peak_bytes, 26 * MIB);
    assert_int_equal(r.allocated_end_bytes, 26 * MIB - (late ? MIB / 2 : 0));
    assert_int_equal(r.live_peak_bytes, (late ? 50 : 26) * MIB);
    tape_end(&t);
  }
}

/* A copy goes on as its original does, which does not notice: with blocks that wait, refused requests, and
 * host memory. */
static void test_copies(void **state)
{
  (void)state;
  for (int i = 0; i < 4; i++) {
    bool expandable = i & 1, is_short = i & 2;
    tape t;
    tape_begin(&t, GIB);
    uint32_t first = take(&t, 30 * MIB, STREAM_COMPUTE), host = take_host(&t, 3 * MIB, 0);
    add_op(t.rank, OP_D2H, STREAM_D2H, 0);
    give(&t, first, MARK_OF(STREAM_D2H));
    give(&t, take(&t, 25 * MIB, STREAM_COMPUTE), MARK_OF(STREAM_D2H));
    add_op(t.rank, OP_HOST_FREE, STREAM_HOST, host);
    add_op(t.rank, OP_HOST_FREE, STREAM_HOST, take_host(&t, 5 * MIB, 1));
    give(&t, take(&t, 12 * MIB, STREAM_COMPUTE), 0);
    give(&t, take(&t, 1000, STREAM_COMPUTE), MARK_OF(STREAM_D2H));
    play(&t, 3 * PS_PER_NS);
    replay_options options = { .capacity_bytes = is_short ? 50 * MIB : GIB,
                               .expandable_segments = expandable };
    replay_release(t.replay);
    t.replay = replay_new(&options, &t.memory);
    for (int k = 0; k < 3; k++) {
      replay *copy = replay_copy(t.replay, &t.memory);
      replay_result a = replay_iteration(t.replay, t.rank, &t.times);
      replay_result b = replay_iteration(copy, t.rank, &t.times);
      if (k == 0 && is_short) assert_true(a.refused->count > 0);
      assert_same_figures(&a, &b);
      assert_int_equal(a.host_pow2_peak_bytes, b.host_pow2_peak_bytes);
      assert_ptr_equal(b.refused, replay_refused(copy));
      replay_release(copy);
    }
    tape_end(&t);
  }
}

static void test_what_waits(void **state)
{
  (void)state;
  tape t;
  tape_begin(&t, GIB);
  give(&t, take(&t, MIB, STREAM_COMPUTE), MARK_OF(STREAM_D2H));
  assert_true(replay_needs_times(t.rank));
  tape_end(&t);
  tape_begin(&t, GIB);
  add_op(t.rank, OP_HOST_FREE, STREAM_HOST, take_host(&t, MIB, 1));
  assert_false(replay_needs_times(t.rank));
  add_op(t.rank, OP_HOST_FREE, STREAM_HOST, take_host(&t, MIB, 0));
  assert_true(replay_needs_times(t.rank));
  tape_end(&t);
}

static uint32_t next_random(uint32_t *random, uint32_t below)
{
  *random ^= *random << 13;
  *random ^= *random >> 17;
  *random ^= *random << 5;
  return *random % below;
}

/* Takes and returns on two streams, copies on two others, and host memory. */
static void draw_ops(tape *t, uint32_t *random)
{
  uint32_t held[64], hosts[64], count = 0, host_count = 0;
  for (uint32_t i = 0; i < 60; i++) {
    uint32_t what = next_random(random, 8);
    plan_stream pool = next_random(random, 4) == 0 ? STREAM_COMM : STREAM_COMPUTE;
    if (what < 3) {
      held[count++] = take(t, (1 + next_random(random, 40)) * MIB / 2, pool);
    } else if (what < 5 && count > 0) {
      uint32_t k = next_random(random, count);
      give(t, held[k], next_random(random, 2) ? 0 : MARK_OF(STREAM_D2H) | MARK_OF(STREAM_H2D));
      held[k] = held[--count];
    } else if (what < 7) {
      add_op(t->rank, what == 5 ? OP_D2H : OP_H2D, what == 5 ? STREAM_D2H : STREAM_H2D, 0);
    } else if (next_random(random, 2) || host_count == 0) {
      uint32_t key = next_random(random, 3); /* a pool has buffers of one size */
      hosts[host_count++] = take_host(t, key == 0 ? MIB : (1 + key) * MIB, key);
    } else {
      add_op(t->rank, OP_HOST_FREE, STREAM_HOST, hosts[--host_count]);
    }
  }
  while (count > 0)
    give(t, held[--count], 0);
  while (host_count > 0)
    add_op(t->rank, OP_HOST_FREE, STREAM_HOST, hosts[--host_count]);
}

/* The host issues an op each nanosecond, or later; a stream runs what it was issued in order. */
static rank_timeline draw_times(tape *t, uint32_t *random, uint32_t most_ns)
{
  uint32_t count = t->rank->ops.count;
  int64_t host_ps = 0, free_ps[STREAMS] = { 0 };
  rank_timeline times = { .ops.rows = ARENA_ARRAY(&t->memory, op_time, count) };
  for (uint32_t i = 0; i < count; i++) {
    const plan_op *o = &t->rank->ops.items[i];
    host_ps += PS_PER_NS * (next_random(random, 16) ? 1 : 1 + next_random(random, most_ns));
    op_time *time = &times.ops.rows[i];
    *time = (op_time){ host_ps, host_ps };
    if (op_is_copy((op_kind)o->kind)) {
      time->start_ps = max_i64(host_ps, free_ps[o->stream]);
      time->end_ps = free_ps[o->stream] = time->start_ps + 4 * PS_PER_NS;
    }
    times.end_of_rank_ps = max_i64(times.end_of_rank_ps, time->end_ps);
  }
  return times;
}

static void assert_same_replays(tape *t, const rank_timeline *a, const rank_timeline *b,
                                const replay_options *options)
{
  replay *first = replay_new(options, &t->memory), *second = replay_new(options, &t->memory);
  for (int k = 0; k < 2; k++) {
    replay_result x = replay_iteration(first, t->rank, a);
    replay_result y = replay_iteration(second, t->rank, b);
    assert_same_figures(&x, &y);
    assert_int_equal(x.host_pow2_peak_bytes, y.host_pow2_peak_bytes);
    assert_int_equal(x.out_of_memory, y.out_of_memory);
    for (uint32_t i = 0; i < x.refused->count; i++) {
      const host_hold *p = &x.refused->items[i], *q = &y.refused->items[i];
      assert_true(p->at == q->at && p->driver_calls == q->driver_calls);
      assert_int_equal(p->until == HOLD_FOR_NOTHING, q->until == HOLD_FOR_NOTHING);
    }
  }
  replay_release(first);
  replay_release(second);
}

/* Times that replay_is_same accepts give the same figures. It refuses times with which a block or host memory
 * is free sooner. */
static void test_same_with_other_times(void **state)
{
  (void)state;
  uint32_t random = 1, same = 0;
  for (int i = 0; i < 3000; i++) {
    tape t;
    tape_begin(&t, GIB);
    draw_ops(&t, &random);
    memory_ops ops = memory_ops_new(t.rank);
    rank_timeline a = draw_times(&t, &random, 2), b = draw_times(&t, &random, 2);
    assert_true(replay_is_same(&ops, &a, &a));
    bool is_same = replay_is_same(&ops, &a, &b);
    assert_int_equal(replay_is_same(&ops, &b, &a), is_same);
    same += is_same;
    replay_options options = { .capacity_bytes = (20 + next_random(&random, 200)) * MIB,
                               .expandable_segments = next_random(&random, 2) };
    if (is_same) assert_same_replays(&t, &a, &b, &options);
    memory_ops_release(&ops);
    tape_end(&t);
  }
  assert_true(same > 300 && same < 2700);
}

static void test_other_times_tell(void **state)
{
  (void)state;
  for (int host = 0; host < 2; host++) {
    tape t;
    tape_begin(&t, GIB);
    uint32_t first = host ? take_host(&t, MIB, 0) : take(&t, 30 * MIB, STREAM_COMPUTE);
    uint32_t copy = add_op(t.rank, host ? OP_H2D : OP_D2H, host ? STREAM_H2D : STREAM_D2H, 0);
    if (host)
      add_op(t.rank, OP_HOST_FREE, STREAM_HOST, first);
    else
      give(&t, first, MARK_OF(STREAM_D2H));
    if (host)
      take_host(&t, MIB, 0);
    else
      take(&t, 30 * MIB, STREAM_COMPUTE);
    play(&t, PS_PER_NS);
    memory_ops ops = memory_ops_new(t.rank);
    int64_t ends_ps[] = { 3 * PS_PER_NS, 3 * PS_PER_NS + 1, 9 * PS_PER_NS };
    for (int i = 0; i < 3; i++) {
      rank_timeline other = t.times;
      op_time *rows = other.ops.rows = copy_of_rows(&t, &t.times);
      rows[0].end_ps = rows[1].end_ps = 1;
      t.times.ops.rows[0].end_ps = 1;
      rows[copy].end_ps = ends_ps[i];
      assert_int_equal(replay_is_same(&ops, &t.times, &other), i == 0);
    }
    memory_ops_release(&ops);
    tape_end(&t);
  }
}

/* Freed memory is free at once, on the device and on the host. */
static void test_without_times(void **state)
{
  (void)state;
  tape t;
  tape_begin(&t, GIB);
  for (int i = 0; i < 2; i++) {
    give(&t, take(&t, 30 * MIB, STREAM_COMPUTE), MARK_OF(STREAM_D2H));
    add_op(t.rank, OP_HOST_FREE, STREAM_HOST, take_host(&t, 4 * MIB, 0));
  }
  int64_t allocated_bytes[8], reserved_bytes[8] = { 0 };
  memory_curve curve = { .allocated_bytes = allocated_bytes, .reserved_bytes = reserved_bytes };
  assert_int_equal(t.rank->ops.count, 8);
  replay_keep_curve(t.replay, &curve);
  replay_result r = replay_iteration(t.replay, t.rank, NULL);
  assert_int_equal(r.requested_peak_bytes, 30 * MIB);
  assert_int_equal(r.allocated_peak_bytes, 30 * MIB);
  assert_int_equal(r.live_peak_bytes, 30 * MIB);
  assert_int_equal(r.reserved_peak_bytes, 30 * MIB);
  assert_int_equal(r.host_pow2_peak_bytes, 4 * MIB);
  assert_int_equal(allocated_bytes[4], 30 * MIB);
  assert_int_equal(allocated_bytes[5], 0);
  assert_int_equal(reserved_bytes[4], 0);
  tape_end(&t);
}

/* ---- what is alive ---- */

static uint32_t add_tensor_at(plan *p, const char *module, int32_t layer)
{
  *ARRAY_PUSH(&p->sites) = (plan_site){ .module = module, .layer = layer };
  *ARRAY_PUSH(&p->tensors) = (plan_tensor){ .name = "t", .site = p->sites.count - 1 };
  return p->tensors.count - 1;
}

static uint32_t add_holding(rank_plan *r, uint32_t tensor, int64_t bytes, buffer_class class)
{
  bool on_device = class_side(class) == ON_DEVICE;
  uint32_t buffer = add_buffer(r, bytes, on_device ? STREAM_COMPUTE : STREAM_HOST);
  r->buffers.items[buffer].tensor = tensor;
  r->buffers.items[buffer].purpose = (uint8_t) class;
  return buffer;
}

/* One row for a module of all layers and a class, of device memory alone; equal bytes in the order of names,
 * then of classes. */
static void test_holdings(void **state)
{
  (void)state;
  arena a = { 0 };
  plan p = plan_new(1, &a);
  rank_plan *r = &p.ranks[0];
  uint32_t mlp = add_tensor_at(&p, "mlp", 0), later = add_tensor_at(&p, "mlp", 1);
  uint32_t attention = add_tensor_at(&p, "attention", 0);
  add_holding(r, mlp, 1000, CLASS_WEIGHT);
  add_holding(r, mlp, 9000, CLASS_PINNED_HOST);
  r->residents = 2;
  add_op(r, OP_ALLOC, STREAM_COMPUTE, add_holding(r, later, 512, CLASS_WEIGHT));
  uint32_t largest = add_holding(r, attention, 2048, CLASS_SAVED);
  add_op(r, OP_ALLOC, STREAM_COMPUTE, largest);
  add_op(r, OP_HOST_ALLOC, STREAM_HOST, add_holding(r, mlp, 9000, CLASS_PINNED_HOST));
  add_op(r, OP_ALLOC, STREAM_COMPUTE, add_holding(r, mlp, 1536, CLASS_SAVED));
  uint32_t last =
      add_op(r, OP_ALLOC, STREAM_COMPUTE, add_holding(r, attention, 1536, CLASS_TRANSIENT));
  uint32_t freed = add_op(r, OP_FREE, STREAM_COMPUTE, largest);
  static const replay_holding expected[] = {
    { "attention", CLASS_SAVED, 1, 2048 },
    { "attention", CLASS_TRANSIENT, 1, 1536 },
    { "mlp", CLASS_WEIGHT, 2, 1536 },
    { "mlp", CLASS_SAVED, 1, 1536 },
  };
  plan_modules modules = plan_modules_of(&p, &a);
  memory_ops m = memory_ops_new(r);
  for (uint32_t gone = 0; gone < 2; gone++) {
    uint32_t count;
    const replay_holding *found =
        replay_holdings(&p, &modules, &m, gone ? freed : last, &count, &a);
    assert_int_equal(count, 4 - gone);
    for (uint32_t i = 0; i < count; i++) {
      assert_string_equal(found[i].module, expected[i + gone].module);
      assert_int_equal(found[i].purpose, expected[i + gone].purpose);
      assert_int_equal(found[i].buffers, expected[i + gone].buffers);
      assert_int_equal(found[i].bytes, expected[i + gone].bytes);
    }
  }
  memory_ops_release(&m);
  plan_release(&p);
  arena_release(&a);
}

/* A step frees its first resident and makes it anew, so it comes last among what is left. The next step
 * frees that block again, not the one in its place. */
static void test_residents_keep_blocks_of_their_size(void **state)
{
  (void)state;
  tape t;
  tape_begin(&t, GIB);
  uint32_t small = add_buffer(t.rank, 20 * MIB, STREAM_COMPUTE);
  add_buffer(t.rank, 60 * MIB, STREAM_COMPUTE);
  t.rank->residents = 2;
  give(&t, small, 0);
  uint32_t before = add_op(t.rank, OP_HOST_WAIT, STREAM_HOST, 0);
  take(&t, 20 * MIB, STREAM_COMPUTE);
  memory_curve curve = { 0 };
  curve.allocated_bytes = ARENA_ARRAY(&t.memory, int64_t, t.rank->ops.count);
  curve.live_bytes = ARENA_ARRAY(&t.memory, int64_t, t.rank->ops.count);
  curve.reserved_bytes = ARENA_ARRAY(&t.memory, int64_t, t.rank->ops.count);
  replay_keep_curve(t.replay, &curve);
  for (int step = 0; step < 3; step++) {
    play(&t, 0);
    assert_int_equal(curve.allocated_bytes[before], 60 * MIB);
    assert_int_equal(curve.live_bytes[before], 60 * MIB);
  }
  tape_end(&t);
}

int main(void)
{
  static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_requested_rounds_and_allocated_counts_tails),
    cmocka_unit_test(test_marked_blocks),
    cmocka_unit_test(test_marked_block_waits_for_the_streams_wait),
    cmocka_unit_test(test_each_stream_has_its_pool),
    cmocka_unit_test(test_capacity),
    cmocka_unit_test(test_refusal_holds_the_host),
    cmocka_unit_test(test_giving_back_waits_for_the_gpu),
    cmocka_unit_test(test_holds_stay_in_order),
    cmocka_unit_test(test_iterations),
    cmocka_unit_test(test_residents_keep_blocks_of_their_size),
    cmocka_unit_test(test_residents_made_anew),
    cmocka_unit_test(test_residents_without_an_iteration_before),
    cmocka_unit_test(test_the_driver_is_not_counted),
    cmocka_unit_test(test_host_memory),
    cmocka_unit_test(test_pinned_block_waits_for_the_last_copy_back),
    cmocka_unit_test(test_curve),
    cmocka_unit_test(test_holdings),
    cmocka_unit_test(test_again),
    cmocka_unit_test(test_no_block_waits),
    cmocka_unit_test(test_tails_are_those_of_the_blocks_place),
    cmocka_unit_test(test_copies),
    cmocka_unit_test(test_what_waits),
    cmocka_unit_test(test_without_times),
    cmocka_unit_test(test_same_with_other_times),
    cmocka_unit_test(test_other_times_tell),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
