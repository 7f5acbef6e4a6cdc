#include "sim/exec/stage.h"

#include <assert.h>
#include <string.h>

#include "sim/exec/layout.h"

static void link_streams(stage *s, arena *a)
{
  const op_array *ops = &s->ops_of->ops;
  s->following = ARENA_ARRAY(a, uint32_t, ops->count);
  s->record_of = ARENA_ARRAY(a, uint32_t, s->ops_of->events);
  memset(s->record_of, 0xff, s->ops_of->events * sizeof *s->record_of);
  memset(s->first, 0xff, sizeof s->first);
  for (uint32_t i = ops->count; i-- > 0;) {
    const plan_op *op = &ops->items[i];
    assert(op->kind != OP_RECORD || s->record_of[op->arg] == NO_OP);
    if (op->kind == OP_RECORD) s->record_of[op->arg] = i;
    if (!op_runs_on_stream((op_kind)op->kind)) continue;
    assert(op->stream < DEVICE_STREAMS);
    s->following[i] = s->first[op->stream];
    s->first[op->stream] = i;
  }
}

static void find_phases(stage *s, arena *a)
{
  const op_array *ops = &s->ops_of->ops;
  uint32_t mark = 0;
  s->mark_of = ARENA_ARRAY(a, uint32_t, ops->count);
  for (uint32_t i = 0; i < ops->count; i++) {
    if (ops->items[i].kind == OP_MARK) mark = ops->items[i].arg;
    assert(mark == 0 || mark < s->ops_of->marks.count);
    s->mark_of[i] = mark;
  }
}

/* Calls `visit` for every operand of every op, in program order. */
static void for_operands(const stage *s, void (*visit)(stage *, uint32_t buffer, uint32_t op),
                         stage *to)
{
  for (uint32_t i = 0; i < s->ops_of->ops.count; i++) {
    const plan_op *op = stage_op(s, i);
    for (uint32_t k = 0; op_works((op_kind)op->kind) && k < (uint32_t)op->reads + op->writes; k++)
      visit(to, stage_operand(s, op, k), i);
  }
}

static void count_use(stage *s, uint32_t buffer, uint32_t op)
{
  (void)op;
  assert(buffer < s->ops_of->buffers.count && s->use_count[buffer] < UINT32_MAX);
  s->use_count[buffer]++;
}

/* `first_use[buffer + 1]` is the end of the buffer's rows while they are filled. */
static void add_use(stage *s, uint32_t buffer, uint32_t op)
{
  uint32_t stream = stage_op(s, op)->stream;
  assert(stream < DEVICE_STREAMS && s->first_use[buffer] < s->first_use[buffer + 1]);
  for (uint32_t i = s->first_use[buffer]; i < s->first_use[buffer + 1]; i++) {
    stream_use *u = &s->uses[i];
    if (u->last == NO_OP) u->stream = stream;
    if (u->stream != stream) continue;
    assert(u->last == NO_OP || u->last <= op);
    u->last = op;
    return;
  }
  assert(0 && "a row for each stream that uses the buffer");
}

/* A buffer's unused rows keep the op NO_OP. */
static void find_uses(stage *s, arena *a)
{
  uint32_t buffers = s->ops_of->buffers.count, rows = 0;
  s->use_count = ARENA_ARRAY(a, uint32_t, buffers);
  s->first_use = ARENA_ARRAY(a, uint32_t, buffers + 1);
  for_operands(s, count_use, s);
  for (uint32_t b = 0; b < buffers; b++) {
    s->first_use[b] = rows;
    rows += s->use_count[b] < DEVICE_STREAMS ? s->use_count[b] : DEVICE_STREAMS;
  }
  assert(rows <= (uint64_t)buffers * DEVICE_STREAMS);
  s->first_use[buffers] = rows;
  s->uses = ARENA_ARRAY(a, stream_use, rows);
  memset(s->uses, 0xff, rows * sizeof *s->uses);
  for_operands(s, add_use, s);
}

static void find_reads(stage *s, arena *a)
{
  s->is_read = ARENA_ARRAY(a, bool, s->ops_of->buffers.count);
  for (uint32_t i = 0; i < s->ops_of->ops.count; i++) {
    const plan_op *op = stage_op(s, i);
    for (uint32_t k = 0; op_works((op_kind)op->kind) && k < op->reads; k++)
      s->is_read[stage_operand(s, op, k)] = true;
  }
}

static uint32_t next_send(const plan *p, uint32_t from, uint32_t to, uint32_t at)
{
  const op_array *ops = &p->ranks[from].ops;
  assert(from != to && at <= ops->count + 1);
  for (; at < ops->count; at++) {
    const plan_op *o = &ops->items[at];
    if (o->kind == OP_SEND && p->messages.items[o->arg].to_rank == to) break;
  }
  return at;
}

/* The communication library pairs the sends of one rank to another with the receives there, in the
 * order in which both sides issue them. */
