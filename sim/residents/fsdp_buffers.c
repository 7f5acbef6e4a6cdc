/* Megatron-FSDP's buffers, group by group. */
#include "sim/residents/fsdp_buffers.h"

#include <assert.h>

#include "sim/base/units.h"
#include "sim/graph/sizes.h"

typedef struct fsdp_group {
  uint32_t first;   /* parameter */
  int64_t elements; /* of all its parameters */
  int64_t part;     /* elements of one rank */
  bool is_expert;
  uint8_t type;
} fsdp_group;

typedef struct fsdp_group_array {
  fsdp_group *items;
  uint32_t count, capacity;
} fsdp_group_array;

enum { PREFETCHED_ELEMENTS = 500000000 };

/* What is sharded, as bits. */
enum { CUT_STATES = 1, CUT_GRADIENTS = 2, CUT_WEIGHTS = 4 };

static int strategy_of(const settings *s)
{
  switch (s->parallel.data_parallel_sharding_strategy) {
  case SHARD_NOTHING: break;
  case SHARD_OPTIM: return CUT_STATES;
  case SHARD_OPTIM_GRADS: return CUT_STATES | CUT_GRADIENTS;
  case SHARD_OPTIM_GRADS_PARAMS: return CUT_STATES | CUT_GRADIENTS | CUT_WEIGHTS;
  }
  return 0;
}

static bool same_group(const parameter *p, const parameter *q)
{
  return p->chunk == q->chunk && p->layer == q->layer && p->is_expert == q->is_expert &&
         p->type == q->type;
}

static fsdp_group *group_of(fsdp_group_array *groups, const parameter_list *list, uint32_t index)
{
  const parameter *p = &list->items[index];
  for (uint32_t i = groups->count; i-- > 0;)
    if (same_group(&list->items[groups->items[i].first], p)) return &groups->items[i];
  fsdp_group *g = ARRAY_PUSH(groups);
  *g = (fsdp_group){ .first = index, .is_expert = p->is_expert, .type = p->type };
  return g;
}

static fsdp_group_array groups_of(const settings *s, const parameter_list *parameters)
{
  fsdp_group_array groups = { 0 };
  for (uint32_t i = 0; i < parameters->count; i++)
    group_of(&groups, parameters, i)->elements += parameter_elements(&parameters->items[i]);
  int64_t dense = s->derived.data_parallel_size * s->parallel.context_parallel_size;
  int64_t expert = max_i64(1, s->derived.expert_data_parallel_size);
  for (uint32_t i = 0; i < groups.count; i++)
    groups.items[i].part =
        ceil_div(groups.items[i].elements, groups.items[i].is_expert ? expert : dense);
  return groups;
}

/* Gradients have the parameters' type, bf16 for fp8 parameters, since 2 July 2026 (adfe9e11, #5462): from
 * then on accumulate_allreduce_grads_in_fp32 has no effect on them. */
static dtype group_gradient_type(const settings *s, const fsdp_group *g)
{
  if (!megatron_is_from(s, 20260702, 2026, 4)) return gradient_type_of(s);
  return g->type == DTYPE_FP8 ? DTYPE_BF16 : (dtype)g->type;
}

/* Groups outside the layers stay gathered through forward and backward, ... */
static bool is_outside(const static_writer *w, const fsdp_group *g)
{
  return w->parameters.items[g->first].layer < 0;
}

/* ... and through the optimizer step, but for the releases from 22 October 2025 (268fda08, expert
 * parallelism) to 30 May 2026 (378d81fb, #4717). */
static bool stays_gathered(const static_writer *w, const fsdp_group *g)
{
  bool resharded =
      megatron_is_from(w->s, 20251022, 2026, 1) && !megatron_is_from(w->s, 20260530, 2026, 4);
  return is_outside(w, g) && !resharded;
}

static int64_t kept(const fsdp_group *g, bool cut)
{
  assert(g->part > 0 && g->part <= g->elements);
  return cut ? g->part : g->elements;
}

static void release_parameters(static_writer *w, const uint32_t *ids, const fsdp_group *g)
{
  for (uint32_t i = 0; i < w->parameters.count; i++)
    if (same_group(&w->parameters.items[g->first], &w->parameters.items[i]) &&
        ids[i] != UINT32_MAX) {
      w->allocations.items[ids[i]].purpose = CLASS_TRANSIENT;
      static_give_back(w, ids[i]);
    }
}

