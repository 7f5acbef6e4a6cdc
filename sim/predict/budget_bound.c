#include "sim/predict/budget_bound.h"

#include <assert.h>

#include "sim/base/units.h"
#include "sim/compile/compile.h"
#include "sim/predict/least_cut.h"
#include "sim/predict/pace.h"
#include "sim/predict/places.h"

enum { PPM = 1000000 };

/* ---- the kernels of a rank, and what they read and write ---- */

typedef struct buffer_use {
  uint32_t first_write; /* op count: none */
  uint32_t last_read;   /* 0: none */
} buffer_use;

typedef struct rank_run {
  const rank_plan *rank;
  const call_cost *costs; /* by row of the plan's calls */
  buffer_use *uses;       /* by buffer */
  uint32_t *kernels;      /* ops: the kernels of compute, in order */
  call_run calls;         /* the same */
} rank_run;

static bool is_kernel_of_compute(const plan_op *o)
{
  return o->kind == OP_KERNEL && o->stream == STREAM_COMPUTE;
}

static void take_op(rank_run *r, uint32_t i)
{
  const plan_op *o = &r->rank->ops.items[i];
  if (!op_works((op_kind)o->kind)) return;
  const uint32_t *operands = &r->rank->operands.items[o->operands];
  for (uint32_t k = 0; k < o->reads; k++)
    r->uses[operands[k]].last_read = i;
  for (uint32_t k = o->reads; k < (uint32_t)o->reads + o->writes; k++)
    if (r->uses[operands[k]].first_write > i) r->uses[operands[k]].first_write = i;
  if (!is_kernel_of_compute(o)) return;
  r->kernels[r->calls.count] = i;
  r->calls.items[r->calls.count++] = &r->costs[o->arg];
}

static rank_run run_of_rank(const rank_plan *rank, const call_cost *costs, const machine *m,
                            arena *a)
{
  rank_run r = { .rank = rank, .costs = costs, .calls = { .machine = m } };
  r.uses = ARENA_ARRAY(a, buffer_use, rank->buffers.count);
  r.kernels = ARENA_ARRAY(a, uint32_t, rank->ops.count);
  r.calls.items = ARENA_ARRAY(a, const call_cost *, rank->ops.count);
  for (uint32_t b = 0; b < rank->buffers.count; b++)
    r.uses[b].first_write = rank->ops.count;
  for (uint32_t i = 0; i < rank->ops.count; i++)
    take_op(&r, i);
  return r;
}

/* ---- the moment ---- */

typedef struct moment {
  uint32_t op;        /* a kernel of compute; what it writes counts */
  uint32_t kernels;   /* up to it */
  int64_t over_bytes; /* saved bytes that do not fit then */
  bool too_small;     /* not even without any of it */
} moment;

static bool is_saved(const rank_run *r, uint32_t buffer)
{
  const buffer_use *u = &r->uses[buffer];
  return r->rank->buffers.items[buffer].purpose == CLASS_SAVED && u->first_write < u->last_read;
}

/* Backward needs it after the op. */
static bool waits_at(const rank_run *r, uint32_t buffer, uint32_t op)
{
  return is_saved(r, buffer) && r->uses[buffer].first_write <= op && r->uses[buffer].last_read > op;
}

static int64_t lasting_bytes(const rank_run *r)
{
  int64_t bytes = 0;
  for (uint32_t b = 0; b < r->rank->residents; b++) {
    const plan_buffer *buffer = &r->rank->buffers.items[b];
    if (buffer->purpose == CLASS_WEIGHT || buffer->purpose == CLASS_GRADIENT ||
        buffer->purpose == CLASS_OPTIMIZER || buffer->purpose == CLASS_WORKSPACE)
      bytes += buffer->bytes;
  }
  return bytes;
}

/* Of its operands that neither last nor wait for backward, each once. `seen`: by buffer, the op that
 * had it last, and 1. */
static int64_t operand_bytes(const rank_run *r, uint32_t op, uint32_t *seen)
{
  const plan_op *o = &r->rank->ops.items[op];
  int64_t bytes = 0;
  for (uint32_t k = 0; k < (uint32_t)o->reads + o->writes; k++) {
    uint32_t b = r->rank->operands.items[o->operands + k];
    if (b < r->rank->residents || seen[b] == op + 1 || waits_at(r, b, op)) continue;
    seen[b] = op + 1;
    bytes += r->rank->buffers.items[b].bytes;
  }
  return bytes;
}

