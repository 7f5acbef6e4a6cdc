#include "traces/import/run_memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"

enum { ALLOCATOR_ROUND_BYTES = 512 };

/* ---- lives ---- */

/* What happened at an address: events, then the block at the end. */
typedef struct change {
  uint64_t address;
  uint32_t event; /* from `events` on: blocks */
} change;

static int by_address(const void *left, const void *right)
{
  const change *a = left, *b = right;
  if (a->address != b->address) return a->address < b->address ? -1 : 1;
  return a->event < b->event ? -1 : a->event > b->event;
}

static change *changes_of(const real_run *r, uint32_t *count, arena *a)
{
  change *all = ARENA_ARRAY(a, change, (size_t)r->events.count + r->blocks.count + 1);
  uint32_t n = 0;
  for (uint32_t i = 0; i < r->events.count; i++)
    if (r->events.items[i].kind <= REAL_FREE_DONE)
      all[n++] = (change){ r->events.items[i].address, i };
  for (uint32_t i = 0; i < r->blocks.count; i++)
    all[n++] = (change){ r->blocks.items[i].address, r->events.count + i };
  qsort(all, n, sizeof *all, by_address);
  *count = n;
  return all;
}

/* `open`: the life of the block that is at the address now; NULL: none, so that the event is of one
 * from before the record. */
static block_life *life_of_event(run_memory *m, block_life *open, uint32_t i)
{
  const real_memory_event *e = &m->run->events.items[i];
  int64_t never = m->run->events.count;
  bool new_life = e->kind == REAL_ALLOC || open == NULL;
  if (new_life) {
    if (open != NULL) { /* its end is not in the record */
      open->freed = min_i64(open->freed, i);
      open->done = i;
    }
    open = &m->lives[m->life_count++];
    *open = (block_life){
      .bytes = round_up(e->bytes, ALLOCATOR_ROUND_BYTES), .begin = -1, .freed = never, .done = never
    };
  }
  if (e->kind == REAL_ALLOC) {
    open->begin = i;
    open->stack = e->stack;
  }
  if (e->kind == REAL_FREE) open->freed = i;
  if (e->kind == REAL_FREE_DONE) {
    open->done = i;
    open->freed = new_life ? -1 : min_i64(open->freed, i);
  }
  return e->kind == REAL_FREE_DONE ? NULL : open;
}

/* A block that is still there knows its whole size. */
static void life_of_block(run_memory *m, block_life *open, const real_block *b)
{
  int64_t never = m->run->events.count;
  if (open == NULL) {
    open = &m->lives[m->life_count++];
    *open = (block_life){ .begin = -1, .freed = never, .done = never, .stack = b->stack };
  }
  open->bytes = b->bytes;
  if (b->pending && open->freed == never) open->freed = -1;
}

static void find_lives(run_memory *m, arena *a)
{
  const real_run *r = m->run;
  uint32_t count;
  const change *all = changes_of(r, &count, a);
  m->lives = ARENA_ARRAY(a, block_life, (size_t)count + 1);
  block_life *open = NULL;
  for (uint32_t i = 0; i < count; i++) {
    if (i > 0 && all[i].address != all[i - 1].address) open = NULL;
    if (all[i].event < r->events.count)
      open = life_of_event(m, open, all[i].event);
    else
      life_of_block(m, open, &r->blocks.items[all[i].event - r->events.count]);
  }
}

/* ---- peaks ---- */

static int64_t end_of(const block_life *l, bool active)
{
  return active ? max_i64(l->freed, l->done) : l->freed;
}

static bool lives_at(const block_life *l, int64_t event, bool active)
{
  return l->begin <= event && event < end_of(l, active);
}

/* Bytes after each event; [0]: at the begin. */
static int64_t *curve_of(const run_memory *m, bool active, arena *a)
{
  size_t count = m->run->events.count;
  int64_t *bytes = ARENA_ARRAY(a, int64_t, count + 2);
  for (uint32_t i = 0; i < m->life_count; i++) {
    const block_life *l = &m->lives[i];
    int64_t end = end_of(l, active);
    if (end < 0) continue;
    bytes[l->begin + 1] += l->bytes;
    bytes[end + 1] -= l->bytes;
  }
  for (size_t i = 1; i <= count; i++)
    bytes[i] += bytes[i - 1];
  return bytes;
}

