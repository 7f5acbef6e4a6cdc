#include "traces/import/real_comparison.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/text.h"
#include "sim/base/units.h"
#include "traces/import/align_copies.h"
#include "traces/import/compare_waits.h"
#include "traces/timing.h"

const char *copy_finding_name(copy_finding f)
{
  static const char *const names[COPY_FINDINGS] = { "same", "reordered", "early",
                                                    "late", "missing",   "additional" };
  return names[f];
}

const char *copy_place_name(copy_place p)
{
  static const char *const names[] = { "none", "own stream", "one stream for both directions",
                                       "a stream with kernels" };
  return names[p];
}

const char *wait_order_name(wait_order o)
{
  static const char *const names[WAIT_ORDERS] = { "before", "after" };
  return names[o];
}

const char *wait_finding_name(wait_finding f)
{
  static const char *const names[WAIT_FINDINGS] = { "same", "early", "late", "missing",
                                                    "additional" };
  return names[f];
}

/* ---- what is predicted ---- */

/* The rank's ops, in the order in which the host issues them. */
typedef struct op_range {
  const trace_op *items;
  uint32_t first, count;
} op_range;

static op_range ops_of(const predicted_run *p)
{
  const trace *t = p->record;
  op_range r = { t->ops.items, 0, 0 };
  while (r.first < t->ops.count && t->ops.items[r.first].rank != p->rank)
    r.first++;
  while (r.first + r.count < t->ops.count && t->ops.items[r.first + r.count].rank == p->rank)
    r.count++;
  return r;
}

static bool is(const char *text, const char *word)
{
  return strcmp(text, word) == 0;
}

static predicted_pass pass_of_op(const trace_op *o)
{
  real_pass_kind kind = is(o->phase, "forward")    ? REAL_FORWARD
                        : is(o->phase, "backward") ? REAL_BACKWARD
                                                   : REAL_FINISH;
  return (predicted_pass){ kind, o->microbatch, o->chunk };
}

static bool same_pass(const predicted_pass *a, const predicted_pass *b)
{
  return a->kind == b->kind && a->microbatch == b->microbatch && a->chunk == b->chunk;
}

/* Its passes in the order of their first ops; by op: which. */
static uint32_t *find_predicted_passes(real_comparison *c, const op_range *ops, arena *a)
{
  uint32_t *of = ARENA_ARRAY(a, uint32_t, (size_t)ops->count + 1);
  c->passes = ARENA_ARRAY(a, predicted_pass, (size_t)ops->count + 1);
  for (uint32_t i = 0; i < ops->count; i++) {
    predicted_pass p = pass_of_op(&ops->items[ops->first + i]);
    of[i] = REAL_NONE;
    if (p.kind == REAL_FINISH) continue;
    uint32_t k = c->pass_count;
    while (k > 0 && !same_pass(&c->passes[k - 1], &p))
      k--;
    if (k == 0) {
      c->passes[c->pass_count++] = p;
      k = c->pass_count;
    }
    of[i] = k - 1;
  }
  return of;
}

const real_pass_kind *predicted_pass_kinds(const predicted_run *p, uint32_t *count, arena *a)
{
  real_comparison c = { .pass_count = 0 };
  op_range ops = ops_of(p);
  find_predicted_passes(&c, &ops, a);
  real_pass_kind *kinds = ARENA_ARRAY(a, real_pass_kind, (size_t)c.pass_count + 1);
  for (uint32_t i = 0; i < c.pass_count; i++)
    kinds[i] = c.passes[i].kind;
  *count = c.pass_count;
  return kinds;
}

/* By pass of the run: its number among forward and backward passes. */
static bool find_measured_passes(real_comparison *c)
{
  const real_run *r = c->measured.run;
  bool same = true;
  for (uint32_t i = 0; i < r->passes.count; i++) {
    if (r->passes.items[i].kind == REAL_FINISH) continue;
    uint32_t k = c->measured_pass_count++;
    same &= k == i && k < c->pass_count && c->passes[k].kind == r->passes.items[i].kind;
  }
  return same && c->measured_pass_count == c->pass_count && c->pass_count > 0;
}

/* ---- copies ---- */

