#include "sim/predict/budget_bound.h"

#include <assert.h>
#include <stdlib.h>

#include "sim/base/units.h"
#include "sim/compile/compile.h"
#include "sim/machine/call_time.h"
#include "sim/predict/places.h"

/* ---- the moment at which most is saved ---- */

typedef struct buffer_use {
  uint32_t first_write; /* op count: none */
  uint32_t last_read;   /* 0: none */
} buffer_use;

typedef struct saved_moment {
  const rank_plan *rank;
  const machine *machine;
  const int64_t *call_ps;      /* by row of the plan's calls: its kernel at full clock */
  buffer_use *uses;            /* by buffer */
  uint32_t at_op;              /* after this op */
  int64_t saved_bytes;         /* then */
  int64_t before_ps, after_ps; /* kernels of compute up to this op, and after it */
} saved_moment;

static bool is_kernel_of_compute(const plan_op *o)
{
  return o->kind == OP_KERNEL && o->stream == STREAM_COMPUTE;
}

static void take_op(saved_moment *x, uint32_t i)
{
  const plan_op *o = &x->rank->ops.items[i];
  if (!op_works((op_kind)o->kind)) return;
  const uint32_t *operands = &x->rank->operands.items[o->operands];
  for (uint32_t k = 0; k < o->reads; k++)
    x->uses[operands[k]].last_read = i;
  for (uint32_t k = o->reads; k < (uint32_t)o->reads + o->writes; k++)
    if (x->uses[operands[k]].first_write > i) x->uses[operands[k]].first_write = i;
}

static bool is_saved(const saved_moment *x, uint32_t buffer)
{
  const buffer_use *u = &x->uses[buffer];
  return x->rank->buffers.items[buffer].purpose == CLASS_SAVED && u->first_write < u->last_read;
}

static void find_moment(saved_moment *x, arena *a)
{
  int64_t *change_bytes = ARENA_ARRAY(a, int64_t, x->rank->ops.count), now = 0;
  for (uint32_t b = 0; b < x->rank->buffers.count; b++) {
    if (!is_saved(x, b)) continue;
    change_bytes[x->uses[b].first_write] += x->rank->buffers.items[b].bytes;
    change_bytes[x->uses[b].last_read] -= x->rank->buffers.items[b].bytes;
  }
  for (uint32_t i = 0; i < x->rank->ops.count; i++) {
    now += change_bytes[i];
    if (now <= x->saved_bytes) continue;
    x->saved_bytes = now;
    x->at_op = i;
  }
  assert(now == 0);
}

static void add_kernels(saved_moment *x)
{
  for (uint32_t i = 0; i < x->rank->ops.count; i++) {
    const plan_op *o = &x->rank->ops.items[i];
    if (!is_kernel_of_compute(o)) continue;
    *(i <= x->at_op ? &x->before_ps : &x->after_ps) += x->call_ps[o->arg];
  }
}

static saved_moment moment_of(const rank_plan *rank, const int64_t *call_ps, const machine *m,
                              arena *a)
{
  saved_moment x = { .rank = rank, .machine = m, .call_ps = call_ps };
  x.uses = ARENA_ARRAY(a, buffer_use, rank->buffers.count);
  for (uint32_t b = 0; b < rank->buffers.count; b++)
    x.uses[b].first_write = rank->ops.count;
  for (uint32_t i = 0; i < rank->ops.count; i++)
    take_op(&x, i);
  find_moment(&x, a);
  add_kernels(&x);
  return x;
}

/* ---- what is elsewhere then ---- */

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

/* What is saved then by the kernel of compute that wrote it; no other op can make it again. */
static remaking *find_kernels(const saved_moment *x, uint32_t *count, arena *a)
{
  int64_t *bytes = ARENA_ARRAY(a, int64_t, x->rank->ops.count);
  remaking *found = ARENA_ARRAY(a, remaking, x->rank->ops.count);
  for (uint32_t b = 0; b < x->rank->buffers.count; b++)
    if (is_saved(x, b) && x->uses[b].first_write <= x->at_op && x->uses[b].last_read > x->at_op)
      bytes[x->uses[b].first_write] += x->rank->buffers.items[b].bytes;
  *count = 0;
  for (uint32_t i = 0; i < x->rank->ops.count; i++) {
    const plan_op *o = &x->rank->ops.items[i];
    if (bytes[i] > 0 && is_kernel_of_compute(o))
      found[(*count)++] = (remaking){ x->call_ps[o->arg], bytes[i] };
  }
  qsort(found, *count, sizeof *found, by_price);
  return found;
}

/* `bytes` are copied, at the rates of one GPU alone, and kernels run again for `again_ps`. */
static int64_t step_with(const saved_moment *x, int64_t bytes, int64_t again_ps)
{
  const machine *m = x->machine;
  assert(bytes >= 0 && m->link.d2h_bytes_per_us > 0 && m->link.h2d_bytes_per_us > 0);
  return max_i64(x->before_ps, muldiv_i64(bytes, PS_PER_US, m->link.d2h_bytes_per_us)) +
         max_i64(x->after_ps + again_ps, muldiv_i64(bytes, PS_PER_US, m->link.h2d_bytes_per_us));
}

/* Of some number of kernels that run again, the cheapest for their bytes, the last one in part: no less
 * than all before it, and no fewer bytes to copy than with all of it. */
static int64_t least_step(const saved_moment *x, int64_t over_bytes, arena *a)
{
  uint32_t count;
  const remaking *kernels = find_kernels(x, &count, a);
  int64_t least = BUDGET_TOO_SMALL, again_ps = 0, rest_bytes = over_bytes;
  for (uint32_t i = 0; i <= count && rest_bytes > 0; i++) {
    int64_t bytes = i < count ? kernels[i].bytes : 0;
    least = min_i64(least, step_with(x, max_i64(rest_bytes - bytes, 0), again_ps));
    rest_bytes -= bytes;
    again_ps += i < count ? kernels[i].ps : 0;
  }
  return least;
}

static int64_t bound_of_rank(const saved_moment *x, int64_t budget_bytes, arena *a)
{
  int64_t over_bytes = x->saved_bytes - budget_bytes;
  for (uint32_t b = 0; b < x->rank->residents; b++) {
    const plan_buffer *buffer = &x->rank->buffers.items[b];
    if (buffer->purpose == CLASS_WEIGHT || buffer->purpose == CLASS_GRADIENT ||
        buffer->purpose == CLASS_OPTIMIZER)
      over_bytes += buffer->bytes;
  }
  if (over_bytes <= 0) return x->before_ps + x->after_ps;
  return x->saved_bytes < over_bytes ? BUDGET_TOO_SMALL : least_step(x, over_bytes, a);
}

/* ---- all ranks ---- */

static const int64_t *times_of_calls(const plan *p, const machine *m, arena *a)
{
  int64_t *ps = ARENA_ARRAY(a, int64_t, p->calls.count);
  for (uint32_t i = 0; i < p->calls.count; i++)
    if (!p->calls.items[i].is_collective) ps[i] = call_time_of(m, &p->calls.items[i]).ps;
  return ps;
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
    saved_moment x = moment_of(&c.plan.ranks[r], call_ps, own, a);
    *step_ps = max_i64(*step_ps, bound_of_rank(&x, budget_bytes, a));
  }
  compilation_release(&c);
  return ok;
}
