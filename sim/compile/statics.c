#include "sim/compile/statics.h"

#include <assert.h>

#include "sim/compile/frames.h"
#include "sim/compile/fsdp_buckets.h"
#include "sim/compile/gradients.h"
#include "sim/compile/host_experts.h"
#include "sim/compile/hybrid_optimizer.h"
#include "sim/compile/kernel_calls.h"
#include "sim/compile/optimizer.h"
#include "sim/compile/optimizer_offload.h"
#include "sim/compile/parameters.h"
#include "sim/compile/state_chunks.h"
#include "sim/compile/take_static.h"
#include "sim/compile/timers.h"
#include "sim/compile/weights.h"
#include "sim/residents/hf_statics.h"

struct statics {
  static_allocation_list list;
  uint32_t next_event;         /* all earlier events have happened */
  uint32_t *buffer;            /* by allocation */
  bool *resident;              /* by allocation: never freed */
  uint32_t weights, gradients; /* Megatron-FSDP's: one buffer of each class, which represents all */
  parameter_buffers parameters;
  moving_states moving; /* with offload_optimizer_states */
  state_chunks *chunks; /* with chunked_optimizer_state_offload */
};

static void take(walk *w, uint32_t allocation)
{
  assert(allocation < w->statics->list.count);
  w->statics->buffer[allocation] = take_static(w, &w->statics->list.items[allocation]);
}

static bool makes_in_chunk(const walk *w, uint32_t allocation)
{
  const state_chunks *chunks = w->statics->chunks;
  assert(allocation < w->statics->list.count);
  return chunks != NULL && state_chunks_make(chunks, allocation);
}

static bool is_of_chunk(const walk *w, uint32_t allocation)
{
  const state_chunks *chunks = w->statics->chunks;
  assert(allocation < w->statics->list.count);
  return chunks != NULL && state_chunks_hold(chunks, allocation);
}

static void take_if_resident(walk *w, const static_event *e)
{
  assert(e->allocation < w->statics->list.count);
  if (!e->is_free && w->statics->resident[e->allocation] && !is_of_chunk(w, e->allocation))
    w->statics->buffer[e->allocation] =
        take_static_resident(w, &w->statics->list.items[e->allocation]);
}

/* Runs the allocations and releases up to and including `phase`. */
static void run_phase(walk *w, static_phase phase)
{
  assert(w->iteration == ITERATION_WARMUP && "a later iteration has residents");
  struct statics *s = w->statics;
  for (; s->next_event < s->list.event_count; s->next_event++) {
    const static_event *e = &s->list.events[s->next_event];
    assert(e->allocation < s->list.count);
    if (s->list.items[e->allocation].phase > phase) return;
    if (e->is_free)
      walk_drop_reference(w, s->buffer[e->allocation]);
    else if (!makes_in_chunk(w, e->allocation))
      take(w, e->allocation);
  }
}

static void find_residents(struct statics *s, arena *a)
{
  assert(s->resident == NULL && s->next_event == 0);
  s->resident = ARENA_ARRAY(a, bool, s->list.count);
  for (uint32_t i = 0; i < s->list.event_count; i++)
    s->resident[s->list.events[i].allocation] = !s->list.events[i].is_free;
}

static uint32_t first_of_class(const walk *w, buffer_class class)
{
  for (uint32_t i = 0; i < w->statics->list.count; i++)
    if (w->statics->list.items[i].purpose == class && w->statics->resident[i])
      return w->statics->buffer[i];
  assert(0 && "a rank without parameters");
  return 0;
}

/* Takes residents in the order in which the first iteration allocated them: the policy's buffers
 * came in its forward. */
static void take_residents(walk *w)
{
  assert(w->iteration == ITERATION_STEADY && w->statics->next_event == 0);
  const struct statics *s = w->statics;
  const static_event *events = s->list.events;
  uint32_t i = 0;
  while (i < s->list.event_count && s->list.items[events[i].allocation].phase <= STATIC_FORWARD)
    take_if_resident(w, &events[i++]);
  if (w->policy->iteration_begin != NULL) w->policy->iteration_begin(w->state, w);
  parameters_resident_gradients(w);
  while (i < s->list.event_count && s->list.items[events[i].allocation].phase < STATIC_RETAINED)
    take_if_resident(w, &events[i++]);
  if (w->policy->lasting_memory != NULL) w->policy->lasting_memory(w->state, w);
  weights_brought_back(w);
  while (i < s->list.event_count)
    take_if_resident(w, &events[i++]);
}

static static_allocation_list allocations_of(walk *w)
{
  assert(w->pp_rank < w->plan->rank_count);
  int capability = w->settings->derived.compute_capability;
  if (!uses_hf(w->settings))
    return static_allocations(w->settings, capability, w->pp_rank, w->memory);
  hf_parameter_list parameters = parameters_of_model(w);
  return hf_static_allocations(w->settings, capability, &parameters, w->memory);
}

