#include "sim/engine/slowdown.h"

#include <assert.h>
#include <stdlib.h>

#include "sim/base/array.h"
#include "sim/base/units.h"
#include "sim/engine/power.h"
#include "sim/machine/roofline.h"

enum { PPM_OF_PERMILLE = 1000, MILLION = 1000000 };

typedef struct span {
  int64_t begin_ps, end_ps;
} span;

/* ---- equal turns ------------------------------------------------------------------------------ */

/*
 * A slowdown depends on what runs from POWER_SLOW_PS before the op to POWER_AHEAD_PS after. Of many equal
 * turns, one in the middle has the same around it as the next one:
 *
 *     | turn | turn | turn | turn | turn | turn | ... left out ... | turn | turn | turn |
 *     |<---------- at least POWER_SLOW_PS ----->|                  |<- POWER_AHEAD_PS ->|
 *
 * So the walks see an iteration without the turns left out. Every other op has around it what it has in full,
 * and an op left out is slowed as the one a turn earlier.
 */

static int64_t divide_up(int64_t a, int64_t b)
{
  assert(a >= 0 && b > 0);
  return a / b + (a % b > 0);
}

/* When the streams with ops in the turns began the first of them: later than the ops a turn before. */
static span first_turn_of(const rank_times *u)
{
  const equal_turns *t = u->turns;
  span s = { INT64_MAX, INT64_MIN };
  for (int i = 0; i < STREAM_HOST; i++) {
    if (!(t->streams >> i & 1)) continue;
    int64_t at_ps = op_time_at(u->ops, t->first[i] - t->ops).start_ps + t->ps;
    s.begin_ps = min_i64(s.begin_ps, at_ps);
    s.end_ps = max_i64(s.end_ps, at_ps);
  }
  return s;
}

/* The other streams run nothing from `begin_ps` to `end_ps`. */
static bool others_rest(const rank_times *u, int64_t begin_ps, int64_t end_ps)
{
  const equal_turns *t = u->turns;
  for (int i = 0; i < STREAM_HOST; i++)
    if (!(t->streams >> i & 1) && t->first[i] < u->plan->ops.count &&
        op_time_at(u->ops, t->first[i]).start_ps < end_ps)
      return false;
  return t->others_ps <= begin_ps;
}

static const turn_cut nothing_cut = { .lowest = UINT32_MAX, .highest = UINT32_MAX };

turn_cut turn_cut_of(const rank_times *u)
{
  const equal_turns *t = u->turns;
  if (t == NULL || t->times == 0 || t->ps == 0 || t->streams == 0) return nothing_cut;
  span first = first_turn_of(u); /* streams are not at the same place in the turn */
  int64_t kept = 1 + divide_up(POWER_SLOW_PS + first.end_ps - first.begin_ps, t->ps);
  int64_t left = 1 + divide_up(POWER_AHEAD_PS + first.end_ps - first.begin_ps, t->ps);
  int64_t cut = t->times - kept - left;
  if (cut <= 0 ||
      !others_rest(u, first.end_ps - t->ps, first.end_ps + (kept + cut) * t->ps + POWER_AHEAD_PS))
    return nothing_cut;
  turn_cut c = { .lowest = UINT32_MAX, .turn = t->ops };
  for (int i = 0; i < STREAM_HOST; i++) {
    bool in_turns = t->streams >> i & 1;
    c.first[i] = in_turns ? t->first[i] + (uint32_t)kept * t->ops : UINT32_MAX;
    if (in_turns && c.first[i] < c.lowest) c.lowest = c.first[i];
    if (in_turns && c.first[i] > c.highest) c.highest = c.first[i];
  }
  c.ops = (uint32_t)cut * t->ops;
  c.ps = cut * t->ps;
  if (c.highest > c.lowest + c.ops) return nothing_cut;
  assert(u->step_ps - c.ps > POWER_SLOW_PS && "no window becomes as long as the step");
  return c;
}

/* An op of a stream, as it counts. */
typedef struct place {
  bool left_out;
  uint32_t row;
  int64_t less_ps; /* it counts as so much earlier */
} place;

