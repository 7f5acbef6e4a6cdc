/*
 * Page-locked host memory: PyTorch's pinned caching allocator, and Megatron's pool of host buffers
 * on top of it.
 *
 * The caching allocator (ATen/core/CachingHostAllocator.h) rounds each request up to a power of
 * two, never releases memory, and reuses a freed block of the same power when the copy that used it
 * is done (events are polled in order, up to the first that is not), newest first.
 *
 * Megatron's pool (fine_grained_activation_offload.py, OffloadTensorPool) holds buffers keyed by
 * exact shape and dtype, first freed first reused, never shrinks, and declares all of them free at
 * the end of an iteration, in order of creation. A returned buffer is reusable at once, even if its
 * copy is not done: that is a hazard of Megatron's pool, which this model keeps.
 *
 * Two measures: `exact`, the requested bytes of all buffers in use, including a pool's free
 * buffers, and `pow2`, the page-locked bytes.
 */
#ifndef OFFSIM_SIM_MEMORY_PINNED_POOL_H
#define OFFSIM_SIM_MEMORY_PINNED_POOL_H

#include <stdbool.h>
#include <stdint.h>

/* See allocator_event_done in caching_allocator.h. */
typedef bool pinned_event_done(void *context, uint32_t event);

typedef struct pinned_pool pinned_pool;

typedef struct pinned_stats {
  int64_t exact_bytes, exact_peak_bytes;
  int64_t pow2_bytes, pow2_peak_bytes;
} pinned_stats;

/* A host buffer: its handle, and the bytes that had to be page-locked for it. The machine's
 * pinned_alloc cost applies to `locked_bytes`, which is 0 if memory was reused. */
typedef struct pinned_buffer {
  uint32_t handle;
  int64_t locked_bytes;
} pinned_buffer;

/* `event_done` may be NULL if pinned_free_after is never called. */
pinned_pool *pinned_pool_new(pinned_event_done *event_done, void *event_context);
/* In the same state, with the same handles. `event_context`: its own. */
pinned_pool *pinned_pool_copy(const pinned_pool *p, void *event_context);
void pinned_pool_delete(pinned_pool *p);

/* ---- PyTorch's allocator: pin_memory=True ---- */

/* bytes > 0 */
pinned_buffer pinned_alloc(pinned_pool *p, int64_t bytes);

/* Reusable at once. */
void pinned_free(pinned_pool *p, uint32_t handle);

/* Reusable when `event` is done: freed while a copy from or to it is in flight. */
void pinned_free_after(pinned_pool *p, uint32_t handle, uint32_t event);

/* ---- Megatron's pool ---- */

/* A buffer of `bytes` for `key`, the number of a (shape, dtype), which always has the same bytes.
 * Keys are small numbers from 0 on. */
pinned_buffer pinned_pool_take(pinned_pool *p, uint32_t key, int64_t bytes);
void pinned_pool_give(pinned_pool *p, uint32_t handle);

/* End of an iteration: every pooled buffer is free again. */
void pinned_pool_reset(pinned_pool *p);

const pinned_stats *pinned_pool_stats(const pinned_pool *p);

#endif
