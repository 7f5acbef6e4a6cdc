/*
 * The part of NCCL that offsim calls, as NCCL's header declares it since 2.7: not every CUDA
 * toolkit has that header, and NCCL is not linked (cuda/libraries/library.h).
 */
#ifndef OFFSIM_CUDA_PEERS_NCCL_API_H
#define OFFSIM_CUDA_PEERS_NCCL_API_H

#include <cuda_runtime_api.h>
#include <stddef.h>

typedef struct ncclComm *ncclComm_t;

typedef struct ncclUniqueId {
  char internal[128];
} ncclUniqueId;

typedef enum ncclResult_t { ncclSuccess = 0, ncclInProgress = 7 } ncclResult_t;

typedef enum ncclRedOp_t { ncclSum = 0, ncclMax = 2 } ncclRedOp_t;

typedef enum ncclDataType_t {
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt64 = 4,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9
} ncclDataType_t;

const char *ncclGetErrorString(ncclResult_t result);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRank(ncclComm_t *handle, int ranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommDestroy(ncclComm_t handle);
ncclResult_t ncclCommAbort(ncclComm_t handle);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
/* Counts are elements: of one rank's part where parts are gathered or scattered. */
ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t reduction, ncclComm_t handle, cudaStream_t stream);
ncclResult_t ncclAllGather(const void *from, void *to, size_t sent, ncclDataType_t type,
                           ncclComm_t handle, cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void *from, void *to, size_t received, ncclDataType_t type,
                               ncclRedOp_t reduction, ncclComm_t handle, cudaStream_t stream);
ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t handle, cudaStream_t stream);
ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t handle,
                      cudaStream_t stream);

#endif
