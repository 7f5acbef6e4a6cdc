/* Inside the caching allocator: what a request and a free mostly come to, inline for whoever replays many. */
#ifndef OFFSIM_SIM_MEMORY_CACHING_ALLOCATOR_STEPS_H
#define OFFSIM_SIM_MEMORY_CACHING_ALLOCATOR_STEPS_H

#include "sim/memory/allocator_blocks.h"
#include "sim/memory/caching_allocator.h"

/* A freed block that waits for `event` of one stream. */
typedef struct waiting_event {
  uint32_t event;
  uint32_t block;
} waiting_event;

/* First in, first out; the `head` first items are done. */
typedef struct event_queue {
  waiting_event *items;
  uint32_t count, capacity;
  uint32_t head;
} event_queue;

struct caching_allocator {
  block_store store;
  allocator_stats stats;
  allocator_options options;
  uint32_t waiting_streams; /* bit s: queues[s] is not empty */
  event_queue queues[ALLOCATOR_MAX_STREAMS];
};

static inline void allocator_count_take(allocator_stats *s, int64_t bytes, uint32_t at)
{
  int64_t allocated_bytes = s->allocated.current_bytes += bytes;
  if (allocated_bytes > s->allocated.peak_bytes) {
    s->allocated.peak_bytes = allocated_bytes;
    s->allocated_peak_at = at;
  }
  if (allocated_bytes + s->waiting_bytes > s->active_peak_bytes)
    s->active_peak_bytes = allocated_bytes + s->waiting_bytes;
}

/* Gives out a FREE block that is in no list: the rest is cut off, or stays its tail. */
static inline void allocator_give_out(caching_allocator *a, uint32_t b, int64_t size_bytes,
                                      uint32_t at, uint32_t *block)
{
  bool is_cut = block_use(&a->store, b, size_bytes);
  allocator_count_take(&a->stats, size_bytes + a->store.blocks.items[b].tail_bytes, at);
  *block = b;
  if (is_cut) block_cut_off_rest(&a->store, b, size_bytes);
}

/*
 * As caching_allocator_alloc without a look at events, with what several replays of a request work out once:
 * `size_bytes` > 0, rounded, and its bin (free_bins.h). `at`: the caller's number of the request, or 0.
 *
 * quickly   nearly always, and never with a call of the driver; false: nothing is taken
 * slowly    after it: the pool is new, its segments grow, or no bin has the best fit first
 */
static inline bool allocator_take_quickly(caching_allocator *a, uint32_t bin, int64_t size_bytes,
                                          uint32_t at, uint32_t *block)
{
  uint32_t b;
  assert(size_bytes > 0);
  if (bin >= a->store.quick_bins || !block_take_first(&a->store, bin, size_bytes, &b)) return false;
  allocator_give_out(a, b, size_bytes, at, block);
  return true;
}

allocator_status allocator_take_slowly(caching_allocator *a, uint32_t bin, int64_t size_bytes,
                                       uint32_t at, uint32_t *block);

/* Returns a block's bytes, which are allocated no more. */
static inline int64_t allocator_count_free(caching_allocator *a, uint32_t b)
{
  const memory_block *v = &a->store.blocks.items[b];
  assert(b != BLOCK_NONE && b < a->store.blocks.count && v->state == BLOCK_USED);
  a->stats.allocated.current_bytes -= v->size_bytes;
  assert(a->stats.allocated.current_bytes >= 0);
  return v->size_bytes;
}

/* As caching_allocator_free. */
static inline void allocator_free(caching_allocator *a, uint32_t block)
{
  if (block == ALLOCATOR_NO_BLOCK) return;
  allocator_count_free(a, block);
  block_put_free(&a->store, block);
}

#endif
