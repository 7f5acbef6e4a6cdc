/*
 * Which part of a rank's plan repeats, micro-batch by micro-batch: 1F1B issues the same ops for each forward
 * and backward between its warm-up and its drain.
 *
 *     ops   0 ......... first ......................................................... count
 *           warm-up     | turn 0 | turn 1 | turn 2 | ... | turn turns-1 | drain
 *                       |<-ops-->|
 *
 * Op i of each turn but the first is the same as op i of the turn before (`ops` earlier in the rank) up to
 * names: kind, stream, place, call, views, number of operands and freeing streams are equal, and
 *
 *   buffers   are the same one (it stays), or another of equal size, tensor, purpose, stream, pool, contents
 *   events    are the same one, or another
 *   messages  have ids that grow by `messages`, with the same ranks and bytes
 *   marks     have ids that grow by `marks`, with the same kind and chunk, of a later micro-batch
 *
 * Ids of buffers that the part takes grow by `buffers`, of events that it records by `events`. What a turn
 * takes over from the warm-up is renamed too, but its ids grow by less: there a turn is only a forward.
 * Renaming is one to one: where the part uses buffer b, the turn before uses earlier_buffer(b), which is
 * the earlier buffer of b alone; NO_ID for buffers that only the first turn uses.
 */
#ifndef OFFSIM_SIM_PLAN_REPEATS_H
#define OFFSIM_SIM_PLAN_REPEATS_H

#include "sim/plan/plan.h"

#define NO_ID UINT32_MAX

/* With fewer turns none could be left out. */
enum { FEWEST_TURNS = 4 };

/* Sets `repeat` of each rank; it compares each op once. compile and plan_parse call it; without it a plan has
 * no repeats. */
void plan_find_repeats(plan *p, uint32_t threads);
void plan_find_repeats_of(plan *p, uint32_t rank);
/* The same, if the rank's `repeat` has turns that are known to repeat: only ops around them are compared.
 * `changed`: buffers that have got another purpose since then. */
void plan_extend_repeats_of(plan *p, uint32_t rank, const id_array *changed);
/* Removes the rank's repeating part. */
void plan_forget_repeat(rank_plan *r);

/* How many buffers the rank has had before op `at`: they are numbered in the order in which ops take them. */
uint32_t buffers_before(const rank_plan *r, uint32_t at);
/* The same of events, which are numbered in the order in which ops record them. */
uint32_t events_before(const rank_plan *r, uint32_t at);

/* `count` times NO_ID; the caller frees the array. */
id_array ids_new(uint32_t count);

/* Renames one to one: `before` is in the place of `now` a turn earlier. False: one of them has another name.
 * `earlier` and `later`: the names so far, NO_ID: none. */
static inline bool ids_meet(uint32_t *earlier, uint32_t *later, uint32_t now, uint32_t before)
{
  if (earlier[now] == before) return true;
  if (earlier[now] != NO_ID || later[before] != NO_ID) return false;
  earlier[now] = before;
  later[before] = now;
  return true;
}

static inline uint32_t earlier_id(const id_array *earlier, uint32_t growth, uint32_t id)
{
  return id < earlier->count ? earlier->items[id] : id - growth;
}

/* The buffer, or event, in its place a turn earlier, of one that is taken before the part ends. */
static inline uint32_t earlier_buffer(const plan_repeat *r, uint32_t buffer)
{
  return earlier_id(&r->earlier_buffers, r->buffers, buffer);
}

static inline uint32_t earlier_event(const plan_repeat *r, uint32_t event)
{
  return earlier_id(&r->earlier_events, r->events, event);
}

/* Whether a buffer may have the other's place in another turn: they are the same but for their marks. */
static inline bool buffer_repeats(const plan_buffer *a, const plan_buffer *b)
{
  return a->bytes == b->bytes && a->tensor == b->tensor && a->purpose == b->purpose &&
         a->stream == b->stream && a->filled == b->filled && a->host_key == b->host_key;
}

/* One past the last op of the part. */
static inline uint32_t repeat_end(const plan_repeat *r)
{
  return r->first + r->turns * r->ops;
}

/* The first op of the turn that has op `op`. */
static inline uint32_t repeat_turn_begin(const plan_repeat *r, uint32_t op)
{
  return op - (op - r->first) % r->ops;
}

/* Whether a part of each rank repeats. */
static inline bool plan_repeats(const plan *p)
{
  for (uint32_t i = 0; i < p->rank_count; i++)
    if (p->ranks[i].repeat.turns == 0) return false;
  return true;
}

#endif
