/*
 * NCCL runs an exchange in turns: in its k-th turn it has the k-th message to each rank and the k-th
 * message from it, and a turn ends on both of its messages (ncclGroupEnd's schedule of ncclSend and
 * ncclRecv). An exchange of a plan has no order. So a plan can be right, and NCCL wait forever:
 *
 *     rank 0    send 0, send 1, recv 2           turns (0, 2), (1)
 *     rank 1    recv 0, recv 1; then send 2      turns (0), (1); (2)
 *
 * Rank 0 sends message 1 when it has received message 2, which rank 1 sends when it has received
 * message 1. In a pipeline both sides have the same messages in an exchange, and agree.
 */
#ifndef OFFSIM_CUDA_PEERS_TURNS_H
#define OFFSIM_CUDA_PEERS_TURNS_H

#include "sim/base/diag.h"
#include "sim/exec/stage.h"

/* Whether the sides of all exchanges agree; if not, refuses. `stages`: of all pipeline ranks. */
bool turns_agree(const plan *p, const stage *stages, diag *d);

#endif
