/*
 * offsim's own system: saved tensors may take a given number of bytes on each device, the level
 * (offload.planned_device_bytes), and every copy begins as early and is waited for as late as that
 * allows.
 *
 * A piece is a storage that saved tensors view. The first pieces of a micro-batch leave, as few as it
 * takes for the others to fit. A link carries copies in order, and what was saved first comes back
 * last; so of all choices with these bytes, this one leaves the most time between a copy out and the
 * copy back. The last piece that leaves may be far larger than the missing bytes; then earlier pieces
 * that fit beside the others stay.
 *
 * In a pipeline the level holds what stays of all micro-batches in flight. The first stages have
 * more of them, so more leaves there. Of each chunk of a rank the same share leaves: the last pieces
 * of each stay, and while its backward uses them, its first ones come back. (If all of some chunks
 * left and nothing of others, fewer bytes would be copied, but a chunk's backward would begin with
 * tensors that are not there.)
 *
 *   forward    A piece that leaves is copied when it is saved. Right before an operator makes a piece
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
 *
 * Each micro-batch that may be in flight has its own pinned buffers, which the next one takes over: a
 * copy out waits for compute, and compute has waited for the copy back. No step allocates any. (With a
 * pool, a host that is far ahead of the device finds no buffer that is free yet, and pins more in every
 * step.)
 */
#include <assert.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/config/checks.h"
#include "sim/offload/actions.h"
#include "sim/offload/systems.h"
#include "sim/offload/torch_entries.h"

#define NO_PIECE UINT32_MAX

typedef struct piece {
  uint32_t first, last; /* of its entries, */
  uint32_t entries;     /* ... and how many there are */
  int64_t bytes;
  bool stays; /* though pieces that are saved later leave */
} piece;

/* The pieces of a chunk, in the order in which they are first saved. Pieces in [0, leaving) leave,
 * unless they fit beside the others. */
typedef struct piece_list {
  piece *items;
  uint32_t count, leaving;
  uint32_t most_in_flight;  /* micro-batches of the chunk */
  uint32_t *of;             /* by entry, NO_PIECE: it stays and does not count */
  uint32_t *of_slot, slots; /* by slot */
} piece_list;

typedef struct rank_pieces {
  piece_list *chunks; /* [chunk_count] */
  int64_t level_bytes;
} rank_pieces;

