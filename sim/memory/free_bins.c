#include "sim/memory/free_bins.h"

#include "sim/base/array.h"

void free_bins_add_pool(free_bins *f, uint32_t pool)
{
  uint32_t had = f->first.count, extra = ((pool + 1) << POOL_BIN_BITS) - had;
  assert(pool < ALLOCATOR_POOLS && pool_of_bin(had) <= pool);
  memset(ARRAY_EXTEND(&f->first, extra), 0, extra * sizeof f->first.items[0]);
}

/* The first block of the first bin from `bin` on that is not empty. */
static bool first_from(const free_bins *f, uint32_t bin, free_place *place)
{
  if (!free_bins_next_bin(f, bin, &place->bin)) return false;
  place->block = f->first.items[place->bin];
  assert(place->block != BLOCK_NONE);
  return true;
}

bool free_bins_best_fit(const free_bins *f, const memory_block *blocks, uint32_t bin,
                        int64_t size_bytes, free_place *place)
{
  assert(bin < f->first.count && size_bytes > 0);
  for (uint32_t b = f->first.items[bin]; b != BLOCK_NONE; b = blocks[b].next_free) {
    *place = (free_place){ .bin = bin, .block = b };
    if (blocks[b].size_bytes >= size_bytes) return true;
  }
  return first_from(f, bin + 1, place);
}

bool free_bins_next(const free_bins *f, const memory_block *blocks, free_place *place)
{
  uint32_t next = blocks[place->block].next_free;
  assert(f->first.items[place->bin] != BLOCK_NONE);
  if (next == BLOCK_NONE) return first_from(f, place->bin + 1, place);
  place->block = next;
  return true;
}

static bool bin_holds(const free_bins *f, const memory_block *blocks, uint32_t bin)
{
  for (uint32_t b = f->first.items[bin]; b != BLOCK_NONE; b = blocks[b].next_free) {
    const memory_block *v = &blocks[b];
    if (v->state != BLOCK_FREE || v->size_bytes % ALLOCATOR_ROUNDING_BYTES != 0) return false;
    if (v->bin != bin || free_bin_of(pool_of_bin(bin), v->size_bytes) != bin) return false;
    if (v->next_free != BLOCK_NONE && free_block_rank(v) >= free_block_rank(&blocks[v->next_free]))
      return false;
  }
  return true;
}

bool free_bins_hold(const free_bins *f, const memory_block *blocks)
{
  for (uint32_t bin = 0; bin < f->first.count; bin++) {
    bool marked = f->words[bin / 64] >> (bin % 64) & 1;
    if (marked != (f->first.items[bin] != BLOCK_NONE) || !bin_holds(f, blocks, bin)) return false;
  }
  return true;
}
