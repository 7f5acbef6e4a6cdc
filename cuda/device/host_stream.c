#include "cuda/device/host_stream.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/device/failure.h"
#include "sim/base/diag.h"

typedef struct closure {
  struct closure *next;
  void (*work)(void *context);
  _Alignas(max_align_t) unsigned char context[];
} closure;

typedef struct queue {
  closure *first, *last;
} queue;

struct gpu_stream {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed; /* a closure was added, the last one is done, or the stream closes */
  queue queue;
  queue caught; /* between capture_begin and capture_launch, of the thread that captures */
  bool captures, runs, closes;
};

struct gpu_graph {
  uint64_t launches;
};

static void append(queue *to, queue *from)
{
  if (from->first == NULL) return;
  if (to->first == NULL)
    to->first = from->first;
  else
    to->last->next = from->first;
  to->last = from->last;
  *from = (queue){ 0 };
}

static closure *take_first(queue *q)
{
  closure *c = q->first;
  q->first = c->next;
  return c;
}

static void *run_stream(void *argument)
{
  gpu_stream *s = argument;
  pthread_mutex_lock(&s->lock);
  while (s->queue.first != NULL || !s->closes) {
    if (s->queue.first == NULL) {
      pthread_cond_wait(&s->changed, &s->lock);
      continue;
    }
    closure *c = take_first(&s->queue);
    s->runs = true;
    pthread_mutex_unlock(&s->lock);
    c->work(c->context);
    free(c);
    pthread_mutex_lock(&s->lock);
    s->runs = false;
    if (s->queue.first == NULL) pthread_cond_broadcast(&s->changed);
  }
  pthread_mutex_unlock(&s->lock);
  return NULL;
}

const char *host_stream_new(gpu_stream **stream)
{
  gpu_stream *s = calloc(1, sizeof *s);
  if (s == NULL) return gpu_failure("a stream: out of memory");
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->changed, NULL);
  int error = pthread_create(&s->thread, NULL, run_stream, s);
  if (error != 0) {
    free(s);
    return gpu_failure("the thread of a stream: %s", strerror(error));
  }
  *stream = s;
  return NULL;
}

static void issue(gpu_stream *s, queue *closures)
{
  pthread_mutex_lock(&s->lock);
  append(&s->queue, closures);
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
}

void host_stream_run(gpu_stream *s, void (*work)(void *context), const void *context, size_t bytes)
{
  closure *c = malloc(sizeof *c + bytes);
  if (c == NULL) die_refused("no memory for a closure of %zu bytes", bytes);
  c->next = NULL;
  c->work = work;
  if (bytes > 0) memcpy(c->context, context, bytes);
  if (s == NULL) {
    work(c->context);
    free(c);
    return;
  }
  queue one = { c, c };
  if (s->captures)
    append(&s->caught, &one);
  else
    issue(s, &one);
}

const char *host_stream_synchronize(gpu_stream *s)
{
  assert(!s->captures);
  pthread_mutex_lock(&s->lock);
  while (s->runs || s->queue.first != NULL)
    pthread_cond_wait(&s->changed, &s->lock);
  pthread_mutex_unlock(&s->lock);
  return NULL;
}

void host_stream_delete(gpu_stream *s)
{
  if (s == NULL) return;
  issue(s, &s->caught); /* of an abandoned capture: running them drops their references */
  pthread_mutex_lock(&s->lock);
  s->closes = true;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
  pthread_join(s->thread, NULL);
  pthread_cond_destroy(&s->changed);
  pthread_mutex_destroy(&s->lock);
  free(s);
}

const char *host_capture_begin(gpu_stream *s)
{
  assert(!s->captures);
  s->captures = true;
  return NULL;
}

const char *host_capture_launch(gpu_stream *s, gpu_graph **graph)
{
  assert(s->captures);
  if (*graph == NULL) *graph = calloc(1, sizeof **graph);
  if (*graph == NULL) return gpu_failure("a graph: out of memory");
  (*graph)->launches++;
  s->captures = false;
  issue(s, &s->caught);
  return NULL;
}

void host_graph_delete(gpu_graph *graph)
{
  free(graph);
}
