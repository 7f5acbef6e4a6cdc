/*
 * Which work belongs to which forward or backward pass: decided by the host thread that issued it,
 * so for any framework on PyTorch.
 *
 * PyTorch runs backward functions inside `autograd::engine::evaluate_function`. Work that was issued
 * inside one is backward (so is a recomputed forward); other work is forward, or, after the last
 * backward, the rest of the step. Where no operators were recorded, backward is what other threads
 * than that of the first kernel issued: autograd has a thread for each GPU. A run of one kind is a
 * pass. Consecutive passes of one kind are separated by what every schedule has between them:
 * messages between pipeline stages, and the next batch of the data loader. A part without a matrix
 * product (losses, norms of gradients, copies of a batch) belongs to the pass before it.
 */
#include <stdlib.h>

#include "sim/base/text.h"
#include "sim/base/units.h"
#include "traces/import/call_table.h"
#include "traces/import/classes.h"
#include "traces/import/readers.h"

/* Work with the call that issued it. */
typedef struct issue {
  int64_t at_ns;
  uint32_t span, thread;
  bool backward;
} issue;

typedef struct issue_array {
  issue *items;
  uint32_t count, capacity;
} issue_array;

/* A stretch of a thread in which backward runs. */
typedef struct stretch {
  uint32_t thread;
  int64_t begin_ns, end_ns;
} stretch;

typedef struct finder {
  real_run *run;
  issue_array issues;
  call_table calls;
  struct {
    stretch *items;
    uint32_t count, capacity;
  } backwards; /* by thread, then time; they do not overlap */
  struct {
    int64_t *items;
    uint32_t count, capacity;
  } borders; /* times */
} finder;

/* ---- backward ---- */

static int by_thread(const void *left, const void *right)
{
  const stretch *a = left, *b = right;
  if (a->thread != b->thread) return a->thread < b->thread ? -1 : 1;
  return a->begin_ns < b->begin_ns ? -1 : a->begin_ns > b->begin_ns;
}

/* Nested ones become one. */
static void join_stretches(finder *f)
{
  uint32_t kept = 0;
  stretch *all = f->backwards.items;
  if (f->backwards.count == 0) return;
  qsort(all, f->backwards.count, sizeof *all, by_thread);
  for (uint32_t i = 1; i < f->backwards.count; i++)
    if (all[i].thread == all[kept].thread && all[i].begin_ns <= all[kept].end_ns)
      all[kept].end_ns = max_i64(all[kept].end_ns, all[i].end_ns);
    else
      all[++kept] = all[i];
  f->backwards.count = kept + 1;
}

static bool is_backward(const finder *f, uint32_t thread, int64_t at_ns)
{
  const stretch after = { .thread = thread, .begin_ns = at_ns + 1 };
  uint32_t count =
      array_count_before(f->backwards.items, f->backwards.count, sizeof after, &after, by_thread);
  const stretch *s = count > 0 ? &f->backwards.items[count - 1] : NULL;
  return s != NULL && s->thread == thread && at_ns <= s->end_ns;
}

/* ---- collecting ---- */

static bool is_border(const char *name)
{
  return begins_with(name, "nccl:send") || begins_with(name, "nccl:recv") ||
         begins_with(name, "enumerate(DataLoader)");
}

static void note_host(finder *f, uint32_t span)
{
  const real_span *s = &f->run->spans.items[span];
  if (s->kind == REAL_OP && begins_with(s->name, "autograd::engine::evaluate_function"))
    *ARRAY_PUSH(&f->backwards) = (stretch){ s->track, s->begin_ns, s->end_ns };
  if (s->kind == REAL_ANNOTATION && is_border(s->name)) *ARRAY_PUSH(&f->borders) = s->begin_ns;
}

static int by_issue(const void *left, const void *right)
{
  const issue *a = left, *b = right;
  if (a->at_ns != b->at_ns) return a->at_ns < b->at_ns ? -1 : 1;
  return a->span < b->span ? -1 : a->span > b->span;
}

static void note_work(finder *f)
{
  for (uint32_t i = 0; i < f->run->spans.count; i++) {
    const real_span *s = &f->run->spans.items[i];
    uint32_t call = real_span_is_work((real_span_kind)s->kind)
                        ? call_table_find(&f->calls, s->correlation)
                        : REAL_NONE;
    if (call == REAL_NONE) continue;
    const real_span *by = &f->run->spans.items[call];
    *ARRAY_PUSH(&f->issues) =
        (issue){ by->begin_ns, i, by->track, is_backward(f, by->track, by->begin_ns) };
  }
  if (f->issues.count > 0)
    qsort(f->issues.items, f->issues.count, sizeof *f->issues.items, by_issue);
}

static bool is_kernel(const finder *f, const issue *w)
{
  return f->run->spans.items[w->span].kind == REAL_KERNEL;
}

