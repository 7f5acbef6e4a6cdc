/*
 * Device memory of a rank, for the buffers of its plans. One of two:
 *
 *   caching       blocks of the caching allocator that the simulator models (sim/memory), whose
 *                 addresses are offsets into the rank's address space; segments are mapped there
 *                 when it asks for them
 *   malloc_async  cudaMallocAsync: an allocator of the CUDA driver that shares no code with
 *                 offsim's. Memory is allocated in the order of the buffer's stream. The driver may
 *                 hand freed memory to any stream, so a free waits for every stream that has used
 *                 the buffer: it goes to the side stream, unless only the buffer's stream has. A
 *                 plan may rely on one pool a stream instead: Megatron's reload buffers are freed
 *                 on h2d without a mark while compute reads them, and h2d waits for compute before
 *                 it copies again
 *
 * With guards, there are zones of known bytes on both sides of each buffer: a write outside of a
 * buffer is found when it is freed. A run with guards waits for the GPU at every free, so its times
 * mean nothing.
 */
#ifndef OFFSIM_CUDA_MEMORY_DEVICE_MEMORY_H
#define OFFSIM_CUDA_MEMORY_DEVICE_MEMORY_H

#include "cuda/memory/held.h"
#include "cuda/queue/queue.h"
#include "sim/memory/caching_allocator.h"

typedef struct device_memory {
  rank_queue *queue;
  uint32_t gpu;
  bool expandable_segments, guards;
  caching_allocator *blocks; /* NULL: malloc_async */
  gpu_space space;
  gpu_event *order; /* malloc_async: after the work issued to a stream, for queue->side */

  /* Requested bytes of buffers, in program order, each rounded as the allocator does. */
  int64_t requested_bytes, requested_peak_bytes;
  int64_t guard_bytes, guard_peak_bytes, broken_guards;
  /* After an iteration: */
  int64_t reserved_peak_bytes; /* since the first iteration */
  int64_t pool_high_bytes;     /* malloc_async: of the GPU's pool */
  int64_t driver_used_bytes;   /* of the GPU */
} device_memory;

/* `queue`, `gpu`, `expandable_segments` and `guards` are set; `ranks`: the number that share the
 * process's address space. False after a failure. */
bool device_memory_new(device_memory *m, bool caching, uint32_t ranks);
/* The queue's streams are done. */
void device_memory_release(device_memory *m);

/* Begins an iteration and its peaks. */
void device_memory_begin(device_memory *m);
/* Everything is done: sets the iteration's figures. */
void device_memory_end(device_memory *m);

/* Memory for `b`, of h->bytes and guards. False after a refusal. */
bool device_take(device_memory *m, const plan_buffer *b, held_buffer *h);
/* Two sets of plan_streams: `marked` by the plan (record_stream) as still using it, and `used`, all that
 * have. */
void device_give(device_memory *m, const held_buffer *h, uint32_t marked, uint32_t used);
/* Counts a buffer in (sign 1) or out (-1). */
void device_count(device_memory *m, const held_buffer *h, int sign);

int64_t device_live_bytes(const device_memory *m);
int64_t device_live_peak_bytes(const device_memory *m);
int64_t device_reserved_bytes(const device_memory *m);

/* ---- guards.c -------------------------------------------------------------------------------- */

enum { GUARD_BYTES = 512 };
/* The bytes to allocate for a buffer: its own, and zones on both sides with guards. */
int64_t guarded_bytes(const device_memory *m, int64_t bytes);
/* h->data is the beginning of the block; moves it past the first zone and writes both zones. */
bool guards_begin(device_memory *m, held_buffer *h);
/* Checks both zones; a broken one is a finding, which names the stage's buffer. No stream may use
 * it any more. */
void guards_check(device_memory *m, const stage *s, uint32_t buffer, const held_buffer *h);
/* Waits for the rank's streams, and checks. */
void guards_end(device_memory *m, const stage *s, uint32_t buffer, const held_buffer *h);
unsigned char *guarded_begin(const device_memory *m, const held_buffer *h);

#endif
