/*
 * Graph regions. What the plan gives to the compute stream between GRAPH_BEGIN and GRAPH_END is
 * captured and launched at the end. Other streams are not captured:
 *
 *   an op that waits for an event of the capture, and all behind it on its stream, is put off until
 *   the graph has been launched: before that, the event has not been recorded;
 *
 *   where the compute stream waits for an op that has been put off, and where it meets other ranks,
 *   the graph ends, is launched, and another one begins behind: a region is as many graphs as its
 *   waits need, so that every region can be run.
 */
#include <string.h>

#include "cuda/exec/state.h"

typedef enum graph_event { EVENT_ELSEWHERE, EVENT_CAPTURED, EVENT_PUT_OFF } graph_event;

/* Runs that look at memory between ops have no graphs; nor have they memory that the driver gives
 * out in the order of streams, which would become part of the graph. */
static bool has_graphs(const rank_run *r)
{
  const cuda_options *o = &r->exec->options;
  return !o->guards && !o->every_op && o->backing == CUDA_CACHING;
}

void graph_begin_iteration(rank_run *r)
{
  r->graph.event_state = ARENA_ARRAY(&r->exec->iteration, uint8_t, r->stage->ops_of->events);
  r->graph.open = r->graph.capturing = false;
  r->graph.later.count = r->graph.next = 0;
}

void capture_region_begin(rank_run *r)
{
  r->graph.open = has_graphs(r);
}

void capture_region_end(rank_run *r)
{
  graph_launch(r);
  r->graph.open = false;
}

bool graph_holds(const rank_run *r, uint32_t stream)
{
  const graph_region *g = &r->graph;
  return g->capturing && (stream == STREAM_COMPUTE || g->later_streams[stream]);
}

static void capture(rank_run *r, uint32_t op)
{
  if (!rank_ok(r, r->driver->capture_begin(r->streams[STREAM_COMPUTE]))) return;
  r->graph.capturing = true;
  r->graph.first = op;
}

static void launch(rank_run *r)
{
  graph_region *g = &r->graph;
  measure *m = r->exec->measuring ? r->exec->measure : NULL;
  if (g->next == g->graphs.count) *ARRAY_PUSH(&g->graphs) = NULL;
  if (m != NULL) measure_graph_begin(m, r->number, g->first, r->at);
  rank_ok(r, r->driver->capture_launch(r->streams[STREAM_COMPUTE], &g->graphs.items[g->next++]));
  if (m != NULL) measure_op_end(m);
  g->capturing = false;
}

static void issue_later(rank_run *r)
{
  graph_region *g = &r->graph;
  uint32_t at = r->at;
  for (uint32_t i = 0; i < g->later.count && is_going(r); i++)
    issue_stream_op(r, g->later.items[i]);
  g->later.count = 0;
  r->at = at;
}

void graph_launch(rank_run *r)
{
  graph_region *g = &r->graph;
  if (!g->capturing) return;
  launch(r);
  memset(g->event_state, EVENT_ELSEWHERE, r->stage->ops_of->events);
  memset(g->later_streams, 0, sizeof g->later_streams);
  issue_later(r);
  memory_events_record_later(r);
}

/* What a graph is made of; all else ends it. */
static bool is_captured(op_kind kind)
{
  return kind == OP_KERNEL || kind == OP_D2H || kind == OP_H2D || kind == OP_RECORD ||
         kind == OP_WAIT;
}

static bool begins_graph(op_kind kind)
{
  return is_captured(kind) && kind != OP_RECORD && kind != OP_WAIT;
}

static void admit_to_compute(rank_run *r, uint32_t op)
{
  graph_region *g = &r->graph;
  const plan_op *o = stage_op(r->stage, op);
  op_kind kind = (op_kind)o->kind;
  bool waits = kind == OP_WAIT && g->event_state[o->arg] == EVENT_PUT_OFF;
  if (!is_captured(kind) || waits) graph_launch(r);
  if (begins_graph(kind) && !g->capturing) capture(r, op);
  if (kind == OP_RECORD && g->capturing) g->event_state[o->arg] = EVENT_CAPTURED;
}

static bool is_put_off(const graph_region *g, const plan_op *o)
{
  return g->later_streams[o->stream] ||
         (o->kind == OP_WAIT && g->event_state[o->arg] != EVENT_ELSEWHERE);
}

bool graph_admit(rank_run *r, uint32_t op)
{
  graph_region *g = &r->graph;
  const plan_op *o = stage_op(r->stage, op);
  if (!g->open) return true;
  if (o->stream == STREAM_COMPUTE) {
    admit_to_compute(r, op);
    return true;
  }
  if (!is_put_off(g, o)) return true;
  g->later_streams[o->stream] = true;
  if (o->kind == OP_RECORD) g->event_state[o->arg] = EVENT_PUT_OFF;
  *ARRAY_PUSH(&g->later) = op;
  return false;
}

void graphs_release(rank_run *r)
{
  for (uint32_t i = 0; i < r->graph.graphs.count; i++)
    if (r->graph.graphs.items[i] != NULL) r->driver->graph_delete(r->graph.graphs.items[i]);
  ARRAY_FREE(&r->graph.graphs);
  ARRAY_FREE(&r->graph.later);
}
