/*
 * The kernels of the reference executor: one function for each row of the plan's tables.
 *
 * A kernel computes in `real`, one operation after the other in the order that its comment gives,
 * and rounds once, where it stores (storage.h). It accesses only the elements of its operands; a
 * written operand may be one that it reads. The sources compile a second time with REF_REAL=double,
 * for finite differences.
 *
 * Elements are in row-major order of a tensor's shape, for any strides: only their order counts,
 * not the number of dimensions. A kernel asserts that the number of elements is right.
 */
#ifndef OFFSIM_REF_KERNELS_KERNEL_H
#define OFFSIM_REF_KERNELS_KERNEL_H

#include "sim/exec/call.h"

#ifndef REF_REAL
#define REF_REAL float
#endif
typedef REF_REAL real;

/* One function for each row of PLAN_KERNELS; NULL: not written. */
typedef void ref_kernel(const exec_call *c);
extern ref_kernel *const ref_kernels[KERNEL_KINDS];

/* One function for each row of PLAN_COLLECTIVES: the calls of all members of a group, in the
 * group's order. It reads everything before it writes, so that operands may be the same. */
typedef void ref_collective(const exec_call *const *members, uint32_t count);
extern ref_collective *const ref_collectives[COLLECTIVE_KINDS];

#endif
