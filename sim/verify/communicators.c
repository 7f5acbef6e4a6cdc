#include "sim/verify/communicators.h"

#include <assert.h>
#include <string.h>

/* ---- members ------------------------------------------------------------------------------- */

/* Global ranks first .. last, of one rank of the plan. */
typedef struct span {
  uint64_t first, last;
} span;

static span span_of(const plan *p, uint32_t rank)
{
  uint64_t each = p->global_ranks / p->rank_count;
  assert(rank < p->rank_count && p->global_ranks % p->rank_count == 0);
  return (span){ rank * each, rank * each + each - 1 };
}

/*
 * Groups of size n and stride t divide the global ranks into blocks of n t ranks. A block has t
 * groups: those ranks whose numbers in the block leave the same remainder by t.
 */
static uint64_t block_of(const plan_call *c, uint64_t global)
{
  return global / ((uint64_t)c->group_size * c->group_stride);
}

/* The part of a span that is in a block, as numbers in that block. */
static span part_in_block(const plan_call *c, span s, uint64_t block)
{
  uint64_t size = (uint64_t)c->group_size * c->group_stride, first = block * size;
  assert(s.last >= first && s.first <= first + size - 1);
  return (span){ s.first > first ? s.first - first : 0,
                 (s.last < first + size - 1 ? s.last : first + size - 1) - first };
}

/* Whether two parts of a block have members of the same group: equal remainders by the stride. */
static bool shares_group(span a, span b, uint64_t stride)
{
  assert(a.first <= a.last && b.first <= b.last && stride >= 1);
  uint64_t length_a = a.last - a.first, length_b = b.last - b.first;
  if (length_a >= stride - 1 || length_b >= stride - 1) return true;
  uint64_t ahead = (b.first % stride + stride - a.first % stride) % stride;
  return ahead <= length_a || stride - ahead <= length_b;
}

static bool is_peer(const plan *p, const plan_call *c, uint32_t rank, uint32_t other)
{
  span low = span_of(p, rank < other ? rank : other),
       high = span_of(p, rank < other ? other : rank);
  uint64_t block = block_of(c, high.first);
  return rank != other && block_of(c, low.last) == block &&
         shares_group(part_in_block(c, low, block), part_in_block(c, high, block), c->group_stride);
}

/* Whether a group of the rank has members beyond the plan's global ranks: then the plan does not
 * give the size of the run. */
static bool exceeds_plan(const plan *p, const plan_call *c, uint32_t rank)
{
  span s = span_of(p, rank);
  uint64_t block = block_of(c, s.last), size = (uint64_t)c->group_size * c->group_stride;
  span part = part_in_block(c, s, block);
  uint64_t highest = part.last % c->group_stride;
  if (part.last - part.first >= highest + 1) highest = c->group_stride - 1;
  return block * size + highest + size - c->group_stride >= p->global_ranks;
}

/* A group within one rank, or of one member, has no rendezvous. */
static bool is_within_ranks(const plan *p, const plan_call *c)
{
  uint64_t each = p->global_ranks / p->rank_count;
  return c->group_size <= 1 || c->group_stride == 0 ||
         each % ((uint64_t)c->group_size * c->group_stride) == 0;
}

/* ---- rosters ------------------------------------------------------------------------------- */

static bool is_same_communicator(const plan_call *a, const plan_call *b)
{
  return a->group == b->group && a->group_size == b->group_size &&
         a->group_stride == b->group_stride;
}

/* Numbers the communicators; `first_call` gets one of the calls of each. */
static void number_communicators(communicators *c, const plan *p, uint32_t *first_call)
{
  for (uint32_t i = 0; i < p->calls.count; i++) {
    const plan_call *call = &p->calls.items[i];
    c->of_call[i] = NO_COMMUNICATOR;
    if (!call->is_collective || is_within_ranks(p, call)) continue;
    uint32_t k = 0;
    while (k < c->count && !is_same_communicator(call, &p->calls.items[first_call[k]]))
      k++;
    if (k == c->count) first_call[c->count++] = i;
    c->of_call[i] = k;
  }
}

static uint32_t communicator_of(const communicators *c, const plan_op *o)
{
  return o->kind == OP_COLLECTIVE ? c->of_call[o->arg] : NO_COMMUNICATOR;
}

static void find_peers(const plan *p, const plan_call *call, uint32_t rank, roster *r, bool *unmet,
                       arena *a)
{
  r->peers = ARENA_ARRAY(a, uint32_t, p->rank_count);
  *unmet = exceeds_plan(p, call, rank);
  for (uint32_t other = 0; other < p->rank_count && !exceeds_plan(p, call, rank); other++) {
    if (!is_peer(p, call, rank, other)) continue;
    if (rank_is_present(p, other))
      r->peers[r->peer_count++] = other;
    else
      *unmet = true;
  }
}

