/*
 * Graph regions. The compute stream's ops between GRAPH_BEGIN and GRAPH_END are captured and
 * launched at the end. Other streams are not captured:
 *
 *   an op that waits for an event of the capture, and all ops after it on its stream, are delayed
 *   until the graph has been launched: before that, the event is not recorded;
 *
 *   where the compute stream waits for a delayed op, or for other ranks, the graph ends and is
 *   launched, and another one begins: a region is as many graphs as its waits need, so every region
 *   can run.
 */
#include <assert.h>
#include <string.h>

#include "cuda/queue/queue.h"

/* An event of the plan, until the next launch: ELSEWHERE --its record--> CAPTURED or PUT_OFF. */
typedef enum graph_event { EVENT_ELSEWHERE, EVENT_CAPTURED, EVENT_PUT_OFF } graph_event;

void graph_begin_iteration(rank_queue *q, arena *iteration)
{
  graph_region *g = &q->graph;
  assert(g->state == GRAPH_CLOSED && g->later.count == 0 && "the last iteration has ended");
  g->event_state = ARENA_ARRAY(iteration, uint8_t, q->stage->ops_of->events);
  g->next = 0;
}

void capture_region_begin(rank_queue *q)
{
  assert(q->graph.state == GRAPH_CLOSED && "regions do not nest");
  if (q->captures) q->graph.state = GRAPH_OPEN;
}

void capture_region_end(rank_queue *q)
{
  graph_launch(q);
  assert(q->graph.state == (q->captures ? GRAPH_OPEN : GRAPH_CLOSED));
  q->graph.state = GRAPH_CLOSED;
}

static void capture(rank_queue *q, uint32_t op)
{
  assert(q->graph.state == GRAPH_OPEN);
  if (!sink_ok(q->sink, q->driver->capture_begin(q->streams[STREAM_COMPUTE]))) return;
  q->graph.state = GRAPH_CAPTURING;
  q->graph.first = op;
}

static void launch(rank_queue *q)
{
  graph_region *g = &q->graph;
  assert(g->state == GRAPH_CAPTURING && g->next <= g->graphs.count);
  if (g->next == g->graphs.count) *ARRAY_PUSH(&g->graphs) = NULL;
  if (q->measure != NULL) measure_graph_begin(q->measure, q->rank, g->first, q->sink->at);
  sink_ok(q->sink,
          q->driver->capture_launch(q->streams[STREAM_COMPUTE], &g->graphs.items[g->next++]));
  if (q->measure != NULL) measure_op_end(q->measure);
  g->state = GRAPH_OPEN;
}

static void issue_later(rank_queue *q)
{
  graph_region *g = &q->graph;
  uint32_t at = q->sink->at;
  assert(g->state == GRAPH_OPEN && "what they wait for is launched");
  for (uint32_t i = 0; i < g->later.count && sink_is_open(q->sink); i++)
    q->issue_later(q->context, g->later.items[i]);
  g->later.count = 0;
  q->sink->at = at;
}

void graph_launch(rank_queue *q)
{
  graph_region *g = &q->graph;
  if (g->state != GRAPH_CAPTURING) return;
  launch(q);
  memset(g->event_state, EVENT_ELSEWHERE, q->stage->ops_of->events);
  memset(g->later_streams, 0, sizeof g->later_streams);
  issue_later(q);
  memory_events_record_later(q);
}

/* The ops of a graph; any other op ends it. */
static bool is_captured(op_kind kind)
{
  return kind == OP_KERNEL || kind == OP_D2H || kind == OP_H2D || kind == OP_RECORD ||
         kind == OP_WAIT;
}

static bool begins_graph(op_kind kind)
{
  return is_captured(kind) && kind != OP_RECORD && kind != OP_WAIT;
}

static void note_record(graph_region *g, const plan_op *o, graph_event now)
{
  assert(o->kind == OP_RECORD && now != EVENT_ELSEWHERE);
  assert(g->event_state[o->arg] == EVENT_ELSEWHERE && "a plan records an event once");
  g->event_state[o->arg] = (uint8_t)now;
}

static void admit_to_compute(rank_queue *q, uint32_t op)
{
  graph_region *g = &q->graph;
  const plan_op *o = stage_op(q->stage, op);
  op_kind kind = (op_kind)o->kind;
  assert(o->stream == STREAM_COMPUTE && g->state != GRAPH_CLOSED);
  bool waits = kind == OP_WAIT && g->event_state[o->arg] == EVENT_PUT_OFF;
  if (!is_captured(kind) || waits) graph_launch(q);
  if (begins_graph(kind) && g->state == GRAPH_OPEN) capture(q, op);
  if (kind == OP_RECORD && g->state == GRAPH_CAPTURING) note_record(g, o, EVENT_CAPTURED);
}

static bool is_put_off(const graph_region *g, const plan_op *o)
{
  assert(o->stream < DEVICE_STREAMS && o->stream != STREAM_COMPUTE);
  return g->later_streams[o->stream] ||
         (o->kind == OP_WAIT && g->event_state[o->arg] != EVENT_ELSEWHERE);
}

bool graph_admit(rank_queue *q, uint32_t op)
{
  graph_region *g = &q->graph;
  const plan_op *o = stage_op(q->stage, op);
  if (g->state == GRAPH_CLOSED) return true;
  if (o->stream == STREAM_COMPUTE) {
    admit_to_compute(q, op);
    return true;
  }
  if (!is_put_off(g, o)) return true;
  assert(g->state == GRAPH_CAPTURING && "it waits for a captured op");
  g->later_streams[o->stream] = true;
  if (o->kind == OP_RECORD) note_record(g, o, EVENT_PUT_OFF);
  *ARRAY_PUSH(&g->later) = op;
  return false;
}

void graphs_release(rank_queue *q)
{
  for (uint32_t i = 0; i < q->graph.graphs.count; i++)
    if (q->graph.graphs.items[i] != NULL) q->driver->graph_delete(q->graph.graphs.items[i]);
  ARRAY_FREE(&q->graph.graphs);
  ARRAY_FREE(&q->graph.later);
}
