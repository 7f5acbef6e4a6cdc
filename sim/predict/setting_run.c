#include "sim/predict/setting_run.h"

#include <assert.h>
#include <string.h>

#include "sim/base/parallel.h"
#include "sim/base/units.h"
#include "sim/memory/caching_allocator.h"
#include "sim/plan/repeats.h"
#include "sim/plan/text.h"

/* ---- figures ---- */

static void take_times(rank_prediction *out, const rank_timeline *t, int64_t step_ps)
{
  assert(t->end_of_rank_ps <= step_ps && t->compute_busy_ps <= t->end_of_rank_ps);
  assert(t->exposed_d2h_ps >= 0 && t->exposed_h2d_ps >= 0 && t->comm_wait_ps >= 0);
  out->step_ps = step_ps;
  out->compute_busy_ps = t->compute_busy_ps;
  out->exposed_d2h_ps = t->exposed_d2h_ps;
  out->exposed_h2d_ps = t->exposed_h2d_ps;
  out->d2h_busy_ps = t->d2h_busy_ps;
  out->h2d_busy_ps = t->h2d_busy_ps;
  out->waiting_slows_ps = t->waiting_slows_ps;
  out->bubble_ps = t->comm_wait_ps + step_ps - t->end_of_rank_ps;
}

/* ---- figures of the ops, in one walk ---- */

typedef struct op_walk {
  rank_prediction *out;
  const plan *of;
  const rank_plan *plan;
  const rank_timeline *times; /* NULL: figures that need none */
  bool in_optimizer;
  bool took_times; /* that may be other ones in each turn */
  int64_t pageable_bytes;
} op_walk;

static bool is_pageable(const rank_plan *p, uint32_t buffer)
{
  return p->buffers.items[buffer].purpose == CLASS_PAGEABLE_HOST;
}

static void add_pageable(op_walk *w, uint32_t buffer, int sign)
{
  if (!is_pageable(w->plan, buffer)) return;
  w->pageable_bytes += sign * w->plan->buffers.items[buffer].bytes;
  w->out->host_pageable_peak_bytes = max_i64(w->out->host_pageable_peak_bytes, w->pageable_bytes);
}

static void add_copy(op_walk *w, uint32_t op)
{
  rank_prediction *out = w->out;
  const plan_op *o = &w->plan->ops.items[op];
  int64_t bytes = copy_bytes(w->of, w->plan, o);
  int64_t optimizer_ps = w->in_optimizer ? op_taken_ps(w->times, op) : 0;
  assert(bytes >= 0);
  if (o->kind == OP_D2H) {
    out->d2h_bytes += bytes;
    out->optimizer_d2h_ps += optimizer_ps;
  } else if (o->kind == OP_H2D) {
    out->h2d_bytes += bytes;
    out->optimizer_h2d_ps += optimizer_ps;
  } else if (o->kind == OP_DISK_WRITE) {
    out->disk_write_bytes += bytes;
  } else {
    out->disk_read_bytes += bytes;
  }
}

/* Takes the ops before op `end`, from number `k` of those that count on. Returns the next one's number. */
static uint32_t take_until(op_walk *w, const memory_ops *m, uint32_t k, uint32_t end)
{
  for (; k < m->counted.count && m->counted.items[k] < end; k++) {
    uint32_t i = m->counted.items[k];
    const plan_op *o = &w->plan->ops.items[i];
    if (o->kind == OP_HOST_ALLOC || o->kind == OP_HOST_FREE) {
      add_pageable(w, o->arg, o->kind == OP_HOST_ALLOC ? 1 : -1);
    } else if (w->times != NULL && o->kind == OP_MARK) {
      w->in_optimizer = w->plan->marks.items[o->arg].kind == MARK_OPTIMIZER;
    } else if (w->times != NULL && o->stream == STREAM_CPU && o->kind == OP_KERNEL) {
      w->out->host_arithmetic_ps += op_taken_ps(w->times, i);
      w->took_times = true;
    } else if (w->times != NULL && op_is_copy((op_kind)o->kind)) {
      add_copy(w, i);
      w->took_times |= w->in_optimizer;
    }
  }
  return k;
}

