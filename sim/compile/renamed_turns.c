#include "sim/compile/renamed_turns.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

/* ---- two turns begin alike ----------------------------------------------------------------------- */

typedef struct comparison {
  const rank_plan *rank;
  const turn_begin *before, *now;
  renamed_turns *names;
} comparison;

static renaming renaming_new(uint32_t fresh, uint32_t next)
{
  assert(fresh <= next);
  return (renaming){ .fresh = fresh,
                     .growth = next - fresh,
                     .later = ids_new(fresh),
                     .earlier = ids_new(next),
                     .used = ids_new(next) };
}

static bool meet(renaming *r, uint32_t before, uint32_t now)
{
  assert(before < r->later.count && now < r->earlier.count);
  return ids_meet(r->earlier.items, r->later.items, now, before);
}

/* The turns find the same buffer but for its name. */
static bool is_same_buffer(const comparison *c, uint32_t before, uint32_t now)
{
  const plan_buffer *buffers = c->rank->buffers.items;
  return buffer_repeats(&buffers[before], &buffers[now]) &&
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

/* The names that the op's argument is one of; NULL: it is none. */
static renaming *names_of_arg(renamed_turns *r, op_kind kind)
{
  if (op_is_memory(kind)) return &r->buffers;
  return kind == OP_RECORD || op_waits_for_event(kind) ? &r->events : NULL;
}

static bool is_named(const renaming *r, uint32_t id)
{
  return id >= r->fresh || r->later.items[id] != NO_ID;
}

/* The turn before used no older id but those of its state: what decides which one it uses is visited. */
static bool all_are_named(renamed_turns *r, const rank_plan *p, const plan_part *before,
                          const plan_part *now)
{
  for (uint32_t i = before->ops; i < now->ops; i++) {
    const plan_op *o = &p->ops.items[i];
    const renaming *names = names_of_arg(r, (op_kind)o->kind);
    if (names != NULL && !is_named(names, o->arg)) return false;
  }
  for (uint32_t i = before->operands; i < now->operands; i++)
    if (!is_named(&r->buffers, p->operands.items[i])) return false;
  return true;
}

bool turns_are_renamed(renamed_turns *r, const walk *w, const turn_begin *before,
                       const turn_begin *now)
{
  const plan_part *a = &before->plan, *b = &now->plan;
  assert(a->ops < b->ops && a->marks < b->marks);
  comparison c = { .rank = w->rank, .before = before, .now = now, .names = r };
  *r = (renamed_turns){ .of_turn = { .ops = b->ops - a->ops,
                                     .operands = b->operands - a->operands,
                                     .buffers = b->buffers - a->buffers,
                                     .events = b->events - a->events,
                                     .marks = b->marks - a->marks },
                        .buffers = renaming_new(a->buffers, b->buffers),
                        .events = renaming_new(a->events, b->events) };
  bool same = same_sections(&c) && all_are_named(r, w->rank, a, b);
  if (!same) renamed_turns_release(r);
  return same;
}

static void renaming_release(renaming *r)
{
  ARRAY_FREE(&r->later);
  ARRAY_FREE(&r->earlier);
  ARRAY_FREE(&r->used);
}

void renamed_turns_release(renamed_turns *r)
{
  renaming_release(&r->buffers);
  renaming_release(&r->events);
}

/* ---- writing turns ------------------------------------------------------------------------------- */

/* The name a turn later of an id that a turn uses. */
static inline uint32_t rename_used(renaming *r, uint32_t id)
{
  uint32_t later = renamed(r, id);
  if (id < r->fresh) r->used.items[later] = id;
  return later;
}

/* Where a turn uses older ids that have another name a turn later: these words do not grow evenly. */
typedef struct moving_ids {
  renaming *names;
  id_array at; /* words of the turn */
} moving_ids;

typedef struct moving {
  moving_ids buffers, events; /* args: words of ops */
  moving_ids operands;
} moving;

static inline uint32_t rename_first(moving_ids *m, uint32_t at, uint32_t id)
{
  uint32_t later = rename_used(m->names, id);
  if (id < m->names->fresh && later != id) *ARRAY_PUSH(&m->at) = at;
  return later;
}

_Static_assert(sizeof(plan_op) == 4 * sizeof(uint32_t) && offsetof(plan_op, arg) == 4,
               "an op is four words, the second its arg");

static uint32_t rename_arg(renamed_turns *r, moving *m, uint32_t i, const plan_op *o)
{
  op_kind kind = (op_kind)o->kind;
  renaming *names = names_of_arg(r, kind);
  if (names != NULL)
    return rename_first(names == &r->buffers ? &m->buffers : &m->events, 4 * i + 1, o->arg);
  if (op_is_message(kind)) return o->arg + r->messages;
  return kind == OP_MARK ? o->arg + r->of_turn.marks : o->arg;
}

/* The first turn, each op and operand from the one a turn earlier. */
static void write_first_turn(renamed_turns *r, moving *m, plan_op *ops, uint32_t *operands)
{
  const plan_op *older = ops - r->of_turn.ops;
  const uint32_t *older_operands = operands - r->of_turn.operands;
  for (uint32_t i = 0; i < r->of_turn.ops; i++) {
    ops[i] = older[i];
    ops[i].arg = rename_arg(r, m, i, &older[i]);
    if (op_works((op_kind)older[i].kind)) ops[i].operands += r->of_turn.operands;
  }
  for (uint32_t i = 0; i < r->of_turn.operands; i++)
    operands[i] = rename_first(&m->operands, i, older_operands[i]);
}

/* Words of a turn: each grows as it has grown from the turn before last to the last one. */
static void write_grown(uint32_t *restrict to, const uint32_t *restrict last,
                        const uint32_t *restrict older, uint32_t count)
{
  for (uint32_t i = 0; i < count; i++)
    to[i] = last[i] + (last[i] - older[i]);
}

/* Once a word has an id that is no longer older, it grows evenly. */
static void rename_moving(moving_ids *m, uint32_t *to, const uint32_t *last)
{
  uint32_t kept = 0;
  for (uint32_t i = 0; i < m->at.count; i++) {
    uint32_t at = m->at.items[i], id = last[at];
    to[at] = rename_used(m->names, id);
    if (id < m->names->fresh) m->at.items[kept++] = at;
  }
  m->at.count = kept;
}

/* A turn whose two turns before are written. */
static void write_later_turn(const plan_part *turn, moving *m, plan_op *ops, uint32_t *operands)
{
  uint32_t *to = (uint32_t *)ops, *last = (uint32_t *)(ops - turn->ops);
  const uint32_t *last_operands = operands - turn->operands;
  write_grown(to, last, (uint32_t *)(ops - 2 * (size_t)turn->ops), 4 * turn->ops);
  write_grown(operands, last_operands, operands - 2 * (size_t)turn->operands, turn->operands);
  rename_moving(&m->buffers, to, last);
  rename_moving(&m->events, to, last);
  rename_moving(&m->operands, operands, last_operands);
}

static void write_ops(renamed_turns *r, walk *w)
{
  const plan_part *turn = &r->of_turn;
  moving m = { { .names = &r->buffers }, { .names = &r->events }, { .names = &r->buffers } };
  plan_op *ops = ARRAY_EXTEND(&w->rank->ops, r->turns * turn->ops);
  uint32_t *operands = ARRAY_EXTEND(&w->rank->operands, r->turns * turn->operands);
  write_first_turn(r, &m, ops, operands);
  for (uint32_t i = 1; i < r->turns; i++)
    write_later_turn(turn, &m, ops += turn->ops, operands += turn->operands);
  ARRAY_FREE(&m.buffers.at);
  ARRAY_FREE(&m.events.at);
  ARRAY_FREE(&m.operands.at);
}

static void write_buffers(const renamed_turns *r, walk *w)
{
  uint32_t of_turn = r->of_turn.buffers, count = r->turns * of_turn;
  plan_buffer *to = ARRAY_EXTEND(&w->rank->buffers, count);
  const plan_buffer *older = to - of_turn;
  for (uint32_t i = 0; i < count; i++) {
    to[i] = older[i];
    to[i].mark += r->of_turn.marks;
  }
}

static void write_marks(const renamed_turns *r, walk *w)
{
  uint32_t of_turn = r->of_turn.marks, count = r->turns * of_turn;
  plan_mark *to = ARRAY_EXTEND(&w->rank->marks, count);
  const plan_mark *older = to - of_turn;
  for (uint32_t i = 0; i < count; i++) {
    to[i] = older[i];
    to[i].microbatch += r->microbatches;
  }
}

/* Messages of all turns are as large as those of the turn that ends before op `end`. */
static void write_messages(const renamed_turns *r, walk *w, uint32_t end)
{
  plan_message *messages = w->plan->messages.items;
  for (uint32_t i = end - r->of_turn.ops; i < end; i++) {
    const plan_op *o = &w->rank->ops.items[i];
    if (!op_is_message((op_kind)o->kind)) continue;
    assert(o->arg + r->turns * r->messages < w->plan->messages.count);
    for (uint32_t k = 1; k <= r->turns; k++)
      messages[o->arg + k * r->messages].bytes = messages[o->arg].bytes;
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
static void move_references(const renamed_turns *r, walk *w, const turn_begin *now)
{
  const uint32_t *earlier = r->buffers.earlier.items;
  uint32_t taken = r->turns * r->of_turn.buffers;
  memset(ARRAY_EXTEND(&w->references, taken), 0, taken * sizeof *w->references.items);
  uint32_t *references = w->references.items;
  for (uint32_t b = 0; b < now->plan.buffers; b++)
    if (earlier[b] != NO_ID) references[b] = 0;
  for (uint32_t b = 0; b < now->plan.buffers; b++)
    if (earlier[b] != NO_ID)
      references[renamed_for(&r->buffers, b, r->turns)] = now->references.items[b];
}

/* ---- the part that repeats ----------------------------------------------------------------------- */

/* If it is longer than the one before. Takes what the turns use. */
static void tell_repeat(renamed_turns *r, rank_plan *rank, uint32_t first)
{
  const plan_part *t = &r->of_turn;
  if (r->turns < rank->repeat.turns) return;
  plan_forget_repeat(rank);
  rank->repeat = (plan_repeat){ .first = first,
                                .ops = t->ops,
                                .turns = r->turns + 1,
                                .marks = t->marks,
                                .messages = r->messages,
                                .buffers = t->buffers,
                                .events = t->events,
                                .earlier_buffers = r->buffers.used,
                                .earlier_events = r->events.used };
  r->buffers.used = r->events.used = (id_array){ 0 };
}

void turns_write(renamed_turns *r, walk *w, const turn_begin *before, turn_begin *now)
{
  assert(r->turns > 0 && w->rank->ops.count == now->plan.ops);
  write_ops(r, w);
  write_buffers(r, w);
  write_marks(r, w);
  write_messages(r, w, now->plan.ops);
  w->rank->events += r->turns * r->of_turn.events;
  move_state(r, &before->state, &now->state);
  move_references(r, w, now);
  tell_repeat(r, w->rank, before->plan.ops);
}
