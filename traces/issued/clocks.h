/*
 * What happened before what, on the streams of a process and its host. Each stream counts its
 * operations from 1; a clock says for each stream how many of them are over.
 *
 *   an operation     begins after all that its stream did, and after all that the host knew to be
 *                    over when it was issued
 *   an event         has the clock of the stream that it was recorded on; one that was never
 *                    recorded has happened
 *   a wait           gives the stream the event's clock; a synchronisation gives it to the host
 *   a legacy stream  waits for all blocking streams of its context, and they for it
 *
 * The host is one: what a thread issues after another one's call counts as issued after it, because
 * the record does not show how threads wait for each other.
 */
#ifndef OFFSIM_TRACES_ISSUED_CLOCKS_H
#define OFFSIM_TRACES_ISSUED_CLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/array.h"

enum { CLOCK_STREAMS = 4096 };

/* Streams beyond `count`: nothing of them is over. */
typedef struct stream_clock {
  uint32_t *items;
  uint32_t count, capacity;
} stream_clock;

typedef struct clocked_stream {
  stream_clock clock; /* its own entry: its operations so far */
  uint64_t context;
  uint64_t kind;         /* ISSUED_BLOCKING, ISSUED_LEGACY, 0 */
  uint64_t host_version; /* of the host's clock that it has */
} clocked_stream;

typedef struct clocked_event {
  uint64_t handle; /* 0: a free slot */
  stream_clock clock;
  bool gone; /* its slot stays, so that others are found */
} clocked_event;

typedef struct clocks {
  struct {
    clocked_stream *items;
    uint32_t count, capacity;
  } streams;
  clocked_event *events; /* by hash of the handle; at most half of the slots are taken */
  uint32_t event_slots, event_count;
  stream_clock host;
  uint64_t host_version;
  uint32_t synchronising; /* streams that are blocking or legacy */
} clocks;

void clocks_release(clocks *c);

/* The next number. False: there are CLOCK_STREAMS already. */
bool clocks_add_stream(clocks *c, uint64_t context, uint64_t kind);

/* The number of the stream's new operation. */
uint32_t clocks_issue(clocks *c, uint32_t stream);

void clocks_record(clocks *c, uint32_t stream, uint64_t event);
void clocks_wait(clocks *c, uint32_t stream, uint64_t event);
void clocks_event_done(clocks *c, uint64_t event);
void clocks_event_gone(clocks *c, uint64_t event);
void clocks_stream_done(clocks *c, uint32_t stream);
void clocks_context_done(clocks *c, uint64_t context);
void clocks_all_done(clocks *c);

static inline uint32_t clock_of(const stream_clock *c, uint32_t stream)
{
  return stream < c->count ? c->items[stream] : 0;
}

/* Whether the next operation of `later` begins when operation `number` of `stream` is over. */
static inline bool clocks_ordered(const clocks *c, uint32_t stream, uint32_t number, uint32_t later)
{
  return stream == later || clock_of(&c->streams.items[later].clock, stream) >= number;
}

/* Whether the host knows that it is over: then nothing that comes can overlap it. */
static inline bool clocks_over(const clocks *c, uint32_t stream, uint32_t number)
{
  return clock_of(&c->host, stream) >= number;
}

#endif
