/*
 * all_to_all of rows by an index of experts (moe_rows.h): reads rows and the index of the previous
 * permutation; the rows or the result are viewed as [ranks, experts of a rank, slot, width].
 *
 * Towards the experts, a rank's rows for one expert go to the expert's rank, in order, into the
 * slot of that pair: rows that do not fit are dropped, the rest of a slot is zeros. Back, each row
 * takes its place in the slot, or zeros if it was dropped.
 */
#ifndef OFFSIM_REF_KERNELS_MOE_EXCHANGE_H
#define OFFSIM_REF_KERNELS_MOE_EXCHANGE_H

#include <stdbool.h>

#include "ref/kernels/kernel.h"

bool ref_is_moe_exchange(const exec_call *c);
void ref_moe_exchange(const exec_call *const *members, uint32_t count);

#endif
