/* Events after which freed memory can be used again. */
#include <assert.h>

#include "cuda/queue/queue.h"

static uint32_t spare_event(rank_queue *q)
{
  memory_event_list *m = &q->memory_events;
  assert(m->spare.count + m->later.count <= m->count && "no event is in two lists");
  if (m->spare.count > 0) return m->spare.items[--m->spare.count];
  gpu_event *event = NULL;
  if (!sink_ok(q->sink, q->driver->event_new(&event))) return NO_OP;
  *ARRAY_PUSH(m) = (memory_event){ .event = event, .state = EVENT_SPARE };
  return m->count - 1;
}

/* A stream that does not exist has no work. */
static void record(rank_queue *q, memory_event *v, uint32_t stream)
{
  assert(v->state != EVENT_RECORDED && !graph_holds(q, stream));
  v->state = EVENT_RECORDED;
  if (q->streams[stream] != NULL)
    sink_ok(q->sink, q->driver->event_record(v->event, q->streams[stream]));
}

uint32_t memory_event_after(rank_queue *q, uint32_t stream)
{
  uint32_t number = spare_event(q);
  if (number == NO_OP) return number;
  memory_event *v = &q->memory_events.items[number];
  assert(v->state == EVENT_SPARE && "no other request waits for it");
  if (!graph_holds(q, stream)) {
    record(q, v, stream);
    return number;
  }
  v->state = EVENT_LATER;
  v->stream = (uint8_t)stream;
  *ARRAY_PUSH(&q->memory_events.later) = number;
  return number;
}

bool memory_event_done(void *queue, uint32_t number)
{
  rank_queue *q = queue;
  bool done = false;
  if (number == NO_OP) return true; /* the run is stopping */
  assert(number < q->memory_events.count);
  memory_event *v = &q->memory_events.items[number];
  assert(v->state != EVENT_SPARE && "allocators stop polling when it is done");
  if (v->state == EVENT_LATER || !sink_ok(q->sink, q->driver->event_done(v->event, &done)) || !done)
    return !sink_is_open(q->sink);
  v->state = EVENT_SPARE;
  *ARRAY_PUSH(&q->memory_events.spare) = number;
  return true;
}

void memory_events_record_later(rank_queue *q)
{
  memory_event_list *m = &q->memory_events;
  for (uint32_t i = 0; i < m->later.count; i++) {
    memory_event *v = &m->items[m->later.items[i]];
    assert(v->state == EVENT_LATER && "an event leaves this state only by a record");
    record(q, v, v->stream);
  }
  m->later.count = 0;
}

void memory_events_wait(rank_queue *q)
{
  assert(q->graph.state != GRAPH_CAPTURING && "captured events happen only after the launch");
  for (uint32_t i = 0; i < q->memory_events.count && sink_is_open(q->sink); i++)
    if (q->memory_events.items[i].state == EVENT_RECORDED)
      sink_ok(q->sink, q->driver->event_synchronize(q->memory_events.items[i].event));
}

void memory_events_release(rank_queue *q)
{
  for (uint32_t i = 0; i < q->memory_events.count; i++)
    q->driver->event_delete(q->memory_events.items[i].event);
  ARRAY_FREE(&q->memory_events);
  ARRAY_FREE(&q->memory_events.spare);
  ARRAY_FREE(&q->memory_events.later);
}
