/*
 * The caching allocator: each rule as a closed case, then random runs beside a twin that keeps all
 * blocks in one list and looks at every one of them for every decision.
 */
#include "sim/memory/caching_allocator_steps.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sim/base/units.h"
#include "sim/memory/free_bins.h"

enum { COMPUTE = 0, D2H = 1 };

/* ---- events ---- */

enum { MAX_EVENTS = 1 << 18 };

static bool event_is_done[MAX_EVENTS];
static uint32_t event_count;

static bool event_done(void *context, uint32_t event)
{
  (void)context;
  return event_is_done[event];
}

static uint32_t new_event(void)
{
  assert_true(event_count < MAX_EVENTS);
  event_is_done[event_count] = false;
  return event_count++;
}

static caching_allocator *new_allocator(int64_t capacity_bytes, bool expandable)
{
  event_count = 0;
  return caching_allocator_new(&(allocator_options){ .capacity_bytes = capacity_bytes,
                                                     .expandable_segments = expandable,
                                                     .event_done = event_done });
}

static uint32_t take(caching_allocator *a, uint32_t stream, int64_t bytes)
{
  uint32_t b;

  assert_int_equal(caching_allocator_alloc(a, stream, bytes, &b), ALLOCATOR_OK);
  return b;
}

static int64_t address(const caching_allocator *a, uint32_t b)
{
  return caching_allocator_block_address(a, b);
}

/* ---- closed cases ---- */

/* What one request alone allocates and reserves. */
static void test_sizes(void **state)
{
  static const struct {
    int64_t request, allocated, reserved, expandable_allocated, expandable_reserved;
  } cases[] = {
    { 1, 512, 2 * MIB, 512, 2 * MIB },
    { 513, 1024, 2 * MIB, 1024, 2 * MIB },
    { MIB, MIB, 2 * MIB, MIB, 2 * MIB },
    { MIB + 1, MIB + 512, 20 * MIB, MIB + 512, 20 * MIB },
    { 10 * MIB - 512, 10 * MIB - 512, 20 * MIB, 10 * MIB - 512, 20 * MIB },
    { 10 * MIB, 10 * MIB, 10 * MIB, 10 * MIB, 20 * MIB },
    /* The rest of the 2 MiB rounding is a tail: at most 1 MiB is not split off. */
    { 11 * MIB, 12 * MIB, 12 * MIB, 11 * MIB, 20 * MIB },
    { 11 * MIB - 512, 11 * MIB - 512, 12 * MIB, 11 * MIB - 512, 20 * MIB },
    { 21 * MIB, 22 * MIB, 22 * MIB, 21 * MIB, 40 * MIB },
  };
  (void)state;

  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (int expandable = 0; expandable <= 1; expandable++) {
      caching_allocator *a = new_allocator(GIB, expandable);
      const allocator_stats *s = caching_allocator_stats(a);
      take(a, COMPUTE, cases[i].request);
      assert_int_equal(s->allocated.current_bytes,
                       expandable ? cases[i].expandable_allocated : cases[i].allocated);
      assert_int_equal(allocator_active_bytes(s), s->allocated.current_bytes);
      assert_int_equal(s->reserved.current_bytes,
                       expandable ? cases[i].expandable_reserved : cases[i].reserved);
      caching_allocator_delete(a);
    }
}

static void test_empty_request_has_no_block(void **state)
{
  caching_allocator *a = new_allocator(GIB, false);
  (void)state;

  assert_int_equal(take(a, COMPUTE, 0), ALLOCATOR_NO_BLOCK);
  caching_allocator_free(a, ALLOCATOR_NO_BLOCK);
  assert_int_equal(caching_allocator_stats(a)->reserved.current_bytes, 0);
  caching_allocator_delete(a);
}

