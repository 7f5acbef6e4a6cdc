/*
 * Executors run the plans of a training, on the CPU (ref/exec) or on GPUs (cuda/exec): a table of
 * functions for each, and the types that they share with their callers.
 *
 *     execution e = { executor, executor->create(executor, &layout, &hooks, d) };
 *     exec_outcome end = executor->iteration(e.exec, &first, &order, &step, d);
 *     while (end == EXEC_DONE && more)
 *       end = executor->iteration(e.exec, &steady, &order, &step, d);
 *     executor->release(e.exec);
 *
 * Buffers are named by (rank, number in the current or last plan). Residents of a plan are what the
 * previous iteration has left (residents.h).
 */
#ifndef OFFSIM_SIM_EXEC_EXECUTOR_H
#define OFFSIM_SIM_EXEC_EXECUTOR_H

#include "sim/base/diag.h"
#include "sim/exec/layout.h"

/* 128 bits, of the elements of all written operands of an op, in logical order, one operand after
 * the other, except scratch memory, which no op reads; for an op that writes nothing, of its
 * reads. */
typedef struct exec_fingerprint {
  uint64_t low, high;
} exec_fingerprint;

/* What the executor calls; a hook may be NULL. */
typedef struct exec_hooks {
  void *context;

  /* A buffer is new: a resident without predecessor, or an ALLOC or HOST_ALLOC that the host
   * issues. True: the hook has filled all `bytes` of it (weights, states, the micro-batch's
   * tokens); false: it has no content until an op writes it. */
  bool (*fill)(void *context, uint32_t rank, uint32_t buffer, void *data, int64_t bytes);

  /* For executors whose memory the host cannot access: `fill` would write zeros except for these
   * parts. False: it would not, call fill. The parts live until the execution is released. NULL:
   * always call fill. */
  bool (*draw)(void *context, uint32_t rank, uint32_t buffer, const exec_drawn **parts,
               uint32_t *count);

  /* All hosts have reached the phase `optimizer`, and all compute streams have run everything
   * issued before it: the gradients' norm can be computed. Hosts go on after this returns. Called
   * once in an iteration that has the phase. */
  void (*before_optimizer)(void *context);

  /* A stream has finished an op; not called for RECORD and WAIT. */
  void (*op_done)(void *context, uint32_t rank, uint32_t op, exec_fingerprint print);

  /* Whether the caller wants op_done for an op, for executors that must keep its writes until then;
   * the CPU calls op_done for all ops. Depends only on plan and rank. NULL: for no op. */
  bool (*watches)(void *context, uint32_t rank, uint32_t op);
} exec_hooks;

/* The order in which ref runs ops: interleaved by a seed, or program order. A GPU's streams choose
 * their own order. */
typedef struct exec_order {
  bool interleaved;
  uint64_t seed;
} exec_order;

typedef enum exec_outcome {
  EXEC_DONE,
  EXEC_WRONG,   /* the plan or a kernel is wrong: see the executor's finding */
  EXEC_REFUSED, /* memory or disk was refused: see the diag */
} exec_outcome;

/* Device memory of a rank in the last iteration, in program order, from the sizes of the executor's
 * arrays, each rounded up to 512 bytes. */
typedef struct exec_tally {
  int64_t peak_bytes;
  const int64_t *after_op; /* by op of the rank */
} exec_tally;

/* Fingerprint and sum of squares of a piece of memory. */
typedef struct exec_digest {
  exec_fingerprint print;
  double squares; /* sum of the elements' squares */
} exec_digest;

typedef struct executor {
  const void *options; /* the executor's own; must outlive what it creates */

  /* Whether the executor can compute every op of the plan. False after a diag error (status 2) that
   * names the kernel and its place. */
  bool (*knows)(const struct executor *of, const plan *p, diag *d);

  /* NULL after a diag error. The layout and the hooks' context must outlive it. */
  void *(*create)(const struct executor *of, const exec_layout *layout, const exec_hooks *hooks,
                  diag *d);
  void (*release)(void *e);

  /* Whether memory may be enough for an iteration; false after a diag with the needed and the
   * available bytes. Memory may still be refused later. */
  bool (*fits)(const void *e, const plan *p, diag *d);

  /* Runs one iteration to its end: all hosts and streams of all ranks are done. `p` must outlive
   * the next iteration. `step` is read by kernels as they run, so that before_optimizer may change
   * it. After any outcome but EXEC_DONE call only `finding` and `release`. */
  exec_outcome (*iteration)(void *e, const plan *p, const exec_order *order, const exec_step *step,
                            diag *d);

  /* The first failure, one line without newline; NULL: none. */
  const char *(*finding)(const void *e);

  /* The contents of a live buffer; NULL: it is not alive, or it is a file. */
  void *(*data)(void *e, uint32_t rank, uint32_t buffer);
  int64_t (*bytes)(const void *e, uint32_t rank, uint32_t buffer);
  /* Whether the buffer is scratch memory of a kernel: no op reads it, and no kernel has to write
   * it. */
  bool (*is_scratch)(const void *e, uint32_t rank, uint32_t buffer);
  exec_tally (*tally)(const void *e, uint32_t rank);

  /* NULL: gradients and parameters are copied to the host. Otherwise each rank's parts are digested
   * on its device, and fingerprints are those of the ranks' parts in order, not of the model's
   * tensors. */
  exec_digest (*digest)(void *e, uint32_t rank, uint32_t buffer, const plan_view *view);

  /* Called after an iteration, to inspect the executor; may be NULL. */
  void (*iteration_done)(const struct executor *of, const void *e, uint32_t step, const plan *p);
} executor;

/* An executor and the execution that it has created. */
typedef struct execution {
  const executor *by;
  void *exec;
} execution;

#endif
