/*
 * The processes that one run is spread over, as mpirun starts them: `mpirun -n 8 offsim run ...`.
 * Each has a part of the ranks, and all of them do the same: whoever needs what another process has
 * gets it by a broadcast that all take part in, in the same order.
 *
 * A program that mpirun has not started is a world of one process, and MPI is not begun.
 */
#ifndef OFFSIM_CUDA_WORLD_WORLD_H
#define OFFSIM_CUDA_WORLD_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/diag.h"

typedef struct world {
  uint32_t processes, number; /* of all; which of them this is */
  uint32_t on_host;           /* which it is of those on this host: the GPUs it takes */
} world;

/* Once, at the begin of the program. False after a diag refusal: mpirun has started it, but it was
 * built without MPI. */
bool world_open(diag *d);
/* At its end, if all has gone well. */
void world_close(void);
/* The world, after world_open; before, or without it, one process. */
world world_of(void);

/* Ranks are dealt out in blocks: who has rank `rank` of `ranks`. */
uint32_t world_owner(uint32_t rank, uint32_t ranks);
bool world_has(uint32_t rank, uint32_t ranks);

/* `data` of process `from` becomes everybody's. One thread of a process at a time. */
void world_broadcast(void *data, int64_t bytes, uint32_t from);
/* Numbers become their sums over all processes. */
void world_add(int64_t *numbers, uint32_t count);

/* ---- some processes: for streams that are threads of the CPU -------------------------------- */

#ifdef OFFSIM_WITH_MPI

/* Each is used by one thread at a time of a process, and is called by all of its processes in the
 * same order. Messages have up to 2^31 - 1 bytes. */
typedef struct world_communicator world_communicator;

/* By those processes alone; `tag` tells communicators apart that are made at the same time. */
world_communicator *world_communicator_new(const uint32_t *processes, uint32_t count, uint32_t tag);
void world_communicator_delete(world_communicator *c);
/* `bytes` of each, one after the other. */
void world_gather(world_communicator *c, const void *own, int64_t bytes, void *all);

typedef struct world_message {
  uint32_t peer; /* number in the communicator */
  bool sends;
  void *data;
  int64_t bytes;
} world_message;
void world_exchange(world_communicator *c, const world_message *messages, uint32_t count);

#endif

/* Ends all processes. After the reason has been told. */
void world_abort(int status) __attribute__((noreturn));

#endif