/* The smallest block that fits; of equal ones the lowest address; whole segments are kept apart. */
static void test_best_fit(void **state)
{
  caching_allocator *a = new_allocator(GIB, false);
  (void)state;

  uint32_t big = take(a, COMPUTE, 40 * MIB);
  uint32_t first = take(a, COMPUTE, 12 * MIB);
  uint32_t second = take(a, COMPUTE, 12 * MIB);
  int64_t big_address = address(a, big), first_address = address(a, first);
  int64_t second_address = address(a, second);
  caching_allocator_free(a, big);
  caching_allocator_free(a, second);
  caching_allocator_free(a, first);
  assert_int_equal(address(a, take(a, COMPUTE, 12 * MIB)), first_address);
  assert_int_equal(address(a, take(a, COMPUTE, 11 * MIB + 512)), second_address);
  assert_int_equal(address(a, take(a, COMPUTE, 12 * MIB)), big_address);
  assert_int_equal(address(a, take(a, COMPUTE, 12 * MIB)), big_address + 12 * MIB);
  caching_allocator_delete(a);
}

static void test_free_neighbours_merge(void **state)
{
  caching_allocator *a = new_allocator(GIB, false);
  (void)state;

  uint32_t x = take(a, COMPUTE, 5 * MIB), y = take(a, COMPUTE, 5 * MIB);
  uint32_t z = take(a, COMPUTE, 5 * MIB), rest = take(a, COMPUTE, 5 * MIB);
  int64_t start = address(a, x);
  caching_allocator_free(a, x);
  caching_allocator_free(a, z);
  caching_allocator_free(a, y);
  uint32_t whole = take(a, COMPUTE, 15 * MIB);
  assert_int_equal(address(a, whole), start);
  assert_int_equal(caching_allocator_stats(a)->reserved.current_bytes, 20 * MIB);
  caching_allocator_free(a, whole);
  caching_allocator_free(a, rest);
  assert_int_equal(caching_allocator_stats(a)->allocated.current_bytes, 0);
  assert_int_equal(caching_allocator_stats(a)->allocated.peak_bytes, 20 * MIB);
  caching_allocator_delete(a);
}

static void test_streams_do_not_share(void **state)
{
  caching_allocator *a = new_allocator(GIB, false);
  (void)state;

  caching_allocator_free(a, take(a, COMPUTE, 12 * MIB));
  take(a, D2H, 12 * MIB);
  assert_int_equal(caching_allocator_stats(a)->reserved.current_bytes, 24 * MIB);
  caching_allocator_delete(a);
}

/* Freed while d2h still reads it: not allocated any more, active until the event, then reusable. */
static void test_marked_block_waits(void **state)
{
  caching_allocator *a = new_allocator(GIB, false);
  const allocator_stats *s = caching_allocator_stats(a);
  (void)state;

  uint32_t b = take(a, COMPUTE, 12 * MIB), event = new_event();
  int64_t where = address(a, b);
  caching_allocator_free_after(a, b, &(allocator_use){ D2H, event }, 1);
  assert_int_equal(s->allocated.current_bytes, 0);
  assert_int_equal(allocator_active_bytes(s), 12 * MIB);
  assert_int_equal(s->waiting_bytes, 12 * MIB);
  assert_int_not_equal(address(a, take(a, COMPUTE, 12 * MIB)), where);
  assert_int_equal(caching_allocator_pending(a), 1);
  event_is_done[event] = true;
  assert_int_equal(allocator_active_bytes(s), 24 * MIB);
  assert_int_equal(address(a, take(a, COMPUTE, 12 * MIB)), where);
  assert_int_equal(s->active_peak_bytes, 24 * MIB);
  assert_int_equal(caching_allocator_pending(a), 0);
  assert_int_equal(s->waiting_bytes, 0);
  caching_allocator_delete(a);
}

static uint32_t take_at(caching_allocator *a, uint32_t at)
{
  uint32_t b, bin = free_bin_of(pool_of_request(COMPUTE, 2 * MIB), 2 * MIB);

  if (!allocator_take_quickly(a, bin, 2 * MIB, at, &b))
    assert_int_equal(allocator_take_slowly(a, bin, 2 * MIB, at, &b), ALLOCATOR_OK);
  return b;
}