/* Threads without kernels copy what the others compute. */
static void tell_by_threads(finder *f)
{
  arena scratch = { 0 };
  bool *computes = ARENA_ARRAY(&scratch, bool, (size_t)f->run->threads.count + 1);
  uint32_t first = REAL_NONE;
  for (uint32_t i = 0; i < f->issues.count; i++) {
    const issue *w = &f->issues.items[i];
    if (!is_kernel(f, w)) continue;
    if (first == REAL_NONE) first = w->thread;
    computes[w->thread] = w->thread != first;
  }
  for (uint32_t i = 0; i < f->issues.count; i++)
    f->issues.items[i].backward = computes[f->issues.items[i].thread];
  arena_release(&scratch);
}

/* ---- parts and passes ---- */

/* Consecutive issues of one kind between borders. */
typedef struct part {
  uint32_t first, count;
  bool backward, has_product;
} part;

typedef struct part_array {
  part *items;
  uint32_t count, capacity;
} part_array;

static void cut(finder *f, part_array *parts)
{
  uint32_t border = 0;
  bool crossed = true;
  for (uint32_t i = 0; i < f->issues.count; i++) {
    const issue *w = &f->issues.items[i];
    for (; border < f->borders.count && f->borders.items[border] <= w->at_ns; border++)
      crossed = true;
    if (crossed || parts->items[parts->count - 1].backward != w->backward)
      *ARRAY_PUSH(parts) = (part){ .first = i, .backward = w->backward };
    crossed = false;
    part *p = &parts->items[parts->count - 1];
    const real_span *s = &f->run->spans.items[w->span];
    p->count++;
    p->has_product |= s->kind == REAL_KERNEL && kernel_class_of(s->name) == CLASS_GEMM;
  }
}

/* The last part of backward; what follows is the rest of the step. */
static uint32_t last_backward(const part_array *parts)
{
  uint32_t last = REAL_NONE;
  for (uint32_t i = 0; i < parts->count; i++)
    if (parts->items[i].backward) last = i;
  return last;
}

/* A part without a matrix product joins the pass before it; the first one, the pass after it. */
static void join_parts(part_array *parts)
{
  uint32_t kept = 0, last = last_backward(parts), rest = last == REAL_NONE ? REAL_NONE : last + 1;
  for (uint32_t i = 0; i < parts->count; i++) {
    const part p = parts->items[i];
    part *before = kept > 0 ? &parts->items[kept - 1] : NULL;
    bool both = before != NULL && before->has_product && p.has_product;
    if (before == NULL || i == rest || (both && i < rest)) {
      parts->items[kept++] = p;
      continue;
    }
    if (!before->has_product && i < rest) before->backward = p.backward;
    before->count += p.count;
    before->has_product |= p.has_product;
  }
  parts->count = kept;
}

static void add_pass(finder *f, const part *p, real_pass_kind kind, uint32_t number)
{
  real_run *r = f->run;
  real_pass pass = { .kind = kind, .number = number, .begin_ns = INT64_MAX };
  pass.issued_from_ns = f->issues.items[p->first].at_ns;
  pass.issued_to_ns = f->issues.items[p->first + p->count - 1].at_ns;
  for (uint32_t i = p->first; i < p->first + p->count; i++) {
    real_span *s = &r->spans.items[f->issues.items[i].span];
    s->pass = r->passes.count;
    if (real_span_is_copy((real_span_kind)s->kind)) continue;
    pass.begin_ns = min_i64(pass.begin_ns, s->begin_ns);
    pass.end_ns = max_i64(pass.end_ns, s->end_ns);
  }
  *ARRAY_PUSH(&r->passes) = pass;
}

static void add_passes(finder *f, const part_array *parts)
{
  uint32_t numbers[REAL_PASS_KINDS] = { 0 }, last = last_backward(parts);
  for (uint32_t i = 0; i < parts->count; i++) {
    const part *p = &parts->items[i];
    bool rest = last != REAL_NONE && i > last;
    real_pass_kind kind = p->backward ? REAL_BACKWARD : rest ? REAL_FINISH : REAL_FORWARD;
    add_pass(f, p, kind, numbers[kind]++);
  }
}

void find_passes(real_run *r)
{
  finder f = { .run = r };
  part_array parts = { 0 };
  for (uint32_t i = 0; i < r->spans.count; i++)
    note_host(&f, i);
  f.calls = call_table_of(r);
  join_stretches(&f);
  note_work(&f);
  if (f.backwards.count == 0) tell_by_threads(&f);
  cut(&f, &parts);
  join_parts(&parts);
  add_passes(&f, &parts);
  ARRAY_FREE(&parts);
  ARRAY_FREE(&f.borders);
  ARRAY_FREE(&f.backwards);
  ARRAY_FREE(&f.calls);
  ARRAY_FREE(&f.issues);
}
