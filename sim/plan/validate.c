#include "sim/plan/validate.h"

#include <assert.h>
#include <inttypes.h>

/* Where an op is done: on a stream, or by the host. */
typedef enum op_side { ISSUED, DONE_BY_HOST } op_side;

_Static_assert(OP_KINDS == 20,
               "a new kind of op: its rule here; does a stream run it, is it a copy (plan.h)?");

/* The operands of each kind of op. */
typedef struct op_rule {
  op_side stream;
  uint8_t least_reads, most_reads;
  uint8_t least_writes, most_writes;
  buffer_side read, written; /* where its operands must be */
  buffer_side arg;           /* where the buffer that it allocates or frees must be */
  const char *operands;      /* the right operands, in words */
} op_rule;

static const op_rule rules[OP_KINDS] = {
  [OP_MARK] = { .stream = DONE_BY_HOST, .operands = "no operands" },
  [OP_ALLOC] = { .stream = ISSUED, .arg = ON_DEVICE, .operands = "no operands" },
  [OP_FREE] = { .stream = ISSUED, .arg = ON_DEVICE, .operands = "no operands" },
  [OP_HOST_ALLOC] = { .stream = DONE_BY_HOST, .operands = "no operands" },
  [OP_HOST_FREE] = { .stream = DONE_BY_HOST, .arg = ON_HOST, .operands = "no operands" },
  [OP_KERNEL] = { ISSUED, 0, UINT8_MAX, 0, UINT8_MAX, ON_DEVICE, ON_DEVICE, ANY_SIDE,
                  "reads and writes" },
  [OP_COLLECTIVE] = { ISSUED, 0, UINT8_MAX, 0, UINT8_MAX, ON_DEVICE, ON_DEVICE, ANY_SIDE,
                      "reads and writes" },
  [OP_D2H] = { ISSUED, 1, 1, 1, 1, ON_DEVICE, ON_HOST, ANY_SIDE,
               "one device buffer -> one host buffer" },
  [OP_H2D] = { ISSUED, 1, 1, 1, 1, ON_HOST, ON_DEVICE, ANY_SIDE,
               "one host buffer -> one device buffer" },
  [OP_DISK_WRITE] = { ISSUED, 1, 1, 1, 1, ON_HOST, ON_DISK, ANY_SIDE,
                      "one host buffer -> one file" },
  [OP_DISK_READ] = { ISSUED, 1, 1, 1, 1, ON_DISK, ON_HOST, ANY_SIDE,
                     "one file -> one host buffer" },
  [OP_RECORD] = { .stream = ISSUED, .operands = "no operands" },
  [OP_WAIT] = { .stream = ISSUED, .operands = "no operands" },
  [OP_HOST_WAIT] = { .stream = DONE_BY_HOST, .operands = "no operands" },
  [OP_HOST_READ] = { .stream = DONE_BY_HOST, .operands = "no operands" },
  [OP_HOST_WORK] = { .stream = DONE_BY_HOST, .operands = "no operands" },
  [OP_GRAPH_BEGIN] = { .stream = DONE_BY_HOST, .operands = "no operands" },
  [OP_GRAPH_END] = { .stream = DONE_BY_HOST, .operands = "no operands" },
  [OP_SEND] = { ISSUED, 1, 1, 0, 0, ON_DEVICE, ON_DEVICE, ANY_SIDE,
                "one device buffer that is sent" },
  [OP_RECV] = { ISSUED, 0, 0, 1, 1, ON_DEVICE, ON_DEVICE, ANY_SIDE,
                "-> one device buffer that is received" },
};

static const rank_plan *current(const plan_validator *v)
{
  assert(v->rank < v->plan->rank_count);
  return &v->plan->ranks[v->rank];
}

static op_side side_of(plan_stream stream)
{
  assert(stream < STREAMS);
  return stream == STREAM_HOST ? DONE_BY_HOST : ISSUED;
}

static const char *side_name(buffer_side side)
{
  assert(side != ANY_SIDE && "a rule for any side is never broken");
  return side == ON_DISK ? "files" : side == ON_HOST ? "host memory" : "device memory";
}