/* The first one that reaches a peak. */
static void test_peak_has_its_request(void **state)
{
  caching_allocator *a = new_allocator(GIB, false);
  const allocator_stats *s = caching_allocator_stats(a);
  (void)state;

  (void)take_at(a, 7);
  assert_int_equal(s->allocated_peak_at, 7);
  caching_allocator_free(a, take_at(a, 8));
  (void)take_at(a, 9);
  assert_int_equal(s->allocated_peak_at, 8);
  caching_allocator_reset_peaks(a);
  assert_int_equal(s->allocated_peak_at, 0);
  caching_allocator_delete(a);
}

static void test_own_stream_is_no_mark(void **state)
{
  caching_allocator *a = new_allocator(GIB, false);
  (void)state;

  caching_allocator_free_after(a, take(a, D2H, MIB), &(allocator_use){ D2H, new_event() }, 1);
  assert_int_equal(allocator_active_bytes(caching_allocator_stats(a)), 0);
  caching_allocator_delete(a);
}

static void test_return_at_once(void **state)
{
  caching_allocator *a = caching_allocator_new(
      &(allocator_options){ .capacity_bytes = ALLOCATOR_UNLIMITED_BYTES, .return_at_once = true });
  (void)state;

  uint32_t b = take(a, COMPUTE, 12 * MIB);
  int64_t where = address(a, b);
  caching_allocator_free_after(a, b, &(allocator_use){ D2H, 0 }, 1);
  assert_int_equal(address(a, take(a, COMPUTE, 12 * MIB)), where);
  caching_allocator_delete(a);
}

/* The driver refuses: first the events, then the cache, then no memory. */
static void test_refusal(void **state)
{
  caching_allocator *a = new_allocator(64 * MIB, false);
  uint32_t b = take(a, COMPUTE, 30 * MIB), cached = take(a, COMPUTE, 20 * MIB);
  uint32_t event = new_event(), got;
  (void)state;

  caching_allocator_free(a, cached);
  caching_allocator_free_after(a, b, &(allocator_use){ D2H, event }, 1);
  assert_int_equal(caching_allocator_alloc(a, COMPUTE, 48 * MIB, &got), ALLOCATOR_NEEDS_EVENTS);
  event_is_done[event] = true;
  assert_int_equal(caching_allocator_alloc_after_events(a, COMPUTE, 48 * MIB, &got), ALLOCATOR_OK);
  assert_int_equal(caching_allocator_stats(a)->reserved.current_bytes, 48 * MIB);
  assert_int_equal(caching_allocator_stats(a)->reserved.peak_bytes, 50 * MIB);
  assert_int_equal(caching_allocator_stats(a)->retries, 1);
  assert_int_equal(caching_allocator_alloc(a, COMPUTE, 17 * MIB, &got), ALLOCATOR_OUT_OF_MEMORY);
  assert_int_equal(got, ALLOCATOR_NO_BLOCK);
  caching_allocator_delete(a);
}

/* A free block at the end of the mapped part grows; the pages of the middle can move to the end. */
static void test_expandable_grows_and_moves(void **state)
{
  caching_allocator *a = new_allocator(100 * MIB, true);
  const allocator_stats *s = caching_allocator_stats(a);
  uint32_t got;
  (void)state;

  uint32_t x = take(a, COMPUTE, 40 * MIB), y = take(a, COMPUTE, 30 * MIB);
  assert_int_equal(s->reserved.current_bytes, 80 * MIB);
  assert_int_equal(address(a, y), address(a, x) + 40 * MIB);
  caching_allocator_free(a, y);
  y = take(a, COMPUTE, 55 * MIB);
  assert_int_equal(s->reserved.current_bytes, 100 * MIB);
  int64_t start = address(a, x), y_start = address(a, y);
  caching_allocator_free(a, x);
  /* 40 MiB at the start and 5 at the end are free: 45 in one piece only after moving pages. */
  assert_int_equal(caching_allocator_alloc(a, COMPUTE, 45 * MIB, &got), ALLOCATOR_OUT_OF_MEMORY);
  assert_int_equal(caching_allocator_alloc(a, COMPUTE, 42 * MIB, &got), ALLOCATOR_OUT_OF_MEMORY);
  caching_allocator_free(a, y);
  assert_int_equal(address(a, take(a, COMPUTE, 100 * MIB)), start);
  assert_true(y_start > start);
  caching_allocator_delete(a);
}

