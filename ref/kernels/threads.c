#include "ref/kernels/threads.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "sim/base/diag.h"

typedef struct pool {
  pthread_mutex_t lock;
  pthread_cond_t begins, ends;
  pthread_t workers[REF_THREADS_MAX];
  uint32_t worker_count; /* besides the caller */
  bool closing;
  void (*part)(void *context, uint32_t i);
  void *context;
  uint32_t next, parts, running;
} pool;

static pool shared = { .lock = PTHREAD_MUTEX_INITIALIZER,
                       .begins = PTHREAD_COND_INITIALIZER,
                       .ends = PTHREAD_COND_INITIALIZER };

/* With the lock held: runs parts until all have begun. */
static void take_parts(pool *p)
{
  while (p->next < p->parts) {
    uint32_t i = p->next++;
    p->running++;
    pthread_mutex_unlock(&p->lock);
    p->part(p->context, i);
    pthread_mutex_lock(&p->lock);
    p->running--;
  }
  if (p->running == 0) pthread_cond_signal(&p->ends);
}

static void *work(void *argument)
{
  pool *p = argument;
  pthread_mutex_lock(&p->lock);
  while (!p->closing) {
    take_parts(p);
    pthread_cond_wait(&p->begins, &p->lock);
  }
  pthread_mutex_unlock(&p->lock);
  return NULL;
}

static void close_workers(pool *p)
{
  pthread_mutex_lock(&p->lock);
  p->closing = true;
  pthread_cond_broadcast(&p->begins);
  pthread_mutex_unlock(&p->lock);
  while (p->worker_count > 0)
    pthread_join(p->workers[--p->worker_count], NULL);
  p->closing = false;
}

void ref_set_threads(uint32_t count)
{
  assert(count > 0 && count <= REF_THREADS_MAX);
  close_workers(&shared);
  while (shared.worker_count + 1 < count) {
    int error = pthread_create(&shared.workers[shared.worker_count], NULL, work, &shared);
    if (error != 0)
      die_refused("threads: requested %u, the system granted %u: %s", count,
                  shared.worker_count + 1, strerror(error));
    shared.worker_count++;
  }
}

uint32_t ref_threads(void)
{
  return shared.worker_count + 1;
}

void ref_run_parts(uint32_t parts, void (*part)(void *context, uint32_t i), void *context)
{
  pool *p = &shared;
  if (p->worker_count == 0 || parts <= 1) {
    for (uint32_t i = 0; i < parts; i++)
      part(context, i);
    return;
  }
  pthread_mutex_lock(&p->lock);
  assert(p->running == 0 && p->next >= p->parts && "one run at a time");
  p->part = part;
  p->context = context;
  p->next = 0;
  p->parts = parts;
  pthread_cond_broadcast(&p->begins);
  take_parts(p);
  while (p->running > 0)
    pthread_cond_wait(&p->ends, &p->lock);
  p->parts = 0;
  pthread_mutex_unlock(&p->lock);
}
