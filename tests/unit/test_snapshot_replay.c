/*
 * The allocator beside the one of a real training step: the memory snapshot of a Megatron-LM run, of
 * which snapshot_events.py has written the allocations, frees and completions in PyTorch's order.
 * Every block must be where PyTorch placed it, and the driver is asked for nothing, as there.
 *
 *     test_snapshot_replay [EVENTS.txt]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sim/base/array.h"
#include "sim/base/units.h"
#include "sim/memory/caching_allocator.h"

enum { LINE = 128, QUEUES = 8 };

/* Streams from here on represent the streams that mark blocks. */
#define FIRST_QUEUE (ALLOCATOR_MAX_STREAMS - QUEUES)

typedef struct segment {
  long long bytes, first; /* first: its address here */
  unsigned stream;
  uint32_t held, second; /* blocks that fill it while the first layout is made */
} segment;

typedef struct given {
  uint32_t block;
  bool done;
} given;

typedef struct replayed {
  caching_allocator *allocator;
  struct {
    segment *items;
    uint32_t count, capacity;
  } segments;
  struct {
    given *items;
    uint32_t count, capacity;
  } blocks; /* by number */
  uint64_t driver_calls;
  bool laid_out;
  uint32_t filled; /* segments before this one have their first blocks */
  long long filled_to;
  struct {
    uint32_t *items;
    uint32_t count, capacity;
  } gaps;
  int64_t active_bytes, reserved_bytes; /* as the events say */
  int events;
} replayed;

static bool is_done(void *context, uint32_t event)
{
  const replayed *r = context;
  return r->blocks.items[event].done;
}

static uint32_t take(replayed *r, unsigned stream, long long bytes)
{
  uint32_t block;
  assert_int_equal(caching_allocator_alloc(r->allocator, stream, bytes, &block), ALLOCATOR_OK);
  return block;
}

/* ---- the state before the first event ---- */

static bool is_small(const segment *s)
{
  return s->bytes == 2 * MIB;
}

/* A segment is held in full, so that no later request fits into it. */
static void hold_segment(replayed *r, unsigned stream, long long bytes)
{
  segment *s = ARRAY_PUSH(&r->segments);
  *s = (segment){ .bytes = bytes, .stream = stream };
  s->held = take(r, stream, is_small(s) ? bytes / 2 : bytes);
  s->second = is_small(s) ? take(r, stream, bytes / 2) : ALLOCATOR_NO_BLOCK;
  s->first = caching_allocator_block_address(r->allocator, s->held);
  r->reserved_bytes += bytes;
}

static void fill_gap(replayed *r, const segment *s, long long bytes)
{
  /* A small pool serves requests up to 1 MiB. */
  while (bytes > 0) {
    long long part = is_small(s) ? min_i64(bytes, MIB) : bytes;
    *ARRAY_PUSH(&r->gaps) = take(r, s->stream, part);
    bytes -= part;
  }
}

static void begin_segment(replayed *r)
{
  segment *s = &r->segments.items[r->filled];
  caching_allocator_free(r->allocator, s->held);
  caching_allocator_free(r->allocator, s->second);
  r->filled_to = 0;
}

static void end_segment(replayed *r)
{
  const segment *s = &r->segments.items[r->filled];
  fill_gap(r, s, s->bytes - r->filled_to);
  r->filled++;
}

static void place_block(replayed *r, unsigned in, long long offset, long long bytes)
{
  while (r->filled < in) {
    end_segment(r);
    begin_segment(r);
  }
  fill_gap(r, &r->segments.items[in], offset - r->filled_to);
  *ARRAY_PUSH(&r->blocks) = (given){ .block = take(r, r->segments.items[in].stream, bytes) };
  r->filled_to = offset + bytes;
  r->active_bytes += bytes;
}

static uint64_t driver_calls(const replayed *r)
{
  const allocator_stats *s = caching_allocator_stats(r->allocator);
  return s->driver_allocs + s->driver_frees;
}

