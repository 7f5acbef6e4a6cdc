#include "sim/plan/validate.h"

#include <inttypes.h>

typedef enum buffer_side { ANY_SIDE, DEVICE, HOST } buffer_side;

/* What each kind of op takes. */
typedef struct op_rule {
  buffer_side stream; /* where the op stands */
  uint8_t least_reads, most_reads;
  uint8_t least_writes, most_writes;
  buffer_side read, written; /* where its operands lie */
  buffer_side arg;           /* where the buffer lies that it allocates or frees */
  const char *operands;      /* what would be right, in words */
} op_rule;

static const op_rule rules[OP_KINDS] = {
  [OP_MARK] = { .stream = HOST, .operands = "no operands" },
  [OP_ALLOC] = { .stream = DEVICE, .arg = DEVICE, .operands = "no operands" },
  [OP_FREE] = { .stream = DEVICE, .arg = DEVICE, .operands = "no operands" },
  [OP_HOST_ALLOC] = { .stream = HOST, .arg = HOST, .operands = "no operands" },
  [OP_HOST_FREE] = { .stream = HOST, .arg = HOST, .operands = "no operands" },
  [OP_KERNEL] = { DEVICE, 0, UINT8_MAX, 0, UINT8_MAX, DEVICE, DEVICE, ANY_SIDE,
                  "reads and writes" },
  [OP_COLLECTIVE] = { DEVICE, 0, UINT8_MAX, 0, UINT8_MAX, DEVICE, DEVICE, ANY_SIDE,
                      "reads and writes" },
  [OP_D2H] = { DEVICE, 1, 1, 1, 1, DEVICE, HOST, ANY_SIDE,
               "one device buffer -> one pinned host buffer" },
  [OP_H2D] = { DEVICE, 1, 1, 1, 1, HOST, DEVICE, ANY_SIDE,
               "one pinned host buffer -> one device buffer" },
  [OP_RECORD] = { .stream = DEVICE, .operands = "no operands" },
  [OP_WAIT] = { .stream = DEVICE, .operands = "no operands" },
  [OP_HOST_WAIT] = { .stream = HOST, .operands = "no operands" },
  [OP_SEND] = { DEVICE, 1, 1, 0, 0, DEVICE, DEVICE, ANY_SIDE, "one device buffer that is sent" },
  [OP_RECV] = { DEVICE, 0, 0, 1, 1, DEVICE, DEVICE, ANY_SIDE,
                "-> one device buffer that is received" },
};

static const rank_plan *current(const plan_validator *v)
{
  return &v->plan->ranks[v->rank];
}

static buffer_side side_of(plan_stream stream)
{
  return stream == STREAM_HOST ? HOST : DEVICE;
}

static const char *side_name(buffer_side side)
{
  return side == HOST ? "pinned host memory" : "device memory";
}

/* ---- buffers ------------------------------------------------------------------------------- */

/* The buffer begins to live. */
static bool take_buffer(plan_validator *v, uint32_t id, source_pos at)
{
  const plan_buffer *b = &current(v)->buffers.items[id];
  bool pinned = b->class == CLASS_PINNED_HOST;
  if (pinned != (b->stream == STREAM_HOST))
    return diag_error(v->d, at,
                      "%%%" PRIu32 " of class %s is taken from %s; class pinned_host, and no "
                      "other, is taken from host",
                      id, class_name((buffer_class)b->class), stream_name((plan_stream)b->stream));
  if (b->host_key != 0 && !pinned)
    return diag_error(v->d, at, "%%%" PRIu32 " has a pool key; only pinned_host buffers have one",
                      id);
  *ARRAY_PUSH(&v->alive) = 1;
  return true;
}

static bool check_alive(plan_validator *v, uint32_t id, source_pos at)
{
  if (id >= v->alive.count)
    return diag_error(v->d, at,
                      "%%%" PRIu32 " is not allocated yet; rank %" PRIu32 " has allocated %" PRIu32
                      " buffers before this line",
                      id, v->rank, v->alive.count);
  if (!v->alive.items[id])
    return diag_error(v->d, at,
                      "%%%" PRIu32 " is freed before this line; it can be used only from its "
                      "allocation to its free",
                      id);
  return true;
}

