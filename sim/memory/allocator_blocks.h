/*
 * Inside the caching allocator: blocks, their neighbours, and memory from the driver.
 *
 *            take            free                last event done
 *     FREE ---------> USED ---------> WAITING ----------------> FREE
 *     ^  |             |                                          ^
 *     |  | unmap       +------------ free, no events -------------+
 * map |  v
 *   UNMAPPED           a new segment begins as FREE, and is released to the driver as FREE
 *
 * FREE     among its pool's free blocks; no neighbour in its segment is FREE
 * USED     given out
 * WAITING  freed, but other streams still use it: no merging, no reuse
 * UNMAPPED address space of an expandable segment without memory, in its pool's `unmapped`
 */
#ifndef OFFSIM_SIM_MEMORY_ALLOCATOR_BLOCKS_H
#define OFFSIM_SIM_MEMORY_ALLOCATOR_BLOCKS_H

#include "sim/memory/free_bins.h"

/* Blocks by index, from 1 on; unused records are a list through `next`. */
typedef struct block_array {
  memory_block *items;
  uint32_t count, capacity;
  uint32_t unused;
} block_array;

/* Unmapped ranges of one pool, by increasing address: one or two in practice. */
typedef struct unmapped_array {
  uint32_t *items;
  uint32_t count, capacity;
} unmapped_array;

/* Memory from the driver, and the blocks that it is cut into. */
typedef struct block_store {
  block_array blocks;
  free_bins free;
  uint32_t quick_bins; /* those with a pool, in segments that do not grow; else 0 */
  unmapped_array unmapped[ALLOCATOR_POOLS];
  int64_t next_address;
  int64_t capacity_bytes;
  allocator_measure reserved;
  uint64_t driver_allocs, driver_frees;
  allocator_driver driver;
  int64_t least_rest_bytes[2]; /* of small and large pools: a smaller rest is not cut off */
  bool expandable;
} block_store;

void block_store_init(block_store *s, const allocator_options *options);
void block_store_copy(block_store *to, const block_store *from);
void block_store_release(block_store *s);

static inline bool pool_is_large(uint32_t pool)
{
  return pool & 1u;
}

/* Requests have a size, rounded, and its bin. */

/* Before the first request of a bin's pool. */
void block_store_reach(block_store *s, uint32_t bin);

/* A block with memory from the driver: FREE, in no list; BLOCK_NONE when the driver refuses. */
uint32_t block_take_from_driver(block_store *s, uint32_t bin, int64_t size_bytes);

/* Releases wholly free segments, or granules, to the driver. */
void block_store_empty_cache(block_store *s);

/* The best fit: FREE, in no list; BLOCK_NONE if there is none. */
uint32_t block_take_fit(block_store *s, uint32_t bin, int64_t size_bytes);

/* Cuts a USED block to `size_bytes`, and frees the rest, which no free block is next to. */
void block_cut_off_rest(block_store *s, uint32_t b, int64_t size_bytes);

/* Merges a FREE block that is in no list with the next block, which is free, and the previous one if it is,
 * or with the previous one alone, and puts it in its list. */
void block_put_free_with_next(block_store *s, uint32_t b);
void block_put_free_with_previous(block_store *s, uint32_t b);

/* ---- requests and frees: inline; each calls other functions last, and so saves few registers ---- */

/* Makes a FREE block that is in no list USED, for `size_bytes`. True: the rest is no tail but can be a block,
 * so that block_cut_off_rest must follow. */
static inline bool block_use(block_store *s, uint32_t b, int64_t size_bytes)
{
  memory_block *v = &s->blocks.items[b];
  int64_t rest_bytes = v->size_bytes - size_bytes;
  bool is_cut = rest_bytes >= s->least_rest_bytes[pool_is_large(pool_of_bin(v->bin))];
  assert(v->state == BLOCK_FREE && rest_bytes >= 0);
  v->state = BLOCK_USED;
  v->tail_bytes = is_cut ? 0 : (uint32_t)rest_bytes;
  return is_cut;
}

/* Takes what block_take_fit would, if it finds that quickly, in segments that do not grow. */
static inline bool block_take_first(block_store *s, uint32_t bin, int64_t size_bytes, uint32_t *b)
{
  assert(bin < s->quick_bins);
  return free_bins_take_first(&s->free, s->blocks.items, bin, size_bytes, b);
}

/* Frees a USED or WAITING block, merged with its free neighbours. */
static inline void block_put_free(block_store *s, uint32_t b)
{
  memory_block *blocks = s->blocks.items, *v = &blocks[b];
  assert(v->state != BLOCK_FREE && v->event_count == 0);
  v->state = BLOCK_FREE;
  if (blocks[v->next].state == BLOCK_FREE)
    block_put_free_with_next(s, b);
  else if (blocks[v->previous].state == BLOCK_FREE)
    block_put_free_with_previous(s, b);
  else
    free_bins_insert(&s->free, blocks, b);
}

#endif