static int64_t bytes_of(const trace_op *o)
{
  return strtoll(o->call, NULL, 10); /* "67108864 bytes" */
}

static copy_place place_of(const char *stream, const char *other, bool with_kernels)
{
  if (stream == NULL) return PLACE_NONE;
  if (with_kernels) return PLACE_WITH_KERNELS;
  return other != NULL && is(stream, other) ? PLACE_BOTH_WAYS : PLACE_OWN;
}

static const char *stream_of_copies(const op_range *ops, const char *kind)
{
  for (uint32_t i = 0; i < ops->count; i++)
    if (is(ops->items[ops->first + i].kind, kind)) return ops->items[ops->first + i].stream;
  return NULL;
}

static bool runs_kernels(const op_range *ops, const char *stream)
{
  for (uint32_t i = 0; stream != NULL && i < ops->count; i++) {
    const trace_op *o = &ops->items[ops->first + i];
    if (is(o->kind, "kernel") && is(o->stream, stream)) return true;
  }
  return false;
}

static copy_place measured_place(const run_summary *s, uint32_t stream, uint32_t other)
{
  if (stream == REAL_NONE) return PLACE_NONE;
  stream_role role = s->streams[stream].role;
  if (role != ROLE_D2H && role != ROLE_H2D) return PLACE_WITH_KERNELS;
  return stream == other ? PLACE_BOTH_WAYS : PLACE_OWN;
}

static void collect_predicted(real_comparison *c, const op_range *ops, const uint32_t *pass_of,
                              const char *kind, copy_list *to, direction_comparison *d)
{
  for (uint32_t i = 0; i < ops->count; i++) {
    const trace_op *o = &ops->items[ops->first + i];
    if (!is(o->kind, kind)) continue;
    int64_t bytes = bytes_of(o);
    *ARRAY_PUSH(to) =
        (listed_copy){ bytes, c->same_passes ? pass_of[i] : REAL_NONE, ops->first + i, false };
    d->count[SIDE_PREDICTED]++;
    d->bytes[SIDE_PREDICTED] += bytes;
    d->busy_ps[SIDE_PREDICTED] += o->end_ps - o->begin_ps;
  }
}

/* Where offloading shares a stream with kernels, small copies may be others'. */
static void collect_measured(real_comparison *c, real_span_kind kind, const copy_summary *s,
                             copy_list *to, direction_comparison *d)
{
  const real_run *r = c->measured.run;
  const run_summary *summary = c->measured.summary;
  uint32_t stream = kind == REAL_D2H ? summary->offload_stream : summary->reload_stream;
  for (uint32_t i = 0; i < r->spans.count; i++) {
    const real_span *w = &r->spans.items[i];
    if (w->kind != kind || w->track != stream) continue;
    bool known = c->same_passes && w->pass != REAL_NONE && w->pass < c->pass_count;
    *ARRAY_PUSH(to) =
        (listed_copy){ w->bytes, known ? w->pass : REAL_NONE, i, !summary->is_offload[i] };
  }
  d->count[SIDE_MEASURED] = s->count;
  d->bytes[SIDE_MEASURED] = s->bytes;
  bool timed = r->has_times;
  d->busy_ps[SIDE_MEASURED] = timed ? s->busy_ns * PS_PER_NS : -1;
  d->exposed_ps[SIDE_MEASURED] = timed ? s->exposed_ns * PS_PER_NS : -1;
}

static void compare_direction(real_comparison *c, direction_comparison *d, const op_range *ops,
                              const uint32_t *pass_of, bool out, arena *a)
{
  const run_summary *s = c->measured.summary;
  const char *kind = out ? "d2h" : "h2d", *stream = stream_of_copies(ops, kind);
  copy_list lists[SIDES] = { { 0 } };
  collect_predicted(c, ops, pass_of, kind, &lists[SIDE_PREDICTED], d);
  collect_measured(c, out ? REAL_D2H : REAL_H2D, out ? &s->d2h : &s->h2d, &lists[SIDE_MEASURED], d);
  d->place[SIDE_PREDICTED] =
      place_of(stream, stream_of_copies(ops, out ? "h2d" : "d2h"), runs_kernels(ops, stream));
  d->place[SIDE_MEASURED] = d->count[SIDE_MEASURED] == 0
                                ? PLACE_NONE
                                : measured_place(s, out ? s->offload_stream : s->reload_stream,
                                                 out ? s->reload_stream : s->offload_stream);
  align_copies(&lists[SIDE_PREDICTED], &lists[SIDE_MEASURED], d, a);
  ARRAY_FREE(&lists[SIDE_PREDICTED]);
  ARRAY_FREE(&lists[SIDE_MEASURED]);
  c->same_copies &=
      d->found[COPY_SAME] == d->copy_count && d->place[SIDE_PREDICTED] == d->place[SIDE_MEASURED];
}

