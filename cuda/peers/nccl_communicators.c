/* Communicators of NCCL, and first exchanges, in which hosts wait for each other. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "cuda/device/failure.h"
#include "cuda/peers/nccl_state.h"
#include "sim/world/world.h"

const char *nccl_said(const nccl *n, ncclResult_t result, const char *call)
{
  assert(call != NULL);
  if (result == ncclSuccess || result == ncclInProgress) return NULL;
  return gpu_failure("%s: %s", call, n->f.ncclGetErrorString(result));
}

/* Other processes open the others. */
static bool is_here(const nccl *n, const communicator *c, uint32_t i)
{
  return world_has(c->ranks[i], n->setup.layout->rank_count);
}

static bool anybody_is_here(const nccl *n, const communicator *c)
{
  for (uint32_t i = 0; i < c->count; i++)
    if (is_here(n, c, i)) return true;
  return false;
}

/* All processes get the id that the first rank's process created. */
static const char *share_id(const nccl *n, const communicator *c, ncclUniqueId *id)
{
  uint32_t owner = world_owner(c->ranks[0], n->setup.layout->rank_count);
  const char *failure = NULL;
  if (owner == world_of().number)
    failure = nccl_said(n, n->f.ncclGetUniqueId(id), "ncclGetUniqueId");
  world_broadcast(id, sizeof *id, owner);
  return failure;
}

static const char *connect(nccl *n, communicator *c)
{
  ncclUniqueId id;
  const char *failure = share_id(n, c, &id);
  if (failure != NULL || !anybody_is_here(n, c)) return failure;
  failure = nccl_said(n, n->f.ncclGroupStart(), "ncclGroupStart");
  for (uint32_t i = 0; i < c->count && failure == NULL; i++) {
    if (!is_here(n, c, i)) continue;
    assert(handles_of(c)[i] == NULL && "a communicator is opened once");
    failure = n->setup.driver->use(n->setup.gpu_of[c->ranks[i]]);
    if (failure == NULL)
      failure = nccl_said(n, n->f.ncclCommInitRank(&handles_of(c)[i], (int)c->count, id, (int)i),
                          "ncclCommInitRank");
  }
  const char *end = nccl_said(n, n->f.ncclGroupEnd(), "ncclGroupEnd of ncclCommInitRank");
  return failure != NULL ? failure : end;
}

/* A rank of the communicator while its peers are connected. */
typedef struct greeter {
  gpu_stream *stream;
  void *memory; /* a byte for each peer to send, then to receive; room for a sum */
} greeter;

static const char *greet(nccl *n, const communicator *c, uint32_t i, const greeter *g)
{
  cudaStream_t stream = (cudaStream_t)(void *)g->stream;
  char *sent = g->memory, *received = sent + c->count;
  assert(i < c->count && sent != NULL && handles_of(c)[i] != NULL);
  const char *failure = n->setup.driver->use(n->setup.gpu_of[c->ranks[i]]);
  for (uint32_t peer = 0; peer < c->count && failure == NULL; peer++) {
    if (peer == i) continue;
    failure =
        nccl_said(n, n->f.ncclSend(sent + peer, 1, ncclUint8, (int)peer, handles_of(c)[i], stream),
                  "ncclSend");
    if (failure == NULL)
      failure = nccl_said(
          n, n->f.ncclRecv(received + peer, 1, ncclUint8, (int)peer, handles_of(c)[i], stream),
          "ncclRecv");
  }
  return failure;
}

static const char *add_up(nccl *n, const communicator *c, uint32_t i, const greeter *g)
{
  assert(i < c->count && g->memory != NULL && handles_of(c)[i] != NULL);
  const char *failure = n->setup.driver->use(n->setup.gpu_of[c->ranks[i]]);
  if (failure != NULL) return failure;
  return nccl_said(n,
                   n->f.ncclAllReduce(g->memory, g->memory, 1, ncclUint8, ncclSum, handles_of(c)[i],
                                      (cudaStream_t)(void *)g->stream),
                   "ncclAllReduce");
}

