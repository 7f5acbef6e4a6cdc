#include "sim/memory/allocator_blocks.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/array.h"
#include "sim/base/diag.h"
#include "sim/base/units.h"

#define SELDOM __attribute__((cold, noinline))

/* Sizes of PyTorch's allocator. */
#define SMALL_SEGMENT_BYTES  (2 * MIB)
#define LARGE_SEGMENT_BYTES  (20 * MIB)
#define OWN_SEGMENT_FROM     (10 * MIB)
#define OWN_SEGMENT_MULTIPLE (2 * MIB)

/* The least rest that becomes a block. */
#define SMALL_SPLIT_MINIMUM INT64_C(512)
#define LARGE_SPLIT_MINIMUM (MIB + 1)

/* Segments start at multiples of the largest granule, so that every granule starts at a multiple of
 * its size. */
#define SEGMENT_ALIGNMENT LARGE_SEGMENT_BYTES

/* Address space of an expandable segment if device memory is unlimited. */
#define UNLIMITED_SPACE_BYTES (INT64_C(16) << 40)

void block_store_init(block_store *s, const allocator_options *options)
{
  assert((options->driver.give == NULL) == (options->driver.take_back == NULL));
  memset(s, 0, sizeof *s);
  *ARRAY_PUSH(&s->blocks) =
      (memory_block){ .address = INT64_MAX, .size_bytes = INT64_MAX, .state = BLOCK_USED };
  s->least_rest_bytes[0] = SMALL_SPLIT_MINIMUM;
  s->least_rest_bytes[1] = options->expandable_segments ? SMALL_SPLIT_MINIMUM : LARGE_SPLIT_MINIMUM;
  s->next_address = SEGMENT_ALIGNMENT;
  s->capacity_bytes = options->capacity_bytes;
  s->driver = options->driver;
  s->expandable = options->expandable_segments;
}

/* Neighbours know each other, have no gap between them, and merge if they can; the blocks with
 * memory are the reserved bytes. */
static bool blocks_hold(const block_store *s)
{
  int64_t reserved_bytes = 0;

  for (uint32_t b = BLOCK_NONE + 1; b < s->blocks.count; b++) {
    const memory_block *v = &s->blocks.items[b];
    if (v->size_bytes == 0) continue; /* an unused record */
    if (v->state != BLOCK_UNMAPPED) reserved_bytes += v->size_bytes;
    if ((v->state == BLOCK_WAITING) != (v->event_count != 0)) return false;
    if (v->next == BLOCK_NONE) continue;
    const memory_block *n = &s->blocks.items[v->next];
    if (n->previous != b || pool_of_bin(n->bin) != pool_of_bin(v->bin)) return false;
    if (n->address != v->address + v->size_bytes) return false;
    if (n->state == v->state && (v->state == BLOCK_FREE || v->state == BLOCK_UNMAPPED))
      return false;
  }
  return reserved_bytes == s->reserved.current_bytes;
}

void block_store_copy(block_store *to, const block_store *from)
{
  assert(from->driver.give == NULL);
  *to = *from;
  ARRAY_COPY(&to->blocks, &from->blocks);
  ARRAY_COPY(&to->free.first, &from->free.first);
  for (uint32_t p = 0; p < ALLOCATOR_POOLS; p++)
    ARRAY_COPY(&to->unmapped[p], &from->unmapped[p]);
}

void block_store_release(block_store *s)
{
  assert(blocks_hold(s) && free_bins_hold(&s->free, s->blocks.items));
  for (uint32_t p = 0; p < ALLOCATOR_POOLS; p++)
    ARRAY_FREE(&s->unmapped[p]);
  ARRAY_FREE(&s->free.first);
  ARRAY_FREE(&s->blocks);
}

void block_store_reach(block_store *s, uint32_t bin)
{
  if (bin >= s->free.first.count) free_bins_add_pool(&s->free, pool_of_bin(bin));
  if (!s->expandable) s->quick_bins = s->free.first.count;
  assert(bin < s->free.first.count);
}

