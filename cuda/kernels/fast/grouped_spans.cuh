/*
 * Which rows are an expert's, and which tiles of the result: small kernels write a table that those
 * of the product read. All integers, so that no order matters.
 */
#ifndef OFFSIM_CUDA_KERNELS_FAST_GROUPED_SPANS_CUH
#define OFFSIM_CUDA_KERNELS_FAST_GROUPED_SPANS_CUH

#include "cuda/kernels/fast/grouped.h"

/* Of an expert; after the last one, of the rows that belong to none. */
typedef struct expert_span {
  int32_t first, count; /* rows */
  int32_t first_tile;   /* tiles of rows of all experts before */
} expert_span;

typedef struct expert_table {
  int32_t counts[GROUPED_EXPERTS_MOST];        /* as the index has them */
  expert_span spans[GROUPED_EXPERTS_MOST + 2]; /* no expert's, and the end */
} expert_table;

/* Fills `table` in the call's stream. */
void fill_expert_table(cuda_call *c, const grouped_product *p, int32_t tile_rows,
                       expert_table *table);

#endif