/* ---- buffers ------------------------------------------------------------------------------- */

/* The buffer becomes alive. */
static bool take_buffer(plan_validator *v, uint32_t id, source_pos at)
{
  assert(id < current(v)->buffers.count);
  const plan_buffer *b = &current(v)->buffers.items[id];
  bool on_device = class_side((buffer_class)b->purpose) == ON_DEVICE;
  assert(id == v->alive.count && "buffers are numbered in the order of their allocation");
  if (on_device == (b->stream == STREAM_HOST))
    return diag_error(v->d, at,
                      "%%%" PRIu32
                      " of class %s is taken from %s; classes pinned_host, pageable_host and disk "
                      "are taken from host, others from device streams",
                      id, class_name((buffer_class)b->purpose),
                      plan_stream_name(v->plan, (plan_stream)b->stream));
  if (b->host_key != 0 && b->purpose != CLASS_PINNED_HOST)
    return diag_error(v->d, at, "%%%" PRIu32 " has a pool key; only pinned_host buffers have one",
                      id);
  if (b->filled && b->purpose == CLASS_DISK)
    return diag_error(v->d, at, "%%%" PRIu32 " is filled; a file is not", id);
  *ARRAY_PUSH(&v->alive) = ALIVE;
  *ARRAY_PUSH(&v->parts) = (seen_parts){ 0 };
  return true;
}

static bool check_alive(plan_validator *v, uint32_t id, source_pos at)
{
  if (id >= v->alive.count)
    return diag_error(v->d, at,
                      "%%%" PRIu32 " is not allocated yet; rank %" PRIu32 " has allocated %" PRIu32
                      " buffers before this line",
                      id, v->rank, v->alive.count);
  if (v->alive.items[id] == DEAD)
    return diag_error(v->d, at,
                      "%%%" PRIu32 " is freed before this line; it can be used only from its "
                      "allocation to its free",
                      id);
  return true;
}

static bool check_side(plan_validator *v, uint32_t id, buffer_side wanted, const plan_op *op,
                       source_pos at)
{
  assert(id < v->alive.count && "check_alive comes first");
  buffer_side found = class_side((buffer_class)current(v)->buffers.items[id].purpose);
  bool removed = found == ON_DISK && op->kind == OP_HOST_FREE;
  return wanted == ANY_SIDE || found == wanted || removed ||
         diag_error(v->d, at, "%%%" PRIu32 " is in %s; here %s takes %s", id, side_name(found),
                    op_name((op_kind)op->kind), side_name(wanted));
}

static bool free_buffer(plan_validator *v, const plan_op *op, const op_source *where)
{
  if (!check_alive(v, op->arg, where->arg) ||
      !check_side(v, op->arg, rules[op->kind].arg, op, where->arg))
    return false;
  plan_stream pool = (plan_stream)current(v)->buffers.items[op->arg].stream;
  if (op->stream != pool)
    return diag_error(v->d, where->arg,
                      "%%%" PRIu32 " is freed to the pool of %s; it was taken from "
                      "that of %s",
                      op->arg, plan_stream_name(v->plan, (plan_stream)op->stream),
                      plan_stream_name(v->plan, pool));
  assert(v->alive.items[op->arg] != DEAD);
  v->alive.items[op->arg] = DEAD;
  return true;
}

/* ---- operands ------------------------------------------------------------------------------ */

static bool check_counts(plan_validator *v, const plan_op *op, const op_source *where)
{
  const op_rule *rule = &rules[op->kind];
  if (op->reads >= rule->least_reads && op->reads <= rule->most_reads &&
      op->writes >= rule->least_writes && op->writes <= rule->most_writes)
    return true;
  return diag_error(v->d, where->op, "%s has %d buffers before \"->\" and %d after it; expected %s",
                    op_name((op_kind)op->kind), op->reads, op->writes, rule->operands);
}

static bool is_equal_part(const plan_view *view, int64_t buffer_bytes)
{
  int64_t all;
  return view_can_turn(view) && !__builtin_mul_overflow(bytes_of_view(view), view->turned, &all) &&
         all <= buffer_bytes;
}

