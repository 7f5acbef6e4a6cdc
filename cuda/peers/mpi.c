/*
 * Processes without GPUs exchange by MPI: see peer_library.h. For exact arithmetic, too: a member
 * gathers the operands of all, computes for all, and keeps its own results.
 *
 * A process has one rank, so it has one MPI communicator for each communicator.
 */
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/peers/communicators.h"
#include "cuda/peers/peer_library.h"
#include "sim/world/world.h"

#ifdef OFFSIM_WITH_MPI

typedef struct mpi_peers {
  exchange_setup setup;
  communicators communicators; /* `own`: world_communicator; NULL: the process is not a member */
  gpu_stream *side;            /* computes collectives while their stream waits */
  pthread_mutex_t computing;
} mpi_peers;

/* ---- from open to release -------------------------------------------------------------------- */

static const char *open_communicator(void *context, communicator *c, uint32_t number)
{
  const mpi_peers *p = context;
  uint32_t ranks = p->setup.layout->rank_count;
  uint32_t *processes = calloc(c->count, sizeof *processes);
  bool here = false;
  assert(c->own == NULL && c->count > 0);
  if (processes == NULL) die_refused("no memory for %u processes", c->count);
  for (uint32_t i = 0; i < c->count; i++) {
    processes[i] = world_owner(c->ranks[i], ranks);
    here |= world_has(c->ranks[i], ranks);
  }
  if (here) c->own = world_communicator_new(processes, c->count, number);
  free(processes);
  return NULL;
}

static void release(void *peers)
{
  mpi_peers *p = peers;
  for (uint32_t i = 0; i < p->communicators.count; i++)
    if (p->communicators.items[i].own != NULL)
      world_communicator_delete(p->communicators.items[i].own);
  communicators_release(&p->communicators);
  if (p->side != NULL) p->setup.driver->stream_delete(p->side);
  pthread_mutex_destroy(&p->computing);
  free(p);
}

static void *open_peers(const exchange_setup *setup, diag *d)
{
  if (world_of().processes != setup->layout->rank_count) {
    diag_refused(d, "without GPUs each process has one rank: there are %u for %u ranks",
                 world_of().processes, setup->layout->rank_count);
    return NULL;
  }
  mpi_peers *p = calloc(1, sizeof *p);
  if (p == NULL) die_refused("no memory for MPI's communicators");
  p->setup = *setup;
  communicators_begin(&p->communicators, setup->layout);
  p->communicators.open = open_communicator;
  p->communicators.context = p;
  pthread_mutex_init(&p->computing, NULL);
  const char *failure = setup->driver->stream_new(&p->side);
  if (failure == NULL) return p;
  diag_refused(d, "MPI: %s", failure);
  release(p);
  return NULL;
}

static bool prepare(void *peers, const plan *of, const stage *stages, diag *d)
{
  mpi_peers *p = peers;
  const char *failure = communicators_prepare(&p->communicators, of, stages);
  return failure == NULL || diag_refused(d, "MPI: %s", failure);
}

static int64_t bytes_of(const void *peers, uint32_t rank)
{
  (void)peers;
  (void)rank;
  return 0;
}

static bool suits(const exec_call *c, uint32_t members)
{
  (void)c;
  return members > 1;
}

/* Streams wait in MPI's calls, which end only with the process. */
static void abort_all(void *peers)
{
  (void)peers;
}

/* ---- collectives ----------------------------------------------------------------------------- */

/* A member for the others' computation: its reads with their shapes, and writes that are
 * discarded. */
typedef struct image {
  exec_call of;
  cuda_call call;
  exec_tensor *operands;
} image;

typedef struct collective_task {
  mpi_peers *peers;
  const communicator *communicator;
  uint32_t own; /* number in the communicator */
  cuda_call call;
  exec_call of;
  exec_tensor *operands;
} collective_task;

static int64_t reach_bytes(const exec_tensor *t)
{
  int64_t last = 0, elements = 1;
  for (int d = 0; d < t->rank; d++) {
    last += (t->shape[d] - 1) * t->strides[d];
    elements *= t->shape[d];
  }
  return elements == 0 ? 0 : (last + 1) * dtype_bytes((dtype)t->type);
}

static void *room_for(int64_t bytes)
{
  assert(bytes >= 0);
  void *room = malloc(bytes > 0 ? (size_t)bytes : 1);
  if (room == NULL) die_refused("no memory for %lld bytes of an exchange", (long long)bytes);
  return room;
}

/* Allocates operand `k` of all other members, and gathers reads into it. Returns the memory of
 * all. */
