#include "sim/memory/pinned_pool.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/array.h"
#include "sim/base/diag.h"

enum {
  POWERS = 63,
};

#define NO_KEY UINT32_MAX

typedef struct handle_array {
  uint32_t *items;
  uint32_t count, capacity;
} handle_array;

/*
 * A page-locked block and the request that it serves now.
 *
 *         pinned_alloc            pinned_free, or pinned_free_after and its event is done
 *   FREE --------------> SERVES --------------------------------------------------------> FREE
 *
 * A block of Megatron's pool belongs to it forever, and is SPARE or TAKEN there:
 *
 *         pinned_pool_take            pinned_pool_give, pinned_pool_reset
 *   SPARE ------------------> TAKEN -------------------------------------> SPARE
 */
typedef struct pinned_block {
  int64_t bytes; /* 0 while it is FREE */
  uint32_t key;  /* of Megatron's pool, or NO_KEY */
  uint8_t power; /* the block has 2^power bytes */
  bool taken;    /* from Megatron's pool */
} pinned_block;

typedef struct pinned_block_array {
  pinned_block *items;
  uint32_t count, capacity;
} pinned_block_array;

/* Buffers of one shape and dtype. `free` is a queue whose first `taken` items are gone. */
typedef struct keyed_buffers {
  handle_array all;
  handle_array free;
  uint32_t taken;
  int64_t bytes;
} keyed_buffers;

typedef struct keyed_array {
  keyed_buffers *items;
  uint32_t count, capacity;
} keyed_array;

typedef struct pinned_event {
  uint32_t event;
  uint32_t handle;
} pinned_event;

typedef struct pinned_event_array {
  pinned_event *items;
  uint32_t count, capacity;
  uint32_t head;
} pinned_event_array;

struct pinned_pool {
  pinned_block_array blocks;
  handle_array reusable[POWERS]; /* by power; last in, first out */
  pinned_event_array waiting;    /* first in, first out */
  keyed_array keys;
  pinned_stats stats;
  pinned_event_done *event_done;
  void *event_context;
};

static pinned_pool *zeroed(void)
{
  pinned_pool *p = calloc(1, sizeof *p);

  if (p == NULL) die_refused("memory: none is left for a simulated pinned pool");
  return p;
}

pinned_pool *pinned_pool_new(pinned_event_done *event_done, void *event_context)
{
  pinned_pool *p = zeroed();

  p->event_done = event_done;
  p->event_context = event_context;
  return p;
}

pinned_pool *pinned_pool_copy(const pinned_pool *p, void *event_context)
{
  pinned_pool *copy = zeroed();

  *copy = *p;
  copy->event_context = event_context;
  ARRAY_COPY(&copy->blocks, &p->blocks);
  ARRAY_COPY(&copy->waiting, &p->waiting);
  ARRAY_COPY(&copy->keys, &p->keys);
  for (uint32_t i = 0; i < POWERS; i++)
    ARRAY_COPY(&copy->reusable[i], &p->reusable[i]);
  for (uint32_t k = 0; k < p->keys.count; k++) {
    ARRAY_COPY(&copy->keys.items[k].all, &p->keys.items[k].all);
    ARRAY_COPY(&copy->keys.items[k].free, &p->keys.items[k].free);
  }
  return copy;
}

/* The measures are the sums over blocks, and no block serves two requests. */
static bool pool_holds(const pinned_pool *p)
{
  int64_t exact_bytes = 0, pow2_bytes = 0;

  for (uint32_t i = 0; i < p->blocks.count; i++) {
    const pinned_block *b = &p->blocks.items[i];
    if (b->bytes > INT64_C(1) << b->power || (b->taken && b->key == NO_KEY)) return false;
    if (b->bytes == 0 && b->key != NO_KEY) return false;
    exact_bytes += b->bytes;
    pow2_bytes += INT64_C(1) << b->power;
  }
  for (uint32_t k = 0; k < p->keys.count; k++)
    if (p->keys.items[k].taken > p->keys.items[k].free.count) return false;
  return exact_bytes == p->stats.exact_bytes && pow2_bytes == p->stats.pow2_bytes;
}

void pinned_pool_delete(pinned_pool *p)
{
  assert(pool_holds(p));
  for (uint32_t k = 0; k < p->keys.count; k++) {
    ARRAY_FREE(&p->keys.items[k].all);
    ARRAY_FREE(&p->keys.items[k].free);
  }
  for (uint32_t i = 0; i < POWERS; i++)
    ARRAY_FREE(&p->reusable[i]);
  ARRAY_FREE(&p->keys);
  ARRAY_FREE(&p->waiting);
  ARRAY_FREE(&p->blocks);
  free(p);
}

/* ---- PyTorch's allocator ---- */

static uint32_t ceil_log2(int64_t bytes)
{
  assert(bytes > 0 && bytes <= INT64_C(1) << (POWERS - 1));
  return bytes == 1 ? 0 : 64u - (uint32_t)__builtin_clzll((uint64_t)bytes - 1);
}

