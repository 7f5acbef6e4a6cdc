/*
 * Which actors can go on, and one step of each. Only the plan holds an actor back: see "What orders
 * two ops" in docs/reference/verifier.md.
 */
#include <assert.h>

#include "ref/exec/state.h"

/* ---- messages ------------------------------------------------------------------------------ */

/* The other side of a message. */
static rank_state *other_rank(const ref_exec *e, const rank_state *r, const plan_op *o)
{
  assert(o->kind == OP_SEND || o->kind == OP_RECV);
  const plan_message *m = &e->plan->messages.items[o->arg];
  uint32_t number = o->kind == OP_SEND ? m->to_rank : m->from_rank;
  assert(number < e->plan->rank_count && m->from_rank != m->to_rank);
  return &e->ranks[e->layout->pipelines[r->number].ranks[number]];
}

/* NO_OP: the plan has no such side. */
static uint32_t other_op(const ref_exec *e, const plan_op *o)
{
  assert(o->arg < e->plan->messages.count);
  return e->message_ops[o->arg].at[o->kind == OP_SEND] - 1;
}

/* Whether the rank's stream has reached the exchange that contains the message. */
static bool is_posted(const rank_state *r, uint32_t op)
{
  assert(is_message(r->stage, op));
  const stream_state *s = &r->streams[stage_op(r->stage, op)->stream];
  if (!s->posted) return false;
  uint32_t at = s->head;
  while (at < op && is_message(r->stage, at))
    at = r->stage->following[at];
  return at == op;
}

static bool can_transfer(const ref_exec *e, const rank_state *r, uint32_t op)
{
  assert(op < r->stage->ops_of->ops.count);
  const plan_op *o = stage_op(r->stage, op);
  uint32_t other = other_op(e, o);
  return !r->transferred[op] && other != NO_OP && is_posted(other_rank(e, r, o), other);
}

static uint32_t last_of_exchange(const rank_state *r, uint32_t op)
{
  assert(is_message(r->stage, op));
  while (is_message(r->stage, r->stage->following[op]))
    op = r->stage->following[op];
  return op;
}

static bool is_exchanged(const rank_state *r, uint32_t op)
{
  assert(is_message(r->stage, op));
  for (; is_message(r->stage, op); op = r->stage->following[op])
    if (!r->transferred[op]) return false;
  return true;
}

/* The first message of the exchange that both sides have reached, or NO_OP. */
static uint32_t next_transfer(const ref_exec *e, const rank_state *r, uint32_t op)
{
  assert(is_message(r->stage, op) && r->streams[stage_op(r->stage, op)->stream].posted);
  for (; is_message(r->stage, op); op = r->stage->following[op])
    if (can_transfer(e, r, op)) return op;
  return NO_OP;
}

/* A stream reaches all messages of an exchange when the last of them has been issued. */
static bool can_exchange(const ref_exec *e, const rank_state *r, const stream_state *s)
{
  assert(s->head < r->issued);
  if (!s->posted) return last_of_exchange(r, s->head) < r->issued;
  return is_exchanged(r, s->head) || next_transfer(e, r, s->head) != NO_OP;
}

/* The communication library pairs messages by their order, not by their numbers in the plan. */
static void check_pairing(ref_exec *e, const rank_state *to, uint32_t receive)
{
  assert(stage_op(to->stage, receive)->kind == OP_RECV);
  uint32_t expected = stage_op(to->stage, receive)->arg, sent = to->stage->mate[receive];
  if (expected != sent)
    exec_wrong(e, "rank %u: %s receives message %u where the other side sends message %u",
               to->number, stage_op_text(to->stage, receive, &e->lasting), expected, sent);
}

static void transfer(ref_exec *e, rank_state *r, uint32_t op)
{
  const plan_op *o = stage_op(r->stage, op);
  rank_state *other = other_rank(e, r, o);
  uint32_t theirs = other_op(e, o);
  bool sends = o->kind == OP_SEND;
  assert(other != r && is_posted(r, op) && is_posted(other, theirs));
  assert(!r->transferred[op] && !other->transferred[theirs] && "a message is transferred once");
  r->transferred[op] = other->transferred[theirs] = true;
  check_pairing(e, sends ? other : r, sends ? theirs : op);
  if (is_going(e))
    work_message(e, sends ? r : other, sends ? op : theirs, sends ? other : r, sends ? theirs : op);
}

static void exchange(ref_exec *e, rank_state *r, stream_state *s)
{
  uint32_t next = s->posted ? next_transfer(e, r, s->head) : NO_OP;
  assert(s->head < r->issued);
  if (!s->posted) {
    s->posted = true;
  } else if (next != NO_OP) {
    transfer(e, r, next);
  } else {
    assert(is_exchanged(r, s->head));
    s->head = r->stage->following[last_of_exchange(r, s->head)];
    s->posted = false;
  }
}

/* ---- collectives --------------------------------------------------------------------------- */