/* ---- block records ---- */

static memory_block *at(block_store *s, uint32_t b)
{
  return &s->blocks.items[b];
}

static uint32_t pool_of(block_store *s, uint32_t b)
{
  return pool_of_bin(at(s, b)->bin);
}

static SELDOM void add_unused(block_store *s)
{
  *ARRAY_PUSH(&s->blocks) = (memory_block){ .next = BLOCK_NONE };
  s->blocks.unused = s->blocks.count - 1;
}

/* A record that waits for no event, else uninitialised: a reused one or a new one. */
static inline uint32_t new_block(block_store *s)
{
  if (s->blocks.unused == BLOCK_NONE) add_unused(s);
  uint32_t b = s->blocks.unused;
  assert(at(s, b)->size_bytes == 0 && "an unused record");
  s->blocks.unused = at(s, b)->next;
  return b;
}

static void delete_block(block_store *s, uint32_t b)
{
  assert(at(s, b)->size_bytes > 0 && "a record is deleted once");
  at(s, b)->size_bytes = 0;
  at(s, b)->next = s->blocks.unused;
  s->blocks.unused = b;
}

static inline void free_insert(block_store *s, uint32_t b)
{
  free_bins_insert(&s->free, s->blocks.items, b);
}

static inline void free_remove(block_store *s, uint32_t b)
{
  assert(at(s, b)->state == BLOCK_FREE);
  free_bins_remove(&s->free, s->blocks.items, b);
}

/* Cuts a new block of the given state off `b`, from `size_bytes` on. It is in no list yet. */
static inline uint32_t cut(block_store *s, uint32_t b, int64_t size_bytes, block_state state)
{
  uint32_t rest = new_block(s);
  memory_block *blocks = s->blocks.items, *v = &blocks[b], *r = &blocks[rest];
  int64_t rest_bytes = v->size_bytes - size_bytes;

  assert(size_bytes > 0 && rest_bytes > 0);
  /* Field by field: a copy of the record would wait for its last, narrower stores. */
  blocks[v->next].previous = rest;
  r->next = v->next;
  v->next = rest;
  v->size_bytes = size_bytes;
  r->size_bytes = rest_bytes;
  r->address = v->address + size_bytes;
  r->bin = v->bin;
  r->state = (uint8_t)state;
  r->previous = b;
  return rest;
}

/* ---- unmapped address space ---- */

static void unmapped_insert(block_store *s, uint32_t b)
{
  unmapped_array *u = &s->unmapped[pool_of(s, b)];
  uint32_t i = u->count;

  assert(at(s, b)->state == BLOCK_UNMAPPED);
  (void)ARRAY_PUSH(u);
  for (; i > 0 && at(s, u->items[i - 1])->address > at(s, b)->address; i--)
    u->items[i] = u->items[i - 1];
  assert((i == 0 || u->items[i - 1] != b) && "it is in the list");
  u->items[i] = b;
}

static void unmapped_remove(block_store *s, uint32_t b)
{
  unmapped_array *u = &s->unmapped[pool_of(s, b)];
  uint32_t i = 0;

  assert(u->count > 0 && at(s, b)->state == BLOCK_UNMAPPED);
  while (u->items[i] != b) {
    i++;
    assert(i < u->count);
  }
  u->count--;
  memmove(&u->items[i], &u->items[i + 1], (u->count - i) * sizeof u->items[0]);
}

/* ---- merging ---- */

/* A neighbour, which is in no list any more, becomes part of `b`, which is in none. */
static inline void merge_next(block_store *s, uint32_t b)
{
  memory_block *blocks = s->blocks.items, *v = &blocks[b];
  uint32_t neighbour = v->next;
  v->size_bytes += blocks[neighbour].size_bytes;
  v->next = blocks[neighbour].next;
  blocks[v->next].previous = b;
  delete_block(s, neighbour);
}

