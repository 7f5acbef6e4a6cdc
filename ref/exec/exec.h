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
 *   REF_OPAQUE   one number for a buffer, hashed from who wrote it and what that has read: for
 *                plans without arithmetic (texts). Whoever reads anything else than in another
 *                order of the ops writes something else, too. Nothing of a buffer's size is
 *                allocated.
 *
 * Orders (exec_order):
 *
 *   program order   an op runs when its host thread has issued it, as far as ranks do not wait for
 *                   each other
 *   interleaved     the host thread and every stream of every rank go on in an order that a seed
 *                   draws, held back by nothing but what the plan says: FIFO streams, issue before
 *                   run, events, messages and collectives that wait for their other sides
 *
 * Memory is that of docs/reference/verifier.md: a free block becomes another buffer's when that one
 * is first written, unless a stream that the free names is not done with it; page-locked buffers
 * with a key come from a pool, first freed first; a file is gone when the host removes it. Reading
 * what nothing has written, or what has been lost that way, is a finding.
 *
 * Buffers are named by (rank, number in the plan that runs or has run last). Residents of a plan
 * are what the iteration before has left (sim/exec/residents.h).
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
  bool fingerprints;    /* REF_EXACT: keep those of all ops (REF_OPAQUE always does); op_done gets
                           zeros    without */
  const char *disk_dir; /* where files lie; NULL: $TMPDIR, or /tmp */
  int64_t memory_limit_bytes; /* of all arrays together; 0: what the machine has free */
  uint8_t poison; /* what the bytes of an array are until they are written, and again when they are
                     lost; 0: 0xA5. It shows in no fingerprint unless a kernel leaves out what it is
                     to write. */
} ref_options;

/* For whoever takes any executor; its functions are those below, by the same names. */
executor ref_executor(const ref_options *options);

/* ---- the execution ------------------------------------------------------------------------- */

typedef struct ref_exec ref_exec;

/* Layout, and hooks' context, must outlive the execution. */
ref_exec *ref_exec_new(const exec_layout *layout, const ref_options *options,
                       const exec_hooks *hooks);
void ref_exec_release(ref_exec *e);

/* Whether memory may be enough for an iteration; false after a diag that tells what is needed and
 * what there is. What it lets pass may still be refused later. */
bool ref_exec_fits(const ref_exec *e, const plan *p, diag *d);

/* One iteration, to its end: all hosts and streams of all ranks are done. `p` must outlive the next
 * iteration. `step` is read by kernels as they run, so that before_optimizer may change it. After
 * anything but EXEC_DONE only ref_exec_finding, ref_exec_fingerprints and ref_exec_release make
 * sense. */
exec_outcome ref_exec_iteration(ref_exec *e, const plan *p, const exec_order *order,
                                const exec_step *step, diag *d);

/* The first thing that went wrong, one line without newline; NULL: nothing has.
 * "rank 0: op 57 (gemm @ layer 0 mlp) reads element 12 of %71 normed, which nothing has written" */
const char *ref_exec_finding(const ref_exec *e);

/* The contents of a living buffer of the plan that runs or ran last, in its own memory; NULL: it is
 * not there, or it is a file. REF_EXACT only. */
void *ref_exec_data(ref_exec *e, uint32_t rank, uint32_t buffer);
int64_t ref_exec_bytes(const ref_exec *e, uint32_t rank, uint32_t buffer);
/* Room for what a kernel computes on the way: no op reads it, and nothing need be written there. */
bool ref_exec_is_scratch(const ref_exec *e, uint32_t rank, uint32_t buffer);

/* Of the iteration that ran last, by op of the rank: what it wrote; zeros for ops that do not work
 * on a stream. */
const exec_fingerprint *ref_exec_fingerprints(const ref_exec *e, uint32_t rank);

/* From the sizes of the executor's own arrays. */
exec_tally ref_exec_tally(const ref_exec *e, uint32_t rank);

/* ---- before it runs ------------------------------------------------------------------------ */

/* Is there arithmetic for everything that the plan does? False after a diag error (status 2) that
 * names the kernel and its place. */
bool ref_exec_knows(const plan *p, const ref_options *options, diag *d);

#endif