/* A block before unmapped space is kept for what can grow; the larger inner one is taken. */
static void test_expandable_prefers_inner_block(void **state)
{
  caching_allocator *a = new_allocator(GIB, true);
  (void)state;

  uint32_t inner = take(a, COMPUTE, 8 * MIB);
  take(a, COMPUTE, 8 * MIB); /* 4 MiB are left before the unmapped space */
  int64_t where = address(a, inner);
  caching_allocator_free(a, inner);
  assert_int_equal(address(a, take(a, COMPUTE, 3 * MIB)), where);
  caching_allocator_delete(a);
}

/* By 2 MiB of the address space: is there memory? */
typedef struct real_memory {
  bool mapped[200];
  int64_t bytes, limit_bytes;
} real_memory;

static void set_mapped(real_memory *m, int64_t from, int64_t bytes, bool now)
{
  assert_int_equal(from % (2 * MIB), 0);
  assert_int_equal(bytes % (2 * MIB), 0);
  for (int64_t at = from; at < from + bytes; at += 2 * MIB) {
    assert_int_equal(m->mapped[at / (2 * MIB)], !now);
    m->mapped[at / (2 * MIB)] = now;
  }
  m->bytes += now ? bytes : -bytes;
}

static bool give(void *memory, int64_t from, int64_t bytes)
{
  real_memory *m = memory;
  if (m->bytes + bytes > m->limit_bytes) return false;
  set_mapped(m, from, bytes, true);
  return true;
}

static void take_back(void *memory, int64_t from, int64_t bytes)
{
  set_mapped(memory, from, bytes, false);
}

/* Blocks lie where the driver has been asked for memory; its refusal makes room as the
 * capacity's. */
static void test_real_memory(void **state)
{
  (void)state;
  for (int expandable = 0; expandable <= 1; expandable++) {
    real_memory m = { .limit_bytes = 60 * MIB };
    uint32_t got;
    caching_allocator *a =
        caching_allocator_new(&(allocator_options){ .capacity_bytes = 100 * MIB,
                                                    .expandable_segments = expandable,
                                                    .driver = { give, take_back, &m },
                                                    .event_done = event_done });
    uint32_t x = take(a, COMPUTE, 40 * MIB), y = take(a, COMPUTE, 5 * MIB);
    assert_true(m.mapped[address(a, x) / (2 * MIB)] && m.mapped[address(a, y) / (2 * MIB)]);
    assert_int_equal(caching_allocator_alloc(a, D2H, 50 * MIB, &got), ALLOCATOR_OUT_OF_MEMORY);
    caching_allocator_free(a, x);
    uint32_t z = take(a, D2H, 30 * MIB);
    assert_true(m.mapped[address(a, z) / (2 * MIB)]);
    assert_int_equal(m.bytes, caching_allocator_stats(a)->reserved.current_bytes);
    caching_allocator_free(a, y);
    caching_allocator_free(a, z);
    caching_allocator_empty_cache(a);
    assert_int_equal(m.bytes, 0);
    caching_allocator_delete(a);
  }
}

static void test_peaks_can_be_reset(void **state)
{
  caching_allocator *a = new_allocator(GIB, false);
  const allocator_stats *s = caching_allocator_stats(a);
  (void)state;

  uint32_t b = take(a, COMPUTE, 30 * MIB);
  take(a, COMPUTE, 12 * MIB);
  caching_allocator_free(a, b);
  caching_allocator_empty_cache(a);
  caching_allocator_reset_peaks(a);
  assert_int_equal(s->allocated.peak_bytes, 12 * MIB);
  assert_int_equal(s->reserved.peak_bytes, 12 * MIB);
  caching_allocator_delete(a);
}

/* ---- the twin ---- */

enum { TWIN_BLOCKS = 8192, TWIN_STREAMS = 3 };

typedef enum twin_state { TWIN_FREE, TWIN_USED, TWIN_WAITING, TWIN_UNMAPPED } twin_state;

typedef struct twin_block {
  int64_t address, size;
  uint32_t segment, id, stream;
  bool large;
  bool just_unmapped;
  twin_state state;
} twin_block;

