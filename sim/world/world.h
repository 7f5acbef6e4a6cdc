/*
 * The processes of a run that mpirun starts: `mpirun -n 8 offsim run ...`. Each has a part of the
 * ranks, and all of them make the same calls: data of one process reaches the others by broadcasts,
 * in which all take part in the same order.
 *
 * A program that mpirun has not started is a world of one process, without MPI.
 */
#ifndef OFFSIM_SIM_WORLD_WORLD_H
#define OFFSIM_SIM_WORLD_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/diag.h"

typedef struct world {
  uint32_t processes, number; /* number of processes; this one's number */
  uint32_t on_host;           /* its number among those on this host, which decides its GPUs */
  uint32_t host_processes;    /* number of those */
} world;

/* Call it once, at the beginning of the program. False after a diag refusal: mpirun started it, but
 * it was built without MPI. */
bool world_open(diag *d);
/* Call it at the program's end, after success or an error of which all processes know. It waits for all of
 * them: mpirun of Open MPI 4.1 may hang if one process calls world_abort while another is in MPI_Finalize. */
void world_close(void);
/* The world after world_open; before, or without it, one process. */
world world_of(void);

/* The process of rank `rank` of `ranks`: ranks are assigned in blocks. */
uint32_t world_owner(uint32_t rank, uint32_t ranks);
bool world_has(uint32_t rank, uint32_t ranks);

/* An error of MPI in any call below ends all processes. */

/* Broadcasts `data` of process `from` to all. One thread of a process at a time. */
void world_broadcast(void *data, int64_t bytes, uint32_t from);
/* Replaces numbers by their sums over all processes. */
void world_add(int64_t *numbers, uint32_t count);

/* ---- some processes: for streams that are threads of the CPU -------------------------------- */

#ifdef OFFSIM_WITH_MPI

/* A communicator of processes. One thread of a process uses it at a time, and all its processes
 * call it in the same order. Messages have up to 2^31 - 1 bytes. */
typedef struct world_communicator world_communicator;

/* Of the processes with these numbers, which alone call it; `tag` distinguishes communicators that are
 * created at the same time. The caller deletes it, before world_close. */
world_communicator *world_communicator_new(const uint32_t *processes, uint32_t count, uint32_t tag);
void world_communicator_delete(world_communicator *c);
/* Gathers `bytes` of each, one after the other, into `all`, which has room for them. */
void world_gather(world_communicator *c, const void *own, int64_t bytes, void *all);

typedef struct world_message {
  uint32_t peer; /* number in the communicator */
  bool sends;
  void *data;
  int64_t bytes;
} world_message;
/* Sends and receives all of them at once, and returns when all have ended. */
void world_exchange(world_communicator *c, const world_message *messages, uint32_t count);

#endif

/* Ends all processes, since this one fails alone. Report the reason before. */
void world_abort(int status) __attribute__((noreturn));

#endif
