#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "sim/plan/parser.h"
#include "sim/plan/text.h"
#include "sim/plan/words.h"

#define BUFFER  "a buffer such as %0"
#define EVENT   "an event such as e0"
#define NO_MORE "the end of the line, or a place such as \"@ layer 0 self_attention\""

#define X(id, name, ...) name,
static const char *const class_names[] = { PLAN_CLASSES(X) };
#undef X

/* ---- parts of a line ----------------------------------------------------------------------- */

/* "@ layer 3 self_attention", "@ layer 3", "@ embedding", or nothing. */
static bool read_site(parser *p, uint32_t *site)
{
  plan_word w = line_peek(&p->line);
  *site = 0;
  if (!word_is(&w, "@")) return line_end(&p->line, NO_MORE);
  line_word(&p->line);
  int64_t layer = -1;
  w = line_peek(&p->line);
  if (word_is(&w, "layer")) {
    line_word(&p->line);
    if (!line_number(&p->line, "the number of a layer", 0, INT32_MAX, &layer)) return false;
  }
  plan_word module = line_word(&p->line);
  if (module.length == 0 && layer < 0)
    return line_wrong(&p->line, &module, "\"layer\" and its number, or the name of a module");
  *site = site_row(p, (int32_t)layer, &module);
  assert(*site < p->plan->sites.count);
  return line_end(&p->line, "the end of the line");
}

static bool has_countable_bytes(const plan_tensor *t)
{
  int64_t bytes = dtype_bytes((dtype)t->dtype);
  assert(t->rank <= PLAN_TENSOR_DIMS);
  for (uint32_t i = 0; i < t->rank; i++)
    if (t->shape[i] > 0 && __builtin_mul_overflow(bytes, t->shape[i], &bytes)) return false;
  return true;
}

/* "bf16[4096,1,16,128]" */
static bool read_type(parser *p, plan_tensor *t)
{
  static const char expected[] = "type and at most 4 sizes, such as bf16[4096,1,128]";
  plan_word w = line_word(&p->line);
  const char *open = memchr(w.text, '[', w.length);
  if (open == NULL || w.text[w.length - 1] != ']') return line_wrong(&p->line, &w, expected);
  plan_word type = { w.text, (size_t)(open - w.text), w.at };
  t->dtype = (uint8_t)word_dtype(&type);
  if (t->dtype == DTYPES)
    return line_wrong(&p->line, &w, "a type (u8, fp8, bf16, fp16, fp32, fp64, i32, i64) and sizes");
  const char *end = w.text + w.length - 1;
  assert(t->rank == 0 && open < end);
  for (const char *next = open + 1; next < end || t->rank > 0;) {
    const char *comma = memchr(next, ',', (size_t)(end - next));
    const char *stop = comma != NULL ? comma : end;
    if (t->rank == PLAN_TENSOR_DIMS ||
        !text_number(next, (size_t)(stop - next), INT64_MAX, &t->shape[t->rank]))
      return line_wrong(&p->line, &w, expected);
    t->rank++;
    if (comma == NULL) break;
    next = comma + 1;
  }
  return has_countable_bytes(t) ||
         line_wrong(&p->line, &w, "sizes whose product is less than 2^63 bytes");
}

static bool read_key(parser *p, uint32_t *key)
{
  plan_word w = line_peek(&p->line);
  if (!word_is(&w, "key")) return true;
  line_word(&p->line);
  int64_t number;
  if (!line_number(&p->line, "the number of a pool key", 1, PLAN_TEXT_POOL_KEYS, &number))
    return false;
  *key = (uint32_t)number;
  assert(*key != 0 && "0: no pool");
  return true;
}

static void read_filled(parser *p, uint8_t *filled)
{
  plan_word w = line_peek(&p->line);
  if (!word_is(&w, "filled")) return;
  line_word(&p->line);
  *filled = 1;
}