/* ---- times ---- */

static kernel_class class_of_op(const trace_op *o)
{
  return is(o->kind, "kernel") ? kernel_class_of(o->name) : CLASS_COMMUNICATION;
}

static int by_begin(const void *left, const void *right)
{
  const trace_op *const *a = left, *const *b = right;
  if ((*a)->begin_ps != (*b)->begin_ps) return (*a)->begin_ps < (*b)->begin_ps ? -1 : 1;
  return ((*a)->op > (*b)->op) - ((*a)->op < (*b)->op);
}

/* Times in which nothing runs. */
static int64_t idle_of(const op_range *ops, int64_t step_ps)
{
  arena scratch = { 0 };
  const trace_op **sorted = ARENA_ARRAY(&scratch, const trace_op *, (size_t)ops->count + 1);
  int64_t covered_ps = 0, end_ps = 0;
  for (uint32_t i = 0; i < ops->count; i++)
    sorted[i] = &ops->items[ops->first + i];
  qsort(sorted, ops->count, sizeof *sorted, by_begin);
  for (uint32_t i = 0; i < ops->count; i++) {
    covered_ps += max_i64(0, sorted[i]->end_ps - max_i64(end_ps, sorted[i]->begin_ps));
    end_ps = max_i64(end_ps, sorted[i]->end_ps);
  }
  arena_release(&scratch);
  return max_i64(0, step_ps - covered_ps);
}

static bool is_copy_op(const trace_op *o)
{
  return is(o->kind, "d2h") || is(o->kind, "h2d") || begins_with(o->kind, "disk");
}

static void compare_times(real_comparison *c, const op_range *ops)
{
  const run_summary *s = c->measured.summary;
  bool timed = c->measured.run->has_times;
  for (uint32_t i = 0; i < ops->count; i++) {
    const trace_op *o = &ops->items[ops->first + i];
    if (!is_copy_op(o)) c->class_ps[class_of_op(o)][SIDE_PREDICTED] += o->end_ps - o->begin_ps;
  }
  for (int k = 0; k < KERNEL_CLASS_COUNT; k++)
    c->class_ps[k][SIDE_MEASURED] = timed ? s->class_ns[k] * PS_PER_NS : -1;
  const step_summary *last = s->step_count > 0 ? &s->steps[s->step_count - 1] : NULL;
  int64_t own_ns = timed && last != NULL ? last->end_ns - last->begin_ns : 0;
  int64_t step_ns = c->measured.step_ns > 0 ? c->measured.step_ns : own_ns;
  c->step_ps[SIDE_PREDICTED] = median_step_ps(c->predicted.record);
  c->step_ps[SIDE_MEASURED] = step_ns > 0 || timed ? step_ns * PS_PER_NS : -1;
  c->idle_ps[SIDE_PREDICTED] = idle_of(ops, c->step_ps[SIDE_PREDICTED]);
  c->idle_ps[SIDE_MEASURED] = timed ? (s->end_ns - s->begin_ns - s->work_busy_ns) * PS_PER_NS : -1;
}

/* ---- memory ---- */

