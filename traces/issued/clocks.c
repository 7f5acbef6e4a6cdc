#include "traces/issued/clocks.h"

#include <assert.h>
#include <string.h>

#include "traces/issued/rows.h"

static void widen(stream_clock *c, uint32_t count)
{
  if (count <= c->count) return;
  uint32_t extra = count - c->count;
  memset(ARRAY_EXTEND(c, extra), 0, extra * sizeof *c->items);
}

static bool merge(stream_clock *to, const stream_clock *from)
{
  bool changed = false;
  widen(to, from->count);
  for (uint32_t i = 0; i < from->count; i++)
    if (to->items[i] < from->items[i]) {
      to->items[i] = from->items[i];
      changed = true;
    }
  return changed;
}

static void assign(stream_clock *to, const stream_clock *from)
{
  to->count = 0;
  widen(to, from->count);
  if (from->count > 0) memcpy(to->items, from->items, from->count * sizeof *from->items);
}

void clocks_release(clocks *c)
{
  for (uint32_t i = 0; i < c->streams.count; i++)
    ARRAY_FREE(&c->streams.items[i].clock);
  for (uint32_t i = 0; i < c->event_slots; i++)
    ARRAY_FREE(&c->events[i].clock);
  ARRAY_FREE(&c->streams);
  ARRAY_FREE(&c->host);
  array_release(c->events);
  *c = (clocks){ 0 };
}

bool clocks_add_stream(clocks *c, uint64_t context, uint64_t kind)
{
  if (c->streams.count == CLOCK_STREAMS) return false;
  uint32_t number = c->streams.count;
  clocked_stream *s = ARRAY_PUSH(&c->streams);
  *s = (clocked_stream){ .context = context, .kind = kind };
  widen(&s->clock, number + 1);
  c->synchronising += kind != 0;
  return true;
}

/* The legacy stream and the blocking ones of its context order each other. */
static void synchronise_default(clocks *c, uint32_t stream)
{
  clocked_stream *s = &c->streams.items[stream];
  uint64_t other = s->kind == ISSUED_LEGACY ? ISSUED_BLOCKING : ISSUED_LEGACY;
  for (uint32_t i = 0; i < c->streams.count; i++) {
    clocked_stream *t = &c->streams.items[i];
    if (t->kind == other && t->context == s->context) merge(&s->clock, &t->clock);
  }
}

/* Brings the stream's clock to what its next operation waits for. */
static clocked_stream *enter(clocks *c, uint32_t stream)
{
  assert(stream < c->streams.count);
  clocked_stream *s = &c->streams.items[stream];
  if (s->host_version != c->host_version) {
    merge(&s->clock, &c->host);
    s->host_version = c->host_version;
  }
  if (s->kind != 0 && c->synchronising > 1) synchronise_default(c, stream);
  return s;
}

uint32_t clocks_issue(clocks *c, uint32_t stream)
{
  clocked_stream *s = enter(c, stream);
  assert(s->clock.items[stream] < UINT32_MAX);
  return ++s->clock.items[stream];
}

/* ---- events ---- */

static clocked_event *slot_of(const clocks *c, uint64_t handle)
{
  uint32_t at = (uint32_t)((handle * 0x9e3779b97f4a7c15U) >> 32) & (c->event_slots - 1);
  while (c->events[at].handle != 0 && c->events[at].handle != handle)
    at = (at + 1) & (c->event_slots - 1);
  return &c->events[at];
}

static void grow(clocks *c)
{
  clocked_event *old = c->events;
  uint32_t old_slots = c->event_slots, capacity = 0;
  c->event_slots = old_slots == 0 ? 64 : 2 * old_slots;
  c->events = array_grow(NULL, &capacity, c->event_slots, sizeof *c->events);
  memset(c->events, 0, c->event_slots * sizeof *c->events);
  c->event_count = 0;
  for (uint32_t i = 0; i < old_slots; i++) {
    if (old[i].handle == 0 || old[i].gone) {
      ARRAY_FREE(&old[i].clock);
      continue;
    }
    *slot_of(c, old[i].handle) = old[i];
    c->event_count++;
  }
  array_release(old);
}

/* Creates it if it is missing. Handles are not 0. */
static clocked_event *event_of(clocks *c, uint64_t handle)
{
  if (2 * c->event_count >= c->event_slots) grow(c);
  clocked_event *e = slot_of(c, handle);
  if (e->handle == 0) {
    e->handle = handle;
    c->event_count++;
  }
  e->gone = false;
  return e;
}

/* NULL: it was never recorded, or there is none. */
static const stream_clock *find(const clocks *c, uint64_t handle)
{
  if (c->event_slots == 0 || handle == 0) return NULL;
  const clocked_event *e = slot_of(c, handle);
  return e->handle == 0 || e->gone ? NULL : &e->clock;
}

void clocks_record(clocks *c, uint32_t stream, uint64_t event)
{
  if (event == 0) return;
  const clocked_stream *s = enter(c, stream);
  assign(&event_of(c, event)->clock, &s->clock);
}

void clocks_wait(clocks *c, uint32_t stream, uint64_t event)
{
  const stream_clock *recorded = find(c, event);
  if (recorded != NULL) merge(&enter(c, stream)->clock, recorded);
}

void clocks_event_gone(clocks *c, uint64_t event)
{
  if (find(c, event) == NULL) return;
  clocked_event *e = slot_of(c, event);
  e->gone = true;
  e->clock.count = 0;
}

/* ---- what the host learns ---- */

static void host_learns(clocks *c, const stream_clock *from)
{
  if (merge(&c->host, from)) c->host_version++;
}

void clocks_event_done(clocks *c, uint64_t event)
{
  const stream_clock *recorded = find(c, event);
  if (recorded != NULL) host_learns(c, recorded);
}

void clocks_stream_done(clocks *c, uint32_t stream)
{
  host_learns(c, &enter(c, stream)->clock);
}

void clocks_context_done(clocks *c, uint64_t context)
{
  for (uint32_t i = 0; i < c->streams.count; i++)
    if (c->streams.items[i].context == context) host_learns(c, &c->streams.items[i].clock);
}

void clocks_all_done(clocks *c)
{
  for (uint32_t i = 0; i < c->streams.count; i++)
    host_learns(c, &c->streams.items[i].clock);
}