/* Blocks by address. Two neighbours of one segment are adjacent. */
typedef struct twin {
  twin_block blocks[TWIN_BLOCKS];
  uint32_t count, segments, next_id;
  int64_t next_address, capacity;
  int64_t allocated, active, reserved, reserved_peak, active_peak;
  bool expandable;
  struct {
    uint32_t event, id, stream;
  } waiting[TWIN_BLOCKS];
  uint32_t waiting_count;
} twin;

static void twin_insert(twin *t, uint32_t i, twin_block b)
{
  assert_true(t->count < TWIN_BLOCKS);
  memmove(&t->blocks[i + 1], &t->blocks[i], (t->count - i) * sizeof b);
  t->blocks[i] = b;
  t->count++;
}

static void twin_cut(twin *t, uint32_t i, int64_t size, twin_state rest)
{
  twin_block b = t->blocks[i];

  t->blocks[i].size = size;
  b.address += size;
  b.size -= size;
  b.state = rest;
  twin_insert(t, i + 1, b);
}

/* Every two neighbours that are both free, or both unmapped, become one. */
static void twin_merge(twin *t)
{
  for (uint32_t i = 0; i + 1 < t->count;) {
    twin_block *b = &t->blocks[i], *n = &t->blocks[i + 1];
    if (b->segment == n->segment && b->state == n->state &&
        (b->state == TWIN_FREE || b->state == TWIN_UNMAPPED)) {
      b->size += n->size;
      b->just_unmapped |= n->just_unmapped;
      t->count--;
      memmove(n, n + 1, (t->count - i - 1) * sizeof *n);
    } else {
      i++;
    }
  }
}

static int64_t twin_growth(const twin *t, uint32_t i)
{
  const twin_block *b = &t->blocks[i];

  if (i + 1 < t->count && b[1].segment == b->segment && b[1].state == TWIN_UNMAPPED)
    return b->size + b[1].size;
  return b->size;
}

/* The free block after (size, address) in the order of the pool. */
static uint32_t twin_next(const twin *t, uint32_t stream, bool large, int64_t size, int64_t after)
{
  uint32_t best = UINT32_MAX;

  for (uint32_t i = 0; i < t->count; i++) {
    const twin_block *b = &t->blocks[i];
    if (b->state != TWIN_FREE || b->stream != stream || b->large != large) continue;
    if (b->size < size || (b->size == size && b->address <= after)) continue;
    if (best == UINT32_MAX || b->size < t->blocks[best].size) best = i;
  }
  return best;
}

static uint32_t twin_fit(const twin *t, uint32_t stream, bool large, int64_t size)
{
  uint32_t i = twin_next(t, stream, large, size, -1);

  while (i != UINT32_MAX && t->expandable) {
    uint32_t n = twin_next(t, stream, large, t->blocks[i].size, t->blocks[i].address);
    if (n == UINT32_MAX || twin_growth(t, n) >= twin_growth(t, i)) break;
    i = n;
  }
  return i;
}

static bool twin_reserve(twin *t, int64_t bytes)
{
  if (t->reserved + bytes > t->capacity) return false;
  t->reserved += bytes;
  t->reserved_peak = max_i64(t->reserved_peak, t->reserved);
  return true;
}

static uint32_t twin_new_segment(twin *t, uint32_t stream, bool large, int64_t size,
                                 twin_state state)
{
  twin_insert(t, t->count,
              (twin_block){ .address = t->next_address,
                            .size = size,
                            .segment = t->segments++,
                            .stream = stream,
                            .large = large,
                            .state = state });
  t->next_address += round_up(size, 20 * MIB);
  return t->count - 1;
}

/* Free and unmapped bytes from block i on, up to a block in use. */
static int64_t twin_room(const twin *t, uint32_t i)
{
  int64_t room = 0;

  for (uint32_t j = i; j < t->count && t->blocks[j].segment == t->blocks[i].segment &&
                       (t->blocks[j].state == TWIN_FREE || t->blocks[j].state == TWIN_UNMAPPED);
       j++)
    room += t->blocks[j].size;
  return room;
}

