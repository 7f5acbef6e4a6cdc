/*
 * offsim's own system: saved tensors may take a given number of bytes on the device, the level
 * (offload.planned_device_bytes), and every copy begins as early and is waited for as late as that
 * allows.
 *
 * A piece is a storage that saved tensors view. The first pieces of a micro-batch leave, as few as
 * it takes for the others to fit. A link carries copies in order, and what was saved first comes
 * back last; so of all choices with these bytes, this one leaves the most time between a copy out
 * and the copy back.
 *
 *   forward    A piece that leaves is copied when it is saved. Before an operator whose result is a piece
 *              that the level does not hold beside the others, compute waits for the oldest copies, and
 *              the memory of those pieces is freed.
 *   backward   Before an operator that needs saved tensors, pieces come back, in the order in which
 *              backward needs them, as long as the level allows; its own in any case.
 *
 * So both directions of the link work at once where backward begins, and it never idles while there
 * is room. No more than the level is on the device, except for what a single operator needs. Compute
 * waits for each copy out before its source is
 * freed; a copy back waits for compute before it writes, and compute waits for it before it reads:
 * no memory is marked for another stream, and everything is compute's memory.
 */
#include <assert.h>
#include <string.h>

#include "sim/offload/actions.h"
#include "sim/offload/systems.h"
#include "sim/offload/torch_entries.h"

#define NO_PIECE UINT32_MAX

typedef struct piece {
  uint32_t first, last; /* of its entries, */
  uint32_t entries;     /* ... and how many there are */
  int64_t bytes;
} piece;

/* The pieces of a chunk, in the order in which they are first saved; [0, leaving) leave. */
typedef struct piece_list {
  piece *items;
  uint32_t count, leaving;
  uint32_t *of; /* by entry, NO_PIECE: it stays and does not count */
} piece_list;

static bool entry_can_leave(const saved_entry *e, const settings *s)
{
  assert(e->storage_bytes >= 0);
  return e->group != 0 && e->elements >= s->offload.min_offloaded_tensor_size &&
         !torch_entry_is_broadcast(e) && !e->parameter && !e->of_parameter && !e->not_offloadable &&
         !e->discarded && !e->callers;
}

/* ---- pieces, and which of them leave ---- */

/* Slot 0 is none. */
static bool slot_is_held(const chunk_shape *c, uint32_t slot)
{
  assert(slot == 0 || c->entry_count > 1);
  for (uint32_t k = 0; k < c->held_count; k++)
    if (c->held[k] == slot) return true;
  return slot == 0 || slot == c->input_slot;
}

/* By slot, whether its storage can leave: every tensor that is saved in it can. */
static bool *find_movable(const chunk_shape *c, const settings *s, uint32_t slots, arena *a)
{
  bool *movable = ARENA_ARRAY(a, bool, slots);

  for (uint32_t e = 1; e < c->entry_count; e++)
    movable[c->entries[e].slot] = !slot_is_held(c, c->entries[e].slot);
  for (uint32_t e = 1; e < c->entry_count; e++)
    if (!entry_can_leave(&c->entries[e], s)) movable[c->entries[e].slot] = false;
  assert(!movable[0] && "slot 0 is none");
  return movable;
}

static void find_pieces(const chunk_shape *c, const settings *s, piece_list *p, arena *a)
{
  uint32_t slots = theory_slot_count(c);
  const bool *movable = find_movable(c, s, slots, a);
  uint32_t *piece_of_slot = ARENA_ARRAY(a, uint32_t, slots);

  for (uint32_t slot = 0; slot < slots; slot++)
    piece_of_slot[slot] = NO_PIECE;
  p->of[0] = NO_PIECE;
  for (uint32_t e = 1; e < c->entry_count; e++) {
    uint32_t *found = &piece_of_slot[c->entries[e].slot];
    if (movable[c->entries[e].slot] && *found == NO_PIECE) {
      *found = p->count;
      p->items[p->count++] = (piece){ .first = e, .bytes = c->entries[e].storage_bytes };
    }
    p->of[e] = *found;
    if (*found == NO_PIECE) continue;
    p->items[*found].last = e;
    p->items[*found].entries++;
  }
  assert(p->count < c->entry_count);
}