/* A part of %`id`, the bytes `seen` of it. */
static bool check_turn(plan_validator *v, const plan_view *view, byte_range seen, uint32_t id,
                       source_pos at)
{
  const plan_buffer *b = &current(v)->buffers.items[id];
  seen_parts *parts = &v->parts.items[id];
  int64_t bytes = seen.end - seen.begin;
  if (view->turned != 0 && !is_equal_part(view, b->bytes))
    return diag_error(v->d, at,
                      "a part of %%%" PRIu32
                      " that turns over %u ranks must be one of as many equal "
                      "parts from its beginning",
                      id, view->turned);
  if (b->purpose != CLASS_DRIVER || bytes == 0) return true;
  bool alike = parts->turned == 0 || view->turned == 0 ||
               (parts->turned == view->turned && parts->bytes == bytes);
  int64_t edge = seen.begin > 0 ? seen.begin : seen.end;
  if (view->turned != 0)
    *parts = (seen_parts){ .edge = parts->edge, .bytes = bytes, .turned = view->turned };
  else if (parts->edge == 0 || edge < parts->edge)
    parts->edge = edge;
  return (alike && (parts->edge == 0 || parts->edge >= parts->turned * parts->bytes)) ||
         diag_error(v->d, at, "%%%" PRIu32 " is of class driver; this part cuts others that turn",
                    id);
}

static bool check_view(plan_validator *v, const plan_op *op, uint32_t i, const op_source *where)
{
  const rank_plan *r = current(v);
  assert(op->operands + i < r->operands.count);
  uint32_t id = r->operands.items[op->operands + i];
  plan_view view = plan_op_view(v->plan, op, i);
  byte_range seen = { 0, 0 };
  bool fits = view.whole || (view_elements(&view) > 0 && plan_view_bytes(&view, &seen));
  if (fits && seen.end <= r->buffers.items[id].bytes)
    return view.whole || check_turn(v, &view, seen, id, where->operands[i]);
  return diag_error(v->d, where->operands[i],
                    "the part of %%%" PRIu32 " exceeds it; it has %" PRId64 " bytes", id,
                    r->buffers.items[id].bytes);
}

/* What a copy's operand has, or the part of it that is seen. */
static int64_t side_bytes(const plan_validator *v, const plan_op *op, uint32_t i)
{
  plan_view part = plan_op_view(v->plan, op, i);
  assert(i < 2);
  return part.whole ? current(v)->buffers.items[current(v)->operands.items[op->operands + i]].bytes
                    : bytes_of_view(&part);
}

/* A copy between a part of the host's buffer and the device's, or a part of it of the same size. */
static bool check_parts(plan_validator *v, const plan_op *op, const op_source *where)
{
  uint32_t host = op->kind == OP_D2H;
  plan_view own = plan_op_view(v->plan, op, host), other = plan_op_view(v->plan, op, !host);
  int64_t bytes = side_bytes(v, op, host), seen = side_bytes(v, op, !host);
  assert(copy_may_be_part((op_kind)op->kind));
  if (!own.whole && !view_is_contiguous(&own))
    return diag_error(v->d, where->operands[host],
                      "a copy's part of a host buffer is contiguous; this one is not");
  if (other.whole ? seen >= bytes : seen == bytes) return true;
  return diag_error(v->d, where->operands[!host],
                    "the device's side of the copy has %" PRId64 " bytes, the host's %" PRId64,
                    seen, bytes);
}

/* A copy moves the bytes of its host buffer. */
static bool check_copy(plan_validator *v, const plan_op *op, const op_source *where)
{
  const uint32_t *operands = current(v)->operands.items + op->operands;
  const plan_buffer *buffers = current(v)->buffers.items;
  int host = op->kind == OP_D2H || op->kind == OP_DISK_READ;
  assert(op_is_copy((op_kind)op->kind) && op->reads == 1 && op->writes == 1);
  if (copy_may_be_part((op_kind)op->kind) && op->arg != 0) return check_parts(v, op, where);
  if (buffers[operands[host]].bytes <= buffers[operands[!host]].bytes) return true;
  return diag_error(v->d, where->operands[!host],
                    "%%%" PRIu32 " has %" PRId64 " bytes; the copy is of the %" PRId64
                    " bytes of %%%" PRIu32 " and must fit",
                    operands[!host], buffers[operands[!host]].bytes, buffers[operands[host]].bytes,
                    operands[host]);
}

