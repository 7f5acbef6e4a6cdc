/*
 * Runs plans on GPUs: the same plans, layouts and hooks as ref/exec (sim/exec/executor.h), so that
 * sim/train drives either.
 *
 * One host thread issues each rank's ops in program order; streams of the plan are streams of the
 * rank's GPU, events are where the plan has them, and nothing else orders two ops. Device memory is
 * the caching allocator of sim/memory over mapped address space, page-locked memory its pinned
 * pool; both live from the first iteration to the release.
 *
 * Ranks are assigned to GPUs in blocks: rank r runs on GPU r x gpus / ranks. Under mpirun
 * (sim/world/world.h) they are first assigned to processes; then all processes call everything
 * below in the same order, and get the same results for all ranks.
 *
 * Collectives and messages (exchange.h): by NCCL in fast arithmetic with a GPU for each rank;
 * otherwise, when all members' streams have reached it, one kernel reads the members' operands in
 * place and sums in the group's order. Processes exchange only by NCCL, or by MPI without GPUs.
 *
 * Graph regions of the plan are captured only from the compute stream and launched at their end; a
 * region that waits for other streams or ranks becomes several graphs (graphs.c). With guards,
 * every_op or CUDA_MALLOC_ASYNC their ops are issued one by one.
 */
#ifndef OFFSIM_CUDA_EXEC_EXEC_H
#define OFFSIM_CUDA_EXEC_EXEC_H

#include "sim/exec/executor.h"

typedef enum cuda_arithmetic { CUDA_EXACT, CUDA_FAST } cuda_arithmetic;

/* The implementation of ALLOC and FREE. */
typedef enum cuda_backing {
  CUDA_CACHING,     /* the caching allocator that the simulator models */
  CUDA_MALLOC_ASYNC /* cudaMallocAsync and cudaFreeAsync: an allocator that shares no code with it
                     */
} cuda_backing;

#define CUDA_ALL_GPUS UINT32_MAX

typedef struct cuda_options {
  cuda_arithmetic arithmetic;
  cuda_backing backing;
  uint32_t gpus;            /* 0: none; the CPU instead (device.h, the host driver); CUDA_ALL_GPUS:
                             * all, at most one for each rank */
  bool expandable_segments; /* of the caching allocator */
  bool guards;              /* zones of known bytes around every buffer, checked when it is freed */
  bool nvtx;                /* ops are ranges for Nsight Systems */
  bool times;               /* CUPTI: when every op ran (cuda_exec_times) */
  uint32_t times_from;      /* ... of steps from this one on; those before it run unmeasured */
  uint32_t times_every; /* ... of the last step of each group of this size; 0: of every step. The
                         * GPU waits while a measured step is read */
  uint32_t rests_from;  /* from this step on, 0: never, the GPU rests after every few ops, several
                         * times as long as they took, so that it draws little power and keeps its
                         * clock */
  bool every_op; /* hooks.op_done for every op, as soon as it is done: contents of all ops, but
                  * slow */
} cuda_options;

typedef struct cuda_exec cuda_exec;

/* CUPTI measures this step. */
bool cuda_measures(const cuda_options *o, uint32_t step);

/* NULL after a diag error: no such GPUs (status 3), a library is missing (status 3). */
cuda_exec *cuda_exec_new(const exec_layout *layout, const cuda_options *options,
                         const exec_hooks *hooks, diag *d);
void cuda_exec_release(cuda_exec *e);

/* As their namesakes of ref_exec. hooks.op_done is called for the ops that hooks.watches names,
 * after the iteration, in program order rank by rank; cuda_exec_data then returns what they wrote,
 * for device buffers up to 1 MiB. With every_op, the rank's host thread calls it for all ops, each
 * as soon as it is done. Its fingerprint is zero. No two hooks run at once. */
bool cuda_exec_knows(const plan *p, const cuda_options *options, diag *d);
bool cuda_exec_fits(const cuda_exec *e, const plan *p, diag *d);
exec_outcome cuda_exec_iteration(cuda_exec *e, const plan *p, const exec_step *step, diag *d);
const char *cuda_exec_finding(const cuda_exec *e);

/* Prints a note with the ops that the hosts issue, once, if the iteration has lasted a minute when
 * the clock (clock.h) shows this. A thread of the executor looks at the clock. */
void cuda_exec_note_at(const cuda_exec *e, int64_t now_ps);

/* The contents of a live buffer, copied to host memory that is valid until the next call for the
 * same rank; while hooks.op_done runs, of a buffer that the op wrote. */
void *cuda_exec_data(cuda_exec *e, uint32_t rank, uint32_t buffer);
int64_t cuda_exec_bytes(const cuda_exec *e, uint32_t rank, uint32_t buffer);
bool cuda_exec_is_scratch(const cuda_exec *e, uint32_t rank, uint32_t buffer);
exec_tally cuda_exec_tally(const cuda_exec *e, uint32_t rank);

/* 128 bits of a view of a live buffer, and the sum of its elements' squares, computed on the device
 * (docs/reference/traces.md): for models that take too long to copy to the host. */
exec_digest cuda_exec_digest(cuda_exec *e, uint32_t rank, uint32_t buffer, const plan_view *view);

/* ---- what was measured --------------------------------------------------------------------- */

/* Device memory of a rank (or of its GPU, where stated) in the last iteration. */
typedef struct cuda_memory {
  int64_t requested_peak_bytes; /* the executor's tally, rounded to 512 */
  int64_t live_peak_bytes;      /* CUDA_CACHING: blocks in use or waiting for a stream;
                                   CUDA_MALLOC_ASYNC: high-water mark of the GPU's pool */
  int64_t reserved_peak_bytes;  /* segments, since the first iteration */
  int64_t pinned_peak_bytes;    /* page-locked host memory */
  int64_t driver_used_bytes;    /* of the GPU: total - free, at the end of the iteration */
  int64_t outside_bytes;        /* of the executor itself: scratch, guards, libraries' workspaces */
  int64_t broken_guards;        /* overwritten bytes of guard zones */
} cuda_memory;
cuda_memory cuda_exec_memory(const cuda_exec *e, uint32_t rank);

/* When the ops of the last iteration ran, since the first activity of any rank in it, by op of the
 * rank; -1: unknown. */
typedef struct cuda_times {
  const int64_t *begin_ps, *end_ps;
  int64_t step_ps; /* wall clock of the host, from the beginning of the iteration until everything
                    * is done */
  /* Of the rank, when the host had issued the op: live as in cuda_memory, the allocator's segments,
   * and page-locked host memory of buffers. NULL without options.times. */
  const int64_t *live_bytes, *reserved_bytes, *host_bytes;
} cuda_times;
cuda_times cuda_exec_times(const cuda_exec *e, uint32_t rank);

#endif
