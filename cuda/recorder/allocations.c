#include "cuda/recorder/allocations.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Sorted; frameworks have hundreds of them, which change rarely. */
typedef struct range {
  uint64_t begin, end;
} range;

static struct {
  pthread_rwlock_t lock;
  range *items;
  size_t count, capacity;
} known = { .lock = PTHREAD_RWLOCK_INITIALIZER };

/* The first range that ends after the address. */
static size_t place_of(uint64_t address)
{
  size_t from = 0, to = known.count;
  while (from < to) {
    size_t middle = from + (to - from) / 2;
    if (known.items[middle].end <= address)
      from = middle + 1;
    else
      to = middle;
  }
  return from;
}

void allocations_add(uint64_t address, uint64_t bytes)
{
  if (bytes == 0) return;
  pthread_rwlock_wrlock(&known.lock);
  size_t at = place_of(address);
  if (known.count == known.capacity) {
    known.capacity = known.capacity == 0 ? 256 : 2 * known.capacity;
    known.items = realloc(known.items, known.capacity * sizeof *known.items);
    if (known.items == NULL) abort();
  }
  memmove(known.items + at + 1, known.items + at, (known.count - at) * sizeof *known.items);
  known.items[at] = (range){ address, address + bytes };
  known.count++;
  pthread_rwlock_unlock(&known.lock);
}

uint64_t allocations_remove(uint64_t address, uint64_t bytes)
{
  pthread_rwlock_wrlock(&known.lock);
  size_t from = place_of(address), to = from;
  uint64_t end = bytes == 0 ? address + 1 : address + bytes, removed = 0;
  for (; to < known.count && known.items[to].begin < end; to++)
    removed += known.items[to].end - known.items[to].begin;
  memmove(known.items + from, known.items + to, (known.count - to) * sizeof *known.items);
  known.count -= to - from;
  pthread_rwlock_unlock(&known.lock);
  return removed;
}

static bool has(uint64_t address)
{
  if (known.count == 0 || address < known.items[0].begin) return false;
  size_t at = place_of(address);
  return at < known.count && known.items[at].begin <= address;
}

bool allocations_has(uint64_t address)
{
  pthread_rwlock_rdlock(&known.lock);
  bool result = has(address);
  pthread_rwlock_unlock(&known.lock);
  return result;
}

size_t allocations_find(const void *bytes, size_t words, uint64_t *found, size_t count, size_t most)
{
  pthread_rwlock_rdlock(&known.lock);
  for (size_t i = 0; i < words && count < most; i++) {
    uint64_t word;
    memcpy(&word, (const uint8_t *)bytes + 8 * i, sizeof word);
    if (has(word)) found[count++] = word;
  }
  pthread_rwlock_unlock(&known.lock);
  return count;
}
