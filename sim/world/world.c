#include "sim/world/world.h"

#include <stdlib.h>

static world here = { .processes = 1, .host_processes = 1 };

world world_of(void)
{
  return here;
}

uint32_t world_owner(uint32_t rank, uint32_t ranks)
{
  return (uint32_t)((uint64_t)rank * here.processes / ranks);
}

bool world_has(uint32_t rank, uint32_t ranks)
{
  return world_owner(rank, ranks) == here.number;
}

/* Environment variables of the launchers of Open MPI, and of MPICH and Slurm. */
static bool is_launched(void)
{
  static const char *const sizes[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE" };
  bool launched = false;
  for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    const char *size = getenv(sizes[i]);
    launched |= size != NULL && strtol(size, NULL, 10) > 1;
  }
  return launched;
}

#ifdef OFFSIM_WITH_MPI

#include <mpi.h>

enum { MOST_BYTES = 1 << 30 }; /* MPI counts in int */

bool world_open(diag *d)
{
  int given, size, rank, on_host, host_size;
  MPI_Comm host;
  if (!is_launched()) return true;
  if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &given) != MPI_SUCCESS)
    return diag_refused(d, "MPI does not start");
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host);
  MPI_Comm_rank(host, &on_host);
  MPI_Comm_size(host, &host_size);
  MPI_Comm_free(&host);
  here = (world){ (uint32_t)size, (uint32_t)rank, (uint32_t)on_host, (uint32_t)host_size };
  if (size > 1 && given < MPI_THREAD_MULTIPLE)
    return diag_refused(d, "this MPI does not support calls from several threads");
  return true;
}

void world_close(void)
{
  int begun = 0;
  MPI_Initialized(&begun);
  if (!begun) return;
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
}

void world_broadcast(void *data, int64_t bytes, uint32_t from)
{
  char *next = data;
  for (; here.processes > 1 && bytes > 0; next += MOST_BYTES, bytes -= MOST_BYTES)
    MPI_Bcast(next, (int)(bytes < MOST_BYTES ? bytes : MOST_BYTES), MPI_BYTE, (int)from,
              MPI_COMM_WORLD);
}

void world_add(int64_t *numbers, uint32_t count)
{
  if (here.processes > 1)
    MPI_Allreduce(MPI_IN_PLACE, numbers, (int)count, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
}

struct world_communicator {
  MPI_Comm communicator;
};

world_communicator *world_communicator_new(const uint32_t *processes, uint32_t count, uint32_t tag)
{
  MPI_Group all, some;
  world_communicator *c = calloc(1, sizeof *c);
  int *numbers = calloc(count, sizeof *numbers);
  if (c == NULL || numbers == NULL) die_refused("no memory for %u processes", count);
  for (uint32_t i = 0; i < count; i++)
    numbers[i] = (int)processes[i];
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  MPI_Group_incl(all, (int)count, numbers, &some);
  MPI_Comm_create_group(MPI_COMM_WORLD, some, (int)tag, &c->communicator);
  MPI_Group_free(&some);
  MPI_Group_free(&all);
  free(numbers);
  return c;
}

void world_communicator_delete(world_communicator *c)
{
  MPI_Comm_free(&c->communicator);
  free(c);
}

void world_gather(world_communicator *c, const void *own, int64_t bytes, void *all)
{
  MPI_Allgather(own, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, c->communicator);
}

void world_exchange(world_communicator *c, const world_message *messages, uint32_t count)
{
  MPI_Request *requests = calloc(count, sizeof *requests);
  if (requests == NULL) die_refused("no memory for %u messages", count);
  for (uint32_t i = 0; i < count; i++) {
    const world_message *m = &messages[i];
    if (m->sends)
      MPI_Isend(m->data, (int)m->bytes, MPI_BYTE, (int)m->peer, 0, c->communicator, &requests[i]);
    else
      MPI_Irecv(m->data, (int)m->bytes, MPI_BYTE, (int)m->peer, 0, c->communicator, &requests[i]);
  }
  MPI_Waitall((int)count, requests, MPI_STATUSES_IGNORE);
  free(requests);
}

void world_abort(int status)
{
  if (here.processes > 1) MPI_Abort(MPI_COMM_WORLD, status);
  exit(status);
}

#else

bool world_open(diag *d)
{
  return !is_launched() ||
         diag_refused(d, "mpirun started offsim, but it was built without MPI: install MPI with "
                         "its headers and run `gn gen` with use_mpi=true");
}

void world_close(void)
{
}

void world_broadcast(void *data, int64_t bytes, uint32_t from)
{
  (void)data;
  (void)bytes;
  (void)from;
}

void world_add(int64_t *numbers, uint32_t count)
{
  (void)numbers;
  (void)count;
}

void world_abort(int status)
{
  exit(status);
}

#endif
