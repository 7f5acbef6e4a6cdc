/*
 * Races on buffers within a step: a walk over a rank's ops in program order that records, for each
 * buffer, the last op of each stream that touched it. Later ops of a stream imply the earlier ones,
 * so that is enough.
 */
#include <assert.h>
#include <string.h>

#include "sim/plan/repeats.h"
#include "sim/verify/buffer_walk.h"

static void report(rank_walk *w, finding_kind kind, uint32_t first, uint32_t second,
                   uint32_t buffer, uint32_t reused)
{
  report_use(w, kind, first, second, buffer, reused, false);
}

/* Whether it is known that an op of stream s, numbered from 1, is done. */
static bool knows_use(const progress *p, uint32_t s, uint32_t use)
{
  return use == 0 || p->done_to[s] >= done_with(use - 1);
}

/* Whether an earlier op of stream s, numbered from 1, is certainly done when `op` begins. The earlier op is
 * far from this one in memory, so it is looked at only where both may be of one exchange. */
static inline bool is_done(const rank_walk *w, uint32_t s, uint32_t earlier, uint32_t op)
{
  const plan_op *o = &w->plan->ops.items[op];
  assert(earlier <= op && s < DEVICE_STREAMS);
  if (earlier == 0) return true;
  if (o->stream != s) return knows_use(&w->known->own, s, earlier);
  return !op_is_message((op_kind)o->kind) || !is_same_exchange(w->plan, earlier - 1, op);
}

/* Sets what the op at hand knows. */
static void find_known(rank_walk *w, uint32_t stream, uint32_t op)
{
  const lesson_list *l = &w->order->lessons[stream];
  uint32_t at = w->lesson[stream];
  while (at + 1 < l->count && l->items[at + 1].from <= op)
    at++;
  w->lesson[stream] = at;
  w->known = &l->items[at].knows;
}

/* The buffer that the op at hand calls so, NO_BUFFER: unknown. */
static uint32_t name_here(rank_walk *w, uint32_t op, uint32_t buffer)
{
  uint32_t name = gap_name(w->gap, &w->gap->buffers, op, buffer);
  w->unknown |= name == NO_BUFFER;
  return name;
}

/* ---- pools --------------------------------------------------------------------------------- */

static uint32_t new_cell(rank_walk *w, uint32_t buffer)
{
  uint32_t parts = part_new(&w->parts);
  *ARRAY_PUSH(&w->cells) = (cell){ .buffer = buffer, .parts = parts, .found = parts };
  return w->cells.count - 1;
}

/* Takes the buffer that was returned first, done or not; PyTorch's allocator (no key) waits for
 * copies. */
static void take_host_buffer(rank_walk *w, uint32_t buffer)
{
  host_queue *q = &w->pools[w->plan->buffers.items[buffer].host_key];
  bool pooled = w->plan->buffers.items[buffer].host_key != 0;
  w->taken_as[buffer] = q->taken++;
  if (!pooled || q->first == q->count) {
    w->cell_of[buffer] = new_cell(w, buffer);
    w->cells.items[w->cell_of[buffer]].lasting = pooled;
    return;
  }
  assert(q->first < q->count);
  w->cell_of[buffer] = q->items[q->first++];
  cell *c = &w->cells.items[w->cell_of[buffer]];
  c->buffer = buffer;
  c->freed = c->written = false;
  c->lent = c->lasting = true;
  part *all = &w->parts.items[c->parts];
  assert(all->next == NO_PART && "ops see host buffers whole");
  all->touched = 0;
  all->written = false;
  all->write = 0;
}

/* Forgets what has touched the part, now all of its memory. */
static void clear_part(part *p)
{
  for (uint32_t left = p->users; left != 0; left &= left - 1)
    p->last[__builtin_ctz(left)] = 0;
  p->bytes = whole_memory;
  p->next = NO_PART;
  p->users = p->write = 0;
  p->write_stream = 0;
  p->touched = 0;
  p->written = false;
}

