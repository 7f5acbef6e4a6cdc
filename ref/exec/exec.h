/*
 * An execution of a plan by virtual ranks: every rank of the parallel configuration has its own
 * host thread, streams and memory, all in one process.
 *
 *     exec_layout layout = ...; // who the ranks are
 *     ref_exec *e = ref_exec_new(&layout, &options, &hooks);
 *     exec_outcome end = ref_exec_iteration(e, &first, &order, &step, d);
 *     while (end == EXEC_DONE && more)
 *       end = ref_exec_iteration(e, &steady, &order, &step, d);
 *     ref_exec_release(e);
 *
 * Two kinds of contents:
 *
 *   REF_EXACT    arrays of numbers, computed with by ref/kernels; copies move them, frees take
 *                them away
 *   REF_OPAQUE   for each part of a buffer a hash of the op that wrote it and of what that op read:
 *                for plans without arithmetic (texts). If an op reads something different in
 *                another order, it also writes something different. No memory of a buffer's size is
 *                allocated.
 *
 * Orders (exec_order):
 *
 *   program order   an op runs when its host thread has issued it, unless ranks wait for each other
 *   interleaved     the host thread and every stream of every rank go on in an order that a seed
 *                   draws, restricted only by the plan: FIFO streams, issue before run, events,
 *                   messages and collectives that wait for their other sides
 *
 * Memory is that of docs/reference/verifier.md: a free block becomes another buffer's when that one
 * is first written, unless a stream that the free names is not done with it; page-locked buffers
 * with a key come from a pool, first freed first; a file is gone when the host removes it. Reading
 * contents that were never written, or were lost that way, is a finding.
 *
 * Buffers are named by (rank, number in the current or last plan). Residents of a plan are what the
 * previous iteration has left (sim/exec/residents.h).
 */
#ifndef OFFSIM_REF_EXEC_EXEC_H
#define OFFSIM_REF_EXEC_EXEC_H

#include "ref/kernels/kernel.h"
#include "sim/exec/executor.h"

typedef enum ref_arithmetic { REF_EXACT, REF_OPAQUE } ref_arithmetic;

typedef struct ref_options {
  ref_arithmetic arithmetic;
  ref_kernel *const *kernels;         /* [KERNEL_KINDS]; NULL: ref_kernels */
  ref_collective *const *collectives; /* [COLLECTIVE_KINDS]; NULL: ref_collectives */
  bool fingerprints;          /* REF_EXACT: keep those of all ops (REF_OPAQUE always does); without,
                         * op_done gets zeros */
  const char *disk_dir;       /* folder of files; NULL: $TMPDIR, or /tmp */
  int64_t memory_limit_bytes; /* of all arrays together; 0: the machine's free memory */
  uint8_t poison; /* the bytes of an array until they are written, and again when they are lost; 0:
                   * 0xA5. It changes no fingerprint unless a kernel does not write all that it
                   * should. */
} ref_options;

/* The executor interface of the functions below. */
executor ref_executor(const ref_options *options);

/* ---- the execution ------------------------------------------------------------------------- */

typedef struct ref_exec ref_exec;

/* The layout and the hooks' context must outlive the execution. */
ref_exec *ref_exec_new(const exec_layout *layout, const ref_options *options,
                       const exec_hooks *hooks);
void ref_exec_release(ref_exec *e);

/* Runs one iteration to its end: all hosts and streams of all ranks are done. `p` must outlive the
 * next iteration. `step` is read by kernels as they run, so that before_optimizer may change it.
 * After any outcome but EXEC_DONE call only ref_exec_finding, ref_exec_fingerprints and
 * ref_exec_release. */
exec_outcome ref_exec_iteration(ref_exec *e, const plan *p, const exec_order *order,
                                const exec_step *step, diag *d);

/* The first failure, one line without newline; NULL: none. "rank 0: op 57 (gemm @ layer 0 mlp)
 * reads element 12 of %71 normed, which nothing has written" */
const char *ref_exec_finding(const ref_exec *e);

/* The contents of a live buffer of the current or last plan, in its own memory; NULL: it is not
 * alive, or it is a file. REF_EXACT only. */
void *ref_exec_data(ref_exec *e, uint32_t rank, uint32_t buffer);

/* Fingerprints of the last iteration's writes, by op of the rank; zeros for ops that no stream
 * runs. */
const exec_fingerprint *ref_exec_fingerprints(const ref_exec *e, uint32_t rank);

/* From the sizes of the executor's arrays. */
exec_tally ref_exec_tally(const ref_exec *e, uint32_t rank);

/* ---- before it runs ------------------------------------------------------------------------ */

/* Whether there is arithmetic for every op of the plan. False after a diag error (status 2) that
 * names the kernel and its place. */
bool ref_exec_knows(const plan *p, const ref_options *options, diag *d);

#endif
