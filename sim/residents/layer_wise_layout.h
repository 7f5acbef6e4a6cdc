/*
 * The buffer layout of parameters that an optimizer updates as whole matrices (Muon).
 *
 * A bucket is cut into equal shards, one per data parallel rank, and no parameter crosses from
 * one shard into the next. Parameters are taken in reverse order of registration. A bucket is
 * full when it has reached the limit and nine tenths of ranks x its largest parameter, and the
 * next parameter no longer fits into a shard's padding. Its parameters are then dealt out,
 * costliest first, to the shard with the least work so far that the parameter does not fill to
 * more than 1.3 times the average; the longest shard determines the length of all, rounded up so
 * that shards start at multiples of 64 elements and bucket ends are aligned.
 *
 * Source (Megatron-LM d98e8a64): core/optimizer/layer_wise_optimizer.py
 * (_compute_per_buffer_param_layout, _shard_divisor).
 */
#ifndef OFFSIM_SIM_RESIDENTS_LAYER_WISE_LAYOUT_H
#define OFFSIM_SIM_RESIDENTS_LAYER_WISE_LAYOUT_H

#include "sim/base/array.h"
#include "sim/residents/gradient_buffers.h"

typedef struct slot_array {
  buffer_slot *items;
  uint32_t count, capacity;
} slot_array;
typedef struct bucket_array {
  gradient_bucket *items;
  uint32_t count, capacity;
} bucket_array;

typedef struct layer_wise_rules {
  int64_t ranks;
  int64_t shard_multiple; /* elements */
  int64_t limit;          /* elements of a bucket; INT64_MAX: one bucket */
} layer_wise_rules;

/* `members` are indexes into `parameters`, in the order in which they are taken. The slots are in
 * that order too. */
void layer_wise_layout(const parameter_list *parameters, const uint32_t *members, uint32_t count,
                       const layer_wise_rules *rules, slot_array *slots, bucket_array *buckets);

#endif