static uint32_t twin_expand(twin *t, uint32_t stream, bool large, int64_t size)
{
  int64_t granule = large ? 20 * MIB : 2 * MIB;
  uint32_t i = 0;

  for (; i < t->count; i++) {
    const twin_block *b = &t->blocks[i];
    if (b->state != TWIN_UNMAPPED || b->stream != stream || b->large != large) continue;
    uint32_t from = i > 0 && b[-1].segment == b->segment && b[-1].state == TWIN_FREE ? i - 1 : i;
    if (twin_room(t, from) >= size) {
      i = from;
      break;
    }
  }
  if (i == t->count)
    i = twin_new_segment(t, stream, large, round_up(t->capacity + t->capacity / 8, granule),
                         TWIN_UNMAPPED);
  for (;;) {
    if (t->blocks[i].state == TWIN_FREE && t->blocks[i].size >= size) return i;
    uint32_t u = t->blocks[i].state == TWIN_UNMAPPED ? i : i + 1;
    int64_t have = u == i ? 0 : t->blocks[i].size;
    int64_t bytes = round_up(min_i64(size - have, t->blocks[u].size), granule);
    if (!twin_reserve(t, bytes)) return UINT32_MAX;
    if (bytes < t->blocks[u].size) twin_cut(t, u, bytes, TWIN_UNMAPPED);
    t->blocks[u].state = TWIN_FREE;
    int64_t where = t->blocks[i].address;
    twin_merge(t);
    for (i = 0; t->blocks[i].address + t->blocks[i].size <= where; i++)
      ;
  }
}

static uint32_t twin_driver(twin *t, uint32_t stream, bool large, int64_t size)
{
  if (t->expandable) return twin_expand(t, stream, large, size);
  int64_t bytes = !large ? 2 * MIB : size < 10 * MIB ? 20 * MIB : round_up(size, 2 * MIB);
  if (!twin_reserve(t, bytes)) return UINT32_MAX;
  return twin_new_segment(t, stream, large, bytes, TWIN_FREE);
}

static void twin_empty(twin *t)
{
  for (uint32_t i = 0; i < t->count; i++) {
    twin_block *b = &t->blocks[i];
    if (b->state != TWIN_FREE) continue;
    if (t->expandable) {
      int64_t granule = b->large ? 20 * MIB : 2 * MIB;
      int64_t first = round_up(b->address, granule);
      int64_t last = (b->address + b->size) / granule * granule;
      if (first >= last) continue;
      t->reserved -= last - first;
      if (first > b->address) twin_cut(t, i++, first - b->address, TWIN_FREE);
      if (t->blocks[i].size > last - first) twin_cut(t, i, last - first, TWIN_FREE);
      t->blocks[i].state = TWIN_UNMAPPED;
      t->blocks[i].just_unmapped = true;
    } else if ((i == 0 || b[-1].segment != b->segment) &&
               (i + 1 == t->count || b[1].segment != b->segment)) {
      t->reserved -= b->size;
      t->count--;
      memmove(b, b + 1, (t->count - i) * sizeof *b);
      i--;
    }
  }
  twin_merge(t);
  /* Address space that has just lost its last mapped page goes back. */
  for (uint32_t i = 0; i < t->count; i++) {
    twin_block *b = &t->blocks[i];
    bool just_unmapped = b->just_unmapped;
    b->just_unmapped = false;
    if (just_unmapped && (i == 0 || b[-1].segment != b->segment) &&
        (i + 1 == t->count || b[1].segment != b->segment)) {
      t->count--;
      memmove(b, b + 1, (t->count - i) * sizeof *b);
      i--;
    }
  }
}

static uint32_t twin_find(const twin *t, uint32_t id)
{
  uint32_t i = 0;

  while (t->blocks[i].id != id ||
         (t->blocks[i].state != TWIN_USED && t->blocks[i].state != TWIN_WAITING))
    assert_true(++i < t->count);
  return i;
}

static void twin_return_if_done(twin *t, uint32_t id)
{
  for (uint32_t w = 0; w < t->waiting_count; w++)
    if (t->waiting[w].id == id) return;
  uint32_t i = twin_find(t, id);
  t->active -= t->blocks[i].size;
  t->blocks[i].state = TWIN_FREE;
  twin_merge(t);
}