/* "%12 query bf16[4096,1] 8192 bytes saved key 1 filled @ layer 3 self_attention", the rank's next
 * buffer. */
static bool read_new_buffer(parser *p, plan_stream pool, source_pos *at)
{
  plan_buffer b = { .stream = (uint8_t)pool, .mark = p->rank->marks.count - 1 };
  plan_tensor t = { 0 };
  uint32_t id, class;
  assert(pool < STREAMS && p->rank->marks.count >= 1);
  if (!line_numbered(&p->line, '%', BUFFER, &id, at)) return false;
  if (id != p->rank->buffers.count && !p->lost)
    return diag_error(p->d, *at,
                      "found %%%" PRIu32 "; buffers are numbered in the order of allocation "
                      "and the next of this rank is %%%" PRIu32,
                      id, p->rank->buffers.count);
  plan_word name = line_word(&p->line);
  if (name.length == 0) return line_wrong(&p->line, &name, "the buffer's name");
  if (!read_type(p, &t) || !line_bytes(&p->line, &b.bytes) ||
      !line_choice(&p->line, "a class of memory", class_names, BUFFER_CLASSES, &class) ||
      !read_key(p, &b.host_key))
    return false;
  read_filled(p, &b.filled);
  if (!read_site(p, &t.site)) return false;
  b.purpose = (uint8_t) class;
  b.tensor = tensor_row(p, &name, &t);
  *ARRAY_PUSH(&p->rank->buffers) = b;
  return true;
}

/* "%3", or "%3{fp32+0:8x4/16x1}"; `i`: the operand's index in the op. */
static bool read_operand(parser *p, uint32_t i)
{
  plan_word w = line_word(&p->line);
  const char *open = w.length > 0 ? memchr(w.text, '{', w.length) : NULL;
  plan_word number = { w.text, open != NULL ? (size_t)(open - w.text) : w.length, w.at };
  plan_word view = { w.text + number.length, w.length - number.length, w.at };
  int64_t id;
  assert(i < OPERANDS);
  p->operand_at[i] = w.at;
  if (number.length < 2 || w.text[0] != '%' ||
      !text_number(w.text + 1, number.length - 1, UINT32_MAX, &id))
    return line_wrong(&p->line, &w, BUFFER);
  *ARRAY_PUSH(&p->rank->operands) = (uint32_t)id;
  return parse_view(p, &view, &p->views[i]);
}

/* "%3 %4 -> %12"; each part may be absent. */
static bool read_operands(parser *p, plan_op *op)
{
  op->operands = p->rank->operands.count;
  uint32_t counts[2] = { 0, 0 };
  bool writes = false;
  for (;;) {
    plan_word w = line_peek(&p->line);
    if (!writes && word_is(&w, "->")) {
      line_word(&p->line);
      writes = true;
    } else if ((w.length > 0 && w.text[0] == '%') || (writes && counts[1] == 0)) {
      if (counts[writes] == UINT8_MAX)
        return line_wrong(&p->line, &w, "at most 255 buffers before and after \"->\"");
      if (!read_operand(p, counts[0] + counts[1])) return false;
      counts[writes]++;
    } else {
      break;
    }
  }
  op->reads = (uint8_t)counts[0];
  op->writes = (uint8_t)counts[1];
  assert(p->rank->operands.count - op->operands == counts[0] + counts[1]);
  return true;
}

/* ---- ops ----------------------------------------------------------------------------------- */

static bool read_call_op(parser *p, plan_op *op)
{
  plan_call call;
  memset(&call, 0, sizeof call); /* compared as bytes */
  assert(op->kind == OP_COLLECTIVE || op->kind == OP_KERNEL);
  bool good = op->kind == OP_COLLECTIVE ? parse_collective(p, &call) : parse_kernel(p, &call);
  if (!good || !read_operands(p, op)) return false;
  plan_call_views(p->plan, &call, p->views, (uint32_t)op->reads + op->writes);
  op->arg = plan_call_row(p->plan, &call);
  return true;
}

