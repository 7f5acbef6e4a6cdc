#include "sim/fit/align.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/array.h"
#include "sim/base/units.h"
#include "sim/machine/call_time.h"

/* Costs of an alignment; UNIT: a time that is off by its whole self. */
enum {
  UNIT = 1000,
  MOST_OFF = 2 * UNIT,
  OP_ALONE = 3 * UNIT,
  KERNEL_ALONE = 3 * UNIT / 2,
  BREAK = UNIT / 20,
  JOINED = 3 * UNIT
};

/* Kernels of one op: a split product and its sum; fused attention with what comes before and after; a
 * grouped product: some for each expert. */
enum { PRODUCT_KERNELS = 3, ATTENTION_KERNELS = 8, EXPERT_KERNELS = 2, MOST_KERNELS = 4096 };

enum { MOST_CELLS = 1 << 26 };

/* ---- the plan's tokens ---- */

static bool token_of_call(const plan_call *c, token *t)
{
  if (c->is_collective) {
    t->class = FIT_COMMUNICATION;
    return c->group_size > 1;
  }
  switch (call_slowed_kind(c)) {
  case SLOWED_PRODUCT:
    t->class = FIT_GEMM;
    t->most = PRODUCT_KERNELS;
    if (c->kind == KERNEL_GROUPED_GEMM)
      t->most = (uint32_t)min_i64(MOST_KERNELS,
                                  EXPERT_KERNELS * max_i64(1, min_i64(c->dims[4], MOST_KERNELS)));
    return true;
  case SLOWED_ATTENTION:
    t->class = FIT_ATTENTION;
    t->most = ATTENTION_KERNELS;
    return true;
  case SLOWED_KINDS: break;
  }
  return false;
}

/* Messages that follow each other on a stream are one exchange, and one kernel. */
static bool continues_exchange(const rank_plan *r, uint32_t op)
{
  const plan_op *ops = r->ops.items;
  for (uint32_t i = op; i-- > 0;)
    if (ops[i].stream == ops[op].stream) return op_is_message((op_kind)ops[i].kind);
  return false;
}

static bool token_of_op(const plan *p, const rank_plan *r, uint32_t op, token *t)
{
  const plan_op *o = &r->ops.items[op];
  t->most = 1;
  if (op_is_call((op_kind)o->kind)) return token_of_call(&p->calls.items[o->arg], t);
  if (op_is_message((op_kind)o->kind)) {
    t->class = FIT_COMMUNICATION;
    return !continues_exchange(r, op);
  }
  if (o->kind != OP_D2H && o->kind != OP_H2D) return false;
  t->class = o->kind == OP_D2H ? FIT_D2H : FIT_H2D;
  t->bytes = copy_bytes(p, r, o);
  return true;
}

static bool is_pass(const plan_mark *m)
{
  return m->kind == MARK_FORWARD || m->kind == MARK_BACKWARD;
}

/* Tokens with their pass, and the kinds of the passes. What comes before the first pass belongs to it. */
static void list_predicted(token_list *l, sample_list *kinds, const prediction *p,
                           const machine *own, uint32_t rank)
{
  const rank_plan *r = &p->steady.plan.ranks[rank];
  const plan_mark *last = NULL;
  uint32_t passes = 0;
  bool rest = false, others = false;
  for (uint32_t i = 0; i < r->ops.count; i++) {
    const plan_op *o = &r->ops.items[i];
    token t = { .at = i };
    if (o->kind == OP_MARK) {
      const plan_mark *m = &r->marks.items[o->arg];
      rest = passes > 0 && !is_pass(m);
      if (is_pass(m) && (last == NULL || last->kind != m->kind ||
                         last->microbatch != m->microbatch || last->chunk != m->chunk)) {
        *ARRAY_PUSH(kinds) = m->kind == MARK_BACKWARD;
        passes++;
        last = m;
      }
    }
    if (!token_of_op(&p->steady.plan, r, i, &t)) {
      others |= o->kind == OP_KERNEL;
      continue;
    }
    t.apart = others;
    others = false;
    if (o->kind == OP_KERNEL) t.ps = call_time_of(own, &p->steady.plan.calls.items[o->arg]).ps;
    t.pass = rest ? passes : passes == 0 ? 0 : passes - 1;
    *ARRAY_PUSH(l) = t;
  }
}

