/*
 * What an iteration leaves behind. A steady iteration ends with as many buffers of each pool, class
 * and size as it began with; the first one, which begins with the setup of the model, does not have
 * to.
 */
#include <stdlib.h>
#include <string.h>

#include "sim/verify/findings.h"

typedef struct kept {
  int64_t bytes;
  uint32_t buffer, made; /* `made`: the op that allocated it, NO_OP: it was there before */
  uint8_t purpose, stream;
} kept;

static int order_of_kept(const void *left, const void *right)
{
  const kept *a = left, *b = right;
  if (a->stream != b->stream) return a->stream < b->stream ? -1 : 1;
  if (a->purpose != b->purpose) return a->purpose < b->purpose ? -1 : 1;
  if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
  return a->buffer < b->buffer ? -1 : a->buffer > b->buffer;
}

static bool is_alike(const kept *a, const kept *b)
{
  return a->stream == b->stream && a->purpose == b->purpose && a->bytes == b->bytes;
}

static bool is_first_iteration(const rank_plan *p)
{
  for (uint32_t i = 0; i < p->marks.count; i++)
    if (p->marks.items[i].kind == MARK_SETUP && i > 0) return true;
  return false;
}

static bool is_freed(const plan_op *o)
{
  return o->kind == OP_FREE || o->kind == OP_HOST_FREE;
}

/* By buffer: the op that made it, NO_OP for residents and what is gone. */
static bool *find_alive(const rank_plan *p, uint32_t *made, arena *a)
{
  bool *alive = ARENA_ARRAY(a, bool, p->buffers.count);
  for (uint32_t b = 0; b < p->residents; b++) {
    alive[b] = true;
    made[b] = NO_OP;
  }
  for (uint32_t i = 0; i < p->ops.count; i++) {
    const plan_op *o = &p->ops.items[i];
    if (o->kind == OP_ALLOC || o->kind == OP_HOST_ALLOC) {
      alive[o->arg] = true;
      made[o->arg] = i;
    }
    if (is_freed(o)) alive[o->arg] = false;
  }
  return alive;
}

/* What a step leaves behind (the last micro-batch's input) comes from the pool of the stream that
 * happened to make it: a step that ends with it in another pool has lost nothing. */
static uint8_t pool_of(const plan_buffer *b)
{
  return b->purpose == CLASS_RETAINED ? STREAM_COMPUTE : b->stream;
}

static uint32_t collect(const rank_plan *p, const bool *alive, const uint32_t *made, kept *out)
{
  uint32_t count = 0;
  for (uint32_t b = 0; b < p->buffers.count; b++) {
    const plan_buffer *what = &p->buffers.items[b];
    if (alive == NULL ? b < p->residents : alive[b])
      out[count++] = (kept){ what->bytes, b, made[b], what->purpose, pool_of(what) };
  }
  qsort(out, count, sizeof *out, order_of_kept);
  return count;
}

/* A spare of a pool of host buffers stays in it, whoever has used it. */
static bool is_spare(const rank_plan *p, const kept *k)
{
  return p->buffers.items[k->buffer].host_key != 0;
}

void find_leaks(verification *v, uint32_t rank, arena *a)
{
  const rank_plan *p = &v->plan->ranks[rank];
  if (is_first_iteration(p)) return;
  uint32_t *made = ARENA_ARRAY(a, uint32_t, p->buffers.count);
  const bool *alive = find_alive(p, made, a);
  kept *before = ARENA_ARRAY(a, kept, p->buffers.count);
  kept *after = ARENA_ARRAY(a, kept, p->buffers.count);
  uint32_t had = collect(p, NULL, made, before), has = collect(p, alive, made, after);
  for (uint32_t i = 0, k = 0; i < has; i++) {
    while (k < had && order_of_kept(&before[k], &after[i]) < 0 && !is_alike(&before[k], &after[i]))
      k++;
    bool was_there = k < had && is_alike(&before[k], &after[i]);
    k += was_there;
    if (!was_there && after[i].made != NO_OP && !is_spare(p, &after[i]))
      add_finding(v, (finding){ .kind = FINDING_LEAK,
                                .rank = rank,
                                .first = NO_OP,
                                .second = after[i].made,
                                .buffer = after[i].buffer,
                                .reused = NO_BUFFER });
  }
}