static inline void merge_previous(block_store *s, uint32_t b)
{
  memory_block *blocks = s->blocks.items, *v = &blocks[b];
  uint32_t neighbour = v->previous;
  v->address = blocks[neighbour].address;
  v->size_bytes += blocks[neighbour].size_bytes;
  v->previous = blocks[neighbour].previous;
  blocks[v->previous].next = b;
  delete_block(s, neighbour);
}

void block_put_free_with_previous(block_store *s, uint32_t b)
{
  memory_block *blocks = s->blocks.items;
  assert(blocks[b].state == BLOCK_FREE);
  free_bins_remove(&s->free, blocks, blocks[b].previous);
  merge_previous(s, b);
  free_bins_insert(&s->free, blocks, b);
}

void block_put_free_with_next(block_store *s, uint32_t b)
{
  memory_block *blocks = s->blocks.items;
  assert(blocks[b].state == BLOCK_FREE);
  free_bins_remove(&s->free, blocks, blocks[b].next);
  merge_next(s, b);
  if (blocks[blocks[b].previous].state == BLOCK_FREE)
    block_put_free_with_previous(s, b);
  else
    free_bins_insert(&s->free, blocks, b);
}

/* Makes a block without memory, which is in no list, UNMAPPED, merged with such neighbours. */
static void put_unmapped(block_store *s, uint32_t b)
{
  if (at(s, at(s, b)->next)->state == BLOCK_UNMAPPED) {
    unmapped_remove(s, at(s, b)->next);
    merge_next(s, b);
  }
  if (at(s, at(s, b)->previous)->state == BLOCK_UNMAPPED) {
    unmapped_remove(s, at(s, b)->previous);
    merge_previous(s, b);
  }
  at(s, b)->state = BLOCK_UNMAPPED;
}

void block_cut_off_rest(block_store *s, uint32_t b, int64_t size_bytes)
{
  assert(at(s, b)->state == BLOCK_USED);
  free_insert(s, cut(s, b, size_bytes, BLOCK_FREE));
}

/* ---- best fit ---- */

/* The size to which the block could grow in place. */
static int64_t expandable_size(block_store *s, uint32_t b)
{
  const memory_block *v = at(s, b), *next = at(s, v->next);
  return v->size_bytes + (next->state == BLOCK_UNMAPPED ? next->size_bytes : 0);
}

/* In expandable segments: the first block from the best fit on whose successor in the bins could not grow
 * less. Few blocks can grow: those before unmapped space. */
uint32_t block_take_fit(block_store *s, uint32_t bin, int64_t size_bytes)
{
  free_place place;
  if (!free_bins_best_fit(&s->free, s->blocks.items, bin, size_bytes, &place)) return BLOCK_NONE;
  uint32_t best = place.block;
  while (expandable_size(s, best) > at(s, best)->size_bytes &&
         free_bins_next(&s->free, s->blocks.items, &place) &&
         expandable_size(s, place.block) < expandable_size(s, best))
    best = place.block;
  assert(at(s, best)->size_bytes >= size_bytes);
  free_remove(s, best);
  return best;
}

/* ---- the driver ---- */

static bool driver_gives(block_store *s, int64_t address, int64_t bytes)
{
  assert(bytes > 0 && bytes % OWN_SEGMENT_MULTIPLE == 0);
  if (bytes > s->capacity_bytes - s->reserved.current_bytes) return false;
  if (s->driver.give != NULL && !s->driver.give(s->driver.context, address, bytes)) return false;
  s->reserved.current_bytes += bytes;
  s->reserved.peak_bytes = max_i64(s->reserved.peak_bytes, s->reserved.current_bytes);
  s->driver_allocs++;
  return true;
}

static void driver_takes_back(block_store *s, int64_t address, int64_t bytes)
{
  if (s->driver.take_back != NULL) s->driver.take_back(s->driver.context, address, bytes);
  s->reserved.current_bytes -= bytes;
  assert(bytes > 0 && s->reserved.current_bytes >= 0);
  s->driver_frees++;
}

