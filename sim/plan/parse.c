#include "sim/plan/text.h"

#include <inttypes.h>
#include <string.h>

#include "sim/plan/intern.h"
#include "sim/plan/line.h"
#include "sim/plan/validate.h"
#include "sim/plan/words.h"

enum { OPERANDS = 2 * UINT8_MAX };

#define FIRST_LINE "a plan begins with \"offsim-plan\" and the version of its format"
#define BUFFER "a buffer such as %0"
#define EVENT "an event such as e0"
#define NEW_LINE "the end of the line, or a place such as \"@ layer 0 self_attention\""

typedef struct parser {
  plan *plan;
  arena *memory; /* of what the plan keeps */
  diag *d;
  plan_line line;
  rank_plan *rank; /* NULL before the first */
  uint32_t rank_index;
  bool in_ops; /* the residents are over */
  source_pos rank_at;
  plan_validator validator;
  intern_table names, sites, tensors, calls; /* by content; sites and tensors as keyed below */
  source_pos operand_at[OPERANDS];
} parser;

/* Names of plan.h's tables, for look-up. */
#define X(id, name, ...) name,
static const char *const stream_names[] = { PLAN_STREAMS(X) };
static const char *const class_names[] = { PLAN_CLASSES(X) };
static const char *const dtype_names[] = { PLAN_DTYPES(X) };
static const char *const group_names[] = { PLAN_GROUPS(X) };
static const char *const kernel_names[] = { PLAN_KERNELS(X) };
static const char *const collective_names[] = { PLAN_COLLECTIVES(X) };
/* Words that begin a line inside a rank: ops, then marks, then "resident". The op "mark" is written as
 * the phase that it begins. */
static const char *const line_names[] = { PLAN_OPS(X) PLAN_MARKS(X) "resident" };
#undef X

enum { LINE_RESIDENT = OP_KINDS + MARK_KINDS, LINES };

/* ---- tables ------------------------------------------------------------------------------------ */

static const char *keep_name(parser *p, const plan_word *w)
{
  return p->names.keys[intern(&p->names, w->text, w->length)].bytes;
}

/* plan.sites[0] is nowhere: layer -1 of no module. */
static uint32_t site_row(parser *p, int32_t layer, const plan_word *module)
{
  struct { int32_t layer; uint32_t name; } key;
  key.layer = layer;
  key.name = intern(&p->names, module->text, module->length);
  uint32_t row = intern(&p->sites, &key, sizeof key);
  if (row == p->plan->sites.count)
    *ARRAY_PUSH(&p->plan->sites) =
        (plan_site){ .module = p->names.keys[key.name].bytes, .layer = layer };
  return row;
}

static uint32_t tensor_row(parser *p, const plan_word *name, const plan_tensor *described)
{
  struct { uint32_t name, site, dtype, rank; int64_t shape[4]; } key;
  memset(&key, 0, sizeof key);
  key.name = intern(&p->names, name->text, name->length);
  key.site = described->site;
  key.dtype = described->dtype;
  key.rank = described->rank;
  memcpy(key.shape, described->shape, sizeof key.shape);
  uint32_t row = intern(&p->tensors, &key, sizeof key);
  if (row == p->plan->tensors.count) {
    plan_tensor *made = ARRAY_PUSH(&p->plan->tensors);
    *made = *described;
    made->name = keep_name(p, name);
  }
  return row;
}

static uint32_t call_row(parser *p, const plan_call *call)
{
  uint32_t row = intern(&p->calls, call, sizeof *call);
  if (row == p->plan->calls.count)
    *ARRAY_PUSH(&p->plan->calls) = *call;
  return row;
}

/* ---- parts of a line --------------------------------------------------------------------------- */