/* Takes two turns, and what the others come to, if that is the same. */
static uint32_t take_turns_of(op_walk *w, const memory_ops *m, const plan_repeat *turns)
{
  rank_prediction *out = w->out;
  uint32_t second = turns->first + turns->ops, k = take_until(w, m, 0, second);
  const rank_prediction before = *out;
  int64_t pageable_bytes = w->pageable_bytes, more = turns->turns - 2;
  k = take_until(w, m, k, second + turns->ops);
  if (w->took_times || w->pageable_bytes != pageable_bytes) return k;
  out->d2h_bytes += more * (out->d2h_bytes - before.d2h_bytes);
  out->h2d_bytes += more * (out->h2d_bytes - before.h2d_bytes);
  out->disk_write_bytes += more * (out->disk_write_bytes - before.disk_write_bytes);
  out->disk_read_bytes += more * (out->disk_read_bytes - before.disk_read_bytes);
  while (k < m->counted.count && m->counted.items[k] < repeat_end(turns))
    k++;
  return k;
}

/* What is copied, what an optimizer on the host takes (arithmetic, and copies from its mark on), and host
 * memory that is not page-locked. */
static void take_ops(rank_prediction *out, const plan *of, const memory_ops *m,
                     const rank_timeline *t)
{
  const rank_plan *p = m->plan;
  op_walk w = { .out = out, .of = of, .plan = p, .times = t };
  out->d2h_bytes = out->h2d_bytes = out->disk_write_bytes = out->disk_read_bytes = 0;
  out->host_arithmetic_ps = out->optimizer_d2h_ps = out->optimizer_h2d_ps = 0;
  for (uint32_t i = 0; i < p->residents; i++)
    add_pageable(&w, i, 1);
  uint32_t k = p->repeat.turns > 2 ? take_turns_of(&w, m, &p->repeat) : 0;
  take_until(&w, m, k, p->ops.count);
}

static plan_mark mark_at(const rank_plan *p, uint32_t at_op)
{
  assert(p->marks.count > 0);
  for (uint32_t i = at_op < p->ops.count ? at_op + 1 : p->ops.count; i-- > 0;)
    if (p->ops.items[i].kind == OP_MARK) return p->marks.items[p->ops.items[i].arg];
  return p->marks.items[0];
}

/* Where in the model the op is, or what it allocates. */
static const plan_site *site_at(const plan *p, uint32_t rank, uint32_t at_op)
{
  assert(rank < p->rank_count);
  const rank_plan *r = &p->ranks[rank];
  if (at_op >= r->ops.count) return &p->sites.items[0];
  const plan_op *o = &r->ops.items[at_op];
  if (o->site != 0 || o->kind != OP_ALLOC) return &p->sites.items[o->site];
  return &p->sites.items[p->tensors.items[r->buffers.items[o->arg].tensor].site];
}

static void take_groups(rank_prediction *out, const compilation *c, uint32_t rank)
{
  out->groups = c->groups[rank];
  out->offloaded_groups = c->offloaded_groups[rank];
  assert(out->offloaded_groups <= out->groups);
}

/* Of the first of equal iterations: the later ones differ in the blocks' unsplit tails, and a saving compares
 * the first with the first. */
static void take_allocated(rank_prediction *out, const replay_result *r)
{
  assert(r->allocated_end_bytes <= r->allocated_peak_bytes);
  out->static_bytes = r->allocated_end_bytes;
  out->allocated_peak_bytes = out->steady_allocated_peak_bytes = r->allocated_peak_bytes;
  out->requested_peak_bytes = r->requested_peak_bytes;
  out->peak_op = r->allocated_peak_op;
}

/* The most of all iterations that are taken. */
static void take_highest(rank_prediction *out, const replay_result *r)
{
  assert(r->live_peak_bytes <= r->reserved_peak_bytes);
  assert(r->host_exact_peak_bytes <= r->host_pow2_peak_bytes);
  out->live_peak_bytes = max_i64(out->live_peak_bytes, r->live_peak_bytes);
  out->reserved_peak_bytes = max_i64(out->reserved_peak_bytes, r->reserved_peak_bytes);
  out->host_pinned_peak_bytes = max_i64(out->host_pinned_peak_bytes, r->host_exact_peak_bytes);
  out->host_pinned_pow2_bytes = max_i64(out->host_pinned_pow2_bytes, r->host_pow2_peak_bytes);
  out->out_of_memory |= r->out_of_memory;
}

