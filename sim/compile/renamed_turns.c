#include "sim/compile/renamed_turns.h"

#include <assert.h>
#include <string.h>

/* ---- two turns begin alike ----------------------------------------------------------------------- */

typedef struct comparison {
  const rank_plan *rank;
  const turn_begin *before, *now;
  renamed_turns *names;
} comparison;

static id_array names_new(uint32_t count)
{
  id_array ids = { 0 };
  if (count > 0) memset(ARRAY_EXTEND(&ids, count), 0xff, count * sizeof *ids.items);
  return ids;
}

static renaming renaming_new(uint32_t fresh, uint32_t next)
{
  assert(fresh <= next);
  return (renaming){
    .fresh = fresh, .growth = next - fresh, .later = names_new(fresh), .earlier = names_new(next)
  };
}

/* One to one: each id has one later and one earlier id. */
static bool meet(renaming *r, uint32_t before, uint32_t now)
{
  assert(before < r->later.count && now < r->earlier.count);
  if (r->later.items[before] == now) return true;
  if (r->later.items[before] != NO_ID || r->earlier.items[now] != NO_ID) return false;
  r->later.items[before] = now;
  r->earlier.items[now] = before;
  return true;
}

/* The turns find the same buffer but for its name. */
static bool is_same_buffer(const comparison *c, uint32_t before, uint32_t now)
{
  const plan_buffer *a = &c->rank->buffers.items[before], *b = &c->rank->buffers.items[now];
  return a->bytes == b->bytes && a->tensor == b->tensor && a->purpose == b->purpose &&
         a->stream == b->stream && a->filled == b->filled && a->host_key == b->host_key &&
         c->before->references.items[before] == c->now->references.items[now];
}

static bool same_buffers(comparison *c, const uint32_t *before, const uint32_t *now, uint32_t count)
{
  renaming *r = &c->names->buffers;
  for (uint32_t i = 0; i < count; i++) {
    if (before[i] == NO_BUFFER && now[i] == NO_BUFFER) continue;
    if (before[i] == NO_BUFFER || now[i] == NO_BUFFER) return false;
    if (!meet(r, before[i], now[i]) || !is_same_buffer(c, before[i], now[i])) return false;
  }
  return true;
}

static bool same_events(comparison *c, const uint32_t *before, const uint32_t *now, uint32_t count)
{
  for (uint32_t i = 0; i < count; i++)
    if (!meet(&c->names->events, before[i], now[i])) return false;
  return true;
}

static bool same_section(comparison *c, const turn_section *s)
{
  const uint32_t *before = c->before->state.words.items + s->first;
  const uint32_t *now = c->now->state.words.items + s->first;
  switch (s->kind) {
  case TURN_PLAIN:
  case TURN_SHIFTED: return s->count == 0 || memcmp(before, now, s->count * sizeof *now) == 0;
  case TURN_BUFFER: return same_buffers(c, before, now, s->count);
  case TURN_EVENT: return same_events(c, before, now, s->count);
  case TURN_TALLY: break;
  }
  return true;
}

static bool same_sections(comparison *c)
{
  const turn_section_array *a = &c->before->state.sections, *b = &c->now->state.sections;
  if (a->count != b->count) return false;
  for (uint32_t i = 0; i < b->count; i++)
    if (a->items[i].kind != b->items[i].kind || a->items[i].count != b->items[i].count ||
        !same_section(c, &b->items[i]))
      return false;
  return true;
}

bool turns_are_renamed(renamed_turns *r, const walk *w, const turn_begin *before,
                       const turn_begin *now)
{
  assert(before->ops < now->ops && before->buffers <= now->buffers);
  comparison c = { .rank = w->rank, .before = before, .now = now, .names = r };
  *r = (renamed_turns){ .buffers = renaming_new(before->buffers, now->buffers),
                        .events = renaming_new(before->events, now->events) };
  bool same = same_sections(&c);
  if (!same) renamed_turns_release(r);
  return same;
}

void renamed_turns_release(renamed_turns *r)
{
  ARRAY_FREE(&r->buffers.later);
  ARRAY_FREE(&r->buffers.earlier);
  ARRAY_FREE(&r->events.later);
  ARRAY_FREE(&r->events.earlier);
}

/* ---- writing turns ------------------------------------------------------------------------------- */

static uint32_t renamed_message(const renamed_turns *r, plan *p, uint32_t id)
{
  assert(id + r->messages < p->messages.count);
  p->messages.items[id + r->messages].bytes = p->messages.items[id].bytes;
  return id + r->messages;
}

static uint32_t renamed_arg(const renamed_turns *r, walk *w, uint32_t marks, const plan_op *o)
{
  switch ((op_kind)o->kind) {
  case OP_ALLOC:
  case OP_FREE:
  case OP_HOST_ALLOC:
  case OP_HOST_FREE: return renamed(&r->buffers, o->arg);
  case OP_RECORD:
  case OP_WAIT:
  case OP_HOST_WAIT:
  case OP_HOST_READ: return renamed(&r->events, o->arg);
  case OP_SEND:
  case OP_RECV: return renamed_message(r, w->plan, o->arg);
  case OP_MARK: return o->arg + marks;
  case OP_KERNEL:
  case OP_COLLECTIVE:
  case OP_D2H:
  case OP_H2D:
  case OP_DISK_WRITE:
  case OP_DISK_READ:
  case OP_HOST_WORK:
  case OP_GRAPH_BEGIN:
  case OP_GRAPH_END:
  case OP_KINDS: break;
  }
  return o->arg;
}

