/*
 * all_to_all of tokens by a table: the dispatchers of DeepEP and HybridEP.
 *
 * The table is int32 [tokens, ranks], a bit for each expert of the rank that the token goes to. An
 * exchange makes it: it reads the map of a rank's tokens [tokens, experts], a byte each, and writes
 * the number of arriving rows for each expert of the rank, int32 [rows], 0 after the last, and the
 * table.
 *
 * An exchange of rows reads rows and the table, viewed as [tokens, ranks, 1]; the operand at the
 * experts has four dimensions: [1, rows, 1, width], a row for each expert that a token goes to,
 * ordered by expert, source rank and token; or [rows, 1, 1, width], a row for each token, ordered
 * by source rank and token. Rows that do not fit are dropped, the rest is zeros (integers: -1).
 * Back, a token gets the sum of its rows by ascending rank and expert, rounded once. Expert
 * numbers, [tokens, experts] at the tokens and of width 1 at the experts, move with the expert's
 * row.
 */
#ifndef OFFSIM_REF_KERNELS_MOE_FLEX_H
#define OFFSIM_REF_KERNELS_MOE_FLEX_H

#include <stdbool.h>

#include "ref/kernels/kernel.h"

bool ref_is_flex_table(const exec_call *c);
void ref_flex_table(const exec_call *const *members, uint32_t count);
bool ref_is_flex_exchange(const exec_call *c);
void ref_flex_exchange(const exec_call *const *members, uint32_t count);

#endif