static void explain_peak(rank_prediction *out, const plan *p, const plan_modules *modules,
                         uint32_t rank, const memory_ops *m, arena *a)
{
  int64_t lives_bytes = 0;
  const plan_site *site = site_at(p, rank, out->peak_op);
  out->peak_module = site->module;
  out->peak_layer = site->layer;
  out->peak_mark = mark_at(m->plan, out->peak_op);
  out->peak_holdings = replay_holdings(p, modules, m, out->peak_op, &out->peak_holding_count, a);
  for (uint32_t i = 0; i < out->peak_holding_count; i++) {
    out->peak_by_class[out->peak_holdings[i].purpose] += out->peak_holdings[i].bytes;
    lives_bytes += out->peak_holdings[i].bytes;
  }
  assert(lives_bytes <= out->requested_peak_bytes);
}

/* ---- replay ---- */

/* What a turn works on. Ranks, and both iterations, have memory of their own: threads share none. */
typedef struct turn {
  setting_run *run;
  uint32_t ranks;
  replay **replays;                  /* by rank: from iteration to iteration */
  hold_list *holds[ITERATION_KINDS]; /* by rank: requests that were refused so far */
  bool *refused[ITERATION_KINDS];    /* by rank: a request that had no hold */
  bool is_timed[ITERATION_KINDS];    /* with these holds */
  bool is_first;                     /* of the turns */
  bool first_untimed; /* nothing waits, so the peaks of the first iteration need no times */
  plan_safety safety[ITERATION_KINDS];
  plan_modules modules[ITERATION_KINDS]; /* if peaks are explained */
  memory_ops *ops[ITERATION_KINDS];      /* by rank, while it is replayed */
  bool *was_held;                        /* by rank: its figures are not those of the first turn */
  arena memory[ITERATION_KINDS], *rank_memory;
  diag errors[ITERATION_KINDS];
} turn;

/* A request that never fits does not hold up the host. */
static void take_refusals(turn *t, iteration_kind kind, uint32_t rank, rank_prediction *out,
                          const replay_result *memory)
{
  hold_list *holds = &t->holds[kind][rank];
  t->refused[kind][rank] = !memory->out_of_memory && holds_add(holds, memory->refused);
  out->back_pressure = holds_that_wait(memory->out_of_memory ? memory->refused : holds);
}

/*
 * The first iteration cuts its segments differently from a steady one, since the optimizer's states
 * come only at its end: the second steady iteration may need a segment more than the first, and
 * seldom the third one more than the second. Where buffers that outlive an iteration change places
 * with free blocks for ever, no segment is known to be the last: compared runs have few steps.
 */
enum { MOST_STEADY_ITERATIONS = 8 };

/*
 * Repeats the first steady iteration, which came to `memory`, until no segment is added; returns
 * what the last one came to.
 */
static replay_result repeat_iteration(turn *t, uint32_t rank, replay_result memory,
                                      rank_prediction *out)
{
  setting_run *r = t->run;
  int64_t before_bytes = -1;
  assert(memory.allocated_start_bytes <= memory.allocated_peak_bytes);
  for (int i = 1; i < MOST_STEADY_ITERATIONS; i++) {
    if (memory.out_of_memory || memory.reserved_peak_bytes == before_bytes) break;
    before_bytes = memory.reserved_peak_bytes;
    memory = replay_again(t->replays[rank], &setting_run_times(r, ITERATION_STEADY)->ranks[rank]);
    take_highest(out, &memory);
  }
  return memory;
}

static void keep_curve(turn *t, uint32_t rank)
{
  const rank_plan *p = &t->run->common->compiled[ITERATION_STEADY].plan.ranks[rank];
  memory_curve *curve = &t->run->curves[rank];
  if (curve->allocated_bytes == NULL)
    *curve = (memory_curve){ ARENA_ARRAY(&t->rank_memory[rank], int64_t, p->ops.count),
                             ARENA_ARRAY(&t->rank_memory[rank], int64_t, p->ops.count),
                             ARENA_ARRAY(&t->rank_memory[rank], int64_t, p->ops.count) };
  replay_keep_curve(t->replays[rank], curve);
}

