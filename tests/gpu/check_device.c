/*
 * The CUDA driver of cuda/device on a real GPU.
 *
 *     check_device            lists the checks
 *     check_device NAME       runs one of those that the host driver passes, too
 *     check_device blocking   which calls wait for a stream at a gate
 *     check_device costs      what calls cost the host, and gates and events the GPU
 *
 * A second argument, "gates": after expect_gates.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tests/gpu/check_kernels.h"
#include "tests/unit/gpu_checks.h"

static double now_us(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* ---- which calls wait for a stream at a gate ---- */

static const gpu_driver *const g = &gpu_driver_cuda;

typedef struct scene {
  gpu_stream *held, *free;
  gpu_event *event, *reached;
  gpu_space space;
  gpu_graph *graph;
  uint32_t *gate;
  void *device, *pinned, *pool;
} scene;

static const char *call_launch(scene *s)
{
  launch_spin(0, 1000, s->free);
  return g->last_error();
}

static const char *call_synchronize(scene *s)
{
  return g->stream_synchronize(s->free);
}

static const char *call_map(scene *s)
{
  return g->space_map(&s->space, 0, 2 << 20);
}

static const char *call_unmap(scene *s)
{
  return g->space_unmap(&s->space, 0, 2 << 20);
}

static const char *call_allocate(scene *s)
{
  return g->allocate(&s->device, 1 << 20);
}

static const char *call_release(scene *s)
{
  return g->release(s->device);
}

static const char *call_pinned(scene *s)
{
  return g->allocate_pinned(&s->pinned, 64 << 20);
}

static const char *call_release_pinned(scene *s)
{
  return g->release_pinned(s->pinned);
}

static const char *call_pool(scene *s)
{
  return g->allocate_async(&s->pool, 1 << 20, s->free);
}

static const char *call_release_pool(scene *s)
{
  return g->release_async(s->pool, s->free);
}

static const char *call_memory(scene *s)
{
  int64_t free_bytes, total;
  (void)s;
  return g->memory(0, &free_bytes, &total);
}

static const char *call_stream(scene *s)
{
  gpu_stream *more;
  (void)s;
  return g->stream_new(&more);
}

static const char *call_event(scene *s)
{
  return g->event_new(&s->event);
}

static const char *call_record(scene *s)
{
  return g->event_record(s->event, s->held);
}

static const char *call_event_delete(scene *s)
{
  g->event_delete(s->event);
  return NULL;
}

static const char *call_graph(scene *s)
{
  GPU_TRY(g->capture_begin(s->free));
  launch_spin(1, 1000, s->free);
  return g->capture_launch(s->free, &s->graph);
}

static const char *call_graph_anew(scene *s)
{
  GPU_TRY(g->capture_begin(s->free));
  launch_spin(1, 1000, s->free);
  launch_spin(1, 1000, s->free);
  return g->capture_launch(s->free, &s->graph);
}

static const char *call_pageable(scene *s)
{
  static char bytes[1 << 16];
  return g->copy(s->device, bytes, sizeof bytes, GPU_H2D, s->free);
}

static const struct {
  const char *name;
  const char *(*run)(scene *s);
} calls[] = {
  { "first launch of a kernel", call_launch },
  { "second launch", call_launch },
  { "another stream's synchronize", call_synchronize },
  { "space_map", call_map },
  { "space_unmap", call_unmap },
  { "allocate", call_allocate },
  { "copy from pageable memory", call_pageable },
  { "synchronize after it", call_synchronize },
  { "allocate_pinned", call_pinned },
  { "release_pinned", call_release_pinned },
  { "allocate_async", call_pool },
  { "release_async", call_release_pool },
  { "memory", call_memory },
  { "stream_new", call_stream },
  { "event_new", call_event },
  { "event_record on the held stream", call_record },
  { "event_delete", call_event_delete },
  { "graph made", call_graph },
  { "graph updated", call_graph },
  { "graph made anew", call_graph_anew },
  { "release", call_release },
};

enum { CALLS = sizeof calls / sizeof calls[0] };

/* Opens the gate after a second, unless the call has returned before. */
typedef struct watch {
  uint32_t *gate;
  pthread_mutex_t lock;
  pthread_cond_t over;
  int returned;
} watch;