static void twin_poll(twin *t)
{
  bool blocked[TWIN_STREAMS] = { false };

  for (uint32_t w = 0; w < t->waiting_count;) {
    uint32_t id = t->waiting[w].id, stream = t->waiting[w].stream;
    blocked[stream] |= !event_is_done[t->waiting[w].event];
    if (blocked[stream]) {
      w++;
      continue;
    }
    t->waiting_count--;
    memmove(&t->waiting[w], &t->waiting[w + 1], (t->waiting_count - w) * sizeof t->waiting[0]);
    twin_return_if_done(t, id);
  }
}

static allocator_status twin_alloc(twin *t, uint32_t stream, int64_t bytes, bool after_events,
                                   uint32_t *id)
{
  int64_t size = round_up(bytes, 512);
  bool large = size > MIB;
  uint32_t i = UINT32_MAX;

  twin_poll(t);
  if (!after_events) {
    i = twin_fit(t, stream, large, size);
    if (i == UINT32_MAX) i = twin_driver(t, stream, large, size);
    if (i == UINT32_MAX && t->waiting_count != 0) return ALLOCATOR_NEEDS_EVENTS;
  }
  if (i == UINT32_MAX) {
    twin_empty(t);
    i = twin_driver(t, stream, large, size);
  }
  if (i == UINT32_MAX) return ALLOCATOR_OUT_OF_MEMORY;
  if (t->blocks[i].size - size >= (large && !t->expandable ? MIB + 1 : 512))
    twin_cut(t, i, size, TWIN_FREE);
  twin_block *b = &t->blocks[i];
  *id = b->id = t->next_id++;
  b->state = TWIN_USED;
  t->allocated += b->size;
  t->active += b->size;
  t->active_peak = max_i64(t->active_peak, t->active);
  return ALLOCATOR_OK;
}

static void twin_free(twin *t, uint32_t id, const allocator_use *uses, uint32_t use_count)
{
  uint32_t i = twin_find(t, id);

  t->allocated -= t->blocks[i].size;
  t->blocks[i].state = TWIN_WAITING;
  for (uint32_t u = 0; u < use_count; u++)
    if (uses[u].stream != t->blocks[i].stream) {
      t->waiting[t->waiting_count].event = uses[u].event;
      t->waiting[t->waiting_count].stream = uses[u].stream;
      t->waiting[t->waiting_count++].id = id;
    }
  twin_return_if_done(t, id);
}

/* ---- random runs ---- */

static uint64_t next_random(uint64_t *seed)
{
  *seed ^= *seed << 13;
  *seed ^= *seed >> 7;
  *seed ^= *seed << 17;
  return *seed >> 11;
}

static int64_t random_bytes(uint64_t *seed)
{
  static const int64_t frequent[] = {
    512, 4096, 700000, MIB, 2 * MIB, 8 * MIB, 14 * MIB, 33 * MIB
  };

  if (next_random(seed) % 2) return frequent[next_random(seed) % 8];
  return 1 + (int64_t)(next_random(seed) % (UINT64_C(1) << (1 + next_random(seed) % 26)));
}

typedef struct held_block {
  uint32_t block, id;
} held_block;

typedef struct pair_run {
  caching_allocator *a;
  twin *t;
  held_block held[1024];
  uint32_t held_count;
  uint64_t seed;
  uint64_t refusals;
} pair_run;

static void compare_counts(const pair_run *r)
{
  const allocator_stats *s = caching_allocator_stats(r->a);

  assert_int_equal(s->allocated.current_bytes, r->t->allocated);
  assert_int_equal(allocator_active_bytes(s), r->t->active);
  assert_int_equal(s->active_peak_bytes, r->t->active_peak);
  assert_int_equal(s->reserved.current_bytes, r->t->reserved);
  assert_int_equal(s->reserved.peak_bytes, r->t->reserved_peak);
  assert_int_equal(caching_allocator_pending(r->a), r->t->waiting_count);
}

