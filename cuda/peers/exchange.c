#include "cuda/peers/exchange.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda/peers/exchange_state.h"

/* ---- from begin to end ----------------------------------------------------------------------- */

static void *zeros(size_t count, size_t size)
{
  assert(size > 0);
  void *items = calloc(count > 0 ? count : 1, size);
  if (items == NULL) die_refused("no memory for %zu bytes of an exchange", count * size);
  return items;
}

static bool connect(const exchange_setup *setup, diag *d)
{
  uint32_t count = setup->layout->rank_count;
  assert(count > 0);
  uint32_t *gpus = zeros(count, sizeof *gpus), different = 0;
  for (uint32_t i = 0; i < count; i++) {
    bool known = !world_has(i, count);
    for (uint32_t k = 0; k < different; k++)
      known |= gpus[k] == setup->gpu_of[i];
    if (!known) gpus[different++] = setup->gpu_of[i];
  }
  const char *failure = setup->driver->connect(gpus, different);
  free(gpus);
  return failure == NULL || diag_refused(d, "ranks exchange data between GPUs: %s", failure);
}

static const peer_library *library_of(const exchange_setup *setup)
{
#ifdef OFFSIM_WITH_MPI
  if (is_spread() && setup->driver == &gpu_driver_host) return &peer_library_mpi;
#endif
#ifdef OFFSIM_WITH_CUDA
  if (setup->nccl) return &peer_library_nccl;
#endif
  (void)setup;
  return NULL;
}

static bool open_library(exchange *x, diag *d)
{
  assert(x->library == NULL && x->peers == NULL);
  x->library = library_of(&x->setup);
  if (x->library == NULL && is_spread())
    return diag_refused(d, "processes exchange data only by NCCL, which needs fast arithmetic and "
                           "a GPU for each rank");
  if (x->library == NULL) return true;
  x->peers = x->library->open(&x->setup, d);
  return x->peers != NULL;
}

exchange *exchange_new(const exchange_setup *setup, diag *d)
{
  if (!connect(setup, d)) return NULL;
  exchange *x = zeros(1, sizeof *x);
  x->setup = *setup;
  x->ranks = zeros(setup->layout->rank_count, sizeof *x->ranks);
  pthread_mutex_init(&x->lock, NULL);
  if (open_library(x, d)) return x;
  x->library = NULL;
  exchange_release(x);
  return NULL;
}

static void forget_rendezvous(exchange *x)
{
  for (uint32_t i = 0; i < x->rendezvous.count; i++)
    rendezvous_release(x->rendezvous.items[i]);
  x->rendezvous.count = 0;
}

void exchange_release(exchange *x)
{
  if (x == NULL) return;
  uint32_t ranks = x->setup.layout->rank_count;
  for (uint32_t i = 0; i < ranks; i++)
    lanes_synchronize(x, i);
  atomic_store(&x->released, true);
  assert(!x->opener_runs || atomic_load(&x->stopped));
  if (x->opener_runs) pthread_join(x->opener, NULL);
  if (x->library != NULL) x->library->release(x->peers);
  for (uint32_t i = 0; i < ranks; i++) {
    gates_release(x, i);
    for (uint32_t s = 0; s < DEVICE_STREAMS; s++)
      ARRAY_FREE(&x->ranks[i].pending[s]);
  }
  forget_rendezvous(x);
  ARRAY_FREE(&x->rendezvous);
  pthread_mutex_destroy(&x->lock);
  arena_release(&x->texts);
  free(x->sides);
  free(x->ranks);
  free(x);
}

/* ---- an iteration ---------------------------------------------------------------------------- */

/* A gate that blocks a hardware queue blocks all its streams. */
static bool have_queues(const exchange *x, diag *d)
{
  uint32_t ranks = x->setup.layout->rank_count;
  if (x->setup.driver == &gpu_driver_host) return true;
  for (uint32_t i = 0; i < ranks; i++) {
    uint32_t gpu = x->setup.gpu_of[i], streams = 0, sharing = 0;
    for (uint32_t k = 0; k < ranks; k++) {
      if (x->setup.gpu_of[k] != gpu || !is_here(x, k)) continue;
      streams += streams_of(x->ranks[k].stage);
      sharing++;
    }
    if (streams > GPU_QUEUES)
      return diag_refused(d,
                          "%u ranks on GPU %u would have %u streams that wait for each other; a "
                          "GPU has queues for %d: raise --gpus",
                          sharing, gpu, streams, GPU_QUEUES);
  }
  return true;
}

static bool prepare_points(exchange *x, diag *d)
{
  const char *failure = NULL;
  for (uint32_t i = 0; i < x->setup.layout->rank_count && failure == NULL; i++)
    if (is_here(x, i)) failure = gates_prepare(x, i);
  return failure == NULL || diag_refused(d, "gates between ranks: %s", failure);
}