static bool check_file(plan_validator *v, const plan_op *op, const op_source *where)
{
  const uint32_t *operands = current(v)->operands.items + op->operands;
  assert(v->alive.items[operands[0]] != DEAD && v->alive.items[operands[1]] != DEAD);
  if (op->kind == OP_DISK_WRITE)
    v->alive.items[operands[1]] = WRITTEN;
  else if (op->kind == OP_DISK_READ && v->alive.items[operands[0]] != WRITTEN)
    return diag_error(
        v->d, where->operands[0],
        "%%%" PRIu32
        " is not written before this line; only a file that a disk_write has written can be read",
        operands[0]);
  return true;
}

/* Where the operand has to be; the host's processor works in host memory. */
static buffer_side side_needed(const plan_op *op, uint32_t i)
{
  assert(i < (uint32_t)op->reads + op->writes);
  if (op->kind == OP_KERNEL && op->stream == STREAM_CPU) return ON_HOST;
  return i < op->reads ? rules[op->kind].read : rules[op->kind].written;
}

static bool check_operands(plan_validator *v, const plan_op *op, const op_source *where)
{
  if (!check_counts(v, op, where)) return false;
  for (uint32_t i = 0; i < (uint32_t)op->reads + op->writes; i++) {
    uint32_t id = current(v)->operands.items[op->operands + i];
    if (!check_alive(v, id, where->operands[i]) ||
        !check_side(v, id, side_needed(op, i), op, where->operands[i]) ||
        !check_view(v, op, i, where))
      return false;
  }
  return !op_is_copy((op_kind)op->kind) || (check_copy(v, op, where) && check_file(v, op, where));
}

/* ---- events and messages ------------------------------------------------------------------- */

static void note_wait(plan_validator *v, const plan_op *op, const op_source *where)
{
  assert(op_waits_for_event((op_kind)op->kind));
  if (op->arg >= current(v)->events) *ARRAY_PUSH(&v->waits) = (pending_wait){ op->arg, where->arg };
}

static message_sides *sides_of(plan_validator *v, uint32_t id)
{
  while (v->messages.count <= id)
    *ARRAY_PUSH(&v->messages) = (message_sides){ 0 };
  return &v->messages.items[id];
}

bool validate_message(plan_validator *v, uint32_t id, const plan_message *says, bool receives,
                      source_pos at)
{
  static const char *const done[] = { "sent", "received" };
  message_sides *sides = sides_of(v, id);
  assert(at.line > 0 && says->from_rank != says->to_rank && "line 0 is: not yet");
  if (sides->at[receives].line != 0)
    return diag_error(v->d, at, "msg %" PRIu32 " was %s in line %d; a message is %s once", id,
                      done[receives], sides->at[receives].line, done[receives]);
  sides->at[receives] = at;
  if (sides->at[!receives].line == 0) return true;
  const plan_message *said = &v->plan->messages.items[id];
  if (said->from_rank == says->from_rank && said->to_rank == says->to_rank &&
      said->bytes == says->bytes)
    return true;
  return diag_error(v->d, at,
                    "msg %" PRIu32 " goes from rank %" PRIu32 " to rank %" PRIu32 " with %" PRId64
                    " bytes; line %d says from rank %" PRIu32 " to rank %" PRIu32 " with %" PRId64
                    " bytes",
                    id, says->from_rank, says->to_rank, says->bytes, sides->at[!receives].line,
                    said->from_rank, said->to_rank, said->bytes);
}

/* ---- graphs -------------------------------------------------------------------------------- */

static bool note_graph(plan_validator *v, const plan_op *op, const op_source *where)
{
  bool begins = op->kind == OP_GRAPH_BEGIN;
  assert(begins || op->kind == OP_GRAPH_END);
  if (begins == v->in_graph)
    return diag_error(v->d, where->op,
                      begins ? "a graph begins inside a graph" : "a graph ends that has not begun");
  v->in_graph = begins;
  v->graph_at = where->op;
  return true;
}

