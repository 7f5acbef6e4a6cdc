#include "cuda/calibrate/copies.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/device/clock.h"
#include "sim/base/units.h"

/* Long enough for exact shares. */
#define MANY_COPIES_PS (1000000 * PS_PER_S)

/* ---- memory ---- */

static const char *take_host(const copy_bench *b, void **memory)
{
  if (!b->pageable) return b->driver->allocate_pinned(memory, b->bytes);
  *memory = malloc((size_t)b->bytes);
  if (*memory == NULL) return "the host has no memory left";
  memset(*memory, 1, (size_t)b->bytes);
  return NULL;
}

static void give_host(const copy_bench *b, void *memory)
{
  if (memory == NULL) return;
  if (b->pageable)
    free(memory);
  else
    b->driver->release_pinned(memory);
}

static const char *take_place(const copy_bench *b, copy_place *p)
{
  const char *wrong = NULL;
  for (int i = 0; i < 2 && wrong == NULL; i++) {
    wrong = b->driver->allocate(&p->on_device[i], b->bytes);
    if (wrong == NULL) wrong = b->driver->stream_new(&p->streams[i]);
  }
  for (uint32_t i = 0; i < b->blocks && wrong == NULL; i++)
    wrong = take_host(b, &p->on_host[i]);
  return wrong;
}

static void give_place(const copy_bench *b, const copy_place *p)
{
  for (int i = 0; i < 2; i++) {
    if (p->streams[i] != NULL) b->driver->stream_delete(p->streams[i]);
    if (p->on_device[i] != NULL) b->driver->release(p->on_device[i]);
  }
  for (uint32_t i = 0; i < b->blocks; i++)
    give_host(b, p->on_host[i]);
}

void copy_bench_close(copy_bench *b)
{
  for (uint32_t g = 0; g < b->gpus; g++) {
    give_place(b, &b->places[g]);
    b->places[g] = (copy_place){ .streams = { NULL } };
  }
}

/* ---- a host thread for each GPU ---- */

typedef struct copier {
  copy_bench *bench;
  const copy_run *run; /* NULL: allocates the memory */
  uint32_t gpu;
  pthread_barrier_t *start;
  atomic_uint *done; /* number of GPUs that have finished their copies */
  int64_t taken_ps;
  const char *wrong;
} copier;

static bool goes(const copy_run *run, int direction)
{
  return run->direction == COPY_BOTH || (int)run->direction == direction;
}

/* Blocks come back half a round after they went out. */
static const char *copy_once(const copier *c, int direction, uint32_t number)
{
  const gpu_driver *g = c->bench->driver;
  const copy_place *p = &c->bench->places[c->gpu];
  uint32_t blocks = c->bench->blocks, ahead = direction == COPY_IN ? blocks / 2 : 0;
  void *device = p->on_device[direction], *host = p->on_host[(number + ahead) % blocks];
  gpu_stream *stream = p->streams[direction];
  if (direction == COPY_OUT) return g->copy(host, device, c->run->bytes, GPU_D2H, stream);
  return g->copy(device, host, c->run->bytes, GPU_H2D, stream);
}

static const char *copy_all(const copier *c, uint32_t copies)
{
  const copy_place *p = &c->bench->places[c->gpu];
  const char *wrong = NULL;
  for (uint32_t n = 0; n < copies && wrong == NULL; n++)
    for (int i = 0; i < 2 && wrong == NULL; i++)
      if (goes(c->run, i)) wrong = copy_once(c, i, n);
  for (int i = 0; i < 2 && wrong == NULL; i++)
    if (goes(c->run, i)) wrong = c->bench->driver->stream_synchronize(p->streams[i]);
  return wrong;
}

/* The first copy is not timed. A finished thread continues to copy until all have finished, so that
 * the number of copying GPUs stays the same. All threads reach the barrier, even after a
 * failure. */
static void time_own(copier *c)
{
  if (c->wrong == NULL) c->wrong = copy_all(c, 1);
  pthread_barrier_wait(c->start);
  int64_t begin_ps = clock_now_ps();
  if (c->wrong == NULL) c->wrong = copy_all(c, c->run->copies);
  c->taken_ps = clock_now_ps() - begin_ps;
  atomic_fetch_add(c->done, 1);
  while (c->wrong == NULL && atomic_load(c->done) < c->run->gpus)
    c->wrong = copy_all(c, 1);
}