static void begin_rank(exchange *x, uint32_t rank, const stage *stages)
{
  rank_exchange *r = &x->ranks[rank];
  assert(x->setup.layout->ranks[rank].stage < x->plan->rank_count);
  r->stage = &stages[x->setup.layout->ranks[rank].stage];
  memset(r->collectives, 0, sizeof r->collectives);
  for (uint32_t s = 0; s < DEVICE_STREAMS; s++)
    r->pending[s].count = 0;
}

bool exchange_begin(exchange *x, const plan *p, const stage *stages, diag *d)
{
  uint32_t ranks = x->setup.layout->rank_count;
  assert(!atomic_load(&x->stopped) && "a stopped exchange stays stopped");
  assert(p->rank_count > 0 && stages != NULL);
  x->plan = p;
  for (uint32_t i = 0; i < ranks; i++)
    begin_rank(x, i, stages);
  forget_rendezvous(x);
  free(x->sides);
  x->sides = zeros((size_t)ranks * p->messages.count, sizeof *x->sides);
  return have_queues(x, d) && prepare_points(x, d) &&
         (x->library == NULL || x->library->prepare(x->peers, p, stages, d));
}

/* ---- something went wrong -------------------------------------------------------------------- */

/* Gates are compared modulo 2^32 (cuStreamWaitValue32): half of the range is the largest
 * difference. */
enum { FOR_ALL_POSTS = INT32_MAX };

static void open_gates(exchange *x)
{
  assert(atomic_load(&x->stopped) && "ranks that go on wait at their gates");
  for (uint32_t i = 0; i < x->setup.layout->rank_count; i++)
    for (uint32_t s = 0; s < DEVICE_STREAMS; s++) {
      const rendezvous_point *p = &x->ranks[i].points[s];
      if (p->slots > 0) (void)x->setup.driver->gate_open(NULL, p->arrived, FOR_ALL_POSTS);
      for (uint32_t k = 0; k < p->slots; k++)
        (void)x->setup.driver->gate_open(NULL, p->passed[k], FOR_ALL_POSTS);
    }
}

/* Repeatedly: work issued earlier may set a gate back to its own number. */
static void *keep_gates_open(void *context)
{
  exchange *x = context;
  assert(atomic_load(&x->stopped));
  const struct timespec pause = { .tv_nsec = 1000000 };
  if (x->library != NULL) x->library->abort(x->peers);
  while (!atomic_load(&x->released)) {
    open_gates(x);
    nanosleep(&pause, NULL);
  }
  return NULL;
}

void exchange_stop(exchange *x)
{
  if (atomic_exchange(&x->stopped, true)) return;
  open_gates(x);
  assert(!x->opener_runs && "only the first call gets here");
  if (pthread_create(&x->opener, NULL, keep_gates_open, x) != 0)
    die_refused("no thread to open the gates between ranks");
  x->opener_runs = true;
}

/* ---- who still waits ------------------------------------------------------------------------- */

/* By rank and stream: the first op that waits, or NO_OP. */
typedef uint32_t first_waiting[DEVICE_STREAMS];

static void keep_first(first_waiting *first, const post *p)
{
  uint32_t *of_stream = &first[p->rank][p->stream];
  assert(p->stream < DEVICE_STREAMS);
  if (p->op < *of_stream) *of_stream = p->op;
}

static void find_waiting(const exchange *x, first_waiting *first)
{
  for (uint32_t i = 0; i < x->rendezvous.count; i++)
    for (uint32_t k = 0; k < x->rendezvous.items[i]->who->count; k++) {
      const member *m = &x->rendezvous.items[i]->members[k];
      if (m->call.of != NULL) keep_first(first, &m->at);
    }
  uint32_t sides = x->setup.layout->rank_count * x->plan->messages.count;
  for (uint32_t i = 0; i < sides; i++)
    if (x->sides[i].waits) keep_first(first, &x->sides[i].at);
}

static const char *waiting_text(exchange *x, first_waiting *first)
{
  const char *all = "";
  for (uint32_t i = 0; i < x->setup.layout->rank_count; i++)
    for (uint32_t s = 0; s < DEVICE_STREAMS; s++)
      if (first[i][s] != NO_OP)
        all = arena_printf(&x->texts, "%s%s rank %u %s waits at %s", all, all[0] == '\0' ? "" : ",",
                           i, stream_name((plan_stream)s),
                           stage_op_text(x->ranks[i].stage, first[i][s], &x->texts));
  return all;
}

const char *exchange_end(exchange *x)
{
  uint32_t ranks = x->setup.layout->rank_count;
  if (atomic_load(&x->stopped)) return NULL;
  first_waiting *first = zeros(ranks, sizeof *first);
  memset(first, 0xff, ranks * sizeof *first);
  find_waiting(x, first);
  const char *all = waiting_text(x, first);
  free(first);
  if (all[0] == '\0') return NULL;
  exchange_stop(x);
  return arena_printf(&x->texts, "deadlock:%s", all);
}

int64_t exchange_outside_bytes(const exchange *x, uint32_t rank)
{
  assert(rank < x->setup.layout->rank_count);
  return x->library == NULL ? 0 : x->library->bytes(x->peers, rank);
}
