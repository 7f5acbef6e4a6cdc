/*
 * Writing steps: what the three schedules share. One call of Megatron's communicator
 * (p2p_communication.py, P2PCommunicator._communicate) is one `exchange` here.
 */
#ifndef OFFSIM_SIM_SCHEDULE_STEPS_H
#define OFFSIM_SIM_SCHEDULE_STEPS_H

#include <stdbool.h>

#include "sim/schedule/schedule.h"

#define NO_STEP UINT32_MAX

/* The four transfers that one call may make, in the order of step_kind. */
typedef enum transfer_kind {
  SEND_NEXT = STEP_SEND_FORWARD,
  RECV_PREVIOUS = STEP_RECV_FORWARD,
  SEND_PREVIOUS = STEP_SEND_BACKWARD,
  RECV_NEXT = STEP_RECV_BACKWARD
} transfer_kind;

enum { FIRST_TRANSFER = STEP_SEND_FORWARD, TRANSFER_KINDS = 4 };

/* A micro-batch of one of this rank's chunks. */
typedef struct work_item {
  uint32_t microbatch;
  uint32_t chunk;
} work_item;

typedef struct exchange {
  bool wanted[TRANSFER_KINDS]; /* by transfer_kind - FIRST_TRANSFER */
  work_item item[TRANSFER_KINDS];
} exchange;

/* The step that posted each transfer, or NO_STEP. */
typedef struct handles {
  uint32_t step[TRANSFER_KINDS];
} handles;

/* The last step of the open pair of runs, which schedule.h shows; whole runs are outside pairs. */
typedef enum pair_state { PAIR_NONE, PAIR_FORWARD, PAIR_BACKWARD, PAIR_LAYERS } pair_state;

typedef struct step_writer {
  schedule_step *steps;
  uint32_t count, capacity;
  uint32_t batches;
  uint32_t pp_size, pp_rank;
  bool overlapped; /* separate posts; else batched, with waits and a synchronise at once */
  pair_state pair;
} step_writer;

/* Adds the transfer to the exchange, which has none of the kind. */
void want(exchange *e, transfer_kind kind, work_item item);
/* The step that posted it, NO_STEP: none. */
uint32_t handle_of(const handles *h, transfer_kind kind);

void write_run(step_writer *w, step_kind kind,
               work_item item); /* FORWARD, BACKWARD, RELEASE_OUTPUT */
/* Waits for what step `target` has posted. */
void write_wait(step_writer *w, uint32_t target);

/* A pair of runs: their beginnings with the exchanges between them, then LAYERS; FINISH closes
 * it. */
void write_paired(step_writer *w, step_kind kind, work_item item); /* FORWARD, then BACKWARD */
void write_layers(step_writer *w);
void write_finish(step_writer *w);

/* Posts without waiting; needs `overlapped`. */
handles write_posts(step_writer *w, const exchange *e);

/* Posts, waits for everything and, if batched, synchronises the device, even if nothing was
 * exchanged. */
void write_exchange(step_writer *w, const exchange *e);

/* A writer for at most `capacity` steps; memory from `a`. */
step_writer step_writer_new(uint32_t pp_size, uint32_t pp_rank, bool overlapped, uint32_t capacity,
                            arena *a);

/* ---- the schedules ---- */

schedule one_forward_one_backward(const settings *s, uint32_t pp_rank, arena *a);
schedule interleaved(const settings *s, uint32_t pp_rank, arena *a);

#endif