/* NULL: the iteration is not timed. */
static const rank_timeline *times_of(const turn *t, iteration_kind kind, uint32_t rank)
{
  assert(rank < t->ranks);
  return t->is_timed[kind] ? &setting_run_times(t->run, kind)->ranks[rank] : NULL;
}

/* The rank's first iteration as other settings have it, too; NULL: it is not kept, or not theirs. */
static first_replay *first_of(const turn *t, uint32_t rank)
{
  const setting_run *r = t->run;
  if (!t->is_first || t->first_untimed) return NULL;
  return common_plans_first(r->common, r->settings, r->capacity_bytes, rank);
}

/* The first iteration, with a new replay or a copy of one that has done it. */
static replay_result begin(turn *t, uint32_t rank)
{
  const setting_run *r = t->run;
  replay_options options = { .capacity_bytes = r->capacity_bytes,
                             .expandable_segments = r->settings->software.expandable_segments };
  first_replay *first = first_of(t, rank);
  if (first != NULL && first->after != NULL) {
    t->replays[rank] = replay_copy(first->after, &t->rank_memory[rank]);
    return first->came_to;
  }
  t->replays[rank] = replay_new(&options, &t->rank_memory[rank]);
  replay_result memory = replay_ops(t->replays[rank], &t->ops[ITERATION_WARMUP][rank],
                                    times_of(t, ITERATION_WARMUP, rank));
  if (first != NULL) {
    first->after = replay_copy(t->replays[rank], &first->memory);
    first->came_to = memory;
    first->came_to.refused = replay_refused(first->after);
  }
  return memory;
}

/* False: memory ran out, and what would have been allocated is not known. */
static bool replay_kind(turn *t, iteration_kind kind, uint32_t rank)
{
  setting_run *r = t->run;
  const compilation *c = &r->common->compiled[kind];
  rank_prediction *out = &r->predicted[kind].ranks[rank];
  *out = (rank_prediction){ 0 };
  take_groups(out, c, rank);
  if (r->curves != NULL && kind == ITERATION_STEADY) keep_curve(t, rank);
  replay_result memory =
      kind == ITERATION_WARMUP
          ? begin(t, rank)
          : replay_ops(t->replays[rank], &t->ops[kind][rank], times_of(t, kind, rank));
  bool fits = !memory.out_of_memory;
  take_allocated(out, &memory);
  take_highest(out, &memory);
  if (kind == ITERATION_STEADY) memory = repeat_iteration(t, rank, memory, out);
  take_refusals(t, kind, rank, out, &memory);
  return fits;
}

/* Allocated bytes without a limit of memory. No freed block waits: the times end where memory ran out. */
static void replay_without_limit(turn *t, uint32_t rank)
{
  const setting_run *r = t->run;
  replay_options options = { .capacity_bytes = ALLOCATOR_UNLIMITED_BYTES,
                             .expandable_segments = r->settings->software.expandable_segments };
  replay *unlimited = replay_new(&options, &t->rank_memory[rank]);
  for (int kind = 0; kind < ITERATION_KINDS; kind++) {
    if (r->curves != NULL && kind == ITERATION_STEADY)
      replay_keep_curve(unlimited, &r->curves[rank]);
    replay_result memory = replay_ops(unlimited, &t->ops[kind][rank], NULL);
    take_allocated(&r->predicted[kind].ranks[rank], &memory);
  }
  replay_release(unlimited);
}

/* Times and copies; without times, the peaks alone. */
static void take_figures(turn *t, iteration_kind kind, uint32_t rank)
{
  setting_run *r = t->run;
  const plan *p = &r->common->compiled[kind].plan;
  const rank_timeline *times = times_of(t, kind, rank);
  rank_prediction *out = &r->predicted[kind].ranks[rank];
  take_ops(out, p, &t->ops[kind][rank], times);
  if (times == NULL) return;
  if (r->explains_peaks)
    explain_peak(out, p, &t->modules[kind], rank, &t->ops[kind][rank], &t->rank_memory[rank]);
  take_times(out, times, setting_run_times(r, kind)->step_ps);
}

