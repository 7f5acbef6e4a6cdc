#include "sim/engine/memory_ops.h"

#include <assert.h>

#include "sim/plan/repeats.h"

/* Where the walk through the plan is: by stream, the last op issued so far; and the last copy back. */
typedef struct issued {
  uint32_t last[STREAMS];
  uint32_t last_back;
} issued;

static inline void note_issued(issued *so_far, const plan_op *o, uint32_t op)
{
  assert(o->stream < STREAM_HOST);
  so_far->last[o->stream] = op;
  if (o->kind == OP_H2D) so_far->last_back = op;
}

/* The block waits for everything issued so far to the marked streams. */
static void add_uses(memory_ops *m, memory_op *returned, const issued *so_far, uint32_t streams)
{
  assert(streams >> STREAMS == 0);
  for (; streams != 0; streams &= streams - 1) {
    uint32_t stream = (uint32_t)__builtin_ctz(streams);
    *ARRAY_PUSH(&m->uses) = (memory_use){ .stream = stream, .op = so_far->last[stream] };
    returned->use_count++;
  }
}

/* A page-locked buffer without a pool is reusable when the last copy back that was issued is done; Megatron's
 * pool does not wait. */
static void add_host_use(memory_ops *m, memory_op *returned, const issued *so_far)
{
  const plan_buffer *b = &m->plan->buffers.items[returned->buffer];
  assert(b->stream == STREAM_HOST);
  if (b->purpose != CLASS_PINNED_HOST || b->host_key != 0) return;
  *ARRAY_PUSH(&m->uses) = (memory_use){ .stream = STREAM_H2D, .op = so_far->last_back };
  returned->use_count = 1;
}

/* By op_kind, which lists have the op, and as which memory_op_kind; 0: none, unless the host computes it. */
enum { LISTED = 4, COUNTED = 8, KIND_BITS = 3 };
static const uint8_t handled[OP_KINDS] = {
  [OP_ALLOC] = LISTED | MEMORY_TAKE,
  [OP_FREE] = LISTED | MEMORY_RETURN,
  [OP_HOST_ALLOC] = LISTED | COUNTED | MEMORY_HOST_TAKE,
  [OP_HOST_FREE] = LISTED | COUNTED | MEMORY_HOST_RETURN,
  [OP_MARK] = COUNTED,
  [OP_D2H] = COUNTED,
  [OP_H2D] = COUNTED,
  [OP_DISK_WRITE] = COUNTED,
  [OP_DISK_READ] = COUNTED,
};

/* The ops from `from` to before `end`. Kinds by a table: a branch for each would be mispredicted. */
static void walk(memory_ops *m, issued *so_far, uint32_t from, uint32_t end)
{
  const plan_op *o = m->plan->ops.items + from;
  memory_op *to = m->ops.items + m->ops.count;
  for (uint32_t i = from; i < end; i++, o++) {
    uint8_t how = handled[o->kind];
    if (how & COUNTED || o->stream == STREAM_CPU) *ARRAY_PUSH(&m->counted) = i;
    if (!(how & LISTED)) {
      if (o->stream != STREAM_HOST) note_issued(so_far, o, i);
      continue;
    }
    *to = memory_op_of(&m->plan->buffers.items[o->arg], o->arg, i, how & KIND_BITS);
    to->first_use = m->uses.count;
    if (o->kind == OP_FREE && o->operands != 0) add_uses(m, to, so_far, o->operands);
    if (o->kind == OP_HOST_FREE) add_host_use(m, to, so_far);
    to++;
  }
  m->ops.count = (uint32_t)(to - m->ops.items);
  assert(m->ops.count <= m->ops.capacity && "each buffer is taken and returned once");
}

/* ---- turns that repeat (sim/plan/repeats.h) ------------------------------------------------------ */

/* An op before the part is the same one in each turn. */
static inline uint32_t op_later(const plan_repeat *r, uint32_t op, uint32_t turns)
{
  return op >= r->first && op != MEMORY_NO_OP ? op + turns * r->ops : op;
}

/* Lists a turn as the one before it, which has the last rows, from those numbers on. The part took buffers
 * from `taken` on; what the warm-up took is renamed in an order of its own. True: the turn returns some. */
static bool repeat_turn(memory_ops *m, uint32_t ops, uint32_t uses, uint32_t taken)
{
  const rank_plan *p = m->plan;
  const plan_repeat *r = &p->repeat;
  uint32_t end = m->ops.count, uses_end = m->uses.count;
  const memory_op *before = &m->ops.items[ops];
  memory_op *now = &m->ops.items[end];
  bool takes_over = false;
  m->ops.count += end - ops;
  assert(m->ops.count <= m->ops.capacity && taken >= p->residents);
  for (uint32_t i = ops; i < end; i++, before++, now++) {
    *now = *before;
    now->op += r->ops;
    now->first_use += uses_end - uses;
    now->buffer = before->buffer >= taken ? before->buffer + r->buffers : p->ops.items[now->op].arg;
    takes_over |= now->buffer < taken;
  }
  for (uint32_t i = uses; i < uses_end; i++) {
    memory_use use = m->uses.items[i];
    *ARRAY_PUSH(&m->uses) = (memory_use){ use.stream, op_later(r, use.op, 1) };
  }
  return takes_over;
}