static void compare_peaks(real_comparison *c)
{
  const trace_figures *f = &c->predicted.record->figures[c->predicted.rank];
  const run_memory *m = c->measured.memory;
  const int64_t predicted[REAL_MEASURES] = { f->allocated_peak_bytes, f->live_peak_bytes,
                                             f->reserved_peak_bytes };
  for (int k = 0; k < REAL_MEASURES; k++) {
    c->peak_bytes[k][SIDE_PREDICTED] = predicted[k];
    c->peak_bytes[k][SIDE_MEASURED] = -1;
  }
  if (m != NULL) {
    c->peak_bytes[REAL_ALLOCATED][SIDE_MEASURED] = m->allocated.bytes;
    c->peak_bytes[REAL_ACTIVE][SIDE_MEASURED] = m->active.bytes;
    c->peak_bytes[REAL_RESERVED][SIDE_MEASURED] = m->reserved_peak_bytes;
  }
  c->theoretical_saving_bytes = f->theoretical_saving_bytes;
  int64_t without[SIDES] = { c->predicted.without_peak_bytes, c->measured.without_peak_bytes };
  if (without[SIDE_MEASURED] < 0) without[SIDE_MEASURED] = without[SIDE_PREDICTED];
  for (int side = 0; side < SIDES; side++) {
    bool known = without[side] >= 0 && c->peak_bytes[REAL_ALLOCATED][side] >= 0;
    c->saving_bytes[side] =
        known ? max_i64(0, without[side] - c->peak_bytes[REAL_ALLOCATED][side]) : -1;
  }
}

/* Between the first work of a pass and that of the next. */
static int64_t highest_between(const run_memory *m, int64_t from_ns, int64_t to_ns)
{
  const real_memory_array *events = &m->run->events;
  int64_t most = run_memory_at(m, from_ns);
  for (uint32_t i = 0; i < events->count; i++)
    if (events->items[i].time_ns >= from_ns && events->items[i].time_ns < to_ns)
      most = max_i64(most, m->allocated_bytes[i + 1]);
  return most;
}

/* From the first op of the pass that is no copy to the last. */
static int64_t predicted_pass_ps(const op_range *ops, const uint32_t *pass_of, uint32_t pass)
{
  int64_t begin_ps = INT64_MAX, end_ps = 0;
  for (uint32_t i = 0; i < ops->count; i++) {
    const trace_op *o = &ops->items[ops->first + i];
    if (pass_of[i] != pass || is_copy_op(o)) continue;
    begin_ps = min_i64(begin_ps, o->begin_ps);
    end_ps = max_i64(end_ps, o->end_ps);
  }
  return max_i64(0, end_ps - begin_ps);
}

static int64_t measured_pass_ps(const real_comparison *c, uint32_t pass)
{
  const real_pass *p = &c->measured.run->passes.items[pass];
  bool known = c->measured.run->has_times && p->begin_ns <= p->end_ns;
  return known ? (p->end_ns - p->begin_ns) * PS_PER_NS : -1;
}

static int64_t measured_pass_peak(const real_comparison *c, uint32_t pass)
{
  const real_run *r = c->measured.run;
  if (c->measured.memory == NULL) return -1;
  int64_t to_ns = pass + 1 < r->passes.count ? r->passes.items[pass + 1].issued_from_ns : INT64_MAX;
  return highest_between(c->measured.memory, r->passes.items[pass].issued_from_ns, to_ns);
}

static void compare_pass_figures(real_comparison *c, const op_range *ops, const uint32_t *pass_of,
                                 arena *a)
{
  if (!c->same_passes) return;
  c->pass_figures = ARENA_ARRAY(a, pass_figures, c->pass_count);
  for (uint32_t i = 0; i < c->pass_count; i++)
    c->pass_figures[i] = (pass_figures){
      .peak_bytes = { -1, measured_pass_peak(c, i) },
      .time_ps = { predicted_pass_ps(ops, pass_of, i), measured_pass_ps(c, i) },
    };
  for (uint32_t i = 0; i < ops->count; i++) {
    if (pass_of[i] == REAL_NONE) continue;
    int64_t *most = &c->pass_figures[pass_of[i]].peak_bytes[SIDE_PREDICTED];
    *most = max_i64(*most, ops->items[ops->first + i].requested_bytes);
  }
}

/* ---- blocks at the peak ---- */

typedef struct peak_block {
  int64_t bytes;
  uint32_t owner; /* predicted: which block; measured: the frame */
} peak_block;