/* Other times, at which the replay comes to the same: whatever was refused has its hold. */
static void take_times_anew(turn *t, iteration_kind kind, uint32_t rank)
{
  setting_run *r = t->run;
  const plan *p = &r->common->compiled[kind].plan;
  const rank_timeline *times = times_of(t, kind, rank);
  t->refused[kind][rank] = false;
  if (times == NULL) return;
  take_ops(&r->predicted[kind].ranks[rank], p, &t->ops[kind][rank], times);
  take_times(&r->predicted[kind].ranks[rank], times, setting_run_times(r, kind)->step_ps);
}

/* Since the process began: what the first iteration reached counts for the later ones. */
static void carry_peaks(rank_prediction *steady, const rank_prediction *first)
{
  assert(steady->allocated_peak_bytes == steady->steady_allocated_peak_bytes && "not yet carried");
  steady->allocated_peak_bytes = max_i64(steady->allocated_peak_bytes, first->allocated_peak_bytes);
  steady->reserved_peak_bytes = max_i64(steady->reserved_peak_bytes, first->reserved_peak_bytes);
  steady->host_pinned_peak_bytes =
      max_i64(steady->host_pinned_peak_bytes, first->host_pinned_peak_bytes);
  steady->host_pinned_pow2_bytes =
      max_i64(steady->host_pinned_pow2_bytes, first->host_pinned_pow2_bytes);
  steady->host_pageable_peak_bytes =
      max_i64(steady->host_pageable_peak_bytes, first->host_pageable_peak_bytes);
  steady->out_of_memory |= first->out_of_memory;
}

static void replay_both(turn *t, uint32_t rank)
{
  const setting_run *r = t->run;
  bool fits = replay_kind(t, ITERATION_WARMUP, rank);
  fits = replay_kind(t, ITERATION_STEADY, rank) && fits;
  replay_release(t->replays[rank]);
  if (!fits) replay_without_limit(t, rank);
  for (int kind = 0; kind < ITERATION_KINDS; kind++)
    take_figures(t, (iteration_kind)kind, rank);
  carry_peaks(&r->predicted[ITERATION_STEADY].ranks[rank],
              &r->predicted[ITERATION_WARMUP].ranks[rank]);
}

/* Whether the rank's figures are those of the first turn, and the holds since then change none of them. */
static bool is_as_first(const turn *t, uint32_t rank)
{
  bool same = !t->is_first && !t->was_held[rank];
  for (int kind = 0; kind < ITERATION_KINDS && same; kind++)
    same = !t->is_timed[kind] ||
           replay_is_same(&t->ops[kind][rank], &t->run->common->times[kind].ranks[rank],
                          times_of(t, (iteration_kind)kind, rank));
  return same;
}

static void replay_rank(void *context, uint32_t rank)
{
  turn *t = context;
  for (int kind = 0; kind < ITERATION_KINDS; kind++)
    t->ops[kind][rank] = memory_ops_new(&t->run->common->compiled[kind].plan.ranks[rank]);
  if (is_as_first(t, rank)) {
    for (int kind = 0; kind < ITERATION_KINDS; kind++)
      take_times_anew(t, (iteration_kind)kind, rank);
  } else {
    t->was_held[rank] = !t->is_first;
    replay_both(t, rank);
  }
  for (int kind = 0; kind < ITERATION_KINDS; kind++)
    memory_ops_release(&t->ops[kind][rank]);
}

/* ---- simulate, verify ---- */

/* The given plan takes the compiled one's place. */
static void take_given(void *context, uint32_t kind)
{
  turn *t = context;
  const plan_text *text = &t->run->plans->of[kind];
  compilation *c = &t->run->common->compiled[kind];
  diag *d = &t->errors[kind];
  plan given;
  if (!plan_parse(&given, text->file, text->text, text->length, &t->memory[kind], d)) return;
  bool fits = given.rank_count == c->plan.rank_count;
  if (!fits)
    diag_error(d, (source_pos){ text->file, 0, 0 },
               "the plan has %u pipeline ranks, the scenario %u", given.rank_count,
               c->plan.rank_count);
  plan_release(fits ? &c->plan : &given);
  if (fits) c->plan = given;
}

static bool is_held(const turn *t, uint32_t kind)
{
  for (uint32_t i = 0; i < t->ranks; i++)
    if (t->holds[kind][i].count > 0) return true;
  return false;
}

