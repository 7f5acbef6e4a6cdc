/*
 * The free blocks of one pool, ordered by (size, address): the best fit in a few instructions.
 *
 * Sizes, in units of 512 bytes, fall into bins that are exact up to 16 units and a sixteenth of an
 * octave wide above, so that an activation's size nearly always has a bin alone. A bin is a list through
 * the blocks' records, sorted by (size, address); a bitmap finds the next bin that is not
 * empty. Blocks of one size are adjacent in it, and few, because neighbours merge: a bin has one or two
 * blocks on average, so that walking it is cheaper than a tree or an array of its own.
 */
#ifndef OFFSIM_SIM_MEMORY_FREE_BINS_H
#define OFFSIM_SIM_MEMORY_FREE_BINS_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "sim/base/units.h"
#include "sim/memory/memory_block.h"

enum {
  FREE_BIN_WORDS = 13, /* 64 bins each: 52 octaves of 16 bins, every int64 multiple of 512 */
  FREE_BIN_COUNT = FREE_BIN_WORDS * 64,
  FREE_BIN_UNIT_BITS = 9, /* 512 bytes */
  FREE_BIN_SUB_BITS = 4,  /* bins an octave, as a power of two */
};

/* Empty when zeroed. */
typedef struct free_bins {
  uint64_t words[FREE_BIN_WORDS]; /* a bit for each bin that is not empty */
  uint32_t first[FREE_BIN_COUNT]; /* BLOCK_NONE: the bin is empty */
} free_bins;

/* A place in the order. Valid until the next insertion or removal. */
typedef struct free_place {
  uint32_t bin;
  uint32_t block;
} free_place;

/* `blocks`: all records. */

/* The first block of at least `size_bytes`, lowest address first; false if there is none. */
bool free_bins_best_fit(const free_bins *f, const memory_block *blocks, int64_t size_bytes,
                        free_place *place);

/* The next block in the order; false at the end. */
bool free_bins_next(const free_bins *f, const memory_block *blocks, free_place *place);

/* Each bin is sorted and has only free blocks of its sizes; the bitmap says which bins have blocks. */
bool free_bins_hold(const free_bins *f, const memory_block *blocks);

/* ---- what the allocator does several times for a request: inline, and without branches that the CPU could
 * not predict, where that is possible ---- */

/* Exact below 2^SUB_BITS units, which are not shifted, then the octave and the SUB_BITS bits after the
 * leading one. */
static inline uint32_t free_bin_of(int64_t size_bytes)
{
  uint64_t units = (uint64_t)size_bytes >> FREE_BIN_UNIT_BITS;
  uint64_t octave_of = units | 1u << FREE_BIN_SUB_BITS;
  uint32_t shift = 63u - (uint32_t)__builtin_clzll(octave_of) - FREE_BIN_SUB_BITS;
  return (shift << FREE_BIN_SUB_BITS) + (uint32_t)(units >> shift);
}

/* First bin at or after `bin` that is not empty; false if there is none. */
static inline bool free_bins_next_bin(const free_bins *f, uint32_t bin, uint32_t *found)
{
  uint64_t from = UINT64_MAX << (bin % 64);
  for (uint32_t word = bin / 64; word < FREE_BIN_WORDS; word++) {
    uint64_t bits = f->words[word] & from;
    if (bits != 0) {
      *found = word * 64 + (uint32_t)__builtin_ctzll(bits);
      return true;
    }
    from = UINT64_MAX;
  }
  return false;
}

/* Its size, then its address, in one number: neither is negative. */
static inline wide_uint free_block_rank(const memory_block *b)
{
  return (wide_uint)(uint64_t)b->size_bytes << 64 | (uint64_t)b->address;
}

static inline void free_bins_insert(free_bins *f, memory_block *blocks, uint32_t block)
{
  memory_block *b = &blocks[block];
  uint32_t bin = free_bin_of(b->size_bytes), *link = &f->first[bin];
  f->words[bin / 64] |= UINT64_C(1) << (bin % 64);
  while (free_block_rank(&blocks[*link]) < free_block_rank(b))
    link = &blocks[*link].next_free;
  b->next_free = *link;
  *link = block;
}

/* Takes out the first block of a bin. */
static inline void free_bins_pop(free_bins *f, const memory_block *blocks, uint32_t bin)
{
  uint32_t next = blocks[f->first[bin]].next_free;
  uint64_t is_empty = next == BLOCK_NONE;
  f->first[bin] = next;
  f->words[bin / 64] &= ~(is_empty << (bin % 64));
}

static inline void free_bins_remove(free_bins *f, memory_block *blocks, uint32_t block)
{
  uint32_t bin = free_bin_of(blocks[block].size_bytes), before = f->first[bin];
  if (before == block) {
    free_bins_pop(f, blocks, bin);
    return;
  }
  for (; blocks[before].next_free != block; before = blocks[before].next_free)
    assert(before != BLOCK_NONE && "it is in its bin");
  blocks[before].next_free = blocks[block].next_free;
}

/* Takes out the best fit if it is the first block of its bin, as nearly always. */
static inline bool free_bins_take_first(free_bins *f, const memory_block *blocks,
                                        int64_t size_bytes, uint32_t *block)
{
  uint32_t bin = free_bin_of(size_bytes);
  if (blocks[f->first[bin]].size_bytes < size_bytes) return false;
  if (f->first[bin] == BLOCK_NONE && !free_bins_next_bin(f, bin + 1, &bin)) return false;
  *block = f->first[bin];
  free_bins_pop(f, blocks, bin);
  return true;
}

#endif