/* A block that is a whole new segment, in no list. */
static uint32_t new_segment(block_store *s, uint32_t pool, int64_t size_bytes, block_state state)
{
  int64_t address = s->next_address;
  uint32_t b = new_block(s);

  assert(address % SEGMENT_ALIGNMENT == 0 && size_bytes > 0);
  s->next_address += round_up(size_bytes, SEGMENT_ALIGNMENT);
  *at(s, b) = (memory_block){ .address = address,
                              .size_bytes = size_bytes,
                              .previous = BLOCK_NONE,
                              .next = BLOCK_NONE,
                              .bin = (uint16_t)(pool << POOL_BIN_BITS),
                              .state = (uint8_t)state };
  return b;
}

static int64_t segment_bytes(uint32_t pool, int64_t size_bytes)
{
  assert(size_bytes > 0);
  if (!pool_is_large(pool)) return SMALL_SEGMENT_BYTES;
  if (size_bytes < OWN_SEGMENT_FROM) return LARGE_SEGMENT_BYTES;
  return round_up(size_bytes, OWN_SEGMENT_MULTIPLE);
}

static int64_t granule_bytes(uint32_t pool)
{
  assert(pool < ALLOCATOR_POOLS && SEGMENT_ALIGNMENT % SMALL_SEGMENT_BYTES == 0);
  return pool_is_large(pool) ? LARGE_SEGMENT_BYTES : SMALL_SEGMENT_BYTES;
}

/* Address space of an expandable segment: an eighth more than the memory, so that pages can
 * move. */
static int64_t space_bytes(const block_store *s, uint32_t pool, int64_t size_bytes)
{
  int64_t bytes = UNLIMITED_SPACE_BYTES;

  assert(s->expandable && size_bytes > 0);
  if (s->capacity_bytes < UNLIMITED_SPACE_BYTES) bytes = s->capacity_bytes + s->capacity_bytes / 8;
  return round_up(max_i64(bytes, size_bytes), granule_bytes(pool));
}

static bool usable(block_store *s, uint32_t b)
{
  return at(s, b)->state == BLOCK_FREE || at(s, b)->state == BLOCK_UNMAPPED;
}

/* Whether `b` and the free and unmapped blocks right after it together have `size_bytes`. */
static bool has_space(block_store *s, uint32_t b, int64_t size_bytes)
{
  int64_t bytes = 0;

  assert(usable(s, b));
  for (; bytes < size_bytes && usable(s, b); b = at(s, b)->next)
    bytes += at(s, b)->size_bytes;
  return bytes >= size_bytes;
}

/* Finds where a block of `size_bytes` can grow: a large enough unmapped range, or the free block
 * before it. */
static uint32_t find_expandable(block_store *s, uint32_t pool, int64_t size_bytes)
{
  const unmapped_array *u = &s->unmapped[pool];

  for (uint32_t i = 0; i < u->count; i++) {
    uint32_t b = u->items[i];
    if (usable(s, at(s, b)->previous)) b = at(s, b)->previous;
    if (has_space(s, b, size_bytes)) return b;
  }
  uint32_t b = new_segment(s, pool, space_bytes(s, pool, size_bytes), BLOCK_UNMAPPED);
  unmapped_insert(s, b);
  assert(has_space(s, b, size_bytes));
  return b;
}

/* Maps the first granules of an unmapped block, at least `size_bytes`, and makes them free. */
static bool map_block(block_store *s, uint32_t b, int64_t size_bytes)
{
  int64_t bytes = round_up(size_bytes, granule_bytes(pool_of(s, b)));

  assert(at(s, b)->state == BLOCK_UNMAPPED && bytes <= at(s, b)->size_bytes);
  assert(at(s, b)->address % granule_bytes(pool_of(s, b)) == 0);
  if (!driver_gives(s, at(s, b)->address, bytes)) return false;
  unmapped_remove(s, b);
  if (bytes < at(s, b)->size_bytes) unmapped_insert(s, cut(s, b, bytes, BLOCK_UNMAPPED));
  block_put_free(s, b);
  return true;
}

