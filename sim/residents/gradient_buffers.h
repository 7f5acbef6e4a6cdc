/*
 * The contiguous buffers in which Megatron-LM's data parallel wrapper keeps gradients and, with the
 * distributed optimizer, parameters.
 *
 * One buffer per virtual chunk for the dense parameters and one for the routed experts (their
 * data parallel groups differ), and again for parameters that are stored in fp8. With a
 * layer-wise parameter layout, matrices that the optimizer updates whole have separate buffers
 * (layer_wise_layout.h), and all others are sharded as usual. Parameters are in reverse order of
 * registration, the order in which backward finishes them. With the distributed optimizer each
 * parameter starts at a multiple of 64 elements and each bucket ends at a multiple of lcm(ranks
 * that share it, 128), 2^16 included with ddp_pad_buckets_for_high_nccl_busbw; without it nothing
 * is padded. Only the first chunk of the first stage is cut into buckets, and only with
 * overlap_grad_reduce; an embedding that two stages share has a bucket of its own.
 *
 * Sources (Megatron-LM d98e8a64): core/optimizer/param_layout.py, distrib_optimizer.py
 * (_compute_per_buffer_param_layout), core/distributed/param_and_grad_buffer.py,
 * distributed_data_parallel.py (bucket size, groups).
 */
#ifndef OFFSIM_SIM_RESIDENTS_GRADIENT_BUFFERS_H
#define OFFSIM_SIM_RESIDENTS_GRADIENT_BUFFERS_H

#include "sim/residents/parameters.h"

typedef struct buffer_slot {
  uint32_t parameter; /* index into the parameter list */
  uint32_t bucket;
  int64_t start; /* elements, in the buffer */
} buffer_slot;

typedef struct gradient_bucket {
  int64_t start, end; /* elements, padding included */
} gradient_bucket;

typedef struct gradient_buffer {
  uint32_t chunk;
  bool is_expert;
  int64_t ranks;           /* data parallel ranks that share it (of one optimizer instance) */
  int64_t elements;        /* padding included */
  int64_t parameter_bytes; /* of the parameter buffer, 0 without distributed optimizer */
  int64_t gradient_bytes;
  uint8_t gradient_type; /* dtype */
  buffer_slot *slots;    /* in reverse order of registration; ascending by start unless whole
                            matrices are dealt out */
  uint32_t slot_count;
  gradient_bucket *buckets;
  uint32_t bucket_count;
} gradient_buffer;

typedef struct gradient_buffer_list {
  gradient_buffer *items;
  uint32_t count;
} gradient_buffer_list;

/* The buffers in order of allocation: by chunk, dense before experts. */
gradient_buffer_list gradient_buffers_of_rank(const settings *s, uint32_t pp_rank,
                                              const parameter_list *parameters, arena *a);

/* Elements at which a bucket of this chunk is full. INT64_MAX: there is one bucket. */
int64_t gradient_bucket_limit(const settings *s, uint32_t pp_rank, uint32_t chunk);

/* Parameters move into padded buffers whose parts the ranks own: the distributed optimizer, but not
 * under an optimizer that works on whole matrices (muon, soap) without a layer-wise layout. */
bool parameters_are_buffered(const settings *s);

/* The type in which gradients are accumulated and reduced. */
dtype gradient_type_of(const settings *s);

/* The shard of one data parallel rank (the last) in a buffer: ranges of parameters that it
 * optimizes. */
typedef struct optimizer_shard {
  uint32_t parameter;
  int64_t elements;
} optimizer_shard;

typedef struct optimizer_shard_list {
  optimizer_shard *items;
  uint32_t count;
} optimizer_shard_list;

/* In buffer order; without distributed optimizer whole parameters in order of registration. */
optimizer_shard_list optimizer_shards_of(const settings *s, const parameter_list *parameters,
                                         const gradient_buffer_list *buffers, arena *a);

#endif
