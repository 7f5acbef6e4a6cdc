#include "cuda/calibrate/copies.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sim/base/units.h"

int64_t clock_now_ps(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * PS_PER_S + (int64_t)t.tv_nsec * PS_PER_NS;
}

/* What one GPU copies between: [0] out, [1] in. */
typedef struct copier {
  const copy_run *run;
  uint32_t device;
  pthread_barrier_t *start;
  void *on_device[2], *on_host[2];
  gpu_stream *streams[2];
  int64_t begin_ps, end_ps;
  const char *wrong;
} copier;

static bool goes(const copy_run *run, int direction)
{
  return run->direction == COPY_BOTH || (int)run->direction == direction;
}

static const char *allocate_host(const copy_run *run, void **memory)
{
  if (!run->pageable) return run->driver->allocate_pinned(memory, run->bytes);
  *memory = malloc((size_t)run->bytes);
  if (*memory == NULL) return "the host has no memory left";
  memset(*memory, 1, (size_t)run->bytes);
  return NULL;
}

static void release_host(const copy_run *run, void *memory)
{
  if (memory == NULL) return;
  if (run->pageable)
    free(memory);
  else
    run->driver->release_pinned(memory);
}

static const char *prepare(copier *c)
{
  const gpu_driver *g = c->run->driver;
  const char *wrong = g->use(c->device);
  for (int i = 0; i < 2 && wrong == NULL; i++) {
    if (!goes(c->run, i)) continue;
    wrong = g->allocate(&c->on_device[i], c->run->bytes);
    if (wrong == NULL) wrong = allocate_host(c->run, &c->on_host[i]);
    if (wrong == NULL) wrong = g->stream_new(&c->streams[i]);
  }
  return wrong;
}

static const char *copy_once(copier *c, int direction)
{
  const gpu_driver *g = c->run->driver;
  if (direction == COPY_OUT)
    return g->copy(c->on_host[0], c->on_device[0], c->run->bytes, GPU_D2H, c->streams[0]);
  return g->copy(c->on_device[1], c->on_host[1], c->run->bytes, GPU_H2D, c->streams[1]);
}

static const char *copy_all(copier *c, uint32_t copies)
{
  const char *wrong = NULL;
  for (uint32_t n = 0; n < copies && wrong == NULL; n++)
    for (int i = 0; i < 2 && wrong == NULL; i++)
      if (goes(c->run, i)) wrong = copy_once(c, i);
  for (int i = 0; i < 2 && wrong == NULL; i++)
    if (goes(c->run, i)) wrong = c->run->driver->stream_synchronize(c->streams[i]);
  return wrong;
}

static void release(copier *c)
{
  const gpu_driver *g = c->run->driver;
  for (int i = 0; i < 2; i++) {
    if (c->streams[i] != NULL) g->stream_delete(c->streams[i]);
    if (c->on_device[i] != NULL) g->release(c->on_device[i]);
    release_host(c->run, c->on_host[i]);
  }
}

/* The first copy is not timed. All threads come to the barrier, whatever has gone wrong. */
static void *copy_on_gpu(void *context)
{
  copier *c = context;
  c->wrong = prepare(c);
  if (c->wrong == NULL) c->wrong = copy_all(c, 1);
  pthread_barrier_wait(c->start);
  c->begin_ps = clock_now_ps();
  if (c->wrong == NULL) c->wrong = copy_all(c, c->run->copies);
  c->end_ps = clock_now_ps();
  release(c);
  return NULL;
}

static int64_t longest(const copier *copiers, uint32_t count)
{
  int64_t begin = copiers[0].begin_ps, end = copiers[0].end_ps;
  for (uint32_t i = 1; i < count; i++) {
    begin = min_i64(begin, copiers[i].begin_ps);
    end = max_i64(end, copiers[i].end_ps);
  }
  return end - begin;
}

enum { MOST_GPUS = 64 };

bool time_copies(const copy_run *run, int64_t *ps, diag *d)
{
  copier copiers[MOST_GPUS];
  pthread_t threads[MOST_GPUS];
  pthread_barrier_t start;
  const char *wrong = NULL;
  assert(run->gpus > 0 && run->gpus <= MOST_GPUS);
  pthread_barrier_init(&start, NULL, run->gpus);
  for (uint32_t i = 0; i < run->gpus; i++) {
    copiers[i] = (copier){ .run = run, .device = i, .start = &start };
    if (pthread_create(&threads[i], NULL, copy_on_gpu, &copiers[i]) != 0)
      die_refused("the system has no thread left for GPU %u", i);
  }
  for (uint32_t i = 0; i < run->gpus; i++) {
    pthread_join(threads[i], NULL);
    if (wrong == NULL) wrong = copiers[i].wrong;
  }
  pthread_barrier_destroy(&start);
  *ps = longest(copiers, run->gpus);
  return wrong == NULL || diag_refused(d, "copies between GPU and host: %s", wrong);
}

/* ---- peers ----------------------------------------------------------------------------------- */

static const char *copy_to_peer(const copy_run *run, void *const memory[2], gpu_stream *stream,
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

bool time_peer_copies(const copy_run *run, uint32_t from, uint32_t to, int64_t *ps, diag *d)
{
  const gpu_driver *g = run->driver;
  const uint32_t devices[] = { from, to };
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
  return wrong == NULL || diag_refused(d, "copies between GPUs %u and %u: %s", from, to, wrong);
}
