/*
 * From one iteration to the next: what the last one has left becomes the next one's residents.
 */
#include <assert.h>
#include <string.h>

#include "ref/exec/state.h"
#include "sim/exec/residents.h"

/* The last iteration's state, while the next one's is built. */
typedef struct past {
  const plan *plan; /* NULL: nothing is carried over */
  rank_state *ranks;
} past;

/* Contents that did not belong to the survivor no longer have an owner. */
static void hold_survivor(ref_exec *e, rank_state *r, uint32_t resident, rank_state *old,
                          uint32_t survivor)
{
  ref_cell *c = old->buffers[survivor].cell;
  c->owner = c->owner == survivor ? resident : NO_BUFFER;
  c->lost = NOT_LOST;
  assert(old->buffers[survivor].alive && old->buffers[survivor].pending == 0);
  assert(c->users > 0 && c->bytes == r->stage->bytes[resident]);
  buffer_hold(r, resident, c);
  cell_release(e, old, survivor, c);
  old->buffers[survivor] = (held_buffer){ .block_of = NO_BUFFER };
}

static survivors survivors_of(const past *before, const rank_state *old, arena *a)
{
  assert(before->plan == NULL || old->stage != NULL);
  if (before->plan == NULL) return (survivors){ .stage = NULL };
  uint32_t count = old->stage->ops_of->buffers.count;
  survivors s = { .stage = old->stage, .there = ARENA_ARRAY(a, bool, count) };
  for (uint32_t b = 0; b < count; b++)
    s.there[b] = old->buffers[b].alive && old->buffers[b].cell != NULL;
  return s;
}

static void hold_residents(ref_exec *e, const past *before, rank_state *r)
{
  rank_state *old = &before->ranks[r->number];
  survivors left = survivors_of(before, old, &e->iteration);
  for (uint32_t b = 0; b < r->stage->ops_of->residents && is_going(e); b++) {
    const plan_buffer *what = stage_buffer(r->stage, b);
    uint32_t survivor = survivors_take(&left, e->plan, what);
    if (survivor == NO_BUFFER)
      buffer_alloc(e, r, b);
    else
      hold_survivor(e, r, b, old, survivor);
    assert(r->buffers[b].alive || !is_going(e));
  }
}

/* ---- pools of page-locked buffers ---------------------------------------------------------- */

static uint32_t key_count(const plan *p)
{
  uint32_t most = 0;
  for (uint32_t r = 0; r < p->rank_count; r++)
    for (uint32_t b = 0; b < p->ranks[r].buffers.count; b++)
      if (p->ranks[r].buffers.items[b].host_key > most)
        most = p->ranks[r].buffers.items[b].host_key;
  return most + 1;
}

static void grow_pools(ref_exec *e, rank_state *r, uint32_t keys)
{
  assert(keys > 0);
  if (keys <= r->pool_count) return;
  cell_queue *pools = ARENA_ARRAY(&e->lasting, cell_queue, keys);
  if (r->pool_count > 0) memcpy(pools, r->pools, r->pool_count * sizeof *pools);
  r->pools = pools;
  r->pool_count = keys;
}

/* Spares keep their order; their contents no longer have an owner. */
static void keep_spares(cell_queue *q)
{
  assert(q->first <= q->count);
  for (uint32_t i = q->first; i < q->count; i++) {
    q->items[i - q->first] = q->items[i];
    q->items[i]->owner = NO_BUFFER;
  }
  q->count -= q->first;
  q->first = 0;
  assert(q->count <= q->capacity);
}

static void release_pool(ref_exec *e, const rank_state *r, cell_queue *q)
{
  assert(q->first <= q->count);
  for (uint32_t i = q->first; i < q->count; i++)
    cell_release(e, r, NO_BUFFER, q->items[i]);
  ARRAY_FREE(q);
  q->first = 0;
}

/* Adds the buffers that the previous iteration has created: as many as were in use at once. */
static void add_spares(ref_exec *e, rank_state *r, const rank_plan *p)
{
  assert(e->options.arithmetic == REF_OPAQUE);
  arena scratch = { 0 };
  uint32_t *out = ARENA_ARRAY(&scratch, uint32_t, r->pool_count);
  for (uint32_t i = 0; i < p->ops.count; i++) {
    const plan_op *o = &p->ops.items[i];
    if (o->kind != OP_HOST_ALLOC && o->kind != OP_HOST_FREE) continue;
    const plan_buffer *b = &p->buffers.items[o->arg];
    if (b->host_key == 0 || b->host_key >= r->pool_count) continue;
    out[b->host_key] += o->kind == OP_HOST_ALLOC ? 1 : UINT32_MAX;
    if (o->kind == OP_HOST_ALLOC && out[b->host_key] > r->pools[b->host_key].count)
      *ARRAY_PUSH(&r->pools[b->host_key]) = cell_new(e, b->bytes, (buffer_class)b->purpose);
  }
  arena_release(&scratch);
}

/* A page-locked resident of a text is also a spare of its pool. */
static void lend_residents(rank_state *r)
{
  for (uint32_t b = 0; b < r->stage->ops_of->residents; b++) {
    uint32_t key = stage_buffer(r->stage, b)->host_key;
    assert(key < r->pool_count);
    if (key != 0) *ARRAY_PUSH(&r->pools[key]) = cell_shared(r->buffers[b].cell);
  }
}