/* ---- the trace's tokens ---- */

static void list_measured(token_list *l, sample_list *kinds, const issues *x)
{
  uint32_t *numbers = NULL, last = 0;
  arena scratch = { 0 };
  const real_run *r = x->run;
  numbers = ARENA_ARRAY(&scratch, uint32_t, (size_t)r->passes.count + 1);
  for (uint32_t i = 0; i < r->passes.count; i++) {
    const real_pass *pass = &r->passes.items[i];
    numbers[i] = kinds->count;
    if (pass->kind != REAL_FINISH) *ARRAY_PUSH(kinds) = pass->kind == REAL_BACKWARD;
  }
  for (uint32_t i = 0; i < x->count; i++) {
    const issue *w = &x->items[i];
    const real_span *s = &r->spans.items[w->span];
    if (s->pass != REAL_NONE) last = numbers[s->pass];
    if (w->class == FIT_OTHER) continue;
    bool apart = l->count > 0 && l->items[l->count - 1].at + 1 != i;
    *ARRAY_PUSH(l) = (token){
      .at = i, .pass = last, .class = w->class, .ps = w->ps, .bytes = s->bytes, .apart = apart
    };
  }
  arena_release(&scratch);
}

/* ---- one pass ---- */

/* The two sides of a pass, and the costs so far. */
typedef struct pass_grid {
  const token *predicted, *measured;
  uint32_t rows, columns;
  int64_t permille[FIT_CLASSES]; /* measured over predicted time of the class */
  int64_t *sum_ps;               /* [columns + 1]: of the tokens before */
  uint32_t *alike;               /* tokens of one class up to and with a column */
  uint32_t *breaks;  /* [columns + 1]: tokens before that do not follow another at once */
  uint16_t *choices; /* [rows + 1][columns + 1] */
} pass_grid;

enum { CHOICE_OP_ALONE = 0, CHOICE_KERNEL_ALONE = UINT16_MAX };

static void prepare(pass_grid *g, arena *a)
{
  int64_t predicted[FIT_CLASSES] = { 0 }, measured[FIT_CLASSES] = { 0 };
  g->sum_ps = ARENA_ARRAY(a, int64_t, (size_t)g->columns + 1);
  g->alike = ARENA_ARRAY(a, uint32_t, (size_t)g->columns + 1);
  g->breaks = ARENA_ARRAY(a, uint32_t, (size_t)g->columns + 1);
  g->choices = ARENA_ARRAY(a, uint16_t, ((size_t)g->rows + 1) * ((size_t)g->columns + 1));
  for (uint32_t i = 0; i < g->rows; i++)
    predicted[g->predicted[i].class] += g->predicted[i].ps;
  for (uint32_t i = 0; i < g->columns; i++) {
    const token *t = &g->measured[i], *before = i > 0 ? t - 1 : NULL;
    measured[t->class] += t->ps;
    g->sum_ps[i + 1] = g->sum_ps[i] + t->ps;
    g->alike[i + 1] = before != NULL && before->class == t->class ? g->alike[i] + 1 : 1;
    g->breaks[i + 1] = g->breaks[i] + (before == NULL ? 1 : t->at - before->at - 1);
  }
  for (int c = 0; c < FIT_CLASSES; c++)
    g->permille[c] = predicted[c] == 0 ? UNIT : capped_muldiv(measured[c], UNIT, predicted[c]);
}

static int64_t off(int64_t measured_ps, int64_t expected_ps)
{
  int64_t least = max_i64(1, min_i64(measured_ps, expected_ps)),
          most = max_i64(measured_ps, expected_ps);
  return min_i64(MOST_OFF, capped_muldiv(most - least, UNIT, least));
}

