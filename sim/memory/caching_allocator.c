#include "sim/memory/caching_allocator.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/array.h"
#include "sim/base/diag.h"
#include "sim/base/units.h"
#include "sim/memory/caching_allocator_steps.h"

#define REQUEST_LIMIT_BYTES (INT64_C(1) << 50)

static caching_allocator *zeroed(void)
{
  caching_allocator *a = calloc(1, sizeof *a);
  if (a == NULL) die_refused("memory: none is left for a simulated allocator");
  return a;
}

caching_allocator *caching_allocator_new(const allocator_options *options)
{
  assert(options->capacity_bytes >= 0);
  assert(options->return_at_once || options->event_done != NULL);
  caching_allocator *a = zeroed();
  a->options = *options;
  block_store_init(&a->store, options);
  return a;
}

caching_allocator *caching_allocator_copy(const caching_allocator *a, void *event_context)
{
  caching_allocator *copy = zeroed();
  assert(a->options.driver.give == NULL && "memory has one owner");
  *copy = *a;
  copy->options.event_context = event_context;
  block_store_copy(&copy->store, &a->store);
  for (uint32_t s = 0; s < ALLOCATOR_MAX_STREAMS; s++)
    ARRAY_COPY(&copy->queues[s], &a->queues[s]);
  return copy;
}

void caching_allocator_delete(caching_allocator *a)
{
  block_store_release(&a->store);
  for (uint32_t s = 0; s < ALLOCATOR_MAX_STREAMS; s++)
    ARRAY_FREE(&a->queues[s]);
  free(a);
}

static void copy_driver_counts(caching_allocator *a)
{
  a->stats.reserved = a->store.reserved;
  a->stats.driver_allocs = a->store.driver_allocs;
  a->stats.driver_frees = a->store.driver_frees;
  assert(a->stats.allocated.current_bytes >= 0 && a->stats.waiting_bytes >= 0);
  assert(allocator_active_bytes(&a->stats) <= a->stats.reserved.current_bytes);
  assert(a->stats.reserved.current_bytes <= a->options.capacity_bytes);
}

static bool is_record(const caching_allocator *a, uint32_t block)
{
  return block != BLOCK_NONE && block < a->store.blocks.count;
}

/* ---- events ---- */

static void take_back_one(caching_allocator *a, uint32_t b)
{
  memory_block *v = &a->store.blocks.items[b];

  assert(v->state == BLOCK_WAITING && v->event_count > 0);
  if (--v->event_count != 0) return;
  a->stats.waiting_bytes -= v->size_bytes;
  assert(a->stats.waiting_bytes >= 0);
  block_put_free(&a->store, b);
}

static inline bool head_is_done(const caching_allocator *a, uint32_t stream)
{
  const event_queue *q = &a->queues[stream];
  assert(q->head < q->count && "waiting_streams has its bit");
  return a->options.event_done(a->options.event_context, q->items[q->head].event);
}

/* The head's event is done: takes back its block, and those after it up to the first event that is not. */
static void take_back(caching_allocator *a, uint32_t stream)
{
  event_queue *q = &a->queues[stream];

  assert(!a->options.return_at_once);
  do
    take_back_one(a, q->items[q->head++].block);
  while (q->head < q->count && head_is_done(a, stream));
  if (q->head == q->count) {
    q->head = q->count = 0;
    a->waiting_streams &= ~(1u << stream);
  }
}

/* In order of recording, as PyTorch polls. */
void caching_allocator_poll(caching_allocator *a)
{
  for (uint32_t left = a->waiting_streams; left != 0; left &= left - 1) {
    uint32_t stream = (uint32_t)__builtin_ctz(left);
    if (head_is_done(a, stream)) take_back(a, stream);
  }
}

uint32_t caching_allocator_pending(const caching_allocator *a)
{
  uint32_t pending = 0;

  for (uint32_t left = a->waiting_streams; left != 0; left &= left - 1) {
    const event_queue *q = &a->queues[__builtin_ctz(left)];
    assert(q->head < q->count);
    pending += q->count - q->head;
  }
  return pending;
}

/* ---- requests ---- */

static uint32_t from_driver(caching_allocator *a, uint32_t bin, int64_t size_bytes)
{
  uint32_t b = block_take_from_driver(&a->store, bin, size_bytes);
  copy_driver_counts(a);
  return b;
}

static allocator_status take_after_emptying(caching_allocator *a, uint32_t bin, int64_t size_bytes,
                                            uint32_t at, uint32_t *block)
{
  assert(a->waiting_streams == 0);
  a->stats.retries++;
  block_store_empty_cache(&a->store);
  uint32_t b = from_driver(a, bin, size_bytes);
  if (b == BLOCK_NONE) return ALLOCATOR_OUT_OF_MEMORY;
  allocator_give_out(a, b, size_bytes, at, block);
  return ALLOCATOR_OK;
}

