/*
 * A rank's GPU queue: the streams and events of a plan, events after which freed memory can be
 * reused, and graphs.
 *
 *     queue_begin(&q, stage, arena);       // an iteration; then by the rank's host thread:
 *     queue_prepare(&q);
 *     ... for each op of a stream:
 *     if (graph_admit(&q, op)) issue it;   // otherwise q.issue_later is called with it, once
 *     ... GRAPH_BEGIN, GRAPH_END:
 *     capture_region_begin(&q); capture_region_end(&q);
 *     ... at the end, and before the host waits for a stream:
 *     graph_launch(&q);
 *
 * Failures go to the rank's sink.
 */
#ifndef OFFSIM_CUDA_QUEUE_QUEUE_H
#define OFFSIM_CUDA_QUEUE_QUEUE_H

#include "cuda/device/device.h"
#include "cuda/measure/measure.h"
#include "cuda/queue/sink.h"
#include "sim/base/arena.h"
#include "sim/base/array.h"
#include "sim/exec/stage.h"

/*
 * When a freed block can be reused:
 *
 *     SPARE --memory_event_after--> RECORDED ---memory_event_done---> SPARE
 *        `--in a capture--> LATER ----^
 */
typedef enum memory_event_state { EVENT_SPARE, EVENT_LATER, EVENT_RECORDED } memory_event_state;

typedef struct memory_event {
  gpu_event *event;
  uint8_t state;
  uint8_t stream; /* EVENT_LATER: the stream on which it is recorded after the capture */
} memory_event;

typedef struct memory_event_list {
  memory_event *items;
  uint32_t count, capacity;
  struct {
    uint32_t *items;
    uint32_t count, capacity;
  } spare, later;
} memory_event_list;

/*
 * The state of the host thread:
 *
 *     CLOSED --GRAPH_BEGIN--> OPEN --first kernel or copy--> CAPTURING
 *        ^-----GRAPH_END------' ^--------graph_launch-----------'
 */
typedef enum graph_state { GRAPH_CLOSED, GRAPH_OPEN, GRAPH_CAPTURING } graph_state;

typedef struct graph_region {
  graph_state state;
  uint32_t first; /* op with which the capture began */
  struct {
    uint32_t *items;
    uint32_t count, capacity;
  } later;                            /* ops of other streams that wait for captured ops */
  bool later_streams[DEVICE_STREAMS]; /* streams with such ops */
  uint8_t *event_state;               /* by event of the plan (graphs.c) */
  struct {
    gpu_graph **items;
    uint32_t count, capacity;
  } graphs; /* of an iteration, in order */
  uint32_t next;
} graph_region;

typedef struct rank_queue {
  const gpu_driver *driver;
  failure_sink *sink;
  uint32_t rank;
  bool captures; /* graph regions become graphs; false: their ops are issued one by one */
  /* Issues an op that graph_admit has delayed. */
  void (*issue_later)(void *context, uint32_t op);
  void *context;

  const stage *stage;                  /* of the iteration */
  measure *measure;                    /* graphs are measured; NULL: not in this iteration */
  gpu_stream *streams[DEVICE_STREAMS]; /* NULL: no plan has used it */
  gpu_stream *inspector;               /* for contents that callers inspect */
  gpu_stream *side; /* for frees that wait for several streams (cuda/memory); NULL: none */
  struct {
    gpu_event **items;
    uint32_t count, capacity;
  } events; /* by event of the plan */
  memory_event_list memory_events;
  graph_region graph;
} rank_queue;

/* ---- streams.c ------------------------------------------------------------------------------- */

/* Begins an iteration of a stage. Memory of `iteration` lasts until the next one begins. */
void queue_begin(rank_queue *q, const stage *s, arena *iteration);
/* Creates the streams and events that its plan uses. */
bool queue_prepare(rank_queue *q);
/* Releases graphs, then streams when they are done, then events. */
void queue_release(rank_queue *q);

/* Waits for all work on the streams, including a graph that is being captured. */
bool queue_synchronize(rank_queue *q);

/* The stream of a memory pool; if that runs no ops, the inspector. */
static inline gpu_stream *pool_stream(const rank_queue *q, uint32_t stream)
{
  return q->streams[stream] != NULL ? q->streams[stream] : q->inspector;
}

/* OP_RECORD, OP_WAIT; OP_HOST_WAIT and OP_HOST_READ, whose value an executor does not need. */
void queue_record(rank_queue *q, const plan_op *o);
void queue_wait(rank_queue *q, uint32_t op);
void queue_host_wait(rank_queue *q, uint32_t op);

/* Whether an event on this stream is recorded only after the capture. */
static inline bool graph_holds(const rank_queue *q, uint32_t stream)
{
  const graph_region *g = &q->graph;
  return g->state == GRAPH_CAPTURING && (stream == STREAM_COMPUTE || g->later_streams[stream]);
}

/* ---- memory_events.c ------------------------------------------------------------------------- */

/* Records an event after all work on a stream so far; returns its number, for allocators, NO_OP
 * after a failure. */
uint32_t memory_event_after(rank_queue *q, uint32_t stream);
/* For allocators: `queue` is the rank's. They stop polling when the event is done. */
bool memory_event_done(void *queue, uint32_t number);
/* Waits for all events; there must be no capture. */
void memory_events_wait(rank_queue *q);
/* Call it after a capture that delayed events. */
void memory_events_record_later(rank_queue *q);
void memory_events_release(rank_queue *q);

/* ---- graphs.c -------------------------------------------------------------------------------- */

void graph_begin_iteration(rank_queue *q, arena *iteration);
void capture_region_begin(rank_queue *q);
void capture_region_end(rank_queue *q);
/* Launches what has been captured so far, and issues the ops that wait for it. Does nothing without
 * a capture. */
void graph_launch(rank_queue *q);
/* Call it before an op of a stream is issued: true: issue it now; false: it is delayed. */
bool graph_admit(rank_queue *q, uint32_t op);
void graphs_release(rank_queue *q);

#endif