static void *watch_gate(void *argument)
{
  watch *w = argument;
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec++;
  pthread_mutex_lock(&w->lock);
  while (!w->returned && pthread_cond_timedwait(&w->over, &w->lock, &until) == 0)
    ;
  pthread_mutex_unlock(&w->lock);
  g->gate_open(NULL, w->gate, 1);
  return NULL;
}

static const char *watch_call(scene *s, int i)
{
  pthread_t thread;
  bool passed;
  watch w = { .lock = PTHREAD_MUTEX_INITIALIZER, .over = PTHREAD_COND_INITIALIZER };
  GPU_TRY(g->gate_new(&s->gate));
  w.gate = s->gate;
  GPU_TRY(g->gate_wait(s->held, s->gate, 1));
  GPU_TRY(g->event_record(s->reached, s->held));
  pthread_create(&thread, NULL, watch_gate, &w);
  double begin = now_us();
  const char *failure = calls[i].run(s);
  double took = now_us() - begin;
  GPU_TRY(g->event_done(s->reached, &passed));
  printf("%-32s %10.1f us %s%s\n", calls[i].name, took, passed ? "BLOCKS " : "",
         failure == NULL ? "" : failure);
  pthread_mutex_lock(&w.lock);
  w.returned = 1;
  pthread_cond_signal(&w.over);
  pthread_mutex_unlock(&w.lock);
  pthread_join(thread, NULL);
  GPU_TRY(g->stream_synchronize(s->held));
  GPU_TRY(g->stream_synchronize(s->free));
  g->gate_delete(s->gate);
  return NULL;
}

static const char *blocking(void)
{
  scene s = { 0 };
  GPU_TRY(g->stream_new(&s.held));
  GPU_TRY(g->stream_new(&s.free));
  GPU_TRY(g->event_new(&s.reached));
  GPU_TRY(g->space_new(0, 1 << 30, &s.space));
  for (int i = 0; i < CALLS; i++)
    GPU_TRY(watch_call(&s, i));
  return NULL;
}

/* ---- costs ---- */

enum { ROUNDS = 1000 };

static const char *cost_of_calls(gpu_stream *a, gpu_stream *b)
{
  gpu_event *events[ROUNDS];
  double at[6];
  for (int i = 0; i < ROUNDS; i++)
    GPU_TRY(g->event_new(&events[i]));
  launch_spin(2, 1000, a);
  GPU_TRY(g->stream_synchronize(a));
  at[0] = now_us();
  for (int i = 0; i < ROUNDS; i++)
    GPU_TRY(g->event_record(events[i], a));
  at[1] = now_us();
  for (int i = 0; i < ROUNDS; i++)
    GPU_TRY(g->stream_wait(b, events[i]));
  at[2] = now_us();
  for (int i = 0; i < ROUNDS; i++)
    launch_spin(2, 0, a);
  at[3] = now_us();
  GPU_TRY(g->stream_synchronize(a));
  at[4] = now_us();
  printf(
      "host: record %.2f us, wait %.2f us, launch %.2f us; %d empty kernels ran in %.2f us each\n",
      (at[1] - at[0]) / ROUNDS, (at[2] - at[1]) / ROUNDS, (at[3] - at[2]) / ROUNDS, ROUNDS,
      (at[4] - at[2]) / ROUNDS);
  for (int i = 0; i < ROUNDS; i++)
    g->event_delete(events[i]);
  return NULL;
}