static void *work_for_gpu(void *context)
{
  copier *c = context;
  c->wrong = c->bench->driver->use(c->gpu);
  if (c->run != NULL)
    time_own(c);
  else if (c->wrong == NULL)
    c->wrong = take_place(c->bench, &c->bench->places[c->gpu]);
  return NULL;
}

static bool work(copy_bench *b, const copy_run *run, copier *copiers, uint32_t gpus, diag *d)
{
  pthread_t threads[CALIBRATED_GPUS];
  pthread_barrier_t start;
  atomic_uint done = 0;
  const char *wrong = NULL;
  assert(gpus > 0 && gpus <= b->gpus && b->gpus <= CALIBRATED_GPUS);
  pthread_barrier_init(&start, NULL, gpus);
  for (uint32_t i = 0; i < gpus; i++) {
    copiers[i] = (copier){ .bench = b, .run = run, .gpu = i, .start = &start, .done = &done };
    if (pthread_create(&threads[i], NULL, work_for_gpu, &copiers[i]) != 0)
      die_refused("the system has no thread left for GPU %u", i);
  }
  for (uint32_t i = 0; i < gpus; i++) {
    pthread_join(threads[i], NULL);
    if (wrong == NULL) wrong = copiers[i].wrong;
  }
  pthread_barrier_destroy(&start);
  return wrong == NULL || diag_refused(d, "copies between GPU and host: %s", wrong);
}

bool copy_bench_open(copy_bench *b, diag *d)
{
  copier copiers[CALIBRATED_GPUS];
  return work(b, NULL, copiers, b->gpus, d);
}

/* One GPU's bytes over the mean of all rates, because rates are what is measured. */
static int64_t harmonic_mean_ps(const copier *copiers, uint32_t count)
{
  int64_t rates = 0;
  for (uint32_t i = 0; i < count; i++)
    rates += MANY_COPIES_PS / max_i64(1, copiers[i].taken_ps);
  return muldiv_i64(MANY_COPIES_PS, count, max_i64(1, rates));
}

bool time_copies(copy_bench *b, const copy_run *run, int64_t *ps, diag *d)
{
  copier copiers[CALIBRATED_GPUS];
  assert(run->bytes <= b->bytes);
  if (!work(b, run, copiers, run->gpus, d)) return false;
  *ps = run->gpus == 1 ? copiers[0].taken_ps : harmonic_mean_ps(copiers, run->gpus);
  return true;
}

bool copy_rate(copy_bench *b, const copy_run *run, int64_t *bytes_per_us, diag *d)
{
  int64_t ps, ways = run->direction == COPY_BOTH ? 2 : 1;
  if (!time_copies(b, run, &ps, d)) return false;
  int64_t bytes = run->bytes * run->copies * run->gpus * ways;
  *bytes_per_us = max_i64(1, muldiv_i64(bytes, PS_PER_US, max_i64(1, ps)));
  return true;
}

/* ---- peers ---- */

static const char *copy_to_peer(const peer_run *run, void *const memory[2], gpu_stream *stream,
                                int64_t *ps)
{
  const gpu_driver *g = run->driver;
  const char *wrong = g->copy(memory[1], memory[0], run->bytes, GPU_D2D, stream);
  if (wrong == NULL) wrong = g->stream_synchronize(stream);
  int64_t begin = clock_now_ps();
  for (uint32_t i = 0; i < run->copies && wrong == NULL; i++)
    wrong = g->copy(memory[1], memory[0], run->bytes, GPU_D2D, stream);
  if (wrong == NULL) wrong = g->stream_synchronize(stream);
  *ps = clock_now_ps() - begin;
  return wrong;
}

bool time_peer_copies(const peer_run *run, int64_t *ps, diag *d)
{
  const gpu_driver *g = run->driver;
  const uint32_t devices[] = { run->from, run->to };
  void *memory[2] = { NULL, NULL };
  gpu_stream *stream = NULL;
  const char *wrong = g->connect(devices, 2);
  for (int i = 1; i >= 0 && wrong == NULL; i--) {
    wrong = g->use(devices[i]);
    if (wrong == NULL) wrong = g->allocate(&memory[i], run->bytes);
  }
  if (wrong == NULL) wrong = g->stream_new(&stream);
  if (wrong == NULL) wrong = copy_to_peer(run, memory, stream, ps);
  if (stream != NULL) g->stream_delete(stream);
  for (int i = 0; i < 2; i++)
    if (memory[i] != NULL) g->release(memory[i]);
  return wrong == NULL ||
         diag_refused(d, "copies between GPUs %u and %u: %s", run->from, run->to, wrong);
}
