/* The turns in which NCCL takes the messages of an exchange. */
#include "cuda/peers/turns.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "sim/exec/executor.h"

/* When a side has a message: its exchange on the stream, and there the turn. */
typedef struct side {
  uint32_t stream, first, turn; /* `first`: 1 + the exchange's first op; 0: no such side */
} side;

typedef struct turns {
  const plan *plan;
  side *sides; /* [messages, 2]: the sender's, the receiver's */
} turns;

static const plan_message *message_of(const stage *s, uint32_t op)
{
  assert(is_message(s, op) && stage_op(s, op)->arg < s->plan->messages.count);
  return &s->plan->messages.items[stage_op(s, op)->arg];
}

static bool is_sent(const stage *s, uint32_t op)
{
  return stage_op(s, op)->kind == OP_SEND;
}

static uint32_t peer_of(const stage *s, uint32_t op)
{
  return is_sent(s, op) ? message_of(s, op)->to_rank : message_of(s, op)->from_rank;
}

static side *own_side(const turns *t, const stage *s, uint32_t op)
{
  return &t->sides[2 * stage_op(s, op)->arg + !is_sent(s, op)];
}

static const side *other_side(const turns *t, const stage *s, uint32_t op)
{
  return &t->sides[2 * stage_op(s, op)->arg + is_sent(s, op)];
}

/* NCCL has the k-th message to a rank and the k-th from it at once, and then the next two. */
static uint32_t turn_of(const stage *s, uint32_t first, uint32_t op)
{
  uint32_t turn = 0;
  for (uint32_t i = first; i != op; i = s->following[i]) {
    assert(is_message(s, i) && "an exchange is consecutive messages of a stream");
    turn += peer_of(s, i) == peer_of(s, op) && is_sent(s, i) == is_sent(s, op);
  }
  return turn;
}

static void note_exchange(const turns *t, const stage *s, uint32_t first)
{
  for (uint32_t op = first; is_message(s, op); op = s->following[op])
    *own_side(t, s, op) = (side){ stage_op(s, op)->stream, first + 1, turn_of(s, first, op) };
}

static void note_stage(const turns *t, const stage *s)
{
  for (uint32_t op = 0; op < s->ops_of->ops.count; op++)
    if (is_message(s, op) && own_side(t, s, op)->first == 0) note_exchange(t, s, op);
}

static bool comes_before(const side *a, const side *b)
{
  assert(a->first > 0 && b->first > 0);
  if (a->stream != b->stream) return false;
  return a->first != b->first ? a->first < b->first : a->turn < b->turn;
}

/* The first message of the exchange that this side has in a later turn than `op`'s, and the other
 * side before it; NO_OP: none. */
static uint32_t crossed(const turns *t, const stage *s, uint32_t first, uint32_t op)
{
  for (uint32_t i = first; is_message(s, i); i = s->following[i])
    if (peer_of(s, i) == peer_of(s, op) && own_side(t, s, i)->turn > own_side(t, s, op)->turn &&
        other_side(t, s, i)->first > 0 && other_side(t, s, op)->first > 0 &&
        comes_before(other_side(t, s, i), other_side(t, s, op)))
      return i;
  return NO_OP;
}

static bool check_stage(const turns *t, uint32_t number, const stage *s, diag *d)
{
  for (uint32_t op = 0; op < s->ops_of->ops.count; op++) {
    if (!is_message(s, op)) continue;
    uint32_t later = crossed(t, s, own_side(t, s, op)->first - 1, op);
    if (later != NO_OP)
      return diag_refused(d,
                          "NCCL would wait forever: of an exchange, pipeline rank %" PRIu32
                          " has message %" PRIu32 " before message %" PRIu32
                          ", and pipeline rank %" PRIu32
                          " after it; exact arithmetic needs no NCCL",
                          number, stage_op(s, op)->arg, stage_op(s, later)->arg, peer_of(s, op));
  }
  return true;
}

bool turns_agree(const plan *p, const stage *stages, diag *d)
{
  turns t = { p, calloc(2 * (size_t)p->messages.count + 1, sizeof *t.sides) };
  bool good = true;
  if (t.sides == NULL) die_refused("no memory for %" PRIu32 " messages", p->messages.count);
  for (uint32_t k = 0; k < p->rank_count; k++)
    note_stage(&t, &stages[k]);
  for (uint32_t k = 0; k < p->rank_count && good; k++)
    good = check_stage(&t, k, &stages[k], d);
  free(t.sides);
  return good;
}
