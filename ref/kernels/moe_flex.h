/*
 * all_to_all of tokens by a table: the dispatchers of DeepEP and HybridEP.
 *
 * The table is int32 [tokens, ranks], a bit for each expert of the rank that the token goes to. It
 * is made by an exchange that reads the map of a rank's tokens [tokens, experts], a byte each, and
 * writes of the rows to come int32 [rows], how many there are for each expert of the rank, 0 after
 * the last, and the table.
 *
 * An exchange of rows reads rows and the table, seen as [tokens, ranks, 1]; what is at the experts
 * is seen with four dimensions: [1, rows, 1, width], a row for each expert that a token goes to, by
 * expert, rank that it comes from, token; or [rows, 1, 1, width], one for each token, by rank that
 * it comes from, token. What has no room is left out, the rest is zeros (integers: -1). Back, a
 * token gets the sum of its rows by ascending rank and expert, rounded once. Numbers of experts,
 * [tokens, experts] there and of width 1 here, go with the expert's row.
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