/* Blocks live shortly: the cell of a freed one is taken again, so that the few in use stay in the CPU's
 * caches. The caller sets what it inherits. */
static uint32_t device_cell(rank_walk *w, uint32_t buffer)
{
  if (w->unused.count == 0) return new_cell(w, buffer);
  uint32_t of = w->unused.items[--w->unused.count];
  cell *c = &w->cells.items[of];
  assert(c->freed && !c->lasting);
  clear_part(&w->parts.items[c->parts]);
  c->found = c->parts;
  c->buffer = buffer;
  c->freed = c->written = c->lent = c->unknown = false;
  return of;
}

static void take_block(rank_walk *w, uint32_t buffer)
{
  w->cell_of[buffer] = device_cell(w, buffer);
  w->cells.items[w->cell_of[buffer]].inherited = w->returned[w->plan->buffers.items[buffer].stream];
}

/* Reports a finding about a stream that a FREE names. */
static void report_mark(rank_walk *w, finding_kind kind, uint32_t stream, uint32_t use,
                        uint32_t index)
{
  if (w->v->errors_alone) return;
  report(w, kind, use, index, w->plan->ops.items[index].arg, NO_BUFFER);
  w->v->findings.items[w->v->findings.count - 1].stream = (uint8_t)stream;
}

/* The block is free for the pool's next request, after the named streams are done with it. */
static void give_block(rank_walk *w, uint32_t buffer, const plan_op *op, uint32_t index)
{
  if (buffer == NO_BUFFER) return;
  cell *c = &w->cells.items[w->cell_of[buffer]];
  assert(!c->freed && c->buffer == buffer);
  former_uses *returned = &w->returned[op->stream];
  const part *all = &w->parts.items[c->parts];
  uses u;
  const uint32_t *last = all->last;
  uint32_t users = all->users;
  if (all->next != NO_PART) {
    u = cell_uses(w, c, whole_memory);
    last = u.last;
    users = w->order->streams;
  }
  for (uint32_t left = users | op->operands; left != 0; left &= left - 1) {
    uint32_t s = (uint32_t)__builtin_ctz(left);
    bool named = op->operands >> s & 1;
    assert(s < DEVICE_STREAMS);
    if (named && last[s] == 0) report_mark(w, FINDING_USELESS_MARK, s, 0, index);
    if (named && !knows_use(&w->order->end, s, last[s]))
      report_mark(w, FINDING_NEVER_REUSABLE, s, last[s], index);
    if (named || last[s] <= returned->on[s].op) continue;
    returned->on[s] = (former_use){ last[s], buffer };
    returned->users |= UINT32_C(1) << s;
  }
  c->freed = true;
  if (!c->lasting) *ARRAY_PUSH(&w->unused) = w->cell_of[buffer];
}

/* A freed file is gone at once, so the host must know that no op uses it. Memory that is not
 * page-locked is safe: the driver has copied it when a call returns, and threads that write files
 * keep a reference. */
static void check_gone(rank_walk *w, uint32_t buffer, uint32_t index)
{
  uses u = cell_uses(w, &w->cells.items[w->cell_of[buffer]], whole_memory);
  find_known(w, STREAM_HOST, index);
  for (uint32_t s = 0; s < DEVICE_STREAMS; s++)
    if (!knows_use(&w->known->own, s, u.last[s]))
      report(w, FINDING_FREED_IN_USE, u.last[s], index, buffer, NO_BUFFER);
}

static void give_host_buffer(rank_walk *w, uint32_t buffer, uint32_t index)
{
  if (buffer == NO_BUFFER) return;
  const plan_buffer *b = &w->plan->buffers.items[buffer];
  assert(!w->cells.items[w->cell_of[buffer]].freed && "freed once");
  w->cells.items[w->cell_of[buffer]].freed = true;
  if (class_side((buffer_class)b->purpose) == ON_DISK) check_gone(w, buffer, index);
  if (b->host_key != 0) *ARRAY_PUSH(&w->pools[b->host_key]) = w->cell_of[buffer];
}