static int64_t level_bytes(const piece_list *p, const chunk_shape *c, const settings *s)
{
  int64_t most = 0, sum = 0;

  if (s->offload.planned_device_bytes > 0) return s->offload.planned_device_bytes;
  for (uint32_t k = 0; k < p->count; k++) {
    if (k > 0 && c->entries[p->items[k].first].group != c->entries[p->items[k - 1].first].group)
      sum = 0;
    sum += p->items[k].bytes;
    if (sum > most) most = sum;
  }
  return most;
}

/* The first pieces leave until the others fit the level. */
static void choose_leaving(piece_list *p, int64_t level)
{
  int64_t rest = 0;

  for (uint32_t k = 0; k < p->count; k++)
    rest += p->items[k].bytes;
  for (; p->leaving < p->count && rest > level; p->leaving++)
    rest -= p->items[p->leaving].bytes;
  assert(rest >= 0 && (rest <= level || p->leaving == p->count));
}

static piece_list *planned_pieces(const chunk_shape *c, const settings *s, int64_t *level, arena *a)
{
  piece_list *p = ARENA_NEW(a, piece_list);

  p->items = ARENA_ARRAY(a, piece, c->entry_count);
  p->of = ARENA_ARRAY(a, uint32_t, c->entry_count);
  find_pieces(c, s, p, a);
  *level = level_bytes(p, c, s);
  choose_leaving(p, *level);
  return p;
}

/* ---- the engine ---- */

/*
 * A piece in one micro-batch:
 *
 *   SAVED --compute waits for the copy out--> AWAY --copy back--> COMING --compute waits--> BACK
 *     |                                                                                      |
 *     +-- it stays, or backward is sooner --> USED <-- its last operator in backward --------+
 */
typedef enum piece_state {
  PIECE_NONE,
  PIECE_SAVED,
  PIECE_AWAY,
  PIECE_COMING,
  PIECE_BACK,
  PIECE_USED
} piece_state;

typedef struct piece_now {
  piece_state state;
  uint32_t source; /* the entry that was saved first: others share its copies */
  uint32_t unused; /* entries whose operator has not run in backward */
  event_id copied; /* after its newest copy */
} piece_now;

typedef struct engine {
  const piece_list *pieces;
  uint32_t entry_count;
  int64_t level_bytes, on_device_bytes;
  piece_now *now;  /* [pieces->count] */
  bool *saved;     /* by entry, in this micro-batch */
  uint32_t away;   /* pieces [0, away) have left the device */
  uint32_t *order; /* [pieces->leaving], as backward needs them */
  uint32_t next;   /* of `order`: those before it are no longer AWAY */
} engine;

/* Backward needs first what was saved last. */
static void sort_by_return(engine *x)
{
  const piece *items = x->pieces->items;
  uint32_t leaving = x->pieces->leaving;

  for (uint32_t k = leaving; k-- > 0;) {
    uint32_t at = leaving - 1 - k;
    for (; at > 0 && items[x->order[at - 1]].last < items[k].last; at--)
      x->order[at] = x->order[at - 1];
    x->order[at] = k;
  }
}

static void *begin(const rank_shape *r, iteration_kind iteration, arena *a, diag *d)
{
  engine *x = ARENA_NEW(a, engine);
  (void)iteration;
  (void)d;

  assert(r->chunk_count == 1 && "one stage, one chunk");
  x->pieces = planned_pieces(&r->chunks[0], r->settings, &x->level_bytes, a);
  x->entry_count = r->chunks[0].entry_count;
  x->now = ARENA_ARRAY(a, piece_now, x->pieces->count);
  x->saved = ARENA_ARRAY(a, bool, x->entry_count);
  x->order = ARENA_ARRAY(a, uint32_t, x->pieces->leaving);
  sort_by_return(x);
  return x;
}