/* Each op from the one a turn earlier. */
static void write_ops(const renamed_turns *r, walk *w, const turn_begin *before,
                      const turn_begin *now)
{
  uint32_t ops = now->ops - before->ops, marks = now->marks - before->marks;
  uint32_t operands = now->operands - before->operands, count = r->turns * ops;
  plan_op *to = ARRAY_EXTEND(&w->rank->ops, count);
  assert(to == w->rank->ops.items + now->ops);
  for (const plan_op *end = to + count; to < end; to++) {
    *to = to[-(ptrdiff_t)ops];
    if (op_works((op_kind)to->kind)) to->operands += operands;
    to->arg = renamed_arg(r, w, marks, to);
  }
}

static void write_operands(const renamed_turns *r, walk *w, const turn_begin *before,
                           const turn_begin *now)
{
  uint32_t of_turn = now->operands - before->operands, count = r->turns * of_turn;
  uint32_t *to = ARRAY_EXTEND(&w->rank->operands, count);
  const uint32_t *from = to - of_turn;
  for (uint32_t i = 0; i < count; i++)
    to[i] = renamed(&r->buffers, from[i]);
}

static void write_buffers(const renamed_turns *r, walk *w, const turn_begin *before,
                          const turn_begin *now)
{
  uint32_t marks = now->marks - before->marks, of_turn = now->buffers - before->buffers;
  uint32_t count = r->turns * of_turn;
  plan_buffer *to = ARRAY_EXTEND(&w->rank->buffers, count);
  for (uint32_t i = 0; i < count; i++) {
    to[i] = (to - of_turn)[i];
    to[i].mark += marks;
  }
}

static void write_marks(const renamed_turns *r, walk *w, const turn_begin *before,
                        const turn_begin *now)
{
  uint32_t of_turn = now->marks - before->marks, count = r->turns * of_turn;
  plan_mark *to = ARRAY_EXTEND(&w->rank->marks, count);
  assert(of_turn > 0 && "a turn begins with a forward");
  for (uint32_t i = 0; i < count; i++) {
    to[i] = (to - of_turn)[i];
    to[i].microbatch += r->microbatches;
  }
}

/* ---- the state after them ------------------------------------------------------------------------ */

/* The id in the same place `left` turns later. */
static uint32_t renamed_for(const renaming *r, uint32_t id, uint32_t left)
{
  for (; left > 0 && id < r->fresh; left--) {
    if (renamed(r, id) == id) return id;
    id = renamed(r, id);
  }
  return id + left * r->growth;
}

static void move_tallies(const turn_state *before, turn_state *now, const turn_section *s,
                         uint32_t written)
{
  for (uint32_t at = s->first; at < s->first + s->count; at += 2) {
    int64_t a, b;
    memcpy(&a, before->words.items + at, sizeof a);
    memcpy(&b, now->words.items + at, sizeof b);
    b += written * (b - a);
    memcpy(now->words.items + at, &b, sizeof b);
  }
}

static void move_state(const renamed_turns *r, const turn_state *before, turn_state *now)
{
  for (uint32_t i = 0; i < now->sections.count; i++) {
    const turn_section *s = &now->sections.items[i];
    uint32_t *words = now->words.items + s->first;
    if (s->kind == TURN_TALLY) move_tallies(before, now, s, r->turns);
    for (uint32_t k = 0; k < s->count; k++)
      if (s->kind == TURN_EVENT)
        words[k] = renamed_for(&r->events, words[k], r->turns);
      else if (s->kind == TURN_BUFFER && words[k] != NO_BUFFER)
        words[k] = renamed_for(&r->buffers, words[k], r->turns);
  }
}

/* What the state no longer has was freed. */
static void move_references(const renamed_turns *r, walk *w, const turn_begin *before,
                            const turn_begin *now)
{
  const uint32_t *earlier = r->buffers.earlier.items;
  uint32_t taken = r->turns * (now->buffers - before->buffers);
  memset(ARRAY_EXTEND(&w->references, taken), 0, taken * sizeof *w->references.items);
  uint32_t *references = w->references.items;
  for (uint32_t b = 0; b < now->buffers; b++)
    if (earlier[b] != NO_ID) references[b] = 0;
  for (uint32_t b = 0; b < now->buffers; b++)
    if (earlier[b] != NO_ID)
      references[renamed_for(&r->buffers, b, r->turns)] = now->references.items[b];
}

void turns_write(const renamed_turns *r, walk *w, const turn_begin *before, turn_begin *now)
{
  assert(r->turns > 0 && w->rank->ops.count == now->ops);
  write_ops(r, w, before, now);
  write_operands(r, w, before, now);
  write_buffers(r, w, before, now);
  write_marks(r, w, before, now);
  w->rank->events += r->turns * r->events.growth;
  move_state(r, &before->state, &now->state);
  move_references(r, w, before, now);
}
