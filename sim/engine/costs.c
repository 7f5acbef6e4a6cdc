#include "sim/engine/costs.h"

#include <assert.h>
#include <inttypes.h>

#include "sim/base/array.h"
#include "sim/base/memory.h"
#include "sim/base/units.h"
#include "sim/machine/call_time.h"
#include "sim/machine/host_work.h"
#include "sim/machine/roofline.h"
#include "sim/memory/pinned_pool.h"
#include "sim/plan/repeats.h"

/* ---- sizes ---------------------------------------------------------------------------------- */

/* A copy's progress is counted in bytes times PS_PER_US; the allocator refuses more than 1 PiB. */
#define COPY_LIMIT_BYTES   (INT64_MAX / PS_PER_US)
#define DEVICE_LIMIT_BYTES (INT64_C(1) << 50)

/* A rank's total bytes of buffers, and the bytes of each pool key's buffers, 0: none yet. */
typedef struct counted_sizes {
  int64_t sum_bytes;
  struct {
    int64_t *items;
    uint32_t count, capacity;
  } key_bytes;
} counted_sizes;

/* Why the buffer's pool key is wrong, NULL: it is right. */
static const char *wrong_key(counted_sizes *c, const plan_buffer *b)
{
  assert(b->host_key != 0 && b->bytes > 0);
  while (c->key_bytes.count <= b->host_key)
    *ARRAY_PUSH(&c->key_bytes) = 0;
  int64_t *bytes = &c->key_bytes.items[b->host_key];
  if (*bytes == 0) *bytes = b->bytes;
  return *bytes == b->bytes ? NULL : "another buffer of its pool key has another size";
}

static inline const char *wrong_size(counted_sizes *c, const plan_buffer *b)
{
  bool on_device = b->stream != STREAM_HOST;
  assert(b->bytes >= 0 && c->sum_bytes >= 0 && c->sum_bytes <= CAP);
  if (b->bytes > (on_device ? DEVICE_LIMIT_BYTES : COPY_LIMIT_BYTES))
    return "that is too large to simulate";
  c->sum_bytes += b->bytes;
  if (c->sum_bytes > CAP) return "with those before it, that is too large to simulate";
  if (on_device || b->purpose != CLASS_PINNED_HOST) return NULL;
  if (b->bytes == 0) return "a buffer without bytes cannot be page-locked";
  return b->host_key != 0 ? wrong_key(c, b) : NULL;
}

static const char *count_buffers(counted_sizes *c, const rank_plan *p, uint32_t *next, uint32_t end)
{
  const char *wrong = NULL;
  while (*next < end && wrong == NULL)
    wrong = wrong_size(c, &p->buffers.items[(*next)++]);
  return wrong;
}

/* Turns take buffers of the same sizes: after the second one, only the sum can be wrong. `before_bytes`: the
 * sum before that turn. Returns how many buffers need not be looked at. */
static uint32_t skip_turns_of(counted_sizes *c, const rank_plan *p, int64_t before_bytes)
{
  uint32_t turns = p->repeat.turns - 2;
  int64_t skipped_bytes = capped_mul(c->sum_bytes - before_bytes, turns);
  if (skipped_bytes > CAP - c->sum_bytes) return 0;
  c->sum_bytes += skipped_bytes;
  return turns * p->repeat.buffers;
}

static bool count_rank(const rank_plan *p, uint32_t rank, diag *d)
{
  counted_sizes sizes = { 0 };
  const char *wrong = NULL;
  uint32_t count = 0;
  if (p->repeat.turns > 2) {
    uint32_t second = buffers_before(p, p->repeat.first + p->repeat.ops);
    wrong = count_buffers(&sizes, p, &count, second);
    int64_t before_bytes = sizes.sum_bytes;
    if (wrong == NULL) wrong = count_buffers(&sizes, p, &count, second + p->repeat.buffers);
    if (wrong == NULL) count += skip_turns_of(&sizes, p, before_bytes);
  }
  if (wrong == NULL) wrong = count_buffers(&sizes, p, &count, p->buffers.count);
  ARRAY_FREE(&sizes.key_bytes);
  assert(wrong != NULL || (count == p->buffers.count && sizes.sum_bytes <= CAP));
  return wrong == NULL ||
         diag_error(d, (source_pos){ 0 }, "rank %" PRIu32 ", %%%" PRIu32 ": %" PRId64 " bytes; %s",
                    rank, count - 1, p->buffers.items[count - 1].bytes, wrong);
}

bool sizes_are_countable(const plan *p, diag *d)
{
  assert(p->rank_count > 0);
  bool countable = true;
  for (uint32_t r = 0; countable && r < p->rank_count; r++)
    countable = count_rank(&p->ranks[r], r, d);
  return countable;
}

/* ---- calls and messages --------------------------------------------------------------------- */

static call_cost cost_of(const machine *m, const plan_call *c)
{
  call_time time = call_time_of(m, c);
  assert(time.ps >= 0 && time.slowdown_permille >= 0);
  call_cost cost = { .ps = min_i64(time.ps, CAP),
                     .power_permille = time.slowdown_permille,
                     .is_collective = c->is_collective,
                     .energy_nj = call_energy_nj(m, c),
                     .host_ps = host_call_ns(m, c) * PS_PER_NS };
  assert(cost.energy_nj >= 0 && cost.host_ps >= 0);
  if (c->is_collective || call_is_on_host(c)) {
    cost.joined = call_is_joined(m, c);
    cost.collective_permille = cost.joined ? m->nvlink.nccl_slowdown_permille : 0;
    return cost;
  }
  bool memory = call_is_memory_bound(c);
  cost.collective_permille = memory ? m->nvlink.memory_slowdown_nccl_permille
                             : call_slowed_kind(c) == SLOWED_ATTENTION
                                 ? m->nvlink.attention_slowdown_nccl_permille
                                 : m->nvlink.gemm_slowdown_nccl_permille;
  cost.d2h_permille =
      memory ? m->link.memory_slowdown_d2h_permille : m->link.gemm_slowdown_d2h_permille;
  cost.h2d_permille =
      memory ? m->link.memory_slowdown_h2d_permille : m->link.gemm_slowdown_h2d_permille;
  assert(cost.d2h_permille >= 0 && cost.h2d_permille >= 0 && "a copy makes no kernel faster");
  return cost;
}