/* ---- forward ---- */

static void forward_begin(void *state, walk *w, instance_id i)
{
  engine *x = state;
  (void)w;
  (void)i;

  assert(x->on_device_bytes == 0 && "the micro-batch before is complete");
  for (uint32_t k = 0; k < x->pieces->count; k++)
    x->now[k].state = PIECE_NONE;
  memset(x->saved, 0, x->entry_count * sizeof *x->saved);
  x->away = x->next = 0;
}

static void send_away(engine *x, walk *w, instance_id i, uint32_t k)
{
  const piece *p = &x->pieces->items[k];

  assert(x->now[k].state == PIECE_SAVED && k < x->pieces->leaving);
  act_wait(w, STREAM_COMPUTE, x->now[k].copied);
  for (uint32_t e = p->first; e <= p->last; e++)
    if (x->pieces->of[e] == k && x->saved[e]) act_release(w, i, e);
  x->now[k].state = PIECE_AWAY;
  x->on_device_bytes -= p->bytes;
}

static void copy_out(engine *x, walk *w, instance_id i, uint32_t k)
{
  assert(x->now[k].state == PIECE_SAVED && k < x->pieces->leaving);
  act_join(w, STREAM_D2H, STREAM_COMPUTE);
  act_copy_out(w, i, x->now[k].source, (offload_how){ .form = COPY_STORAGE, .stream = STREAM_D2H });
  x->now[k].copied = act_record(w, STREAM_D2H);
}

static void save_piece(engine *x, walk *w, instance_id i, uint32_t k, uint32_t entry)
{
  const piece *p = &x->pieces->items[k];

  assert(x->now[k].state == PIECE_NONE && "a storage is new once");
  x->now[k] = (piece_now){ .state = PIECE_SAVED, .source = entry, .unused = p->entries };
  x->on_device_bytes += p->bytes;
  if (k < x->pieces->leaving) copy_out(x, w, i, k);
}

/* What has been copied goes, the oldest first, until the level holds `bytes` more. */
static void make_room(engine *x, walk *w, instance_id i, int64_t bytes)
{
  assert(bytes >= 0);
  while (x->on_device_bytes + bytes > x->level_bytes && x->away < x->pieces->leaving &&
         x->now[x->away].state == PIECE_SAVED)
    send_away(x, w, i, x->away++);
}

static void entry_ready(void *state, walk *w, instance_id i, uint32_t entry)
{
  engine *x = state;
  uint32_t k = x->pieces->of[entry];

  assert(!x->saved[entry] && "packed once");
  x->saved[entry] = true;
  if (k != NO_PIECE && x->now[k].state == PIECE_NONE) {
    save_piece(x, w, i, k, entry);
  } else if (k != NO_PIECE && k < x->pieces->leaving) {
    act_share(w, i, entry, x->now[k].source);
    if (x->now[k].state == PIECE_AWAY) act_release(w, i, entry);
  }
  uint32_t next = entry + 1 < x->entry_count ? x->pieces->of[entry + 1] : NO_PIECE;
  if (next != NO_PIECE && x->now[next].state == PIECE_NONE)
    make_room(x, w, i, x->pieces->items[next].bytes);
}

/* ---- backward ---- */

/* The block may be one that compute has just freed. */
static void bring_back(engine *x, walk *w, instance_id i, uint32_t k)
{
  const piece *p = &x->pieces->items[k];

  assert(x->now[k].state == PIECE_AWAY);
  act_join(w, STREAM_H2D, STREAM_COMPUTE);
  act_copy_in(w, i, x->now[k].source, STREAM_H2D, STREAM_COMPUTE);
  for (uint32_t e = p->first; e <= p->last; e++)
    if (x->pieces->of[e] == k && e != x->now[k].source) act_share(w, i, e, x->now[k].source);
  x->now[k].copied = act_record(w, STREAM_H2D);
  x->now[k].state = PIECE_COMING;
  x->on_device_bytes += p->bytes;
}

