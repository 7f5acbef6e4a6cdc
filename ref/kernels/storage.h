/*
 * The elements of a tensor by their number in row-major order, as `real`: a load is exact (except
 * doubles read as float), a store rounds to nearest, ties to even. Integers have separate
 * functions, which never use `real`; so do the codes of fp8, whose format and scale only the kernel
 * knows (number_formats.h).
 */
#ifndef OFFSIM_REF_KERNELS_STORAGE_H
#define OFFSIM_REF_KERNELS_STORAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "ref/kernels/kernel.h"
#include "sim/exec/number_formats.h"

/* Element `i` of an fp8, bf16, fp16, fp32 or fp64 tensor. */
real ref_load(const exec_tensor *t, int64_t i);
void ref_store(const exec_tensor *t, int64_t i, real x);

/* Elements first .. first + count - 1. */
void ref_load_row(const exec_tensor *t, int64_t first, int64_t count, real *to);
void ref_store_row(const exec_tensor *t, int64_t first, int64_t count, const real *from);

void ref_fill_row(const exec_tensor *t, int64_t first, int64_t count, real x);
/* Sets all elements to 0, integers too. */
void ref_clear(const exec_tensor *t);

/* Element `i` of a u8, fp8 (the code), i32 or i64 tensor. */
int64_t ref_load_int(const exec_tensor *t, int64_t i);
void ref_store_int(const exec_tensor *t, int64_t i, int64_t x);

/* Copies element `i` of `from` to element `k` of `to`: unchanged bits between equal types,
 * otherwise through `real`; integers become floats, never the reverse. */
void ref_copy(const exec_tensor *from, int64_t i, const exec_tensor *to, int64_t k);

/* The same for `count` elements from `i` and from `k` on. */
void ref_copy_row(const exec_tensor *from, int64_t i, const exec_tensor *to, int64_t k,
                  int64_t count);

/* Whether there are `elements_count` operands, and each has its number of elements. */
bool ref_have(const exec_tensor *t, uint32_t count, const int64_t *elements, size_t elements_count);
#define REF_HAVE(operands, count, ...)                                                             \
  ref_have(operands, count, (const int64_t[]){ __VA_ARGS__ },                                      \
           sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t))
#define REF_READS(c, ...)  REF_HAVE((c)->reads, (c)->read_count, __VA_ARGS__)
#define REF_WRITES(c, ...) REF_HAVE((c)->writes, (c)->write_count, __VA_ARGS__)

/* Scratch memory of a kernel: `count` reals or bytes, uninitialised; the caller frees it. Exits if
 * memory is refused. */
real *ref_reals(int64_t count);
void *ref_bytes(int64_t count);

/* Scalar number `i` of the call's, as `real`. */
static inline real ref_scalar(const exec_call *c, uint32_t i)
{
  return (real)c->call->scalars[i];
}
#endif