static void time_iteration(turn *t, uint32_t kind)
{
  setting_run *r = t->run;
  bool held = is_held(t, kind);
  timeline *times = held ? &r->held[kind] : &r->common->times[kind];
  timeline_release(&r->held[kind]);
  if (times->rank_count == 0 &&
      !simulate_held(times, &r->common->compiled[kind].plan, r->machine, r->places,
                     held ? t->holds[kind] : NULL, r->threads, &t->errors[kind]))
    return;
  r->predicted[kind].step_ps = times->step_ps;
  t->is_timed[kind] = true;
}

/* The steady iteration takes longest, so it comes first. Verifying comes before timing: times stay, and then
 * take the memory that it has used. */
enum { VERIFY_STEADY, VERIFY_FIRST, TIME_STEADY, TIME_FIRST, PLAN_WORKS };

static void work_on_plan(void *context, uint32_t work)
{
  turn *t = context;
  const plan *first = &t->run->common->compiled[ITERATION_WARMUP].plan;
  const plan *steady = &t->run->common->compiled[ITERATION_STEADY].plan;
  bool verifies = t->run->verifies && t->is_first;
  if (work == TIME_STEADY && !t->is_timed[ITERATION_STEADY])
    time_iteration(t, ITERATION_STEADY);
  else if (work == TIME_FIRST && !t->is_timed[ITERATION_WARMUP] && !t->first_untimed)
    time_iteration(t, ITERATION_WARMUP);
  else if (work == VERIFY_STEADY && verifies)
    t->safety[ITERATION_STEADY] = plan_safety_of(steady, first, t->run->threads);
  else if (work == VERIFY_FIRST && verifies)
    t->safety[ITERATION_WARMUP] = plan_safety_of(first, NULL, t->run->threads);
}

/* ---- turns ---- */

/* The error that comes first in the order of iterations. */
static bool take_errors(const turn *t, diag *d)
{
  for (int kind = 0; kind < ITERATION_KINDS; kind++)
    if (!diag_ok(&t->errors[kind])) {
      *d = t->errors[kind];
      return false;
    }
  return true;
}

/* What was refused holds up the host: then the iteration has other times. */
static bool is_settled(turn *t)
{
  bool settled = true;
  for (int kind = t->first_untimed ? ITERATION_STEADY : 0; kind < ITERATION_KINDS; kind++)
    for (uint32_t i = 0; i < t->ranks; i++)
      if (t->refused[kind][i]) settled = t->is_timed[kind] = false;
  return settled;
}

/* A rank allocates more than there is, whatever the times. Then the process ends, and no rank waits for
 * memory: the times stay those that enough memory would give. */
static bool can_never_fit(const turn *t)
{
  const rank_prediction *ranks = t->run->predicted[ITERATION_STEADY].ranks;
  for (uint32_t i = 0; i < t->ranks; i++)
    if (ranks[i].out_of_memory && ranks[i].allocated_peak_bytes > t->run->capacity_bytes)
      return true;
  return false;
}

static bool needs_times(const turn *t)
{
  bool needs = !t->run->steady_alone;
  for (int kind = 0; kind < ITERATION_KINDS; kind++)
    for (uint32_t i = 0; i < t->ranks && !needs; i++)
      needs = replay_needs_times(&t->run->common->compiled[kind].plan.ranks[i]);
  return needs;
}

/* Holds found in one turn shift what comes after them; few turns find all but a few. */
enum { MOST_TURNS = 6 };

static bool take_turn(turn *t, diag *d)
{
  parallel_for(PLAN_WORKS, t->run->threads, work_on_plan, t);
  if (!take_errors(t, d)) return false;
  parallel_for(t->ranks, t->run->threads, replay_rank, t);
  return true;
}

