/* The state of peer_library_nccl. */
#ifndef OFFSIM_CUDA_PEERS_NCCL_STATE_H
#define OFFSIM_CUDA_PEERS_NCCL_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "cuda/libraries/library.h"
#include "cuda/peers/communicators.h"
#include "cuda/peers/nccl_api.h"
#include "cuda/peers/peer_library.h"

#define NCCL_FUNCTIONS(X)                                                                          \
  X(ncclGetErrorString)                                                                            \
  X(ncclGetUniqueId)                                                                               \
  X(ncclCommInitRank)                                                                              \
  X(ncclCommDestroy)                                                                               \
  X(ncclCommAbort)                                                                                 \
  X(ncclGroupStart)                                                                                \
  X(ncclGroupEnd)                                                                                  \
  X(ncclAllReduce)                                                                                 \
  X(ncclAllGather)                                                                                 \
  X(ncclReduceScatter)                                                                             \
  X(ncclSend)                                                                                      \
  X(ncclRecv)

typedef struct nccl_functions {
  NCCL_FUNCTIONS(LIBRARY_FUNCTION)
} nccl_functions;

/* The handle of peer_library; a communicator's `own`: ncclComm_t by rank of the
 * communicator, NULL: another process has that rank. */
typedef struct nccl {
  nccl_functions f;
  exchange_setup setup;
  communicators communicators;
  int64_t *bytes;       /* by rank */
  pthread_rwlock_t use; /* read-locked by callers of NCCL, write-locked by an abort */
  atomic_bool aborted;
} nccl;

static inline ncclComm_t *handles_of(const communicator *c)
{
  return c->own;
}

/* ---- nccl_forms.c --------------------------------------------------------------------------- */

/* As in peer_library. */
bool nccl_suits(const exec_call *c, uint32_t members);
int64_t nccl_scratch(const exec_call *c);
/* Operands are a row (ref/kernels/collectives.c): several are exchanged one by one only if that has
 * the same result, and each must be contiguous. Otherwise they are packed. */
bool nccl_is_direct(const exec_call *c);
int64_t nccl_row_elements(const exec_tensor *operands, uint32_t count);
/* Of a row in scratch memory. */
int64_t nccl_row_bytes(const exec_tensor *operands, uint32_t count);

/* ---- nccl_communicators.c ------------------------------------------------------------------- */

/* Why a call failed; NULL: it succeeded, or is in progress. */
const char *nccl_said(const nccl *n, ncclResult_t result, const char *call);
/* A communicator_opener; connects the ranks. */
const char *nccl_open_communicator(void *context, communicator *c, uint32_t number);

#endif
