/*
 * The free blocks of one pool, ordered by (size, address): the best fit in a few instructions.
 *
 * Sizes, in units of 512 bytes, fall into bins that are exact up to 16 units and a sixteenth of an
 * octave wide above, so that an activation's size nearly always has a bin alone. A bin is a list through
 * the blocks' records, sorted by (size, address); a bitmap of two levels finds the next bin that is not
 * empty. Blocks of one size are adjacent in it, and few, because neighbours merge: a bin has one or two
 * blocks on average, so that walking it is cheaper than a tree or an array of its own.
 */
#ifndef OFFSIM_SIM_MEMORY_FREE_BINS_H
#define OFFSIM_SIM_MEMORY_FREE_BINS_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/memory/memory_block.h"

enum {
  FREE_BIN_WORDS = 13, /* 64 bins each: 52 octaves of 16 bins, every int64 multiple of 512 */
  FREE_BIN_COUNT = FREE_BIN_WORDS * 64,
};

/* Empty when zeroed. */
typedef struct free_bins {
  uint64_t summary;               /* bit w: words[w] is not zero */
  uint64_t words[FREE_BIN_WORDS]; /* a bit for each bin that is not empty */
  uint32_t first[FREE_BIN_COUNT]; /* of a bin that is not empty */
} free_bins;

/* A place in the order. Valid until the next insertion or removal. */
typedef struct free_place {
  uint32_t bin;
  uint32_t before; /* the block before it in its bin, BLOCK_NONE: it is the first */
  uint32_t block;
} free_place;

/* `blocks`: all records. */
void free_bins_insert(free_bins *f, memory_block *blocks, uint32_t block);
void free_bins_remove(free_bins *f, memory_block *blocks, uint32_t block);

/* The first block of at least `size_bytes`, lowest address first; false if there is none. */
bool free_bins_best_fit(const free_bins *f, const memory_block *blocks, int64_t size_bytes,
                        free_place *place);

/* The next block in the order; false at the end. */
bool free_bins_next(const free_bins *f, const memory_block *blocks, free_place *place);

void free_bins_remove_at(free_bins *f, memory_block *blocks, const free_place *place);

/* Each bin is sorted and has only free blocks of its sizes; the bitmap says which bins have blocks. */
bool free_bins_hold(const free_bins *f, const memory_block *blocks);

#endif
