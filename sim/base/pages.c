#define _DEFAULT_SOURCE /* madvise, MAP_ANONYMOUS */

#include "sim/base/pages.h"

#include <assert.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "sim/base/diag.h"

enum {
  HUGE_PAGE_BYTES = 2 << 20,
  MAPPED_BYTES = 256 << 20, /* at a time: pages cost nothing before they are touched */
  MOST_FREE_BYTES = 512 << 20,
};

typedef struct range {
  char *at;
  size_t bytes;
} range;

static struct {
  pthread_mutex_t lock;
  range *free; /* returned: by address, of which no two adjoin */
  uint32_t count, capacity;
  size_t free_bytes;
  range fresh; /* mapped, not yet given out, zero */
} pool = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- free ranges ---- */

static char *end_of(const range *r)
{
  return r->at + r->bytes;
}

/* The number of free ranges before `at`. */
static uint32_t ranges_before(const char *at)
{
  uint32_t low = 0, high = pool.count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (pool.free[middle].at < at)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static void insert_range(uint32_t i, range r)
{
  if (pool.count == pool.capacity) {
    pool.capacity = 2 * pool.capacity + 64;
    pool.free = realloc(pool.free, pool.capacity * sizeof *pool.free);
    if (pool.free == NULL) die_refused("memory: the system has none left");
  }
  memmove(&pool.free[i + 1], &pool.free[i], (pool.count - i) * sizeof *pool.free);
  pool.free[i] = r;
  pool.count++;
}

static void remove_range(uint32_t i)
{
  pool.count--;
  memmove(&pool.free[i], &pool.free[i + 1], (pool.count - i) * sizeof *pool.free);
}

/* Takes bytes from `at` on out of range `i`, of which up to two pieces stay. */
static void cut_range(uint32_t i, char *at, size_t bytes)
{
  range *r = &pool.free[i];
  range after = { at + bytes, (size_t)(end_of(r) - (at + bytes)) };
  assert(at >= r->at && after.at <= end_of(r));
  pool.free_bytes -= bytes;
  r->bytes = (size_t)(at - r->at);
  if (r->bytes == 0 && after.bytes == 0)
    remove_range(i);
  else if (r->bytes == 0)
    *r = after;
  else if (after.bytes > 0)
    insert_range(i + 1, after);
}

/* Whether range `i` and the next one adjoin, and are one from now on. */
static bool join_next(uint32_t i)
{
  bool adjoins = i + 1 < pool.count && end_of(&pool.free[i]) == pool.free[i + 1].at;
  if (!adjoins) return false;
  pool.free[i].bytes += pool.free[i + 1].bytes;
  remove_range(i + 1);
  return true;
}

/* Returns the number of the range that has it. */
static uint32_t add_range(range added)
{
  uint32_t i = ranges_before(added.at);
  pool.free_bytes += added.bytes;
  insert_range(i, added);
  join_next(i);
  return i > 0 && join_next(i - 1) ? i - 1 : i;
}

/* ---- huge pages ---- */

/* Those that lie in the range. */
static range whole_pages(const range *r)
{
  size_t before = (HUGE_PAGE_BYTES - (uintptr_t)r->at % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
  if (r->bytes < before) return (range){ r->at, 0 };
  return (range){ r->at + before, (r->bytes - before) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES };
}

static size_t pages_of(size_t bytes)
{
  return (bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
}

static void unmap(void *memory, size_t bytes)
{
  if (bytes > 0) (void)munmap(memory, bytes);
}

/* Zero; NULL: refused. */
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

static void drop_pages_of(uint32_t i)
{
  range pages = whole_pages(&pool.free[i]);
  if (pages.bytes == 0) return;
  cut_range(i, pages.at, pages.bytes);
  unmap(pages.at, pages.bytes);
}

/* ---- requests ---- */

void *pages_reused(size_t bytes)
{
  pthread_mutex_lock(&pool.lock);
  uint32_t best = UINT32_MAX;
  for (uint32_t i = 0; i < pool.count; i++)
    if (pool.free[i].bytes >= bytes &&
        (best == UINT32_MAX || pool.free[i].bytes < pool.free[best].bytes))
      best = i;
  char *at = best == UINT32_MAX ? NULL : pool.free[best].at;
  if (at != NULL) cut_range(best, at, bytes);
  pthread_mutex_unlock(&pool.lock);
  return at;
}

/* What is left of the pages mapped before is free. Under a limit of the process, no more than needed. */
static bool map_fresh(size_t bytes)
{
  size_t mapped_bytes = bytes < MAPPED_BYTES ? MAPPED_BYTES : pages_of(bytes);
  char *mapped = map_pages(mapped_bytes);
  if (mapped == NULL) mapped = map_pages(mapped_bytes = pages_of(bytes));
  if (mapped == NULL) return false;
  if (pool.fresh.bytes > 0) add_range(pool.fresh);
  pool.fresh = (range){ mapped, mapped_bytes };
  return true;
}

static char *take_fresh(size_t bytes)
{
  char *at = pool.fresh.at;
  assert(bytes <= pool.fresh.bytes);
  pool.fresh = (range){ at + bytes, pool.fresh.bytes - bytes };
  return at;
}

void *pages_zeroed(size_t bytes)
{
  assert(bytes > 0 && bytes % PAGE_GRANULE_BYTES == 0);
  pthread_mutex_lock(&pool.lock);
  bool fits = bytes <= pool.fresh.bytes || map_fresh(bytes);
  char *at = fits ? take_fresh(bytes) : NULL;
  pthread_mutex_unlock(&pool.lock);
  return at;
}

bool pages_extend(void *end, size_t more)
{
  pthread_mutex_lock(&pool.lock);
  uint32_t i = ranges_before(end);
  bool fits = pool.fresh.at == end && pool.fresh.bytes >= more;
  if (fits) {
    take_fresh(more);
  } else if (i < pool.count && pool.free[i].at == end && pool.free[i].bytes >= more) {
    cut_range(i, end, more);
    fits = true;
  }
  pthread_mutex_unlock(&pool.lock);
  return fits;
}

void pages_return(void *at, size_t bytes)
{
  pthread_mutex_lock(&pool.lock);
  uint32_t i = add_range((range){ at, bytes });
  if (pool.free_bytes > MOST_FREE_BYTES) drop_pages_of(i);
  pthread_mutex_unlock(&pool.lock);
}

void pages_drop(void)
{
  pthread_mutex_lock(&pool.lock);
  for (uint32_t i = pool.count; i-- > 0;)
    drop_pages_of(i);
  pthread_mutex_unlock(&pool.lock);
}
