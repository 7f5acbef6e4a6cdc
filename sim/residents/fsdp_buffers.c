/* Megatron-FSDP's buffers, group by group. */
#include "sim/residents/fsdp_buffers.h"

#include <assert.h>

#include "sim/graph/sizes.h"
#include "sim/residents/optimizer_states.h"

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

/* Gradients have the parameters' type, bf16 for fp8 parameters, since 2 July 2026 (adfe9e11, #5462): from
 * then on accumulate_allreduce_grads_in_fp32 has no effect on them. */
dtype fsdp_gradient_type(const settings *s, const fsdp_group *g)
{
  if (!megatron_is_from(s, 20260702, 2026, 4)) return gradient_type_of(s);
  return g->type == DTYPE_FP8 ? DTYPE_BF16 : (dtype)g->type;
}

bool fsdp_collects_gradients(const settings *s)
{
  return s->parallel.use_megatron_fsdp && (strategy_of(s) & CUT_GRADIENTS) != 0 &&
         !s->training.delay_wgrad_compute && !s->parallel.overlap_moe_expert_parallel_comm;
}

bool fsdp_group_is_cut(const fsdp_group *g)
{
  return g->part < g->elements;
}

/* Groups outside the layers stay gathered through forward and backward, ... */
static bool is_outside(const fsdp_group *g)
{
  return g->layer < 0;
}

/* ... and through the optimizer step, but for the releases from 22 October 2025 (268fda08, expert
 * parallelism) to 30 May 2026 (378d81fb, #4717). */
static bool stays_gathered(const static_writer *w, const fsdp_group *g)
{
  bool resharded =
      megatron_is_from(w->s, 20251022, 2026, 1) && !megatron_is_from(w->s, 20260530, 2026, 4);
  return is_outside(g) && !resharded;
}

static int64_t kept(const fsdp_group *g, bool cut)
{
  assert(g->part > 0 && g->part <= g->elements);
  return cut ? g->part : g->elements;
}

/* One allocation holds the gradients of all groups of one type. */
static const dtype gradient_types[] = { DTYPE_FP32, DTYPE_FP16, DTYPE_BF16 };
enum { GRADIENT_TYPES = sizeof gradient_types / sizeof *gradient_types };