/* ---- uses ---------------------------------------------------------------------------------- */

/* The uses by the block's former owners must be done, unless the free named their streams. */
static void check_inherited(rank_walk *w, uint32_t buffer, uint32_t op)
{
  const cell *c = &w->cells.items[w->cell_of[buffer]];
  const former_uses *former = &c->inherited;
  w->reported |= c->unknown;
  for (uint32_t left = former->users; left != 0; left &= left - 1) {
    uint32_t s = (uint32_t)__builtin_ctz(left);
    const former_use *use = &former->on[s];
    if (!is_done(w, s, use->op, op))
      report(w, FINDING_BLOCK_REUSED, use->op, op, use->buffer, buffer);
  }
}

/* A first use by a stream, until the part is written: whatever comes later comes after that. A use
 * of neighbouring parts is one. */
static void note_early(rank_walk *w, uint32_t buffer, part *used, uint32_t op, bool writes)
{
  uint16_t stream = (uint16_t)(1u << w->plan->ops.items[op].stream);
  if (used->written || (!writes && (used->touched & stream) != 0)) return;
  early_use *last = w->early.count == 0 ? NULL : &w->early.items[w->early.count - 1];
  if (last != NULL && last->buffer == buffer && last->op == op && last->writes == writes &&
      last->bytes.end == used->bytes.begin)
    last->bytes.end = used->bytes.end;
  else
    *ARRAY_PUSH(&w->early) = (early_use){ buffer, op, writes, used->bytes };
  used->touched |= stream;
  used->written |= writes;
}

static void touch(rank_walk *w, const cell *c, part *used, uint32_t op, bool writes)
{
  uint8_t stream = w->plan->ops.items[op].stream;
  if (c->lasting) note_early(w, c->buffer, used, op, writes);
  used->last[stream] = op + 1;
  used->users |= UINT32_C(1) << stream;
  if (!writes) return;
  used->write = op + 1;
  used->write_stream = stream;
}

/* The parser and the compile walk both ensure that no freed buffer is used. */
static cell *living_cell(const rank_walk *w, uint32_t buffer)
{
  cell *c = &w->cells.items[w->cell_of[buffer]];
  assert(!c->freed && c->buffer == buffer);
  return c;
}

/* The first of the parts that make up the range, NO_PART: it is empty. Ops come to the parts of a large
 * buffer one after the other, so the search goes on where the last one ended. */
static uint32_t find_parts(rank_walk *w, cell *c, byte_range bytes)
{
  if (is_whole(bytes)) return c->parts;
  bool later = w->parts.items[c->found].bytes.begin <= bytes.begin;
  uint32_t first = parts_cut_out(&w->parts, later ? c->found : c->parts, bytes);
  if (first != NO_PART) c->found = first;
  return first;
}

static void report_read(rank_walk *w, const cell *c, byte_range bytes, uint32_t op)
{
  uses u = cell_uses(w, c, bytes);
  if (!c->written && !has_contents(w, c->buffer))
    report(w, FINDING_NEVER_WRITTEN, 0, op, c->buffer, NO_BUFFER);
  for (uint32_t s = 0; s < DEVICE_STREAMS; s++)
    if (!is_done(w, s, u.writes[s], op))
      report(w, FINDING_READ_BEFORE_WRITE, u.writes[s], op, c->buffer, NO_BUFFER);
}

static void read_buffer(rank_walk *w, uint32_t buffer, byte_range bytes, uint32_t op)
{
  cell *c = living_cell(w, buffer);
  bool right = c->written || has_contents(w, buffer);
  for (uint32_t i = find_parts(w, c, bytes); i != NO_PART; i = next_part(&w->parts, i, bytes)) {
    part *from = &w->parts.items[i];
    right = right && is_done(w, from->write_stream, from->write, op);
    touch(w, c, from, op, false);
  }
  if (!right) report_read(w, c, bytes, op);
}

