/*
 * The kernels of the reference executor: one function for each row of the plan's tables.
 *
 * A kernel computes in `real`, one operation after the other in the order that its comment gives,
 * and rounds once, where it stores (storage.h). It touches the elements of its operands and nothing
 * else; a written operand may be one that it reads. The sources compile a second time with
 * REF_REAL=double, for finite differences.
 *
 * Elements are taken in row-major order of a tensor's shape, whatever the strides: what counts is
 * their order, not how many dimensions they have. A kernel that is given a wrong number of elements
 * asserts.
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
 * group's order. It reads all that it needs before it writes, so that operands may be the same. */
typedef void ref_collective(const exec_call *const *members, uint32_t count);
extern ref_collective *const ref_collectives[COLLECTIVE_KINDS];

#endif