static exec_members members_of(const ref_exec *e, const rank_state *r, const plan_op *o)
{
  assert(o->kind == OP_COLLECTIVE && e->plan->calls.items[o->arg].group < COMM_GROUPS);
  return e->layout->groups[e->plan->calls.items[o->arg].group][r->number];
}

/* Whether the stream of that rank has reached a collective of this group. */
static bool is_at_collective(const ref_exec *e, const rank_state *r, const plan_op *o)
{
  assert(o->kind == OP_COLLECTIVE && o->stream < DEVICE_STREAMS);
  uint32_t head = r->streams[o->stream].head;
  if (head == NO_OP || head >= r->issued) return false;
  const plan_op *theirs = stage_op(r->stage, head);
  return theirs->kind == OP_COLLECTIVE &&
         e->plan->calls.items[theirs->arg].group == e->plan->calls.items[o->arg].group;
}

static bool all_are_there(const ref_exec *e, const rank_state *r, const plan_op *o)
{
  exec_members m = members_of(e, r, o);
  assert(m.count > 0 && m.count <= e->layout->rank_count);
  for (uint32_t i = 0; i < m.count; i++)
    if (!is_at_collective(e, &e->ranks[m.ranks[i]], o)) return false;
  return true;
}

static void collect(ref_exec *e, const rank_state *r, const plan_op *o)
{
  exec_members m = members_of(e, r, o);
  assert(m.count > 0);
  scratch_mark before = scratch_here(&e->scratch);
  rank_state **members = SCRATCH_ARRAY(&e->scratch, rank_state *, m.count);
  uint32_t *ops = SCRATCH_ARRAY(&e->scratch, uint32_t, m.count);
  for (uint32_t i = 0; i < m.count; i++) {
    members[i] = &e->ranks[m.ranks[i]];
    ops[i] = members[i]->streams[o->stream].head;
    assert(stage_op(members[i]->stage, ops[i])->kind == OP_COLLECTIVE);
    assert(ops[i] < members[i]->issued);
  }
  work_collective(e, members, ops, m.count);
  for (uint32_t i = 0; i < m.count; i++)
    members[i]->streams[o->stream].head = members[i]->stage->following[ops[i]];
  scratch_back(&e->scratch, before);
}

/* ---- the optimizer step ---------------------------------------------------------------------- */

static bool is_optimizer(const rank_state *r, uint32_t op)
{
  const plan_op *o = op < r->stage->ops_of->ops.count ? stage_op(r->stage, op) : NULL;
  return o != NULL && o->kind == OP_MARK &&
         r->stage->ops_of->marks.items[o->arg].kind == MARK_OPTIMIZER;
}

static bool has_optimizer(const rank_state *r)
{
  const mark_array *marks = &r->stage->ops_of->marks;
  for (uint32_t i = 0; i < marks->count; i++)
    if (marks->items[i].kind == MARK_OPTIMIZER) return true;
  return false;
}

/* Whether the host waits here until all hosts are here and the compute streams are idle. */
static bool waits_for_optimizer(const ref_exec *e, const rank_state *r, uint32_t op)
{
  assert(r->issued <= op || !is_optimizer(r, op));
  if (e->optimizer_reached || e->hooks.before_optimizer == NULL || !is_optimizer(r, op))
    return false;
  for (uint32_t i = 0; i < e->layout->rank_count; i++) {
    const rank_state *other = &e->ranks[i];
    bool there =
        is_optimizer(other, other->issued) && other->streams[STREAM_COMPUTE].head >= other->issued;
    if (!there && has_optimizer(other)) return true;
  }
  return false;
}

static void begin_phase(ref_exec *e, const rank_state *r, uint32_t op)
{
  if (e->optimizer_reached || e->hooks.before_optimizer == NULL || !is_optimizer(r, op)) return;
  assert(!waits_for_optimizer(e, r, op) && r->issued == op);
  e->optimizer_reached = true;
  e->hooks.before_optimizer(e->hooks.context);
}

/* ---- ops ------------------------------------------------------------------------------------- */

static bool has_happened(const rank_state *r, uint32_t op)
{
  assert(op_waits_for_event((op_kind)stage_op(r->stage, op)->kind));
  return waits_for_nothing(r->stage, op) || r->reached[stage_op(r->stage, op)->arg];
}

/* Whether the op, its actor's next, can run. */
static bool op_can_go(const ref_exec *e, const rank_state *r, uint32_t op)
{
  assert(op < r->stage->ops_of->ops.count);
  const plan_op *o = stage_op(r->stage, op);
  switch ((op_kind)o->kind) {
  case OP_MARK: return !waits_for_optimizer(e, r, op);
  case OP_WAIT:
  case OP_HOST_WAIT:
  case OP_HOST_READ: return has_happened(r, op);
  case OP_COLLECTIVE: return all_are_there(e, r, o);
  case OP_SEND:
  case OP_RECV: return can_exchange(e, r, &r->streams[o->stream]);
  case OP_ALLOC:
  case OP_FREE:
  case OP_HOST_ALLOC:
  case OP_HOST_FREE:
  case OP_KERNEL:
  case OP_D2H:
  case OP_H2D:
  case OP_DISK_WRITE:
  case OP_DISK_READ:
  case OP_RECORD:
  case OP_HOST_WORK:
  case OP_GRAPH_BEGIN:
  case OP_GRAPH_END: return true;
  case OP_KINDS: break;
  }
  assert(0 && "an op of a plan");
  return false;
}

