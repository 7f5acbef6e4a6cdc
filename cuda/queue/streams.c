/* Streams of a rank, and the events of its plan. */
#include <assert.h>

#include "cuda/queue/queue.h"

void queue_begin(rank_queue *q, const stage *s, arena *iteration)
{
  assert(s != NULL && q->driver != NULL && q->sink != NULL);
  q->stage = s;
  graph_begin_iteration(q, iteration);
}

bool queue_prepare(rank_queue *q)
{
  if (q->inspector == NULL && !sink_ok(q->sink, q->driver->stream_new(&q->inspector))) return false;
  for (uint32_t i = 0; i < q->stage->ops_of->ops.count; i++) {
    const plan_op *o = stage_op(q->stage, i);
    uint32_t s = o->stream;
    assert(!op_runs_on_stream((op_kind)o->kind) || s < DEVICE_STREAMS);
    if (op_runs_on_stream((op_kind)o->kind) && q->streams[s] == NULL &&
        !sink_ok(q->sink, q->driver->stream_new(&q->streams[s])))
      return false;
  }
  while (q->events.count < q->stage->ops_of->events) {
    gpu_event *event = NULL;
    if (!sink_ok(q->sink, q->driver->event_new(&event))) return false;
    *ARRAY_PUSH(&q->events) = event;
  }
  return true;
}

void queue_release(rank_queue *q)
{
  graphs_release(q);
  for (uint32_t s = 0; s < DEVICE_STREAMS; s++)
    if (q->streams[s] != NULL) q->driver->stream_delete(q->streams[s]);
  if (q->inspector != NULL) q->driver->stream_delete(q->inspector);
  if (q->side != NULL) q->driver->stream_delete(q->side);
  for (uint32_t i = 0; i < q->events.count; i++)
    q->driver->event_delete(q->events.items[i]);
  ARRAY_FREE(&q->events);
  memory_events_release(q);
}

bool queue_synchronize(rank_queue *q)
{
  graph_launch(q);
  for (uint32_t s = 0; s < DEVICE_STREAMS; s++)
    if (q->streams[s] != NULL && !sink_ok(q->sink, q->driver->stream_synchronize(q->streams[s])))
      return false;
  return q->side == NULL || sink_ok(q->sink, q->driver->stream_synchronize(q->side));
}

void queue_record(rank_queue *q, const plan_op *o)
{
  assert(o->kind == OP_RECORD && o->arg < q->events.count && q->streams[o->stream] != NULL);
  sink_ok(q->sink, q->driver->event_record(q->events.items[o->arg], q->streams[o->stream]));
}

void queue_wait(rank_queue *q, uint32_t op)
{
  const plan_op *o = stage_op(q->stage, op);
  assert(o->kind == OP_WAIT && o->arg < q->events.count && q->streams[o->stream] != NULL);
  if (!waits_for_nothing(q->stage, op))
    sink_ok(q->sink, q->driver->stream_wait(q->streams[o->stream], q->events.items[o->arg]));
}

void queue_host_wait(rank_queue *q, uint32_t op)
{
  const plan_op *o = stage_op(q->stage, op);
  assert(op_is_host_wait((op_kind)o->kind) && o->arg < q->events.count);
  if (!waits_for_nothing(q->stage, op))
    sink_ok(q->sink, q->driver->event_synchronize(q->events.items[o->arg]));
}
