/* What the walk over a rank's ops knows, written down so that it can be compared with what it knows a turn
 * later. */
#include "sim/plan/repeats.h"
#include "sim/verify/buffer_walk.h"

/* ---- words ---------------------------------------------------------------------------------- */

static void put(walk_state *s, bool is_op, uint32_t value)
{
  *ARRAY_PUSH(&s->words) = (word){ is_op, value };
}

static void put_fact(walk_state *s, uint32_t value)
{
  put(s, false, value);
}

static void put_bytes(walk_state *s, int64_t bytes)
{
  put_fact(s, (uint32_t)bytes);
  put_fact(s, (uint32_t)(bytes >> 32));
}

/* Whoever comes after the last write of a host buffer comes after what came before it. Of a block that is not
 * enough: what frees it may name the stream of the write alone. */
static uint32_t users_that_matter(const part *p, bool on_host)
{
  uint32_t users = 0;
  for (uint32_t left = p->users; left != 0; left &= left - 1) {
    uint32_t s = (uint32_t)__builtin_ctz(left);
    if (!on_host || p->last[s] >= p->write) users |= UINT32_C(1) << s;
  }
  return users;
}

static void put_part(walk_state *s, const part *p, bool on_host)
{
  uint32_t users = users_that_matter(p, on_host);
  put_bytes(s, p->bytes.begin);
  put_bytes(s, p->bytes.end);
  put_fact(s, users);
  for (uint32_t left = users; left != 0; left &= left - 1)
    put(s, true, p->last[__builtin_ctz(left)]);
  put(s, true, p->write);
  put_fact(s, p->write == 0 ? NO_BUFFER : p->write_stream);
  put_fact(s, (uint32_t)p->touched << 1 | p->written);
}

/* Which buffers they are of is only for reports. */
static void put_former_uses(walk_state *s, const former_uses *u)
{
  for (uint32_t i = 0; i < DEVICE_STREAMS; i++)
    put(s, true, u->on[i].op);
}

/* Former uses matter until all of the buffer has been written. What a loader fills is hardly ever written. */
static void put_former(walk_state *s, cell *c, bool fresh, bool filled)
{
  c->unknown = fresh && filled;
  put_fact(s, fresh);
  if (fresh && !filled) put_former_uses(s, &c->inherited);
}

static void put_parts(walk_state *s, const rank_walk *w, const cell *c, bool on_host, bool *fresh)
{
  *fresh = false;
  put_fact(s, (uint32_t)(c->freed | c->written << 1 | c->lent << 2 | c->lasting << 3));
  for (uint32_t i = c->parts; i != NO_PART; i = w->parts.items[i].next) {
    put_part(s, &w->parts.items[i], on_host);
    *fresh |= w->parts.items[i].write == 0;
  }
}

static void put_pool(walk_state *s, const rank_walk *w, const host_queue *q)
{
  bool fresh;
  put_fact(s, q->count - q->first);
  for (uint32_t i = q->first; i < q->count; i++)
    put_parts(s, w, &w->cells.items[q->items[i]], true, &fresh);
}

static void put_buffer(walk_state *s, rank_walk *w, uint32_t buffer)
{
  cell *c = &w->cells.items[w->cell_of[buffer]];
  bool fresh, on_device = is_on_device(w, buffer);
  put_parts(s, w, c, !on_device, &fresh);
  if (on_device) put_former(s, c, fresh, w->plan->buffers.items[buffer].filled);
}

static void put_buffers(walk_state *s, rank_walk *w)
{
  for (uint32_t b = 0; b < s->buffers; b++) {
    bool alive = is_alive(w, b);
    s->word_of[b] = alive ? s->words.count : NO_WORD;
    s->alive += alive;
    if (alive) put_buffer(s, w, b);
  }
}

/* Of nearly every part, with its buffer. */
enum { MOST_WORDS = 16 };

walk_state walk_state_of(rank_walk *w, uint32_t buffers, arena *a)
{
  walk_state s = { .buffers = buffers,
                   .word_of = ARENA_ARRAY(a, uint32_t, buffers),
                   .taken = ARENA_ARRAY(a, uint32_t, w->keys) };
  ARRAY_RESERVE(&s.words, MOST_WORDS * w->parts.count);
  for (uint32_t i = 0; i < DEVICE_STREAMS; i++) {
    put_fact(&s, w->settled[i]);
    put_former_uses(&s, &w->returned[i]);
  }
  for (uint32_t k = 1; k < w->keys; k++) {
    put_pool(&s, w, &w->pools[k]);
    s.taken[k] = w->pools[k].taken;
  }
  put_buffers(&s, w);
  return s;
}

void walk_state_release(walk_state *s)
{
  ARRAY_FREE(&s->words);
}

/* ---- a turn later --------------------------------------------------------------------------- */

static bool word_moves(const word *before, const word *after, moves *m)
{
  if (before->is_op != after->is_op) return false;
  if (!after->is_op || before->value == 0 || after->value == 0)
    return before->value == after->value;
  return move_use(m, before->value - 1, after->value - 1);
}

/* The words from `x` and from `y` on, which end with the next buffer's. */
static bool words_move(const walk_state *before, uint32_t x, const walk_state *after, uint32_t y,
                       uint32_t y_end, moves *m)
{
  for (; y < y_end; x++, y++)
    if (x >= before->words.count || !word_moves(&before->words.items[x], &after->words.items[y], m))
      return false;
  return true;
}

/* Each buffer that is alive is like the one in its place a turn earlier. */
bool walk_state_moves(const walk_state *before, const walk_state *after, rank_cut *c)
{
  uint32_t end = after->words.count;
  for (uint32_t b = after->buffers; b-- > 0;) {
    if (after->word_of[b] == NO_WORD) continue;
    uint32_t earlier = earlier_buffer(c->repeat, b);
    if (earlier == NO_ID) earlier = b;
    if (earlier >= before->buffers || before->word_of[earlier] == NO_WORD ||
        !words_move(before, before->word_of[earlier], after, after->word_of[b], end, &c->moves))
      return false;
    end = after->word_of[b];
  }
  return before->alive == after->alive && words_move(before, 0, after, 0, end, &c->moves);
}