const call_cost *call_costs(const plan *p, const machine *m, arena *a)
{
  call_cost *costs = ARENA_ARRAY(a, call_cost, p->calls.count);
  for (uint32_t i = 0; i < p->calls.count; i++)
    costs[i] = cost_of(m, &p->calls.items[i]);
  return costs;
}

int64_t message_ps(const machine *m, const rank_place *places, const plan_message *message)
{
  assert(message->from_rank != message->to_rank && message->bytes >= 0);
  bool joined = places[message->from_rank].domain == places[message->to_rank].domain;
  return transfer_ps(m, message->bytes, joined);
}

/* ---- page-locking --------------------------------------------------------------------------- */

typedef struct time_list {
  int64_t *items;
  uint32_t count, capacity;
} time_list;

static bool is_first_iteration(const rank_plan *p)
{
  return p->ops.count > 0 && p->ops.items[0].kind == OP_MARK &&
         p->marks.items[p->ops.items[0].arg].kind == MARK_SETUP;
}

static pinned_buffer take(pinned_pool *pool, const plan_buffer *b)
{
  assert(b->purpose == CLASS_PINNED_HOST && b->bytes > 0);
  return b->host_key != 0 ? pinned_pool_take(pool, b->host_key, b->bytes)
                          : pinned_alloc(pool, b->bytes);
}

static void give(pinned_pool *pool, const plan_buffer *b, uint32_t handle)
{
  assert(b->purpose == CLASS_PINNED_HOST);
  if (b->host_key != 0)
    pinned_pool_give(pool, handle);
  else
    pinned_free(pool, handle);
}

/* Page-locking along the rank. */
typedef struct lock_walk {
  const rank_plan *plan;
  const machine *machine;
  pinned_pool *pool;
  uint32_t *handles; /* by buffer: in the pool */
  time_list costs;
} lock_walk;

/* `b`: the op's buffer, or the one in its place in another turn. */
static void pass_op(lock_walk *w, const plan_op *o, const plan_buffer *b)
{
  bool pinned = b->purpose == CLASS_PINNED_HOST;
  if (o->kind == OP_HOST_FREE) {
    if (pinned) give(w->pool, b, w->handles[o->arg]);
    return;
  }
  int64_t locked_bytes = 0;
  if (pinned) {
    pinned_buffer taken = take(w->pool, b);
    w->handles[o->arg] = taken.handle;
    locked_bytes = taken.locked_bytes;
  }
  *ARRAY_PUSH(&w->costs) =
      muldiv_i64(locked_bytes, w->machine->issue.pinned_alloc_ns_per_gib * PS_PER_NS, GIB);
}

static bool is_of_host_memory(const plan_op *o)
{
  return o->kind == OP_HOST_ALLOC || o->kind == OP_HOST_FREE;
}

static void pass_ops(lock_walk *w, uint32_t begin, uint32_t end)
{
  for (uint32_t i = begin; i < end; i++) {
    const plan_op *o = &w->plan->ops.items[i];
    if (is_of_host_memory(o)) pass_op(w, o, &w->plan->buffers.items[o->arg]);
  }
}

/* Few ops of a turn are of host memory, at the same places in each. Buffers in one place are equal, and those
 * of the first turn are in the CPU's caches. */
static void pass_turns(lock_walk *w)
{
  const plan_repeat *r = &w->plan->repeat;
  id_array places = { 0 };
  for (uint32_t i = r->first; i < r->first + r->ops; i++)
    if (is_of_host_memory(&w->plan->ops.items[i])) *ARRAY_PUSH(&places) = i;
  for (uint32_t turn = 0; turn < r->turns; turn++)
    for (uint32_t k = 0; k < places.count; k++) {
      const plan_op *of_first = &w->plan->ops.items[places.items[k]];
      pass_op(w, of_first + turn * r->ops, &w->plan->buffers.items[of_first->arg]);
    }
  ARRAY_FREE(&places);
}

const int64_t *page_lock_costs(const rank_plan *p, const machine *m, arena *a)
{
  if (!is_first_iteration(p)) return NULL;
  lock_walk w = { .plan = p, .machine = m, .pool = pinned_pool_new(NULL, NULL) };
  w.handles = memory_zeroed(p->buffers.count, sizeof *w.handles);
  pass_ops(&w, 0, p->repeat.first);
  if (p->repeat.turns > 0) pass_turns(&w);
  pass_ops(&w, repeat_end(&p->repeat), p->ops.count);
  int64_t *costs = w.costs.count == 0 ? NULL : ARENA_ARRAY(a, int64_t, w.costs.count);
  for (uint32_t i = 0; i < w.costs.count; i++)
    costs[i] = w.costs.items[i];
  ARRAY_FREE(&w.costs);
  memory_return(w.handles);
  pinned_pool_delete(w.pool);
  return costs;
}