static moment find_moment(const rank_run *r, int64_t budget_bytes, arena *a)
{
  int64_t *change_bytes = ARENA_ARRAY(a, int64_t, r->rank->ops.count + 1);
  uint32_t *seen = ARENA_ARRAY(a, uint32_t, r->rank->buffers.count), k = 0;
  moment m = { .over_bytes = INT64_MIN };
  for (uint32_t b = 0; b < r->rank->buffers.count; b++) {
    if (!is_saved(r, b)) continue;
    change_bytes[r->uses[b].first_write] += r->rank->buffers.items[b].bytes;
    change_bytes[r->uses[b].last_read] -= r->rank->buffers.items[b].bytes;
  }
  int64_t free_bytes = budget_bytes - lasting_bytes(r), saved_bytes = 0;
  for (uint32_t i = 0; i < r->rank->ops.count; i++) {
    saved_bytes += change_bytes[i];
    if (k == r->calls.count || r->kernels[k] != i) continue;
    k++;
    int64_t room_bytes = free_bytes - operand_bytes(r, i, seen);
    m.too_small |= room_bytes < 0;
    if (saved_bytes - room_bytes > m.over_bytes) {
      m.op = i;
      m.kernels = k;
      m.over_bytes = saved_bytes - room_bytes;
    }
  }
  assert(saved_bytes == 0);
  return m;
}

/* ---- the network, and the bound ---- */

enum { WHOLE = 1 << 30, ROUNDS = 12 }; /* weights are parts of WHOLE, found to a hundredth */

typedef struct weighing {
  const rank_run *run;
  const moment *at;
  const paced *pace;
  int64_t saved_bytes;
  uint32_t *node_of_buffer, *node_of_op; /* 0: none yet */
  uint32_t *queue;                       /* buffers to look at */
  uint32_t queued;
  int64_t out, back; /* weights of the copies */
  network net;
} weighing;

static int64_t weighed(int64_t ps, int64_t weight)
{
  return capped_muldiv(ps, weight, WHOLE);
}

static int64_t copies_ps(const weighing *x, int64_t bytes)
{
  const machine *m = x->run->calls.machine;
  return weighed(muldiv_i64(bytes, PS_PER_US, m->link.d2h_bytes_per_us), x->out) +
         weighed(muldiv_i64(bytes, PS_PER_US, m->link.h2d_bytes_per_us), x->back);
}

static int64_t again_ps(const weighing *x, const call_cost *c)
{
  const paced *p = x->pace;
  int64_t slowdown = min_i64(pace_slowdown_ps(c), capped_muldiv(c->ps, p->mean_slowdown_ppm, PPM));
  int64_t ps = c->ps + capped_muldiv(slowdown, p->least_excess_ppm, PPM);
  int64_t rest =
      capped_muldiv(c->ps, pace_rest_ppm(p, pace_milliwatts(c->energy_nj, c->ps)), PPM) + 1;
  return max_i64(0, weighed(ps, WHOLE - x->back) - (p->limit_mw == 0 ? 0 : rest));
}

/* A kernel of compute up to the moment wrote it. */
static bool can_be_made(const weighing *x, uint32_t buffer)
{
  uint32_t op = x->run->uses[buffer].first_write;
  return op <= x->at->op && is_kernel_of_compute(&x->run->rank->ops.items[op]);
}

static uint32_t node_of_buffer(weighing *x, uint32_t buffer)
{
  if (x->node_of_buffer[buffer] == 0) {
    x->node_of_buffer[buffer] = network_node(&x->net);
    x->queue[x->queued++] = buffer;
  }
  return x->node_of_buffer[buffer];
}

/* What it reads has to be there; inputs and weights are. */
static uint32_t node_of_kernel(weighing *x, uint32_t op)
{
  const plan_op *o = &x->run->rank->ops.items[op];
  if (x->node_of_op[op] != 0) return x->node_of_op[op];
  uint32_t node = x->node_of_op[op] = network_node(&x->net);
  network_edge(&x->net, node, NETWORK_SINK, again_ps(x, &x->run->costs[o->arg]));
  for (uint32_t k = 0; k < o->reads; k++) {
    uint32_t b = x->run->rank->operands.items[o->operands + k];
    if (b >= x->run->rank->residents && can_be_made(x, b))
      network_edge(&x->net, node, node_of_buffer(x, b), CAP);
  }
  return node;
}

static void build(weighing *x)
{
  const rank_plan *rank = x->run->rank;
  x->net.first.count = x->net.links.count = x->queued = 0;
  for (uint32_t b = 0; b < rank->buffers.count; b++)
    x->node_of_buffer[b] = 0;
  for (uint32_t i = 0; i <= x->at->op; i++)
    x->node_of_op[i] = 0;
  for (uint32_t b = 0; b < rank->buffers.count; b++)
    if (waits_at(x->run, b, x->at->op))
      network_edge(&x->net, NETWORK_SOURCE, node_of_buffer(x, b), CAP);
  for (uint32_t i = 0; i < x->queued; i++) {
    uint32_t b = x->queue[i];
    uint32_t to = can_be_made(x, b) ? node_of_kernel(x, x->run->uses[b].first_write) : NETWORK_SINK;
    network_edge(&x->net, x->node_of_buffer[b], to, copies_ps(x, rank->buffers.items[b].bytes));
  }
}

