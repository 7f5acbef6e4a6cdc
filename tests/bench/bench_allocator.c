/*
 * How long one allocation and one free of the simulated caching allocator take, for the pattern of
 * a pipeline stage: every layer of a micro-batch saves activations and uses transients, up to PP
 * micro-batches are in flight, the backward frees them in reverse order. One line a setting:
 *
 *     segments     pairs 1228800   ns per pair 31.0
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "sim/memory/caching_allocator.h"

enum { RANKS = 16, MICROBATCHES = 64, LAYERS = 4, SAVED = 20, TRANSIENTS = 280, IN_FLIGHT = 16 };

static const int64_t saved_bytes[SAVED] = {
  4096 * 7168 * 2,  4096 * 4,         4096 * 7168 * 2, 4096 * 1536 * 2,  4096 * 576 * 2,
  4096 * 24576 * 2, 4096 * 32768 * 2, 128 * 4096 * 4,  4096 * 16384 * 2, 4096 * 7168 * 2,
  4096 * 4,         4096 * 256 * 4,   4096 * 8 * 4,    4096 * 8 * 8,     32768 * 7168 * 2,
  32768 * 4096 * 2, 32768 * 2048 * 2, 4096 * 4096 * 2, 4096 * 2048 * 2,  512,
};

static bool never(void *context, uint32_t event)
{
  (void)context;
  (void)event;
  return true;
}

static uint32_t take(caching_allocator *a, int64_t bytes)
{
  uint32_t b;

  if (caching_allocator_alloc(a, 0, bytes, &b) != ALLOCATOR_OK) abort();
  return b;
}

/* Transients of one layer: two at a time. */
static uint64_t transients(caching_allocator *a)
{
  for (int i = 0; i < TRANSIENTS / 2; i++) {
    uint32_t x = take(a, saved_bytes[i % SAVED]), y = take(a, saved_bytes[(i * 7 + 3) % SAVED]);
    caching_allocator_free(a, x);
    caching_allocator_free(a, y);
  }
  return TRANSIENTS;
}

static uint64_t one_rank(caching_allocator *a)
{
  static uint32_t held[IN_FLIGHT][LAYERS][SAVED];
  uint64_t pairs = 0;

  for (int m = 0; m < MICROBATCHES + IN_FLIGHT; m++) {
    for (int l = LAYERS - 1; l >= 0 && m >= IN_FLIGHT; l--) {
      for (int i = SAVED - 1; i >= 0; i--)
        caching_allocator_free_after(a, held[m % IN_FLIGHT][l][i], &(allocator_use){ 1, 0 }, i & 1);
      pairs += transients(a);
    }
    for (int l = 0; l < LAYERS && m < MICROBATCHES; l++) {
      for (int i = 0; i < SAVED; i++, pairs++)
        held[m % IN_FLIGHT][l][i] = take(a, saved_bytes[i]);
    }
  }
  return pairs;
}

static double seconds(void)
{
  struct timespec t;

  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void measure(const char *name, bool expandable)
{
  double start = seconds();
  uint64_t pairs = 0;

  for (int r = 0; r < RANKS; r++) {
    caching_allocator *a =
        caching_allocator_new(&(allocator_options){ .capacity_bytes = ALLOCATOR_UNLIMITED_BYTES,
                                                    .expandable_segments = expandable,
                                                    .event_done = never });
    pairs += one_rank(a);
    caching_allocator_delete(a);
  }
  printf("%-12s pairs %llu   ns per pair %.1f\n", name, (unsigned long long)pairs,
         1e9 * (seconds() - start) / (double)pairs);
}

int main(void)
{
  measure("segments", false);
  measure("expandable", true);
  return 0;
}
