#include "sim/memory/free_bins.h"

#include <assert.h>
#include <string.h>

#include "sim/base/array.h"

enum {
  UNIT_BITS = 9, /* 512 bytes */
  SUB_BITS = 4,  /* bins an octave, as a power of two */
  FEW = 6,       /* up to this many entries are searched and moved one by one */
};

/* Exact below 2^SUB_BITS units, then the octave and the SUB_BITS bits after the leading one. */
static uint32_t bin_of(int64_t size_bytes)
{
  uint64_t units = (uint64_t)size_bytes >> UNIT_BITS;

  if (units < (1u << SUB_BITS)) return (uint32_t)units;
  uint32_t shift = 63u - (uint32_t)__builtin_clzll(units) - SUB_BITS;
  return (shift << SUB_BITS) + (uint32_t)(units >> shift);
}

static bool below(const free_entry *e, int64_t size_bytes, int64_t address)
{
  return e->size_bytes < size_bytes || (e->size_bytes == size_bytes && e->address < address);
}

/* First index whose (size, address) is not less than the given one. */
static uint32_t lower_bound(const free_bin *bin, int64_t size_bytes, int64_t address)
{
  uint32_t low = 0, high = bin->count;

  while (high - low > FEW) {
    uint32_t middle = (low + high) / 2;
    if (below(&bin->items[middle], size_bytes, address))
      low = middle + 1;
    else
      high = middle;
  }
  while (low < high && below(&bin->items[low], size_bytes, address))
    low++;
  return low;
}

/* Moves `count` entries by one place. Mostly there are none or one, where a call costs more. */
static void move_up(free_entry *first, uint32_t count)
{
  if (count > FEW) {
    memmove(first + 1, first, count * sizeof *first);
    return;
  }
  for (uint32_t i = count; i > 0; i--)
    first[i] = first[i - 1];
}

static void move_down(free_entry *first, uint32_t count)
{
  if (count > FEW) {
    memmove(first - 1, first, count * sizeof *first);
    return;
  }
  for (uint32_t i = 0; i < count; i++)
    (first + i)[-1] = first[i];
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

void free_bins_insert(free_bins *f, int64_t size_bytes, int64_t address, uint32_t block)
{
  uint32_t b = bin_of(size_bytes);
  free_bin *bin = &f->bins[b];
  uint32_t index = lower_bound(bin, size_bytes, address);

  assert(size_bytes > 0);
  (void)ARRAY_PUSH(bin);
  move_up(&bin->items[index], bin->count - 1 - index);
  bin->items[index] = (free_entry){ .size_bytes = size_bytes, .address = address, .block = block };
  f->words[b / 64] |= UINT64_C(1) << (b % 64);
  f->summary |= UINT64_C(1) << (b / 64);
}

void free_bins_remove_at(free_bins *f, free_place place)
{
  free_bin *bin = &f->bins[place.bin];

  assert(place.index < bin->count);
  bin->count--;
  move_down(&bin->items[place.index + 1], bin->count - place.index);
  if (bin->count != 0) return;
  f->words[place.bin / 64] &= ~(UINT64_C(1) << (place.bin % 64));
  if (f->words[place.bin / 64] == 0) f->summary &= ~(UINT64_C(1) << (place.bin / 64));
}

void free_bins_remove(free_bins *f, int64_t size_bytes, int64_t address)
{
  free_place place = { .bin = bin_of(size_bytes) };

  place.index = lower_bound(&f->bins[place.bin], size_bytes, address);
  assert(place.index < f->bins[place.bin].count);
  assert(free_bins_at(f, place)->address == address &&
         free_bins_at(f, place)->size_bytes == size_bytes);
  free_bins_remove_at(f, place);
}

bool free_bins_best_fit(const free_bins *f, int64_t size_bytes, free_place *place)
{
  uint32_t b = bin_of(size_bytes);
  const free_bin *bin = &f->bins[b];

  assert(size_bytes > 0);
  if (bin->count != 0) {
    uint32_t index = lower_bound(bin, size_bytes, 0);
    if (index < bin->count) {
      *place = (free_place){ .bin = b, .index = index };
      return true;
    }
  }
  place->index = 0;
  return next_bin(f, b + 1, &place->bin);
}

bool free_bins_next(const free_bins *f, free_place *place)
{
  assert(place->bin < FREE_BIN_COUNT && place->index < f->bins[place->bin].count);
  if (place->index + 1 < f->bins[place->bin].count) {
    place->index++;
    return true;
  }
  place->index = 0;
  return next_bin(f, place->bin + 1, &place->bin);
}

static bool bin_holds(const free_bins *f, uint32_t b)
{
  const free_bin *bin = &f->bins[b];
  if (!(f->words[b / 64] >> (b % 64) & 1)) return false;
  for (uint32_t i = 0; i < bin->count; i++) {
    const free_entry *e = &bin->items[i];
    if (bin_of(e->size_bytes) != b || e->size_bytes % (1 << UNIT_BITS) != 0) return false;
    if (i > 0 && !below(&bin->items[i - 1], e->size_bytes, e->address)) return false;
  }
  return true;
}

/* Each bin is sorted and has only its own sizes; the bitmap says which bins have blocks. Most have none. */
static bool bins_hold(const free_bins *f)
{
  uint32_t bits = 0;
  for (uint32_t w = 0; w < FREE_BIN_WORDS; w++) {
    if ((f->summary >> w & 1) != (f->words[w] != 0)) return false;
    bits += (uint32_t)__builtin_popcountll(f->words[w]);
  }
  for (uint32_t b = 0; b < FREE_BIN_COUNT; b++) {
    if (f->bins[b].count == 0) continue;
    if (!bin_holds(f, b)) return false;
    bits--;
  }
  return bits == 0;
}

void free_bins_release(free_bins *f)
{
  assert(bins_hold(f));
  for (uint32_t b = 0; b < FREE_BIN_COUNT; b++)
    if (f->bins[b].items != NULL) ARRAY_FREE(&f->bins[b]);
  memset(f, 0, sizeof *f);
}