/* The op takes `count` tokens up to a column; INT64_MAX: it cannot. */
static int64_t match_cost(const pass_grid *g, const token *op, uint32_t column, uint32_t count)
{
  const token *last = &g->measured[column - 1];
  switch (op->class) {
  case FIT_D2H:
  case FIT_H2D: return last->bytes == op->bytes ? 0 : INT64_MAX;
  case FIT_COMMUNICATION: return UNIT / 5; /* its time is mostly that of waiting */
  case FIT_GEMM:
  case FIT_ATTENTION:
  case FIT_OTHER:
  case FIT_CLASSES: break;
  }
  int64_t measured_ps = g->sum_ps[column] - g->sum_ps[column - count];
  uint32_t breaks = g->breaks[column] - g->breaks[column - count + 1];
  bool joined = op->apart && !g->measured[column - count].apart;
  return off(measured_ps, capped_muldiv(op->ps, g->permille[op->class], UNIT)) + breaks * BREAK +
         (joined ? JOINED : 0);
}

static void fill(const pass_grid *g, arena *a)
{
  size_t width = (size_t)g->columns + 1;
  int64_t *above = ARENA_ARRAY(a, int64_t, width), *now = ARENA_ARRAY(a, int64_t, width);
  for (uint32_t k = 1; k <= g->columns; k++) {
    above[k] = above[k - 1] + KERNEL_ALONE;
    g->choices[k] = CHOICE_KERNEL_ALONE;
  }
  for (uint32_t i = 1; i <= g->rows; i++) {
    const token *op = &g->predicted[i - 1];
    uint16_t *choices = &g->choices[i * width];
    now[0] = above[0] + OP_ALONE;
    for (uint32_t k = 1; k <= g->columns; k++) {
      int64_t best = above[k] + OP_ALONE;
      choices[k] = CHOICE_OP_ALONE;
      if (now[k - 1] + KERNEL_ALONE < best) {
        best = now[k - 1] + KERNEL_ALONE;
        choices[k] = CHOICE_KERNEL_ALONE;
      }
      bool same = g->measured[k - 1].class == op->class;
      uint32_t most = !same ? 0 : op->most < g->alike[k] ? op->most : g->alike[k];
      for (uint32_t n = 1; n <= most; n++) {
        int64_t cost = match_cost(g, op, k, n);
        if (cost == INT64_MAX || above[k - n] + cost >= best) continue;
        best = above[k - n] + cost;
        choices[k] = (uint16_t)n;
      }
      now[k] = best;
    }
    int64_t *swapped = above;
    above = now;
    now = swapped;
  }
}

/* Adds the matches of the pass, in order. */
static void trace_back(const pass_grid *g, uint32_t first_column, matches *m)
{
  uint32_t begin = m->count, i = g->rows, k = g->columns;
  while (i > 0 && k > 0) {
    uint16_t choice = g->choices[i * ((size_t)g->columns + 1) + k];
    if (choice == CHOICE_KERNEL_ALONE) {
      k--;
      continue;
    }
    i--;
    if (choice == CHOICE_OP_ALONE) continue;
    k -= choice;
    m->items[m->count++] = (match){ g->predicted[i].at, first_column + k, choice };
  }
  for (uint32_t low = begin, high = m->count; low + 1 < high; low++) {
    match other = m->items[--high];
    m->items[high] = m->items[low];
    m->items[low] = other;
  }
}

static uint32_t end_of_pass(const token_list *l, uint32_t first, uint32_t pass)
{
  while (first < l->count && l->items[first].pass <= pass)
    first++;
  return first;
}

static bool match_pass(matches *m, uint32_t predicted, uint32_t predicted_end, uint32_t measured,
                       uint32_t measured_end, diag *d)
{
  arena scratch = { 0 };
  pass_grid g = { .predicted = &m->predicted.items[predicted],
                  .measured = &m->measured.items[measured],
                  .rows = predicted_end - predicted,
                  .columns = measured_end - measured };
  if (g.rows == 0 || g.columns == 0) return true;
  if (((uint64_t)g.rows + 1) * ((uint64_t)g.columns + 1) > MOST_CELLS)
    return diag_error(d, (source_pos){ 0 },
                      "a pass has %u ops in the plan and %u kernels in the trace, too many to "
                      "align; trace a shorter step",
                      g.rows, g.columns);
  prepare(&g, &scratch);
  fill(&g, &scratch);
  trace_back(&g, measured, m);
  arena_release(&scratch);
  return true;
}

/* ---- all passes ---- */

