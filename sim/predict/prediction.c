#include "sim/predict/prediction.h"

#include <assert.h>
#include <string.h>

#include "sim/base/parallel.h"
#include "sim/base/units.h"
#include "sim/compile/compile.h"
#include "sim/machine/host_work.h"
#include "sim/memory/caching_allocator.h"
#include "sim/offload/systems.h"
#include "sim/predict/baselines.h"
#include "sim/predict/places.h"
#include "sim/predict/setting_run.h"

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

/* ---- beside the run without offload ---- */

static void compare(prediction *p, arena *a)
{
  for (uint32_t i = 0; i < p->rank_count; i++) {
    rank_prediction *with = &p->result.ranks[i];
    if (p->steady.shapes != NULL)
      with->theoretical_saving_bytes = theoretical_saving_bytes(&p->steady.shapes[i], a);
    with->simulated_saving_bytes =
        p->baseline.ranks[i].steady_allocated_peak_bytes - with->steady_allocated_peak_bytes;
  }
}

/* All GPUs of the fullest host, replicas included. */
static int64_t fullest_host(const prediction *p, const rank_place *places, bool pageable)
{
  int64_t most = 0;
  for (uint32_t i = 0; i < p->rank_count; i++) {
    int64_t total = 0;
    assert(places[i].multiplicity > 0);
    for (uint32_t k = 0; k < p->rank_count; k++)
      if (places[k].host == places[i].host)
        total += (p->result.ranks[k].host_pinned_pow2_bytes +
                  (pageable ? p->result.ranks[k].host_pageable_peak_bytes : 0)) *
                 places[k].multiplicity;
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

/* What all runs of a prediction have in common. */
typedef struct predicting {
  prediction *p;
  const machine *own;
  const rank_place *places;
  bool verifies, explains_peaks, ok[2];
  bool is_baseline;     /* the setting itself is without offload */
  bool asks_if_it_fits; /* and not how much is missing */
  baselines *known;     /* NULL: no others */
  common_plans *common; /* NULL: others share no plans */
  arena memory[2];
  diag errors[2];
} predicting;

static setting_run new_run(const predicting *x, const settings *s, common_plans *common)
{
  return (setting_run){ .settings = s,
                        .common = common,
                        .machine = x->own,
                        .places = x->places,
                        .capacity_bytes = x->p->capacity_bytes,
                        .explains_peaks = x->explains_peaks,
                        .threads = x->p->threads };
}

/* What allocators that nothing refuses reserve; of the ranks with enough for what they allocate. */
static bool find_fragmentation(const predicting *x, common_plans *common, arena *a, diag *d)
{
  prediction *p = x->p;
  setting_run run = new_run(x, p->settings, common);
  run.capacity_bytes = ALLOCATOR_UNLIMITED_BYTES;
  run.explains_peaks = false;
  bool ok = setting_run_predict(&run, a, d);
  for (uint32_t i = 0; ok && i < p->rank_count; i++) {
    rank_prediction *r = &p->result.ranks[i];
    const rank_prediction *unlimited = &run.predicted[ITERATION_STEADY].ranks[i];
    if (r->out_of_memory && r->missing_bytes == 0)
      r->missing_bytes =
          max_i64(unlimited->reserved_peak_bytes - p->capacity_bytes, LEAST_MISSING_BYTES);
  }
  setting_run_release(&run);
  return ok;
}

static bool judge_fit(const predicting *x, common_plans *common, arena *a, diag *d)
{
  prediction *p = x->p;
  p->host_pinned_total_bytes = fullest_host(p, x->places, false);
  p->host_total_bytes = fullest_host(p, x->places, true);
  p->fits_host = p->host_total_bytes <= p->machine->host.memory_bytes;
  p->fits_device = true;
  for (uint32_t i = 0; i < p->rank_count; i++) {
    rank_prediction *r = &p->result.ranks[i];
    if (!r->out_of_memory) continue;
    p->fits_device = false;
    r->missing_bytes = missing_by_allocation(p, r);
    if (x->asks_if_it_fits) r->missing_bytes = max_i64(r->missing_bytes, LEAST_MISSING_BYTES);
  }
  return x->asks_if_it_fits || !may_be_fragmented(p) || find_fragmentation(x, common, a, d);
}

/* ---- the whole ---- */

/* How often the experts of a rank have got rows before the step, if they get other numbers of them each
 * time. The step is one that a profiler records, the fifth of its job. */
static int64_t routings_of(const settings *s)
{
  enum { EARLIER_STEPS = 4 };
  if (s->model.moe_router_force_load_balancing || s->model.moe_pad_expert_input_to_capacity)
    return 0;
  int64_t layers = 0;
  for (int64_t i = 0; i < s->model.num_layers; i++)
    layers += s->derived.layer_is_moe[i];
  int64_t routed = capped_mul(layers, s->derived.num_microbatches);
  return ceil_div(capped_mul(EARLIER_STEPS, routed), s->parallel.pipeline_model_parallel_size);
}

/* The host time of a kernel is that of the program that issues it. */
/* torchrun sets OMP_NUM_THREADS to 1 if it starts several processes on a host. */
static int64_t arithmetic_bytes_per_us(const settings *s, const machine *m)
{
  int64_t one = m->host.arithmetic_bytes_per_us, all = m->host.arithmetic_all_bytes_per_us;
  int64_t processes = min_i64(s->parallel.world_size, m->host.gpus);
  int64_t threads = s->software.omp_num_threads;
  assert(processes >= 1 && (threads == UNSET || threads >= 1));
  if (threads == UNSET) return processes == 1 ? max_i64(one, all) : one;
  return min_i64(threads * one, max_i64(one, all));
}

const machine *machine_of(const settings *s, const machine *m, arena *a)
{
  bool bare = s->software.issued_by == ISSUED_BY_OFFSIM;
  machine *own = ARENA_NEW(a, machine);
  *own = bare ? host_without_framework(m) : uses_hf(s) ? host_without_megatron(m) : *m;
  own->routings = routings_of(s);
  own->host.arithmetic_bytes_per_us = arithmetic_bytes_per_us(s, m);
  return own;
}

static bool predict_baseline(const predicting *x, arena *a, diag *d)
{
  settings *without = ARENA_NEW(a, settings);
  *without = settings_without_offload(x->p->settings);
  uint32_t ranks = x->p->rank_count;
  XXH128_hash_t digest = { 0 };
  if (x->known != NULL) digest = settings_digest(without);
  if (x->known != NULL && baselines_find(x->known, digest, &x->p->baseline, ranks, a)) return true;
  common_plans own = { 0 };
  setting_run run = new_run(x, without, &own);
  run.steady_alone = true;
  bool ok = setting_run_predict(&run, a, d);
  x->p->baseline = run.predicted[ITERATION_STEADY];
  if (ok && x->known != NULL) baselines_add(x->known, digest, &x->p->baseline, ranks);
  setting_run_release(&run);
  common_plans_release(&own);
  return ok;
}

/* What the comparison with the baseline adds to the result is not the baseline's. */
static iteration_prediction copy_of(const iteration_prediction *of, uint32_t ranks, arena *a)
{
  iteration_prediction copy = *of;
  copy.ranks = ARENA_ARRAY(a, rank_prediction, ranks);
  memcpy(copy.ranks, of->ranks, ranks * sizeof *copy.ranks);
  return copy;
}

static bool predict_setting(const predicting *x, setting_run *run, arena *a, diag *d)
{
  prediction *p = x->p;
  if (!setting_run_predict(run, a, d)) return false;
  p->warmup = run->predicted[ITERATION_WARMUP];
  p->result = run->predicted[ITERATION_STEADY];
  p->safety = run->safety;
  if (x->is_baseline) p->baseline = copy_of(&p->result, p->rank_count, a);
  assert(run->common->compiled[ITERATION_STEADY].plan.rank_count == p->rank_count);
  p->defects = run->common->compiled[ITERATION_STEADY].defects;
  p->speed = throughput_of(p->settings, p->machine, &run->common->compiled[ITERATION_STEADY].plan,
                           p->result.step_ps);
  return judge_fit(x, run->common, a, d);
}

static bool predict_result(const predicting *x, arena *a, diag *d)
{
  prediction *p = x->p;
  common_plans own = { 0 };
  setting_run run = new_run(x, p->settings, &own);
  run.plans = p->plans;
  run.curves = p->curves;
  run.verifies = x->verifies;
  bool ok = predict_setting(x, &run, a, d);
  timeline *times = setting_run_times(&run, ITERATION_STEADY);
  p->steady = own.compiled[ITERATION_STEADY];
  p->steady_timeline = *times;
  own.compiled[ITERATION_STEADY] = (compilation){ 0 };
  *times = (timeline){ 0 };
  setting_run_release(&run);
  common_plans_release(&own);
  return ok;
}

/* Plans and times stay where others find them. */
static bool predict_shared(const predicting *x, arena *a, diag *d)
{
  setting_run run = new_run(x, x->p->settings, x->common);
  bool ok = predict_setting(x, &run, a, d);
  setting_run_release(&run);
  return ok;
}

static predicting new_prediction(prediction *p, const settings *s, const machine *m, arena *a)
{
  *p =
      (prediction){ .settings = s,
                    .machine = m,
                    .rank_count = (uint32_t)s->parallel.pipeline_model_parallel_size,
                    .capacity_bytes = max_i64(0, machine_usable_bytes(m) - compile_driver_bytes(s)),
                    .threads = 1 };
  return (predicting){ .p = p, .own = machine_of(s, m, a), .places = places_of_ranks(s, m, a) };
}

static void predict_side(void *context, uint32_t i)
{
  predicting *x = context;
  bool baseline = i == 0;
  if (baseline && x->is_baseline)
    x->ok[i] = true;
  else
    x->ok[i] = (baseline            ? predict_baseline
                : x->common != NULL ? predict_shared
                                    : predict_result)(x, &x->memory[i], &x->errors[i]);
}

static bool predict_sides(predicting *x, arena *a, diag *d)
{
  prediction *p = x->p;
  x->is_baseline = p->plans == NULL && is_without_offload(p->settings);
  x->errors[0].quiet = x->errors[1].quiet = d->quiet;
  parallel_for(2, p->threads, predict_side, x);
  for (int i = 1; i >= 0; i--) {
    arena_take(a, &x->memory[i]);
    if (!x->ok[i]) *d = x->errors[i];
  }
  if (!diag_ok(d)) return false;
  compare(p, a);
  return true;
}

bool predict(prediction *p, const settings *s, const given_plans *plans, const machine *m,
             uint32_t also, uint32_t threads, arena *a, diag *d)
{
  predicting x = new_prediction(p, s, m, a);
  assert(threads >= 1);
  p->plans = plans;
  p->threads = threads;
  if (also & PREDICT_CURVES) p->curves = ARENA_ARRAY(a, memory_curve, p->rank_count);
  x.verifies = also & PREDICT_SAFETY;
  x.explains_peaks = true;
  return predict_sides(&x, a, d);
}

bool predict_beside(prediction *p, const settings *s, const machine *m, baselines *known,
                    common_plans *common, arena *a, diag *d)
{
  predicting x = new_prediction(p, s, m, a);
  x.known = known;
  x.common = common;
  return predict_sides(&x, a, d);
}

bool predict_alone(prediction *p, const settings *s, const machine *m, arena *a, diag *d)
{
  predicting x = new_prediction(p, s, m, a);
  return predict_result(&x, a, d);
}

bool predict_common(prediction *p, const settings *s, const machine *m, common_plans *common,
                    arena *a, diag *d)
{
  predicting x = new_prediction(p, s, m, a);
  x.common = common;
  x.asks_if_it_fits = true;
  return predict_shared(&x, a, d);
}

void prediction_release(prediction *p)
{
  timeline_release(&p->steady_timeline);
  compilation_release(&p->steady);
}
