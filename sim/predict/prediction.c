#include "sim/predict/prediction.h"
#include "sim/machine/host_work.h"

#include <assert.h>

#include "sim/base/units.h"
#include "sim/memory/caching_allocator.h"
#include "sim/offload/systems.h"
#include "sim/plan/text.h"
#include "sim/predict/places.h"

/* ---- where ranks stand ---- */

/* Of the hosts that a rank's replicas fill, the last represents all: it may hold other ranks too.
 */
static rank_place place_of_rank(const int64_t *global_ranks, int64_t count, int64_t gpus,
                                int64_t segment_gpus)
{
  assert(count > 0 && gpus > 0 && segment_gpus % gpus == 0);
  int64_t host = global_ranks[count - 1] / gpus, first = count - 1;
  while (first > 0 && global_ranks[first - 1] / gpus == host)
    first--;
  return (rank_place){ .domain = (uint32_t)(global_ranks[count - 1] / segment_gpus),
                       .host = (uint32_t)host,
                       .gpu = (uint32_t)(global_ranks[first] % gpus),
                       .multiplicity = (uint32_t)(count - first) };
}

/* Ranks of one host share its links (Megatron's rank order). */
const rank_place *places_of_ranks(const settings *s, const machine *m, arena *a)
{
  uint32_t ranks = (uint32_t)s->parallel.pipeline_model_parallel_size;
  rank_place *places = ARENA_ARRAY(a, rank_place, ranks);
  arena scratch = { 0 };
  int64_t count = settings_global_ranks(s, 0, NULL);
  int64_t *global_ranks = ARENA_ARRAY(&scratch, int64_t, (size_t)count);
  int64_t segment_gpus = machine_segment_gpus(m, count * ranks);
  for (uint32_t r = 0; r < ranks; r++) {
    settings_global_ranks(s, r, global_ranks);
    places[r] = place_of_rank(global_ranks, count, m->host.gpus, segment_gpus);
    places[r].far_memory = s->machine.pinned_memory == PINNED_FAR;
  }
  arena_release(&scratch);
  return places;
}

/* ---- one iteration ---- */

static void count_copies(rank_prediction *out, const rank_plan *p)
{
  for (uint32_t i = 0; i < p->ops.count; i++) {
    const plan_op *o = &p->ops.items[i];
    if (!op_is_copy((op_kind)o->kind)) continue;
    int64_t bytes = copy_host_buffer(p, o)->bytes;
    assert(bytes >= 0);
    if (o->kind == OP_D2H)
      out->d2h_bytes += bytes;
    else if (o->kind == OP_H2D)
      out->h2d_bytes += bytes;
    else if (o->kind == OP_DISK_WRITE)
      out->disk_write_bytes += bytes;
    else
      out->disk_read_bytes += bytes;
  }
}

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

