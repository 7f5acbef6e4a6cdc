/*
 * How Megatron-FSDP divides a rank's parameters into groups, and where a group's bucket has them.
 *
 * A layer is a unit: its dense parameters are a group, its routed experts another, and each type of
 * parameters has groups of its own. Parameters outside the layers are cut into groups like the buckets of
 * DistributedDataParallel, but in order of registration. Without sharding no layer is a unit; until 18 August
 * 2026 (342faa43, #6357) that held for all strategies but optim_grads_params.
 *
 * In a bucket parameters are in descending order of their rows' length. They start at multiples of the least
 * common multiple of these lengths, so that ranks cut matrices between rows; what that leaves free is filled
 * with remainders and vectors. A bucket is padded so that every rank's part is such a multiple.
 *
 * Sources (Megatron-LM d98e8a64): core/distributed/fsdp/src/megatron_fsdp/param_and_grad_buffer.py
 * (_get_parameter_groups, build_data_parallel_buffer_index), mcore_fsdp_adapter.py (fsdp_unit_modules).
 */
#ifndef OFFSIM_SIM_RESIDENTS_FSDP_GROUPS_H
#define OFFSIM_SIM_RESIDENTS_FSDP_GROUPS_H

#include "sim/residents/gradient_buffers.h"

typedef struct fsdp_group {
  uint32_t chunk;
  int32_t layer; /* -1: outside the units */
  bool is_expert;
  uint8_t type;       /* dtype of the parameters */
  buffer_slot *slots; /* in the bucket's order, which is not that of `start` */
  uint32_t slot_count;
  int64_t elements; /* of the bucket, padding included */
  int64_t part;     /* ... of each rank */
} fsdp_group;

typedef struct fsdp_group_list {
  fsdp_group *items;
  uint32_t count;
} fsdp_group_list;

/* In the arena. Settings must be resolved. */
fsdp_group_list fsdp_groups_of(const settings *s, uint32_t pp_rank,
                               const parameter_list *parameters, arena *a);

/* Elements of the slot's parameter that the last rank owns. */
int64_t fsdp_owned_elements(const fsdp_group *g, const buffer_slot *slot,
                            const parameter_list *parameters);

#endif