/* A write that does not wait for a read. */
static void report_overwrite(rank_walk *w, uint32_t use, uint32_t op, uint32_t buffer,
                             byte_range bytes)
{
  uint32_t harmful = harmful_use(w, buffer, bytes, use);
  if (is_done(w, w->plan->ops.items[use - 1].stream, harmful, op))
    report(w, FINDING_OVERWRITTEN_COPY, use, op, buffer, buffer);
  else
    report(w, FINDING_WRITE_BEFORE_READ, harmful, op, buffer, buffer);
}

/* Whether everything that the step before has issued is over when the op begins. */
static bool knows_step_before(const rank_walk *w, uint32_t op)
{
  for (int s = 0; s < DEVICE_STREAMS; s++)
    if (s != w->plan->ops.items[op].stream && w->known->own.done_to[s] < STREAM_BEGUN &&
        w->order->tail[s].done_to[s] > STREAM_BEGUN)
      return false;
  return true;
}

static void note_first_write(rank_walk *w, uint32_t buffer, uint32_t op)
{
  uint8_t stream = w->plan->ops.items[op].stream;
  if (w->settled[stream]) return;
  w->settled[stream] = knows_step_before(w, op);
  if (!w->settled[stream])
    *ARRAY_PUSH(&w->first_writes) = (early_use){ buffer, op, true, whole_memory };
}

static void report_write(rank_walk *w, const cell *c, byte_range bytes, uint32_t op)
{
  uses u = cell_uses(w, c, bytes);
  for (uint32_t s = 0; s < DEVICE_STREAMS; s++) {
    uint32_t use = u.last[s];
    if (use == op + 1 || is_done(w, s, use, op)) continue;
    if (c->lent)
      report(w, FINDING_HOST_BUFFER_REUSED, use, op, c->buffer, c->buffer);
    else if (use == u.writes[s])
      report(w, FINDING_WRITE_BEFORE_WRITE, use, op, c->buffer, c->buffer);
    else
      report_overwrite(w, use, op, c->buffer, bytes);
  }
}

/* Whether everything that has touched the part is done; the op may have read it. */
static bool may_be_written(const rank_walk *w, const part *to, uint32_t op)
{
  const progress *known = &w->known->own;
  uint32_t own = w->plan->ops.items[op].stream;
  assert((w->order->streams >> own & 1) && (to->users & ~w->order->streams) == 0);
  for (uint32_t left = to->users & ~(UINT32_C(1) << own); left != 0; left &= left - 1) {
    uint32_t s = (uint32_t)__builtin_ctz(left);
    if (!knows_use(known, s, to->last[s])) return false;
  }
  return to->last[own] == op + 1 || is_done(w, own, to->last[own], op);
}

static void write_buffer(rank_walk *w, uint32_t buffer, byte_range bytes, uint32_t op)
{
  cell *c = living_cell(w, buffer);
  bool fresh = false, right = true;
  uint32_t first = find_parts(w, c, bytes);
  for (uint32_t i = first; i != NO_PART; i = next_part(&w->parts, i, bytes)) {
    const part *to = &w->parts.items[i];
    fresh |= to->write == 0;
    right = right && may_be_written(w, to, op);
  }
  if (fresh && is_on_device(w, buffer) && buffer >= w->plan->residents) {
    check_inherited(w, buffer, op);
    note_first_write(w, buffer, op);
  }
  if (!right) report_write(w, c, bytes, op);
  c->lent = false;
  c->written = true;
  for (uint32_t i = first; i != NO_PART; i = next_part(&w->parts, i, bytes))
    touch(w, c, &w->parts.items[i], op, true);
}

/* ---- the walk ------------------------------------------------------------------------------ */

static void use_operands(rank_walk *w, const plan_op *op, uint32_t index)
{
  find_known(w, op->stream, index);
  const operand_array *operands = &w->plan->operands; /* empty where no op has one */
  for (uint32_t i = 0; i < (uint32_t)op->reads + op->writes; i++) {
    uint32_t buffer = name_here(w, index, operands->items[op->operands + i]);
    if (buffer == NO_BUFFER) continue;
    if (i < op->reads)
      read_buffer(w, buffer, operand_bytes(w, op, i), index);
    else
      write_buffer(w, buffer, operand_bytes(w, op, i), index);
  }
}