static bool tells_parameters(const struct statics *s)
{
  return s->list.rank.list.count > 0;
}

void statics_begin(walk *w)
{
  assert(w->statics == NULL && "the iteration begins once");
  struct statics *s = w->statics = ARENA_NEW(w->memory, struct statics);
  s->list = allocations_of(w);
  s->buffer = ARENA_ARRAY(w->memory, uint32_t, s->list.count);
  find_residents(s, w->memory);
  if (w->settings->training.chunked_optimizer_state_offload)
    s->chunks = state_chunks_of(w, &s->list);
  if (w->iteration == ITERATION_WARMUP) {
    walk_begin_mark(w, MARK_SETUP, 0, 0);
    parameters_begin(w);
    run_phase(w, STATIC_BUILD);
  } else {
    parameters_begin(w);
    take_residents(w);
  }
  if (uses_hf(w->settings)) return;
  s->weights = first_of_class(w, CLASS_WEIGHT);
  s->gradients = first_of_class(w, CLASS_GRADIENT);
  parameters_share(w, s->weights, s->gradients);
  if (tells_parameters(s)) {
    s->parameters = parameters_place(w, &s->list, s->buffer);
  } else {
    parameters_place_fsdp_gradients(w, &s->list, s->buffer);
    fsdp_buckets_begin(w, &s->list, s->buffer);
  }
  bool moves = w->settings->training.offload_optimizer_states;
  if (s->chunks != NULL) {
    state_chunks_residents(w, s->chunks, s->buffer);
    state_chunks_leave(w, s->chunks);
  } else if (moves) {
    s->moving = moving_states_of(w, &s->list, s->buffer);
    moving_states_leave(w, &s->moving);
  }
  gradients_zero(w, &s->list, s->buffer);
  if (moves) moving_states_release(w, &s->moving);
}

/* Frees what the last iteration's end left until this one's beginning. */
static void drop_retained(walk *w)
{
  assert(w->iteration == ITERATION_STEADY && !w->forward_seen);
  struct statics *s = w->statics;
  for (uint32_t i = 0; i < s->list.count; i++)
    if (s->resident[i] && (s->list.items[i].phase == STATIC_RETAINED || s->list.items[i].each_step))
      walk_drop_reference(w, s->buffer[i]);
}

static void take_for_this_step(walk *w)
{
  assert(w->iteration == ITERATION_STEADY && w->backward_seen);
  struct statics *s = w->statics;
  for (uint32_t i = 0; i < s->list.count; i++)
    if (s->resident[i] && s->list.items[i].each_step) take(w, i);
}

static void take_in_step(walk *w)
{
  assert(w->backward_seen && uses_hf(w->settings));
  for (uint32_t i = 0; i < w->statics->list.count; i++)
    if (w->statics->list.items[i].in_step) take(w, i);
}

static void drop_in_step(walk *w)
{
  assert(w->backward_seen && uses_hf(w->settings));
  for (uint32_t i = 0; i < w->statics->list.count; i++)
    if (w->statics->list.items[i].in_step) walk_drop_reference(w, w->statics->buffer[i]);
}

static void take_for_passes(walk *w)
{
  assert(!w->forward_seen && !w->backward_seen);
  for (uint32_t i = 0; i < w->statics->list.count; i++)
    if (w->statics->list.items[i].each_pass) take(w, i);
}

static void drop_after_passes(walk *w)
{
  assert(w->forward_seen && w->backward_seen);
  for (uint32_t i = 0; i < w->statics->list.count; i++)
    if (w->statics->list.items[i].each_pass) walk_drop_reference(w, w->statics->buffer[i]);
}

void statics_first_forward(walk *w)
{
  assert(!w->forward_seen && !w->backward_seen);
  if (w->iteration == ITERATION_WARMUP)
    run_phase(w, STATIC_FORWARD);
  else
    drop_retained(w);
  parameters_place_shared(w, &w->statics->list, w->statics->buffer);
  take_for_passes(w);
}

void statics_first_backward(walk *w)
{
  assert(w->forward_seen && !w->backward_seen);
  if (w->iteration == ITERATION_WARMUP) run_phase(w, STATIC_BACKWARD);
}

/* ---- the end of the iteration ------------------------------------------------------------------- */

static int64_t class_bytes(const walk *w, buffer_class class)
{
  int64_t bytes = 0;
  for (uint32_t i = 0; i < w->statics->list.count; i++)
    if (w->statics->list.items[i].purpose == class && w->statics->resident[i])
      bytes += w->statics->list.items[i].bytes;
  assert(bytes >= 0);
  return bytes;
}

static bool is_sharded(const walk *w)
{
  return w->settings->parallel.use_distributed_optimizer;
}

static int64_t step_bytes(const walk *w)
{
  int64_t shards = is_sharded(w) ? w->settings->derived.data_parallel_size *
                                       w->settings->parallel.context_parallel_size
                                 : 1;
  assert(shards >= 1);
  return 2 * class_bytes(w, CLASS_OPTIMIZER) +
         (class_bytes(w, CLASS_GRADIENT) + class_bytes(w, CLASS_WEIGHT)) / shards;
}