static int64_t bound_with(weighing *x, int64_t out, int64_t back)
{
  enum { ROUNDING = 8 };
  x->out = out;
  x->back = back;
  build(x);
  int64_t ps = weighed(x->pace->before_ps, WHOLE - out) + weighed(x->pace->after_ps, WHOLE - back);
  int64_t fits_bytes = max_i64(0, x->saved_bytes - x->at->over_bytes);
  return ps + network_flow(&x->net) - copies_ps(x, fits_bytes) - ROUNDING;
}

static int64_t bound_by(weighing *x, bool out, int64_t weight, int64_t other)
{
  return out ? bound_with(x, weight, other) : bound_with(x, other, weight);
}

/* The mean is concave in each weight: its best is between half and twice the best of the halves of
 * `most`. Whichever weight is found gives a bound. */
static int64_t best_weight(weighing *x, bool out, int64_t other, int64_t most)
{
  int64_t best = most, best_ps = bound_by(x, out, most, other);
  for (int64_t half = most / 2; half > 0; half /= 2) {
    int64_t ps = bound_by(x, out, half, other);
    if (ps < best_ps) break;
    best = half;
    best_ps = ps;
  }
  int64_t low = best / 2, high = min_i64(most, 2 * best);
  for (int round = 0; round < ROUNDS; round++) {
    int64_t third = (high - low) / 3, left = low + third, right = high - third;
    if (bound_by(x, out, left, other) < bound_by(x, out, right, other))
      low = left;
    else
      high = right;
  }
  int64_t weight = low + (high - low) / 2;
  int64_t ps = bound_by(x, out, weight, other);
  return bound_by(x, out, 0, other) > max_i64(ps, best_ps) ? 0 : ps > best_ps ? weight : best;
}

static int64_t best_bound(weighing *x)
{
  const paced *p = x->pace;
  int64_t most = weighed(max_i64(0, PPM - pace_rest_ppm(p, 0)), WHOLE) * WHOLE / PPM;
  int64_t out = best_weight(x, true, 0, most), back = best_weight(x, false, out, most);
  out = best_weight(x, true, back, most);
  int64_t ps = max_i64(bound_with(x, out, back), p->before_ps + p->after_ps);
  return min_i64(ps, pace_holds_ps(p));
}

static int64_t bound_at(const rank_run *r, const moment *m, const paced *p, arena *a)
{
  if (m->over_bytes <= 0 || pace_rest_ppm(p, 0) > PPM) return pace_least_ps(p);
  weighing x = { .run = r, .at = m, .pace = p };
  x.node_of_buffer = ARENA_ARRAY(a, uint32_t, r->rank->buffers.count);
  x.node_of_op = ARENA_ARRAY(a, uint32_t, r->rank->ops.count);
  x.queue = ARENA_ARRAY(a, uint32_t, r->rank->buffers.count);
  for (uint32_t b = 0; b < r->rank->buffers.count; b++)
    if (waits_at(r, b, m->op)) x.saved_bytes += r->rank->buffers.items[b].bytes;
  int64_t ps = best_bound(&x);
  network_free(&x.net);
  return ps;
}

static budget_bounds bounds_of_rank(const rank_run *r, int64_t budget_bytes, arena *a)
{
  moment m = find_moment(r, budget_bytes, a);
  if (m.too_small) return (budget_bounds){ .step_ps = BUDGET_TOO_SMALL };
  paced full = pace_of(&r->calls, m.kernels, false), slowed = pace_of(&r->calls, m.kernels, true);
  int64_t ps = pace_less_busier_ps(bound_at(r, &m, &slowed, a));
  int64_t kernels_ps = pace_less_busier_ps(pace_least_ps(&slowed));
  return (budget_bounds){ .step_ps = max_i64(ps, bound_at(r, &m, &full, a)),
                          .kernels_ps = kernels_ps,
                          .over_bytes = max_i64(0, m.over_bytes) };
}

/* ---- all ranks ---- */

bool budget_bound(budget_bounds *found, const settings *keep_all, const machine *m,
                  int64_t budget_bytes, arena *a, diag *d)
{
  compilation c = { 0 };
  bool ok = compile(&c, keep_all, ITERATION_STEADY, a, d);
  const machine *own = machine_of(keep_all, m, a);
  const call_cost *costs = ok ? call_costs(&c.plan, own, a) : NULL;
  *found = (budget_bounds){ 0 };
  for (uint32_t i = 0; ok && i < c.plan.rank_count; i++) {
    rank_run r = run_of_rank(&c.plan.ranks[i], costs, own, a);
    budget_bounds b = bounds_of_rank(&r, budget_bytes, a);
    if (b.step_ps > found->step_ps) *found = b;
  }
  compilation_release(&c);
  return ok;
}