static plan_mark mark_at(const rank_plan *p, uint32_t at_op)
{
  assert(p->marks.count > 0);
  plan_mark found = p->marks.items[0];
  for (uint32_t i = 0; i <= at_op && i < p->ops.count; i++)
    if (p->ops.items[i].kind == OP_MARK) found = p->marks.items[p->ops.items[i].arg];
  return found;
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

static void take_memory_in_order(rank_prediction *out, const replay_result *r)
{
  assert(r->requested_peak_bytes <= r->allocated_peak_bytes);
  assert(r->allocated_end_bytes <= r->allocated_peak_bytes);
  out->static_bytes = r->allocated_end_bytes;
  out->allocated_peak_bytes = out->steady_allocated_peak_bytes = r->allocated_peak_bytes;
  out->requested_peak_bytes = r->requested_peak_bytes;
  out->peak_op = r->allocated_peak_op;
}

/* The most of all iterations that are taken. */
static void take_memory_on_clock(rank_prediction *out, const replay_result *r)
{
  assert(r->live_peak_bytes <= r->reserved_peak_bytes);
  assert(r->host_exact_peak_bytes <= r->host_pow2_peak_bytes);
  out->live_peak_bytes = max_i64(out->live_peak_bytes, r->live_peak_bytes);
  out->reserved_peak_bytes = max_i64(out->reserved_peak_bytes, r->reserved_peak_bytes);
  out->host_pinned_peak_bytes = max_i64(out->host_pinned_peak_bytes, r->host_exact_peak_bytes);
  out->host_pinned_pow2_bytes = max_i64(out->host_pinned_pow2_bytes, r->host_pow2_peak_bytes);
  out->out_of_memory |= r->out_of_memory;
}

static void look_at_peak(rank_prediction *out, const plan *p, uint32_t rank, arena *a)
{
  int64_t lives_bytes = 0;
  const plan_site *site = site_at(p, rank, out->peak_op);
  out->peak_module = site->module;
  out->peak_layer = site->layer;
  out->peak_mark = mark_at(&p->ranks[rank], out->peak_op);
  out->peak_holdings = replay_holdings(p, rank, out->peak_op, &out->peak_holding_count, a);
  for (uint32_t i = 0; i < out->peak_holding_count; i++) {
    out->peak_by_class[out->peak_holdings[i].purpose] += out->peak_holdings[i].bytes;
    lives_bytes += out->peak_holdings[i].bytes;
  }
  assert(lives_bytes <= out->requested_peak_bytes);
}

typedef struct run {
  const settings *settings;
  const given_plans *plans; /* NULL: compiled */
  const machine *machine;
  const rank_place *places;
  int64_t capacity_bytes;
  replay **replays;     /* by rank: from iteration to iteration */
  memory_curve *curves; /* by rank: of the steady state; NULL: not kept */
  hold_list *holds[2];  /* by iteration_kind and rank: requests that were refused so far */
  arena *memory;
  bool refused; /* a request that had no hold */
} run;

/* A request that never fits does not hold up the host. */
static void take_refusals(run *r, hold_list *holds, rank_prediction *out,
                          const replay_result *memory)
{
  if (!memory->out_of_memory) r->refused |= holds_add(holds, memory->refused);
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
 * what the last one came to. In program order, all are the same but for the blocks' unsplit tails:
 * these figures stay those of the first, as a saving compares the first with the first.
 */
static replay_result repeat_iteration(const run *r, uint32_t rank, const rank_plan *p,
                                      const rank_timeline *t, replay_result memory,
                                      rank_prediction *out)
{
  memory_curve on_clock;
  int64_t before_bytes = -1;
  assert(memory.allocated_start_bytes <= memory.allocated_peak_bytes);
  if (r->curves != NULL) {
    /* The allocated curve stays that of the first steady iteration, as its peak does. */
    on_clock = r->curves[rank];
    on_clock.allocated_bytes = NULL;
    replay_keep_curve(r->replays[rank], &on_clock);
  }
  for (int i = 1; i < MOST_STEADY_ITERATIONS; i++) {
    if (memory.out_of_memory || memory.reserved_peak_bytes == before_bytes) break;
    before_bytes = memory.reserved_peak_bytes;
    memory = replay_iteration(r->replays[rank], p, t);
    take_memory_on_clock(out, &memory);
  }
  replay_keep_curve(r->replays[rank], NULL);
  return memory;
}

/* Memory, times and copies of one rank whose ops have their times. */
static void predict_rank(run *r, iteration_kind kind, const compilation *c, const timeline *t,
                         uint32_t rank, rank_prediction *out)
{
  const rank_plan *p = &c->plan.ranks[rank];
  const rank_timeline *times = &t->ranks[rank];
  if (r->curves != NULL && kind == ITERATION_STEADY) {
    r->curves[rank] = (memory_curve){ ARENA_ARRAY(r->memory, int64_t, p->ops.count),
                                      ARENA_ARRAY(r->memory, int64_t, p->ops.count),
                                      ARENA_ARRAY(r->memory, int64_t, p->ops.count) };
    replay_keep_curve(r->replays[rank], &r->curves[rank]);
  }
  replay_result memory = replay_iteration(r->replays[rank], p, times);
  take_memory_in_order(out, &memory);
  take_memory_on_clock(out, &memory);
  if (kind == ITERATION_STEADY) memory = repeat_iteration(r, rank, p, times, memory, out);
  take_refusals(r, &r->holds[kind][rank], out, &memory);
  look_at_peak(out, &c->plan, rank, r->memory);
  take_times(out, times, t->step_ps);
  count_copies(out, p);
  out->groups = c->groups[rank];
  out->offloaded_groups = c->offloaded_groups[rank];
  assert(out->offloaded_groups <= out->groups);
}

/* The given plan takes the compiled one's place. */
static bool take_given(run *r, iteration_kind kind, compilation *c, diag *d)
{
  const plan_text *text = &r->plans->of[kind];
  plan given;
  if (!plan_parse(&given, text->file, text->text, text->length, r->memory, d)) return false;
  bool fits = given.rank_count == c->plan.rank_count;
  if (!fits)
    diag_error(d, (source_pos){ text->file, 0, 0 },
               "the plan has %u pipeline ranks, the scenario %u", given.rank_count,
               c->plan.rank_count);
  plan_release(fits ? &c->plan : &given);
  if (fits) c->plan = given;
  return fits;
}

static bool run_iteration(run *r, iteration_kind kind, compilation *c, timeline *t,
                          iteration_prediction *out, diag *d)
{
  if (!compile(c, r->settings, kind, r->memory, d) ||
      (r->plans != NULL && !take_given(r, kind, c, d)) ||
      !simulate_held(t, &c->plan, r->machine, r->places, r->holds[kind], d))
    return false;
  out->step_ps = t->step_ps;
  out->ranks = ARENA_ARRAY(r->memory, rank_prediction, c->plan.rank_count);
  for (uint32_t i = 0; i < c->plan.rank_count; i++)
    predict_rank(r, kind, c, t, i, &out->ranks[i]);
  return true;
}

/* Since the process began: what the first iteration reached counts for the later ones. */
static void carry_peaks(iteration_prediction *steady, const iteration_prediction *first,
                        uint32_t ranks)
{
  for (uint32_t i = 0; i < ranks; i++) {
    rank_prediction *s = &steady->ranks[i];
    const rank_prediction *f = &first->ranks[i];
    assert(s->allocated_peak_bytes == s->steady_allocated_peak_bytes && "not yet carried");
    s->allocated_peak_bytes = max_i64(s->allocated_peak_bytes, f->allocated_peak_bytes);
    s->reserved_peak_bytes = max_i64(s->reserved_peak_bytes, f->reserved_peak_bytes);
    s->host_pinned_peak_bytes = max_i64(s->host_pinned_peak_bytes, f->host_pinned_peak_bytes);
    s->host_pinned_pow2_bytes = max_i64(s->host_pinned_pow2_bytes, f->host_pinned_pow2_bytes);
    s->out_of_memory |= f->out_of_memory;
  }
}

/* First iteration and steady iterations from an empty device on; the steady ones' plan and times
 * stay with the caller. */
static bool run_iterations(run *r, uint32_t ranks, iteration_prediction *first,
                           iteration_prediction *steady, compilation *c, timeline *t, diag *d)
{
  replay_options options = { .capacity_bytes = r->capacity_bytes,
                             .expandable_segments = r->settings->software.expandable_segments };
  for (uint32_t i = 0; i < ranks; i++)
    r->replays[i] = replay_new(&options, r->memory);
  compilation warm = { 0 };
  timeline warm_times = { 0 };
  bool ok = run_iteration(r, ITERATION_WARMUP, &warm, &warm_times, first, d);
  timeline_release(&warm_times);
  compilation_release(&warm);
  ok = ok && run_iteration(r, ITERATION_STEADY, c, t, steady, d);
  if (ok) carry_peaks(steady, first, ranks);
  for (uint32_t i = 0; i < ranks; i++)
    replay_release(r->replays[i]);
  return ok;
}

/* Holds found in one turn shift what comes after them; few turns find all but a few. */
enum { MOST_TURNS = 6 };

static bool run_setting(const settings *s, const given_plans *plans, const machine *m,
                        const rank_place *places, int64_t capacity_bytes,
                        iteration_prediction *first, iteration_prediction *steady, compilation *c,
                        timeline *t, memory_curve *curves, arena *a, diag *d)
{
  uint32_t ranks = (uint32_t)s->parallel.pipeline_model_parallel_size;
  run r = { .settings = s,
            .plans = plans,
            .machine = m,
            .places = places,
            .capacity_bytes = capacity_bytes,
            .curves = curves,
            .memory = a };
  r.replays = ARENA_ARRAY(a, replay *, ranks);
  for (int kind = 0; kind < 2; kind++)
    r.holds[kind] = ARENA_ARRAY(a, hold_list, ranks);
  bool ok = run_iterations(&r, ranks, first, steady, c, t, d);
  for (int turn = 1; ok && r.refused && turn < MOST_TURNS; turn++) {
    timeline_release(t);
    compilation_release(c);
    r.refused = false;
    ok = run_iterations(&r, ranks, first, steady, c, t, d);
  }
  for (int kind = 0; kind < 2; kind++)
    for (uint32_t i = 0; i < ranks; i++)
      ARRAY_FREE(&r.holds[kind][i]);
  return ok;
}

/* ---- beside the run without offload ---- */

static void compare(prediction *p, arena *a)
{
  for (uint32_t i = 0; i < p->rank_count; i++) {
    rank_prediction *with = &p->result.ranks[i];
    with->theoretical_saving_bytes = theoretical_saving_bytes(&p->steady.shapes[i], a);
    with->simulated_saving_bytes =
        p->baseline.ranks[i].steady_allocated_peak_bytes - with->steady_allocated_peak_bytes;
  }
}

/* All GPUs of the fullest host, replicas included. */
static int64_t fullest_host(const prediction *p, const rank_place *places)
{
  int64_t most = 0;
  for (uint32_t i = 0; i < p->rank_count; i++) {
    int64_t total = 0;
    assert(places[i].multiplicity > 0);
    for (uint32_t k = 0; k < p->rank_count; k++)
      if (places[k].host == places[i].host)
        total += p->result.ranks[k].host_pinned_pow2_bytes * places[k].multiplicity;
    most = max_i64(most, total);
  }
  return most;
}

/* ---- does it fit? ---- */

/* Whatever its allocator does. */
static int64_t missing_by_allocation(const prediction *p, const rank_prediction *r)
{
  return max_i64(r->allocated_peak_bytes - p->capacity_bytes, 0);
}

static bool may_be_fragmented(const prediction *p)
{
  for (uint32_t i = 0; i < p->rank_count; i++) {
    const rank_prediction *r = &p->result.ranks[i];
    if (r->out_of_memory && missing_by_allocation(p, r) == 0) return true;
  }
  return false;
}

/* The least that an allocator can be short of: memory of the driver comes in granules. */
#define LEAST_MISSING_BYTES (2 * MIB)

/* What allocators that nothing refuses reserve; of the ranks with enough for what they allocate. */
static bool find_fragmentation(prediction *p, const machine *own, const rank_place *places,
                               arena *a, diag *d)
{
  compilation c = { 0 };
  timeline t = { 0 };
  iteration_prediction first, steady;
  bool ok = run_setting(p->settings, p->plans, own, places, ALLOCATOR_UNLIMITED_BYTES, &first,
                        &steady, &c, &t, NULL, a, d);
  for (uint32_t i = 0; ok && i < p->rank_count; i++) {
    rank_prediction *r = &p->result.ranks[i];
    if (r->out_of_memory && r->missing_bytes == 0)
      r->missing_bytes =
          max_i64(steady.ranks[i].reserved_peak_bytes - p->capacity_bytes, LEAST_MISSING_BYTES);
  }
  timeline_release(&t);
  compilation_release(&c);
  return ok;
}

static bool judge_fit(prediction *p, const machine *own, const rank_place *places, arena *a,
                      diag *d)
{
  p->host_pinned_total_bytes = fullest_host(p, places);
  p->fits_host = p->host_pinned_total_bytes <= p->machine->host.memory_bytes;
  p->fits_device = true;
  for (uint32_t i = 0; i < p->rank_count; i++) {
    rank_prediction *r = &p->result.ranks[i];
    if (!r->out_of_memory) continue;
    p->fits_device = false;
    r->missing_bytes = missing_by_allocation(p, r);
  }
  return !may_be_fragmented(p) || find_fragmentation(p, own, places, a, d);
}

/* ---- the whole ---- */

/* The host time of a kernel is that of the modules that issue it. */
const machine *machine_of(const settings *s, const machine *m, arena *a)
{
  if (!uses_hf(s)) return m;
  machine *own = ARENA_NEW(a, machine);
  *own = host_without_megatron(m);
  return own;
}

static bool predict_baseline(prediction *p, const machine *own, const rank_place *places, arena *a,
                             diag *d)
{
  settings *without = ARENA_NEW(a, settings);
  *without = settings_without_offload(p->settings);
  compilation base = { 0 };
  timeline base_times = { 0 };
  iteration_prediction base_warmup;
  bool ok = run_setting(without, NULL, own, places, p->capacity_bytes, &base_warmup, &p->baseline,
                        &base, &base_times, NULL, a, d);
  timeline_release(&base_times);
  compilation_release(&base);
  return ok;
}

static bool predict_result(prediction *p, const machine *own, const rank_place *places, arena *a,
                           diag *d)
{
  if (!run_setting(p->settings, p->plans, own, places, p->capacity_bytes, &p->warmup, &p->result,
                   &p->steady, &p->steady_timeline, p->curves, a, d))
    return false;
  assert(p->steady.plan.rank_count == p->rank_count);
  p->defects = p->steady.defects;
  return judge_fit(p, own, places, a, d);
}

static prediction new_prediction(const settings *s, const machine *m)
{
  return (prediction){ .settings = s,
                       .machine = m,
                       .rank_count = (uint32_t)s->parallel.pipeline_model_parallel_size,
                       .capacity_bytes = machine_usable_bytes(m) };
}

bool predict(prediction *p, const settings *s, const given_plans *plans, const machine *m,
             bool curves, arena *a, diag *d)
{
  *p = new_prediction(s, m);
  p->plans = plans;
  const rank_place *places = places_of_ranks(s, m, a);
  const machine *own = machine_of(s, m, a);
  if (curves) p->curves = ARENA_ARRAY(a, memory_curve, p->rank_count);
  if (!predict_baseline(p, own, places, a, d) || !predict_result(p, own, places, a, d))
    return false;
  compare(p, a);
  p->safety = safety_summarize(s, &p->steady.plan);
  return true;
}

bool predict_alone(prediction *p, const settings *s, const machine *m, arena *a, diag *d)
{
  *p = new_prediction(s, m);
  return predict_result(p, machine_of(s, m, a), places_of_ranks(s, m, a), a, d);
}

void prediction_release(prediction *p)
{
  timeline_release(&p->steady_timeline);
  compilation_release(&p->steady);
}
