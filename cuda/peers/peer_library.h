/*
 * A library that moves data between ranks with a GPU each, all of which issue their own part: NCCL
 * for GPUs; MPI for processes without GPUs.
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
  /* Opens the library: returns the handle for all other calls. NULL after a diag refusal: the
   * library is missing. */
  void *(*open)(const exchange_setup *setup, diag *d);
  /* Streams must be done, or `abort` must have been called. */
  void (*release)(void *peers);
  /* Opens communicators for new exchanges of the plan; `stages` as in exchange_begin. */
  bool (*prepare)(void *peers, const plan *p, const stage *stages, diag *d);
  /* Device memory of the rank that the library uses. */
  int64_t (*bytes)(const void *peers, uint32_t rank);

  /* Whether the library supports it; the same for all members. */
  bool (*suits)(const exec_call *c, uint32_t members);
  /* The scratch memory that it then needs; NULL: none. */
  int64_t (*scratch)(const exec_call *c);
  /* Issues the rank's part; `number`: of the plan's stream. Failures as in device.h. */
  const char *(*collective)(void *peers, uint32_t rank, uint32_t number, const cuda_call *c);
  const char *(*exchange)(void *peers, uint32_t rank, uint32_t number, const peer_message *messages,
                          uint32_t count, gpu_stream *stream);

  /* Releases all streams. Any thread may call it; calls of other threads do nothing from then
   * on. */
  void (*abort)(void *peers);
} peer_library;

#ifdef OFFSIM_WITH_CUDA
extern const peer_library peer_library_nccl;
#endif
#ifdef OFFSIM_WITH_MPI
extern const peer_library peer_library_mpi;
#endif

#endif