static inline place place_of(const rank_times *u, uint32_t op)
{
  const turn_cut *c = &u->cut;
  if (op < c->lowest) return (place){ .row = op };
  if (op < c->highest + c->ops) {
    uint32_t first = c->first[u->plan->ops.items[op].stream];
    if (op < first) return (place){ .row = op };
    if (op - first < c->ops) return (place){ .left_out = true };
  }
  return (place){ .row = op - c->ops, .less_ps = c->ps };
}

/* When an op that is not left out ran, as it counts. */
static inline span span_at(const rank_times *u, uint32_t op, const place *at)
{
  op_time ran = op_time_at(u->ops, op);
  assert(!at->left_out && ran.start_ps <= ran.end_ps && ran.start_ps >= at->less_ps);
  return (span){ ran.start_ps - at->less_ps, ran.end_ps - at->less_ps };
}

static span span_of(const rank_times *u, uint32_t op)
{
  place at = place_of(u, op);
  return span_at(u, op, &at);
}

/* A walk passes the ops in two parts: all streams leave out what is between. */
static uint32_t first_part_end(const rank_times *u)
{
  return u->cut.ops > 0 ? u->cut.highest : u->plan->ops.count;
}

static uint32_t second_part_begin(const rank_times *u)
{
  return u->cut.ops > 0 ? u->cut.lowest + u->cut.ops : u->plan->ops.count;
}

/* ---- ops -------------------------------------------------------------------------------------- */

typedef struct op_list {
  uint32_t *items;
  uint32_t count, capacity;
} op_list;

/* A kernel or collective. */
typedef struct slowed_call {
  const call_cost *cost;
  uint32_t row;
} slowed_call;

typedef struct call_list {
  slowed_call *items;
  uint32_t count, capacity;
} call_list;

/* What slows, or is slowed, in program order: one walk over the plan finds it for all rules. */
typedef struct work {
  call_list calls[STREAM_HOST]; /* by stream: kernels, and collectives that draw power */
  power_curve curve;            /* when the same calls ran */
  op_list joined;               /* collectives that take time from compute */
  op_list out, back;
  uint32_t beside; /* streams other than compute that have work, a bit each */
} work;

/* NCCL's kernels take multiprocessors and memory bandwidth from compute, and compute from them. */
static bool is_joined(const plan_op *o, const call_cost *cost, span ran)
{
  return o->kind == OP_COLLECTIVE && o->stream != STREAM_COMPUTE && cost->joined &&
         ran.end_ps > ran.begin_ps;
}

/* Ops that use the part of the GPU that compute uses; copies have separate engines. */
static bool is_work(op_kind kind)
{
  return op_is_call(kind) || op_is_message(kind);
}

/* Most ops are not. */
static bool matters(op_kind kind)
{
  const uint32_t kinds = 1u << OP_KERNEL | 1u << OP_COLLECTIVE | 1u << OP_SEND | 1u << OP_RECV |
                         1u << OP_D2H | 1u << OP_H2D;
  return kinds >> kind & 1;
}

static void add_call(work *w, const rank_times *u, uint32_t op, const place *at)
{
  const plan_op *o = &u->plan->ops.items[op];
  const call_cost *cost = &u->costs[o->arg];
  span ran = span_at(u, op, at);
  if (is_joined(o, cost, ran)) *ARRAY_PUSH(&w->joined) = op;
  if (o->kind != OP_KERNEL && cost->energy_nj == 0) return;
  *ARRAY_PUSH(&w->calls[o->stream]) = (slowed_call){ cost, at->row };
  power_curve_add(&w->curve, (plan_stream)o->stream, ran.begin_ps, ran.end_ps, cost->energy_nj);
}

static void add_work(work *w, const rank_times *u, uint32_t begin, uint32_t end)
{
  const plan_op *ops = u->plan->ops.items;
  for (uint32_t i = begin; i < end; i++) {
    op_kind kind = (op_kind)ops[i].kind;
    if (!matters(kind)) continue;
    assert(ops[i].stream < STREAM_HOST);
    place at = place_of(u, i);
    if (at.left_out) continue;
    if (op_is_call(kind)) add_call(w, u, i, &at);
    if (kind == OP_D2H) *ARRAY_PUSH(&w->out) = i;
    if (kind == OP_H2D) *ARRAY_PUSH(&w->back) = i;
    if (is_work(kind)) w->beside |= UINT32_C(1) << ops[i].stream;
  }
}