/* A message or a file moves whole buffers; what is copied between device and host may be a part of one. */
static bool read_whole_operands(parser *p, plan_op *op)
{
  if (!read_operands(p, op)) return false;
  uint32_t count = (uint32_t)op->reads + op->writes;
  bool parts = copy_may_be_part((op_kind)op->kind);
  if (parts && op->reads == 1 && op->writes == 1)
    op->arg = plan_copy_views(p->plan, &p->views[0], &p->views[1]);
  for (uint32_t i = 0; i < count; i++)
    if (!parts && !p->views[i].whole)
      return diag_error(p->d, p->operand_at[i], "%s moves a whole buffer; found a part of one",
                        op_name((op_kind)op->kind));
  return true;
}

/* "msg 5 to rank 1 8388608 bytes"; "from" on the other side. */
static bool read_message(parser *p, plan_op *op, source_pos *at)
{
  bool receives = op->kind == OP_RECV;
  int64_t id, other;
  plan_message m = { 0 };
  if (!line_expect(&p->line, "msg")) return false;
  *at = line_peek(&p->line).at;
  if (!line_number(&p->line, "the number of a message", 0, PLAN_TEXT_MESSAGES - 1, &id) ||
      !line_expect(&p->line, receives ? "from" : "to") || !line_expect(&p->line, "rank"))
    return false;
  plan_word w = line_peek(&p->line);
  if (!line_number(&p->line, "the number of a rank", 0, UINT32_MAX, &other) ||
      !line_bytes(&p->line, &m.bytes))
    return false;
  if (other >= p->plan->rank_count || other == p->rank_index)
    return diag_error(p->d, w.at,
                      "rank %" PRIu32 " has no message %s rank %" PRId64
                      "; expected another of the %" PRIu32 " ranks",
                      p->rank_index, receives ? "from" : "to", other, p->plan->rank_count);
  m.from_rank = receives ? (uint32_t)other : p->rank_index;
  m.to_rank = receives ? p->rank_index : (uint32_t)other;
  op->arg = (uint32_t)id;
  if (!p->lost && !validate_message(&p->validator, op->arg, &m, receives, *at)) return false;
  while (p->plan->messages.count <= op->arg)
    *ARRAY_PUSH(&p->plan->messages) = (plan_message){ 0 };
  assert(m.from_rank != m.to_rank && (m.from_rank == p->rank_index) == !receives);
  p->plan->messages.items[op->arg] = m;
  return read_whole_operands(p, op);
}

/* "%12 after d2h h2d" */
static bool read_free(parser *p, plan_op *op, source_pos *at)
{
  if (!line_numbered(&p->line, '%', BUFFER, &op->arg, at)) return false;
  plan_word w = line_peek(&p->line);
  assert(op->operands == 0 && "no stream is marked yet");
  if (op->kind != OP_FREE || !word_is(&w, "after")) return true;
  line_word(&p->line);
  do {
    uint32_t stream;
    if (!line_choice(&p->line, "a device stream", p->stream_names, STREAM_HOST, &stream))
      return false;
    op->operands |= UINT32_C(1) << stream;
    w = line_peek(&p->line);
  } while (w.length > 0 && !word_is(&w, "@"));
  return true;
}

static bool read_record(parser *p, plan_op *op, source_pos *at)
{
  if (!line_numbered(&p->line, 'e', EVENT, &op->arg, at)) return false;
  if (op->arg != p->rank->events && !p->lost)
    return diag_error(p->d, *at,
                      "found e%" PRIu32 "; events are recorded once, numbered in this order, "
                      "and the next of this rank is e%" PRIu32,
                      op->arg, p->rank->events);
  p->rank->events++;
  return true;
}

static bool read_host_work(parser *p, plan_op *op)
{
  int64_t operators;
  if (!line_number(&p->line, "a number of operators", 1, PLAN_TEXT_OPERATORS, &operators))
    return false;
  op->arg = (uint32_t)operators;
  assert(op->arg > 0 && op->stream < STREAMS);
  return true;
}

