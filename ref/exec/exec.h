/*
 * An execution of a plan by virtual ranks: every rank of the parallel configuration has its own host
 * thread, streams and memory, all in one process.
 *
 *     ref_layout layout = ...;                            // who the ranks are
 *     ref_exec *e = ref_exec_new(&layout, &options, &hooks);
 *     ref_outcome end = ref_exec_iteration(e, &first, &order, &step, d);
 *     while (end == REF_DONE && more) end = ref_exec_iteration(e, &steady, &order, &step, d);
 *     ref_exec_release(e);
 *
 * Two kinds of contents:
 *   REF_EXACT    arrays of numbers, computed with by ref/kernels; copies move them, frees take them away
 *   REF_OPAQUE   one number for a buffer, hashed from who wrote it and what that has read: for plans
 *                without arithmetic (texts). Whoever reads anything else than in another order of the
 *                ops writes something else, too. Nothing of a buffer's size is allocated.
 *
 * Orders (ref_order):
 *   program order   an op runs when its host thread has issued it, as far as ranks do not wait for each
 *                   other
 *   interleaved     the host thread and every stream of every rank go on in an order that a seed draws, held
 *                   back by nothing but what the plan says: FIFO streams, issue before run, events, messages
 *                   and collectives that wait for their other sides
 *
 * Memory is that of docs/reference/verifier.md: a free block becomes another buffer's when that one is first
 * written, unless a stream that the free names is not done with it; page-locked buffers with a key come
 * from a pool, first freed first; a file is gone when the host removes it. Reading what nothing has
 * written, or what has been lost that way, is a finding.
 *
 * Buffers are named by (rank, number in the plan that runs or has run last). Residents of a plan are what
 * the iteration before has left: of the same class, bytes, name and place, in order of allocation.
 */
#ifndef OFFSIM_REF_EXEC_EXEC_H
#define OFFSIM_REF_EXEC_EXEC_H

#include "ref/kernels/kernel.h"
#include "sim/base/arena.h"
#include "sim/base/diag.h"
#include "sim/plan/plan.h"

/* ---- who ----------------------------------------------------------------------------------- */

typedef struct ref_members {
  const uint32_t *ranks; /* [count], global, in the group's order */
  uint32_t count;
} ref_members;

typedef struct ref_layout {
  uint32_t rank_count;
  const ref_rank *ranks;                  /* by global rank */
  const ref_members *groups[COMM_GROUPS]; /* [rank]: the members of the rank's group, itself among them */
  const ref_members *pipelines;           /* [rank]: who runs stage 0, 1, ... of the rank's own pipeline */
} ref_layout;

/* One rank for each stage of the plan, alone in all its groups. */
ref_layout ref_layout_of_stages(const plan *p, arena *a);

/* ---- what ---------------------------------------------------------------------------------- */

typedef enum ref_arithmetic { REF_EXACT, REF_OPAQUE } ref_arithmetic;

/* 128 bits. Of the elements of all written operands of an op, in logical order, one operand after the
 * other, but for scratch memory, which no op reads; of an op that writes nothing, of what it reads. */
typedef struct ref_fingerprint {
  uint64_t low, high;
} ref_fingerprint;

/* What the executor asks of whoever drives it; a hook may be NULL. */
typedef struct ref_hooks {
  void *context;

  /* A buffer has come into being: a resident without predecessor, or an ALLOC or HOST_ALLOC that the host
   * issues. True: all `bytes` of it have been filled (weights, states, the micro-batch's tokens); false: it
   * holds nothing until an op writes it. REF_EXACT only. */
  bool (*fill)(void *context, uint32_t rank, uint32_t buffer, void *data, int64_t bytes);

  /* For executors whose memory the host does not reach: what `fill` would write is zeros but for these parts.
   * False: it is not, ask fill. The parts stay until the execution is released. NULL: never. */
  bool (*draw)(void *context, uint32_t rank, uint32_t buffer, const ref_drawn **parts, uint32_t *count);

  /* All hosts have come to the phase `optimizer`, and all compute streams have run what was issued before
   * it: time for the gradients' norm. No host goes on before. Once in an iteration that has the phase. */
  void (*before_optimizer)(void *context);

  /* An op that runs on a stream is over; not called for RECORD and WAIT. */
  void (*op_done)(void *context, uint32_t rank, uint32_t op, ref_fingerprint print);

  /* Whether op_done is wanted for an op, for executors that have to keep what it wrote until then; ref calls
   * op_done for all. Depends on plan and rank alone. NULL: for none. */
  bool (*watches)(void *context, uint32_t rank, uint32_t op);
} ref_hooks;

