/* Which positions of a sequence a rank has: ref/kernels/positions.h on the device. */
#ifndef OFFSIM_CUDA_KERNELS_SEQUENCE_PART_CUH
#define OFFSIM_CUDA_KERNELS_SEQUENCE_PART_CUH

#include "cuda/kernels/for_each.cuh"
#include "ref/kernels/exact_math.h"

/* The ranks that share a sequence: their number, and this one's index. */
static inline exec_position sequence_part_of(const exec_call *c)
{
  exec_position p = c->rank->group[GROUP_CP], alone = { 0, 1 };
  return p.size > 1 ? p : alone;
}

/* The position of element `i` of the `length` that rank `part.index` has. */
EXACT_FUNCTION int64_t position_of(exec_position part, int64_t length, int64_t i)
{
  int64_t chunk = length / 2;
  if (part.size == 1) return i;
  return i < chunk ? part.index * chunk + i
                   : (2 * (int64_t)part.size - 1 - part.index) * chunk + i - chunk;
}

/* The reverse: the row of a position if the ranks' parts, of `length` each, follow each other. */
EXACT_FUNCTION int64_t row_of_position(uint32_t ranks, int64_t length, int64_t position)
{
  if (ranks == 1) return position;
  int64_t chunk = length / 2, which = position / chunk, last = 2 * (int64_t)ranks - 1;
  bool second = which >= ranks;
  return (second ? last - which : which) * length + (second ? chunk : 0) + position % chunk;
}

#endif