typedef struct peak_block_array {
  peak_block *items;
  uint32_t count, capacity;
} peak_block_array;

static int by_size(const void *left, const void *right)
{
  const peak_block *a = left, *b = right;
  if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
  return (a->owner > b->owner) - (a->owner < b->owner);
}

/* Those allocated within the step; the others are added up. */
static void blocks_at_peak(real_comparison *c, peak_block_array of[SIDES])
{
  const run_memory *m = c->measured.memory;
  for (uint32_t i = 0; i < c->predicted.block_count; i++) {
    const predicted_block *b = &c->predicted.blocks[i];
    if (b->resident)
      c->resident_bytes[SIDE_PREDICTED] += b->bytes;
    else
      *ARRAY_PUSH(&of[SIDE_PREDICTED]) = (peak_block){ b->bytes, i };
  }
  for (uint32_t i = 0; i < m->life_count; i++) {
    const block_life *l = &m->lives[i];
    if (!block_lives_at(l, m->allocated.event)) continue;
    if (l->begin < 0)
      c->resident_bytes[SIDE_MEASURED] += l->bytes;
    else
      *ARRAY_PUSH(&of[SIDE_MEASURED]) =
          (peak_block){ l->bytes, run_memory_owner(m->run, l->stack) };
  }
  for (int side = 0; side < SIDES; side++)
    if (of[side].count > 0) qsort(of[side].items, of[side].count, sizeof *of[side].items, by_size);
}

/* Tensors of one name of one module are one owner. */
static bool same_owner(const real_comparison *c, const block_owner *o, int side, uint32_t owner)
{
  if ((o->predicted != NULL) != (side == SIDE_PREDICTED)) return false;
  if (side == SIDE_MEASURED) return o->frame == owner;
  const predicted_block *b = &c->predicted.blocks[owner];
  return is(o->predicted->tensor, b->tensor) && is(o->predicted->module, b->module);
}

static void add_owner(const real_comparison *c, block_difference *d, int side, uint32_t owner)
{
  bool predicted = side == SIDE_PREDICTED;
  d->count[side]++;
  for (uint32_t i = 0; i < d->owner_count; i++)
    if (same_owner(c, &d->owners[i], side, owner)) {
      d->owners[i].count++;
      return;
    }
  d->owners[d->owner_count++] = (block_owner){ 1, predicted ? &c->predicted.blocks[owner] : NULL,
                                               predicted ? REAL_NONE : owner };
}

/* Stable: owners come in the order of plan and record. */
static void sort_owners(block_difference *d)
{
  for (uint32_t i = 1; i < d->owner_count; i++)
    for (uint32_t j = i; j > 0; j--) {
      block_owner *a = &d->owners[j - 1], *b = &d->owners[j];
      bool other_side = (a->predicted == NULL) != (b->predicted == NULL);
      if (other_side ? a->predicted != NULL : a->count >= b->count) break;
      block_owner kept = *a;
      *a = *b;
      *b = kept;
    }
}

static uint32_t surplus(const block_difference *d)
{
  uint32_t p = d->count[SIDE_PREDICTED], m = d->count[SIDE_MEASURED];
  return p > m ? p - m : m - p;
}

static int by_surplus(const void *left, const void *right)
{
  const block_difference *a = left, *b = right;
  int64_t x = a->bytes * surplus(a), y = b->bytes * surplus(b);
  if (x != y) return x > y ? -1 : 1;
  return (a->bytes < b->bytes) - (a->bytes > b->bytes);
}

/* The run of one size. */
static uint32_t count_of_size(const peak_block_array *of, uint32_t first, int64_t bytes)
{
  uint32_t i = first;
  while (i < of->count && of->items[i].bytes == bytes)
    i++;
  return i - first;
}