static void pair_messages(stage *s, uint32_t number, arena *a)
{
  const plan *p = s->plan;
  uint32_t *sent = ARENA_ARRAY(a, uint32_t, p->rank_count);
  s->mate = ARENA_ARRAY(a, uint32_t, s->ops_of->ops.count);
  for (uint32_t i = 0; i < s->ops_of->ops.count; i++) {
    const plan_op *o = stage_op(s, i);
    s->mate[i] = o->arg;
    if (o->kind != OP_RECV) continue;
    uint32_t from = p->messages.items[o->arg].from_rank;
    assert(from < p->rank_count);
    uint32_t send = next_send(p, from, number, sent[from]);
    sent[from] = send + 1;
    if (send < p->ranks[from].ops.count) s->mate[i] = p->ranks[from].ops.items[send].arg;
  }
}

static const plan_tensor *tensor_of(const stage *s, uint32_t buffer)
{
  assert(stage_buffer(s, buffer)->tensor < s->plan->tensors.count);
  return &s->plan->tensors.items[stage_buffer(s, buffer)->tensor];
}

static plan_view whole_view(const plan_tensor *t)
{
  assert(t->rank <= PLAN_VIEW_DIMS);
  plan_view v = { .dtype = t->dtype, .rank = t->rank };
  int64_t stride = 1;
  for (uint32_t i = t->rank; i-- > 0; stride *= t->shape[i]) {
    v.shape[i] = t->shape[i];
    v.strides[i] = stride;
  }
  assert(view_is_contiguous(&v));
  return v;
}

static int64_t bytes_of(const plan_tensor *t)
{
  plan_view v = whole_view(t);
  assert(t->dtype < DTYPES);
  return view_elements(&v) * dtype_bytes((dtype)t->dtype);
}

/* A copy of a view's whole storage has the view's name and shape, but is as large as the
 * storage. */
static void find_sizes(stage *s, arena *a)
{
  s->bytes = ARENA_ARRAY(a, int64_t, s->ops_of->buffers.count);
  for (uint32_t b = 0; b < s->ops_of->buffers.count; b++)
    s->bytes[b] = bytes_of(tensor_of(s, b));
  for (uint32_t i = 0; i < s->ops_of->ops.count; i++) {
    const plan_op *o = stage_op(s, i);
    if (!op_is_copy((op_kind)o->kind)) continue;
    assert(o->reads == 1 && o->writes == 1);
    uint32_t from = stage_operand(s, o, 0), to = stage_operand(s, o, 1);
    assert(from != to);
    if (stage_buffer(s, from)->bytes == stage_buffer(s, to)->bytes) s->bytes[to] = s->bytes[from];
  }
}

stage stage_new(const plan *p, uint32_t number, arena *a)
{
  assert(number < p->rank_count);
  stage s = { .plan = p, .ops_of = &p->ranks[number] };
  find_sizes(&s, a);
  link_streams(&s, a);
  find_phases(&s, a);
  find_uses(&s, a);
  find_reads(&s, a);
  pair_messages(&s, number, a);
  for (uint32_t b = 0; b < s.ops_of->buffers.count; b++)
    assert(s.bytes[b] >= 0 && (s.use_count[b] > 0 || !s.is_read[b]));
  return s;
}

plan_view stage_view(const stage *s, const plan_op *op, uint32_t i)
{
  plan_view v = plan_op_view(s->plan, op, i);
  assert(op->operands + i < s->ops_of->operands.count);
  return v.whole ? whole_view(tensor_of(s, stage_operand(s, op, i))) : v;
}

static plan_view bytes_view(int64_t bytes)
{
  assert(bytes >= 0);
  return (plan_view){ .dtype = DTYPE_BYTE, .rank = 1, .shape = { bytes }, .strides = { 1 } };
}

plan_view stage_rank_view(const stage *s, const exec_rank *rank, const plan_op *op, uint32_t i)
{
  op_kind kind = (op_kind)op->kind;
  assert(op_works(kind));
  if (kind == OP_SEND || kind == OP_RECV) return bytes_view(s->plan->messages.items[op->arg].bytes);
  if (op_is_copy(kind) && plan_op_view(s->plan, op, i).whole) {
    uint32_t host = stage_operand(s, op, kind == OP_D2H || kind == OP_DISK_READ);
    return bytes_view(op->arg != 0 ? copy_bytes(s->plan, s->ops_of, op) : s->bytes[host]);
  }
  plan_view v = stage_view(s, op, i);
  return rank_view(&v, rank);
}

const char *stage_op_text(const stage *s, uint32_t op, arena *a)
{
  const plan_op *o = stage_op(s, op);
  assert(o->site < s->plan->sites.count);
  const plan_site *site = &s->plan->sites.items[o->site];
  const char *what = plan_op_name(s->plan, o);
  if (site->layer >= 0)
    return arena_printf(a, "op %u (%s @ layer %d %s)", op, what, site->layer, site->module);
  if (site->module[0] != '\0') return arena_printf(a, "op %u (%s @ %s)", op, what, site->module);
  return arena_printf(a, "op %u (%s)", op, what);
}

const char *stage_buffer_text(const stage *s, uint32_t buffer, arena *a)
{
  return arena_printf(a, "%%%u %s", buffer, tensor_of(s, buffer)->name);
}