static void walk_ops(rank_walk *w, uint32_t begin, uint32_t end)
{
  for (uint32_t i = begin; i < end; i++) {
    const plan_op *op = &w->plan->ops.items[i];
    prefetch_ops(w->plan, i);
    switch ((op_kind)op->kind) {
    case OP_ALLOC: take_block(w, op->arg); break;
    case OP_FREE: give_block(w, name_here(w, i, op->arg), op, i); break;
    case OP_HOST_ALLOC: take_host_buffer(w, op->arg); break;
    case OP_HOST_FREE: give_host_buffer(w, name_here(w, i, op->arg), i); break;
    case OP_KERNEL:
    case OP_COLLECTIVE:
    case OP_D2H:
    case OP_H2D:
    case OP_DISK_WRITE:
    case OP_DISK_READ:
    case OP_SEND:
    case OP_RECV: use_operands(w, op, i); break;
    case OP_MARK:
    case OP_RECORD:
    case OP_WAIT:
    case OP_HOST_WAIT:
    case OP_HOST_READ:
    case OP_HOST_WORK:
    case OP_GRAPH_BEGIN:
    case OP_GRAPH_END: break;
    case OP_KINDS: assert(0 && "no such kind of op");
    }
  }
}

static uint32_t highest_key(const rank_plan *p, uint32_t begin, uint32_t end)
{
  uint32_t most = 0;
  for (uint32_t b = begin; b < end; b++)
    if (p->buffers.items[b].host_key > most) most = p->buffers.items[b].host_key;
  return most;
}

/* Buffers of the turns left out have the keys of earlier ones. */
static uint32_t key_count(const rank_plan *p, const op_gap *gap)
{
  uint32_t early = highest_key(p, 0, gap->buffers.before);
  uint32_t late = highest_key(p, gap->buffers.after, p->buffers.count);
  return (early > late ? early : late) + 1;
}

/* A page-locked resident with a key is a spare of its pool. So are the buffers that the previous
 * iteration left there: all of them are free again, in the order of their creation. */
static void begin_with_spares(rank_walk *w, const uint32_t *left, uint32_t keys)
{
  for (uint32_t k = 1; k < keys; k++)
    for (uint32_t i = 0; i < left[k]; i++)
      *ARRAY_PUSH(&w->pools[k]) = new_cell(w, NO_BUFFER);
}

static void begin_with_residents(rank_walk *w)
{
  for (uint32_t b = 0; b < w->plan->residents; b++) {
    w->cell_of[b] = new_cell(w, b);
    w->cells.items[w->cell_of[b]].lasting = true;
    uint32_t key = w->plan->buffers.items[b].host_key;
    if (key != 0) *ARRAY_PUSH(&w->pools[key]) = w->cell_of[b];
  }
}

/* By key: buffers in use, and the most at once. */
typedef struct pools_use {
  uint32_t keys, *now, *most;
} pools_use;

static void use_pools(pools_use *u, const rank_plan *p, uint32_t begin, uint32_t end)
{
  for (uint32_t i = begin; i < end; i++) {
    const plan_op *o = &p->ops.items[i];
    if (o->kind != OP_HOST_ALLOC && o->kind != OP_HOST_FREE) continue;
    uint32_t key = p->buffers.items[o->arg].host_key;
    if (key >= u->keys) continue;
    if (o->kind == OP_HOST_FREE)
      u->now[key]--;
    else if (++u->now[key] > u->most[key])
      u->most[key] = u->now[key];
  }
}

/* The number of buffers that each pool has created by the end of the iteration: the most in use at
 * once. Turns that begin with equally many in use need equally many. */
