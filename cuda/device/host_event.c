#include <pthread.h>
#include <stdlib.h>

#include "cuda/device/failure.h"
#include "cuda/device/host_stream.h"
#include "sim/base/diag.h"

/*
 * A flag is one recording of an event, or a gate: a number that grows, and the threads that wait
 * until it is large enough. A recording is 0 until its stream gets there, then 1. Its event refers
 * to it until the event is recorded again, and so does all work on streams that will raise or await
 * it.
 */
typedef struct flag {
  uint32_t value; /* first: a gate is the address of its value */
  uint32_t holders;
  pthread_mutex_t lock;
  pthread_cond_t raised;
} flag;

/* Any thread may record it, and wait for what has been recorded. */
struct gpu_event {
  pthread_mutex_t lock;
  flag *last; /* recording; NULL: never recorded */
};

static flag *flag_new(void)
{
  flag *f = calloc(1, sizeof *f);
  if (f == NULL) die_refused("no memory for an event: %zu bytes", sizeof *f);
  f->holders = 1;
  pthread_mutex_init(&f->lock, NULL);
  pthread_cond_init(&f->raised, NULL);
  return f;
}

static flag *flag_hold(flag *f)
{
  pthread_mutex_lock(&f->lock);
  f->holders++;
  pthread_mutex_unlock(&f->lock);
  return f;
}

static void flag_drop(flag *f)
{
  if (f == NULL) return;
  pthread_mutex_lock(&f->lock);
  bool last = --f->holders == 0;
  pthread_mutex_unlock(&f->lock);
  if (!last) return;
  pthread_cond_destroy(&f->raised);
  pthread_mutex_destroy(&f->lock);
  free(f);
}

static void flag_set(flag *f, uint32_t value)
{
  pthread_mutex_lock(&f->lock);
  f->value = value;
  pthread_cond_broadcast(&f->raised);
  pthread_mutex_unlock(&f->lock);
}

static uint32_t flag_value(flag *f)
{
  pthread_mutex_lock(&f->lock);
  uint32_t value = f->value;
  pthread_mutex_unlock(&f->lock);
  return value;
}

static void flag_await(flag *f, uint32_t value)
{
  pthread_mutex_lock(&f->lock);
  while (f->value < value)
    pthread_cond_wait(&f->raised, &f->lock);
  pthread_mutex_unlock(&f->lock);
}

/* ---- on streams ---- */

typedef struct flag_use {
  flag *flag;
  uint32_t value;
} flag_use;

static void run_set(void *context)
{
  const flag_use *u = context;
  flag_set(u->flag, u->value);
  flag_drop(u->flag);
}

static void run_await(void *context)
{
  const flag_use *u = context;
  flag_await(u->flag, u->value);
  flag_drop(u->flag);
}

/* The caller has taken a reference to `f` for it. */
static void issue(gpu_stream *stream, void (*work)(void *context), flag *f, uint32_t value)
{
  flag_use use = { f, value };
  host_stream_run(stream, work, &use, sizeof use);
}

/* ---- events ---- */

const char *host_event_new(gpu_event **event)
{
  gpu_event *e = calloc(1, sizeof *e);
  if (e == NULL) return gpu_failure("an event: out of memory");
  pthread_mutex_init(&e->lock, NULL);
  *event = e;
  return NULL;
}

const char *host_event_record(gpu_event *event, gpu_stream *stream)
{
  flag *now = flag_new();
  issue(stream, run_set, flag_hold(now), 1);
  pthread_mutex_lock(&event->lock);
  flag *before = event->last;
  event->last = now;
  pthread_mutex_unlock(&event->lock);
  flag_drop(before);
  return NULL;
}

/* With a reference for the caller; NULL: never recorded. */
static flag *last_recording(gpu_event *event)
{
  pthread_mutex_lock(&event->lock);
  flag *f = event->last == NULL ? NULL : flag_hold(event->last);
  pthread_mutex_unlock(&event->lock);
  return f;
}

const char *host_stream_wait(gpu_stream *stream, gpu_event *event)
{
  flag *f = last_recording(event);
  if (f != NULL) issue(stream, run_await, f, 1);
  return NULL;
}

const char *host_event_synchronize(gpu_event *event)
{
  flag *f = last_recording(event);
  if (f != NULL) flag_await(f, 1);
  flag_drop(f);
  return NULL;
}

const char *host_event_done(gpu_event *event, bool *done)
{
  flag *f = last_recording(event);
  *done = f == NULL || flag_value(f) > 0;
  flag_drop(f);
  return NULL;
}

void host_event_delete(gpu_event *event)
{
  if (event == NULL) return;
  flag_drop(event->last);
  pthread_mutex_destroy(&event->lock);
  free(event);
}

/* ---- gates ---- */

static flag *flag_of(uint32_t *gate)
{
  return (flag *)(void *)gate;
}

const char *host_gate_new(uint32_t **gate)
{
  *gate = &flag_new()->value;
  return NULL;
}

const char *host_gate_wait(gpu_stream *stream, uint32_t *gate, uint32_t value)
{
  issue(stream, run_await, flag_hold(flag_of(gate)), value);
  return NULL;
}

const char *host_gate_open(gpu_stream *stream, uint32_t *gate, uint32_t value)
{
  if (stream == NULL)
    flag_set(flag_of(gate), value);
  else
    issue(stream, run_set, flag_hold(flag_of(gate)), value);
  return NULL;
}

void host_gate_delete(uint32_t *gate)
{
  if (gate != NULL) flag_drop(flag_of(gate));
}
