#include "traces/import/copy_waits.h"

#include <assert.h>

#include "sim/base/arena.h"
#include "traces/issued/clocks.h"

/* Copies of a stream that compute does not wait for yet; the oldest is over first. */
typedef struct pending {
  struct {
    uint32_t copy, number;
  } * items;
  uint32_t count, capacity;
  uint32_t first;
  uint32_t compute_seen; /* of compute's work, when the stream's last copy was issued */
} pending;

typedef struct follower {
  clocks clocks;
  pending *streams;
  uint32_t compute;
  copy_wait *waits;
} follower;

static uint32_t seen_by(const follower *f, uint32_t stream, uint32_t of)
{
  return clock_of(&f->clocks.streams.items[stream].clock, of);
}

/* Compute's work begins after these. */
static void find_awaited(follower *f, uint32_t pass)
{
  for (uint32_t i = 0; i < f->clocks.streams.count; i++) {
    pending *p = &f->streams[i];
    uint32_t over = seen_by(f, f->compute, i);
    for (; p->first < p->count && p->items[p->first].number <= over; p->first++)
      f->waits[p->items[p->first].copy].awaited = pass;
  }
}

static void issue_copy(follower *f, const action *a)
{
  pending *p = &f->streams[a->stream];
  uint32_t number = clocks_issue(&f->clocks, a->stream);
  uint32_t seen = seen_by(f, a->stream, f->compute);
  uint32_t done = seen_by(f, f->compute, f->compute);
  f->waits[a->number] = (copy_wait){ .before = seen > p->compute_seen    ? BEFORE_WAITS
                                               : done == p->compute_seen ? BEFORE_NOTHING_NEW
                                                                         : BEFORE_DOES_NOT,
                                     .awaited = AWAITED_NEVER };
  p->compute_seen = seen;
  (void)ARRAY_PUSH(p);
  p->items[p->count - 1].copy = a->number;
  p->items[p->count - 1].number = number;
}

/* Events of clocks are not 0. */
static void follow(follower *f, const action *a)
{
  switch (a->kind) {
  case ACTION_WORK:
    clocks_issue(&f->clocks, a->stream);
    if (a->stream == f->compute) find_awaited(f, a->pass);
    break;
  case ACTION_COPY: issue_copy(f, a); break;
  case ACTION_RECORD: clocks_record(&f->clocks, a->stream, (uint64_t)a->number + 1); break;
  case ACTION_WAIT: clocks_wait(&f->clocks, a->stream, (uint64_t)a->number + 1); break;
  case ACTION_EVENT_DONE: clocks_event_done(&f->clocks, (uint64_t)a->number + 1); break;
  case ACTION_STREAM_DONE: clocks_stream_done(&f->clocks, a->stream); break;
  case ACTION_ALL_DONE: clocks_all_done(&f->clocks); break;
  }
}

void find_copy_waits(const action_array *actions, const uint8_t *stream_kinds, uint32_t streams,
                     uint32_t compute, copy_wait *waits)
{
  arena scratch = { 0 };
  follower f = { .compute = compute, .waits = waits };
  assert(streams <= CLOCK_STREAMS && compute < streams);
  f.streams = ARENA_ARRAY(&scratch, pending, streams);
  for (uint32_t i = 0; i < streams; i++)
    clocks_add_stream(&f.clocks, 0, stream_kinds == NULL ? 0 : stream_kinds[i]);
  for (uint32_t i = 0; i < actions->count; i++)
    follow(&f, &actions->items[i]);
  for (uint32_t i = 0; i < streams; i++)
    ARRAY_FREE(&f.streams[i]);
  clocks_release(&f.clocks);
  arena_release(&scratch);
}