static bool entry_can_leave(const saved_entry *e, const settings *s)
{
  assert(e->storage_bytes >= 0);
  return e->group != 0 && e->elements >= s->offload.min_offloaded_tensor_size &&
         !torch_entry_is_broadcast(e) && !e->parameter && !e->of_parameter && !e->not_offloadable &&
         !e->discarded && !e->callers && !e->read_beside;
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

static piece_list find_pieces(const chunk_shape *c, const settings *s, arena *a)
{
  uint32_t slots = theory_slot_count(c);
  const bool *movable = find_movable(c, s, slots, a);
  piece_list p = { .items = ARENA_ARRAY(a, piece, c->entry_count),
                   .of = ARENA_ARRAY(a, uint32_t, c->entry_count),
                   .of_slot = ARENA_ARRAY(a, uint32_t, slots),
                   .slots = slots };

  for (uint32_t slot = 0; slot < slots; slot++)
    p.of_slot[slot] = NO_PIECE;
  p.of[0] = NO_PIECE;
  for (uint32_t e = 1; e < c->entry_count; e++) {
    uint32_t *found = &p.of_slot[c->entries[e].slot];
    if (movable[c->entries[e].slot] && *found == NO_PIECE) {
      *found = p.count;
      p.items[p.count++] = (piece){ .first = e, .bytes = c->entries[e].storage_bytes };
    }
    p.of[e] = *found;
    if (*found == NO_PIECE) continue;
    p.items[*found].last = e;
    p.items[*found].entries++;
  }
  assert(p.count < c->entry_count);
  return p;
}

/* What the group that saves most saves. */
static int64_t largest_group_bytes(const piece_list *p, const chunk_shape *c)
{
  int64_t most = 0, sum = 0;

  for (uint32_t k = 0; k < p->count; k++) {
    if (k > 0 && c->entries[p->items[k].first].group != c->entries[p->items[k - 1].first].group)
      sum = 0;
    sum += p->items[k].bytes;
    if (sum > most) most = sum;
  }
  assert(sum >= 0 && most >= sum);
  return most;
}

/* By default the level holds so much for each micro-batch in flight. */
static int64_t default_level_bytes(const rank_pieces *p, const rank_shape *r, arena *a)
{
  int64_t largest = 0, *bytes = ARENA_ARRAY(a, int64_t, r->chunk_count);

  for (uint32_t c = 0; c < r->chunk_count; c++)
    largest = max_i64(largest, largest_group_bytes(&p->chunks[c], &r->chunks[c]));
  for (uint32_t c = 0; c < r->chunk_count; c++)
    bytes[c] = largest;
  return schedule_most_in_flight(r->schedule, bytes);
}

static uint32_t count_pieces(const rank_pieces *p, uint32_t chunks)
{
  uint32_t count = 0;

  assert(chunks > 0);
  for (uint32_t c = 0; c < chunks; c++)
    count += p->chunks[c].count;
  return count;
}

/* Of each chunk the same share leaves, about `leaving` pieces together. */
static void set_leaving(rank_pieces *p, uint32_t chunks, uint32_t leaving)
{
  uint32_t all = count_pieces(p, chunks);

  for (uint32_t c = 0; c < chunks; c++)
    p->chunks[c].leaving = all == 0 ? 0 : (uint32_t)((uint64_t)p->chunks[c].count * leaving / all);
  assert(leaving <= all && "no more than there are");
}

/* With virtual stages the host does not wait for the device between passes (schedule.h), so a pass's copies
 * run under the next: the level has room for one in each direction. */
static int64_t room_for_copies(const rank_pieces *p, uint32_t chunks)
{
  int64_t largest = 0;

  if (chunks == 1) return 0;
  for (uint32_t c = 0; c < chunks; c++)
    for (uint32_t k = 0; k < p->chunks[c].count; k++)
      largest = max_i64(largest, p->chunks[c].items[k].bytes);
  assert(largest < INT64_MAX / 2);
  return 2 * largest;
}

static bool piece_leaves(const piece_list *p, uint32_t k)
{
  return k < p->leaving && !p->items[k].stays;
}

static int64_t staying_bytes(const piece_list *p)
{
  int64_t sum = 0;

  assert(p->leaving <= p->count);
  for (uint32_t k = 0; k < p->count; k++)
    if (!piece_leaves(p, k)) sum += p->items[k].bytes;
  return sum;
}

/* The most that the pieces that stay take together, over the schedule. */
static int64_t most_staying_bytes(const rank_pieces *p, const rank_shape *r, arena *a)
{
  int64_t *bytes = ARENA_ARRAY(a, int64_t, r->chunk_count);

  for (uint32_t c = 0; c < r->chunk_count; c++)
    bytes[c] = staying_bytes(&p->chunks[c]);
  return schedule_most_in_flight(r->schedule, bytes);
}

/* Of the first pieces, keeps the last ones that fit beside the others. */
static void keep_what_fits(piece_list *p, int64_t free_bytes)
{
  assert(free_bytes >= 0 || p->leaving == p->count);
  for (uint32_t k = p->leaving; k-- > 0;) {
    p->items[k].stays = p->items[k].bytes <= free_bytes;
    if (p->items[k].stays) free_bytes -= p->items[k].bytes;
  }
}

/* The first pieces leave until the others fit the level. With several micro-batches in flight, the rest of
 * the level is for the copies back of the next one, which begin before its backward has freed anything. */
static void choose_leaving(rank_pieces *p, const rank_shape *r, arena *a)
{
  uint32_t too_few = 0, fits = count_pieces(p, r->chunk_count);
  int64_t staying_limit = p->level_bytes - room_for_copies(p, r->chunk_count);

  while (too_few < fits) {
    uint32_t leaving = too_few + (fits - too_few) / 2;
    set_leaving(p, r->chunk_count, leaving);
    if (most_staying_bytes(p, r, a) > staying_limit)
      too_few = leaving + 1;
    else
      fits = leaving;
  }
  set_leaving(p, r->chunk_count, fits);
  if (r->chunk_count == 1 && p->chunks[0].most_in_flight == 1)
    keep_what_fits(&p->chunks[0], staying_limit - staying_bytes(&p->chunks[0]));
}

static rank_pieces *planned_pieces(const rank_shape *r, arena *a)
{
  rank_pieces *p = ARENA_NEW(a, rank_pieces);

  int64_t *one = ARENA_ARRAY(a, int64_t, r->chunk_count);

  p->chunks = ARENA_ARRAY(a, piece_list, r->chunk_count);
  for (uint32_t c = 0; c < r->chunk_count; c++) {
    p->chunks[c] = find_pieces(&r->chunks[c], r->settings, a);
    one[c] = 1;
    p->chunks[c].most_in_flight = (uint32_t)schedule_most_in_flight(r->schedule, one);
    one[c] = 0;
  }
  p->level_bytes = r->settings->offload.planned_device_bytes;
  if (p->level_bytes == 0) p->level_bytes = default_level_bytes(p, r, a);
  choose_leaving(p, r, a);
  return p;
}

/* ---- the engine ---- */

/*
 * A piece in one micro-batch:
 *
 *   MADE
 *     |
 *   SAVED --compute waits for the copy out--> AWAY --copy back--> COMING --compute waits--> BACK
 *     |                                                                                      |
 *     +-- it stays, or backward is sooner --> USED <-- its last operator in backward --------+
 */
typedef enum piece_state {
  PIECE_NONE,
  PIECE_MADE, /* no operator has saved it */
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

/* A micro-batch of a chunk, from its forward to the end of its backward; then the next one's. */
typedef struct flight {
  const piece_list *pieces;
  host_buffer *host; /* [pieces->leaving], once `has_host` */
  bool has_host;
  piece_now *now;        /* [pieces->count] */
  bool *saved;           /* by entry */
  uint32_t saved_pieces; /* pieces [0, saved_pieces) have been saved */
  uint32_t away;         /* pieces [0, away) have left the device, or are used */
  uint32_t next;         /* of the chunk's order of return: those before it are no longer AWAY */
  struct flight *spare;
} flight;

typedef struct engine {
  const rank_shape *rank;
  const rank_pieces *pieces;
  int64_t on_device_bytes;
  uint32_t **order; /* by chunk: its pieces that leave, as backward needs them */
  flight **flights; /* by instance; NULL: not in flight */
  flight **spare;   /* by chunk: the first of a list of those that are not in flight */
  /* Instances in the order of their forwards; [0, sending) have nothing left to send away. */
  instance_id *forwards;
  uint32_t forward_count, sending;
} engine;

/* Backward needs first what was saved last. */
static uint32_t *order_of_return(const piece_list *p, arena *a)
{
  uint32_t *order = ARENA_ARRAY(a, uint32_t, p->leaving);

  for (uint32_t k = p->leaving; k-- > 0;) {
    uint32_t at = p->leaving - 1 - k;
    for (; at > 0 && p->items[order[at - 1]].last < p->items[k].last; at--)
      order[at] = order[at - 1];
    order[at] = k;
  }
  assert(p->leaving <= p->count);
  return order;
}

static flight *new_flight(const rank_shape *r, const piece_list *p, uint32_t chunk, arena *a)
{
  flight *f = ARENA_NEW(a, flight);

  assert(chunk < r->chunk_count && p->leaving <= p->count);
  f->pieces = p;
  f->host = ARENA_ARRAY(a, host_buffer, p->leaving);
  f->now = ARENA_ARRAY(a, piece_now, p->count);
  f->saved = ARENA_ARRAY(a, bool, r->chunks[chunk].entry_count);
  return f;
}

/* As many as the schedule has in flight. */
static flight *new_flights(const rank_shape *r, const piece_list *p, uint32_t chunk, arena *a)
{
  flight *first = NULL;

  for (uint32_t i = 0; i < p->most_in_flight; i++) {
    flight *f = new_flight(r, p, chunk, a);
    f->spare = first;
    first = f;
  }
  return first;
}

static void *begin(const rank_shape *r, iteration_kind iteration, arena *a, diag *d)
{
  engine *x = ARENA_NEW(a, engine);
  uint32_t forwards = 0;
  (void)iteration;
  (void)d;

  assert(r->chunk_count > 0);
  for (uint32_t i = 0; i < r->schedule->count; i++)
    forwards += r->schedule->steps[i].kind == STEP_FORWARD;
  *x = (engine){ .rank = r, .pieces = planned_pieces(r, a) };
  x->order = ARENA_ARRAY(a, uint32_t *, r->chunk_count);
  x->spare = ARENA_ARRAY(a, flight *, r->chunk_count);
  x->flights = ARENA_ARRAY(a, flight *, forwards);
  x->forwards = ARENA_ARRAY(a, instance_id, forwards);
  for (uint32_t c = 0; c < r->chunk_count; c++) {
    x->order[c] = order_of_return(&x->pieces->chunks[c], a);
    x->spare[c] = new_flights(r, &x->pieces->chunks[c], c, a);
  }
  return x;
}

static void own_host_buffers(flight *f, walk *w, uint32_t chunk)
{
  assert(!f->has_host);
  for (uint32_t k = 0; k < f->pieces->leaving; k++)
    if (piece_leaves(f->pieces, k))
      f->host[k] = act_own_host_buffer(w, chunk, f->pieces->items[k].first, COPY_STORAGE);
  f->has_host = true;
}

/* Not in the first iteration, which allocates what its forwards need. */
static void iteration_begin(void *state, walk *w)
{
  const engine *x = state;

  assert(x->forward_count == 0 && "before the first forward");
  for (uint32_t c = 0; c < x->rank->chunk_count; c++)
    for (flight *f = x->spare[c]; f != NULL; f = f->spare)
      own_host_buffers(f, w, c);
}

static flight *flight_of(const engine *x, instance_id i)
{
  assert(x->flights[i] != NULL && "from its forward to the end of its backward");
  return x->flights[i];
}

/* ---- forward ---- */

static void send_away(engine *x, walk *w, instance_id i, uint32_t k)
{
  flight *f = flight_of(x, i);
  const piece *p = &f->pieces->items[k];

  assert(f->now[k].state == PIECE_SAVED && piece_leaves(f->pieces, k));
  act_wait(w, STREAM_COMPUTE, f->now[k].copied);
  for (uint32_t e = p->first; e <= p->last; e++)
    if (f->pieces->of[e] == k && f->saved[e]) act_release(w, i, e);
  f->now[k].state = PIECE_AWAY;
  x->on_device_bytes -= p->bytes;
}

/* Frees pieces that have been copied, the oldest first, until the level holds `bytes` more. */
static void make_room(engine *x, walk *w, int64_t bytes)
{
  assert(bytes >= 0);
  while (x->on_device_bytes + bytes > x->pieces->level_bytes && x->sending < x->forward_count) {
    instance_id i = x->forwards[x->sending];
    flight *f = x->flights[i];
    if (f == NULL || f->away == f->pieces->leaving) {
      x->sending++;
      continue;
    }
    if (f->away == f->saved_pieces) return; /* its forward is not that far */
    if (f->now[f->away].state == PIECE_SAVED && piece_leaves(f->pieces, f->away))
      send_away(x, w, i, f->away);
    f->away++;
  }
}

/* Makes room for the piece that is saved next, right before it is made. Pieces that are made before it
 * is saved get room in turn. */
static void make_room_for_next(engine *x, walk *w, flight *f)
{
  assert(f->saved_pieces <= f->pieces->count);
  if (f->saved_pieces < f->pieces->count && f->now[f->saved_pieces].state == PIECE_MADE)
    make_room(x, w, f->pieces->items[f->saved_pieces].bytes);
}

static void storage_begin(void *state, walk *w, instance_id i, uint32_t slot)
{
  engine *x = state;
  flight *f = flight_of(x, i);
  uint32_t k = slot < f->pieces->slots ? f->pieces->of_slot[slot] : NO_PIECE;

  if (k == NO_PIECE) return;
  assert(f->now[k].state == PIECE_NONE && "a storage is made once");
  f->now[k].state = PIECE_MADE;
  if (k == f->saved_pieces) make_room_for_next(x, w, f);
}

static void forward_begin(void *state, walk *w, instance_id i)
{
  engine *x = state;
  uint32_t chunk = i % x->rank->chunk_count;
  flight *f = x->spare[chunk];

  assert(f != NULL && x->flights[i] == NULL && "one forward");
  x->spare[chunk] = f->spare;
  if (!f->has_host) own_host_buffers(f, w, chunk);
  for (uint32_t k = 0; k < f->pieces->count; k++)
    f->now[k].state = PIECE_NONE;
  f->saved_pieces = 0;
  memset(f->saved, 0, x->rank->chunks[chunk].entry_count * sizeof *f->saved);
  f->away = f->next = 0;
  x->flights[i] = f;
  x->forwards[x->forward_count++] = i;
}

static void save_piece(engine *x, walk *w, instance_id i, uint32_t k, uint32_t entry)
{
  flight *f = flight_of(x, i);
  const piece *p = &f->pieces->items[k];

  assert(k == f->saved_pieces && f->now[k].state == PIECE_MADE && "it is made, and new once");
  f->saved_pieces++;
  f->now[k] = (piece_now){ .state = PIECE_SAVED, .source = entry, .unused = p->entries };
  x->on_device_bytes += p->bytes;
  if (!piece_leaves(f->pieces, k)) return;
  act_join(w, STREAM_D2H, STREAM_COMPUTE);
  act_copy_out_into(w, i, entry, (offload_how){ .form = COPY_STORAGE, .stream = STREAM_D2H },
                    f->host[k]);
  f->now[k].copied = act_record(w, STREAM_D2H);
}

static void entry_ready(void *state, walk *w, instance_id i, uint32_t entry)
{
  engine *x = state;
  flight *f = flight_of(x, i);
  uint32_t k = f->pieces->of[entry];

  assert(!f->saved[entry] && "packed once");
  f->saved[entry] = true;
  if (k != NO_PIECE && k == f->saved_pieces) {
    save_piece(x, w, i, k, entry);
  } else if (k != NO_PIECE && piece_leaves(f->pieces, k)) {
    act_share(w, i, entry, f->now[k].source);
    if (f->now[k].state == PIECE_AWAY) act_release(w, i, entry);
  }
  make_room_for_next(x, w, f);
}

/* ---- backward ---- */

/* The block may be one that compute has just freed. */
static void bring_back(engine *x, walk *w, instance_id i, uint32_t k)
{
  flight *f = flight_of(x, i);
  const piece *p = &f->pieces->items[k];

  assert(f->now[k].state == PIECE_AWAY);
  act_join(w, STREAM_H2D, STREAM_COMPUTE);
  act_copy_in(w, i, f->now[k].source, STREAM_H2D, STREAM_COMPUTE);
  for (uint32_t e = p->first; e <= p->last; e++)
    if (f->pieces->of[e] == k && e != f->now[k].source) act_share(w, i, e, f->now[k].source);
  f->now[k].copied = act_record(w, STREAM_H2D);
  f->now[k].state = PIECE_COMING;
  x->on_device_bytes += p->bytes;
}

/* Not when an operator has freed its saved tensors: autograd frees the gradients that it received
 * after the hooks. */
static void entry_needed(void *state, walk *w, instance_id i, uint32_t entry)
{
  engine *x = state;
  flight *f = flight_of(x, i);
  const uint32_t *order = x->order[i % x->rank->chunk_count];
  (void)entry;

  assert(f->next <= f->pieces->leaving);
  for (; f->next < f->pieces->leaving; f->next++) {
    uint32_t k = order[f->next];
    if (f->now[k].state != PIECE_AWAY) continue;
    if (x->on_device_bytes + f->pieces->items[k].bytes > x->pieces->level_bytes) break;
    bring_back(x, w, i, k);
  }
}

static void unpack(void *state, walk *w, instance_id i, uint32_t entry)
{
  engine *x = state;
  flight *f = flight_of(x, i);
  uint32_t k = f->pieces->of[entry];
  assert(piece_leaves(f->pieces, k) && "only what has left has a copy");
  piece_now *now = &f->now[k];

  if (now->state == PIECE_AWAY) bring_back(x, w, i, k);
  if (now->state != PIECE_BACK) act_wait(w, STREAM_COMPUTE, now->copied);
  now->state = PIECE_BACK;
  act_drop_host(w, i, entry);
}

/* No operator needed it: a checkpoint keeps results after which it does not compute again. */
static void forget_entry(const flight *f, walk *w, instance_id i, uint32_t entry)
{
  const piece_now *now = &f->now[f->pieces->of[entry]];

  assert(now->state != PIECE_USED);
  if (now->state == PIECE_SAVED || now->state == PIECE_COMING) {
    act_wait(w, STREAM_COMPUTE, now->copied);
    act_release(w, i, entry);
  }
  act_drop_host(w, i, entry);
}

static void use_entry(engine *x, walk *w, instance_id i, uint32_t entry)
{
  flight *f = flight_of(x, i);
  uint32_t k = f->pieces->of[entry];

  if (k == NO_PIECE) return;
  piece_now *now = &f->now[k];
  assert(now->unused > 0);
  if (piece_leaves(f->pieces, k) && now->state != PIECE_BACK) forget_entry(f, w, i, entry);
  if (--now->unused > 0) return;
  if (now->state != PIECE_AWAY) x->on_device_bytes -= f->pieces->items[k].bytes;
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
  engine *x = state;
  flight *f = flight_of(x, i);
  uint32_t chunk = i % x->rank->chunk_count;
  (void)w;

  for (uint32_t k = 0; k < f->pieces->count; k++)
    assert(f->now[k].state == PIECE_USED && "every piece was used");
  x->flights[i] = NULL;
  f->spare = x->spare[chunk];
  x->spare[chunk] = f;
}

/* ---- conditions ---- */

/* A captured graph runs no hooks, and a schedule that runs layers in parts interleaves the forward of one
 * micro-batch with the backward of another. */
static bool conditions(const settings *s, diag *d)
{
  setting_key graphs = KEY_training_cuda_graph_impl, system = KEY_offload_system;
  setting_key parts = KEY_parallel_overlap_moe_expert_parallel_comm;

  assert(s->offload.system == SYSTEM_planned);
  return need(s, d, s->training.cuda_graph_impl == GRAPHS_NONE, graphs, system,
              "offload system planned needs cuda_graph_impl none; it is %s",
              chosen_word(s, graphs)) &&
         need(s, d, !s->parallel.overlap_moe_expert_parallel_comm, parts, system,
              "offload system planned does not work with overlap_moe_expert_parallel_comm");
}

/* ---- theory ---- */

static void theory_prepare(offload_theory *t, arena *a)
{
  assert(t->found == NULL);
  t->found = planned_pieces(t->rank, a);
}

static bool theory_entry(const offload_theory *t, const chunk_shape *c, uint32_t entry)
{
  const rank_pieces *found = t->found;
  const piece_list *p = &found->chunks[c - t->rank->chunks];
  assert(c >= t->rank->chunks && entry < c->entry_count);

  return p->of[entry] != NO_PIECE && piece_leaves(p, p->of[entry]) &&
         !torch_needs_at_once(c, entry);
}

const offload_descriptor planned_system = {
  .policy = {
    .begin = begin,
    .iteration_begin = iteration_begin,
    .forward_begin = forward_begin,
    .storage_begin = storage_begin,
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
  .conditions = conditions,
  .streams = {
    .leaves = "the storages saved first, until the others fit the level",
    .waits_for_copy_out = "compute, before the level is exceeded",
    .memory_goes = "then",
    .comes_back = "as soon as the level allows",
    .into_pool_of = "compute",
  },
};