static void make_reusable(pinned_pool *p, uint32_t handle)
{
  assert(p->blocks.items[handle].bytes == 0 && p->blocks.items[handle].key == NO_KEY);
  *ARRAY_PUSH(&p->reusable[p->blocks.items[handle].power]) = handle;
}

static void poll_events(pinned_pool *p)
{
  pinned_event_array *w = &p->waiting;

  assert(w->head <= w->count && (w->count == 0 || p->event_done != NULL));
  while (w->head < w->count && p->event_done(p->event_context, w->items[w->head].event))
    make_reusable(p, w->items[w->head++].handle);
  if (w->head == w->count) w->head = w->count = 0;
}

static uint32_t lock_block(pinned_pool *p, uint32_t power)
{
  assert(power < POWERS);
  *ARRAY_PUSH(&p->blocks) = (pinned_block){ .key = NO_KEY, .power = (uint8_t)power };
  p->stats.pow2_bytes += INT64_C(1) << power;
  p->stats.pow2_peak_bytes = p->stats.pow2_bytes;
  return p->blocks.count - 1;
}

pinned_buffer pinned_alloc(pinned_pool *p, int64_t bytes)
{
  uint32_t power = ceil_log2(bytes);
  handle_array *reusable = &p->reusable[power];
  pinned_buffer given = { 0 };

  poll_events(p);
  if (reusable->count != 0) {
    given.handle = reusable->items[--reusable->count];
  } else {
    given.handle = lock_block(p, power);
    given.locked_bytes = INT64_C(1) << power;
  }
  assert(p->blocks.items[given.handle].bytes == 0 && p->blocks.items[given.handle].power == power);
  p->blocks.items[given.handle].bytes = bytes;
  p->stats.exact_bytes += bytes;
  assert(p->stats.exact_bytes <= p->stats.pow2_bytes);
  if (p->stats.exact_bytes > p->stats.exact_peak_bytes)
    p->stats.exact_peak_bytes = p->stats.exact_bytes;
  return given;
}

/* Ends the request; the caller decides where the block goes. */
static void end_request(pinned_pool *p, uint32_t handle)
{
  assert(handle < p->blocks.count);
  pinned_block *b = &p->blocks.items[handle];
  assert(b->bytes > 0 && b->key == NO_KEY);
  p->stats.exact_bytes -= b->bytes;
  assert(p->stats.exact_bytes >= 0);
  b->bytes = 0;
}

void pinned_free(pinned_pool *p, uint32_t handle)
{
  end_request(p, handle);
  make_reusable(p, handle);
}

void pinned_free_after(pinned_pool *p, uint32_t handle, uint32_t event)
{
  assert(p->event_done != NULL);
  end_request(p, handle);
  *ARRAY_PUSH(&p->waiting) = (pinned_event){ .event = event, .handle = handle };
}

/* ---- Megatron's pool ---- */

static keyed_buffers *buffers_of(pinned_pool *p, uint32_t key)
{
  assert(key != NO_KEY);
  while (p->keys.count <= key)
    *ARRAY_PUSH(&p->keys) = (keyed_buffers){ .bytes = 0 };
  return &p->keys.items[key];
}

pinned_buffer pinned_pool_take(pinned_pool *p, uint32_t key, int64_t bytes)
{
  keyed_buffers *k = buffers_of(p, key);
  pinned_buffer given = { 0 };

  assert(k->bytes == 0 || k->bytes == bytes);
  assert(k->taken <= k->free.count && k->free.count - k->taken <= k->all.count);
  k->bytes = bytes;
  if (k->taken < k->free.count) {
    given.handle = k->free.items[k->taken++];
  } else {
    given = pinned_alloc(p, bytes);
    p->blocks.items[given.handle].key = key;
    *ARRAY_PUSH(&k->all) = given.handle;
  }
  pinned_block *b = &p->blocks.items[given.handle];
  assert(b->key == key && !b->taken);
  b->taken = true;
  return given;
}

void pinned_pool_give(pinned_pool *p, uint32_t handle)
{
  assert(handle < p->blocks.count && p->blocks.items[handle].key != NO_KEY);
  keyed_buffers *k = &p->keys.items[p->blocks.items[handle].key];
  handle_array *f = &k->free;

  assert(p->blocks.items[handle].taken && "given back once");
  p->blocks.items[handle].taken = false;
  if (f->count == f->capacity && k->taken > f->count / 2) {
    f->count -= k->taken;
    memmove(f->items, f->items + k->taken, f->count * sizeof f->items[0]);
    k->taken = 0;
  }
  *ARRAY_PUSH(f) = handle;
  assert(f->count - k->taken <= k->all.count);
}

void pinned_pool_reset(pinned_pool *p)
{
  for (uint32_t i = 0; i < p->keys.count; i++) {
    keyed_buffers *k = &p->keys.items[i];
    k->free.count = k->taken = 0;
    for (uint32_t n = 0; n < k->all.count; n++) {
      *ARRAY_PUSH(&k->free) = k->all.items[n];
      p->blocks.items[k->all.items[n]].taken = false;
    }
  }
  assert(pool_holds(p));
}

const pinned_stats *pinned_pool_stats(const pinned_pool *p)
{
  return &p->stats;
}