allocator_status allocator_take_slowly(caching_allocator *a, uint32_t bin, int64_t size_bytes,
                                       uint32_t at, uint32_t *block)
{
  block_store_reach(&a->store, bin);
  uint32_t b = block_take_fit(&a->store, bin, size_bytes);
  *block = ALLOCATOR_NO_BLOCK;
  if (b == BLOCK_NONE) b = from_driver(a, bin, size_bytes);
  if (b != BLOCK_NONE) {
    allocator_give_out(a, b, size_bytes, at, block);
    return ALLOCATOR_OK;
  }
  if (a->waiting_streams != 0) return ALLOCATOR_NEEDS_EVENTS;
  return take_after_emptying(a, bin, size_bytes, at, block);
}

static inline uint32_t bin_of(uint32_t stream, int64_t size_bytes)
{
  return free_bin_of(pool_of_request(stream, size_bytes), size_bytes);
}

static inline int64_t rounded(uint32_t stream, int64_t request_bytes)
{
  assert(stream < ALLOCATOR_MAX_STREAMS);
  assert((uint64_t)request_bytes <= REQUEST_LIMIT_BYTES && "not negative either");
  return (request_bytes + ALLOCATOR_ROUNDING_BYTES - 1) & -ALLOCATOR_ROUNDING_BYTES;
}

allocator_status caching_allocator_alloc(caching_allocator *a, uint32_t stream,
                                         int64_t request_bytes, uint32_t *block)
{
  int64_t size_bytes = rounded(stream, request_bytes);

  *block = ALLOCATOR_NO_BLOCK;
  if (size_bytes == 0) return ALLOCATOR_OK;
  caching_allocator_poll(a);
  uint32_t bin = bin_of(stream, size_bytes);
  if (allocator_take_quickly(a, bin, size_bytes, 0, block)) return ALLOCATOR_OK;
  return allocator_take_slowly(a, bin, size_bytes, 0, block);
}

allocator_status caching_allocator_alloc_after_events(caching_allocator *a, uint32_t stream,
                                                      int64_t request_bytes, uint32_t *block)
{
  int64_t size_bytes = rounded(stream, request_bytes);

  *block = ALLOCATOR_NO_BLOCK;
  assert(size_bytes > 0 && "an empty request is never refused");
  caching_allocator_poll(a);
  return take_after_emptying(a, bin_of(stream, size_bytes), size_bytes, 0, block);
}

/* ---- frees ---- */

void caching_allocator_free(caching_allocator *a, uint32_t block)
{
  allocator_free(a, block);
}

static void push_event(event_queue *q, waiting_event e)
{
  assert(q->head <= q->count && e.block != BLOCK_NONE);
  if (q->count == q->capacity && q->head > q->count / 2) {
    q->count -= q->head;
    memmove(q->items, q->items + q->head, q->count * sizeof q->items[0]);
    q->head = 0;
  }
  *ARRAY_PUSH(q) = e;
  assert(q->head < q->count);
}

/* Queues one event for each stream other than the block's; returns whether there was one. */
static bool wait_for_uses(caching_allocator *a, uint32_t b, const allocator_use *uses,
                          uint32_t use_count)
{
  memory_block *v = &a->store.blocks.items[b];
  uint32_t own = pool_of_bin(v->bin) / 2u;

  assert(!a->options.return_at_once && use_count <= ALLOCATOR_MAX_STREAMS && v->event_count == 0);
  for (uint32_t i = 0; i < use_count; i++) {
    assert(uses[i].stream < ALLOCATOR_MAX_STREAMS);
    if (uses[i].stream == own) continue;
    push_event(&a->queues[uses[i].stream], (waiting_event){ .event = uses[i].event, .block = b });
    a->waiting_streams |= 1u << uses[i].stream;
    v->event_count++;
  }
  return v->event_count != 0;
}

void caching_allocator_free_after(caching_allocator *a, uint32_t block, const allocator_use *uses,
                                  uint32_t use_count)
{
  if (block == ALLOCATOR_NO_BLOCK) return;
  int64_t bytes = allocator_count_free(a, block);
  if (!a->options.return_at_once && wait_for_uses(a, block, uses, use_count)) {
    a->store.blocks.items[block].state = BLOCK_WAITING;
    a->stats.waiting_bytes += bytes;
  } else {
    block_put_free(&a->store, block);
  }
}

void caching_allocator_empty_cache(caching_allocator *a)
{
  block_store_empty_cache(&a->store);
  copy_driver_counts(a);
}

/* ---- asking ---- */

const allocator_stats *caching_allocator_stats(const caching_allocator *a)
{
  return &a->stats;
}

void caching_allocator_reset_peaks(caching_allocator *a)
{
  allocator_stats *s = &a->stats;

  s->allocated.peak_bytes = s->allocated.current_bytes;
  s->allocated_peak_at = 0;
  s->active_peak_bytes = allocator_active_bytes(s);
  a->store.reserved.peak_bytes = a->store.reserved.current_bytes;
  s->reserved = a->store.reserved;
  assert(s->allocated.peak_bytes <= s->reserved.peak_bytes);
}

int64_t caching_allocator_block_address(const caching_allocator *a, uint32_t block)
{
  assert(is_record(a, block) && a->store.blocks.items[block].size_bytes > 0);
  return a->store.blocks.items[block].address;
}

int64_t caching_allocator_block_bytes(const caching_allocator *a, uint32_t block)
{
  assert(is_record(a, block) && a->store.blocks.items[block].size_bytes > 0);
  return a->store.blocks.items[block].size_bytes;
}
