/* The functions that sim/plan/kernels.h names, one for each row that has arithmetic. */
#ifndef OFFSIM_REF_KERNELS_FUNCTIONS_H
#define OFFSIM_REF_KERNELS_FUNCTIONS_H

#include "ref/kernels/kernel.h"

#define X(id, name, cost, letters, meaning, arithmetic, ...) ref_kernel ref_##arithmetic;
PLAN_KERNELS(X)
#undef X
#define X(id, name, meaning, arithmetic, ...) ref_collective ref_##arithmetic;
PLAN_COLLECTIVES(X)
#undef X

#endif
