/*
 * Host memory of a rank, for the buffers of its plans: page-locked blocks from the pinned pool that
 * the simulator models (sim/memory), other memory from malloc.
 */
#ifndef OFFSIM_CUDA_MEMORY_HOST_MEMORY_H
#define OFFSIM_CUDA_MEMORY_HOST_MEMORY_H

#include "cuda/memory/held.h"
#include "cuda/queue/queue.h"
#include "sim/memory/pinned_pool.h"

#define NO_STREAM UINT32_MAX

/* Memory of malloc that streams may still use: freed when their events are done. */
typedef struct dead_memory {
  void *data;
  uint32_t count, events[DEVICE_STREAMS];
} dead_memory;

typedef struct host_memory {
  rank_queue *queue;
  pinned_pool *pool;
  struct {
    void **items;
    uint32_t count, capacity;
  } blocks;           /* by handle of the pool */
  uint32_t last_back; /* stream of the iteration's last copy back, NO_STREAM */
  struct {
    dead_memory *items;
    uint32_t count, capacity;
  } dead;
  int64_t held_bytes;   /* of buffers */
  int64_t locked_bytes; /* of the pool */
} host_memory;

void host_memory_new(host_memory *m, rank_queue *queue);
/* The queue's streams are done. */
void host_memory_release(host_memory *m);

void host_memory_begin(host_memory *m);
/* Everything is done: Megatron's pool gets all its buffers back. */
void host_memory_end(host_memory *m);

/* Memory for `b`, of h->bytes. False after a refusal. */
bool host_take(host_memory *m, const plan_buffer *b, held_buffer *h);
/* `buffer` of the stage. Streams with issued work on it may still use it. */
void host_give(host_memory *m, const stage *s, uint32_t buffer, const held_buffer *h);

#endif
