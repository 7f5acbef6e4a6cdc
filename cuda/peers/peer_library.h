/*
 * A library that moves data between ranks which have a GPU each, all of which issue their own part.
 * NCCL, for GPUs; without GPUs, what the processes' MPI brings.
 *
 * All communicators (communicators.h) are opened, and all peers connected, before an iteration:
 * from then on no call waits for another rank.
 *
 * NCCL adds in the operands' type, in an order that depends on the machine's links and on sizes,
 * not on time.
 */
#ifndef OFFSIM_CUDA_PEERS_PEER_LIBRARY_H
#define OFFSIM_CUDA_PEERS_PEER_LIBRARY_H

#include "cuda/peers/exchange.h"

/* A message of an exchange. */
typedef struct peer_message {
  uint32_t peer; /* global rank */
  bool sends;
  void *data;
  int64_t bytes;
} peer_message;

typedef struct peer_library {
  /* The handle that all others are given. NULL after a diag refusal: there is no such library. */
  void *(*open)(const exchange_setup *setup, diag *d);
  /* Streams must be done, or `abort` have been called. */
  void (*release)(void *peers);
  /* Communicators for what the plan has and has not had before; `stages` as in exchange_begin. */
  bool (*prepare)(void *peers, const plan *p, const stage *stages, diag *d);
  /* Device memory of the rank that the library has taken. */
  int64_t (*bytes)(const void *peers, uint32_t rank);

  /* Is there a form for it? The answer is the same for all members. */
  bool (*suits)(const exec_call *c, uint32_t members);
  /* Scratch memory that it then takes; NULL: none. */
  int64_t (*scratch)(const exec_call *c);
  /* The rank's part; `number`: of the plan's stream. What fails says why, as in device.h. */
  const char *(*collective)(void *peers, uint32_t rank, uint32_t number, const cuda_call *c);
  const char *(*exchange)(void *peers, uint32_t rank, uint32_t number, const peer_message *messages,
                          uint32_t count, gpu_stream *stream);

  /* Lets all streams go on. By any thread; calls of other threads do nothing from then on. */
  void (*abort)(void *peers);
} peer_library;

#ifdef OFFSIM_WITH_CUDA
extern const peer_library peer_library_nccl;
#endif
#ifdef OFFSIM_WITH_MPI
extern const peer_library peer_library_mpi;
#endif

#endif
