/*
 * The order in which actors go. Every choice among those that can go is legal; the strategies below
 * exist because a race shows only when one stream is late, or one host early.
 */
#include <assert.h>

#include "ref/exec/state.h"

/* ---- program order ------------------------------------------------------------------------- */

static bool run_streams(ref_exec *e, rank_state *r)
{
  bool any = false, moved = true;
  while (moved && is_going(e)) {
    moved = false;
    for (uint32_t s = 0; s < DEVICE_STREAMS && is_going(e); s++)
      if (actor_can_go(e, r, s)) {
        actor_go(e, r, s);
        moved = any = true;
      }
  }
  return any;
}

/* Whether the rank has run everything that its host has issued. */
static bool is_drained(const rank_state *r)
{
  assert(r->issued <= r->stage->ops_of->ops.count);
  for (uint32_t s = 0; s < DEVICE_STREAMS; s++)
    if (r->streams[s].head < r->issued) return false;
  return true;
}

static bool run_rank(ref_exec *e, rank_state *r)
{
  assert(is_going(e));
  bool any = run_streams(e, r);
  while (is_going(e) && is_drained(r) && actor_can_go(e, r, STREAM_HOST)) {
    actor_go(e, r, STREAM_HOST);
    run_streams(e, r);
    any = true;
  }
  return any;
}

/* A host goes on while one of its streams waits for another rank only if nothing else can go. */
static bool push_a_host(ref_exec *e)
{
  assert(is_going(e));
  for (uint32_t i = 0; i < e->layout->rank_count; i++)
    if (actor_can_go(e, &e->ranks[i], STREAM_HOST)) {
      actor_go(e, &e->ranks[i], STREAM_HOST);
      return true;
    }
  return false;
}

void run_in_program_order(ref_exec *e)
{
  assert(e->done == 0 && !e->optimizer_reached);
  bool moved = true;
  while (moved && is_going(e)) {
    moved = false;
    for (uint32_t i = 0; i < e->layout->rank_count && is_going(e); i++)
      moved |= run_rank(e, &e->ranks[i]);
    if (!moved && is_going(e)) moved = push_a_host(e);
  }
}

/* ---- orders that a seed draws -------------------------------------------------------------- */

typedef struct actor {
  rank_state *rank;
  uint32_t stream;
} actor;

/* Seeds take turns:
 *   LATE      one actor after the other, from seed to seed, goes only when nothing else can
 *   UNIFORM   every actor that can go is equally likely
 *   RANKED    the first that can go, in an order that is shuffled at first; now and then the one
 *             that went becomes the last
 * */
enum strategy { LATE, UNIFORM, RANKED, STRATEGIES };

enum { STEPS_PER_CHANGE = 64 };

typedef struct draw {
  uint64_t state;
  enum strategy strategy;
  actor *actors; /* RANKED: the preferred ones first; LATE: the late one last */
  uint32_t count;
} draw;

/* splitmix64 (Steele, Lea and Flood 2014). */
static uint64_t next_random(draw *d)
{
  uint64_t z = d->state += UINT64_C(0x9E3779B97F4A7C15);
  z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
  return z ^ z >> 31;
}

static uint32_t below(draw *d, uint32_t limit)
{
  assert(limit > 0);
  return (uint32_t)((next_random(d) >> 32) * limit >> 32);
}

static void to_the_end(draw *d, uint32_t from)
{
  assert(from < d->count);
  actor moved = d->actors[from];
  for (uint32_t i = from; i + 1 < d->count; i++)
    d->actors[i] = d->actors[i + 1];
  d->actors[d->count - 1] = moved;
}

static void shuffle(draw *d)
{
  for (uint32_t i = d->count; i > 1; i--) {
    uint32_t k = below(d, i);
    assert(k < i);
    actor swapped = d->actors[i - 1];
    d->actors[i - 1] = d->actors[k];
    d->actors[k] = swapped;
  }
}

static void list_actors(ref_exec *e, draw *d)
{
  d->actors = ARENA_ARRAY(&e->iteration, actor, e->layout->rank_count * STREAMS);
  for (uint32_t i = 0; i < e->layout->rank_count; i++)
    for (uint32_t s = 0; s < STREAMS; s++)
      if (!actor_is_done(&e->ranks[i], s)) d->actors[d->count++] = (actor){ &e->ranks[i], s };
  assert(d->count <= e->layout->rank_count * STREAMS);
}

static draw draw_new(ref_exec *e, uint64_t seed)
{
  draw d = { .state = seed, .strategy = (enum strategy)(seed % STRATEGIES) };
  list_actors(e, &d);
  assert(d.strategy < STRATEGIES);
  if (d.strategy == RANKED) shuffle(&d);
  if (d.strategy == LATE && d.count > 0) to_the_end(&d, (uint32_t)(seed / STRATEGIES % d.count));
  return d;
}

static bool can_go(const ref_exec *e, const actor *a)
{
  return actor_can_go(e, a->rank, a->stream);
}

/* The first actor that can go, from a random place on, among the first `count`; d->count: none can
 * go. */
static uint32_t random_one(const ref_exec *e, draw *d, uint32_t count)
{
  assert(count <= d->count);
  uint32_t start = count == 0 ? 0 : below(d, count);
  for (uint32_t i = 0; i < count; i++) {
    uint32_t k = (start + i) % count;
    if (can_go(e, &d->actors[k])) return k;
  }
  return d->count;
}

static uint32_t first_one(const ref_exec *e, const draw *d)
{
  assert(d->strategy == RANKED);
  uint32_t i = 0;
  while (i < d->count && !can_go(e, &d->actors[i]))
    i++;
  return i;
}

static uint32_t choose(const ref_exec *e, draw *d)
{
  assert(d->count > 0);
  if (d->strategy == RANKED) return first_one(e, d);
  if (d->strategy == UNIFORM) return random_one(e, d, d->count);
  uint32_t chosen = random_one(e, d, d->count - 1);
  return chosen < d->count || !can_go(e, &d->actors[d->count - 1]) ? chosen : d->count - 1;
}

/* Removes an actor that is done. */
static void drop_if_done(draw *d, uint32_t chosen)
{
  assert(chosen < d->count);
  if (!actor_is_done(d->actors[chosen].rank, d->actors[chosen].stream)) return;
  bool was_late = d->strategy == LATE && chosen == d->count - 1;
  to_the_end(d, chosen);
  assert(actor_is_done(d->actors[d->count - 1].rank, d->actors[d->count - 1].stream));
  d->count--;
  if (was_late) d->strategy = UNIFORM;
}

void run_interleaved(ref_exec *e, uint64_t seed)
{
  assert(e->done == 0 && !e->optimizer_reached);
  draw d = draw_new(e, seed);
  while (is_going(e) && d.count > 0) {
    uint32_t chosen = choose(e, &d);
    assert(chosen <= d.count);
    if (chosen == d.count) return;
    actor_go(e, d.actors[chosen].rank, d.actors[chosen].stream);
    if (d.strategy == RANKED && below(&d, STEPS_PER_CHANGE) == 0) {
      to_the_end(&d, chosen);
      chosen = d.count - 1;
    }
    drop_if_done(&d, chosen);
  }
}
