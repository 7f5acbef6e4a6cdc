/* How fast offsim check reads a record and finds its races: 10 M operations of a made-up run with
 * offload, of which none races. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "traces/races/races.h"

enum {
  OPERATIONS = 10000000,
  BLOCKS = 2000,
  BLOCK_BYTES = 1 << 20,
  GROUP = 16, /* kernels for each copy */
};

static const uint64_t DEVICE = 1ULL << 40, HOST = 1ULL << 41;

static struct {
  uint8_t *bytes;
  size_t count, capacity;
} record;

static void put(const void *bytes, size_t count)
{
  if (record.capacity - record.count < count) {
    record.capacity = 2 * record.capacity + (1 << 20);
    record.bytes = realloc(record.bytes, record.capacity);
    if (record.bytes == NULL) abort();
  }
  memcpy(record.bytes + record.count, bytes, count);
  record.count += count;
}

static void row_of(issued_kind kind, const uint64_t *words, uint32_t count)
{
  const uint64_t zero = 0;
  issued_header h = { (uint8_t)kind, 0, 0, (count + 1) / 2 * 2 };
  put(&h, sizeof h);
  put(&zero, 8);
  put(words, 8 * (size_t)count);
  if (count % 2 == 1) put(&zero, 8);
}

#define ROW(kind, ...)                                                                             \
  row_of(kind, (const uint64_t[]){ __VA_ARGS__ }, sizeof((const uint64_t[]){ __VA_ARGS__ }) / 8)

static uint64_t block(uint64_t i)
{
  return DEVICE + i % BLOCKS * BLOCK_BYTES;
}

static void begin(void)
{
  put(ISSUED_MAGIC, ISSUED_MAGIC_BYTES);
  ROW(ISSUED_NAME, 0, 'f');
  for (uint64_t i = 0; i < 4; i++)
    ROW(ISSUED_STREAM, i, 1, 0);
  ROW(ISSUED_ALLOC, DEVICE, (uint64_t)BLOCKS * BLOCK_BYTES, ISSUED_DEVICE);
  for (uint64_t i = 0; i < BLOCKS; i++) {
    ROW(ISSUED_ALLOC, HOST + i * BLOCK_BYTES, BLOCK_BYTES, ISSUED_HOST);
    ROW(ISSUED_BLOCK, block(i));
  }
}

/* A few kernels, then a copy out that waits for them and that they wait for, and a new tensor. */
static void group(uint64_t i)
{
  for (uint64_t k = 0; k < GROUP; k++)
    ROW(ISSUED_KERNEL, 0, 0, block(i), block(i + k), block(i + 2 * k));
  ROW(ISSUED_EVENT_RECORD, 0, 8 + i % 64);
  ROW(ISSUED_EVENT_WAIT, 1, 8 + i % 64);
  ROW(ISSUED_COPY, 1, HOST + i % BLOCKS * BLOCK_BYTES, block(i), 512, 1, 512, 512);
  ROW(ISSUED_EVENT_RECORD, 1, 100 + i % 64);
  ROW(ISSUED_EVENT_WAIT, 0, 100 + i % 64);
  ROW(ISSUED_BLOCK_FREE, block(i));
  ROW(ISSUED_BLOCK, block(i));
}

int main(void)
{
  races r;
  arena a = { 0 };
  diag d = { 0 };
  struct timespec from, to;
  begin();
  for (uint64_t i = 0; i < OPERATIONS / (GROUP + 7); i++)
    group(i);
  clock_gettime(CLOCK_MONOTONIC, &from);
  bool read = races_find_bytes(&r, record.bytes, record.count, &a, &d);
  clock_gettime(CLOCK_MONOTONIC, &to);
  double seconds = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
  printf("%.1f M rows, %.0f MB: %.2f s, %llu races\n", 1e-6 * (double)r.rows,
         1e-6 * (double)record.count, seconds, (unsigned long long)r.found);
  races_release(&r);
  arena_release(&a);
  free(record.bytes);
  return read ? 0 : diag_finish(&d);
}
