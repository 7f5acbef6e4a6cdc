/* Races of records that are written by hand: each kind, and its twin that has the missing edge. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "traces/races/races.h"

enum { DEVICE = 0x100000, HOST = 0x900000, SPACE_BYTES = 0x10000, BYTES = 512, EVENT = 7 };

typedef struct record {
  uint8_t *items;
  uint32_t count, capacity;
} record;

static void put(record *r, const void *bytes, uint32_t count)
{
  memcpy(ARRAY_EXTEND(r, count), bytes, count);
}

static void row_of(record *r, issued_kind kind, uint8_t flags, const uint64_t *words,
                   uint32_t count)
{
  const uint64_t time_ns = 1, zero = 0;
  issued_header h = { (uint8_t)kind, flags, 0, (count + 1) / 2 * 2 };
  put(r, &h, sizeof h);
  put(r, &time_ns, 8);
  put(r, words, 8 * count);
  if (count % 2 == 1) put(r, &zero, 8);
}

#define ROW(r, kind, ...)                                                                          \
  row_of(r, kind, 0, (const uint64_t[]){ __VA_ARGS__ },                                            \
         sizeof((const uint64_t[]){ __VA_ARGS__ }) / 8)

/* A kernel "f"; streams 0 and 1, which wait for nothing by themselves; device and host memory. */
static record begin_with(uint64_t kind_of_stream_0, uint64_t kind_of_stream_1)
{
  record r = { 0 };
  put(&r, ISSUED_MAGIC, ISSUED_MAGIC_BYTES);
  ROW(&r, ISSUED_NAME, 0, 'f');
  ROW(&r, ISSUED_STREAM, 0, 1, kind_of_stream_0);
  ROW(&r, ISSUED_STREAM, 1, 1, kind_of_stream_1);
  ROW(&r, ISSUED_ALLOC, DEVICE, SPACE_BYTES, ISSUED_DEVICE);
  ROW(&r, ISSUED_ALLOC, HOST, SPACE_BYTES, ISSUED_HOST);
  ROW(&r, ISSUED_BLOCK, DEVICE);
  return r;
}

static record begin(void)
{
  return begin_with(0, 0);
}

static void kernel(record *r, uint64_t stream)
{
  ROW(r, ISSUED_KERNEL, stream, 0, DEVICE);
}

static void copy(record *r, uint64_t stream, uint64_t to, uint64_t from)
{
  ROW(r, ISSUED_COPY, stream, to, from, BYTES, 1, BYTES, BYTES);
}

static void edge(record *r, uint64_t from, uint64_t to)
{
  ROW(r, ISSUED_EVENT_RECORD, from, EVENT);
  ROW(r, ISSUED_EVENT_WAIT, to, EVENT);
}

static void next_tensor(record *r)
{
  ROW(r, ISSUED_BLOCK_FREE, DEVICE);
  ROW(r, ISSUED_BLOCK, DEVICE);
}

/* Of one kind, or none. */
static void expect(record *r, bool found, race_kind kind)
{
  races result;
  arena a = { 0 };
  diag d = { .quiet = true };
  ROW(r, ISSUED_END, 0, 0);
  assert_true(races_find_bytes(&result, r->items, r->count, &a, &d));
  assert_int_equal(result.found, found ? 1 : 0);
  assert_true(result.ended);
  if (found) {
    assert_int_equal(result.count, 1);
    assert_int_equal(result.items[0].kind, kind);
    assert_true(result.items[0].earlier.row < result.items[0].later.row);
  }
  races_release(&result);
  arena_release(&a);
  ARRAY_FREE(r);
}

static void expect_race(record *r, race_kind kind)
{
  expect(r, true, kind);
}

static void expect_none(record *r)
{
  expect(r, false, RACE_KINDS);
}

/* ---- pairs: with and without the edge ---- */

static void reload_needs_a_wait(void **state)
{
  (void)state;
  for (int waits = 0; waits < 2; waits++) {
    record r = begin();
    copy(&r, 1, DEVICE, HOST);
    if (waits) edge(&r, 1, 0);
    kernel(&r, 0);
    expect(&r, !waits, RACE_NOT_ARRIVED);
  }
}