static char *gather_operand(const collective_task *t, image *images, uint32_t k)
{
  int64_t bytes = reach_bytes(&t->operands[k]);
  assert(t->own < t->communicator->count);
  char *all = room_for(bytes * t->communicator->count);
  if (k < t->of.read_count) world_gather(t->communicator->own, t->operands[k].data, bytes, all);
  for (uint32_t i = 0; i < t->communicator->count; i++)
    if (i != t->own) images[i].operands[k].data = all + i * bytes;
  return all;
}

static image image_of(const collective_task *t, uint32_t rank)
{
  assert(rank < t->peers->setup.layout->rank_count);
  uint32_t count = t->of.read_count + t->of.write_count;
  image i = { .of = t->of, .call = t->call };
  i.operands = room_for(count * (int64_t)sizeof *i.operands);
  memcpy(i.operands, t->operands, count * sizeof *i.operands);
  i.of.reads = i.operands;
  i.of.writes = i.operands + t->of.read_count;
  i.of.rank = &t->peers->setup.layout->ranks[rank];
  i.call.stream = t->peers->side;
  /* One process represents all. */
  if (t->own != 0) i.call.left_out = NULL;
  return i;
}

static void compute(const collective_task *t, image *images)
{
  uint32_t count = t->communicator->count;
  assert(t->of.call->kind < COLLECTIVE_KINDS && t->own < count);
  cuda_call **calls = room_for(count * (int64_t)sizeof *calls);
  for (uint32_t i = 0; i < count; i++) {
    images[i].call.of = &images[i].of;
    calls[i] = &images[i].call;
  }
  pthread_mutex_lock(&t->peers->computing);
  t->peers->setup.collectives[t->of.call->kind].launch(calls, count);
  (void)t->peers->setup.driver->stream_synchronize(t->peers->side);
  pthread_mutex_unlock(&t->peers->computing);
  if (calls[0]->failure != NULL) die_refused("an exchange by MPI: %s", calls[0]->failure);
  free(calls);
}

static void run_collective(void *context)
{
  collective_task *t = context;
  uint32_t count = t->communicator->count, operands = t->of.read_count + t->of.write_count;
  image *images = room_for(count * (int64_t)sizeof *images);
  char **rooms = room_for(operands * (int64_t)sizeof *rooms);
  for (uint32_t i = 0; i < count; i++)
    images[i] = image_of(t, t->communicator->ranks[i]);
  for (uint32_t k = 0; k < operands; k++)
    rooms[k] = gather_operand(t, images, k);
  compute(t, images);
  for (uint32_t k = 0; k < operands; k++)
    free(rooms[k]);
  for (uint32_t i = 0; i < count; i++)
    free(images[i].operands);
  free(rooms);
  free(images);
  free(t->operands);
  free(t);
}

static const char *collective(void *peers, uint32_t rank, uint32_t number, const cuda_call *c)
{
  mpi_peers *p = peers;
  collective_task *t = room_for(sizeof *t);
  uint32_t reads = c->of->read_count, count = reads + c->of->write_count;
  const communicator *who = communicators_find(&p->communicators, rank, c->of->call->group, number);
  assert(who->own != NULL && "this process is a member");
  *t = (collective_task){ p, who, communicator_rank(who, rank), *c, *c->of, NULL };
  t->operands = room_for(count * (int64_t)sizeof *t->operands);
  for (uint32_t i = 0; i < count; i++)
    t->operands[i] = i < reads ? c->of->reads[i] : c->of->writes[i - reads];
  return p->setup.driver->call(run_collective, t, c->stream);
}

/* ---- messages -------------------------------------------------------------------------------- */

typedef struct exchange_task {
  world_communicator *communicator;
  uint32_t count;
  world_message messages[];
} exchange_task;

static void run_exchange(void *context)
{
  exchange_task *t = context;
  assert(t->communicator != NULL && t->count > 0);
  world_exchange(t->communicator, t->messages, t->count);
  free(t);
}

static const char *exchange_messages(void *peers, uint32_t rank, uint32_t number,
                                     const peer_message *messages, uint32_t count,
                                     gpu_stream *stream)
{
  mpi_peers *p = peers;
  const communicator *c = communicators_find(&p->communicators, rank, FOR_MESSAGES, number);
  exchange_task *t = room_for((int64_t)(sizeof *t + count * sizeof *t->messages));
  assert(c->own != NULL && "this process is a member");
  t->communicator = c->own;
  t->count = count;
  for (uint32_t i = 0; i < count; i++)
    t->messages[i] = (world_message){ communicator_rank(c, messages[i].peer), messages[i].sends,
                                      messages[i].data, messages[i].bytes };
  return p->setup.driver->call(run_exchange, t, stream);
}

const peer_library peer_library_mpi = {
  .open = open_peers,
  .release = release,
  .prepare = prepare,
  .bytes = bytes_of,
  .suits = suits,
  .collective = collective,
  .exchange = exchange_messages,
  .abort = abort_all,
};

#endif