static bool are_same(const sample_list *a, const sample_list *b)
{
  return a->count == b->count && a->count > 0 &&
         memcmp(a->items, b->items, a->count * sizeof *a->items) == 0;
}

static int by_pass(const void *left, const void *right)
{
  const token *a = left, *b = right;
  if (a->pass != b->pass) return a->pass < b->pass ? -1 : 1;
  return a->at < b->at ? -1 : a->at > b->at;
}

/* Communication gets a pass of its own, after all others; without `passes`, the others are one. */
static void put_in_order(token_list *l, bool passes)
{
  for (uint32_t i = 0; i < l->count; i++)
    if (l->items[i].class == FIT_COMMUNICATION)
      l->items[i].pass = UINT32_MAX;
    else if (!passes)
      l->items[i].pass = 0;
  if (l->count > 0) qsort(l->items, l->count, sizeof *l->items, by_pass);
}

static int by_op(const void *left, const void *right)
{
  const match *a = left, *b = right;
  return a->op < b->op ? -1 : a->op > b->op;
}

static void add_tokens(uint32_t *counts, const token *tokens, uint32_t count, bool plus)
{
  for (uint32_t i = 0; i < count; i++)
    if (tokens[i].class != FIT_COMMUNICATION) counts[tokens[i].at + 1] += plus ? 1 : UINT32_MAX;
}

static void add_up(uint32_t *counts, uint32_t count)
{
  for (uint32_t i = 0; i < count; i++)
    counts[i + 1] += counts[i];
}

/* Counts the tokens that no match has. Frameworks have small collectives that plans have not. */
static void count_alone(matches *m, uint32_t ops, uint32_t issued, arena *a)
{
  m->alone_ops = ARENA_ARRAY(a, uint32_t, (size_t)ops + 1);
  m->alone_issues = ARENA_ARRAY(a, uint32_t, (size_t)issued + 1);
  add_tokens(m->alone_ops, m->predicted.items, m->predicted.count, true);
  add_tokens(m->alone_issues, m->measured.items, m->measured.count, true);
  for (uint32_t i = 0; i < m->count; i++) {
    const token *tokens = &m->measured.items[m->items[i].first],
                op = { .at = m->items[i].op, .class = tokens->class };
    add_tokens(m->alone_ops, &op, 1, false);
    add_tokens(m->alone_issues, tokens, m->items[i].count, false);
  }
  add_up(m->alone_ops, ops);
  add_up(m->alone_issues, issued);
}

/* From pass to pass of either side. */
static bool match_passes(matches *m, diag *d)
{
  uint32_t at = 0, to = 0;
  while (at < m->predicted.count || to < m->measured.count) {
    uint32_t pass = UINT32_MAX;
    if (at < m->predicted.count) pass = m->predicted.items[at].pass;
    if (to < m->measured.count && m->measured.items[to].pass < pass)
      pass = m->measured.items[to].pass;
    uint32_t at_end = end_of_pass(&m->predicted, at, pass),
             to_end = end_of_pass(&m->measured, to, pass);
    if (!match_pass(m, at, at_end, to, to_end, d)) return false;
    at = at_end;
    to = to_end;
  }
  return true;
}

bool match_rank(matches *m, const prediction *p, const machine *own, uint32_t rank, const issues *x,
                arena *a, diag *d)
{
  sample_list predicted = { 0 }, measured = { 0 };
  *m = (matches){ .count = 0 };
  list_predicted(&m->predicted, &predicted, p, own, rank);
  list_measured(&m->measured, &measured, x);
  m->passes_agree = are_same(&predicted, &measured);
  put_in_order(&m->predicted, m->passes_agree);
  put_in_order(&m->measured, m->passes_agree);
  m->items = ARENA_ARRAY(a, match, (size_t)m->predicted.count + 1);
  bool ok = match_passes(m, d);
  if (m->count > 0) qsort(m->items, m->count, sizeof *m->items, by_op);
  count_alone(m, p->steady.plan.ranks[rank].ops.count, x->count, a);
  ARRAY_FREE(&predicted);
  ARRAY_FREE(&measured);
  return ok;
}

void matches_release(matches *m)
{
  ARRAY_FREE(&m->predicted);
  ARRAY_FREE(&m->measured);
}