typedef const char *greeting(nccl *n, const communicator *c, uint32_t i, const greeter *g);

static const char *together(nccl *n, const communicator *c, greeting *each, const greeter *greeters)
{
  const char *failure = nccl_said(n, n->f.ncclGroupStart(), "ncclGroupStart");
  for (uint32_t i = 0; i < c->count && failure == NULL; i++)
    if (is_here(n, c, i)) failure = each(n, c, i, &greeters[i]);
  const char *end = nccl_said(n, n->f.ncclGroupEnd(), "ncclGroupEnd of the first exchange");
  return failure != NULL ? failure : end;
}

static const char *greeter_begin(const nccl *n, const communicator *c, uint32_t i, greeter *g)
{
  assert(i < c->count && g->stream == NULL && g->memory == NULL);
  const char *failure = n->setup.driver->use(n->setup.gpu_of[c->ranks[i]]);
  if (failure == NULL) failure = n->setup.driver->stream_new(&g->stream);
  if (failure == NULL) failure = n->setup.driver->allocate(&g->memory, 2 * (int64_t)c->count);
  return failure;
}

static const char *greeter_end(const nccl *n, const communicator *c, uint32_t i, const greeter *g)
{
  const gpu_driver *driver = n->setup.driver;
  const char *failure = driver->use(n->setup.gpu_of[c->ranks[i]]);
  if (failure == NULL && g->stream != NULL) {
    failure = driver->stream_synchronize(g->stream);
    driver->stream_delete(g->stream);
  }
  const char *released = g->memory == NULL ? NULL : driver->release(g->memory);
  return failure != NULL ? failure : released;
}

/* NCCL connects two ranks at their first exchange, in which the first host waits for the other. */
static const char *connect_peers(nccl *n, const communicator *c)
{
  const char *failure = NULL;
  greeter *greeters = calloc(c->count, sizeof *greeters);
  if (greeters == NULL) die_refused("no memory for %" PRIu32 " ranks", c->count);
  for (uint32_t i = 0; i < c->count && failure == NULL; i++)
    if (is_here(n, c, i)) failure = greeter_begin(n, c, i, &greeters[i]);
  if (failure == NULL) failure = together(n, c, greet, greeters);
  if (failure == NULL) failure = together(n, c, add_up, greeters);
  for (uint32_t i = 0; i < c->count; i++) {
    const char *end = is_here(n, c, i) ? greeter_end(n, c, i, &greeters[i]) : NULL;
    if (failure == NULL) failure = end;
  }
  free(greeters);
  return failure;
}

/* Adds the loss of free memory of the ranks' GPUs; `sign` -1 before, 1 after. */
static const char *count_bytes(nccl *n, const communicator *c, int sign)
{
  const char *failure = NULL;
  assert(sign == 1 || sign == -1);
  for (uint32_t i = 0; i < c->count && failure == NULL; i++) {
    int64_t available = 0, total = 0;
    if (!is_here(n, c, i)) continue;
    failure = n->setup.driver->memory(n->setup.gpu_of[c->ranks[i]], &available, &total);
    n->bytes[c->ranks[i]] += sign * (total - available);
  }
  return failure;
}

const char *nccl_open_communicator(void *context, communicator *c, uint32_t number)
{
  nccl *n = context;
  (void)number;
  assert(c->own == NULL && c->count > 1);
  c->own = calloc(c->count, sizeof(ncclComm_t));
  if (c->own == NULL) die_refused("no memory for %" PRIu32 " communicators", c->count);
  const char *failure = count_bytes(n, c, -1);
  if (failure == NULL) failure = connect(n, c);
  if (failure == NULL && anybody_is_here(n, c)) failure = connect_peers(n, c);
  if (failure == NULL) failure = count_bytes(n, c, 1);
  return failure;
}
