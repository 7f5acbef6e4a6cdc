#define _GNU_SOURCE /* madvise, MAP_ANONYMOUS, mremap */

#include "sim/base/memory.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "sim/base/diag.h"

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

/* ---- whole pages ---- */

/* With 4 KiB pages the first touch of a plan's arrays costs more than filling them, so large blocks are huge
 * pages of their own. What one step releases, the next one asks for: such blocks are kept, for the
 * kernel takes as long to clear a page as a program to fill it. A request takes the end of a larger block,
 * or the pages of several smaller ones, which move to where it is mapped; so blocks of one step are of use
 * to the next one whatever their sizes. The sanitizer is to see every block; WebAssembly has no pages to
 * map. */
#if defined(__SANITIZE_ADDRESS__) || defined(__wasm__)
#define LARGE_BYTES SIZE_MAX
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LARGE_BYTES SIZE_MAX
#endif
#endif
#ifndef LARGE_BYTES
#define LARGE_BYTES ((size_t)MIB)
#endif

enum { HUGE_PAGE_BYTES = 2 << 20, MOST_SPARES = 256, MOST_SPARE_BYTES = 512 << 20 };

/* Before the memory that the caller gets. */
typedef struct block {
  _Alignas(16) size_t bytes; /* of the memory */
  bool paged;                /* whole pages; else of malloc */
} block;

static struct {
  pthread_mutex_t lock;
  block *blocks[MOST_SPARES];
  uint32_t count;
  size_t bytes;
} spares = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* A paged block with its header. */
static size_t size_of(const block *b)
{
  return b->bytes + sizeof *b;
}

static size_t pages_of(size_t bytes)
{
  return (bytes + sizeof(block) + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
}

static void unmap(void *memory, size_t bytes)
{
  if (bytes > 0) (void)munmap(memory, bytes);
}

/* Zero pages that begin at a multiple of a huge page; NULL: refused. */
static char *map_pages(size_t bytes)
{
  char *mapped = mmap(NULL, bytes + HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return NULL;
  size_t before = (HUGE_PAGE_BYTES - (uintptr_t)mapped % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
  unmap(mapped, before);
  unmap(mapped + before + bytes, HUGE_PAGE_BYTES - before);
  (void)madvise(mapped + before, bytes, MADV_HUGEPAGE); /* advice only */
  return mapped + before;
}

static block *make_paged(char *at, size_t bytes)
{
  block *b = (block *)(void *)at;
  *b = (block){ .bytes = bytes - sizeof *b, .paged = true };
  return b;
}

/* The last `bytes` of a spare block. */
static char *cut_spare(uint32_t i, size_t bytes)
{
  block *b = spares.blocks[i];
  size_t left_bytes = size_of(b) - bytes;
  spares.bytes -= bytes;
  if (left_bytes > 0)
    b->bytes -= bytes;
  else
    spares.blocks[i] = spares.blocks[--spares.count];
  return (char *)b + left_bytes;
}

/* A block of `bytes`, header included, cut off the smallest spare one that has them; NULL: none has. */
static block *take_spare(size_t bytes)
{
  uint32_t best = MOST_SPARES;
  for (uint32_t i = 0; i < spares.count; i++)
    if (size_of(spares.blocks[i]) >= bytes &&
        (best == MOST_SPARES || spares.blocks[i]->bytes < spares.blocks[best]->bytes))
      best = i;
  return best == MOST_SPARES ? NULL : make_paged(cut_spare(best, bytes), bytes);
}

/* One huge page after the other, as those of a block may have come from several. Where the system moves none,
 * the new block has a page of its own. */
static void move_pages(char *from, size_t bytes, char *to)
{
  for (size_t at = 0; at < bytes; at += HUGE_PAGE_BYTES) {
#ifdef MREMAP_FIXED
    if (mremap(from + at, HUGE_PAGE_BYTES, HUGE_PAGE_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED,
               to + at) != MAP_FAILED)
      continue;
    if (mmap(to + at, HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
      die_refused("memory: the system neither moves nor maps a page");
#endif
    unmap(from + at, HUGE_PAGE_BYTES);
  }
}

/* A new block with the pages of spare ones, as far as they go; `moved_bytes`: how far. NULL: refused. */
static block *gather_spares(size_t bytes, size_t *moved_bytes)
{
  char *to = map_pages(bytes);
  *moved_bytes = 0;
  while (to != NULL && *moved_bytes < bytes && spares.count > 0) {
    size_t missing = bytes - *moved_bytes, has = size_of(spares.blocks[spares.count - 1]);
    size_t part = has < missing ? has : missing;
    move_pages(cut_spare(spares.count - 1, part), part, to + *moved_bytes);
    *moved_bytes += part;
  }
  return to == NULL ? NULL : make_paged(to, bytes);
}

/* False: there are enough. */
static bool keep_spare(block *b)
{
  pthread_mutex_lock(&spares.lock);
  bool kept = spares.count < MOST_SPARES && spares.bytes + size_of(b) <= MOST_SPARE_BYTES;
  if (kept) {
    spares.blocks[spares.count++] = b;
    spares.bytes += size_of(b);
  }
  pthread_mutex_unlock(&spares.lock);
  return kept;
}

static void drop_spares(void)
{
  pthread_mutex_lock(&spares.lock);
  while (spares.count > 0) {
    block *b = spares.blocks[--spares.count];
    unmap(b, size_of(b));
  }
  spares.bytes = 0;
  pthread_mutex_unlock(&spares.lock);
}

/* Looks once in LOOK_BYTES of requests; what those have used by then is no longer available. */
static void require_available(size_t bytes)
{
  static _Atomic size_t unseen_bytes;
  if (atomic_fetch_add(&unseen_bytes, bytes) + bytes < LOOK_BYTES) return;
  atomic_store(&unseen_bytes, 0);
  size_t available = available_now();
  if (bytes > available || available - bytes < FREE_BYTES) {
    drop_spares();
    available = available_now();
  }
  if (bytes > available || available - bytes < FREE_BYTES)
    die_refused("memory: requested %zu MiB more, the system has %zu MiB left of which %d MiB are "
                "kept free",
                bytes / MIB + 1, available / MIB, FREE_BYTES / MIB);
}

/* ---- requests ---- */

/* `zeroed`: whether it is. NULL: refused. */
static block *new_paged(size_t bytes, bool *zeroed)
{
  size_t moved_bytes = bytes;
  pthread_mutex_lock(&spares.lock);
  block *b = take_spare(bytes);
  pthread_mutex_unlock(&spares.lock);
  if (b == NULL) {
    require_available(bytes);
    pthread_mutex_lock(&spares.lock);
    b = gather_spares(bytes, &moved_bytes);
    pthread_mutex_unlock(&spares.lock);
  }
  *zeroed = moved_bytes == 0;
  return b;
}

/* `zeroed`: whether it is, from now on or by request. */
static block *new_block(size_t bytes, bool *zeroed)
{
  block *b;
  if (bytes >= LARGE_BYTES) {
    b = new_paged(pages_of(bytes), zeroed);
    if (b == NULL) drop_spares();
    if (b == NULL) b = new_paged(pages_of(bytes), zeroed);
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

void *memory_resized(void *memory, size_t bytes)
{
  assert(bytes > 0);
  block *old = memory == NULL ? NULL : (block *)memory - 1;
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
  else if (!keep_spare(b))
    unmap(b, size_of(b));
}