static bool read_alloc(parser *p, plan_op *op, source_pos *at)
{
  if (!read_new_buffer(p, (plan_stream)op->stream, at)) return false;
  op->arg = p->rank->buffers.count - 1;
  assert(p->rank->buffers.items[op->arg].stream == op->stream);
  return true;
}

/* Reads the rest of the line, after op and stream. */
static bool read_body(parser *p, plan_op *op, source_pos *arg_at)
{
  switch ((op_kind)op->kind) {
  case OP_ALLOC:
  case OP_HOST_ALLOC: return read_alloc(p, op, arg_at);
  case OP_FREE:
  case OP_HOST_FREE: return read_free(p, op, arg_at);
  case OP_KERNEL:
  case OP_COLLECTIVE: return read_call_op(p, op);
  case OP_D2H:
  case OP_H2D:
  case OP_DISK_WRITE:
  case OP_DISK_READ: return read_whole_operands(p, op);
  case OP_RECORD: return read_record(p, op, arg_at);
  case OP_WAIT:
  case OP_HOST_WAIT:
  case OP_HOST_READ: return line_numbered(&p->line, 'e', EVENT, &op->arg, arg_at);
  case OP_HOST_WORK: return read_host_work(p, op);
  case OP_SEND:
  case OP_RECV: return read_message(p, op, arg_at);
  case OP_GRAPH_BEGIN:
  case OP_GRAPH_END: return true;
  case OP_MARK:
  case OP_KINDS: break;
  }
  assert(0 && "a mark has a line of its own");
  return false;
}

static void add_op(parser *p, plan_op op)
{
  *ARRAY_PUSH(&p->rank->ops) = op;
  *ARRAY_PUSH(&p->rank->lines) = p->line.at.line;
  assert(p->rank->lines.count == p->rank->ops.count);
}

bool parse_op(parser *p, op_kind kind, source_pos at)
{
  plan_op op = { .kind = (uint8_t)kind };
  op_source where = { .op = at, .arg = at, .operands = p->operand_at };
  uint32_t stream;
  if (!line_choice(&p->line, "a stream", p->stream_names, STREAMS, &stream)) return false;
  op.stream = (uint8_t)stream;
  if (!read_body(p, &op, &where.arg) || !read_site(p, &op.site)) return false;
  if (!p->lost && !validate_op(&p->validator, &op, &where)) return false;
  assert(p->rank != NULL && op.kind < OP_KINDS && op.stream < STREAMS);
  add_op(p, op);
  return true;
}

bool parse_mark(parser *p, mark_kind kind)
{
  plan_mark mark = { .kind = (uint8_t)kind };
  assert(p->rank != NULL && kind < MARK_KINDS);
  if (mark_is_of_microbatch(kind) &&
      (!line_numbered(&p->line, 'm', "a micro-batch such as m0", &mark.microbatch, NULL) ||
       !line_numbered(&p->line, 'c', "a chunk such as c0", &mark.chunk, NULL)))
    return false;
  *ARRAY_PUSH(&p->rank->marks) = mark;
  add_op(p, (plan_op){ .kind = OP_MARK, .stream = STREAM_HOST, .arg = p->rank->marks.count - 1 });
  return line_end(&p->line, "the end of the line");
}

bool parse_resident(parser *p, source_pos at)
{
  if (p->in_ops && !p->lost)
    return diag_error(p->d, at, "a resident after ops; residents come first in their rank");
  uint32_t pool;
  assert(p->rank->residents == p->rank->buffers.count || p->lost);
  if (!line_choice(&p->line, "a stream", p->stream_names, STREAMS, &pool) ||
      !read_new_buffer(p, (plan_stream)pool, &at))
    return false;
  p->rank->residents++;
  return p->lost || validate_resident(&p->validator, p->rank->buffers.count - 1, at);
}
