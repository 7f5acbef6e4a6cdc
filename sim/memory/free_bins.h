/*
 * The free blocks of one pool, ordered by (size, address): the best fit in a few instructions.
 *
 * Sizes, in units of 512 bytes, fall into bins that are exact up to 16 units and a sixteenth of an
 * octave wide above, so that an activation's size nearly always has a bin alone. A bin is an array
 * sorted by (size, address); a bitmap of two levels finds the next bin that is not empty. Blocks of
 * one size are adjacent in it, and few, because neighbours merge. Moving the rest of such an array
 * is cheaper than a tree.
 */
#ifndef OFFSIM_SIM_MEMORY_FREE_BINS_H
#define OFFSIM_SIM_MEMORY_FREE_BINS_H

#include <stdbool.h>
#include <stdint.h>

enum {
  FREE_BIN_WORDS = 13, /* 64 bins each: 52 octaves of 16 bins, every int64 multiple of 512 */
  FREE_BIN_COUNT = FREE_BIN_WORDS * 64,
};

typedef struct free_entry {
  int64_t size_bytes;
  int64_t address;
  uint32_t block;
} free_entry;

typedef struct free_bin {
  free_entry *items;
  uint32_t count, capacity;
} free_bin;

/* Empty when zeroed. */
typedef struct free_bins {
  uint64_t summary; /* bit w: words[w] is not zero */
  uint64_t words[FREE_BIN_WORDS];
  free_bin bins[FREE_BIN_COUNT];
} free_bins;

/* A place in the order. Valid until the next insertion or removal. */
typedef struct free_place {
  uint32_t bin;
  uint32_t index;
} free_place;

void free_bins_insert(free_bins *f, int64_t size_bytes, int64_t address, uint32_t block);
void free_bins_remove(free_bins *f, int64_t size_bytes, int64_t address);

/* The first block of at least `size_bytes`, lowest address first; false if there is none. */
bool free_bins_best_fit(const free_bins *f, int64_t size_bytes, free_place *place);

/* The next block in the order; false at the end. */
bool free_bins_next(const free_bins *f, free_place *place);

void free_bins_remove_at(free_bins *f, free_place place);

static inline const free_entry *free_bins_at(const free_bins *f, free_place place)
{
  return &f->bins[place.bin].items[place.index];
}

void free_bins_release(free_bins *f);

#endif