/* "@ layer 3 self_attention", "@ layer 3", "@ embedding", or nothing. */
static bool read_site(parser *p, uint32_t *site)
{
  plan_word w = line_peek(&p->line);
  *site = 0;
  if (!word_is(&w, "@"))
    return line_end(&p->line, NEW_LINE);
  line_word(&p->line);
  int64_t layer = -1;
  w = line_peek(&p->line);
  if (word_is(&w, "layer")) {
    line_word(&p->line);
    if (!line_number(&p->line, "the number of a layer", 0, INT32_MAX, &layer))
      return false;
  }
  plan_word module = line_word(&p->line);
  if (module.length == 0 && layer < 0)
    return line_wrong(&p->line, &module, "\"layer\" and its number, or the name of a module");
  *site = site_row(p, (int32_t)layer, &module);
  return line_end(&p->line, "the end of the line");
}

/* "bf16[4096,1,16,128]" */
static bool read_type(parser *p, plan_tensor *t)
{
  static const char expected[] = "type and at most 4 sizes, such as bf16[4096,1,128]";
  plan_word w = line_word(&p->line);
  const char *open = memchr(w.text, '[', w.length);
  if (open == NULL || w.text[w.length - 1] != ']')
    return line_wrong(&p->line, &w, expected);
  plan_word type = { w.text, (size_t)(open - w.text), w.at };
  while (t->dtype < DTYPES && !word_is(&type, dtype_names[t->dtype]))
    t->dtype++;
  if (t->dtype == DTYPES)
    return line_wrong(&p->line, &w, "a type (u8, fp8, bf16, fp16, fp32, fp64, i32, i64) and sizes");
  const char *end = w.text + w.length - 1;
  for (const char *next = open + 1; next < end || t->rank > 0;) {
    const char *comma = memchr(next, ',', (size_t)(end - next));
    const char *stop = comma != NULL ? comma : end;
    if (t->rank == 4 || !text_number(next, (size_t)(stop - next), INT64_MAX, &t->shape[t->rank]))
      return line_wrong(&p->line, &w, expected);
    t->rank++;
    if (comma == NULL)
      break;
    next = comma + 1;
  }
  return true;
}

static bool read_key(parser *p, uint32_t *key)
{
  plan_word w = line_peek(&p->line);
  if (!word_is(&w, "key"))
    return true;
  line_word(&p->line);
  int64_t number;
  if (!line_number(&p->line, "the number of a pool key", 1, UINT32_MAX, &number))
    return false;
  *key = (uint32_t)number;
  return true;
}

/* "%12 query bf16[4096,1] 8192 bytes saved key 1 @ layer 3 self_attention", the rank's next buffer. */
static bool read_new_buffer(parser *p, plan_stream pool, source_pos *at)
{
  plan_buffer b = { .stream = (uint8_t)pool, .mark = p->rank->marks.count - 1 };
  plan_tensor t = { 0 };
  uint32_t id, class;
  if (!line_numbered(&p->line, '%', BUFFER, &id, at))
    return false;
  if (id != p->rank->buffers.count)
    return diag_error(p->d, *at, "found %%%" PRIu32 "; buffers are numbered in the order of allocation "
                                 "and the next of this rank is %%%" PRIu32,
                      id, p->rank->buffers.count);
  plan_word name = line_word(&p->line);
  if (name.length == 0)
    return line_wrong(&p->line, &name, "the buffer's name");
  if (!read_type(p, &t) || !line_bytes(&p->line, &b.bytes) ||
      !line_choice(&p->line, "a class of memory", class_names, BUFFER_CLASSES, &class) ||
      !read_key(p, &b.host_key) || !read_site(p, &t.site))
    return false;
  b.class = (uint8_t)class;
  b.tensor = tensor_row(p, &name, &t);
  *ARRAY_PUSH(&p->rank->buffers) = b;
  return true;
}

/* "%3 %4 -> %12", each part as far as it is there. */
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
      if (!line_numbered(&p->line, '%', BUFFER, ARRAY_PUSH(&p->rank->operands),
                         &p->operand_at[counts[0] + counts[1]]))
        return false;
      counts[writes]++;
    } else {
      break;
    }
  }
  op->reads = (uint8_t)counts[0];
  op->writes = (uint8_t)counts[1];
  return true;
}