static bool take_turns(turn *t, diag *d)
{
  if (t->run->plans != NULL) parallel_for(ITERATION_KINDS, t->run->threads, take_given, t);
  if (!take_errors(t, d)) return false;
  for (int kind = 0; kind < ITERATION_KINDS && t->run->explains_peaks; kind++)
    t->modules[kind] = plan_modules_of(&t->run->common->compiled[kind].plan, &t->memory[kind]);
  t->first_untimed = !needs_times(t);
  t->is_first = true;
  if (!take_turn(t, d)) return false;
  t->is_first = false;
  for (int i = 1; i < MOST_TURNS && !can_never_fit(t) && !is_settled(t); i++)
    if (!take_turn(t, d)) return false;
  if (t->run->verifies)
    t->run->safety = safety_summary_of(&t->safety[ITERATION_WARMUP], &t->safety[ITERATION_STEADY]);
  return true;
}

/* ---- figures that are known ---- */

/* Those of settings with the same plans, unless the run is asked for more. */
static known_figures *known_of(const setting_run *r)
{
  bool more =
      r->plans != NULL || r->verifies || r->steady_alone || r->explains_peaks || r->curves != NULL;
  return more ? NULL : &r->common->figures[r->settings->software.expandable_segments];
}

static void copy_ranks(iteration_prediction *to, const iteration_prediction *from, uint32_t ranks)
{
  to->step_ps = from->step_ps;
  memcpy(to->ranks, from->ranks, ranks * sizeof *to->ranks);
}

static bool recall_figures(setting_run *r, uint32_t ranks)
{
  const known_figures *known = known_of(r);
  if (known == NULL || known->of == NULL || known->capacity_bytes != r->capacity_bytes)
    return false;
  for (int kind = 0; kind < ITERATION_KINDS; kind++) {
    copy_ranks(&r->predicted[kind], &known->of[kind], ranks);
    for (uint32_t i = 0; i < ranks; i++)
      take_groups(&r->predicted[kind].ranks[i], &r->common->compiled[kind], i);
  }
  return true;
}

static void keep_figures(const setting_run *r, uint32_t ranks)
{
  known_figures *known = known_of(r);
  bool kept = r->common->first[r->settings->software.expandable_segments] != NULL;
  if (!kept || known == NULL || known->of != NULL) return;
  known->capacity_bytes = r->capacity_bytes;
  known->of = ARENA_ARRAY(&known->memory, iteration_prediction, ITERATION_KINDS);
  for (int kind = 0; kind < ITERATION_KINDS; kind++) {
    known->of[kind].ranks = ARENA_ARRAY(&known->memory, rank_prediction, ranks);
    copy_ranks(&known->of[kind], &r->predicted[kind], ranks);
  }
}

bool setting_run_predict(setting_run *r, arena *a, diag *d)
{
  uint32_t ranks = (uint32_t)r->settings->parallel.pipeline_model_parallel_size;
  turn t = { .run = r, .ranks = ranks };
  assert(r->threads >= 1);
  t.replays = ARENA_ARRAY(a, replay *, ranks);
  t.rank_memory = ARENA_ARRAY(a, arena, ranks);
  t.was_held = ARENA_ARRAY(a, bool, ranks);
  for (int kind = 0; kind < ITERATION_KINDS; kind++) {
    t.errors[kind].quiet = d->quiet;
    t.holds[kind] = ARENA_ARRAY(a, hold_list, ranks);
    t.refused[kind] = ARENA_ARRAY(a, bool, ranks);
    t.ops[kind] = ARENA_ARRAY(a, memory_ops, ranks);
    r->predicted[kind].ranks = ARENA_ARRAY(a, rank_prediction, ranks);
  }
  bool ok = common_plans_compile_both(r->common, r->settings, r->threads, a, d) &&
            (recall_figures(r, ranks) || take_turns(&t, d));
  if (ok) keep_figures(r, ranks);
  for (int kind = 0; kind < ITERATION_KINDS; kind++) {
    for (uint32_t i = 0; i < ranks; i++)
      ARRAY_FREE(&t.holds[kind][i]);
    arena_take(a, &t.memory[kind]);
  }
  for (uint32_t i = 0; i < ranks; i++)
    arena_take(a, &t.rank_memory[i]);
  return ok;
}

timeline *setting_run_times(setting_run *r, iteration_kind kind)
{
  timeline *held = &r->held[kind];
  return held->rank_count > 0 ? held : &r->common->times[kind];
}

void setting_run_release(setting_run *r)
{
  for (int kind = 0; kind < ITERATION_KINDS; kind++)
    timeline_release(&r->held[kind]);
}
