/*
 * The state of FSDP in a walk, and its two halves: gathering (fsdp_gather.c) and reducing
 * (fsdp_reduce.c), of ops of their own (fsdp_ops.c). Private to fsdp.c.
 */
#ifndef OFFSIM_SIM_COMPILE_FSDP_PARTS_H
#define OFFSIM_SIM_COMPILE_FSDP_PARTS_H

#include "sim/compile/walk.h"
#include "sim/residents/fsdp_units.h"

/* One unit on this rank. */
typedef struct unit_state {
  uint32_t site; /* of all that is done for it */
  bool gathered;
  bool in_backward;       /* gathered for it, not reduced yet */
  event_id ready;         /* after its gathering */
  uint32_t whole[2];      /* FSDP1: flat buffers, trainable and frozen */
  uint32_t gather_output; /* FSDP2: NO_BUFFER when it is gone */
  uint32_t gradient;      /* of its trainable shards; NO_BUFFER: none yet */
} unit_state;

typedef struct fsdp {
  fsdp_layout layout;
  hf_parameter_list parameters;
  int64_t ranks;
  bool second;     /* FSDP2 */
  uint32_t *shard; /* by shard */
  unit_state *units;
  event_id *given_back; /* FSDP1: ring of events after which units given back are free */
  uint32_t given_back_first, given_back_count;
  uint32_t copied_out; /* FSDP2, forward: unit whose gather output still lives, + 1 */
  event_id copied;
  uint32_t reduce_input; /* FSDP2: of the last unit, or NO_BUFFER */
  event_id reduced;
  uint32_t site; /* of the unit at hand */
} fsdp;

/* Every unit is given back once before it is gathered again, which takes one out of the ring. */
static inline uint32_t fsdp_ring_size(const fsdp *f)
{
  return f->layout.unit_count + 2;
}

static inline const fsdp_unit *fsdp_unit_of(const fsdp *f, uint32_t unit)
{
  return &f->layout.units[unit];
}

/* The type in which the model computes with what the unit trains, and so its gradients'. */
dtype fsdp_trained_type(const fsdp *f, uint32_t unit);

/* ---- fsdp_ops.c ---- */

/* A row of plan.tensors at the site at hand. */
uint32_t fsdp_tensor_row(walk *w, const char *name, dtype type, int64_t elements);
/* A new buffer of `elements` from `pool`. */
uint32_t fsdp_alloc(walk *w, const char *name, dtype type, int64_t elements, buffer_class class,
                    plan_stream pool);
/* A kernel that reads and writes whole buffers. */
void fsdp_kernel(walk *w, kernel_kind kind, plan_stream stream, const uint32_t *reads,
                 uint32_t read_count, const uint32_t *writes, uint32_t write_count);
/* What a copy sees of a buffer. */
typedef struct fsdp_operand {
  uint32_t buffer;
  plan_view view;
} fsdp_operand;

/* `rows` times `row_bytes` from `offset` on, each row `stride` behind the one before. */
plan_view fsdp_bytes(int64_t offset, int64_t rows, int64_t row_bytes, int64_t stride);

/* Copies what is read, one operand after the other, to what is written. Operands in a row that are views of
 * one buffer count once in what the kernel moves. */
void fsdp_copy(walk *w, plan_stream stream, const fsdp_operand *reads, uint32_t read_count,
               const fsdp_operand *writes, uint32_t write_count);
/* The buffer over a number, in place. */
void fsdp_divide(walk *w, plan_stream stream, uint32_t buffer, int64_t divisor);
/* On the communication stream; nothing for one rank. `ranks`: those that take part. An all-gather in place
 * begins with each rank's part where that of the first belongs: a plan is that of all ranks. */
void fsdp_collective(walk *w, collective_kind kind, int64_t ranks, int64_t bytes, uint32_t read,
                     uint32_t written);

/* ---- fsdp_gather.c, fsdp_reduce.c ---- */

/* Gathering. Each is a no-op where there is nothing to do. */
void fsdp_unshard(walk *w, uint32_t unit);
void fsdp_wait_for_unit(walk *w, uint32_t unit, bool in_forward);
void fsdp_reshard(walk *w, uint32_t unit);
void fsdp_forget_output(walk *w); /* FSDP2: the last unit's of forward */

/* After the unit's backward: its parameters are given back, its gradients reduced. */
void fsdp_reduce(walk *w, uint32_t unit);
void fsdp_finish_reductions(walk *w);

#endif
