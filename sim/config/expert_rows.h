/*
 * Rows of the local experts if a rank has buffers for its whole capacity, however few rows arrive
 * (moe_expert_rank_capacity_factor).
 */
#ifndef OFFSIM_SIM_CONFIG_EXPERT_ROWS_H
#define OFFSIM_SIM_CONFIG_EXPERT_ROWS_H

#include <stdint.h>

#include "sim/config/settings.h"

typedef struct static_rows {
  int64_t capacity; /* rows of every buffer; 0: buffers have the rows that arrive */
  int64_t mean;     /* what Megatron-LM takes for a balanced load: capacity // factor */
  int64_t arriving; /* rows with a token on the busiest rank */
} static_rows;

/* Needs resolved settings. */
static_rows static_expert_rows(const settings *s);

/* n x factor, rounded up; factor has six decimal places. */
int64_t scaled_rows(int64_t n, double factor);

/* Rows of an expert's quantised GEMM are a multiple of this (Megatron-LM core/fp8_utils.py,
 * get_fp8_align_size). */
int64_t quantised_row_alignment(const settings *s);

#endif