static work work_of(const rank_times *u)
{
  work w = { .curve = power_curve_new(u->step_ps - u->cut.ps) };
  uint32_t about = (u->plan->ops.count - u->cut.ops) / 3; /* nearly all are on compute */
  ARRAY_RESERVE(&w.calls[STREAM_COMPUTE], about);
  ARRAY_RESERVE(&w.curve.streams[STREAM_COMPUTE], about);
  add_work(&w, u, 0, first_part_end(u));
  add_work(&w, u, second_part_begin(u), u->plan->ops.count);
  w.beside &= ~(UINT32_C(1) << STREAM_COMPUTE);
  return w;
}

static void work_release(work *w)
{
  for (int s = 0; s < STREAM_HOST; s++)
    ARRAY_FREE(&w->calls[s]);
  power_curve_free(&w->curve);
  ARRAY_FREE(&w->out);
  ARRAY_FREE(&w->back);
  ARRAY_FREE(&w->joined);
}

static inline span span_of_call(const work *w, plan_stream stream, uint32_t k)
{
  assert(w->calls[stream].count == w->curve.streams[stream].count);
  const power_span *ran = &w->curve.streams[stream].items[k];
  return (span){ ran->begin_ps, ran->end_ps };
}

/* ---- spans of time --------------------------------------------------------------------------- */

/* Once sorted, spans do not overlap. */
typedef struct span_list {
  span *items;
  uint32_t count;
  uint32_t found; /* by the last search: the next one looks near it */
} span_list;

static int by_begin(const void *left, const void *right)
{
  const span *a = left, *b = right;
  return (a->begin_ps > b->begin_ps) - (a->begin_ps < b->begin_ps);
}

static span_list spans_of(const rank_times *u, const op_list *ops, arena *a)
{
  span_list l = { .items = ARENA_ARRAY(a, span, ops->count), .count = ops->count };
  for (uint32_t i = 0; i < ops->count; i++)
    l.items[i] = span_of(u, ops->items[i]);
  return l;
}

/* What one stream does is in order already. */
static bool is_sorted(const span_list *l)
{
  for (uint32_t i = 1; i < l->count; i++)
    if (l->items[i - 1].begin_ps > l->items[i].begin_ps) return false;
  return true;
}

static void sort_spans(span_list *l)
{
  if (!is_sorted(l)) qsort(l->items, l->count, sizeof *l->items, by_begin);
  for (uint32_t i = 1; i < l->count; i++)
    assert(l->items[i - 1].end_ps <= l->items[i].begin_ps &&
           "a copy engine or a stream does one thing at a time");
}

/* The first span that has not ended at a time. */
static uint32_t first_after(span_list *l, int64_t at_ps)
{
  uint32_t i = l->found;
  while (i > 0 && l->items[i - 1].end_ps > at_ps)
    i--;
  while (i < l->count && l->items[i].end_ps <= at_ps)
    i++;
  return l->found = i;
}

/* The part of the time from begin_ps to end_ps that sorted spans cover. */
static int64_t spans_meet_ps(span_list *l, int64_t begin_ps, int64_t end_ps)
{
  assert(begin_ps <= end_ps);
  int64_t ps = 0;
  for (uint32_t i = first_after(l, begin_ps); i < l->count && l->items[i].begin_ps < end_ps; i++)
    ps += min_i64(end_ps, l->items[i].end_ps) - max_i64(begin_ps, l->items[i].begin_ps);
  return ps;
}

/* ---- what is found ---------------------------------------------------------------------------- */

typedef struct found {
  slowdown of;
  const rank_times *times;
  const machine *machine;
  arena *memory;
  arena scratch; /* of spans: the next rank takes the same memory */
} found;

static uint32_t rows_of(const rank_times *u)
{
  return u->plan->ops.count - u->cut.ops;
}