/* One kernel for all states: they are elsewhere, or their shards span parameters. */
static void step_as_one(walk *w)
{
  int64_t bytes = step_bytes(w);
  plan_call call = kernel_call(KERNEL_OPTIMIZER_STEP, DTYPE_FP32, bytes);
  call.dims[0] = bytes;
  call.dims[1] = optimizer_tensors(&w->statics->list, w->memory);
  assert(w->statics->gradients != w->statics->weights);
  walk_call(w, STREAM_COMPUTE, &call, &w->statics->gradients, 1, &w->statics->weights, 1);
}

static void step_in_buffers(walk *w)
{
  assert(!uses_hf(w->settings) && w->backward_seen);
  const struct statics *s = w->statics;
  optimizer_buffers b = { .list = &s->list,
                          .of_allocation = s->buffer,
                          .of_weight = s->parameters.weight_of,
                          .of_gradient = s->parameters.gradient_of };
  if (w->settings->training.optimizer_cpu_offload)
    hybrid_optimizer_step(w, &b);
  else if (s->chunks != NULL)
    state_chunks_step(w, s->chunks, &b, step_bytes(w));
  else if (!tells_parameters(s) || !optimizer_step_buffers(w, &b, step_bytes(w)))
    step_as_one(w);
  else
    optimizer_cast_weights(w, &b);
  if (keeps_experts_on_host(w->settings)) host_experts_step(w, &b);
  if (is_sharded(w)) gradients_gather_weights(w, &s->list, s->buffer);
}

/*
 * Without APEX the host computes each gradient's norm alone, reads it and scales the gradient alone
 * (core/utils.py, local_multi_tensor_l2_norm and _scale): measured at d98e8a64 on an H100's host, 71 us,
 * where an eager operator takes 13.5.
 */
static void norms_by_tensor(walk *w)
{
  enum { OPERATORS = 5 };
  const struct training_settings *t = &w->settings->training;
  assert(!uses_hf(w->settings) && w->backward_seen);
  if (t->clip_grad == 0 || t->gradient_accumulation_fusion) return;
  uint32_t tensors = optimizer_tensors(&w->statics->list, w->memory);
  if (tensors > 0) act_host_work(w, OPERATORS * tensors);
}

static void step_optimizer(walk *w)
{
  assert(w->forward_seen && w->backward_seen && "the step comes after the passes");
  walk_begin_mark(w, MARK_OPTIMIZER, 0, 0);
  if (w->iteration == ITERATION_WARMUP)
    run_phase(w, STATIC_STEP);
  else
    take_for_this_step(w);
  if (!uses_hf(w->settings)) {
    gradients_clip(w, &w->statics->list, w->statics->buffer);
    norms_by_tensor(w);
    if (w->settings->training.offload_optimizer_states) act_join(w, STREAM_COMPUTE, STREAM_H2D);
    step_in_buffers(w);
    return;
  }
  take_in_step(w);
  if (w->settings->training.optimizer != OPTIMIZER_NONE)
    parameters_step(w, &w->statics->list, w->statics->buffer, class_bytes(w, CLASS_OPTIMIZER));
  drop_in_step(w);
  if (!w->settings->training.keep_gradients) parameters_zero_gradients(w);
}

static void leave_retained(walk *w)
{
  assert(w->deferred.count == 0 && "the step comes after every product");
  struct statics *s = w->statics;
  for (uint32_t i = 0; i < s->list.count; i++)
    if (s->list.items[i].phase == STATIC_RETAINED && s->resident[i] && !s->list.items[i].of_batch &&
        !frames_leave(w, s->list.items[i].bytes))
      take(w, i);
  frames_release(w);
}

void statics_finish(walk *w)
{
  assert(w->forward_seen && w->backward_seen && !w->exchanges_of_pair);
  bool moves = w->settings->training.offload_optimizer_states;
  walk_begin_mark(w, MARK_FINISH, 0, 0);
  if (moves) moving_states_return(w, &w->statics->moving);
  if (w->statics->chunks != NULL) state_chunks_return(w, w->statics->chunks);
  if (!uses_hf(w->settings)) {
    gradients_check(w, &w->statics->list, w->statics->buffer);
    timers_around_step(w, TIMERS_OF_GRADIENTS);
    gradients_finish(w, &w->statics->list, w->statics->buffer);
  }
  assert((w->iteration != ITERATION_WARMUP || w->statics->next_event > 0) && "setup has run");
  drop_after_passes(w);
  timers_around_step(w, TIMERS_OF_STEP);
  step_optimizer(w);
  timers_log(w);
  if (moves && w->iteration == ITERATION_WARMUP) moving_states_end(w, &w->statics->moving);
  leave_retained(w);
}