/* Two streams hand over to each other. */
static const char *cost_of_hops(gpu_stream *a, gpu_stream *b)
{
  gpu_stream *streams[2] = { a, b };
  gpu_event *events[2];
  uint32_t *gates[2];
  for (int i = 0; i < 2; i++) {
    GPU_TRY(g->event_new(&events[i]));
    GPU_TRY(g->gate_new(&gates[i]));
  }
  double begin = now_us();
  for (int i = 0; i < ROUNDS; i++) {
    GPU_TRY(g->event_record(events[i % 2], streams[i % 2]));
    GPU_TRY(g->stream_wait(streams[(i + 1) % 2], events[i % 2]));
  }
  double issued = now_us();
  GPU_TRY(g->stream_synchronize(a));
  GPU_TRY(g->stream_synchronize(b));
  double over = now_us();
  printf("event hop: %.2f us each, %.2f us of them to issue\n", (over - begin) / ROUNDS,
         (issued - begin) / ROUNDS);
  begin = now_us();
  for (uint32_t i = 0; i < ROUNDS; i++) {
    GPU_TRY(g->gate_open(streams[i % 2], gates[i % 2], i + 1));
    GPU_TRY(g->gate_wait(streams[(i + 1) % 2], gates[i % 2], i + 1));
  }
  issued = now_us();
  GPU_TRY(g->stream_synchronize(a));
  GPU_TRY(g->stream_synchronize(b));
  over = now_us();
  printf("gate hop: %.2f us each, %.2f us of them to issue\n", (over - begin) / ROUNDS,
         (issued - begin) / ROUNDS);
  return NULL;
}

/* A chain of kernels, issued one by one and as a graph. */
static const char *cost_of_graphs(gpu_stream *a)
{
  enum { NODES = 50 };
  gpu_graph *graph = NULL;
  for (int round = 0; round < 3; round++) {
    double begin = now_us();
    GPU_TRY(g->capture_begin(a));
    for (int i = 0; i < NODES; i++)
      launch_spin(2, round, a);
    double caught = now_us();
    GPU_TRY(g->capture_launch(a, &graph));
    double launched = now_us();
    GPU_TRY(g->stream_synchronize(a));
    printf("graph of %d kernels, round %d: caught in %.1f us, launched in %.1f, ran in %.1f\n",
           NODES, round, caught - begin, launched - caught, now_us() - launched);
  }
  g->graph_delete(graph);
  return NULL;
}

static const char *cost_of_memory(void)
{
  gpu_space space;
  int64_t sizes[] = { 2 << 20, 20 << 20, 200 << 20, (int64_t)2000 << 20 };
  GPU_TRY(g->space_new(0, (int64_t)8 << 30, &space));
  for (int i = 0; i < 4; i++) {
    void *pinned;
    double at[5] = { now_us() };
    GPU_TRY(g->space_map(&space, 0, sizes[i]));
    at[1] = now_us();
    GPU_TRY(g->space_unmap(&space, 0, sizes[i]));
    at[2] = now_us();
    GPU_TRY(g->allocate_pinned(&pinned, sizes[i]));
    at[3] = now_us();
    GPU_TRY(g->release_pinned(pinned));
    at[4] = now_us();
    printf("%5lld MiB: map %.0f us, unmap %.0f, pinned %.0f, its release %.0f\n",
           (long long)(sizes[i] >> 20), at[1] - at[0], at[2] - at[1], at[3] - at[2], at[4] - at[3]);
  }
  g->space_delete(&space);
  return NULL;
}

static const char *costs(void)
{
  gpu_stream *a, *b;
  GPU_TRY(g->stream_new(&a));
  GPU_TRY(g->stream_new(&b));
  for (int i = 0; i < 2; i++)
    GPU_TRY(cost_of_calls(a, b));
  GPU_TRY(cost_of_hops(a, b));
  GPU_TRY(cost_of_graphs(a));
  return cost_of_memory();
}

/* ---- one check ---- */

static const char *run(const char *name)
{
  uint32_t devices;
  GPU_TRY(g->count(&devices));
  GPU_TRY(g->use(0));
  if (strcmp(name, "blocking") == 0) return blocking();
  if (strcmp(name, "costs") == 0) return costs();
  for (uint32_t i = 0; i < gpu_check_count; i++)
    if (strcmp(name, gpu_checks[i].name) == 0) return gpu_checks[i].run(g);
  return "there is no such check";
}

int main(int argc, char **argv)
{
  if (argc < 2) {
    for (uint32_t i = 0; i < gpu_check_count; i++)
      puts(gpu_checks[i].name);
    return 0;
  }
  double begin = now_us();
  if (argc > 2) g->expect_gates();
  const char *wrong = run(argv[1]);
  printf("%-16s %s %s (%.0f ms)\n", argv[1], wrong == NULL ? "ok" : "WRONG",
         wrong == NULL ? "" : wrong, (now_us() - begin) * 1e-3);
  return wrong == NULL ? 0 : 1;
}