/* One allocation holds the gradients of all groups of one type. */
static const dtype gradient_types[] = { DTYPE_FP32, DTYPE_FP16, DTYPE_BF16 };
enum { GRADIENT_TYPES = sizeof gradient_types / sizeof *gradient_types };

static void write_gradients(static_writer *w, const fsdp_group_array *groups, bool cut)
{
  for (int k = 0; k < GRADIENT_TYPES; k++) {
    dtype type = gradient_types[k];
    int64_t elements = 0;
    for (uint32_t i = 0; i < groups->count; i++)
      if (group_gradient_type(w->s, &groups->items[i]) == type)
        elements += kept(&groups->items[i], cut);
    static_take(w, FSDP_GRADIENTS, CLASS_GRADIENT, type, elements * dtype_bytes(type),
                NO_PARAMETER);
  }
}

static uint32_t buffer_of_type(const gradient_buffer_list *buffers, dtype type)
{
  for (uint32_t k = 0; k < buffers->count; k++)
    if (buffers->items[k].gradient_type == type) return k;
  assert(0 && "gradients have one of the types");
  return 0;
}

/* A group follows the group before it, and a parameter the parameter before it. A part of a sharded group
 * has no place that is one parameter's on every rank. */
static void place_group(rank_parameters *r, const fsdp_group *g, parameter_place at, bool cut)
{
  if (cut) at.shared = g->part;
  for (uint32_t i = 0; i < r->list.count; i++) {
    if (!same_group(&r->list.items[g->first], &r->list.items[i])) continue;
    r->places[i] = at;
    if (!cut) at.start += parameter_elements(&r->list.items[i]);
  }
}

rank_parameters fsdp_rank_parameters(const settings *s, uint32_t pp_rank, arena *a)
{
  rank_parameters r = { .list = parameters_of_rank(s, pp_rank, a), .in_groups = true };
  fsdp_group_array groups = groups_of(s, &r.list);
  bool cut = (strategy_of(s) & CUT_GRADIENTS) != 0;
  r.places = ARENA_ARRAY(a, parameter_place, r.list.count);
  r.buffers =
      (gradient_buffer_list){ ARENA_ARRAY(a, gradient_buffer, GRADIENT_TYPES), GRADIENT_TYPES };
  for (int k = 0; k < GRADIENT_TYPES; k++)
    r.buffers.items[k].gradient_type = (uint8_t)gradient_types[k];
  for (uint32_t i = 0; i < groups.count; i++) {
    const fsdp_group *g = &groups.items[i];
    uint32_t b = buffer_of_type(&r.buffers, group_gradient_type(s, g));
    place_group(&r, g, (parameter_place){ b, r.buffers.items[b].elements, 0 }, cut);
    r.buffers.items[b].elements += kept(g, cut);
  }
  ARRAY_FREE(&groups);
  return r;
}

void write_fsdp_buffers(static_writer *w, const uint32_t *parameter_ids)
{
  fsdp_group_array groups = groups_of(w->s, &w->parameters);
  int cut = strategy_of(w->s);
  for (uint32_t i = 0; i < groups.count; i++) {
    const fsdp_group *g = &groups.items[i];
    static_take(w, "fsdp.weights", CLASS_WEIGHT, (dtype)g->type,
                kept(g, (cut & CUT_WEIGHTS) != 0) * dtype_bytes((dtype)g->type), NO_PARAMETER);
    static_take(w, "fsdp.main_weights", CLASS_OPTIMIZER, DTYPE_FP32,
                kept(g, (cut & CUT_STATES) != 0) * 4, NO_PARAMETER);
    release_parameters(w, parameter_ids, g);
  }
  write_gradients(w, &groups, (cut & CUT_GRADIENTS) != 0);
  ARRAY_FREE(&groups);
}

static void take_gathered(static_writer *w, const fsdp_group *g, buffer_class class)
{
  static_take(w, "fsdp.gathered_weights", class, (dtype)g->type,
              g->elements * dtype_bytes((dtype)g->type), NO_PARAMETER);
}

static void take_gathered_for_passes(static_writer *w, const fsdp_group *g)
{
  take_gathered(w, g, CLASS_TRANSIENT);
  assert(w->events.count > 0 && w->allocations.count > 0);
  w->events.count--;
  w->allocations.items[w->allocations.count - 1].each_pass = true;
}

