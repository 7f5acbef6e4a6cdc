/*
 * What a policy and the theory of its saving may know about a rank: its chunks, their saved tensors
 * by group, and its schedule. No plan, no machine, no clock.
 *
 * Saved tensors are described by groups and entries: a group is one call of one module in one
 * layer; an entry is one saved slot of autograd inside it (a tensor saved twice has two entries).
 * An instance is one chunk for one micro-batch, from its forward to the end of its backward.
 */
#ifndef OFFSIM_SIM_OFFLOAD_SHAPE_H
#define OFFSIM_SIM_OFFLOAD_SHAPE_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "sim/base/arena.h"
#include "sim/config/settings.h"
#include "sim/schedule/schedule.h"

/* One saved tensor, as the hooks see it. */
typedef struct saved_entry {
  int64_t elements;      /* of the tensor or view */
  int64_t bytes;         /* of the tensor or view */
  int64_t storage_bytes; /* of its storage */
  uint32_t group;        /* group whose hooks were active, 0 = none */
  uint32_t slot;         /* the chunk program's storage slot */
  uint32_t tensor;       /* index into plan.tensors: name, shape, dtype */
  uint8_t element_bytes;
  bool contiguous;
  bool parameter;
  bool not_offloadable;
  bool discarded; /* the storage is emptied in forward and recomputed (output-discarding checkpoint)
                   * */
  bool marked;    /* Transformer Engine's modules mark the tensor for its first engine */
  bool base_leaves;       /* ... and, for its second, that a view's storage may leave instead of the
                      * view */
  bool of_parameter;      /* a view of a parameter that is not a Parameter: a linear's transposed
                      * weight */
  bool trained_transpose; /* t() of a weight, or of a copy of it, that has a gradient */
  bool checkpoint_input;  /* a checkpoint keeps it for the recomputation of its region */
  bool cached;      /* ... or a selective checkpoint, so that an operator does not run again */
  bool read_beside; /* another operator's backward reads it, without unpacking it */
  bool callers;     /* the training loop refers to it until the micro-batch's backward is done */
  uint32_t parameter_number; /* of_parameter: the parameter's, from 1 */
  int64_t offset_elements;   /* where the tensor begins in its storage */
  uint32_t view; /* its layout in its storage: a row of plan.views; 0: all of it, in order */
  /* the first entry of the operator or checkpoint that saved this entry */
  uint32_t operator_first;
} saved_entry;

typedef struct saved_group {
  const char *name; /* "core_attn" */
  int32_t layer;
  bool recomputed; /* it starts in backward, in the recomputation of a checkpoint */
  uint32_t first_entry, entry_count; /* in the chunk's entries, in the order of saving */
  uint32_t released[4];              /* slots emptied at commit, 0 ends */
  int64_t
      wrapped_elements; /* of the largest saved tensor subclass without memory of its own; 0: none */
  int64_t released_elements[4]; /* of the tensors that graph_group_release names, for the size
                                      * filter */
} saved_group;

/* What a policy may know about a chunk. groups[0] and entries[0] are none. Groups are in the order
 * of their start markers. */
typedef struct chunk_shape {
  const saved_group *groups;
  uint32_t group_count; /* including groups[0] */
  const saved_entry *entries;
  uint32_t entry_count;
  const uint32_t *held; /* slots that an operator keeps as an attribute: no hook sees that */
  uint32_t held_count;
  /* the received input, which the schedule keeps until backward; 0 on the first stage */
  uint32_t input_slot;
  /* by parameter_number: its bytes if layer_offloading may move it, else 0; [0] is none */
  const int64_t *visiting_bytes;
  uint32_t visiting_count;
} chunk_shape;

/* What a policy may know about its rank. */
typedef struct rank_shape {
  const settings *settings;
  uint32_t pp_rank;
  uint32_t chunk_count;
  const chunk_shape *chunks; /* [chunk_count] */
  const schedule *schedule;
} rank_shape;

/* The chunk of a rank that has one. */
static inline const chunk_shape *only_chunk(const rank_shape *r)
{
  assert(r->chunk_count == 1 && "one stage, one chunk");
  return &r->chunks[0];
}

/* The group of a layer where each layer is one. */
static inline const saved_group *layer_group(const chunk_shape *c, uint32_t layer)
{
  assert(layer + 1 < c->group_count);
  return &c->groups[layer + 1];
}

/* Two entries begin at the same element of a storage and have the same type; only the width of types is
 * known here. */
static inline bool is_same_start(const saved_entry *a, const saved_entry *b)
{
  return a->slot == b->slot && a->offset_elements == b->offset_elements &&
         a->element_bytes == b->element_bytes;
}

/* An instance: handle of a chunk in flight; dense numbers 0 .. (micro-batches x chunks - 1):
 * microbatch * chunk_count + chunk. */
typedef uint32_t instance_id;

static inline const chunk_shape *instance_chunk(const rank_shape *r, instance_id i)
{
  return &r->chunks[i % r->chunk_count];
}

static inline const saved_group *instance_group(const rank_shape *r, instance_id i, uint32_t group)
{
  assert(group > 0 && group < instance_chunk(r, i)->group_count);
  return &instance_chunk(r, i)->groups[group];
}

static inline const saved_entry *instance_entry(const rank_shape *r, instance_id i, uint32_t entry)
{
  assert(entry > 0 && entry < instance_chunk(r, i)->entry_count);
  return &instance_chunk(r, i)->entries[entry];
}

/* How a tensor is copied. */
typedef enum copy_form {
  COPY_VIEW,    /* the tensor's own bytes, which are contiguous */
  COPY_STORAGE, /* the whole storage of a view */
  COPY_GATHERED /* gathered first into a temporary made and run on the copying stream */
} copy_form;

#endif
