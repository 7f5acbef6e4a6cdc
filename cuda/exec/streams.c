/* Streams and events of a rank: those of the plan, and those behind which freed memory waits. */
#include <assert.h>

#include "cuda/exec/state.h"

bool streams_prepare(rank_run *r)
{
  if (r->inspector == NULL && !rank_ok(r, r->driver->stream_new(&r->inspector))) return false;
  for (uint32_t i = 0; i < r->stage->ops_of->ops.count; i++) {
    const plan_op *o = stage_op(r->stage, i);
    uint32_t s = o->stream;
    if (op_runs_on_stream((op_kind)o->kind) && r->streams[s] == NULL &&
        !rank_ok(r, r->driver->stream_new(&r->streams[s])))
      return false;
  }
  while (r->events.count < r->stage->ops_of->events) {
    gpu_event *event = NULL;
    if (!rank_ok(r, r->driver->event_new(&event))) return false;
    *ARRAY_PUSH(&r->events) = event;
  }
  return true;
}

void streams_release(rank_run *r)
{
  for (uint32_t s = 0; s < DEVICE_STREAMS; s++) {
    if (r->streams[s] != NULL) r->driver->stream_delete(r->streams[s]);
    if (r->scratch[s].data != NULL) (void)r->driver->release(r->scratch[s].data);
  }
  if (r->inspector != NULL) r->driver->stream_delete(r->inspector);
  for (uint32_t i = 0; i < r->events.count; i++)
    r->driver->event_delete(r->events.items[i]);
  ARRAY_FREE(&r->events);
}

bool streams_synchronize(rank_run *r)
{
  for (uint32_t s = 0; s < DEVICE_STREAMS; s++)
    if (r->streams[s] != NULL && !rank_ok(r, r->driver->stream_synchronize(r->streams[s])))
      return false;
  return r->device.side == NULL || rank_ok(r, r->driver->stream_synchronize(r->device.side));
}

/* ---- events of memory ------------------------------------------------------------------------ */

static uint32_t spare_event(rank_run *r)
{
  memory_event_list *m = &r->memory_events;
  if (m->spare.count > 0) return m->spare.items[--m->spare.count];
  gpu_event *event = NULL;
  if (!rank_ok(r, r->driver->event_new(&event))) return NO_OP;
  *ARRAY_PUSH(m) = (memory_event){ .event = event };
  return m->count - 1;
}

/* A stream that is not there has been given nothing. */
static void record(rank_run *r, memory_event *v, uint32_t stream)
{
  v->state = EVENT_RECORDED;
  if (r->streams[stream] != NULL) rank_ok(r, r->driver->event_record(v->event, r->streams[stream]));
}

uint32_t memory_event_after(rank_run *r, uint32_t stream)
{
  uint32_t number = spare_event(r);
  if (number == NO_OP) return number;
  memory_event *v = &r->memory_events.items[number];
  if (!graph_holds(r, stream)) {
    record(r, v, stream);
    return number;
  }
  v->state = EVENT_LATER;
  v->stream = (uint8_t)stream;
  *ARRAY_PUSH(&r->memory_events.later) = number;
  return number;
}

/* The allocators ask no more when it is done. */
bool memory_event_done(void *rank, uint32_t number)
{
  rank_run *r = rank;
  bool done = false;
  if (number == NO_OP) return true; /* everything stops */
  memory_event *v = &r->memory_events.items[number];
  if (v->state == EVENT_LATER || !rank_ok(r, r->driver->event_done(v->event, &done)) || !done)
    return !is_going(r);
  v->state = EVENT_SPARE;
  *ARRAY_PUSH(&r->memory_events.spare) = number;
  return true;
}

void memory_events_record_later(rank_run *r)
{
  memory_event_list *m = &r->memory_events;
  for (uint32_t i = 0; i < m->later.count; i++) {
    memory_event *v = &m->items[m->later.items[i]];
    if (v->state == EVENT_LATER) record(r, v, v->stream);
  }
  m->later.count = 0;
}

void memory_events_wait(rank_run *r)
{
  graph_launch(r);
  for (uint32_t i = 0; i < r->memory_events.count && is_going(r); i++)
    if (r->memory_events.items[i].state == EVENT_RECORDED)
      rank_ok(r, r->driver->event_synchronize(r->memory_events.items[i].event));
}

void memory_events_release(rank_run *r)
{
  for (uint32_t i = 0; i < r->memory_events.count; i++)
    r->driver->event_delete(r->memory_events.items[i].event);
  ARRAY_FREE(&r->memory_events);
  ARRAY_FREE(&r->memory_events.spare);
  ARRAY_FREE(&r->memory_events.later);
}
