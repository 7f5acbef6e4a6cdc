#include <string.h>

#include "sim/base/array.h"
#include "sim/base/units.h"
#include "sim/fit/factors.h"
#include "sim/fit/parts.h"
#include "sim/machine/call_time.h"

enum { MILLION = 1000000 };

typedef struct kernel_fit {
  const fit_sides *f;
  const plan *plan;
  const rank_plan *rank;
  const rank_timeline *times;
  intern_table *rows;      /* of bare calls */
  sample_list *ppm, *late; /* by row: measured over expected time of an op; late in the step */
  int64_t stretch_ppm[SLOWED_KINDS + 1]; /* how much longer than alone ops take in the prediction */
  factor_rows gaps;
  fit_result *to;
} kernel_fit;

static uint32_t row_of(kernel_fit *k, uint32_t op)
{
  plan_call call = call_without_views(&k->plan->calls.items[k->rank->ops.items[op].arg]);
  return intern(k->rows, &call, sizeof call);
}

static const plan_call *call_of(const kernel_fit *k, uint32_t op)
{
  return &k->plan->calls.items[k->rank->ops.items[op].arg];
}

static int64_t alone_ps(const kernel_fit *k, uint32_t op)
{
  return call_time_of(k->f->own, call_of(k, op)).ps;
}

/* By copies and power: the median of a kind. A single op may take longer, beside another stream's kernel. */
static void find_stretches(kernel_fit *k)
{
  sample_list ppm[SLOWED_KINDS + 1] = { { 0 } };
  for (uint32_t i = 0; i < k->rank->ops.count; i++) {
    const plan_op *o = &k->rank->ops.items[i];
    if (o->kind != OP_KERNEL || o->stream != STREAM_COMPUTE || alone_ps(k, i) == 0) continue;
    *ARRAY_PUSH(&ppm[call_slowed_kind(call_of(k, i))]) =
        capped_muldiv(op_taken_ps(k->times, i), MILLION, alone_ps(k, i));
  }
  for (int kind = 0; kind <= SLOWED_KINDS; kind++) {
    k->stretch_ppm[kind] = ppm[kind].count > 0 ? sample_median(&ppm[kind]) : MILLION;
    ARRAY_FREE(&ppm[kind]);
  }
}

static int64_t expected_ps(const kernel_fit *k, uint32_t op)
{
  return capped_muldiv(alone_ps(k, op), k->stretch_ppm[call_slowed_kind(call_of(k, op))], MILLION);
}

/* ---- products and attention ---- */

/* After a pause a GPU is cool and fast: what it does in the second half of the step is what it does in
 * any step. */
static bool is_late(const issues *x, const token *t)
{
  int64_t middle_ns = x->begin_ns + (x->end_ns - x->begin_ns) / 2;
  return x->run->spans.items[x->items[t->at].span].begin_ns >= middle_ns;
}

static void take_match(kernel_fit *k, const match *m)
{
  const token *tokens = &k->f->matched->measured.items[m->first];
  fit_class class = tokens->class;
  fit_row *row = &k->to->rows[class];
  bool is_kernel = class == FIT_GEMM || class == FIT_ATTENTION;
  int64_t measured_ps = 0;
  int64_t at_base = is_kernel ? expected_ps(k, m->op) : op_taken_ps(k->times, m->op);
  for (uint32_t i = 0; i < m->count; i++)
    measured_ps += tokens[i].ps;
  row->predicted_ps += at_base;
  row->measured_ps += measured_ps;
  if (!is_kernel || at_base == 0) return;
  uint32_t call = row_of(k, m->op);
  int64_t ppm = capped_muldiv(measured_ps, MILLION, at_base);
  *ARRAY_PUSH(&k->ppm[call]) = ppm;
  if (is_late(k->f->issued, tokens)) *ARRAY_PUSH(&k->late[call]) = ppm;
}

/* ---- the kernels between them ---- */

