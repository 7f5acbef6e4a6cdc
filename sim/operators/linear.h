/* What the files of linear layers share. */
#ifndef OFFSIM_SIM_OPERATORS_LINEAR_H
#define OFFSIM_SIM_OPERATORS_LINEAR_H

#include "sim/graph/emitter.h"
#include "sim/graph/user_buffers.h"
#include "sim/operators/fp8.h"

/* Operands of one linear node. */
typedef struct linear_node {
  int64_t rows, inputs, outputs, gemm_rows;
  int64_t input_rows; /* of x, before they are gathered */
  dtype type;
  int32_t flags;
  user_linear user; /* whose user buffers it has */
  tensor_id x, weight, bias, y;
} linear_node;

/* A linear's product with its weight: rows of `inner` elements to rows of `outer`. */
typedef struct linear_product {
  int64_t outer, inner;
  gemm_layout layout;
  int fp8;          /* fp8_code of the operands */
  ref weight, bias; /* bias: 0 if there is none */
} linear_product;

/* ---- linear_product.c ------------------------------------------------------------------------ */

dtype linear_gemm_type(const linear_node *l);
/* Rows x from `reads` to `to`; one of `parts` equal products in a row, 0: alone. */
void linear_multiply(emitter *e, const linear_node *l, const linear_product *p, int64_t rows,
                     int64_t parts, ref x, ref to);

/* ---- linear_overlap.c ------------------------------------------------------------------------ */

/*
 * Gathers `own`, this rank's rows, around the ring of tensor parallel ranks, and multiplies each part when it
 * has arrived, while copy engines send it on. `y` gets the products of all rows. Returns the gathered rows.
 * If `own` has a copy of its own for the gradient of the weight, that is gathered behind it; the caller joins
 * the streams.
 */
fp8_gradient linear_gather_in_ring(emitter *e, const linear_node *l, user_product product,
                                   const linear_product *p, fp8_gradient own, ref y);
/* Multiplies all rows of x in parts, each rank's sum of which goes to `y` beside the next parts' products:
 * LINEAR_RINGS_SUM or LINEAR_PIPELINES_SUM. */
void linear_scatter_beside(emitter *e, const linear_node *l, const linear_product *p, ref x, ref y);

/* Gathers `own`, this rank's rows of x, beside what follows on compute; the caller joins the streams. Returns
 * the gathered rows. */
ref linear_gather_in_bulk(emitter *e, const linear_node *l, ref own);
/* The memory of a whole gradient of the input, which linear_sum_in_bulk sums beside what follows on compute.
 * That returns this rank's part. */
ref linear_bulk_gradient(emitter *e, const linear_node *l);
ref linear_sum_in_bulk(emitter *e, const linear_node *l, ref whole);

#endif
