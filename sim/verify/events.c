/* Events, messages and progress: what waits for what, and whether it can. */
#include "sim/verify/findings.h"

static void report(verification *v, finding_kind kind, uint32_t rank, uint32_t first,
                   uint32_t second)
{
  add_finding(v, (finding){ .kind = (uint8_t)kind,
                            .rank = rank,
                            .first = first,
                            .second = second,
                            .buffer = NO_BUFFER,
                            .reused = NO_BUFFER });
}

static void look_at_wait(verification *v, uint32_t rank, uint32_t index, bool *awaited)
{
  const rank_order *o = &v->order.ranks[rank];
  uint32_t event = v->plan->ranks[rank].ops.items[index].arg;
  uint32_t record = o->record_of[event];
  awaited[event] = true;
  if (record == NO_OP || record > index)
    report(v, FINDING_WAIT_BEFORE_RECORD, rank, record, index);
  else if (o->implied[index])
    report(v, FINDING_IMPLIED_WAIT, rank, record, index);
}

static void look_at_waits(verification *v, uint32_t rank, arena *a)
{
  const rank_plan *p = &v->plan->ranks[rank];
  bool *awaited = ARENA_ARRAY(a, bool, p->events);
  for (uint32_t i = 0; i < p->ops.count; i++)
    if (p->ops.items[i].kind == OP_WAIT || p->ops.items[i].kind == OP_HOST_WAIT)
      look_at_wait(v, rank, i, awaited);
  for (uint32_t e = 0; e < p->events; e++)
    if (!awaited[e] && v->order.ranks[rank].record_of[e] != NO_OP)
      report(v, FINDING_UNUSED_EVENT, rank, NO_OP, v->order.ranks[rank].record_of[e]);
}

static bool sends_to(const plan *p, const plan_op *o, uint32_t from, uint32_t to)
{
  return o->kind == OP_SEND && p->messages.items[o->arg].from_rank == from &&
         p->messages.items[o->arg].to_rank == to;
}

/* The next message that `from` sends to `to` behind its op `at`; its op count if there is none. */
static uint32_t next_send(const plan *p, uint32_t from, uint32_t to, uint32_t at)
{
  const op_array *ops = &p->ranks[from].ops;
  while (at < ops->count && !sends_to(p, &ops->items[at], from, to))
    at++;
  return at;
}

/* The communication library pairs what one rank sends to another with what is received there in the
 * order in which both sides issue it. The first that do not belong together are told. */
static void match_messages(verification *v, uint32_t rank, arena *a)
{
  const plan *p = v->plan;
  const op_array *ops = &p->ranks[rank].ops;
  uint32_t *sent = ARENA_ARRAY(a, uint32_t, p->rank_count);
  for (uint32_t i = 0; i < ops->count; i++) {
    if (ops->items[i].kind != OP_RECV) continue;
    uint32_t from = p->messages.items[ops->items[i].arg].from_rank;
    uint32_t send = next_send(p, from, rank, sent[from]);
    sent[from] = send + 1;
    if (send < p->ranks[from].ops.count && p->ranks[from].ops.items[send].arg == ops->items[i].arg)
      continue;
    report(v, FINDING_MISMATCHED_MESSAGES, rank, NO_OP, i);
    return;
  }
}

void find_event_faults(verification *v, uint32_t rank, arena *a)
{
  look_at_waits(v, rank, a);
  match_messages(v, rank, a);
  if (v->order.ranks[rank].stuck != NO_OP)
    report(v, FINDING_DEADLOCK, rank, NO_OP, v->order.ranks[rank].stuck);
}