static void write_gradients(static_writer *w, const fsdp_group_list *groups, bool cut)
{
  for (int k = 0; k < GRADIENT_TYPES; k++) {
    dtype type = gradient_types[k];
    int64_t elements = 0;
    for (uint32_t i = 0; i < groups->count; i++)
      if (fsdp_gradient_type(w->s, &groups->items[i]) == type)
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

/* A group follows the group before it. Parameters of a cut group are where the bucket has them; without a
 * bucket they have no place that is one parameter's on every rank, and share the group's part. */
static parameter_place place_in_group(const fsdp_group *g, const buffer_slot *slot, uint32_t buffer,
                                      int64_t start, bool cut, bool collects)
{
  if (!cut || !fsdp_group_is_cut(g)) return (parameter_place){ buffer, start + slot->start, 0 };
  return collects ? (parameter_place){ buffer, slot->start, 0 }
                  : (parameter_place){ buffer, start, g->part };
}

static void place_group(rank_parameters *r, const settings *s, const fsdp_group *g, uint32_t buffer)
{
  bool cut = (strategy_of(s) & CUT_GRADIENTS) != 0;
  for (uint32_t i = 0; i < g->slot_count; i++)
    r->places[g->slots[i].parameter] =
        place_in_group(g, &g->slots[i], buffer, r->buffers.items[buffer].elements, cut,
                       fsdp_collects_gradients(s));
  r->buffers.items[buffer].elements += kept(g, cut);
}

rank_parameters fsdp_rank_parameters(const settings *s, uint32_t pp_rank, arena *a)
{
  rank_parameters r = { .list = parameters_of_rank(s, pp_rank, a), .in_groups = true };
  fsdp_group_list groups = fsdp_groups_of(s, pp_rank, &r.list, a);
  r.places = ARENA_ARRAY(a, parameter_place, r.list.count);
  r.buffers =
      (gradient_buffer_list){ ARENA_ARRAY(a, gradient_buffer, GRADIENT_TYPES), GRADIENT_TYPES };
  for (int k = 0; k < GRADIENT_TYPES; k++)
    r.buffers.items[k].gradient_type = (uint8_t)gradient_types[k];
  for (uint32_t i = 0; i < groups.count; i++) {
    const fsdp_group *g = &groups.items[i];
    place_group(&r, s, g, buffer_of_type(&r.buffers, fsdp_gradient_type(s, g)));
  }
  return r;
}

void write_fsdp_buffers(static_writer *w, const fsdp_group_list *groups)
{
  int cut = strategy_of(w->s);
  for (uint32_t i = 0; i < groups->count; i++) {
    const fsdp_group *g = &groups->items[i];
    static_take(w, "fsdp.weights", CLASS_WEIGHT, (dtype)g->type,
                kept(g, (cut & CUT_WEIGHTS) != 0) * dtype_bytes((dtype)g->type), NO_PARAMETER);
    static_take(w, "fsdp.main_weights", CLASS_OPTIMIZER, DTYPE_FP32,
                kept(g, (cut & CUT_STATES) != 0) * 4, NO_PARAMETER);
  }
  write_gradients(w, groups, (cut & CUT_GRADIENTS) != 0);
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

void write_fsdp_gathered(static_writer *w, const fsdp_group_list *groups)
{
  bool cut = (strategy_of(w->s) & CUT_WEIGHTS) != 0;
  for (uint32_t i = 0; cut && i < groups->count; i++)
    if (stays_gathered(w, &groups->items[i]))
      take_gathered(w, &groups->items[i], CLASS_WORKSPACE);
    else if (is_outside(&groups->items[i]))
      take_gathered_for_passes(w, &groups->items[i]);
}

/* The norm of the parameters is computed on the shards: all layers are resharded before it. */
void write_fsdp_gathered_ahead(static_writer *w, const fsdp_group_list *groups)
{
  const settings *s = w->s;
  bool ahead = (strategy_of(s) & CUT_WEIGHTS) != 0 && !s->training.log_params_norm;
  int64_t limit = s->parallel.overlap_param_gather ? PREFETCHED_ELEMENTS : INT64_MAX, sum = 0;
  for (uint32_t i = 0; ahead && i < groups->count && sum < limit; i++) {
    sum += groups->items[i].elements;
    if (!stays_gathered(w, &groups->items[i])) take_gathered(w, &groups->items[i], CLASS_RETAINED);
  }
}

/* What the optimizer steps, in the order of the groups. */
static optimizer_shard_list shards_of(const static_writer *w, const fsdp_group_list *groups)
{
  bool cut = (strategy_of(w->s) & CUT_STATES) != 0;
  optimizer_shard_list list = { ARENA_ARRAY(w->names, optimizer_shard, w->parameters.count), 0 };
  for (uint32_t i = 0; i < groups->count; i++)
    for (uint32_t k = 0; k < groups->items[i].slot_count; k++) {
      const buffer_slot *slot = &groups->items[i].slots[k];
      int64_t elements = cut ? fsdp_owned_elements(&groups->items[i], slot, &w->parameters)
                             : parameter_elements(&w->parameters.items[slot->parameter]);
      list.items[list.count++] = (optimizer_shard){ slot->parameter, elements };
    }
  assert(list.count == w->parameters.count);
  return list;
}

/* Main weights are fp32, and so are the gradients that the optimizer gets. */
static void write_gradient_copies(static_writer *w, const fsdp_group_list *groups)
{
  optimizer_shard_list shards = shards_of(w, groups);
  if (w->s->training.use_precision_aware_optimizer) return;
  for (uint32_t i = 0, at = 0; i < groups->count; i++)
    for (uint32_t k = 0; k < groups->items[i].slot_count; k++, at++) {
      if (fsdp_gradient_type(w->s, &groups->items[i]) == DTYPE_FP32) continue;
      uint32_t id = static_take(w, "main_weights.grad", CLASS_OPTIMIZER, DTYPE_FP32,
                                shards.items[at].elements * 4, shards.items[at].parameter);
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

static int64_t elements_of_whole(const parameter *p)
{
  int64_t elements = p->global_shape[0] * (p->rank > 1 ? p->global_shape[1] : 1);
  assert(elements >= parameter_elements(p) && "... of which this rank has a part");
  return elements;
}

void write_fsdp_states(static_writer *w, const fsdp_group_list *groups)
{
  write_gradient_copies(w, groups);
  optimizer_shard_list shards = shards_of(w, groups);
  shards = optimizer_by_group(&w->parameters, &shards, w->names);
  for (uint32_t i = 0; i < shards.count; i++) {
    const optimizer_shard *shard = &shards.items[i];
    int64_t elements = states_are_whole(w->s)
                           ? elements_of_whole(&w->parameters.items[shard->parameter])
                           : shard->elements;
    static_take(w, "exp_avg", CLASS_OPTIMIZER, DTYPE_FP32, elements * 4, shard->parameter);
    static_take(w, "exp_avg_sq", CLASS_OPTIMIZER, DTYPE_FP32, elements * 4, shard->parameter);
  }
}