/* The type of a call; none is plain bytes. */
static void read_call_type(parser *p, plan_call *call)
{
  plan_word w = line_peek(&p->line);
  for (uint32_t i = 0; i < DTYPES; i++)
    if (word_is(&w, dtype_names[i])) {
      call->dtype = (uint8_t)i;
      line_word(&p->line);
    }
}

/* ---- calls ------------------------------------------------------------------------------------- */

static bool wrong_letter(parser *p, const plan_call *call, const plan_word *found)
{
  shape_letters letters = kernel_letters((kernel_kind)call->kind);
  char expected[160] = "sizes by the letters";
  size_t used = strlen(expected);
  for (uint32_t i = 0; i < letters.count; i++)
    used += (size_t)snprintf(expected + used, sizeof expected - used, " %.*s", (int)letters.length[i],
                             letters.text[i]);
  snprintf(expected + used, sizeof expected - used, ", each once, such as %.*s=64",
           (int)letters.length[0], letters.text[0]);
  return line_wrong(&p->line, found, expected);
}

/* "m=4096" */
static bool read_dimension(parser *p, plan_call *call, const char *equals)
{
  plan_word w = line_word(&p->line);
  size_t name = (size_t)(equals - w.text);
  shape_letters letters = kernel_letters((kernel_kind)call->kind);
  uint32_t i = 0;
  while (i < letters.count &&
         (letters.length[i] != name || memcmp(letters.text[i], w.text, name) != 0))
    i++;
  if (i == letters.count || call->dims[i] != 0 ||
      !text_number(equals + 1, w.length - name - 1, INT64_MAX, &call->dims[i]))
    return wrong_letter(p, call, &w);
  return true;
}

static bool read_kernel(parser *p, plan_call *call)
{
  uint32_t kind;
  if (!line_choice(&p->line, "a kernel", kernel_names, KERNEL_KINDS, &kind))
    return false;
  call->kind = (uint8_t)kind;
  read_call_type(p, call);
  for (;;) {
    plan_word w = line_peek(&p->line);
    const char *equals = memchr(w.text, '=', w.length);
    if (equals == NULL)
      return line_bytes(&p->line, &call->bytes);
    if (!read_dimension(p, call, equals))
      return false;
  }
}

/* "all_reduce tp of 8 stride 1 8388608 bytes" */
static bool read_collective(parser *p, plan_call *call)
{
  uint32_t kind, group;
  int64_t size, stride;
  if (!line_choice(&p->line, "a collective", collective_names, COLLECTIVE_KINDS, &kind))
    return false;
  read_call_type(p, call);
  if (!line_choice(&p->line, "a process group", group_names, COMM_GROUPS, &group) ||
      !line_expect(&p->line, "of") ||
      !line_number(&p->line, "the number of ranks in the group", 0, UINT32_MAX, &size) ||
      !line_expect(&p->line, "stride") ||
      !line_number(&p->line, "the distance of neighbours in the group", 0, UINT32_MAX, &stride) ||
      !line_bytes(&p->line, &call->bytes))
    return false;
  call->is_collective = 1;
  call->kind = (uint8_t)kind;
  call->group = (uint8_t)group;
  call->group_size = (uint32_t)size;
  call->group_stride = (uint32_t)stride;
  return true;
}

/* ---- ops --------------------------------------------------------------------------------------- */

static bool read_call_op(parser *p, plan_op *op)
{
  plan_call call;
  memset(&call, 0, sizeof call); /* compared as bytes */
  bool good = op->kind == OP_COLLECTIVE ? read_collective(p, &call) : read_kernel(p, &call);
  if (!good)
    return false;
  op->arg = call_row(p, &call);
  return read_operands(p, op);
}