/* ---- in the order of the text -------------------------------------------------------------- */

void validate_rank_begin(plan_validator *v, uint32_t rank)
{
  assert(rank < v->plan->rank_count && v->d != NULL);
  v->rank = rank;
  v->alive.count = 0;
  v->parts.count = 0;
  v->waits.count = 0;
  v->in_graph = false;
}

bool validate_resident(plan_validator *v, uint32_t buffer, source_pos at)
{
  return take_buffer(v, buffer, at);
}

bool validate_op(plan_validator *v, const plan_op *op, const op_source *where)
{
  assert(op->kind < OP_KINDS && op->stream < STREAMS);
  op_side stream = rules[op->kind].stream;
  if (side_of((plan_stream)op->stream) != stream)
    return diag_error(v->d, where->op, "%s is in stream %s; expected %s",
                      op_name((op_kind)op->kind),
                      plan_stream_name(v->plan, (plan_stream)op->stream),
                      stream == DONE_BY_HOST ? "host" : "a device stream, such as compute");
  switch ((op_kind)op->kind) {
  case OP_ALLOC:
  case OP_HOST_ALLOC: return take_buffer(v, op->arg, where->arg);
  case OP_FREE:
  case OP_HOST_FREE: return free_buffer(v, op, where);
  case OP_KERNEL:
  case OP_COLLECTIVE:
  case OP_D2H:
  case OP_H2D:
  case OP_DISK_WRITE:
  case OP_DISK_READ:
  case OP_SEND:
  case OP_RECV: return check_operands(v, op, where);
  case OP_HOST_WAIT:
  case OP_HOST_READ:
    if (v->in_graph)
      return diag_error(v->d, where->op, "the host thread cannot wait inside a graph");
    note_wait(v, op, where);
    return true;
  case OP_WAIT: note_wait(v, op, where); return true;
  case OP_GRAPH_BEGIN:
  case OP_GRAPH_END: return note_graph(v, op, where);
  case OP_MARK:
  case OP_RECORD:
  case OP_HOST_WORK:
  case OP_KINDS: break;
  }
  return true;
}

bool validate_rank_end(plan_validator *v)
{
  assert(v->alive.count == current(v)->buffers.count && "every buffer was allocated");
  if (v->in_graph) return diag_error(v->d, v->graph_at, "the graph never ends");
  for (uint32_t i = 0; i < v->waits.count; i++)
    if (v->waits.items[i].event >= current(v)->events)
      return diag_error(v->d, v->waits.items[i].at,
                        "e%" PRIu32 " is never recorded; rank %" PRIu32 " records %" PRIu32
                        " events, from e0 on",
                        v->waits.items[i].event, v->rank, current(v)->events);
  return true;
}

/* The text must contain both sides of a message, unless it omits the other rank. */
static bool check_matched(plan_validator *v, uint32_t id)
{
  assert(id < v->messages.count && id < v->plan->messages.count);
  const message_sides *sides = &v->messages.items[id];
  const plan_message *m = &v->plan->messages.items[id];
  bool sent = sides->at[0].line != 0, received = sides->at[1].line != 0;
  if (sent == received) return true;
  uint32_t other = sent ? m->to_rank : m->from_rank;
  assert(other < v->plan->rank_count);
  if (v->plan->ranks[other].ops.count == 0) return true;
  return diag_error(v->d, sides->at[!sent],
                    "msg %" PRIu32 " is never %s; rank %" PRIu32 " must %s it", id,
                    sent ? "received" : "sent", other, sent ? "receive" : "send");
}

bool validate_plan_end(plan_validator *v)
{
  for (uint32_t i = 0; i < v->messages.count; i++)
    if (!check_matched(v, i)) return false;
  return true;
}

void validator_release(plan_validator *v)
{
  ARRAY_FREE(&v->alive);
  ARRAY_FREE(&v->parts);
  ARRAY_FREE(&v->waits);
  ARRAY_FREE(&v->messages);
}