/* Runs an op that can go. False: its stream has already advanced. */
static bool op_go(ref_exec *e, rank_state *r, uint32_t op)
{
  assert(op <= r->issued && is_going(e));
  const plan_op *o = stage_op(r->stage, op);
  switch ((op_kind)o->kind) {
  case OP_MARK: begin_phase(e, r, op); return true;
  case OP_ALLOC:
  case OP_HOST_ALLOC: buffer_alloc(e, r, o->arg); return true;
  case OP_FREE:
  case OP_HOST_FREE: buffer_free(e, r, op); return true;
  case OP_KERNEL:
  case OP_D2H:
  case OP_H2D:
  case OP_DISK_WRITE:
  case OP_DISK_READ: work_run(e, r, op); return true;
  case OP_COLLECTIVE: collect(e, r, o); return false;
  case OP_SEND:
  case OP_RECV: exchange(e, r, &r->streams[o->stream]); return false;
  case OP_RECORD:
    assert(!r->reached[o->arg] && "an event is recorded once");
    r->reached[o->arg] = true;
    return true;
  case OP_WAIT:
  case OP_HOST_WAIT:
  case OP_HOST_READ: assert(has_happened(r, op)); return true;
  case OP_HOST_WORK:
  case OP_GRAPH_BEGIN:
  case OP_GRAPH_END: return true;
  case OP_KINDS: break;
  }
  assert(0 && "an op of a plan");
  return true;
}

/* ---- actors -------------------------------------------------------------------------------- */

/* The actor's next op, NO_OP: it is done. */
static uint32_t next_of_actor(const rank_state *r, uint32_t stream)
{
  assert(stream <= STREAM_HOST);
  if (stream != STREAM_HOST) return r->streams[stream].head;
  return r->issued < r->stage->ops_of->ops.count ? r->issued : NO_OP;
}

/* The host only issues ops of streams, and runs the others itself. */
static bool is_only_issued(const rank_state *r, uint32_t op)
{
  assert(r->issued <= r->stage->ops_of->ops.count);
  return op_runs_on_stream((op_kind)stage_op(r->stage, op)->kind);
}

bool actor_can_go(const ref_exec *e, const rank_state *r, uint32_t stream)
{
  uint32_t op = next_of_actor(r, stream);
  if (op == NO_OP) return false;
  if (stream == STREAM_HOST) return is_only_issued(r, op) || op_can_go(e, r, op);
  return op < r->issued && op_can_go(e, r, op);
}

static void host_go(ref_exec *e, rank_state *r)
{
  uint32_t op = r->issued;
  if (!is_only_issued(r, op)) op_go(e, r, op);
  assert(r->issued == op && r->device_bytes >= 0);
  r->after_op[op] = r->device_bytes;
  r->issued++;
}

static void stream_go(ref_exec *e, rank_state *r, stream_state *s)
{
  uint32_t op = s->head;
  assert(op < r->issued && &r->streams[stage_op(r->stage, op)->stream] == s);
  if (op_go(e, r, op)) s->head = r->stage->following[op];
  assert(s->head >= op && "a stream never goes back");
}

void actor_go(ref_exec *e, rank_state *r, uint32_t stream)
{
  assert(is_going(e) && !actor_is_done(r, stream));
  if (stream == STREAM_HOST)
    host_go(e, r);
  else
    stream_go(e, r, &r->streams[stream]);
}

bool actor_is_done(const rank_state *r, uint32_t stream)
{
  return next_of_actor(r, stream) == NO_OP;
}

/* A stream whose next op has not been issued waits only for its host. */
static bool is_stuck(const rank_state *r, uint32_t stream)
{
  uint32_t op = next_of_actor(r, stream);
  return op != NO_OP && (stream == STREAM_HOST || op < r->issued);
}

void report_deadlock(ref_exec *e)
{
  const char *all = "";
  for (uint32_t i = 0; i < e->layout->rank_count; i++)
    for (uint32_t s = 0; s <= STREAM_HOST; s++) {
      const rank_state *r = &e->ranks[i];
      if (!is_stuck(r, s)) continue;
      all = arena_printf(&e->lasting, "%s%s rank %u %s waits at %s", all, all[0] == '\0' ? "" : ",",
                         r->number, stream_name((plan_stream)s),
                         stage_op_text(r->stage, next_of_actor(r, s), &e->lasting));
    }
  assert(all[0] != '\0' && "an actor that is not done waits for something");
  exec_wrong(e, "deadlock:%s", all);
}
