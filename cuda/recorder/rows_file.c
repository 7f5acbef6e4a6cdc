#include "cuda/recorder/rows_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { WINDOW_BYTES = 16 << 20, PATH_BYTES = 4096, HEAD_BYTES = 16 };

static struct {
  pthread_mutex_t lock;
  int file;        /* -1: closed */
  uint8_t *window; /* NULL: rows are dropped */
  size_t used;     /* of the window */
  off_t before;    /* bytes of the file before the window */
  char path[PATH_BYTES];
} rows = { .lock = PTHREAD_MUTEX_INITIALIZER, .file = -1 };

void rows_message(const char *format, ...)
{
  char text[1024];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  fprintf(stderr, "offsim record: %s\n", text);
}

static void drop(const char *why)
{
  rows.window = NULL;
  rows_message("%s: %s; what follows is not recorded", rows.path, why);
}

/* posix_fallocate, because a store into a page that the disk has no room for ends the process. */
static void map_window(void)
{
  int refused = posix_fallocate(rows.file, rows.before, WINDOW_BYTES);
  if (refused != 0) {
    drop(strerror(refused));
    return;
  }
  void *at = mmap(NULL, WINDOW_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, rows.file, rows.before);
  if (at == MAP_FAILED) {
    drop(strerror(errno));
    return;
  }
  rows.window = at;
  rows.used = 0;
}

/* A child has its parent's file; what it does is another record. */
static void in_child(void)
{
  rows.window = NULL;
}

static int create(const char *path)
{
  return open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
}

bool rows_open(const char *path)
{
  assert(rows.file < 0);
  snprintf(rows.path, sizeof rows.path, "%s", path);
  rows.file = create(rows.path);
  if (rows.file < 0 && errno == EEXIST) {
    snprintf(rows.path, sizeof rows.path, "%s.%ld", path, (long)getpid());
    rows.file = create(rows.path);
  }
  if (rows.file < 0) {
    rows_message("%s: %s", rows.path, strerror(errno));
    return false;
  }
  map_window();
  if (rows.window == NULL) return false;
  memcpy(rows.window, ISSUED_MAGIC, ISSUED_MAGIC_BYTES);
  rows.used = ISSUED_MAGIC_BYTES;
  pthread_atfork(NULL, NULL, in_child);
  return true;
}

static uint64_t now_ns(void)
{
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

static uint16_t this_thread(void)
{
  static atomic_uint count;
  static _Thread_local unsigned number; /* + 1 */
  if (number == 0) number = atomic_fetch_add(&count, 1) + 1;
  return (uint16_t)(number - 1);
}

/* The header comes last: without it, the row is not there. */
static void store(issued_header h, const uint64_t *words, uint32_t count, const void *more,
                  size_t more_bytes)
{
  uint8_t *to = rows.window + rows.used;
  uint64_t time_ns = now_ns(), head;
  memcpy(to + 8, &time_ns, 8);
  if (count > 0) memcpy(to + HEAD_BYTES, words, 8 * (size_t)count);
  if (more_bytes > 0) memcpy(to + HEAD_BYTES + 8 * (size_t)count, more, more_bytes);
  memcpy(&head, &h, sizeof head);
  atomic_store_explicit((_Atomic uint64_t *)(void *)to, head, memory_order_release);
  rows.used += HEAD_BYTES + 8 * (size_t)h.words;
}

static void next_window(void)
{
  munmap(rows.window, WINDOW_BYTES);
  rows.window = NULL;
  rows.before += WINDOW_BYTES;
  map_window();
}

/* Rows do not cross windows: fillers take the rest. Windows and rows are multiples of 16 bytes. */
static bool make_room(size_t bytes)
{
  while (rows.window != NULL && WINDOW_BYTES - rows.used < bytes) {
    size_t rest = WINDOW_BYTES - rows.used;
    size_t words = rest < HEAD_BYTES ? 0 : (rest - HEAD_BYTES) / 8;
    if (words > ISSUED_ROW_WORDS) words = ISSUED_ROW_WORDS;
    if (rest > 0)
      store((issued_header){ .kind = ISSUED_FILLER, .words = (uint32_t)words }, NULL, 0, NULL, 0);
    else
      next_window();
  }
  return rows.window != NULL;
}

void rows_put(issued_kind kind, uint8_t flags, const uint64_t *words, uint32_t count,
              const void *more, size_t more_bytes)
{
  uint32_t all = (count + (uint32_t)((more_bytes + 7) / 8) + 1) / 2 * 2;
  assert(all <= ISSUED_ROW_WORDS);
  issued_header h = { (uint8_t)kind, flags, this_thread(), all };
  pthread_mutex_lock(&rows.lock);
  if (rows.window != NULL && make_room(HEAD_BYTES + 8 * (size_t)all))
    store(h, words, count, more, more_bytes);
  pthread_mutex_unlock(&rows.lock);
}

void rows_close(void)
{
  pthread_mutex_lock(&rows.lock);
  if (rows.window != NULL) {
    munmap(rows.window, WINDOW_BYTES);
    rows.window = NULL;
    if (ftruncate(rows.file, rows.before + (off_t)rows.used) != 0)
      rows_message("%s: %s", rows.path, strerror(errno));
    close(rows.file);
  }
  pthread_mutex_unlock(&rows.lock);
}