static void compare_blocks(real_comparison *c, arena *a)
{
  peak_block_array of[SIDES] = { { 0 } };
  uint32_t at[SIDES] = { 0, 0 };
  c->resident_bytes[SIDE_PREDICTED] = c->resident_bytes[SIDE_MEASURED] = -1;
  if (c->measured.memory == NULL || c->predicted.blocks == NULL) return;
  c->resident_bytes[SIDE_PREDICTED] = c->resident_bytes[SIDE_MEASURED] = 0;
  blocks_at_peak(c, of);
  c->differences = ARENA_ARRAY(a, block_difference, (size_t)of[0].count + of[1].count + 1);
  while (at[0] < of[0].count || at[1] < of[1].count) {
    int64_t bytes = -1;
    for (int side = 0; side < SIDES; side++)
      if (at[side] < of[side].count) bytes = max_i64(bytes, of[side].items[at[side]].bytes);
    uint32_t counts[SIDES] = { count_of_size(&of[0], at[0], bytes),
                               count_of_size(&of[1], at[1], bytes) };
    c->paired_blocks += counts[0] < counts[1] ? counts[0] : counts[1];
    if (counts[0] != counts[1]) {
      block_difference *d = &c->differences[c->difference_count++];
      *d = (block_difference){ .bytes = bytes };
      d->owners = ARENA_ARRAY(a, block_owner, (size_t)counts[0] + counts[1]);
      for (int side = 0; side < SIDES; side++)
        for (uint32_t i = 0; i < counts[side]; i++)
          add_owner(c, d, side, of[side].items[at[side] + i].owner);
      sort_owners(d);
    }
    for (int side = 0; side < SIDES; side++)
      at[side] += counts[side];
  }
  if (c->difference_count > 0)
    qsort(c->differences, c->difference_count, sizeof *c->differences, by_surplus);
  ARRAY_FREE(&of[SIDE_PREDICTED]);
  ARRAY_FREE(&of[SIDE_MEASURED]);
}

/* ---- all ---- */

real_comparison compare_real(const predicted_run *predicted, const measured_run *measured, arena *a)
{
  real_comparison c = { .predicted = *predicted, .measured = *measured, .same_copies = true };
  assert(predicted->rank < predicted->record->header.ranks);
  op_range ops = ops_of(predicted);
  const trace_figures *f = &predicted->record->figures[predicted->rank];
  uint32_t *pass_of = find_predicted_passes(&c, &ops, a);
  c.same_passes = find_measured_passes(&c);
  compare_direction(&c, &c.d2h, &ops, pass_of, true, a);
  compare_direction(&c, &c.h2d, &ops, pass_of, false, a);
  c.d2h.exposed_ps[SIDE_PREDICTED] = f->exposed_d2h_ps;
  c.h2d.exposed_ps[SIDE_PREDICTED] = f->exposed_h2d_ps;
  compare_waits(&c);
  compare_times(&c, &ops);
  compare_peaks(&c);
  compare_pass_figures(&c, &ops, pass_of, a);
  compare_blocks(&c, a);
  return c;
}

bool real_step_error_ppm(const real_comparison *c, int64_t *ppm)
{
  if (c->step_ps[SIDE_PREDICTED] <= 0 || c->step_ps[SIDE_MEASURED] <= 0) return false;
  *ppm = error_ppm(c->step_ps[SIDE_PREDICTED], c->step_ps[SIDE_MEASURED]);
  return true;
}

bool real_peak_error_ppm(const real_comparison *c, int64_t *ppm)
{
  const int64_t *peak = c->peak_bytes[REAL_ALLOCATED];
  if (peak[SIDE_PREDICTED] < 0 || peak[SIDE_MEASURED] <= 0) return false;
  *ppm = error_ppm(peak[SIDE_PREDICTED], peak[SIDE_MEASURED]);
  return true;
}

bool real_ratio_ppm(const real_comparison *c, int side, int64_t *ppm)
{
  if (c->theoretical_saving_bytes <= 0 || c->saving_bytes[side] < 0) return false;
  *ppm = muldiv_i64(c->saving_bytes[side], 1000000, c->theoretical_saving_bytes);
  return true;
}

uint32_t real_wrong_waits(const real_comparison *c)
{
  uint32_t wrong = 0;
  for (int order = 0; order < WAIT_ORDERS; order++)
    wrong += c->d2h.waits[order][WAIT_MISSING] + c->d2h.waits[order][WAIT_LATE] +
             c->h2d.waits[order][WAIT_MISSING] + c->h2d.waits[order][WAIT_LATE];
  return wrong;
}
