#include "sim/base/array.h"

#include <stdlib.h>

#include "sim/base/diag.h"
#include "sim/base/huge_pages.h"

enum { FIRST_CAPACITY = 16 };

void *array_grow(void *items, uint32_t *capacity, uint32_t needed, size_t item_bytes)
{
  if (needed < *capacity || needed > UINT32_MAX / 2)
    die_refused("memory: requested an array of more than %u items", UINT32_MAX / 2);
  uint32_t grown = *capacity ? 2 * *capacity : FIRST_CAPACITY;
  if (grown < needed) grown = needed;
  void *moved = realloc(items, grown * item_bytes);
  if (moved == NULL)
    die_refused("memory: requested %zu bytes, the system has none left", grown * item_bytes);
  prefer_huge_pages(moved, grown * item_bytes);
  *capacity = grown;
  return moved;
}

void array_release(void *items)
{
  free(items);
}