static void begin_pools(ref_exec *e, rank_state *r, uint32_t keys)
{
  grow_pools(e, r, keys);
  assert(r->pool_count >= keys && r->pools[0].count == 0);
  for (uint32_t k = 0; k < r->pool_count; k++) {
    if (e->options.arithmetic == REF_OPAQUE) release_pool(e, r, &r->pools[k]);
    keep_spares(&r->pools[k]);
  }
  if (e->options.arithmetic == REF_OPAQUE && e->before != NULL)
    add_spares(e, r, &e->before->ranks[e->layout->ranks[r->number].stage]);
}

/* ---- an iteration begins ------------------------------------------------------------------- */

static void release_buffers(ref_exec *e, rank_state *r)
{
  assert(r->stage == NULL || r->buffers != NULL || r->stage->ops_of->buffers.count == 0);
  for (uint32_t b = 0; r->stage != NULL && b < r->stage->ops_of->buffers.count; b++)
    if (r->buffers[b].cell != NULL) cell_release(e, r, b, r->buffers[b].cell);
  for (uint32_t s = 0; s < DEVICE_STREAMS; s++)
    ARRAY_FREE(&r->returned[s]);
  ARRAY_FREE(&r->inherited);
}

static void begin_rank(ref_exec *e, rank_state *r)
{
  arena *a = &e->iteration;
  assert(e->layout->ranks[r->number].stage < e->plan->rank_count);
  const stage *s = &e->stages[e->layout->ranks[r->number].stage];
  *r = (rank_state){ .number = r->number,
                     .stage = s,
                     .pools = r->pools,
                     .pool_count = r->pool_count,
                     .reached = ARENA_ARRAY(a, uint8_t, s->ops_of->events),
                     .transferred = ARENA_ARRAY(a, uint8_t, s->ops_of->ops.count),
                     .buffers = ARENA_ARRAY(a, held_buffer, s->ops_of->buffers.count),
                     .after_op = ARENA_ARRAY(a, int64_t, s->ops_of->ops.count),
                     .prints = ARENA_ARRAY(a, exec_fingerprint, s->ops_of->ops.count),
                     .last_contents = ARENA_ARRAY(a, uint64_t, s->ops_of->buffers.count) };
  for (uint32_t i = 0; i < DEVICE_STREAMS; i++)
    r->streams[i].head = s->first[i];
  assert(r->issued == 0 && r->device_bytes == 0 && r->device_peak_bytes == 0);
}

/* Finds the ops of both sides of each message. */
static void find_messages(ref_exec *e, arena *a)
{
  const plan *p = e->plan;
  e->message_ops = arena_alloc(a, p->messages.count, sizeof *e->message_ops);
  for (uint32_t r = 0; r < p->rank_count; r++)
    for (uint32_t i = 0; i < p->ranks[r].ops.count; i++) {
      const plan_op *o = &p->ranks[r].ops.items[i];
      if (o->kind != OP_SEND && o->kind != OP_RECV) continue;
      assert(o->arg < p->messages.count);
      uint32_t *at = &e->message_ops[o->arg].at[o->kind == OP_RECV];
      assert(*at == 0 && "a message has one op on each side");
      *at = i + 1;
    }
}

static void prepare_plan(ref_exec *e, const plan *p)
{
  if (e->plan == p) return;
  e->plan = p;
  assert(p->rank_count > 0);
  e->stages = ARENA_ARRAY(&e->prepared, stage, p->rank_count);
  for (uint32_t s = 0; s < p->rank_count; s++)
    e->stages[s] = stage_new(p, s, &e->prepared);
  find_messages(e, &e->prepared);
}

void carry_begin(ref_exec *e, const plan *p)
{
  uint32_t count = e->layout->rank_count, keys = key_count(p);
  arena old_state = e->iteration, old_plan = { 0 };
  assert(count >= p->rank_count && (e->plan == NULL || e->ranks[0].stage != NULL));
  past before = { .plan = e->options.arithmetic == REF_EXACT ? e->plan : NULL };
  if (e->plan != p) {
    old_plan = e->prepared;
    e->prepared = (arena){ 0 };
  }
  prepare_plan(e, p);
  e->iteration = (arena){ 0 };
  before.ranks = ARENA_ARRAY(&e->iteration, rank_state, count);
  memcpy(before.ranks, e->ranks, count * sizeof *before.ranks);
  for (uint32_t r = 0; r < count; r++) {
    begin_rank(e, &e->ranks[r]);
    begin_pools(e, &e->ranks[r], keys);
    hold_residents(e, &before, &e->ranks[r]);
    release_buffers(e, &before.ranks[r]);
    if (e->options.arithmetic == REF_OPAQUE && is_going(e)) lend_residents(&e->ranks[r]);
  }
  arena_release(&old_state);
  arena_release(&old_plan);
}

void carry_release(ref_exec *e)
{
  for (uint32_t r = 0; r < e->layout->rank_count; r++) {
    release_buffers(e, &e->ranks[r]);
    for (uint32_t k = 0; k < e->ranks[r].pool_count; k++)
      release_pool(e, &e->ranks[r], &e->ranks[r].pools[k]);
  }
}
