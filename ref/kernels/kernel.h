/*
 * What a kernel of the reference executor is given: the operands of one op of the plan as tensors, the
 * sizes and scalars of its call by the letters of sim/plan/kernels.h, and where its rank stands.
 *
 * A kernel computes in `real`, one operation after the other in the order that its comment gives, and
 * rounds once, where it stores (storage.h). It touches the elements of its operands and nothing else; a
 * written operand may be one that it reads. The sources compile a second time with REF_REAL=double, for
 * finite differences.
 *
 * Elements are taken in row-major order of a tensor's shape, whatever the strides: what counts is their
 * order, not how many dimensions they have. A kernel that is given a wrong number of elements asserts.
 */
#ifndef OFFSIM_REF_KERNELS_KERNEL_H
#define OFFSIM_REF_KERNELS_KERNEL_H

#include <stdint.h>

#include "sim/plan/plan.h"

#ifndef REF_REAL
#define REF_REAL float
#endif
typedef REF_REAL real;

typedef struct ref_tensor {
  void *data;     /* the element of index 0; the executor's */
  uint8_t type;   /* dtype of sim/plan/plan.h */
  uint8_t rank;   /* dimensions; 0: one element */
  int64_t shape[PLAN_VIEW_DIMS];
  int64_t strides[PLAN_VIEW_DIMS]; /* elements */
} ref_tensor;

/* Where a virtual rank stands: its index in each group, and the size of the group. */
typedef struct ref_position {
  uint32_t index, size;
} ref_position;

typedef struct ref_rank {
  uint32_t global;  /* 0 .. world size - 1 */
  uint32_t stage;   /* pipeline rank: whose plan it runs */
  ref_position group[COMM_GROUPS]; /* by comm_group */
} ref_rank;

/* What changes from step to step and is no tensor. */
typedef struct ref_step {
  uint64_t seed;            /* of weights and dropout */
  uint32_t number;          /* optimizer steps done before */
  real learning_rate;
  real clip_coefficient;    /* what gradients are multiplied by in the optimizer step */
  int64_t *left_out;        /* takes the number of choices of experts that find no room (moe_rows.h);
                               may be NULL */
} ref_step;

typedef struct ref_call {
  const plan_call *call;
  const ref_tensor *reads;  /* [read_count], in the order of the op's operands */
  const ref_tensor *writes; /* [write_count] */
  uint32_t read_count, write_count;
  const plan_site *site;    /* where in the model */
  uint32_t microbatch;      /* of the op's phase */
  uint8_t is_forward;       /* its phase is a forward: what is computed again in a backward is not */
  const ref_rank *rank;
  const ref_step *step;
} ref_call;

/*
 * Elements of a buffer that are made from a formula (ref/train/parameters.h): those of a part of a tensor,
 * drawn by their numbers in the whole as deviation x (sum of the four 16-bit fields of a splitmix64 number -
 * 131070) / spread, or `value` where the deviation is 0; rounded to `rounded`, then stored as `type`. With
 * `mask_columns`, bytes instead: of rows of so many columns, again and again as many rows, 1 where the
 * column is more than the row.
 */
typedef struct ref_drawn {
  int64_t offset_bytes, count;
  uint8_t type, rounded; /* dtype */
  double deviation, value, spread;
  uint64_t key;
  int64_t rows, columns, own_rows, own_columns;
  uint32_t tensors, index;
  int64_t mask_columns; /* 0: no mask */
} ref_drawn;

/* One function for each row of PLAN_KERNELS; NULL: not written. */
typedef void ref_kernel(const ref_call *c);
extern ref_kernel *const ref_kernels[KERNEL_KINDS];

/* One function for each row of PLAN_COLLECTIVES: the calls of all members of a group, in the group's
 * order. It reads all that it needs before it writes, so that operands may be the same. */
typedef void ref_collective(const ref_call *const *members, uint32_t count);
extern ref_collective *const ref_collectives[COLLECTIVE_KINDS];

#endif