void write_fsdp_gathered(static_writer *w)
{
  fsdp_group_array groups = groups_of(w->s, &w->parameters);
  bool cut = (strategy_of(w->s) & CUT_WEIGHTS) != 0;
  for (uint32_t i = 0; cut && i < groups.count; i++)
    if (stays_gathered(w, &groups.items[i]))
      take_gathered(w, &groups.items[i], CLASS_WORKSPACE);
    else if (is_outside(w, &groups.items[i]))
      take_gathered_for_passes(w, &groups.items[i]);
  ARRAY_FREE(&groups);
}

/* The norm of the parameters is computed on the shards: all layers are resharded before it. */
void write_fsdp_gathered_ahead(static_writer *w)
{
  const settings *s = w->s;
  fsdp_group_array groups = groups_of(w->s, &w->parameters);
  bool ahead = (strategy_of(s) & CUT_WEIGHTS) != 0 && !s->training.log_params_norm;
  int64_t limit = s->parallel.overlap_param_gather ? PREFETCHED_ELEMENTS : INT64_MAX, sum = 0;
  for (uint32_t i = 0; ahead && i < groups.count && sum < limit; i++) {
    sum += groups.items[i].elements;
    if (!stays_gathered(w, &groups.items[i])) take_gathered(w, &groups.items[i], CLASS_RETAINED);
  }
  ARRAY_FREE(&groups);
}

/* Main weights are fp32, and so are the gradients that the optimizer gets. */
static void write_gradient_copies(static_writer *w, const fsdp_group_array *groups)
{
  bool cut = (strategy_of(w->s) & CUT_STATES) != 0;
  if (w->s->training.use_precision_aware_optimizer) return;
  for (uint32_t i = 0; i < groups->count; i++) {
    const fsdp_group *g = &groups->items[i];
    if (group_gradient_type(w->s, g) == DTYPE_FP32) continue;
    uint32_t id = static_take(w, "main_weights.grad", CLASS_OPTIMIZER, DTYPE_FP32, kept(g, cut) * 4,
                              NO_PARAMETER);
    if (id != UINT32_MAX) w->allocations.items[id].each_step = true;
  }
}

/*
 * FusedAdam of Transformer Engine 2.10 and 2.11 makes states of the shape that a parameter says it has
 * (optimizers/fused_adam.py, _initialize_state: torch.empty(param.shape)). A DTensor's is that of the whole
 * parameter, over data and tensor parallel ranks. 2.12 took empty_like again, which makes a shard.
 */
static bool states_are_whole(const settings *s)
{
  int engine = s->derived.software.transformer_engine;
  return engine >= SOFTWARE_VERSION(2, 10) && engine < SOFTWARE_VERSION(2, 12);
}

static void write_whole_states(static_writer *w)
{
  for (uint32_t i = 0; i < w->parameters.count; i++) {
    const parameter *p = &w->parameters.items[i];
    int64_t elements = p->global_shape[0] * (p->rank > 1 ? p->global_shape[1] : 1);
    assert(elements >= parameter_elements(p) && "... of which this rank has a part");
    static_take(w, "exp_avg", CLASS_OPTIMIZER, DTYPE_FP32, elements * 4, NO_PARAMETER);
    static_take(w, "exp_avg_sq", CLASS_OPTIMIZER, DTYPE_FP32, elements * 4, NO_PARAMETER);
  }
}

void write_fsdp_states(static_writer *w)
{
  fsdp_group_array groups = groups_of(w->s, &w->parameters);
  int cut = strategy_of(w->s);
  write_gradient_copies(w, &groups);
  if (states_are_whole(w->s)) {
    write_whole_states(w);
    ARRAY_FREE(&groups);
    return;
  }
  for (uint32_t i = 0; i < groups.count; i++) {
    const fsdp_group *g = &groups.items[i];
    static_take(w, "exp_avg", CLASS_OPTIMIZER, DTYPE_FP32, kept(g, (cut & CUT_STATES) != 0) * 4,
                NO_PARAMETER);
    static_take(w, "exp_avg_sq", CLASS_OPTIMIZER, DTYPE_FP32, kept(g, (cut & CUT_STATES) != 0) * 4,
                NO_PARAMETER);
  }
  ARRAY_FREE(&groups);
}