/* Not when an operator has freed its own: autograd frees gradients that it was given after hooks. */
static void entry_needed(void *state, walk *w, instance_id i, uint32_t entry)
{
  engine *x = state;
  (void)entry;

  assert(x->next <= x->pieces->leaving);
  for (; x->next < x->pieces->leaving; x->next++) {
    uint32_t k = x->order[x->next];
    if (x->now[k].state != PIECE_AWAY) continue;
    if (x->on_device_bytes + x->pieces->items[k].bytes > x->level_bytes) break;
    bring_back(x, w, i, k);
  }
}

static void unpack(void *state, walk *w, instance_id i, uint32_t entry)
{
  engine *x = state;
  uint32_t k = x->pieces->of[entry];
  assert(k < x->pieces->leaving && "only what has left has a copy");
  piece_now *now = &x->now[k];

  if (now->state == PIECE_AWAY) bring_back(x, w, i, k);
  if (now->state != PIECE_BACK) act_wait(w, STREAM_COMPUTE, now->copied);
  now->state = PIECE_BACK;
  act_drop_host(w, i, entry);
}

/* No operator needed it: a checkpoint keeps results after which it does not compute again. */
static void forget_entry(engine *x, walk *w, instance_id i, uint32_t entry)
{
  piece_now *now = &x->now[x->pieces->of[entry]];

  assert(now->state != PIECE_USED);
  if (now->state == PIECE_SAVED || now->state == PIECE_COMING) {
    act_wait(w, STREAM_COMPUTE, now->copied);
    act_release(w, i, entry);
  }
  act_drop_host(w, i, entry);
}

static void use_entry(engine *x, walk *w, instance_id i, uint32_t entry)
{
  uint32_t k = x->pieces->of[entry];

  if (k == NO_PIECE) return;
  piece_now *now = &x->now[k];
  assert(now->unused > 0);
  if (k < x->pieces->leaving && now->state != PIECE_BACK) forget_entry(x, w, i, entry);
  if (--now->unused > 0) return;
  if (now->state != PIECE_AWAY) x->on_device_bytes -= x->pieces->items[k].bytes;
  now->state = PIECE_USED;
}

static void node_backward_end(void *state, walk *w, instance_id i, uint32_t first_entry,
                              uint32_t count)
{
  engine *x = state;

  assert(first_entry > 0 && count > 0);
  for (uint32_t e = first_entry; e < first_entry + count; e++)
    use_entry(x, w, i, e);
}

static void backward_end(void *state, walk *w, instance_id i)
{
  const engine *x = state;
  (void)w;
  (void)i;

  assert(x->on_device_bytes == 0 && "every piece was used");
}

/* ---- theory ---- */

static void theory_prepare(offload_theory *t, arena *a)
{
  assert(t->rank->chunk_count == 1 && t->found == NULL);
  int64_t level;

  t->found = planned_pieces(&t->rank->chunks[0], t->rank->settings, &level, a);
}

static bool theory_entry(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  const piece_list *p = t->found;
  assert(p != NULL && entry < c->entry_count);

  return p->of[entry] < p->leaving && !torch_needs_at_once(c, entry);
}

const offload_descriptor planned_system = {
  .policy = {
    .begin = begin,
    .forward_begin = forward_begin,
    .entry_ready = entry_ready,
    .entry_needed = entry_needed,
    .unpack = unpack,
    .node_backward_end = node_backward_end,
    .backward_end = backward_end,
  },
  .theory = {
    .group_leaves = theory_every_group,
    .entry_leaves = theory_entry,
    .prepare = theory_prepare,
  },
  .streams = {
    .leaves = "the storages saved first, until the others fit the level",
    .waits_for_copy_out = "compute, before the level is exceeded",
    .memory_goes = "then",
    .comes_back = "as soon as the level allows",
    .into_pool_of = "compute",
  },
};