static void end_layout(replayed *r)
{
  while (r->filled < r->segments.count) {
    end_segment(r);
    if (r->filled < r->segments.count) begin_segment(r);
  }
  for (uint32_t i = 0; i < r->gaps.count; i++)
    caching_allocator_free(r->allocator, r->gaps.items[i]);
  r->driver_calls = driver_calls(r);
  r->laid_out = true;
}

/* ---- events ---- */

static void check(replayed *r)
{
  const allocator_stats *s = caching_allocator_stats(r->allocator);
  assert_int_equal(allocator_active_bytes(s), r->active_bytes);
  assert_int_equal(s->reserved.current_bytes, r->reserved_bytes);
  assert_int_equal(driver_calls(r), r->driver_calls);
  r->events++;
}

static void do_alloc(replayed *r, unsigned stream, long long bytes, unsigned in, long long offset)
{
  uint32_t block = take(r, stream, bytes);
  const segment *s = &r->segments.items[in];
  assert_true(in < r->segments.count);
  assert_int_equal(caching_allocator_block_address(r->allocator, block), s->first + offset);
  *ARRAY_PUSH(&r->blocks) = (given){ .block = block };
  r->active_bytes += caching_allocator_block_bytes(r->allocator, block);
}

static void do_free(replayed *r, unsigned number, int queue)
{
  uint32_t block = r->blocks.items[number].block;
  allocator_use use = { FIRST_QUEUE + (uint32_t)queue, number };
  if (queue < 0) r->active_bytes -= caching_allocator_block_bytes(r->allocator, block);
  caching_allocator_free_after(r->allocator, block, &use, queue >= 0);
}

static void do_done(replayed *r, unsigned number)
{
  r->active_bytes -= caching_allocator_block_bytes(r->allocator, r->blocks.items[number].block);
  r->blocks.items[number].done = true;
  caching_allocator_poll(r->allocator);
}

static bool is(const char *line, const char *word)
{
  return strncmp(line, word, strlen(word)) == 0;
}

static void do_line(replayed *r, const char *line)
{
  unsigned a = 0, in = 0;
  long long b = 0, c = 0;
  int queue = -1;
  if (is(line, "segment ") && sscanf(line, "segment %u %lld", &a, &b) == 2) {
    hold_segment(r, a, b);
    return;
  }
  if (is(line, "block ") && sscanf(line, "block %u %lld %lld", &in, &b, &c) == 3) {
    if (r->blocks.count == 0) begin_segment(r);
    place_block(r, in, b, c);
    return;
  }
  if (!r->laid_out) end_layout(r);
  if (is(line, "alloc ") && sscanf(line, "alloc %u %lld %u %lld", &a, &b, &in, &c) == 4)
    do_alloc(r, a, b, in, c);
  else if (is(line, "free ") && sscanf(line, "free %u %d", &a, &queue) >= 1)
    do_free(r, a, queue);
  else if (is(line, "done ") && sscanf(line, "done %u", &a) == 1)
    do_done(r, a);
  else if (is(line, "end ") && sscanf(line, "end %u %lld", &a, &b) == 2)
    assert_int_equal(caching_allocator_block_bytes(r->allocator, r->blocks.items[a].block), b);
  else
    fail_msg("not an event: %s", line);
  check(r);
}

static void replay(const char *path, int least)
{
  replayed r = { 0 };
  r.allocator = caching_allocator_new(&(allocator_options){
      .capacity_bytes = ALLOCATOR_UNLIMITED_BYTES, .event_done = is_done, .event_context = &r });
  FILE *file = fopen(path, "r");
  char line[LINE];
  assert_non_null(file);
  while (fgets(line, LINE, file) != NULL)
    if (line[0] != '#') do_line(&r, line);
  fclose(file);
  assert_true(r.events >= least);
  caching_allocator_delete(r.allocator);
  ARRAY_FREE(&r.segments);
  ARRAY_FREE(&r.blocks);
  ARRAY_FREE(&r.gaps);
}

static const char *given_path = "tests/data/allocator/megatron-step.txt";

static void test_step(void **state)
{
  (void)state;
  replay(given_path, 4000);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = { cmocka_unit_test(test_step) };
  if (argc > 1) given_path = argv[1];
  return cmocka_run_group_tests(tests, NULL, NULL);
}