static void copy_out_waits_for_its_maker_only(void **state)
{
  (void)state;
  for (int waits = 0; waits < 2; waits++) {
    record r = begin();
    kernel(&r, 0);
    if (waits) edge(&r, 0, 1);
    kernel(&r, 0); /* reads */
    copy(&r, 1, HOST, DEVICE);
    kernel(&r, 0);
    expect(&r, !waits, RACE_NOT_MADE);
  }
}

static void source_is_freed_during_its_copy(void **state)
{
  (void)state;
  for (int waits = 0; waits < 2; waits++) {
    record r = begin();
    kernel(&r, 0);
    edge(&r, 0, 1);
    copy(&r, 1, HOST, DEVICE);
    ROW(&r, ISSUED_EVENT_RECORD, 1, EVENT);
    /* What record_stream does: the block is given back once the host sees the event. */
    if (waits) ROW(&r, ISSUED_EVENT_DONE, EVENT);
    next_tensor(&r);
    kernel(&r, 0);
    expect(&r, !waits, RACE_REUSED);
  }
}

static void another_streams_block_is_reused(void **state)
{
  (void)state;
  for (int waits = 0; waits < 2; waits++) {
    record r = begin();
    kernel(&r, 0);
    next_tensor(&r);
    if (waits) edge(&r, 0, 1);
    kernel(&r, 1);
    expect(&r, !waits, RACE_REUSED);
  }
}

static void host_buffer_is_refilled_during_a_copy(void **state)
{
  (void)state;
  for (int waits = 0; waits < 2; waits++) {
    record r = begin();
    copy(&r, 1, DEVICE, HOST);
    if (waits) edge(&r, 1, 0);
    copy(&r, 0, HOST, DEVICE + 4096);
    expect(&r, !waits, RACE_COPIES);
  }
}

static void copy_in_waits_for_readers(void **state)
{
  (void)state;
  for (int waits = 0; waits < 2; waits++) {
    record r = begin();
    kernel(&r, 0);
    if (waits) edge(&r, 0, 1);
    copy(&r, 1, DEVICE, HOST);
    expect(&r, !waits, RACE_OVERWRITTEN);
  }
}

static void event_recorded_too_early_orders_nothing(void **state)
{
  (void)state;
  record r = begin();
  ROW(&r, ISSUED_EVENT_RECORD, 0, EVENT);
  kernel(&r, 0);
  ROW(&r, ISSUED_EVENT_WAIT, 1, EVENT);
  copy(&r, 1, HOST, DEVICE);
  expect_race(&r, RACE_NOT_MADE);
}

static void a_destroyed_event_is_another_one(void **state)
{
  (void)state;
  record r = begin();
  copy(&r, 1, DEVICE, HOST);
  ROW(&r, ISSUED_EVENT_RECORD, 1, EVENT);
  ROW(&r, ISSUED_EVENT_GONE, EVENT);
  ROW(&r, ISSUED_EVENT_WAIT, 0, EVENT);
  kernel(&r, 0);
  expect_race(&r, RACE_NOT_ARRIVED);
}

/* ---- what orders without an event ---- */

static void synchronisation_orders(void **state)
{
  (void)state;
  const issued_kind kinds[] = { ISSUED_STREAM_DONE, ISSUED_CONTEXT_DONE };
  for (int i = 0; i < 2; i++) {
    record r = begin();
    copy(&r, 1, DEVICE, HOST);
    ROW(&r, kinds[i], 1); /* stream 1; context 1 */
    kernel(&r, 0);
    expect_none(&r);
  }
}

static void legacy_stream_orders_blocking_ones(void **state)
{
  (void)state;
  const uint64_t others[] = { ISSUED_BLOCKING, 0 };
  for (int i = 0; i < 2; i++) {
    record r = begin_with(ISSUED_LEGACY, others[i]);
    copy(&r, 1, DEVICE, HOST);
    kernel(&r, 0);
    expect(&r, others[i] == 0, RACE_NOT_ARRIVED);
  }
}

static void a_copy_that_returns_when_it_is_over_orders(void **state)
{
  (void)state;
  const uint64_t words[] = { 1, DEVICE, HOST, BYTES, 1, BYTES, BYTES };
  record r = begin();
  row_of(&r, ISSUED_COPY, ISSUED_WAITED, words, 7);
  kernel(&r, 0);
  expect_none(&r);
}

