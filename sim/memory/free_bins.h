/*
 * The free blocks of each pool, ordered by (size, address): the best fit in a few instructions.
 *
 * Sizes, in units of 512 bytes, fall into bins that are exact up to 32 units and a sixteenth of an
 * octave wide above, so that an activation's size nearly always has a bin alone. A bin is a list through
 * the blocks' records, sorted by (size, address); a bitmap finds the next bin that is not
 * empty. Blocks of one size are adjacent in it, and few, because neighbours merge: a bin has one or two
 * blocks on average, so that walking it is cheaper than a tree or an array of its own.
 *
 * Bins are numbered through all pools: one number, which each free block keeps and requests find once,
 * leads to the list.
 */
#ifndef OFFSIM_SIM_MEMORY_FREE_BINS_H
#define OFFSIM_SIM_MEMORY_FREE_BINS_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/memory/memory_block.h"

enum {
  ALLOCATOR_POOLS = 2 * ALLOCATOR_MAX_STREAMS,
  POOL_BIN_BITS = 10, /* bins a pool, as a power of two: 55 octaves of 16, and some */
  POOL_BINS = 1 << POOL_BIN_BITS,
};
_Static_assert(ALLOCATOR_POOLS *POOL_BINS <= UINT16_MAX + 1, "a block keeps its bin in 16 bits");

/* Empty when zeroed. */
typedef struct free_bins {
  uint64_t words[ALLOCATOR_POOLS * POOL_BINS / 64]; /* a bit for each bin that is not empty */
  struct {
    uint32_t *items; /* BLOCK_NONE: the bin is empty */
    uint32_t count, capacity;
  } first; /* of the pools up to the last one that was added */
} free_bins;

/* A place in the order. Valid until the next insertion or removal. */
typedef struct free_place {
  uint32_t bin;
  uint32_t block;
} free_place;

void free_bins_add_pool(free_bins *f, uint32_t pool);

/* `blocks`: all records. */

/* The first block of at least `size_bytes`, which has bin `bin`, lowest address first; false if the pool has
 * none. */
bool free_bins_best_fit(const free_bins *f, const memory_block *blocks, uint32_t bin,
                        int64_t size_bytes, free_place *place);

/* The pool's next block in the order; false at the end. */
bool free_bins_next(const free_bins *f, const memory_block *blocks, free_place *place);

/* Each bin is sorted and has only free blocks of its sizes; the bitmap says which bins have blocks. */
bool free_bins_hold(const free_bins *f, const memory_block *blocks);

/* ---- what the allocator does several times for a request: inline, and without branches that the CPU could
 * not predict, where that is possible ---- */

/* The pool of a stream's requests of `size_bytes`, rounded. */
static inline uint32_t pool_of_request(uint32_t stream, int64_t size_bytes)
{
  return 2 * stream + (size_bytes > ALLOCATOR_SMALL_BYTES ? 1 : 0);
}

/* A number's octave and the four bits after its leading one: the exponent and the first bits of a double. To
 * convert it costs less than to count and shift its bits. */
static inline uint32_t octave_and_bits(int64_t number)
{
  double rounded = (double)number;
  uint64_t bits;
  memcpy(&bits, &rounded, sizeof bits);
  return (uint32_t)(bits >> 48);
}

static inline uint32_t free_bin_of(uint32_t pool, int64_t size_bytes)
{
  return (pool << POOL_BIN_BITS) + octave_and_bits(size_bytes) -
         octave_and_bits(ALLOCATOR_ROUNDING_BYTES);
}

static inline uint32_t pool_of_bin(uint32_t bin)
{
  return bin >> POOL_BIN_BITS;
}

/* The first bin of `bin`'s pool at or after it that is not empty; false if there is none. */
static inline bool free_bins_next_bin(const free_bins *f, uint32_t bin, uint32_t *found)
{
  uint32_t word = bin / 64, last = (bin | (POOL_BINS - 1)) / 64;
  uint64_t bits = f->words[word] & UINT64_MAX << (bin % 64);
  while (bits == 0) {
    if (word == last) return false;
    bits = f->words[++word];
  }
  *found = word * 64 + (uint32_t)__builtin_ctzll(bits);
  return true;
}

/* Its size, then its address, in one number: neither is negative. */
static inline wide_uint free_block_rank(const memory_block *b)
{
  return (wide_uint)(uint64_t)b->size_bytes << 64 | (uint64_t)b->address;
}

static inline void free_bins_insert(free_bins *f, memory_block *blocks, uint32_t block)
{
  memory_block *b = &blocks[block];
  uint32_t bin = free_bin_of(pool_of_bin(b->bin), b->size_bytes), *link = &f->first.items[bin];
  b->bin = (uint16_t)bin;
  f->words[bin / 64] |= UINT64_C(1) << (bin % 64);
  while (free_block_rank(&blocks[*link]) < free_block_rank(b))
    link = &blocks[*link].next_free;
  b->next_free = *link;
  *link = block;
}

/* Takes out the first block of a bin. */
static inline void free_bins_pop(free_bins *f, const memory_block *blocks, uint32_t bin)
{
  uint32_t next = blocks[f->first.items[bin]].next_free;
  uint64_t is_empty = next == BLOCK_NONE;
  f->first.items[bin] = next;
  f->words[bin / 64] &= ~(is_empty << (bin % 64));
}

static inline void free_bins_remove(free_bins *f, memory_block *blocks, uint32_t block)
{
  uint32_t bin = blocks[block].bin, before = f->first.items[bin];
  if (before == block) {
    free_bins_pop(f, blocks, bin);
    return;
  }
  for (; blocks[before].next_free != block; before = blocks[before].next_free)
    assert(before != BLOCK_NONE && "it is in its bin");
  blocks[before].next_free = blocks[block].next_free;
}

/* Takes out the best fit of a size if it is the first block of its bin, as nearly always. */
static inline bool free_bins_take_first(free_bins *f, const memory_block *blocks, uint32_t bin,
                                        int64_t size_bytes, uint32_t *block)
{
  uint32_t first = f->first.items[bin];
  if (blocks[first].size_bytes < size_bytes) return false;
  if (first == BLOCK_NONE && !free_bins_next_bin(f, bin + 1, &bin)) return false;
  *block = f->first.items[bin];
  free_bins_pop(f, blocks, bin);
  return true;
}

#endif
