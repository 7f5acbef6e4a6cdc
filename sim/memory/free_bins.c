#include "sim/memory/free_bins.h"

#include <assert.h>

enum {
  UNIT_BITS = 9, /* 512 bytes */
  SUB_BITS = 4,  /* bins an octave, as a power of two */
};

/* Exact below 2^SUB_BITS units, then the octave and the SUB_BITS bits after the leading one. */
static uint32_t bin_of(int64_t size_bytes)
{
  uint64_t units = (uint64_t)size_bytes >> UNIT_BITS;

  if (units < (1u << SUB_BITS)) return (uint32_t)units;
  uint32_t shift = 63u - (uint32_t)__builtin_clzll(units) - SUB_BITS;
  return (shift << SUB_BITS) + (uint32_t)(units >> shift);
}

static bool has_blocks(const free_bins *f, uint32_t bin)
{
  return f->words[bin / 64] >> (bin % 64) & 1;
}

static bool precedes(const memory_block *a, const memory_block *b)
{
  return a->size_bytes < b->size_bytes ||
         (a->size_bytes == b->size_bytes && a->address < b->address);
}

/* First bin at or after `bin` that is not empty; false if there is none. */
static bool next_bin(const free_bins *f, uint32_t bin, uint32_t *found)
{
  uint32_t word = bin / 64;
  uint64_t bits;

  if (bin >= FREE_BIN_COUNT) return false;
  bits = f->words[word] & (UINT64_MAX << (bin % 64));
  if (bits == 0) {
    uint64_t words = f->summary & ~((UINT64_C(2) << word) - 1);
    if (words == 0) return false;
    word = (uint32_t)__builtin_ctzll(words);
    bits = f->words[word];
  }
  assert(bits != 0 && "the summary says which words have bits");
  *found = word * 64 + (uint32_t)__builtin_ctzll(bits);
  return true;
}

/* The first block of the first bin from `bin` on that is not empty. */
static bool first_from(const free_bins *f, uint32_t bin, free_place *place)
{
  if (!next_bin(f, bin, &place->bin)) return false;
  place->before = BLOCK_NONE;
  place->block = f->first[place->bin];
  return true;
}

void free_bins_insert(free_bins *f, memory_block *blocks, uint32_t block)
{
  memory_block *b = &blocks[block];
  uint32_t bin = bin_of(b->size_bytes), *link = &f->first[bin];

  assert(b->size_bytes > 0 && b->state == BLOCK_FREE);
  if (has_blocks(f, bin)) {
    while (*link != BLOCK_NONE && precedes(&blocks[*link], b))
      link = &blocks[*link].next_free;
    assert(*link != block && "it is not there yet");
    b->next_free = *link;
  } else {
    b->next_free = BLOCK_NONE;
    f->words[bin / 64] |= UINT64_C(1) << (bin % 64);
    f->summary |= UINT64_C(1) << (bin / 64);
  }
  *link = block;
}

static void note_empty(free_bins *f, uint32_t bin)
{
  f->words[bin / 64] &= ~(UINT64_C(1) << (bin % 64));
  if (f->words[bin / 64] == 0) f->summary &= ~(UINT64_C(1) << (bin / 64));
}

void free_bins_remove_at(free_bins *f, memory_block *blocks, const free_place *place)
{
  uint32_t next = blocks[place->block].next_free;

  assert(has_blocks(f, place->bin));
  if (place->before != BLOCK_NONE)
    blocks[place->before].next_free = next;
  else if (next != BLOCK_NONE)
    f->first[place->bin] = next;
  else
    note_empty(f, place->bin);
}

void free_bins_remove(free_bins *f, memory_block *blocks, uint32_t block)
{
  uint32_t bin = bin_of(blocks[block].size_bytes);
  free_place place = { .bin = bin, .before = BLOCK_NONE, .block = f->first[bin] };

  assert(has_blocks(f, bin));
  while (place.block != block) {
    place.before = place.block;
    place.block = blocks[place.block].next_free;
    assert(place.block != BLOCK_NONE && "it is in its bin");
  }
  free_bins_remove_at(f, blocks, &place);
}

bool free_bins_best_fit(const free_bins *f, const memory_block *blocks, int64_t size_bytes,
                        free_place *place)
{
  uint32_t bin = bin_of(size_bytes);

  assert(size_bytes > 0);
  if (has_blocks(f, bin)) {
    *place = (free_place){ .bin = bin, .before = BLOCK_NONE, .block = f->first[bin] };
    for (; place->block != BLOCK_NONE; place->block = blocks[place->block].next_free) {
      if (blocks[place->block].size_bytes >= size_bytes) return true;
      place->before = place->block;
    }
  }
  return first_from(f, bin + 1, place);
}

bool free_bins_next(const free_bins *f, const memory_block *blocks, free_place *place)
{
  uint32_t next = blocks[place->block].next_free;

  assert(has_blocks(f, place->bin));
  if (next == BLOCK_NONE) return first_from(f, place->bin + 1, place);
  place->before = place->block;
  place->block = next;
  return true;
}

static bool bin_holds(const free_bins *f, const memory_block *blocks, uint32_t bin)
{
  for (uint32_t b = f->first[bin]; b != BLOCK_NONE; b = blocks[b].next_free) {
    const memory_block *v = &blocks[b];
    if (v->state != BLOCK_FREE || v->size_bytes % (1 << UNIT_BITS) != 0) return false;
    if (bin_of(v->size_bytes) != bin) return false;
    if (v->next_free != BLOCK_NONE && !precedes(v, &blocks[v->next_free])) return false;
  }
  return true;
}

bool free_bins_hold(const free_bins *f, const memory_block *blocks)
{
  for (uint32_t w = 0; w < FREE_BIN_WORDS; w++) {
    if ((f->summary >> w & 1) != (f->words[w] != 0)) return false;
    for (uint64_t left = f->words[w]; left != 0; left &= left - 1)
      if (!bin_holds(f, blocks, w * 64 + (uint32_t)__builtin_ctzll(left))) return false;
  }
  return true;
}
