/*
 * Pipeline schedules: in which order a pipeline rank runs forward and backward of which (micro-batch,
 * virtual chunk), and where its sends and receives stand between them. Exactly Megatron-LM's orders
 * (megatron/core/pipeline_parallel/schedules.py at d98e8a64).
 *
 * A step names what the host thread does next:
 *   FORWARD / BACKWARD  run it
 *   SEND_* / RECV_*     post one half of an exchange with the neighbouring virtual stage; exchanges with
 *                       the same `batch` are posted together (batched isend/irecv)
 *   WAIT                the compute stream waits for the exchange posted by step number `target`
 *   SYNCHRONIZE         the host thread waits for everything on the device, copies included
 *                       (batch_p2p_sync, on by default: after every call that exchanges without overlap,
 *                       p2p_communication.py)
 *   LAYERS, FINISH      the pair of runs that is open: see below
 *   RELEASE_OUTPUT      the output of (micro-batch, chunk) has left: its storage goes, autograd's node
 *                       stays (deallocate_pipeline_outputs, always on)
 * Without overlap a WAIT follows every batch at once, one for each exchange; with overlap it stands where
 * Megatron waits for the handle. A rank without neighbour (the first, the last) has no such step.
 *
 * Without overlap the exchanges of a batch are one operation: they run together and end together, in no
 * order among themselves. With overlap each stands alone (its own `batch`) and they run in the order in
 * which they are posted, which differs between even and odd ranks so that neighbours meet.
 *
 * With overlap_moe_expert_parallel_comm Megatron begins one forward earlier and then runs each forward
 * together with a backward, layer by layer (combined_1f1b.py; model_chunk_schedule_plan.py, run).
 * Such a pair is told in steps of its own, with the exchanges where they stand:
 *
 *     FORWARD    `paired`: what comes before the forward's layers
 *     BACKWARD   `paired`: what comes behind the backward's layers
 *     LAYERS     the layers of both, in turns; overlapped exchanges follow
 *     FINISH     weight gradients left over, the forward's head, the backward's beginning
 *
 * Runs outside pairs stand as whole runs.
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
  bool paired;  /* FORWARD, BACKWARD: only the beginning, of a pair */
  uint32_t microbatch;
  uint32_t chunk;  /* virtual chunk on this rank */
  uint32_t peer;   /* exchanges: the other pipeline rank; the neighbours of a ring */
  uint32_t batch;  /* exchanges: posted together with the same number */
  uint32_t target; /* WAIT: index of the step that posted what is waited for */
} schedule_step;

typedef struct schedule {
  schedule_step *steps;
  uint32_t count;
} schedule;

/* The steps of pipeline rank `pp_rank` for one iteration. Needs resolved settings. */
schedule schedule_of_rank(const settings *s, uint32_t pp_rank, arena *a);

/* Chunks whose activations are alive when the first backward of this rank begins. */
uint32_t schedule_in_flight_at_first_backward(const schedule *order);

#endif