/* "msg 5 to rank 1 8388608 bytes"; "from" on the other side. */
static bool read_message(parser *p, plan_op *op, source_pos *at)
{
  bool receives = op->kind == OP_RECV;
  int64_t id, other;
  plan_message m = { 0 };
  if (!line_expect(&p->line, "msg"))
    return false;
  *at = line_peek(&p->line).at;
  if (!line_number(&p->line, "the number of a message", 0, PLAN_TEXT_MESSAGES - 1, &id) ||
      !line_expect(&p->line, receives ? "from" : "to") || !line_expect(&p->line, "rank"))
    return false;
  plan_word w = line_peek(&p->line);
  if (!line_number(&p->line, "the number of a rank", 0, UINT32_MAX, &other) ||
      !line_bytes(&p->line, &m.bytes))
    return false;
  if (other >= p->plan->rank_count || other == p->rank_index)
    return diag_error(p->d, w.at, "rank %" PRIu32 " has no message %s rank %" PRId64
                                  "; expected another of the %" PRIu32 " ranks",
                      p->rank_index, receives ? "from" : "to", other, p->plan->rank_count);
  m.from_rank = receives ? (uint32_t)other : p->rank_index;
  m.to_rank = receives ? p->rank_index : (uint32_t)other;
  op->arg = (uint32_t)id;
  if (!validate_message(&p->validator, op->arg, &m, receives, *at))
    return false;
  while (p->plan->messages.count <= op->arg)
    *ARRAY_PUSH(&p->plan->messages) = (plan_message){ 0 };
  p->plan->messages.items[op->arg] = m;
  return read_operands(p, op);
}

/* "%12 after d2h h2d" */
static bool read_free(parser *p, plan_op *op, source_pos *at)
{
  if (!line_numbered(&p->line, '%', BUFFER, &op->arg, at))
    return false;
  plan_word w = line_peek(&p->line);
  if (op->kind != OP_FREE || !word_is(&w, "after"))
    return true;
  line_word(&p->line);
  do {
    uint32_t stream;
    if (!line_choice(&p->line, "a device stream", stream_names, STREAM_HOST,
                     &stream))
      return false;
    op->operands |= UINT32_C(1) << stream;
    w = line_peek(&p->line);
  } while (w.length > 0 && !word_is(&w, "@"));
  return true;
}

static bool read_record(parser *p, plan_op *op, source_pos *at)
{
  if (!line_numbered(&p->line, 'e', EVENT, &op->arg, at))
    return false;
  if (op->arg != p->rank->events)
    return diag_error(p->d, *at, "found e%" PRIu32 "; events are recorded once, numbered in this order, "
                                 "and the next of this rank is e%" PRIu32,
                      op->arg, p->rank->events);
  p->rank->events++;
  return true;
}

static bool read_alloc(parser *p, plan_op *op, source_pos *at)
{
  if (!read_new_buffer(p, (plan_stream)op->stream, at))
    return false;
  op->arg = p->rank->buffers.count - 1;
  return true;
}

/* What stands after op and stream. */
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
  case OP_H2D: return read_operands(p, op);
  case OP_RECORD: return read_record(p, op, arg_at);
  case OP_WAIT:
  case OP_HOST_WAIT: return line_numbered(&p->line, 'e', EVENT, &op->arg, arg_at);
  case OP_SEND:
  case OP_RECV: return read_message(p, op, arg_at);
  case OP_MARK:
  case OP_KINDS: break;
  }
  return false;
}

static bool read_op(parser *p, op_kind kind, source_pos at)
{
  plan_op op = { .kind = (uint8_t)kind };
  op_source where = { .op = at, .arg = at, .operands = p->operand_at };
  uint32_t stream;
  if (!line_choice(&p->line, "a stream", stream_names, STREAMS, &stream))
    return false;
  op.stream = (uint8_t)stream;
  if (!read_body(p, &op, &where.arg) || !read_site(p, &op.site) ||
      !validate_op(&p->validator, &op, &where))
    return false;
  *ARRAY_PUSH(&p->rank->ops) = op;
  return true;
}