static void kernels_alone_never_race(void **state)
{
  (void)state;
  record r = begin();
  kernel(&r, 0);
  kernel(&r, 1);
  expect_none(&r);
}

/* A pointer that was left over among the arguments. */
static void freed_blocks_are_not_used(void **state)
{
  (void)state;
  record r = begin();
  copy(&r, 1, DEVICE, HOST);
  ROW(&r, ISSUED_BLOCK_FREE, DEVICE);
  kernel(&r, 0);
  expect_none(&r);
}

static void captured_work_does_not_run(void **state)
{
  (void)state;
  const uint64_t words[] = { 0, 0, DEVICE };
  record r = begin();
  copy(&r, 1, DEVICE, HOST);
  row_of(&r, ISSUED_KERNEL, ISSUED_CAPTURED, words, 3);
  expect_none(&r);
}

static void memory_of_the_driver_is_ordered(void **state)
{
  (void)state;
  record r = begin();
  kernel(&r, 0);
  ROW(&r, ISSUED_FREE, DEVICE, SPACE_BYTES, 1);
  ROW(&r, ISSUED_ALLOC, DEVICE, SPACE_BYTES, ISSUED_DEVICE);
  kernel(&r, 1);
  expect_none(&r);
}

/* ---- files ---- */

static void a_killed_run_is_read_to_its_end(void **state)
{
  (void)state;
  record r = begin();
  races result;
  arena a = { 0 };
  diag d = { .quiet = true };
  kernel(&r, 0);
  memset(ARRAY_EXTEND(&r, 4096), 0, 4096);
  assert_true(races_find_bytes(&result, r.items, r.count, &a, &d));
  assert_false(result.ended);
  assert_int_equal(result.kernels, 1);
  races_release(&result);
  arena_release(&a);
  ARRAY_FREE(&r);
}

static void expect_wrong(record *r, uint32_t count, const char *message)
{
  races result;
  arena a = { 0 };
  diag d = { .quiet = true };
  assert_false(races_find_bytes(&result, r->items, count, &a, &d));
  assert_int_equal(d.exit_status, 2);
  assert_non_null(strstr(d.message, message));
  races_release(&result);
  arena_release(&a);
}

static void wrong_files_have_one_message(void **state)
{
  (void)state;
  record r = begin();
  uint32_t whole = r.count;
  expect_wrong(&r, 5, "at byte 0: no record of offsim record: it begins with \"offsim issued 1\"");
  expect_wrong(&r, whole - 8, "at byte 240: the record ends within a row; copy it again");
  ROW(&r, ISSUED_STREAM_DONE, 9);
  expect_wrong(&r, r.count, "at byte 304: a row \"stream_done\" of stream 9; 2 are known");
  r.items[whole] = 99;
  expect_wrong(&r, r.count, "at byte 272: a row of kind 99, of which this offsim knows 21");
  ARRAY_FREE(&r);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(reload_needs_a_wait),
    cmocka_unit_test(copy_out_waits_for_its_maker_only),
    cmocka_unit_test(source_is_freed_during_its_copy),
    cmocka_unit_test(another_streams_block_is_reused),
    cmocka_unit_test(host_buffer_is_refilled_during_a_copy),
    cmocka_unit_test(copy_in_waits_for_readers),
    cmocka_unit_test(event_recorded_too_early_orders_nothing),
    cmocka_unit_test(a_destroyed_event_is_another_one),
    cmocka_unit_test(synchronisation_orders),
    cmocka_unit_test(legacy_stream_orders_blocking_ones),
    cmocka_unit_test(a_copy_that_returns_when_it_is_over_orders),
    cmocka_unit_test(kernels_alone_never_race),
    cmocka_unit_test(freed_blocks_are_not_used),
    cmocka_unit_test(captured_work_does_not_run),
    cmocka_unit_test(memory_of_the_driver_is_ordered),
    cmocka_unit_test(a_killed_run_is_read_to_its_end),
    cmocka_unit_test(wrong_files_have_one_message),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
