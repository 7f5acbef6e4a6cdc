/*
 * Memory as the record's allocators hand it out: a map from addresses to generations, and who used
 * each of them. A generation is the contents of one allocation until its bytes are allocated
 * again: a block of PyTorch, or an allocation of the driver that is not divided into such blocks.
 */
#ifndef OFFSIM_TRACES_ISSUED_MEMORY_H
#define OFFSIM_TRACES_ISSUED_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/array.h"
#include "traces/issued/rows.h"

#define MEMORY_NONE UINT32_MAX

typedef enum use_kind { USE_KERNEL, USE_D2H, USE_H2D, USE_D2D, USE_SET } use_kind;

/* An operation of a stream. */
typedef struct use {
  uint32_t stream, number; /* clocks.h */
  uint32_t row;            /* of the record, from 0 */
  uint32_t name;           /* of a kernel */
  use_kind kind;
} use;

/* Lists are of indexes; MEMORY_NONE ends them. */

/* The last operation of a stream that used a generation. */
typedef struct touch {
  use by;
  uint32_t stack; /* in a generation's past: who had allocated it */
  uint32_t next;
} touch;

/* Pointers of kernels of one stream into one part of a generation. */
typedef struct spot {
  uint64_t lowest, highest;
  use first, last;
  uint32_t part, next;
} spot;

/* A copy or set that may be under way. */
typedef struct passage {
  uint64_t begin, end;
  use by;
  bool writes;
  uint32_t next;
} passage;

typedef struct generation {
  uint64_t begin, end;
  uint32_t touches, spots, passages; /* lists */
  uint32_t past;      /* touches of those that had its bytes before, and may not be over */
  uint32_t pieces;    /* of the map; 0: a free slot */
  uint32_t stack;     /* of PyTorch's snapshot, 0: unknown */
  uint32_t row;       /* that allocated it */
  uint32_t first_set; /* the row of the first copy or set into it; MEMORY_NONE: none */
  issued_space space;
  bool is_block, is_freed;
} generation;

typedef struct memory_piece {
  uint64_t begin, end;
  uint32_t generation;
} memory_piece;

typedef struct touch_array {
  touch *items;
  uint32_t count, capacity;
} touch_array;

typedef struct spot_array {
  spot *items;
  uint32_t count, capacity;
} spot_array;

typedef struct passage_array {
  passage *items;
  uint32_t count, capacity;
} passage_array;

enum { MEMORY_HINTS = 1 << 14 };

typedef struct memory {
  struct {
    memory_piece *items; /* by address, disjoint */
    uint32_t count, capacity;
  } pieces;
  struct {
    generation *items;
    uint32_t count, capacity;
  } generations;
  touch_array touches;
  spot_array spots;
  passage_array passages;
  uint32_t free_generation, free_touch, free_spot, free_passage; /* lists */
  uint32_t hints[MEMORY_HINTS];                                  /* where a piece was found */
} memory;

void memory_init(memory *m);
void memory_release(memory *m);

/* Gives the bytes a new generation, whose past is what `is_over` does not know to be over; NULL: all is, as
 * the driver orders its own memory. Returns its number. */
typedef bool memory_is_over(const void *context, const use *u);
uint32_t memory_put(memory *m, const generation *g, memory_is_over *is_over, const void *context);

/* The bytes have no owner. */
void memory_remove(memory *m, uint64_t begin, uint64_t end);

/* MEMORY_NONE: no allocation has the address. */
uint32_t memory_find(memory *m, uint64_t address);

static inline generation *memory_at(memory *m, uint32_t g)
{
  return &m->generations.items[g];
}

/* New items at the front of a list. */
touch *memory_add_touch(memory *m, uint32_t *list);
spot *memory_add_spot(memory *m, uint32_t *list);
passage *memory_add_passage(memory *m, uint32_t *list);
/* Removes the passage at *link. */
void memory_drop_passage(memory *m, uint32_t *link);

/* The part of a generation that an address is in: parts are its 32nds, or 512 bytes. */
static inline uint32_t memory_part(const generation *g, uint64_t address)
{
  uint64_t part = (g->end - g->begin + 31) / 32;
  return (uint32_t)((address - g->begin) / (part < 512 ? 512 : part));
}

#endif
