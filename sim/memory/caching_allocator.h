/*
 * PyTorch's caching allocator for device memory, as a state machine without a device.
 *
 * For a sequence of requests and releases it computes the bytes that a training process has
 * allocated and those that it has reserved from the driver. The rules are those of
 * c10/cuda/CUDACachingAllocator.cpp (PyTorch 2.x, default settings or expandable_segments;
 * max_split_size, power-of-two rounding, garbage collection and graph pools are off by default
 * there and are not modelled):
 *
 *   rounding   a request is rounded up to 512 bytes
 *   pools      per stream; requests up to 1 MiB in the small pool, others in the large pool
 *   segments   from the driver: 2 MiB (small), 20 MiB (large, request below 10 MiB), else the
 *              request rounded up to 2 MiB
 *   choice     best fit: the smallest free block of the pool that is large enough, lowest address
 *              first
 *   split      the rest becomes a separate free block if it has at least 512 bytes (small pool,
 *              expandable segments) or more than 1 MiB (large pool); otherwise it stays the block's
 *              unused tail, counted as allocated
 *   merge      a free block merges at once with free neighbours of its segment
 *   expandable one virtual range per stream and pool, of which 2 MiB (small) or 20 MiB (large)
 *              granules are mapped on demand; in the choice of the best fit, a block before
 *              unmapped space counts with the size to which it could grow
 *   streams    a block that other streams still use when it is freed waits for one event on each of
 *              them; every allocation first frees the blocks whose events are done
 *   refusal    when the driver refuses, the allocator waits for all waiting blocks, releases all
 *              wholly free segments (or granules) to the driver, and tries the request once more
 *
 * Addresses are simulated: segments are at increasing multiples of 20 MiB, never used twice. The
 * real driver's addresses are unknown; only the order of segments depends on them.
 *
 * Blocks are handles (indexes), valid from allocation to free. All sizes are bytes.
 */
#ifndef OFFSIM_SIM_MEMORY_CACHING_ALLOCATOR_H
#define OFFSIM_SIM_MEMORY_CACHING_ALLOCATOR_H

#include <stdbool.h>
#include <stdint.h>

enum {
  ALLOCATOR_MAX_STREAMS = 16,
};

/* Requests are rounded up to this. */
#define ALLOCATOR_ROUNDING_BYTES INT64_C(512)

/* Rounded requests up to this come from the small pool, where no block has a tail; so do all in
 * expandable segments. */
#define ALLOCATOR_SMALL_BYTES (INT64_C(1) << 20)

/* An empty tensor has no block; freeing this handle does nothing. */
#define ALLOCATOR_NO_BLOCK UINT32_MAX

/* Capacity of unlimited memory. */
#define ALLOCATOR_UNLIMITED_BYTES INT64_MAX

typedef struct caching_allocator caching_allocator;

/* Whether the GPU has passed the point that the caller numbered `event`. Once true, always true. */
typedef bool allocator_event_done(void *context, uint32_t event);

/*
 * Real memory for the addresses, for executors on a device. An expandable segment consists of
 * granules: `bytes` is a multiple of 20 MiB, or 2 MiB; one call of take_back may cover several.
 */
typedef struct allocator_driver {
  bool (*give)(void *context, int64_t address, int64_t bytes); /* false: refused */
  void (*take_back)(void *context, int64_t address, int64_t bytes);
  void *context;
} allocator_driver;

typedef struct allocator_options {
  int64_t capacity_bytes; /* all that the driver can give */
  bool expandable_segments;
  allocator_driver driver; /* give NULL: the addresses have no memory */

  /* Freed blocks never wait for marked streams: for the program-order replay that computes
   * `allocated`. */
  bool return_at_once;

  /* Needed unless return_at_once; polled in order of recording, per stream. */
  allocator_event_done *event_done;
  void *event_context;
} allocator_options;

typedef struct allocator_measure {
  int64_t current_bytes;
  int64_t peak_bytes;
} allocator_measure;

typedef struct allocator_stats {
  allocator_measure allocated; /* whole blocks, with unsplit tails: torch's allocated_bytes */
  int64_t waiting_bytes;       /* freed, but a stream still uses them */
  int64_t active_peak_bytes;   /* of allocated and waiting together: `live` */
  allocator_measure reserved;  /* segments, or mapped granules */
  uint32_t allocated_peak_at;  /* the request that reached it */
  uint64_t driver_allocs;      /* segments taken, or calls that mapped granules */
  uint64_t driver_frees;
  uint64_t retries; /* requests that the driver refused at first */
} allocator_stats;

static inline int64_t allocator_active_bytes(const allocator_stats *s)
{
  return s->allocated.current_bytes + s->waiting_bytes;
}

typedef enum allocator_status {
  ALLOCATOR_OK,

  /* The driver refuses, and blocks are waiting for events. The real host thread blocks here until
   * every pending event is done; then call caching_allocator_alloc_after_events. */
  ALLOCATOR_NEEDS_EVENTS,

  ALLOCATOR_OUT_OF_MEMORY,
} allocator_status;

/* One stream that still uses a block at the moment of its free. */
typedef struct allocator_use {
  uint32_t stream;
  uint32_t event; /* the caller's number for "all issued to that stream so far is done" */
} allocator_use;

caching_allocator *caching_allocator_new(const allocator_options *options);
/* In the same state, with the same handles, from where each goes its own way. `event_context`: its own. Of an
 * allocator without a driver. */
caching_allocator *caching_allocator_copy(const caching_allocator *a, void *event_context);
void caching_allocator_delete(caching_allocator *a);

/* Allocates a block of `stream` (< ALLOCATOR_MAX_STREAMS) for `request_bytes` >= 0. *block is
 * ALLOCATOR_NO_BLOCK unless the result is OK. */
allocator_status caching_allocator_alloc(caching_allocator *a, uint32_t stream,
                                         int64_t request_bytes, uint32_t *block);

/* The second half of a refused request; call it when all pending events are done. Never returns
 * ALLOCATOR_NEEDS_EVENTS. */
allocator_status caching_allocator_alloc_after_events(caching_allocator *a, uint32_t stream,
                                                      int64_t request_bytes, uint32_t *block);

void caching_allocator_free(caching_allocator *a, uint32_t block);

/* Frees a block that record_stream marked. A use by the block's own stream is ignored. */
void caching_allocator_free_after(caching_allocator *a, uint32_t block, const allocator_use *uses,
                                  uint32_t use_count);

/* Frees the blocks whose events are done, as every allocation does first. */
void caching_allocator_poll(caching_allocator *a);

/* Number of (block, event) pairs of freed blocks that still wait. */
uint32_t caching_allocator_pending(const caching_allocator *a);

/* torch.cuda.empty_cache without its wait: releases wholly free segments to the driver. */
void caching_allocator_empty_cache(caching_allocator *a);

const allocator_stats *caching_allocator_stats(const caching_allocator *a);
void caching_allocator_reset_peaks(caching_allocator *a);

int64_t caching_allocator_block_address(const caching_allocator *a, uint32_t block);
int64_t caching_allocator_block_bytes(const caching_allocator *a, uint32_t block);

#endif
