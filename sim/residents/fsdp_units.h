/*
 * How PyTorch's fully sharded data parallel divides a model's parameters: into units, each a
 * decoder layer or the rest (the root: embedding, last norm, output layer), and into this rank's
 * shards.
 *
 * FSDP1 (torch/distributed/fsdp/_flat_param.py, FlatParamHandle): the parameters of a unit follow
 * each other in a flat parameter, which is padded to a multiple of the ranks and cut evenly.
 * Frozen and trainable parameters are not mixed: with adapters a unit has a flat parameter of
 * each.
 *
 * FSDP2 (torch/distributed/fsdp/_fully_shard/_fsdp_param.py, FSDPParam._init_sharded_param): each
 * parameter is cut by rows, padded to a multiple of the ranks.
 *
 * Shards have the type in which the model was loaded; a unit is gathered in the type that the model
 * computes with, and gradients are reduced in a third (MixedPrecision, MixedPrecisionPolicy).
 */
#ifndef OFFSIM_SIM_RESIDENTS_FSDP_UNITS_H
#define OFFSIM_SIM_RESIDENTS_FSDP_UNITS_H

#include "sim/residents/hf_parameters.h"

bool uses_fsdp(const settings *s);
bool uses_fsdp2(const settings *s);
/* DeepSpeed's ZeRO, stages 1 and 2: FSDP1's flat buffers, of which the trainable ones are sharded and stay
 * gathered too, and frozen ones are whole. */
bool uses_zero(const settings *s);

/* The ranks that share a unit: parallel.fsdp_size, or all. */
int64_t fsdp_ranks(const settings *s);
/* The ranks that share its trainable parameters, or the others. */
int64_t fsdp_ranks_of(const settings *s, bool trainable);

/* The types of the shards and of gradients while they are reduced. `computed`: the model's own
 * type. */
dtype fsdp_storage_dtype(const settings *s, dtype computed);
dtype fsdp_reduce_dtype(const settings *s, dtype computed);

/* One sharded tensor. */
typedef struct fsdp_shard {
  const char *name;
  int64_t elements; /* on this rank, padding included */
  uint8_t type;     /* dtype that the model computes with */
  bool trainable;
  bool embedding; /* FSDP2: an nn.Embedding's */
} fsdp_shard;

enum { FSDP_ROOT_UNIT = 0 };

typedef struct fsdp_unit {
  int32_t layer;        /* -1: the root, or the embedding */
  uint32_t *parameters; /* indexes into the model's */
  uint32_t parameter_count;
  uint32_t first_shard, shard_count;
} fsdp_unit;

/* Unit 0 is the root; the embedding's own unit, if there is one, and the layers follow. */
typedef struct fsdp_layout {
  fsdp_unit *units;
  uint32_t unit_count;
  fsdp_shard *shards;
  uint32_t shard_count;
  uint32_t embedding_unit; /* 0: none of its own */
} fsdp_layout;

fsdp_layout fsdp_layout_of(const settings *s, const hf_parameter_list *parameters, arena *a);

#endif
