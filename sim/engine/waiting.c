#include "sim/engine/waiting.h"

#include <stdlib.h>

#include "sim/base/array.h"

enum { FEWEST_STREAMS = 2 };

/* A stream takes something in hand (+1) or is done with it (-1); so with waiting. */
typedef struct edge {
  int64_t at_ps;
  int32_t in_hand, waits;
} edge;

typedef struct edge_list {
  edge *items;
  uint32_t count, capacity;
} edge_list;

/* What keeps the part of the GPU busy that compute's stream is in; copies have engines of their
 * own. */
static bool is_work(op_kind kind)
{
  return kind == OP_KERNEL || kind == OP_COLLECTIVE || kind == OP_SEND || kind == OP_RECV;
}

/* Streams beside compute that have work, a bit each. */
static uint32_t streams_beside(const rank_plan *p)
{
  uint32_t beside = 0;
  for (uint32_t i = 0; i < p->ops.count; i++) {
    const plan_op *o = &p->ops.items[i];
    if (is_work((op_kind)o->kind)) beside |= UINT32_C(1) << o->stream;
  }
  return beside & ~(UINT32_C(1) << STREAM_COMPUTE);
}

static void add_edges(edge_list *l, const undisturbed *u, uint32_t beside)
{
  for (uint32_t i = 0; i < u->plan->ops.count; i++) {
    const plan_op *o = &u->plan->ops.items[i];
    if (!op_runs_on_stream((op_kind)o->kind) || !(beside >> o->stream & 1)) continue;
    if (u->end_ps[i] == u->start_ps[i]) continue;
    int32_t waits = o->kind == OP_WAIT;
    *ARRAY_PUSH(l) = (edge){ u->start_ps[i], 1, waits };
    *ARRAY_PUSH(l) = (edge){ u->end_ps[i], -1, -waits };
  }
}

static int by_time(const void *left, const void *right)
{
  const edge *a = left, *b = right;
  return (a->at_ps > b->at_ps) - (a->at_ps < b->at_ps);
}

/* What happens at one time counts together. */
static span_list spans_between(const edge_list *l, arena *a)
{
  span_list out = { .items = ARENA_ARRAY(a, span, l->count) };
  int32_t in_hand = 0, waits = 0;
  for (uint32_t i = 0; i < l->count; i++) {
    in_hand += l->items[i].in_hand;
    waits += l->items[i].waits;
    if (i + 1 == l->count || l->items[i + 1].at_ps == l->items[i].at_ps) continue;
    if (in_hand >= FEWEST_STREAMS && waits > 0)
      out.items[out.count++] = (span){ l->items[i].at_ps, l->items[i + 1].at_ps };
  }
  return out;
}

span_list waiting_spans(const undisturbed *u, arena *a)
{
  uint32_t beside = streams_beside(u->plan);
  if (__builtin_popcount(beside) < FEWEST_STREAMS) return (span_list){ 0 };
  edge_list edges = { 0 };
  add_edges(&edges, u, beside);
  if (edges.count > 0) qsort(edges.items, edges.count, sizeof *edges.items, by_time);
  span_list spans = spans_between(&edges, a);
  ARRAY_FREE(&edges);
  return spans;
}
