/*
 * How ranks of one process give each other data: collectives and messages of a plan.
 *
 * Every rank has a host thread, and none of them waits here for another: legal plans have messages
 * that cross on several streams. A host that comes to a collective leaves its operands in a table
 * and goes on, while its stream is held at a gate (device.h). The host that comes last knows the
 * operands of all; it issues the work for all on its own stream:
 *
 *     others   announce that their stream is there; wait at their gates
 *     last     waits until all are there; computes for all; opens the others' gates
 *
 * The work reads and writes the others' memory in place. Which member comes last may differ from
 * run to run; what is computed does not: members stand in the group's order.
 *
 * A message is the same among two. Messages that stand on a stream with nothing between are one
 * exchange (sim/plan/plan.h): they begin together, in no order among themselves, so that one does
 * not wait for another: all but the first of those that one host has to issue go on streams
 * beside (lanes).
 *
 * With NCCL (fast arithmetic, a GPU for each rank) all members issue their own part; what NCCL has
 * no form for goes as above.
 *
 * Who is paired with whom: the n-th collective of a group on a stream with the members' n-th on
 * their streams of the same name; a message its other side in the rank's pipeline
 * (exec_layout.pipelines).
 *
 * Everything but exchange_collective, exchange_message and exchange_stop is called by one thread
 * while no host thread issues.
 */
#ifndef OFFSIM_CUDA_PEERS_EXCHANGE_H
#define OFFSIM_CUDA_PEERS_EXCHANGE_H

#include "cuda/device/device.h"
#include "cuda/kernels/kernel.h"
#include "sim/exec/executor.h"
#include "sim/exec/stage.h"

/* Streams of a GPU that do not wait for each other unless they are told to. */
enum { GPU_QUEUES = 32 };

typedef struct exchange_setup {
  const gpu_driver *driver;
  const exec_layout *layout;
  const uint32_t *gpu_of;                 /* [layout->rank_count] */
  const cuda_collective_row *collectives; /* [COLLECTIVE_KINDS]: exact arithmetic */
  bool nccl; /* send, receive and add by NCCL; a GPU for each rank, driver of NVIDIA GPUs */
} exchange_setup;

typedef struct exchange exchange;

/* What the pointers of `setup` point to must outlive the exchange. NULL after a diag refusal:
 * GPUs that do not reach each other, no NCCL. */
exchange *exchange_new(const exchange_setup *setup, diag *d);
/* The ranks' streams must be done; after exchange_stop they come to an end by themselves. */
void exchange_release(exchange *x);

/* Device memory of a rank that the exchange and its libraries hold themselves. */
int64_t exchange_outside_bytes(const exchange *x, uint32_t rank);

/* Scratch memory (cuda_call.scratch) that a collective of the rank needs on its stream, by the
 * shapes of its operands; `data` is not looked at. */
int64_t exchange_scratch(const exchange *x, uint32_t rank, const exec_call *c);

/* An iteration begins: `stages` [p->rank_count], by exec_rank.stage. Both must last until
 * exchange_end. False after a diag refusal: ranks of one GPU have more streams than it has
 * queues. */
bool exchange_begin(exchange *x, const plan *p, const stage *stages, diag *d);

/*
 * What came of it. Both NULL: it has been issued (now, or by another host later), or the exchange
 * has been stopped.
 *
 *   finding   the plan is wrong: complete, "rank 0: op 5 (...) is paired with rank 1: op 7 (...)";
 *             lasts as long as the exchange
 *   failure   a call failed, for this rank and op, which it does not name; as the driver's
 */
typedef struct exchange_trouble {
  const char *finding, *failure;
} exchange_trouble;

/* The host thread of `rank` comes to OP_COLLECTIVE number `op`. The call's operands are copied;
 * what they point to must last until its stream has passed. `c->stream` belongs to the rank's GPU,
 * which must be the one in use (device.h). */
exchange_trouble exchange_collective(exchange *x, uint32_t rank, uint32_t op, const cuda_call *c);

/* ... to OP_SEND or OP_RECV number `op`; `data`: the bytes of the message, in device memory. The
 * stream is held when the exchange that the message is part of has been issued whole. */
exchange_trouble exchange_message(exchange *x, uint32_t rank, uint32_t op, void *data,
                                  gpu_stream *stream);

/* Memory that the stream's GPU reaches, page-locked memory too, by a kernel that gathers from one
 * member: copies share few queues, and wait there for those that other streams have asked for
 * before. NULL, or as the driver's failure. */
const char *copy_by_kernel(const cuda_collective_row *collectives, void *to, void *from,
                           int64_t bytes, gpu_stream *stream);

/* Something has gone wrong elsewhere: nobody is held any more, now or later, so that streams come
 * to an end; what they compute from here on means nothing. By any thread, any number of times. */
void exchange_stop(exchange *x);

/* All hosts have issued all ops. A finding if somebody waits for a member that has not come; then
 * the exchange has been stopped. NULL: all is issued, and streams come to an end by themselves. */
const char *exchange_end(exchange *x);

#endif