static bool read_mark(parser *p, mark_kind kind)
{
  plan_mark mark = { .kind = (uint8_t)kind };
  if (mark_is_of_microbatch(kind) &&
      (!line_numbered(&p->line, 'm', "a micro-batch such as m0", &mark.microbatch, NULL) ||
       !line_numbered(&p->line, 'c', "a chunk such as c0", &mark.chunk, NULL)))
    return false;
  *ARRAY_PUSH(&p->rank->marks) = mark;
  *ARRAY_PUSH(&p->rank->ops) =
      (plan_op){ .kind = OP_MARK, .stream = STREAM_HOST, .arg = p->rank->marks.count - 1 };
  return line_end(&p->line, "the end of the line");
}

static bool read_resident(parser *p, source_pos at)
{
  if (p->in_ops)
    return diag_error(p->d, at, "a resident after ops; residents stand first, at the head of their rank");
  uint32_t pool;
  if (!line_choice(&p->line, "a stream", stream_names, STREAMS, &pool) ||
      !read_new_buffer(p, (plan_stream)pool, &at))
    return false;
  p->rank->residents++;
  return validate_resident(&p->validator, p->rank->buffers.count - 1, at);
}

/* ---- lines ------------------------------------------------------------------------------------- */

static bool end_rank(parser *p)
{
  if (p->rank == NULL)
    return true;
  if (p->rank->ops.count == 0)
    return diag_error(p->d, p->rank_at, "rank %" PRIu32 " has no ops; a rank that is not part of the "
                                        "text is left out",
                      p->rank_index);
  return validate_rank_end(&p->validator);
}

static bool begin_rank(parser *p, source_pos at)
{
  plan_word w = line_peek(&p->line);
  int64_t rank;
  if (!end_rank(p) || !line_number(&p->line, "the number of a rank", 0, UINT32_MAX, &rank) ||
      !line_end(&p->line, "the end of the line"))
    return false;
  if (rank >= p->plan->rank_count)
    return diag_error(p->d, w.at, "rank %" PRId64 "; the plan has %" PRIu32 " ranks, from 0 on", rank,
                      p->plan->rank_count);
  if (p->rank != NULL && rank <= p->rank_index)
    return diag_error(p->d, w.at, "rank %" PRId64 " stands after rank %" PRIu32
                                  "; ranks stand once and in order",
                      rank, p->rank_index);
  p->rank_index = (uint32_t)rank;
  p->rank = &p->plan->ranks[rank];
  p->rank_at = at;
  p->in_ops = false;
  validate_rank_begin(&p->validator, p->rank_index);
  return true;
}

static bool read_line_of_rank(parser *p)
{
  uint32_t which;
  source_pos at = line_peek(&p->line).at;
  if (!line_choice(&p->line, "an op, a phase, a resident or a rank", line_names, LINES, &which))
    return false;
  if (which == LINE_RESIDENT)
    return read_resident(p, at);
  p->in_ops = true;
  if (which >= OP_KINDS)
    return read_mark(p, (mark_kind)(which - OP_KINDS));
  if (which == OP_MARK)
    return diag_error(p->d, at, "found \"mark\"; expected the phase that it begins: setup, forward, "
                                "backward, finish or optimizer");
  return read_op(p, (op_kind)which, at);
}

static bool read_line(parser *p)
{
  plan_word w = line_peek(&p->line);
  if (!word_is(&w, "rank") && p->rank != NULL)
    return read_line_of_rank(p);
  if (!line_expect(&p->line, "rank"))
    return false;
  return begin_rank(p, w.at);
}

