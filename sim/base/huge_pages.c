#define _DEFAULT_SOURCE /* madvise */

#include "sim/base/huge_pages.h"

#include <stdint.h>
#include <sys/mman.h>

enum { HUGE_PAGE_BYTES = 2 << 20 };

void prefer_huge_pages(void *memory, size_t bytes)
{
  uintptr_t from = ((uintptr_t)memory + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
  uintptr_t to = ((uintptr_t)memory + bytes) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
  if (from < to) (void)madvise((void *)from, to - from, MADV_HUGEPAGE);
}
