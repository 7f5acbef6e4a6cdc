/* The record of a block: a part of a segment, or of address space (allocator_blocks.h). */
#ifndef OFFSIM_SIM_MEMORY_MEMORY_BLOCK_H
#define OFFSIM_SIM_MEMORY_MEMORY_BLOCK_H

#include "sim/memory/caching_allocator.h"

/* Record 0 is no block: the neighbour before a segment's first block and after its last, and the end of
 * each list. It is in use for ever and larger than any block, so that neighbours merge and lists are walked
 * without asking whether they are there; what is written to its links is never read. */
#define BLOCK_NONE 0u

typedef enum block_state { BLOCK_FREE, BLOCK_USED, BLOCK_WAITING, BLOCK_UNMAPPED } block_state;

/* Two of them fill a line of the CPU's cache. */
typedef struct memory_block {
  int64_t address;
  int64_t size_bytes;      /* a multiple of 512; 0: an unused record */
  uint32_t previous, next; /* neighbours in the segment */
  union {
    uint32_t tail_bytes; /* USED, WAITING: size less rounded request */
    uint32_t next_free;  /* FREE, in a bin: the next one there (free_bins.h) */
  };
  uint16_t bin;        /* FREE, in a bin: that one; else any of its pool (free_bins.h) */
  uint8_t event_count; /* events that a WAITING block still waits for: at most one for each
                        * stream */
  uint8_t state;       /* block_state */
} memory_block;

#endif