/* Finds the end of the line that begins at `l->next`; a plan is plain ASCII. */
static bool delimit(plan_line *l, const char *end)
{
  l->end = memchr(l->next, '\n', (size_t)(end - l->next));
  if (l->end == NULL)
    l->end = end;
  for (const char *c = l->next; c < l->end; c++)
    if (*c < ' ' || *c > '~') {
      source_pos at = { l->at.file, l->at.line, (int)(c - l->next) + 1 };
      return diag_error(l->d, at, "byte 0x%02X; a plan holds printable ASCII characters, blanks and "
                                  "newlines", (unsigned char)*c);
    }
  return true;
}

/* The next line on which something stands, but not a comment. False at the end of the text or after a
 * diag error. */
static bool next_line(parser *p, const char *end)
{
  plan_line *l = &p->line;
  while (l->end == NULL || l->end < end) {
    l->next = l->end == NULL ? l->next : l->end + 1;
    l->at = (source_pos){ l->at.file, l->at.line + 1, 1 };
    if (!delimit(l, end))
      return false;
    plan_word w = line_peek(l);
    if (w.length > 0 && w.text[0] != '#')
      return true;
  }
  return false;
}

static bool read_version(parser *p)
{
  plan_word w = line_word(&p->line);
  if (!word_is(&w, "offsim-plan"))
    return diag_error(p->d, w.at, "this is no plan; " FIRST_LINE);
  int64_t version;
  plan_word number = line_peek(&p->line);
  if (!line_number(&p->line, "the number of a version", 0, INT64_MAX, &version))
    return false;
  if (version != PLAN_FORMAT_VERSION)
    return diag_error(p->d, number.at, "version %" PRId64 " of the plan format; this offsim reads version %d",
                      version, PLAN_FORMAT_VERSION);
  return line_end(&p->line, "the end of the line");
}

static bool read_ranks(parser *p)
{
  int64_t ranks;
  if (!line_expect(&p->line, "ranks") ||
      !line_number(&p->line, "the number of pipeline ranks", 1, PLAN_TEXT_RANKS, &ranks))
    return false;
  *p->plan = plan_new((uint32_t)ranks, p->memory);
  return line_end(&p->line, "the end of the line");
}

/* Reports a text that ends too early, unless an error has ended it. */
static bool need_line(parser *p, const char *end, const char *expected)
{
  if (next_line(p, end))
    return true;
  source_pos at = { p->line.at.file, p->line.at.line > 0 ? p->line.at.line : 1, 1 };
  return diag_ok(p->d) ? diag_error(p->d, at, "the text ends here; %s", expected) : false;
}

static bool read_all(parser *p, const char *end)
{
  if (!need_line(p, end, FIRST_LINE) || !read_version(p) ||
      !need_line(p, end, "expected \"ranks\" and their number") || !read_ranks(p))
    return false;
  site_row(p, -1, &(plan_word){ .text = "" });
  if (!need_line(p, end, "expected \"rank 0\" and its ops"))
    return false;
  do {
    if (!read_line(p))
      return false;
  } while (next_line(p, end));
  return diag_ok(p->d) && end_rank(p) && validate_plan_end(&p->validator);
}

bool plan_parse(plan *p, const char *file, const char *text, size_t length, arena *a, diag *d)
{
  *p = (plan){ 0 };
  if (length > PLAN_TEXT_LIMIT_BYTES)
    return diag_error(d, (source_pos){ file, 0, 0 }, "the plan has %zu bytes; at most %d are read",
                      length, PLAN_TEXT_LIMIT_BYTES);
  arena scratch = { 0 };
  parser reader = { .plan = p, .memory = a, .d = d };
  reader.line = (plan_line){ .next = text, .at = { file, 0, 0 }, .d = d };
  reader.validator = (plan_validator){ .plan = p, .d = d };
  reader.names.memory = a;
  reader.sites.memory = reader.tensors.memory = reader.calls.memory = &scratch;
  bool good = read_all(&reader, text + length);
  validator_release(&reader.validator);
  arena_release(&scratch);
  if (!good)
    plan_release(p);
  return good;
}