bool block_lives_at(const block_life *l, int64_t event)
{
  return lives_at(l, event, false);
}

uint32_t run_memory_owner(const real_run *r, uint32_t stack)
{
  const real_stack *s = &r->stacks.items[stack];
  if (s->count == 0) return REAL_NONE;
  const uint32_t *frames = r->frame_numbers.items + s->first;
  for (uint32_t i = 0; i < s->count; i++) {
    const char *file = r->frames.items[frames[i]].file;
    bool torch = strstr(file, "torch/") != NULL && strstr(file, "_torch/") == NULL;
    if (!torch && strchr(file, '<') == NULL) return frames[i];
  }
  return frames[0];
}

static int by_bytes(const void *left, const void *right)
{
  const memory_owner *a = left, *b = right;
  if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
  return a->frame < b->frame ? -1 : a->frame > b->frame;
}

static void find_owners(const run_memory *m, memory_peak *p, bool active, arena *a)
{
  uint32_t frames = m->run->frames.count;
  memory_owner *of = ARENA_ARRAY(a, memory_owner, (size_t)frames + 1);
  int64_t *largest = ARENA_ARRAY(a, int64_t, (size_t)frames + 1);
  for (uint32_t i = 0; i < m->life_count; i++) {
    const block_life *l = &m->lives[i];
    if (!lives_at(l, p->event, active)) continue;
    uint32_t frame = run_memory_owner(m->run, l->stack);
    uint32_t slot = frame == REAL_NONE ? frames : frame;
    of[slot].frame = frame;
    of[slot].count++;
    of[slot].bytes += l->bytes;
    if (l->bytes <= largest[slot]) continue;
    largest[slot] = l->bytes;
    of[slot].stack = l->stack;
  }
  p->owners = of;
  for (uint32_t i = 0; i <= frames; i++)
    if (of[i].count > 0) of[p->owner_count++] = of[i];
  qsort(of, p->owner_count, sizeof *of, by_bytes);
}

/* The first event after which most bytes are held. */
static memory_peak peak_of(const run_memory *m, const int64_t *bytes, bool active, arena *a)
{
  const real_run *r = m->run;
  uint32_t count = r->events.count, at = 0;
  for (uint32_t i = 1; i <= count; i++)
    if (bytes[i] > bytes[at]) at = i;
  memory_peak p = { .bytes = bytes[at], .event = (int64_t)at - 1 };
  if (count > 0) p.time_ns = r->events.items[at > 0 ? at - 1 : 0].time_ns;
  find_owners(m, &p, active, a);
  return p;
}

static int64_t reserved_peak(const real_run *r)
{
  int64_t bytes = r->segments_bytes, peak = bytes;
  for (uint32_t i = r->events.count; i-- > 0;) {
    const real_memory_event *e = &r->events.items[i];
    if (e->kind == REAL_SEGMENT) bytes -= e->bytes;
    if (e->kind == REAL_SEGMENT_FREE) bytes += e->bytes;
    peak = max_i64(peak, bytes);
  }
  return peak;
}

run_memory run_memory_of(const real_run *r, arena *a)
{
  assert(r->is_finished && r->has_memory);
  run_memory m = { .run = r };
  find_lives(&m, a);
  m.allocated_bytes = curve_of(&m, false, a);
  m.allocated = peak_of(&m, m.allocated_bytes, false, a);
  m.active = peak_of(&m, curve_of(&m, true, a), true, a);
  m.begin_bytes = m.allocated_bytes[0];
  m.end_bytes = m.allocated_bytes[r->events.count];
  m.reserved_peak_bytes = reserved_peak(r);
  return m;
}

static int by_event_time(const void *left, const void *right)
{
  const real_memory_event *a = left, *b = right;
  return (a->time_ns > b->time_ns) - (a->time_ns < b->time_ns);
}

int64_t run_memory_at(const run_memory *m, int64_t time_ns)
{
  const real_memory_array *events = &m->run->events;
  const real_memory_event after = { .time_ns = time_ns + 1 };
  return m->allocated_bytes[array_count_before(events->items, events->count, sizeof after, &after,
                                               by_event_time)];
}