static uint32_t take_expandable(block_store *s, uint32_t pool, int64_t size_bytes)
{
  uint32_t b = find_expandable(s, pool, size_bytes);

  if (at(s, b)->state == BLOCK_UNMAPPED &&
      !map_block(s, b, min_i64(at(s, b)->size_bytes, size_bytes)))
    return BLOCK_NONE;
  while (at(s, b)->size_bytes < size_bytes) {
    int64_t missing = size_bytes - at(s, b)->size_bytes;
    uint32_t next = at(s, b)->next;
    assert(next != BLOCK_NONE && "has_space found a large enough range");
    /* The mapped granules swallow the free block before them: go on with the union. */
    if (!map_block(s, next, min_i64(missing, at(s, next)->size_bytes))) return BLOCK_NONE;
    b = next;
  }
  free_remove(s, b);
  assert(at(s, b)->size_bytes >= size_bytes);
  return b;
}

static uint32_t take_segment(block_store *s, uint32_t pool, int64_t size_bytes)
{
  int64_t bytes = segment_bytes(pool, size_bytes);
  assert(bytes >= size_bytes);
  if (!driver_gives(s, s->next_address, bytes)) return BLOCK_NONE;
  return new_segment(s, pool, bytes, BLOCK_FREE);
}

uint32_t block_take_from_driver(block_store *s, uint32_t bin, int64_t size_bytes)
{
  assert(bin == free_bin_of(pool_of_bin(bin), size_bytes));
  return (s->expandable ? take_expandable : take_segment)(s, pool_of_bin(bin), size_bytes);
}

static void release_segment(block_store *s, uint32_t b)
{
  assert(at(s, b)->previous == BLOCK_NONE && at(s, b)->next == BLOCK_NONE);
  free_remove(s, b);
  driver_takes_back(s, at(s, b)->address, at(s, b)->size_bytes);
  delete_block(s, b);
}

/* Unmaps the whole granules inside a free block; the parts before and after them stay free. */
static void unmap_block(block_store *s, uint32_t b)
{
  int64_t granule = granule_bytes(pool_of(s, b));
  int64_t start = at(s, b)->address;
  int64_t first = round_up(start, granule);
  int64_t last = (start + at(s, b)->size_bytes) / granule * granule;

  assert(at(s, b)->state == BLOCK_FREE && s->expandable);
  if (first >= last) return;

  free_remove(s, b);
  if (first > start) {
    uint32_t rest = cut(s, b, first - start, BLOCK_FREE);
    free_insert(s, b);
    b = rest;
  }
  if (at(s, b)->size_bytes > last - first) free_insert(s, cut(s, b, last - first, BLOCK_FREE));
  assert(at(s, b)->address == first && at(s, b)->size_bytes == last - first);
  driver_takes_back(s, first, last - first);
  put_unmapped(s, b);
  if (at(s, b)->previous == BLOCK_NONE && at(s, b)->next == BLOCK_NONE)
    delete_block(s, b); /* the address space is released too */
  else
    unmapped_insert(s, b);
}

static void empty_pool(block_store *s, uint32_t pool)
{
  struct {
    uint32_t *items;
    uint32_t count, capacity;
  } found = { 0 };
  free_place place = { 0 };

  /* Collects the blocks first, because releasing them changes the bins. */
  for (bool more = free_bins_best_fit(&s->free, s->blocks.items, pool << POOL_BIN_BITS, 1, &place);
       more; more = free_bins_next(&s->free, s->blocks.items, &place))
    *ARRAY_PUSH(&found) = place.block;
  for (uint32_t i = 0; i < found.count; i++) {
    uint32_t b = found.items[i];
    if (s->expandable)
      unmap_block(s, b);
    else if (at(s, b)->previous == BLOCK_NONE && at(s, b)->next == BLOCK_NONE)
      release_segment(s, b);
  }
  ARRAY_FREE(&found);
}

void block_store_empty_cache(block_store *s)
{
  for (uint32_t p = 0; p < pool_of_bin(s->free.first.count); p++)
    empty_pool(s, p);
  assert(blocks_hold(s));
}