static uint32_t *pools_left_by(const rank_plan *p, uint32_t keys, arena *a)
{
  pools_use u = { keys, ARENA_ARRAY(a, uint32_t, keys), ARENA_ARRAY(a, uint32_t, keys) };
  uint32_t *before = ARENA_ARRAY(a, uint32_t, keys);
  if (p == NULL) return u.most;
  uint32_t at = 0;
  if (p->repeat.turns > 2) {
    uint32_t turn = p->repeat.first + p->repeat.ops;
    use_pools(&u, p, 0, turn);
    memcpy(before, u.now, keys * sizeof *before);
    use_pools(&u, p, turn, at = turn + p->repeat.ops);
    if (memcmp(before, u.now, keys * sizeof *before) == 0) at = repeat_end(&p->repeat);
  }
  use_pools(&u, p, at, p->ops.count);
  return u.most;
}

static rank_walk walk_new(verification *v, uint32_t rank, const plan *before, arena *a)
{
  const rank_plan *p = &v->plan->ranks[rank];
  const op_gap *gap = &v->gaps[rank];
  uint32_t keys = key_count(p, gap);
  rank_walk w = {
    .v = v, .plan = p, .gap = gap, .order = &v->order.ranks[rank], .rank = rank, .keys = keys
  };
  w.taken_as = ARENA_UNSET_ARRAY(a, uint32_t, p->buffers.count);
  w.cell_of = ARENA_UNSET_ARRAY(a, uint32_t, p->buffers.count);
  w.returned = ARENA_ARRAY(a, former_uses, DEVICE_STREAMS);
  w.pools = ARENA_ARRAY(a, host_queue, keys);
  begin_with_spares(&w, pools_left_by(before == NULL ? NULL : &before->ranks[rank], keys, a), keys);
  begin_with_residents(&w);
  return w;
}

static void end_step(rank_walk *w, arena *a)
{
  if (!is_first_step(w->plan) && !w->v->stuck) find_races_with_next_step(w, a);
}

static void walk_release(rank_walk *w)
{
  for (uint32_t k = 0; k < w->keys; k++)
    ARRAY_FREE(&w->pools[k]);
  ARRAY_FREE(&w->cells);
  ARRAY_FREE(&w->unused);
  ARRAY_FREE(&w->parts);
  ARRAY_FREE(&w->early);
  ARRAY_FREE(&w->first_writes);
}

void find_buffer_races(verification *v, uint32_t rank, const plan *before, arena *a)
{
  rank_walk w = walk_new(v, rank, before, a);
  walk_ops(&w, 0, w.plan->ops.count);
  end_step(&w, a);
  walk_release(&w);
}

/* ---- shortened plans ------------------------------------------------------------------------ */

/* Whether what this step leaves in a pool goes to buffers that the next one takes before the turns left
 * out. */
static bool leaves_to_early_ones(const rank_walk *w, const walk_state *before,
                                 const walk_state *after)
{
  for (uint32_t k = 1; k < w->keys; k++)
    if (after->taken[k] != before->taken[k] &&
        before->taken[k] < w->pools[k].count - w->pools[k].first)
      return false;
  return true;
}

bool has_no_buffer_races(verification *v, uint32_t rank, const plan *before, rank_cut *c, arena *a)
{
  rank_walk w = walk_new(v, rank, before, a);
  walk_ops(&w, 0, turn_before(c));
  walk_state earlier = walk_state_of(&w, c->buffers - c->repeat->buffers, a);
  walk_ops(&w, turn_before(c), c->at);
  walk_state at_cut = walk_state_of(&w, c->buffers, a);
  bool good = !w.reported;
  if (good) good = walk_state_moves(&earlier, &at_cut, c) && moves_are_safe(&c->moves);
  c->differs = !w.reported && !good;
  if (good) {
    op_gap gap = walk_past_later_turns(&w, c, a);
    w.gap = &gap;
    walk_ops(&w, gap.end, w.plan->ops.count);
    end_step(&w, a);
    c->differs = w.unknown;
    good = !w.unknown && !w.reported && leaves_to_early_ones(&w, &earlier, &at_cut);
  }
  walk_state_release(&earlier);
  walk_state_release(&at_cut);
  walk_release(&w);
  return good;
}
