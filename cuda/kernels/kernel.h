/*
 * A kernel on a GPU: host code that launches device code into a stream.
 *
 * It is given the same call as ref's kernel of the same row of PLAN_KERNELS (sim/exec/call.h:
 * operands in the same order, dims and scalars by the same letters); operands' `data` are device
 * addresses. Two arithmetics:
 *
 *   exact   the same bits as ref's kernel: fp32, every operation rounded by itself, sums in ref's
 *           order, functions from ref/kernels/exact_math.h. Compiled twice from one source
 *           (cuda/kernels/exact): for GPUs, and for the CPU, where streams are threads.
 *   fast tensor cores and tuned kernels (cuda/kernels/fast); the same bits from run to run, also
 *   beside other work of the GPU: no atomics on numbers, no order that depends on time.
 *
 * No kernel's host code waits for the GPU, allocates, or reads device memory.
 */
#ifndef OFFSIM_CUDA_KERNELS_KERNEL_H
#define OFFSIM_CUDA_KERNELS_KERNEL_H

#ifdef __cplusplus
extern "C" {
#endif

#include "cuda/device/device.h"
#include "sim/exec/call.h"

typedef struct cuda_libraries cuda_libraries; /* cuda/kernels/fast/libraries.h; NULL in exact */

typedef struct cuda_call {
  const exec_call *of;
  gpu_stream *stream;
  /* Memory of this stream for the running kernel, 256-byte aligned: the next one on the stream
   * may use it again. */
  void *scratch;
  int64_t scratch_bytes;
  int64_t *left_out; /* on the device: choices of experts without room are added to it */
  cuda_libraries *libraries;
  const char *failure; /* out: why it could not be launched; NULL: it was */
} cuda_call;

/* Bytes of scratch that a call needs; NULL in the table: none. */
typedef int64_t cuda_scratch(const exec_call *c);
typedef void cuda_kernel(cuda_call *c);

/* A row of a table of kernels; launch NULL: there is none. */
typedef struct cuda_kernel_row {
  cuda_kernel *launch;
  cuda_scratch *scratch;
} cuda_kernel_row;

/* All members of a group at once, in the group's order, on the stream of members[0], which sees the
 * memory of all. It reads all that it needs before it writes. */
typedef void cuda_collective(cuda_call *const *members, uint32_t count);
/* Bytes of scratch of members[0] that it needs. */
typedef int64_t cuda_collective_scratch(const exec_call *const *members, uint32_t count);
typedef struct cuda_collective_row {
  cuda_collective *launch;
  cuda_collective_scratch *scratch; /* NULL: none */
} cuda_collective_row;

/* Exact arithmetic for GPUs (compiled by nvcc), and the same source for the CPU. */
extern const cuda_kernel_row cuda_exact_kernels[KERNEL_KINDS];
extern const cuda_collective_row cuda_exact_collectives[COLLECTIVE_KINDS];
extern const cuda_kernel_row host_exact_kernels[KERNEL_KINDS];
extern const cuda_collective_row host_exact_collectives[COLLECTIVE_KINDS];

/* A row: a call's reads, or its writes, operand by operand without gaps and of one type. `pack`
 * makes a row from the reads, `unpack` makes the writes from a row: for libraries that take only
 * rows. */
typedef void cuda_row(cuda_call *c, void *row);
extern cuda_row cuda_exact_pack, cuda_exact_unpack, host_exact_pack, host_exact_unpack;

/* Fast arithmetic. `suits` says whether the kernel can do this call (types, shapes, strides); if
 * not, or if the row is empty, the exact one runs. The answer depends on the call alone. */
typedef struct cuda_fast_row {
  bool (*suits)(const exec_call *c);
  cuda_kernel *launch;
  cuda_scratch *scratch;
  bool by_library; /* its first launch of a shape waits until the GPU has nothing to do */
} cuda_fast_row;
extern const cuda_fast_row cuda_fast_kernels[KERNEL_KINDS];

#ifdef __cplusplus
}
#endif

#endif