/* Many ranks have no op that is slowed, and need no rows. */
static void add_ppm(found *f, uint32_t row, int64_t ppm)
{
  assert(row < rows_of(f->times));
  if (ppm == 0) return;
  if (f->of.ppm == NULL) f->of.ppm = ARENA_ARRAY(f->memory, int64_t, rows_of(f->times));
  f->of.ppm[row] += ppm;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Adds to each kernel of a stream the share of its time during which copies run, in parts per million, times
 * the slowdown by copies. */
static void add_copies_to(found *f, const work *w, plan_stream stream, span_list *copies, bool out)
{
  const call_list *calls = &w->calls[stream];
  for (uint32_t k = 0; k < calls->count; k++) {
    const slowed_call *c = &calls->items[k];
    span ran = span_of_call(w, stream, k);
    int64_t ps = ran.end_ps - ran.begin_ps;
    int64_t permille = out ? c->cost->d2h_permille : c->cost->h2d_permille;
    if (ps == 0 || permille == 0) continue;
    int64_t meets_ps = spans_meet_ps(copies, ran.begin_ps, ran.end_ps);
    assert(meets_ps >= 0 && meets_ps <= ps && "spans do not overlap");
    if (meets_ps > 0) add_ppm(f, c->row, muldiv_i64(meets_ps, permille * PPM_OF_PERMILLE, ps));
  }
}

static void add_copies(found *f, const work *w, bool out)
{
  const op_list *ops = out ? &w->out : &w->back; /* as the copy engine runs them */
  if (ops->count == 0) return;
  span_list copies = spans_of(f->times, ops, &f->scratch);
  sort_spans(&copies);
  for (int s = 0; s < STREAM_HOST; s++)
    add_copies_to(f, w, (plan_stream)s, &copies, out);
}

/* ---- collectives ----------------------------------------------------------------------------- */

/* Makes one span of those that overlap. */
static void merge_spans(span_list *l)
{
  uint32_t kept = 0;
  if (!is_sorted(l)) qsort(l->items, l->count, sizeof *l->items, by_begin);
  for (uint32_t i = 0; i < l->count; i++)
    if (kept > 0 && l->items[i].begin_ps <= l->items[kept - 1].end_ps)
      l->items[kept - 1].end_ps = max_i64(l->items[kept - 1].end_ps, l->items[i].end_ps);
    else
      l->items[kept++] = l->items[i];
  l->count = kept;
}

/* A call of compute's stream is a kernel that took time. */
static bool is_kernel(const slowed_call *c, span ran)
{
  return !c->cost->is_collective && ran.end_ps > ran.begin_ps;
}

static span_list compute_spans(const work *w, arena *a)
{
  const call_list *calls = &w->calls[STREAM_COMPUTE];
  span_list l = { .items = ARENA_ARRAY(a, span, calls->count) };
  for (uint32_t k = 0; k < calls->count; k++) {
    span ran = span_of_call(w, STREAM_COMPUTE, k);
    if (is_kernel(&calls->items[k], ran)) l.items[l.count++] = ran;
  }
  assert(is_sorted(&l) && (l.count == 0 || l.items[l.count - 1].end_ps <= w->curve.length_ps));
  return l;
}

static void add_share(found *f, const slowed_call *c, span ran, span_list *beside)
{
  int64_t permille = c->cost->collective_permille;
  if (permille == 0) return;
  int64_t meets_ps = spans_meet_ps(beside, ran.begin_ps, ran.end_ps);
  add_ppm(f, c->row, muldiv_i64(meets_ps, permille * PPM_OF_PERMILLE, ran.end_ps - ran.begin_ps));
}

static void add_collectives(found *f, const work *w)
{
  if (w->joined.count == 0) return;
  const rank_times *u = f->times;
  span_list joined = spans_of(u, &w->joined, &f->scratch);
  span_list compute = compute_spans(w, &f->scratch);
  merge_spans(&joined);
  const call_list *calls = &w->calls[STREAM_COMPUTE];
  for (uint32_t k = 0; k < calls->count; k++) {
    span ran = span_of_call(w, STREAM_COMPUTE, k);
    if (is_kernel(&calls->items[k], ran)) add_share(f, &calls->items[k], ran, &joined);
  }
  for (uint32_t k = 0; k < w->joined.count; k++) {
    uint32_t op = w->joined.items[k];
    place at = place_of(u, op);
    slowed_call c = { &u->costs[u->plan->ops.items[op].arg], at.row };
    add_share(f, &c, span_at(u, op, &at), &compute);
  }
}

/* ---- streams that wait ---------------------------------------------------------------------- */

enum { FEWEST_STREAMS = 2 };

/* A stream begins work (+1) or ends it (-1); likewise for waiting. */
typedef struct edge {
  int64_t at_ps;
  int32_t in_hand, waits;
} edge;

typedef struct edge_list {
  edge *items;
  uint32_t count, capacity;
} edge_list;

static void add_edges(edge_list *l, const rank_times *u, uint32_t beside, uint32_t begin,
                      uint32_t end)
{
  for (uint32_t i = begin; i < end; i++) {
    const plan_op *o = &u->plan->ops.items[i];
    if (!op_runs_on_stream((op_kind)o->kind) || !(beside >> o->stream & 1)) continue;
    place at = place_of(u, i);
    if (at.left_out) continue;
    span ran = span_at(u, i, &at);
    if (ran.end_ps == ran.begin_ps) continue;
    int32_t waits = o->kind == OP_WAIT;
    *ARRAY_PUSH(l) = (edge){ ran.begin_ps, 1, waits };
    *ARRAY_PUSH(l) = (edge){ ran.end_ps, -1, -waits };
  }
}

static int by_time(const void *left, const void *right)
{
  const edge *a = left, *b = right;
  return (a->at_ps > b->at_ps) - (a->at_ps < b->at_ps);
}

/* Edges at one time count together. */
static span_list spans_between(const edge_list *l, arena *a)
{
  span_list out = { .items = ARENA_ARRAY(a, span, l->count) };
  int32_t in_hand = 0, waits = 0;
  for (uint32_t i = 0; i < l->count; i++) {
    in_hand += l->items[i].in_hand;
    waits += l->items[i].waits;
    if (i + 1 == l->count || l->items[i + 1].at_ps == l->items[i].at_ps) continue;
    assert(waits >= 0 && waits <= in_hand && "one op of a stream at a time");
    if (in_hand >= FEWEST_STREAMS && waits > 0)
      out.items[out.count++] = (span){ l->items[i].at_ps, l->items[i + 1].at_ps };
  }
  assert(in_hand == 0 && waits == 0 && "what begins ends");
  return out;
}

/* The spans in which two streams other than compute have work and one of them waits; sorted. */
static span_list waiting_spans(const rank_times *u, uint32_t beside, arena *a)
{
  if (__builtin_popcount(beside) < FEWEST_STREAMS) return (span_list){ 0 };
  edge_list edges = { 0 };
  add_edges(&edges, u, beside, 0, first_part_end(u));
  add_edges(&edges, u, beside, second_part_begin(u), u->plan->ops.count);
  if (edges.count > 0) qsort(edges.items, edges.count, sizeof *edges.items, by_time);
  assert(edges.count % 2 == 0 && "every edge has its end");
  span_list spans = spans_between(&edges, a);
  ARRAY_FREE(&edges);
  return spans;
}

/* A copy that other GPUs slow down more than waiting streams would is not lengthened further. */
static int64_t copy_slowdown_ppm(const rank_times *u, const machine *m, uint32_t op,
                                 span_list *waiting)
{
  const plan_op *o = &u->plan->ops.items[op];
  bool out = o->kind == OP_D2H;
  int64_t permille =
      out ? m->link.waiting_slowdown_d2h_permille : m->link.waiting_slowdown_h2d_permille;
  span ran = span_of(u, op);
  int64_t taken_ps = ran.end_ps - ran.begin_ps;
  int64_t alone_ps = host_copy_ps(m, copy_bytes(u->of, u->plan, o), out);
  assert(taken_ps >= 0 && alone_ps >= 0);
  if (taken_ps == 0) return 0;
  int64_t meets_ps = spans_meet_ps(waiting, ran.begin_ps, ran.end_ps);
  int64_t ppm = capped_muldiv(meets_ps, permille * PPM_OF_PERMILLE, taken_ps);
  int64_t more_ps = alone_ps + capped_muldiv(alone_ps, ppm, MILLION) - taken_ps;
  return more_ps > 0 ? capped_muldiv(more_ps, MILLION, alone_ps) : 0;
}

static void add_waiting_to(found *f, const op_list *copies, span_list *waiting)
{
  for (uint32_t k = 0; k < copies->count && waiting->count > 0; k++) {
    uint32_t op = copies->items[k], row = place_of(f->times, op).row;
    assert((f->of.ppm == NULL || f->of.ppm[row] == 0) && "copies slow kernels only");
    add_ppm(f, row, copy_slowdown_ppm(f->times, f->machine, op, waiting));
  }
}

static void add_waiting(found *f, const work *w)
{
  if (w->out.count + w->back.count == 0) return;
  span_list waiting = waiting_spans(f->times, w->beside, &f->scratch);
  add_waiting_to(f, &w->out, &waiting);
  add_waiting_to(f, &w->back, &waiting);
}

/* ---- kernels of a copying stream ------------------------------------------------------------- */

/* A kernel of the copying stream gets multiprocessors when compute's kernel of that time is done. */
static void add_occupied(found *f, const work *w)
{
  const call_list *calls = &w->calls[STREAM_D2H];
  if (calls->count == 0) return;
  span_list compute = compute_spans(w, &f->scratch);
  for (uint32_t n = 0; n < calls->count; n++) {
    const slowed_call *c = &calls->items[n];
    if (c->cost->ps == 0) continue;
    int64_t begin_ps = span_of_call(w, STREAM_D2H, n).begin_ps;
    uint32_t k = first_after(&compute, begin_ps);
    if (k == compute.count || compute.items[k].begin_ps > begin_ps) continue;
    assert(begin_ps < compute.items[k].end_ps && "compute's kernel has not ended");
    add_ppm(f, c->row, capped_muldiv(compute.items[k].end_ps - begin_ps, MILLION, c->cost->ps));
  }
}

/* ---- power ----------------------------------------------------------------------------------- */

static void add_power_ppm(found *f, uint32_t row, int64_t ppm)
{
  if (ppm == 0) return;
  if (f->of.power_ppm == NULL) f->of.power_ppm = ARENA_ARRAY(f->memory, int64_t, rows_of(f->times));
  f->of.power_ppm[row] = ppm;
  add_ppm(f, row, ppm);
}

/* Kernels that begin within so short a time are asked for together first: mostly none of them is slowed. */
#define TOGETHER_PS (10 * PS_PER_MS)

/* The end of the kernels from `begin` on that do. */
static uint32_t end_together(const power_spans *ran, uint32_t begin)
{
  int64_t last_ps = ran->items[begin].begin_ps + TOGETHER_PS;
  uint32_t k = begin + 1;
  while (k < ran->count && ran->items[k].begin_ps <= last_ps)
    k++;
  return k;
}

/* Adds the time that power adds to each kernel of a stream. */
static void add_power_to(found *f, work *w, plan_stream stream)
{
  const power_spans *ran = &w->curve.streams[stream];
  for (uint32_t k = 0, end; k < ran->count; k = end) {
    end = end_together(ran, k);
    int64_t from_ps = ran->items[k].begin_ps, to_ps = ran->items[end - 1].begin_ps;
    if (power_curve_most_ppm(&w->curve, f->machine, from_ps, to_ps) == 0) continue;
    for (; k < end; k++) {
      const slowed_call *c = &w->calls[stream].items[k];
      if (c->cost->power_permille == 0) continue;
      int64_t excess_ppm = power_curve_excess_ppm(&w->curve, f->machine, ran->items[k].begin_ps);
      add_power_ppm(f, c->row, muldiv_i64(excess_ppm, c->cost->power_permille, 1000));
    }
  }
}

static void add_power(found *f, work *w)
{
  for (int s = 0; s < STREAM_HOST && f->machine->gpu.power_limit_w > 0; s++)
    add_power_to(f, w, (plan_stream)s);
}

slowdown slowdown_at_full_clock(const rank_times *u, const machine *m, arena *a)
{
  found f = { { .cut = u->cut }, u, m, a, { 0 } };
  work w = work_of(u);
  assert(u->step_ps >= 0);
  add_copies(&f, &w, true);
  add_copies(&f, &w, false);
  add_waiting(&f, &w);
  add_collectives(&f, &w);
  add_occupied(&f, &w);
  add_power(&f, &w);
  work_release(&w);
  arena_release(&f.scratch);
  return f.of;
}

/* ---- power again ----------------------------------------------------------------------------- */

/* The times without what power adds to compute's kernels; compute waits as in the times. */
typedef struct full_clock {
  span_list compute; /* compute's kernels, ... */
  int64_t *saved_ps; /* ... by which each of them and all before are shorter */
} full_clock;

static full_clock full_clock_of(const work *w, const int64_t *power_ppm, arena *a)
{
  const call_list *calls = &w->calls[STREAM_COMPUTE];
  full_clock f = { { .items = ARENA_ARRAY(a, span, calls->count) },
                   ARENA_ARRAY(a, int64_t, calls->count) };
  int64_t saved_ps = 0;
  for (uint32_t k = 0; k < calls->count; k++) {
    const slowed_call *c = &calls->items[k];
    span ran = span_of_call(w, STREAM_COMPUTE, k);
    if (!is_kernel(c, ran)) continue;
    int64_t more_ps = capped_muldiv(c->cost->ps, power_ppm[c->row], MILLION);
    saved_ps += min_i64(more_ps, ran.end_ps - ran.begin_ps);
    f.saved_ps[f.compute.count] = saved_ps;
    f.compute.items[f.compute.count++] = ran;
  }
  assert(is_sorted(&f.compute) && saved_ps >= 0);
  return f;
}

static int64_t at_full_clock(full_clock *f, int64_t at_ps)
{
  uint32_t k = first_after(&f->compute, at_ps);
  int64_t saved_ps = k == 0 ? 0 : f->saved_ps[k - 1];
  if (k == f->compute.count || f->compute.items[k].begin_ps >= at_ps) return at_ps - saved_ps;
  const span *kernel = &f->compute.items[k];
  int64_t own_ps = muldiv_i64(f->saved_ps[k] - saved_ps, at_ps - kernel->begin_ps,
                              kernel->end_ps - kernel->begin_ps);
  assert(own_ps >= 0 && "a lower clock makes no kernel shorter");
  return at_ps - saved_ps - own_ps;
}

static void move_to_full_clock(power_curve *c, full_clock *f)
{
  c->length_ps = at_full_clock(f, c->length_ps);
  for (int s = 0; s < STREAM_HOST; s++)
    for (uint32_t k = 0; k < c->streams[s].count; k++) {
      power_span *ran = &c->streams[s].items[k];
      ran->begin_ps = at_full_clock(f, ran->begin_ps);
      ran->end_ps = at_full_clock(f, ran->end_ps);
    }
}

/* What power has added so far is in the times, and not in the slowdown, from now on. */
static void take_back_power(found *f, work *w)
{
  slowdown *s = &f->of;
  if (s->power_ppm == NULL) return;
  full_clock full = full_clock_of(w, s->power_ppm, &f->scratch);
  move_to_full_clock(&w->curve, &full);
  for (uint32_t i = 0; i < rows_of(f->times); i++) {
    s->ppm[i] -= s->power_ppm[i];
    s->power_ppm[i] = 0;
  }
}

/* Each op gets a row of its own. */
static void give_rows(slowdown *s, const rank_plan *p, arena *a)
{
  int64_t *ppm = ARENA_ARRAY(a, int64_t, p->ops.count);
  int64_t *power_ppm = s->power_ppm == NULL ? NULL : ARENA_ARRAY(a, int64_t, p->ops.count);
  for (uint32_t i = 0; i < p->ops.count; i++) {
    if (!op_runs_on_stream((op_kind)p->ops.items[i].kind)) continue;
    ppm[i] = slowdown_ppm(s, p, i);
    if (power_ppm != NULL) power_ppm[i] = s->power_ppm[slowdown_row(&s->cut, p, i)];
  }
  *s = (slowdown){ ppm, power_ppm, nothing_cut };
}

void slowdown_follow(slowdown *s, const rank_times *slowed, const machine *m, arena *a)
{
  assert(s->ppm != NULL && slowed->step_ps >= 0);
  rank_times u = *slowed;
  u.cut = nothing_cut;
  if (s->cut.ops > 0) give_rows(s, u.plan, a);
  found f = { *s, &u, m, a, { 0 } };
  work w = work_of(&u);
  take_back_power(&f, &w);
  add_power(&f, &w);
  work_release(&w);
  arena_release(&f.scratch);
  *s = f.of;
}
