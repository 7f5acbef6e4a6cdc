/*
 * Exchanges between ranks of one process: collectives and messages of a plan.
 *
 * Every rank has a host thread, and none of them waits here for another: legal plans have messages
 * that cross on several streams. A host that reaches a collective puts its operands into a table
 * and goes on, while its stream waits at a gate (device.h). The last host knows the operands of
 * all; it issues the work for all on its own stream:
 *
 *     others   announce that their stream has arrived; wait at their gates
 *     last     waits until all have arrived; computes for all; opens the others' gates
 *
 * The work reads and writes the others' memory in place. Which member is last may differ from run
 * to run; the result does not: members are in the group's order.
 *
 * A message is the same between two ranks. Consecutive messages of a stream are one exchange
 * (sim/plan/plan.h): they begin together, in no order among themselves, so that none waits for
 * another: all but the first of those that one host issues use side streams (lanes).
 *
 * With NCCL (fast arithmetic, a GPU for each rank) all members issue their own part; exchanges that
 * NCCL does not support work as above.
 *
 * Pairing: the n-th collective of a group on a stream is paired with the members' n-th on their
 * streams of the same name; a message with its other side in the rank's pipeline
 * (exec_layout.pipelines).
 *
 * One thread calls all functions but exchange_collective, exchange_message and exchange_stop, while
 * no host thread issues.
 */
#ifndef OFFSIM_CUDA_PEERS_EXCHANGE_H
#define OFFSIM_CUDA_PEERS_EXCHANGE_H

#include "cuda/device/device.h"
#include "cuda/kernels/kernel.h"
#include "sim/exec/executor.h"
#include "sim/exec/stage.h"

/* Streams of a GPU that wait for each other only if the plan says so. */
enum { GPU_QUEUES = 32 };

typedef struct exchange_setup {
  const gpu_driver *driver;
  const exec_layout *layout;
  const uint32_t *gpu_of;                 /* [layout->rank_count] */
  const cuda_collective_row *collectives; /* [COLLECTIVE_KINDS]: exact arithmetic */
  bool nccl; /* NCCL sends, receives and adds; needs a GPU for each rank and the driver of NVIDIA
              * GPUs */
} exchange_setup;

typedef struct exchange exchange;

/* What the pointers of `setup` point to must outlive the exchange. NULL after a diag refusal: GPUs
 * cannot access each other's memory, or NCCL is missing. */
exchange *exchange_new(const exchange_setup *setup, diag *d);
/* The ranks' streams must be done; after exchange_stop they end by themselves. */
void exchange_release(exchange *x);

/* Device memory of a rank that the exchange and its libraries use. */
int64_t exchange_outside_bytes(const exchange *x, uint32_t rank);

/* Scratch memory (cuda_call.scratch) that a collective of the rank needs on its stream, by the
 * shapes of its operands; `data` is not read. */
int64_t exchange_scratch(const exchange *x, uint32_t rank, const exec_call *c);

/* Begins an iteration: `stages` [p->rank_count], by exec_rank.stage. Both must last until
 * exchange_end. False after a diag refusal: the ranks of a GPU have more streams than it has
 * hardware queues. */
bool exchange_begin(exchange *x, const plan *p, const stage *stages, diag *d);

/*
 * The result. Both NULL: it has been issued (now, or later by another host), or the exchange was
 * stopped.
 *
 *   finding   the plan is wrong: complete, "rank 0: op 5 (...) is paired with rank 1: op 7 (...)";
 *             lives as long as the exchange
 *   failure   a call failed, for this rank and op, which the text does not name; as in device.h
 */
typedef struct exchange_trouble {
  const char *finding, *failure;
} exchange_trouble;

/* The host thread of `rank` has reached OP_COLLECTIVE number `op`. The call's operands are copied;
 * their memory must live until the stream has passed. `c->stream` belongs to the rank's GPU, which
 * must be current (device.h). */
exchange_trouble exchange_collective(exchange *x, uint32_t rank, uint32_t op, const cuda_call *c);

/* ... to OP_SEND or OP_RECV number `op`; `data`: the bytes of the message, in device memory. The
 * stream waits once the whole exchange with the message has been issued. */
exchange_trouble exchange_message(exchange *x, uint32_t rank, uint32_t op, void *data,
                                  gpu_stream *stream);

/* Copies memory that the stream's GPU can access, page-locked memory too, by a kernel that gathers
 * from one member: copies share few queues, where they wait for earlier copies of other streams.
 * NULL, or the failure as in device.h. */
const char *copy_by_kernel(const cuda_collective_row *collectives, void *to, void *from,
                           int64_t bytes, gpu_stream *stream);

/* After a failure elsewhere: releases all streams, now and later, so that they end; their results
 * are meaningless from here on. Any thread may call it, any number of times. */
void exchange_stop(exchange *x);

/* Call it when all hosts have issued all ops. Returns a finding if a rank waits for a member that
 * has not arrived, and stops the exchange. NULL: everything is issued, and streams end by
 * themselves. */
const char *exchange_end(exchange *x);

#endif