static void call_the_roll(communicators *c, const plan *p, uint32_t rank, const op_gap *gap,
                          const uint32_t *first_call, arena *a)
{
  const op_array *ops = &p->ranks[rank].ops;
  roster *rosters = c->rosters[rank] = ARENA_ARRAY(a, roster, c->count);
  bool *unmet = ARENA_ARRAY(a, bool, c->count);
  for (uint32_t i = 0; i < ops->count; i = op_after(gap, i)) {
    uint32_t k = communicator_of(c, &ops->items[i]);
    if (k != NO_COMMUNICATOR) rosters[k].count++;
  }
  for (uint32_t k = 0; k < c->count; k++) {
    find_peers(p, &p->calls.items[first_call[k]], rank, &rosters[k], &unmet[k], a);
    rosters[k].ops = ARENA_ARRAY(a, uint32_t, rosters[k].count);
    rosters[k].count = 0;
  }
  for (uint32_t i = 0; i < ops->count; i = op_after(gap, i)) {
    uint32_t k = communicator_of(c, &ops->items[i]);
    if (k == NO_COMMUNICATOR) continue;
    rosters[k].ops[rosters[k].count++] = i;
    c->unmet[rank] += unmet[k];
  }
}

communicators communicators_of(const plan *p, const op_gap *gaps, arena *a)
{
  communicators c = { .of_call = ARENA_ARRAY(a, uint32_t, p->calls.count) };
  uint32_t *first_call = ARENA_ARRAY(a, uint32_t, p->calls.count);
  c.rosters = ARENA_ARRAY(a, roster *, p->rank_count);
  c.unmet = ARENA_ARRAY(a, uint64_t, p->rank_count);
  number_communicators(&c, p, first_call);
  for (uint32_t r = 0; c.count > 0 && r < p->rank_count; r++)
    call_the_roll(&c, p, r, &gaps[r], first_call, a);
  return c;
}

uint32_t roster_turn(const roster *r, uint32_t op)
{
  uint32_t low = 0, high = r->count;
  while (high - low > 1) {
    uint32_t middle = low + (high - low) / 2;
    if (r->ops[middle] <= op)
      low = middle;
    else
      high = middle;
  }
  assert(low < r->count && r->ops[low] == op);
  return low;
}

/* ---- order --------------------------------------------------------------------------------- */

/* The name and the place of the tensor that a collective is for: its first operand's. */
static const char *tensor_of(const plan *p, uint32_t rank, uint32_t op, arena *a)
{
  const rank_plan *r = &p->ranks[rank];
  const plan_op *o = &r->ops.items[op];
  if (o->reads + o->writes == 0) return "";
  const plan_tensor *t = &p->tensors.items[r->buffers.items[r->operands.items[o->operands]].tensor];
  const plan_site *site = &p->sites.items[t->site];
  return arena_printf(a, "%s@%d %s", t->name, site->layer, site->module);
}

static bool is_same_call(const plan *p, uint32_t rank, uint32_t op, uint32_t other, uint32_t match)
{
  const plan_call *a = &p->calls.items[p->ranks[rank].ops.items[op].arg];
  const plan_call *b = &p->calls.items[p->ranks[other].ops.items[match].arg];
  assert(a->is_collective && b->is_collective);
  return a->kind == b->kind && a->dtype == b->dtype && a->bytes == b->bytes;
}

/* Numbers the tensors of a roster by name and place. */
static uint32_t *number_tensors(const plan *p, uint32_t rank, const roster *r, intern_table *names,
                                arena *a)
{
  uint32_t *numbers = ARENA_ARRAY(a, uint32_t, r->count);
  for (uint32_t i = 0; i < r->count; i++) {
    const char *tensor = tensor_of(p, rank, r->ops[i], a);
    numbers[i] = intern(names, tensor, strlen(tensor));
  }
  return numbers;
}

/*
 * The first turn at which two ranks issue different collectives. Tied weights have different names
 * on the ranks that share them, so a tensor's name tells of a wrong order only if the other rank
 * has the same one at another turn.
 */
static bool find_wrong_turn(const plan *p, uint32_t rank, const roster *mine, uint32_t other,
                            const roster *theirs, uint32_t *turn)
{
  arena scratch = { 0 };
  intern_table names = { .memory = &scratch };
  const uint32_t *my_tensors = number_tensors(p, rank, mine, &names, &scratch);
  const uint32_t *their_tensors = number_tensors(p, other, theirs, &names, &scratch);
  bool *known = ARENA_ARRAY(&scratch, bool, mine->count + theirs->count);
  for (uint32_t i = 0; i < theirs->count; i++)
    known[their_tensors[i]] = true;
  uint32_t both = mine->count < theirs->count ? mine->count : theirs->count;
  for (*turn = 0; *turn < both; ++*turn)
    if (!is_same_call(p, rank, mine->ops[*turn], other, theirs->ops[*turn]) ||
        (my_tensors[*turn] != their_tensors[*turn] && known[my_tensors[*turn]]))
      break;
  arena_release(&scratch);
  return *turn < both;
}

bool find_mismatch(const communicators *c, const plan *p, uint32_t rank, uint32_t *op,
                   uint32_t *other_rank, uint32_t *other_op)
{
  for (uint32_t k = 0; k < c->count; k++) {
    const roster *mine = &c->rosters[rank][k];
    uint32_t next = 0, turn;
    while (next < mine->peer_count && mine->peers[next] < rank)
      next++;
    if (next == 0) continue;
    const roster *theirs = &c->rosters[mine->peers[next - 1]][k];
    if (!find_wrong_turn(p, rank, mine, mine->peers[next - 1], theirs, &turn)) continue;
    *op = mine->ops[turn];
    *other_rank = mine->peers[next - 1];
    *other_op = theirs->ops[turn];
    return true;
  }
  return false;
}