static bool is_memory_bound(const kernel_fit *k, uint32_t op)
{
  const plan_op *o = &k->rank->ops.items[op];
  return o->kind == OP_KERNEL && call_is_memory_bound(&k->plan->calls.items[o->arg]);
}

/* Ops [op, op_end) and issues [work, work_end). */
static void take_gap(kernel_fit *k, uint32_t op, uint32_t op_end, uint32_t work, uint32_t work_end)
{
  const issues *x = k->f->issued;
  fit_row *row = &k->to->rows[FIT_OTHER];
  uint32_t kernels = 0, ops = 0;
  int64_t measured_ps = 0, at_base = 0;
  bool misses = match_misses(k->f->matched, op, op_end, work, work_end);
  for (uint32_t i = work; i < work_end; i++) {
    if (x->items[i].class != FIT_OTHER) continue;
    measured_ps += x->items[i].ps;
    kernels++;
  }
  if (!misses) factors_begin(&k->gaps, measured_ps);
  for (uint32_t i = op; i < op_end; i++) {
    if (!is_memory_bound(k, i)) continue;
    if (!misses) factors_add(&k->gaps, row_of(k, i), expected_ps(k, i));
    at_base += expected_ps(k, i);
    ops++;
  }
  row->ops += ops;
  row->kernels += kernels;
  if (misses || ops == 0 || kernels == 0) return;
  row->matched_ops += ops;
  row->matched_kernels += kernels;
  row->predicted_ps += at_base;
  row->measured_ps += measured_ps;
}

static void take_gaps(kernel_fit *k)
{
  const matches *m = k->f->matched;
  uint32_t op = 0, work = 0;
  for (uint32_t i = 0; i < m->count; i++) {
    const match *at = &m->items[i];
    const token *first = &m->measured.items[at->first], *last = first + at->count - 1;
    if (first->class != FIT_GEMM && first->class != FIT_ATTENTION) continue;
    take_gap(k, op, at->op, work, first->at);
    op = at->op + 1;
    work = last->at + 1;
  }
  take_gap(k, op, k->rank->ops.count, work, k->f->issued->count);
}

/* ---- calls ---- */

static void put_call(kernel_fit *k, uint32_t row, double by)
{
  sampled_call s = { .slowdown_permille = -1 };
  memcpy(&s.call, k->rows->keys[row].bytes, sizeof s.call);
  s.ps = (int64_t)(by * (double)call_time_of(k->f->own, &s.call).ps);
  if (s.ps > 0) *ARRAY_PUSH(&k->to->calls) = s;
}

static void put_calls(kernel_fit *k, arena *a)
{
  factor *between = factors_solve(&k->gaps, k->rows->count, a);
  for (uint32_t i = 0; i < k->rows->count; i++) {
    sample_list *of = k->late[i].count > 0 ? &k->late[i] : &k->ppm[i];
    if (of->count > 0)
      put_call(k, i, (double)sample_median(of) / MILLION);
    else if (between[i].is_seen)
      put_call(k, i, between[i].value);
  }
}

void fit_kernels(const fit_sides *f, fit_result *to, arena *a)
{
  intern_table rows = { .memory = a };
  const plan *p = &f->predicted->steady.plan;
  kernel_fit k = { .f = f,
                   .plan = p,
                   .rank = &p->ranks[f->input->rank],
                   .times = &f->predicted->steady_timeline.ranks[f->input->rank],
                   .rows = &rows,
                   .ppm = ARENA_ARRAY(a, sample_list, (size_t)p->calls.count + 1),
                   .late = ARENA_ARRAY(a, sample_list, (size_t)p->calls.count + 1),
                   .to = to };
  find_stretches(&k);
  for (uint32_t i = 0; i < f->matched->count; i++)
    take_match(&k, &f->matched->items[i]);
  take_gaps(&k);
  put_calls(&k, a);
  for (uint32_t i = 0; i < p->calls.count; i++) {
    ARRAY_FREE(&k.ppm[i]);
    ARRAY_FREE(&k.late[i]);
  }
  factors_release(&k.gaps);
}
