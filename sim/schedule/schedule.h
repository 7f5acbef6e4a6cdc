/*
 * Pipeline schedules: the order in which a pipeline rank runs forward and backward of each
 * (micro-batch, virtual chunk), with the sends and receives between them. Exactly Megatron-LM's
 * orders (megatron/core/pipeline_parallel/schedules.py at d98e8a64).
 *
 * A step is what the host thread does next:
 *   FORWARD / BACKWARD  run it
 *   SEND_* / RECV_*     post one half of an exchange with the neighbouring virtual stage; exchanges with
 *                       the same `batch` are posted together (batched isend/irecv)
 *   WAIT                the compute stream waits for the exchange posted by step number `target`
 *   SYNCHRONIZE         the host thread waits for everything on the device, copies included
 *                       (batch_p2p_sync, on by default: after every call that exchanges without overlap,
 *                       p2p_communication.py)
 *   LAYERS, FINISH      of the open pair of runs: see below
 *   RELEASE_OUTPUT      the output of (micro-batch, chunk) has been sent: its storage is freed,
 *                       autograd's node stays (deallocate_pipeline_outputs, always on)
 * Without overlap a batch is followed at once by a WAIT for each of its exchanges; with overlap a
 * WAIT is where Megatron waits for the handle. A rank without a neighbour (the first, the last) has
 * no such steps.
 *
 * Without overlap the exchanges of a batch are one operation: they run together and end together,
 * in no order among themselves. With overlap each exchange has its own `batch` and they run in the
 * order in which they are posted. Even and odd ranks post in different orders, so that neighbours
 * do not deadlock.
 *
 * With overlap_moe_expert_parallel_comm Megatron begins one forward earlier and then runs each
 * forward together with a backward, layer by layer (combined_1f1b.py; model_chunk_schedule_plan.py,
 * run). Such a pair has these steps, with its exchanges between them:
 *
 *     FORWARD    `paired`: what precedes the forward's layers
 *     BACKWARD   `paired`: what follows the backward's layers
 *     LAYERS     the layers of both, alternating; overlapped exchanges follow
 *     FINISH     remaining weight gradients, the forward's head, the backward's beginning
 *
 * Other runs are whole: one FORWARD or BACKWARD each.
 */
#ifndef OFFSIM_SIM_SCHEDULE_SCHEDULE_H
#define OFFSIM_SIM_SCHEDULE_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/arena.h"
#include "sim/config/settings.h"

typedef enum step_kind {
  STEP_FORWARD,
  STEP_BACKWARD,
  STEP_SEND_FORWARD,  /* the output of (microbatch, chunk) to the next virtual stage */
  STEP_RECV_FORWARD,  /* the input of (microbatch, chunk) from the previous virtual stage */
  STEP_SEND_BACKWARD, /* the input's gradient of (microbatch, chunk) to the previous virtual stage */
  STEP_RECV_BACKWARD, /* the output's gradient of (microbatch, chunk) from the next virtual stage */
  STEP_WAIT,
  STEP_SYNCHRONIZE,
  STEP_RELEASE_OUTPUT,
  STEP_LAYERS,
  STEP_FINISH
} step_kind;

typedef struct schedule_step {
  uint8_t kind; /* step_kind */
  bool paired;  /* FORWARD, BACKWARD: only its part of a pair, see above */
  uint32_t microbatch;
  uint32_t chunk;  /* virtual chunk on this rank */
  uint32_t peer;   /* exchanges: the other pipeline rank; the neighbours of a ring */
  uint32_t batch;  /* exchanges: those with the same number are posted together */
  uint32_t target; /* WAIT: index of the step that posted the exchange */
} schedule_step;

typedef struct schedule {
  schedule_step *steps;
  uint32_t count;
} schedule;

/* The steps of pipeline rank `pp_rank` for one iteration. Needs resolved settings. */
schedule schedule_of_rank(const settings *s, uint32_t pp_rank, arena *a);

/* `by_chunk`: what each chunk of the rank has from its forward to its backward. The most that the chunks in
 * flight have together. */
int64_t schedule_most_in_flight(const schedule *order, const int64_t *by_chunk);

/* Chunks whose activations are alive when the first backward of this rank begins. */
uint32_t schedule_in_flight_at_first_backward(const schedule *order);

#endif
