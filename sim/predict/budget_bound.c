#include "sim/predict/budget_bound.h"

#include <assert.h>
#include <stdlib.h>

#include "sim/base/units.h"
#include "sim/compile/compile.h"
#include "sim/machine/call_time.h"
#include "sim/memory/caching_allocator.h"
#include "sim/predict/places.h"
#include "sim/predict/requested.h"

/* A kernel, and what backward still needs of what it wrote. */
typedef struct remaking {
  int64_t ps, bytes;
} remaking;

static int by_price(const void *left, const void *right)
{
  const remaking *a = left, *b = right;
  wide_uint x = (wide_uint)a->ps * (uint64_t)b->bytes, y = (wide_uint)b->ps * (uint64_t)a->bytes;
  return x != y ? (x < y ? -1 : 1) : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* What is on the device at the peak of one rank. */
typedef struct peak_state {
  const rank_plan *rank;
  const machine *machine;
  const int64_t *call_ps; /* by row of the plan's calls: its kernel at full clock */
  uint32_t peak_op;
  int64_t peak_bytes;
  bool *alive, *is_needed; /* by buffer: at the peak; after it */
  uint32_t *writer;        /* by buffer: the first kernel that writes it; op count: none */
  int64_t compute_ps;      /* all kernels of compute */
} peak_state;

static void find_peak(peak_state *x)
{
  int64_t now = requested_before_bytes(x->rank);
  x->peak_bytes = now;
  for (uint32_t i = 0; i < x->rank->ops.count; i++) {
    now += requested_change_bytes(x->rank, &x->rank->ops.items[i]);
    if (now <= x->peak_bytes) continue;
    x->peak_bytes = now;
    x->peak_op = i;
  }
}

static int64_t kernel_ps(const peak_state *x, const plan_op *o)
{
  assert(o->kind == OP_KERNEL);
  return x->call_ps[o->arg];
}

static void take_op(peak_state *x, uint32_t i)
{
  const plan_op *o = &x->rank->ops.items[i];
  if (i <= x->peak_op && o->kind == OP_ALLOC) x->alive[o->arg] = true;
  if (i <= x->peak_op && o->kind == OP_FREE) x->alive[o->arg] = false;
  if (!op_works((op_kind)o->kind)) return;
  const uint32_t *operands = &x->rank->operands.items[o->operands];
  for (uint32_t k = 0; k < o->reads; k++)
    x->is_needed[operands[k]] |= i > x->peak_op;
  if (o->kind != OP_KERNEL) return;
  for (uint32_t k = o->reads; k < (uint32_t)o->reads + o->writes; k++)
    if (x->writer[operands[k]] == x->rank->ops.count) x->writer[operands[k]] = i;
  if (o->stream == STREAM_COMPUTE) x->compute_ps += kernel_ps(x, o);
}

static const int64_t *times_of_calls(const plan *p, const machine *m, arena *a)
{
  int64_t *ps = ARENA_ARRAY(a, int64_t, p->calls.count);
  for (uint32_t i = 0; i < p->calls.count; i++)
    if (!p->calls.items[i].is_collective) ps[i] = call_time_of(m, &p->calls.items[i]).ps;
  return ps;
}

static peak_state peak_of(const rank_plan *rank, const int64_t *call_ps, const machine *m, arena *a)
{
  peak_state x = { .rank = rank, .machine = m, .call_ps = call_ps };
  uint32_t buffers = x.rank->buffers.count;
  x.alive = ARENA_ARRAY(a, bool, buffers);
  x.is_needed = ARENA_ARRAY(a, bool, buffers);
  x.writer = ARENA_ARRAY(a, uint32_t, buffers);
  for (uint32_t b = 0; b < buffers; b++)
    x.writer[b] = x.rank->ops.count;
  find_peak(&x);
  for (uint32_t i = 0; i < x.rank->ops.count; i++)
    take_op(&x, i);
  return x;
}

/* What kernels of compute have written and can make again goes to `all`, by op; the rest, which can only be
 * copied, is returned. `over_bytes` loses what nothing needs any more, and what blocks have besides
 * their tensors, which no link moves. */
static int64_t find_saved(const peak_state *x, int64_t *all, int64_t *over_bytes)
{
  int64_t copied_alone_bytes = 0;
  for (uint32_t b = x->rank->residents; b < x->rank->buffers.count; b++) {
    const plan_buffer *buffer = &x->rank->buffers.items[b];
    if (!x->alive[b] || buffer->purpose != CLASS_SAVED) continue;
    uint32_t writer = x->writer[b];
    *over_bytes -= round_up(buffer->bytes, ALLOCATOR_ROUNDING_BYTES) - buffer->bytes;
    if (!x->is_needed[b])
      *over_bytes -= buffer->bytes;
    else if (writer < x->rank->ops.count && x->rank->ops.items[writer].stream == STREAM_COMPUTE)
      all[writer] += buffer->bytes;
    else
      copied_alone_bytes += buffer->bytes;
  }
  return copied_alone_bytes;
}

/* Both directions, at the rate of one GPU alone. */
static int64_t copied_ps(const machine *m, int64_t bytes)
{
  assert(bytes >= 0 && m->link.d2h_bytes_per_us > 0 && m->link.h2d_bytes_per_us > 0);
  return muldiv_i64(bytes, PS_PER_US, m->link.d2h_bytes_per_us) +
         muldiv_i64(bytes, PS_PER_US, m->link.h2d_bytes_per_us);
}

/* Of some number of kernels that run again, the cheapest for their bytes, the last one in part: no less
 * than all before it, and no fewer bytes to copy than with all of it. */
static int64_t least_step(const peak_state *x, remaking *kernels, uint32_t count,
                          int64_t over_bytes)
{
  int64_t least = BUDGET_TOO_SMALL, again_ps = 0, rest_bytes = over_bytes;
  qsort(kernels, count, sizeof *kernels, by_price);
  for (uint32_t i = 0; i <= count && rest_bytes > 0; i++) {
    int64_t bytes = i < count ? kernels[i].bytes : 0;
    int64_t copies_ps = copied_ps(x->machine, max_i64(rest_bytes - bytes, 0));
    least = min_i64(least, max_i64(x->compute_ps + again_ps, copies_ps));
    rest_bytes -= bytes;
    again_ps += i < count ? kernels[i].ps : 0;
  }
  return least;
}

static int64_t bound_of_rank(const peak_state *x, int64_t budget_bytes, arena *a)
{
  uint32_t ops = x->rank->ops.count, count = 0;
  int64_t *by_op = ARENA_ARRAY(a, int64_t, ops), saved_bytes;
  remaking *kernels = ARENA_ARRAY(a, remaking, ops);
  int64_t over_bytes = x->peak_bytes - budget_bytes;
  saved_bytes = find_saved(x, by_op, &over_bytes);
  for (uint32_t i = 0; i < ops; i++) {
    if (by_op[i] == 0) continue;
    kernels[count++] = (remaking){ kernel_ps(x, &x->rank->ops.items[i]), by_op[i] };
    saved_bytes += by_op[i];
  }
  if (over_bytes <= 0) return x->compute_ps;
  return saved_bytes < over_bytes ? BUDGET_TOO_SMALL : least_step(x, kernels, count, over_bytes);
}

bool budget_bound(int64_t *step_ps, const settings *keep_all, const machine *m,
                  int64_t budget_bytes, arena *a, diag *d)
{
  compilation c = { 0 };
  bool ok = compile(&c, keep_all, ITERATION_STEADY, a, d);
  const machine *own = machine_of(keep_all, m, a);
  const int64_t *call_ps = ok ? times_of_calls(&c.plan, own, a) : NULL;
  *step_ps = 0;
  for (uint32_t r = 0; ok && r < c.plan.rank_count; r++) {
    peak_state x = peak_of(&c.plan.ranks[r], call_ps, own, a);
    *step_ps = max_i64(*step_ps, bound_of_rank(&x, budget_bytes, a));
  }
  compilation_release(&c);
  return ok;
}
