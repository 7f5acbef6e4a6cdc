#include "sim/base/memory.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/diag.h"
#include "sim/base/pages.h"

enum { LOOK_BYTES = 64 << 20, FREE_BYTES = 128 << 20, MIB = 1 << 20 };

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

/* Blocks from here on are pages. The sanitizer is to see every block; WebAssembly has no pages to map. */
#if defined(__SANITIZE_ADDRESS__) || defined(__wasm__)
#define LARGE_BYTES SIZE_MAX
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LARGE_BYTES SIZE_MAX
#endif
#endif
#ifndef LARGE_BYTES
#define LARGE_BYTES ((size_t)16 << 10)
#endif

/* Looks once in LOOK_BYTES of requests; what those have used by then is no longer available. */
static void require_available(size_t bytes)
{
  static _Atomic size_t unseen_bytes;
  if (atomic_fetch_add(&unseen_bytes, bytes) + bytes < LOOK_BYTES) return;
  atomic_store(&unseen_bytes, 0);
  size_t available = available_now();
  if (bytes > available || available - bytes < FREE_BYTES) {
    pages_drop();
    available = available_now();
  }
  if (bytes > available || available - bytes < FREE_BYTES)
    die_refused("memory: requested %zu MiB more, the system has %zu MiB left of which %d MiB are "
                "kept free",
                bytes / MIB + 1, available / MIB, FREE_BYTES / MIB);
}

/* ---- requests ---- */

/* Before the memory that the caller gets. */
typedef struct block {
  _Alignas(16) size_t bytes; /* of the memory */
  bool paged;                /* pages; else of malloc */
} block;

/* Of a paged block that has as many bytes of memory at least. */
static size_t paged_bytes(size_t bytes)
{
  size_t all = sizeof(block) + bytes;
  return (all + PAGE_GRANULE_BYTES - 1) / PAGE_GRANULE_BYTES * PAGE_GRANULE_BYTES;
}

/* `zeroed`: whether it is. NULL: refused. */
static block *new_paged(size_t bytes, bool *zeroed)
{
  block *b = pages_reused(bytes);
  *zeroed = b == NULL;
  if (b == NULL) {
    require_available(bytes);
    b = pages_zeroed(bytes);
  }
  if (b == NULL) {
    pages_drop();
    b = pages_zeroed(bytes);
  }
  if (b != NULL) *b = (block){ .bytes = bytes - sizeof *b, .paged = true };
  return b;
}

/* `zeroed`: whether it is, from now on or by request. */
static block *new_block(size_t bytes, bool *zeroed)
{
  block *b;
  if (bytes >= LARGE_BYTES) {
    b = new_paged(paged_bytes(bytes), zeroed);
  } else {
    require_available(bytes);
    b = *zeroed ? calloc(1, sizeof *b + bytes) : malloc(sizeof *b + bytes);
    if (b != NULL) *b = (block){ .bytes = bytes };
  }
  if (b == NULL) die_refused("memory: requested %zu bytes, the system has none left", bytes);
  return b;
}

void *memory_taken(size_t bytes, bool *zeroed)
{
  *zeroed = false;
  return new_block(bytes, zeroed) + 1;
}

void *memory_zeroed(size_t count, size_t item_bytes)
{
  bool zeroed = true;
  assert(item_bytes > 0);
  if (count > SIZE_MAX / 2 / item_bytes)
    die_refused("memory: requested %zu items of %zu bytes", count, item_bytes);
  void *memory = new_block(count * item_bytes, &zeroed) + 1;
  if (!zeroed) memset(memory, 0, count * item_bytes);
  return memory;
}

/* A paged block, where it is. False: what follows it is not free. */
static bool resize_paged(block *b, size_t bytes)
{
  size_t size = paged_bytes(b->bytes), wanted = paged_bytes(bytes);
  char *end = (char *)b + size;
  if (wanted > size && !pages_extend(end, wanted - size)) return false;
  if (wanted < size) pages_return((char *)b + wanted, size - wanted);
  b->bytes = wanted - sizeof *b;
  return true;
}

void *memory_resized(void *memory, size_t bytes)
{
  assert(bytes > 0);
  block *old = memory == NULL ? NULL : (block *)memory - 1;
  if (old != NULL && old->paged && resize_paged(old, bytes)) return memory;
  if (old != NULL && bytes <= old->bytes) return memory;
  bool zeroed = false;
  if ((old == NULL || !old->paged) && bytes < LARGE_BYTES) {
    require_available(bytes);
    block *b = realloc(old, sizeof *b + bytes);
    if (b == NULL) die_refused("memory: requested %zu bytes, the system has none left", bytes);
    *b = (block){ .bytes = bytes };
    return b + 1;
  }
  void *moved = new_block(bytes, &zeroed) + 1;
  if (old != NULL) memcpy(moved, memory, old->bytes);
  memory_return(memory);
  return moved;
}

void memory_return(void *memory)
{
  block *b = memory == NULL ? NULL : (block *)memory - 1;
  if (b == NULL || !b->paged)
    free(b);
  else
    pages_return(b, sizeof *b + b->bytes);
}
