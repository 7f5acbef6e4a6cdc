/*
 * The order in which chunks run forward on a rank, and the order in which Megatron's offload
 * manager expects their backwards (PipelineOffloadManager.init_model_chunk_offload_handler and
 * flush; cpu_offload.py of PR #1752 does the same).
 *
 * The manager has one handler for every forward of a chunk, in order of the forwards: a position.
 * It does not observe the order of backwards but builds it as forwards begin: a chunk of the last
 * virtual stage is expected at once; chunks of the other stages are staged until the first and the
 * last stage have had equally many, and are then expected from the second-last stage down to the
 * first, each stage in order of arrival.
 */
#ifndef OFFSIM_SIM_OFFLOAD_CHUNK_ORDER_H
#define OFFSIM_SIM_OFFLOAD_CHUNK_ORDER_H

#include <assert.h>

#include "sim/offload/shape.h"

typedef struct chunk_order {
  uint32_t count; /* forwards in the iteration */
  uint32_t chunk_count;
  const instance_id *forward; /* by position */
  const uint32_t *position;   /* by instance */
  const uint32_t *backward;   /* positions, in the expected order */
  uint32_t backward_count;
  const uint32_t *known; /* [count + 1] by forwards begun: how many of `backward` are known by
                          * then */
  const char *defect;    /* the manager's assertion that this order violates, NULL if none */
} chunk_order;

chunk_order chunk_order_new(const schedule *s, uint32_t chunk_count, arena *a);

static inline uint32_t chunk_at(const chunk_order *o, uint32_t position)
{
  assert(position < o->count);
  return o->forward[position] % o->chunk_count;
}

#endif
