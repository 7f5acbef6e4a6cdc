#include "sim/memory/free_bins.h"

/* The first block of the first bin from `bin` on that is not empty. */
static bool first_from(const free_bins *f, uint32_t bin, free_place *place)
{
  if (!free_bins_next_bin(f, bin, &place->bin)) return false;
  place->block = f->first[place->bin];
  assert(place->block != BLOCK_NONE);
  return true;
}

bool free_bins_best_fit(const free_bins *f, const memory_block *blocks, int64_t size_bytes,
                        free_place *place)
{
  uint32_t bin = free_bin_of(size_bytes);
  assert(size_bytes > 0);
  for (uint32_t b = f->first[bin]; b != BLOCK_NONE; b = blocks[b].next_free) {
    *place = (free_place){ .bin = bin, .block = b };
    if (blocks[b].size_bytes >= size_bytes) return true;
  }
  return first_from(f, bin + 1, place);
}

bool free_bins_next(const free_bins *f, const memory_block *blocks, free_place *place)
{
  uint32_t next = blocks[place->block].next_free;
  assert(f->first[place->bin] != BLOCK_NONE);
  if (next == BLOCK_NONE) return first_from(f, place->bin + 1, place);
  place->block = next;
  return true;
}

static bool bin_holds(const free_bins *f, const memory_block *blocks, uint32_t bin)
{
  for (uint32_t b = f->first[bin]; b != BLOCK_NONE; b = blocks[b].next_free) {
    const memory_block *v = &blocks[b];
    if (v->state != BLOCK_FREE || v->size_bytes % (1 << FREE_BIN_UNIT_BITS) != 0) return false;
    if (free_bin_of(v->size_bytes) != bin) return false;
    if (v->next_free != BLOCK_NONE && free_block_rank(v) >= free_block_rank(&blocks[v->next_free]))
      return false;
  }
  return true;
}

bool free_bins_hold(const free_bins *f, const memory_block *blocks)
{
  for (uint32_t bin = 0; bin < FREE_BIN_COUNT; bin++) {
    bool marked = f->words[bin / 64] >> (bin % 64) & 1;
    if (marked != (f->first[bin] != BLOCK_NONE) || !bin_holds(f, blocks, bin)) return false;
  }
  return true;
}
