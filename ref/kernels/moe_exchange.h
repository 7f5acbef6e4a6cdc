/*
 * all_to_all of rows that find their experts by an index (moe_rows.h): reads rows and the index of
 * the permutation before, one of them or the result seen as [ranks, experts of a rank, slot,
 * width].
 *
 * Towards the experts, a rank's rows of one expert go to the expert's rank, in order, into the slot
 * of that pair: what is more than the slot holds is left out, the rest of a slot is zeros. Back,
 * each row takes what its place in the slot holds, zeros if it was left out.
 */
#ifndef OFFSIM_REF_KERNELS_MOE_EXCHANGE_H
#define OFFSIM_REF_KERNELS_MOE_EXCHANGE_H

#include <stdbool.h>

#include "ref/kernels/kernel.h"

bool ref_is_moe_exchange(const exec_call *c);
void ref_moe_exchange(const exec_call *const *members, uint32_t count);

#endif