typedef struct ref_options {
  ref_arithmetic arithmetic;
  ref_kernel *const *kernels;         /* REF_EXACT: [KERNEL_KINDS], such as ref_kernels */
  ref_collective *const *collectives; /* REF_EXACT: [COLLECTIVE_KINDS], such as ref_collectives */
  bool fingerprints;          /* REF_EXACT: keep those of all ops (REF_OPAQUE always does); op_done gets zeros
                                 without */
  const char *disk_dir;       /* where files lie; NULL: $TMPDIR, or /tmp */
  int64_t memory_limit_bytes; /* of all arrays together; 0: what the machine has free */
  uint8_t poison; /* what the bytes of an array are until they are written, and again when they are
                     lost; 0: 0xA5. It shows in no fingerprint unless a kernel leaves out what it is
                     to write. */
} ref_options;

typedef struct ref_order {
  bool interleaved;
  uint64_t seed;
} ref_order;

typedef enum ref_outcome {
  REF_DONE,
  REF_WRONG,   /* the plan or a kernel is: see ref_exec_finding */
  REF_REFUSED, /* memory or disk; the diag says what */
} ref_outcome;

/* ---- the execution ------------------------------------------------------------------------- */

typedef struct ref_exec ref_exec;

/* Layout, and hooks' context, must outlive the execution. */
ref_exec *ref_exec_new(const ref_layout *layout, const ref_options *options, const ref_hooks *hooks);
void ref_exec_release(ref_exec *e);

/* Whether memory may be enough for an iteration; false after a diag that tells what is needed and what there
 * is. What it lets pass may still be refused later. */
bool ref_exec_fits(const ref_exec *e, const plan *p, diag *d);

/* One iteration, to its end: all hosts and streams of all ranks are done. `p` must outlive the next
 * iteration. `step` is read by kernels as they run, so that before_optimizer may change it. After anything
 * but REF_DONE only ref_exec_finding, ref_exec_fingerprints and ref_exec_release make sense. */
ref_outcome ref_exec_iteration(ref_exec *e, const plan *p, const ref_order *order,
                               const ref_step *step, diag *d);

/* The first thing that went wrong, one line without newline; NULL: nothing has.
 * "rank 0: op 57 (gemm @ layer 0 mlp) reads element 12 of %71 normed, which nothing has written" */
const char *ref_exec_finding(const ref_exec *e);

/* The contents of a living buffer of the plan that runs or ran last, in its own memory; NULL: it is not
 * there, or it is a file. REF_EXACT only. */
void *ref_exec_data(ref_exec *e, uint32_t rank, uint32_t buffer);
int64_t ref_exec_bytes(const ref_exec *e, uint32_t rank, uint32_t buffer);
/* Room for what a kernel computes on the way: no op reads it, and nothing need be written there. */
bool ref_exec_is_scratch(const ref_exec *e, uint32_t rank, uint32_t buffer);

/* Of the iteration that ran last, by op of the rank: what it wrote; zeros for ops that do not work on a
 * stream. */
const ref_fingerprint *ref_exec_fingerprints(const ref_exec *e, uint32_t rank);

/* Device memory of a rank in the iteration that ran last, in program order, from the sizes of the
 * executor's own arrays, each rounded up to 512 bytes. */
typedef struct ref_tally {
  int64_t peak_bytes;
  const int64_t *after_op; /* by op of the rank */
} ref_tally;
ref_tally ref_exec_tally(const ref_exec *e, uint32_t rank);

/* ---- before it runs ------------------------------------------------------------------------ */

/* Is there arithmetic for everything that the plan does? False after a diag error (status 2) that names the
 * kernel and its place. */
bool ref_exec_knows(const plan *p, const ref_options *options, diag *d);

#endif
