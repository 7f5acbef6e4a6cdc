#include "sim/base/array.h"

#include <string.h>

#include "sim/base/diag.h"
#include "sim/base/memory.h"

/* Small arrays grow in fewer steps, each of which may move them. */
enum { FIRST_CAPACITY = 16, SMALL_BYTES = 32 << 10, SMALL_GROWTH = 4, GROWTH = 2 };

void *array_grow(void *items, uint32_t *capacity, uint32_t needed, size_t item_bytes)
{
  if (needed < *capacity || needed > UINT32_MAX / 2)
    die_refused("memory: requested an array of more than %u items", UINT32_MAX / 2);
  uint32_t growth = *capacity * item_bytes < SMALL_BYTES ? SMALL_GROWTH : GROWTH;
  uint32_t grown = *capacity ? growth * *capacity : FIRST_CAPACITY;
  if (grown < needed) grown = needed;
  void *moved = memory_resized(items, grown * item_bytes);
  *capacity = grown;
  return moved;
}

void *array_trim(void *items, uint32_t *capacity, uint32_t count, size_t item_bytes)
{
  if (count == 0 || count == *capacity) return items;
  *capacity = count;
  return memory_resized(items, count * item_bytes);
}

void *array_copy(const void *items, uint32_t count, size_t item_bytes)
{
  if (count == 0) return NULL;
  return memcpy(memory_resized(NULL, count * item_bytes), items, count * item_bytes);
}

void array_release(void *items)
{
  memory_return(items);
}

uint32_t array_count_before(const void *items, uint32_t count, size_t item_bytes, const void *key,
                            int (*order)(const void *item, const void *key))
{
  uint32_t low = 0, high = count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (order((const char *)items + middle * item_bytes, key) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}