/* Lists `turns` turns more, as the one that has the last rows, from number `counted` on. */
static void repeat_counted(memory_ops *m, uint32_t counted, uint32_t turns)
{
  uint32_t more = turns * (m->counted.count - counted);
  ARRAY_RESERVE(&m->counted, m->counted.count + more);
  for (; more > 0; more--, counted++) {
    uint32_t op = m->counted.items[counted];
    *ARRAY_PUSH(&m->counted) = op + m->plan->repeat.ops;
  }
}

/* Whether as many of the rows from `from` on take buffers as return some. */
static bool are_balanced(const memory_ops *m, uint32_t from)
{
  uint32_t takes = 0;
  for (uint32_t i = from; i < m->ops.count; i++)
    takes += m->ops.items[i].kind == MEMORY_TAKE || m->ops.items[i].kind == MEMORY_HOST_TAKE;
  return 2 * takes == m->ops.count - from;
}

/* The second turn shows what a turn waits for that was issued in the one before. */
static void walk_turns(memory_ops *m, issued *so_far)
{
  const plan_repeat *r = &m->plan->repeat;
  uint32_t taken = buffers_before(m->plan, r->first);
  walk(m, so_far, r->first, r->first + r->ops);
  uint32_t ops = m->ops.count, uses = m->uses.count, counted = m->counted.count;
  walk(m, so_far, r->first + r->ops, r->first + 2 * r->ops);
  uint32_t turn_ops = m->ops.count - ops, turn_uses = m->uses.count - uses, left = r->turns - 2;
  repeat_counted(m, counted, left);
  bool listed = false, balanced = are_balanced(m, ops);
  for (m->later_turns = left; !listed && m->later_turns > 0; m->later_turns--) {
    listed = !repeat_turn(m, ops, uses, taken) && balanced;
    ops += turn_ops;
    uses += turn_uses;
  }
  m->turn = ops;
  m->turn_end = m->ops.count;
  for (uint32_t s = 0; s < STREAMS; s++)
    so_far->last[s] = op_later(r, so_far->last[s], left);
  so_far->last_back = op_later(r, so_far->last_back, left);
}

/* After the rows' ops, which begin with `bytes`. Raises the peak. */
static int64_t requested_after(memory_ops *m, memory_stretch rows, int64_t bytes)
{
  int64_t peak_bytes = m->requested_peak_bytes;
  for (const memory_op *o = rows.from; o < rows.end; o++) {
    if (o->kind == MEMORY_TAKE) bytes += o->bytes;
    if (o->kind == MEMORY_RETURN) bytes -= o->bytes;
    peak_bytes = max_i64(peak_bytes, bytes);
  }
  m->requested_peak_bytes = peak_bytes;
  assert(bytes >= 0);
  return bytes;
}

/* Of the later turns the first will do: each leaves as much as it has found. */
static void find_requested_peak(memory_ops *m)
{
  int64_t bytes = 0;
  for (uint32_t i = 0; i < m->plan->residents; i++) {
    const plan_buffer *b = &m->plan->buffers.items[i];
    if (b->stream != STREAM_HOST) bytes += memory_op_of(b, i, 0, MEMORY_TAKE).bytes;
  }
  m->requested_peak_bytes = bytes;
  bytes = requested_after(m, memory_stretch_of(m, 0), bytes);
  if (m->later_turns > 0) bytes = requested_after(m, memory_stretch_of(m, 1), bytes);
  requested_after(m, memory_stretch_of(m, m->later_turns + 1), bytes);
}

memory_ops memory_ops_new(const rank_plan *p)
{
  memory_ops m = { .plan = p };
  issued so_far = { .last_back = MEMORY_NO_OP };
  for (uint32_t s = 0; s < STREAMS; s++)
    so_far.last[s] = MEMORY_NO_OP;
  ARRAY_RESERVE(&m.ops, 2 * p->buffers.count);
  uint32_t walked = 0;
  if (p->repeat.turns > 2) {
    walk(&m, &so_far, 0, p->repeat.first);
    walk_turns(&m, &so_far);
    walked = repeat_end(&p->repeat);
  }
  walk(&m, &so_far, walked, p->ops.count);
  find_requested_peak(&m);
  return m;
}

void memory_ops_release(memory_ops *m)
{
  ARRAY_FREE(&m->ops);
  ARRAY_FREE(&m->uses);
  ARRAY_FREE(&m->counted);
}
