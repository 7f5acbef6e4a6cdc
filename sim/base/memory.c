#define _DEFAULT_SOURCE /* madvise */

#include "sim/base/memory.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "sim/base/diag.h"

enum { HUGE_PAGE_BYTES = 2 << 20, LOOK_BYTES = 64 << 20, SPARE_BYTES = 128 << 20, MIB = 1 << 20 };

/* With 4 KiB pages the first touch of a plan's arrays costs more than filling them. Advice only. */
static void prefer_huge_pages(void *memory, size_t bytes)
{
  uintptr_t from = ((uintptr_t)memory + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
  uintptr_t to = ((uintptr_t)memory + bytes) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
  if (from < to) (void)madvise((void *)from, to - from, MADV_HUGEPAGE);
}

size_t memory_available(const char *meminfo)
{
  unsigned long kib;
  const char *line = strstr(meminfo, "MemAvailable:");
  return line != NULL && sscanf(line, "MemAvailable: %lu kB", &kib) == 1 ? (size_t)kib * 1024
                                                                         : SIZE_MAX;
}

static size_t available_now(void)
{
  char text[4096] = "";
  FILE *f = fopen("/proc/meminfo", "r");
  if (f == NULL) return SIZE_MAX;
  text[fread(text, 1, sizeof text - 1, f)] = '\0';
  fclose(f);
  return memory_available(text);
}

/* Looks once in LOOK_BYTES of requests; what those have used by then is no longer available. */
static void require_available(size_t bytes)
{
  static _Atomic size_t unseen_bytes;
  if (atomic_fetch_add(&unseen_bytes, bytes) + bytes < LOOK_BYTES) return;
  atomic_store(&unseen_bytes, 0);
  size_t available = available_now();
  if (bytes > available || available - bytes < SPARE_BYTES)
    die_refused("memory: requested %zu MiB more, the system has %zu MiB left of which %d MiB are "
                "kept free",
                bytes / MIB + 1, available / MIB, SPARE_BYTES / MIB);
}

void *memory_zeroed(size_t count, size_t item_bytes)
{
  assert(item_bytes > 0);
  if (count > SIZE_MAX / 2 / item_bytes)
    die_refused("memory: requested %zu items of %zu bytes", count, item_bytes);
  require_available(count * item_bytes);
  void *memory = calloc(count > 0 ? count : 1, item_bytes);
  if (memory == NULL)
    die_refused("memory: requested %zu bytes, the system has none left", count * item_bytes);
  prefer_huge_pages(memory, count * item_bytes);
  return memory;
}

void *memory_resized(void *memory, size_t bytes)
{
  assert(bytes > 0);
  require_available(bytes);
  void *moved = realloc(memory, bytes);
  if (moved == NULL) die_refused("memory: requested %zu bytes, the system has none left", bytes);
  prefer_huge_pages(moved, bytes);
  return moved;
}
