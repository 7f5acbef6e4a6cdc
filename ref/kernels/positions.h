/*
 * The positions of a sequence that a rank has. Context parallelism cuts the sequence into 2 n
 * chunks for n ranks; rank r has chunks r and 2 n - 1 - r, so that all have equal work under a
 * causal mask (Megatron-LM, training/utils/common_utils.py: get_batch_on_this_cp_rank).
 */
#ifndef OFFSIM_REF_KERNELS_POSITIONS_H
#define OFFSIM_REF_KERNELS_POSITIONS_H

#include <assert.h>

#include "ref/kernels/kernel.h"

/* The ranks that share a sequence: their number, and this one's index. */
static inline exec_position ref_sequence_part(const exec_call *c)
{
  exec_position p = c->rank->group[GROUP_CP];
  return p.size > 1 ? p : (exec_position){ .index = 0, .size = 1 };
}

/* The position of element `i` of the `length` that rank `part.index` has. */
static inline int64_t ref_position_of(exec_position part, int64_t length, int64_t i)
{
  int64_t chunk = length / 2;
  if (part.size == 1) return i;
  assert(length % 2 == 0);
  return i < chunk ? part.index * chunk + i
                   : (2 * (int64_t)part.size - 1 - part.index) * chunk + i - chunk;
}

/* The reverse: the row of a position if the ranks' parts, of `length` each, follow each other. */
static inline int64_t ref_row_of_position(uint32_t ranks, int64_t length, int64_t position)
{
  if (ranks == 1) return position;
  int64_t chunk = length / 2, which = position / chunk, last = 2 * (int64_t)ranks - 1;
  bool second = which >= ranks;
  return (second ? last - which : which) * length + (second ? chunk : 0) + position % chunk;
}

#endif
