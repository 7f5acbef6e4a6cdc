/*
 * Who runs the plans of a run, on the CPU (ref/exec) or on GPUs (cuda/exec): one table of functions
 * each, and all that they share with whoever drives them.
 *
 *     execution e = { executor, executor->create(executor, &layout, &hooks, d) };
 *     exec_outcome end = executor->iteration(e.exec, &first, &order, &step, d);
 *     while (end == EXEC_DONE && more)
 *       end = executor->iteration(e.exec, &steady, &order, &step, d);
 *     executor->release(e.exec);
 *
 * Buffers are named by (rank, number in the plan that runs or has run last). Residents of a plan
 * are what the iteration before has left (residents.h).
 */
#ifndef OFFSIM_SIM_EXEC_EXECUTOR_H
#define OFFSIM_SIM_EXEC_EXECUTOR_H

#include "sim/base/diag.h"
#include "sim/exec/layout.h"

/* 128 bits. Of the elements of all written operands of an op, in logical order, one operand after
 * the other, but for scratch memory, which no op reads; of an op that writes nothing, of what it
 * reads. */
typedef struct exec_fingerprint {
  uint64_t low, high;
} exec_fingerprint;

/* What the executor asks of whoever drives it; a hook may be NULL. */
typedef struct exec_hooks {
  void *context;

  /* A buffer has come into being: a resident without predecessor, or an ALLOC or HOST_ALLOC that
   * the host issues. True: all `bytes` of it have been filled (weights, states, the micro-batch's
   * tokens); false: it holds nothing until an op writes it. */
  bool (*fill)(void *context, uint32_t rank, uint32_t buffer, void *data, int64_t bytes);

  /* For executors whose memory the host does not reach: what `fill` would write is zeros but for
   * these parts. False: it is not, ask fill. The parts stay until the execution is released. NULL:
   * never. */
  bool (*draw)(void *context, uint32_t rank, uint32_t buffer, const exec_drawn **parts,
               uint32_t *count);

  /* All hosts have come to the phase `optimizer`, and all compute streams have run what was issued
   * before it: time for the gradients' norm. No host goes on before. Once in an iteration that has
   * the phase. */
  void (*before_optimizer)(void *context);

  /* An op that runs on a stream is over; not called for RECORD and WAIT. */
  void (*op_done)(void *context, uint32_t rank, uint32_t op, exec_fingerprint print);

  /* Whether op_done is wanted for an op, for executors that have to keep what it wrote until then;
   * the CPU calls op_done for all. Depends on plan and rank alone. NULL: for none. */
  bool (*watches)(void *context, uint32_t rank, uint32_t op);
} exec_hooks;

/* The order in which ref runs ops: interleaved by a seed, or that of the program. Streams of a GPU
 * choose their own. */
typedef struct exec_order {
  bool interleaved;
  uint64_t seed;
} exec_order;

typedef enum exec_outcome {
  EXEC_DONE,
  EXEC_WRONG,   /* the plan or a kernel is: the executor's finding tells */
  EXEC_REFUSED, /* memory or disk; the diag says what */
} exec_outcome;

/* Device memory of a rank in the iteration that ran last, in program order, from the sizes of the
 * executor's own arrays, each rounded up to 512 bytes. */
typedef struct exec_tally {
  int64_t peak_bytes;
  const int64_t *after_op; /* by op of the rank */
} exec_tally;

/* What a piece of memory comes to. */
typedef struct exec_digest {
  exec_fingerprint print;
  double squares; /* sum of the elements' squares */
} exec_digest;

typedef struct executor {
  const void *options; /* the executor's own; must outlive what it creates */

  /* Is there arithmetic for everything that the plan does? False after a diag error (status 2) that
   * names the kernel and its place. */
  bool (*knows)(const struct executor *of, const plan *p, diag *d);

  /* NULL after a diag error. Layout, and hooks' context, outlive it. */
  void *(*create)(const struct executor *of, const exec_layout *layout, const exec_hooks *hooks,
                  diag *d);
  void (*release)(void *e);

  /* Whether memory may be enough for an iteration; false after a diag that tells what is needed and
   * what there is. What it lets pass may still be refused later. */
  bool (*fits)(const void *e, const plan *p, diag *d);

  /* One iteration, to its end: all hosts and streams of all ranks are done. `p` must outlive the
   * next iteration. `step` is read by kernels as they run, so that before_optimizer may change it.
   * After anything but EXEC_DONE only `finding` and `release` make sense. */
  exec_outcome (*iteration)(void *e, const plan *p, const exec_order *order, const exec_step *step,
                            diag *d);

  /* The first thing that went wrong, one line without newline; NULL: nothing has. */
  const char *(*finding)(const void *e);

  /* The contents of a living buffer; NULL: it is not there, or it is a file. */
  void *(*data)(void *e, uint32_t rank, uint32_t buffer);
  int64_t (*bytes)(const void *e, uint32_t rank, uint32_t buffer);
  /* Room for what a kernel computes on the way: no op reads it, and nothing need be written
   * there. */
  bool (*is_scratch)(const void *e, uint32_t rank, uint32_t buffer);
  exec_tally (*tally)(const void *e, uint32_t rank);

  /* NULL: gradients and parameters are brought to the host. Otherwise what ranks hold is digested
   * where it lies, and fingerprints are those of the ranks' parts in order, not of the model's
   * tensors. */
  exec_digest (*digest)(void *e, uint32_t rank, uint32_t buffer, const plan_view *view);

  /* After an iteration, for whoever wants to know more of the executor; may be NULL. */
  void (*iteration_done)(const struct executor *of, const void *e, uint32_t step, const plan *p);
} executor;

/* An executor, and what it has created. */
typedef struct execution {
  const executor *by;
  void *exec;
} execution;

#endif
