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

static size_t inactive_file_bytes(const char *stat)
{
  static const char *const names[] = { "\ntotal_inactive_file ", "\ninactive_file " };
  size_t bytes;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *line = strstr(stat, names[i]);
    if (line != NULL && sscanf(line + strlen(names[i]), "%zu", &bytes) == 1) return bytes;
  }
  return 0;
}

size_t memory_left_of_group(const char *limit, const char *used, const char *stat)
{
  size_t limit_bytes, used_bytes;
  if (sscanf(limit, "%zu", &limit_bytes) != 1 || sscanf(used, "%zu", &used_bytes) != 1)
    return SIZE_MAX;
  size_t spare = inactive_file_bytes(stat);
  used_bytes -= spare < used_bytes ? spare : used_bytes;
  return used_bytes < limit_bytes ? limit_bytes - used_bytes : 0;
}

enum { TEXT_BYTES = 8192 };

/* Empty if there is no such file. */
static void read_text(const char *path, char text[TEXT_BYTES])
{
  text[0] = '\0';
  FILE *f = fopen(path, "r");
  if (f == NULL) return;
  text[fread(text, 1, TEXT_BYTES - 1, f)] = '\0';
  fclose(f);
}

/* Inside a container these are the files of its own group. */
static size_t left_of_group(void)
{
  static const char *const files[][3] = {
    { "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat" },
    { "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes",
      "/sys/fs/cgroup/memory/memory.stat" },
  };
  size_t left_bytes = SIZE_MAX;
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    char texts[3][TEXT_BYTES];
    for (size_t k = 0; k < 3; k++)
      read_text(files[i][k], texts[k]);
    size_t bytes = memory_left_of_group(texts[0], texts[1], texts[2]);
    if (bytes < left_bytes) left_bytes = bytes;
  }
  return left_bytes;
}

static size_t available_now(void)
{
  char meminfo[TEXT_BYTES];
  read_text("/proc/meminfo", meminfo);
  size_t system_bytes = memory_available(meminfo), group_bytes = left_of_group();
  return group_bytes < system_bytes ? group_bytes : system_bytes;
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
