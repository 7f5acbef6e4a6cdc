/*
 * The state of FSDP in a walk, and its two halves: gathering (fsdp_gather.c) and reducing
 * (fsdp_reduce.c), made of the ops in fsdp_ops.c. Private to fsdp.c.
 */
#ifndef OFFSIM_SIM_COMPILE_FSDP_PARTS_H
#define OFFSIM_SIM_COMPILE_FSDP_PARTS_H

#include "sim/compile/walk.h"
#include "sim/residents/fsdp_units.h"

/* One unit on this rank. */
typedef struct unit_state {
  uint32_t site; /* of all its ops */
  bool gathered;
  bool in_backward;       /* gathered for it, not reduced yet */
  event_id ready;         /* after its gathering */
  uint32_t whole[2];      /* FSDP1: flat buffers, trainable and frozen; ZeRO: NO_BUFFER: none yet */
  uint32_t gather_output; /* FSDP2: NO_BUFFER when it is gone */
  uint32_t gradient;      /* of its trainable shards; NO_BUFFER: none yet */
} unit_state;

typedef struct fsdp {
  fsdp_layout layout;
  hf_parameter_list parameters;
  int64_t ranks;
  bool second;     /* FSDP2 */
  bool stays;      /* ZeRO: what is gathered stays */
  uint32_t *shard; /* by shard */
  unit_state *units;
  event_id *given_back; /* FSDP1: ring of events after the last uses of freed units */
  uint32_t given_back_first, given_back_count;
  uint32_t copied_out; /* FSDP2, forward: unit whose gather output still lives, + 1 */
  event_id copied;
  uint32_t reduce_input; /* FSDP2: of the last unit, or NO_BUFFER */
  event_id reduced;
  uint32_t site; /* of the current unit */
} fsdp;

/* Each unit is freed once between two gathers, and each gather takes an event out of the ring. */
static inline uint32_t fsdp_ring_size(const fsdp *f)
{
  return f->layout.unit_count + 2;
}

static inline const fsdp_unit *fsdp_unit_of(const fsdp *f, uint32_t unit)
{
  return &f->layout.units[unit];
}

/* The compute type of the unit's trainable parameters, which is also the type of their
 * gradients. */
dtype fsdp_trained_type(const fsdp *f, uint32_t unit);

/* ---- fsdp_ops.c ---- */

/* Adds a row of plan.tensors at the current site. */
uint32_t fsdp_tensor_row(walk *w, const char *name, dtype type, int64_t elements);
/* A new buffer of `elements` from `pool`. */
uint32_t fsdp_alloc(walk *w, const char *name, dtype type, int64_t elements, buffer_class class,
                    plan_stream pool);
/* A kernel that reads whole buffers and writes one. */
void fsdp_kernel(walk *w, kernel_kind kind, plan_stream stream, const uint32_t *reads,
                 uint32_t read_count, uint32_t write);
/* A buffer and the view that a copy reads or writes. */
typedef struct fsdp_operand {
  uint32_t buffer;
  plan_view view;
} fsdp_operand;

/* `rows` times `row_bytes` from `offset` on, each row `stride` bytes after the previous one. */
plan_view fsdp_bytes(int64_t offset, int64_t rows, int64_t row_bytes, int64_t stride);

/* Copies the reads, one after the other, to the writes; more than UINT8_MAX of them pair by pair.
 * Consecutive operands that view one buffer count once in the kernel's bytes. */
void fsdp_copy(walk *w, plan_stream stream, const fsdp_operand *reads, uint32_t read_count,
               const fsdp_operand *writes, uint32_t write_count);
/* Divides the buffer by a number, in place. */
void fsdp_divide(walk *w, plan_stream stream, uint32_t buffer, int64_t divisor);
/* On the communication stream; nothing for one rank. `ranks`: the number of participants. In an
 * in-place all-gather, every rank's input is at the first rank's position, because one plan serves
 * all ranks. */
void fsdp_collective(walk *w, collective_kind kind, int64_t ranks, int64_t bytes, uint32_t read,
                     uint32_t written);

/* ---- fsdp_gather.c, fsdp_reduce.c ---- */

/* ZeRO: the whole flat buffers that the last iteration left. */
void fsdp_find_whole(walk *w, uint32_t unit);

/* Gathering. Each is a no-op where there is nothing to do. */
void fsdp_unshard(walk *w, uint32_t unit);
void fsdp_wait_for_unit(walk *w, uint32_t unit, bool in_forward);
void fsdp_reshard(walk *w, uint32_t unit);
void fsdp_forget_output(walk *w); /* FSDP2: frees the output of forward's last unit */

/* After the unit's backward: frees its parameters and reduces its gradients. */
void fsdp_reduce(walk *w, uint32_t unit);
void fsdp_finish_reductions(walk *w);

#endif
