/*
 * The arguments of a plan's kernel or collective, for every executor: the operands of one op as
 * tensors, the sizes and scalars of its call by the letters of sim/plan/kernels.h, and the position
 * of its rank.
 *
 * Elements are taken in row-major order of a tensor's shape, for any strides.
 */
#ifndef OFFSIM_SIM_EXEC_CALL_H
#define OFFSIM_SIM_EXEC_CALL_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "sim/plan/plan.h"

typedef struct exec_tensor {
  void *data;   /* the element of index 0; the executor's */
  uint8_t type; /* dtype of sim/plan/plan.h */
  uint8_t rank; /* dimensions; 0: one element */
  int64_t shape[PLAN_VIEW_DIMS];
  int64_t strides[PLAN_VIEW_DIMS]; /* elements */
} exec_tensor;

/* `data`: of the buffer that the view sees, NULL where no memory is behind it. */
static inline exec_tensor exec_tensor_of(uint8_t *data, const plan_view *v)
{
  exec_tensor t; /* kernels in C++ include this: no designated initializers */
  memset(&t, 0, sizeof t);
  t.type = v->dtype;
  t.rank = v->rank;
  if (data != NULL) t.data = data + v->offset * dtype_bytes((dtype)v->dtype);
  for (int i = 0; i < v->rank; i++) {
    t.shape[i] = v->shape[i];
    t.strides[i] = v->strides[i];
  }
  return t;
}

/* The position of a virtual rank: its index in each group, and the size of the group. */
typedef struct exec_position {
  uint32_t index, size;
} exec_position;

typedef struct exec_rank {
  uint32_t global;                  /* 0 .. world size - 1 */
  uint32_t stage;                   /* pipeline rank, whose plan it runs */
  exec_position group[COMM_GROUPS]; /* by comm_group */
} exec_rank;

/* What changes from step to step and is not a tensor. */
typedef struct exec_step {
  uint64_t seed;   /* of weights and dropout */
  uint32_t number; /* number of earlier optimizer steps */
  float learning_rate;
  float clip_coefficient; /* factor of the gradients in the optimizer step */
  int64_t *left_out;      /* receives the number of dropped tokens (moe_rows.h); may be NULL */
} exec_step;

typedef struct exec_call {
  const plan_call *call;
  const exec_tensor *reads;  /* [read_count], in the order of the op's operands */
  const exec_tensor *writes; /* [write_count] */
  uint32_t read_count, write_count;
  const plan_site *site; /* where in the model */
  uint32_t microbatch;   /* of the op's phase */
  uint8_t is_forward;    /* its phase is a forward; a recomputation in a backward is not */
  const exec_rank *rank;
  const exec_step *step;
} exec_call;

/*
 * Elements of a buffer that a formula makes (sim/train/parameters.h): a part of a tensor, each
 * element drawn by its number in the whole tensor as deviation x (sum of the four 16-bit fields of
 * a splitmix64 number - 131070) / spread, or `value` if the deviation is 0; rounded to `rounded`,
 * then stored as `type`. With `mask_columns`, bytes instead: square masks of `mask_columns` rows
 * and columns, repeated, 1 where the column exceeds the row.
 */
typedef struct exec_drawn {
  int64_t offset_bytes, count;
  uint8_t type, rounded; /* dtype */
  double deviation, value, spread;
  uint64_t key;
  int64_t rows, columns, own_rows, own_columns;
  uint32_t tensors, index;
  int64_t mask_columns; /* 0: no mask */
} exec_drawn;

static inline int64_t exec_elements(const exec_tensor *t)
{
  int64_t elements = 1;
  for (int d = 0; d < t->rank; d++)
    elements *= t->shape[d];
  return elements;
}

static inline bool exec_is_contiguous(const exec_tensor *t)
{
  int64_t next = 1;
  for (int d = t->rank; d-- > 0; next *= t->shape[d])
    if (t->shape[d] != 1 && t->strides[d] != next) return false;
  return true;
}

/* The call's dim number `i`. */
static inline int64_t exec_dim(const exec_call *c, uint32_t i)
{
  return c->call->dims[i];
}

#endif
