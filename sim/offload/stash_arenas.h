/*
 * The device memory of Megatron-LM's paged stash: one arena for each type and width of row, sized
 * from what the first iteration keeps (megatron/core/transformer/moe/paged_stash.py,
 * on_save_for_backward and allocate_stash_buffers).
 */
#ifndef OFFSIM_SIM_OFFLOAD_STASH_ARENAS_H
#define OFFSIM_SIM_OFFLOAD_STASH_ARENAS_H

#include "sim/offload/policy.h"

typedef struct stash_arena {
  uint8_t element_bytes;
  int64_t entry_bytes; /* of the tensors that it takes, with their padding */
  uint32_t most;       /* of them between save and use at once, in the first iteration */
  int64_t device_pages, host_pages;
} stash_arena;

typedef struct stash_arenas {
  stash_arena *items;
  uint32_t count;
  int64_t page_rows;
  int64_t capacity, arriving; /* rows of a tensor, and those of them with a token */
} stash_arenas;

stash_arenas stash_arenas_new(const rank_shape *r, arena *a);

/* Whether a saved tensor is packed: all that the marked group saves, but for its weights. */
static inline bool stash_takes(const saved_entry *e)
{
  return !e->parameter && !e->of_parameter && !e->discarded;
}

stash_arena *stash_arena_of(const stash_arenas *s, const saved_entry *e);

/* Pages that one tensor takes, and the bytes of so many rows of it. */
int64_t stash_entry_pages(const stash_arenas *s);
int64_t stash_bytes(const stash_arenas *s, const stash_arena *of, int64_t rows);

/* Of all arenas. */
int64_t stash_device_bytes(const stash_arenas *s);

#endif