static bool check_side(plan_validator *v, uint32_t id, buffer_side wanted, const plan_op *op,
                       source_pos at)
{
  buffer_side found = side_of((plan_stream)current(v)->buffers.items[id].stream);
  return wanted == ANY_SIDE || found == wanted ||
         diag_error(v->d, at, "%%%" PRIu32 " lies in %s; here %s takes %s", id, side_name(found),
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
                      op->arg, stream_name((plan_stream)op->stream), stream_name(pool));
  v->alive.items[op->arg] = 0;
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

/* A copy moves what its host buffer holds. */
static bool check_copy(plan_validator *v, const plan_op *op, const op_source *where)
{
  const uint32_t *operands = current(v)->operands.items + op->operands;
  const plan_buffer *buffers = current(v)->buffers.items;
  int host = op->kind == OP_D2H;
  if (buffers[operands[host]].bytes <= buffers[operands[!host]].bytes) return true;
  return diag_error(v->d, where->operands[!host],
                    "%%%" PRIu32 " has %" PRId64 " bytes; the copy is of the %" PRId64
                    " bytes of %%%" PRIu32 " and must fit",
                    operands[!host], buffers[operands[!host]].bytes, buffers[operands[host]].bytes,
                    operands[host]);
}

static bool check_operands(plan_validator *v, const plan_op *op, const op_source *where)
{
  if (!check_counts(v, op, where)) return false;
  const op_rule *rule = &rules[op->kind];
  for (uint32_t i = 0; i < (uint32_t)op->reads + op->writes; i++) {
    uint32_t id = current(v)->operands.items[op->operands + i];
    if (!check_alive(v, id, where->operands[i]) ||
        !check_side(v, id, i < op->reads ? rule->read : rule->written, op, where->operands[i]))
      return false;
  }
  return (op->kind != OP_D2H && op->kind != OP_H2D) || check_copy(v, op, where);
}

/* ---- events and messages ------------------------------------------------------------------- */

static void note_wait(plan_validator *v, const plan_op *op, const op_source *where)
{
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

/* ---- in the order of the text -------------------------------------------------------------- */

void validate_rank_begin(plan_validator *v, uint32_t rank)
{
  v->rank = rank;
  v->alive.count = 0;
  v->waits.count = 0;
}

bool validate_resident(plan_validator *v, uint32_t buffer, source_pos at)
{
  return take_buffer(v, buffer, at);
}

bool validate_op(plan_validator *v, const plan_op *op, const op_source *where)
{
  buffer_side stream = rules[op->kind].stream;
  if (side_of((plan_stream)op->stream) != stream)
    return diag_error(v->d, where->op, "%s stands in stream %s; expected %s",
                      op_name((op_kind)op->kind), stream_name((plan_stream)op->stream),
                      stream == HOST ? "host" : "a device stream, such as compute");
  switch ((op_kind)op->kind) {
  case OP_ALLOC:
  case OP_HOST_ALLOC: return take_buffer(v, op->arg, where->arg);
  case OP_FREE:
  case OP_HOST_FREE: return free_buffer(v, op, where);
  case OP_KERNEL:
  case OP_COLLECTIVE:
  case OP_D2H:
  case OP_H2D:
  case OP_SEND:
  case OP_RECV: return check_operands(v, op, where);
  case OP_WAIT:
  case OP_HOST_WAIT: note_wait(v, op, where); return true;
  case OP_MARK:
  case OP_RECORD:
  case OP_KINDS: break;
  }
  return true;
}

bool validate_rank_end(plan_validator *v)
{
  for (uint32_t i = 0; i < v->waits.count; i++)
    if (v->waits.items[i].event >= current(v)->events)
      return diag_error(v->d, v->waits.items[i].at,
                        "e%" PRIu32 " is never recorded; rank %" PRIu32 " records %" PRIu32
                        " events, from e0 on",
                        v->waits.items[i].event, v->rank, current(v)->events);
  return true;
}

/* The other rank is in the text, but not its side of the message. */
static bool check_matched(plan_validator *v, uint32_t id)
{
  const message_sides *sides = &v->messages.items[id];
  const plan_message *m = &v->plan->messages.items[id];
  bool sent = sides->at[0].line != 0, received = sides->at[1].line != 0;
  if (sent == received) return true;
  uint32_t other = sent ? m->to_rank : m->from_rank;
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
  ARRAY_FREE(&v->waits);
  ARRAY_FREE(&v->messages);
}
