/* Rotary embedding: angles, and which columns of a head are a pair. */
#ifndef OFFSIM_REF_KERNELS_ROPE_H
#define OFFSIM_REF_KERNELS_ROPE_H

#include "ref/kernels/kernel.h"

/* Dims and scalars of the rows rope_*, and values derived from them and an operand. */
typedef struct rope_call {
  int64_t tokens, heads, dim; /* dim: rotated columns of a head */
  double theta;
  int64_t batch; /* tokens of one position */
  rope_pairs pairs;
} rope_call;

rope_call rope_of(const exec_call *c);

/* Columns of a head of `operand`, [tokens, heads, width]. */
int64_t rope_width(const rope_call *r, const exec_tensor *operand);

/*
 * [tokens / batch, dim / 2]: pair i of a token at position p is rotated by p theta^(-2 i / dim).
 * Angle, cosine and sine are computed in double and rounded once. The caller frees `cosine`; `sine`
 * is after it in the same memory.
 */
typedef struct rope_table {
  real *cosine, *sine;
} rope_table;
rope_table rope_angles(const exec_call *c, const rope_call *r);

/* Columns of a pair. */
typedef struct rope_columns {
  int64_t first, second;
} rope_columns;

/* Pair `i` in a head of `width` columns before and after the rotation, */
rope_columns rope_before(const rope_call *r, int64_t width, int64_t i);
rope_columns rope_after(const rope_call *r, int64_t width, int64_t i);
/* ... and among `dim` rotated columns alone. */
rope_columns rope_alone(const rope_call *r, int64_t i);

#endif