static void run_alloc(pair_run *r)
{
  uint32_t stream =
      next_random(&r->seed) % 4 ? 0 : (uint32_t)(next_random(&r->seed) % TWIN_STREAMS);
  int64_t bytes = random_bytes(&r->seed);
  uint32_t block, id = 0;
  allocator_status got = caching_allocator_alloc(r->a, stream, bytes, &block);

  assert_int_equal(got, twin_alloc(r->t, stream, bytes, false, &id));
  if (got == ALLOCATOR_NEEDS_EVENTS) {
    memset(event_is_done, true, event_count * sizeof event_is_done[0]);
    got = caching_allocator_alloc_after_events(r->a, stream, bytes, &block);
    assert_int_equal(got, twin_alloc(r->t, stream, bytes, true, &id));
  }
  if (got == ALLOCATOR_OUT_OF_MEMORY) {
    r->refusals++;
    return;
  }
  const twin_block *b = &r->t->blocks[twin_find(r->t, id)];
  assert_int_equal(caching_allocator_block_address(r->a, block), b->address);
  assert_int_equal(caching_allocator_block_bytes(r->a, block), b->size);
  r->held[r->held_count++] = (held_block){ block, id };
}

static void run_free(pair_run *r)
{
  uint32_t pick = (uint32_t)(next_random(&r->seed) % r->held_count);
  held_block h = r->held[pick];
  allocator_use uses[2];
  uint32_t use_count = next_random(&r->seed) % 3 == 0 ? 1 + next_random(&r->seed) % 2 : 0;

  for (uint32_t u = 0; u < use_count; u++)
    uses[u] = (allocator_use){ (uint32_t)(next_random(&r->seed) % TWIN_STREAMS), new_event() };
  r->held[pick] = r->held[--r->held_count];
  caching_allocator_free_after(r->a, h.block, uses, use_count);
  twin_free(r->t, h.id, uses, use_count);
}

static void run_pair(uint64_t seed, bool expandable, uint32_t operations)
{
  static twin t;
  static pair_run r;
  int64_t capacity = 600 * MIB;

  printf("seed %llu, %s\n", (unsigned long long)seed, expandable ? "expandable" : "segments");
  memset(&t, 0, sizeof t);
  t.capacity = capacity;
  t.expandable = expandable;
  t.next_address = 20 * MIB;
  r = (pair_run){ .a = new_allocator(capacity, expandable), .t = &t, .seed = seed };
  for (uint32_t i = 0; i < operations; i++) {
    uint64_t wanted = 20 + (i / 2000) % 5 * 30; /* the process grows and shrinks */
    if (r.held_count == 0 ||
        (r.held_count < 1000 && next_random(&r.seed) % (2 * wanted) >= r.held_count))
      run_alloc(&r);
    else
      run_free(&r);
    if (event_count != 0 && next_random(&r.seed) % 2)
      event_is_done[event_count - 1 -
                    next_random(&r.seed) % (event_count < 30 ? event_count : 30)] = true;
    compare_counts(&r);
  }
  assert_true(r.refusals > 0);
  caching_allocator_delete(r.a);
}

static void test_same_decisions_as_twin(void **state)
{
  static const uint64_t seeds[] = { 0x9e3779b97f4a7c15, 88172645463325252, 20261121 };
  (void)state;

  for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++)
    for (int expandable = 0; expandable <= 1; expandable++)
      run_pair(seeds[i], expandable, 100000);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_sizes),
    cmocka_unit_test(test_empty_request_has_no_block),
    cmocka_unit_test(test_best_fit),
    cmocka_unit_test(test_free_neighbours_merge),
    cmocka_unit_test(test_streams_do_not_share),
    cmocka_unit_test(test_marked_block_waits),
    cmocka_unit_test(test_peak_has_its_request),
    cmocka_unit_test(test_own_stream_is_no_mark),
    cmocka_unit_test(test_return_at_once),
    cmocka_unit_test(test_refusal),
    cmocka_unit_test(test_expandable_grows_and_moves),
    cmocka_unit_test(test_expandable_prefers_inner_block),
    cmocka_unit_test(test_real_memory),
    cmocka_unit_test(test_peaks_can_be_reset),
    cmocka_unit_test(test_same_decisions_as_twin),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
