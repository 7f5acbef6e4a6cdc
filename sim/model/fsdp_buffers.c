/* Megatron-FSDP's buffers, group by group. */
#include "sim/model/fsdp_buffers.h"

#include <string.h>

#include "sim/base/units.h"

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

/* What is cut, as bits of the strategy table. */
enum { CUT_STATES = 1, CUT_GRADIENTS = 2, CUT_WEIGHTS = 4 };

static int strategy_of(const settings *s)
{
  static const struct {
    const char *name;
    int cut;
  } strategies[] = {
    { "no_shard", 0 },
    { "optim", CUT_STATES },
    { "optim_grads", CUT_STATES | CUT_GRADIENTS },
    { "optim_grads_params", CUT_STATES | CUT_GRADIENTS | CUT_WEIGHTS },
  };
  for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++)
    if (strcmp(s->parallel.data_parallel_sharding_strategy, strategies[i].name) == 0)
      return strategies[i].cut;
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

static fsdp_group_array groups_of(const static_writer *w)
{
  fsdp_group_array groups = { 0 };
  for (uint32_t i = 0; i < w->parameters.count; i++)
    group_of(&groups, &w->parameters, i)->elements += parameter_elements(&w->parameters.items[i]);
  const settings *s = w->s;
  int64_t dense = s->derived.data_parallel_size * s->parallel.context_parallel_size;
  int64_t expert = max_i64(1, s->derived.expert_data_parallel_size);
  for (uint32_t i = 0; i < groups.count; i++)
    groups.items[i].part =
        ceil_div(groups.items[i].elements, groups.items[i].is_expert ? expert : dense);
  return groups;
}

static int64_t kept(const fsdp_group *g, bool cut)
{
  return cut ? g->part : g->elements;
}

static void release_parameters(static_writer *w, const uint32_t *ids, const fsdp_group *g)
{
  for (uint32_t i = 0; i < w->parameters.count; i++)
    if (same_group(&w->parameters.items[g->first], &w->parameters.items[i]) &&
        ids[i] != UINT32_MAX) {
      w->allocations.items[ids[i]].class = CLASS_TRANSIENT;
      static_give_back(w, ids[i]);
    }
}

void write_fsdp_buffers(static_writer *w, const uint32_t *parameter_ids)
{
  fsdp_group_array groups = groups_of(w);
  int cut = strategy_of(w->s);
  dtype gradient = gradient_type_of(w->s);
  for (uint32_t i = 0; i < groups.count; i++) {
    const fsdp_group *g = &groups.items[i];
    static_take(w, "fsdp.weights", CLASS_WEIGHT, (dtype)g->type,
                kept(g, (cut & CUT_WEIGHTS) != 0) * dtype_bytes((dtype)g->type), NO_PARAMETER);
    if (g->type != DTYPE_FP32)
      static_take(w, "fsdp.main_weights", CLASS_OPTIMIZER, DTYPE_FP32,
                  kept(g, (cut & CUT_STATES) != 0) * 4, NO_PARAMETER);
    release_parameters(w, parameter_ids, g);
  }
  for (uint32_t i = 0; i < groups.count; i++)
    static_take(w, "fsdp.gradients", CLASS_GRADIENT, gradient,
                kept(&groups.items[i], (cut & CUT_GRADIENTS) != 0) * dtype_bytes(gradient),
                NO_PARAMETER);
  ARRAY_FREE(&groups);
}

void write_fsdp_states(static_writer *w)
{
  fsdp_group_array groups = groups_of(w);
  int cut = strategy_of(w->s);
  for (uint32_t i = 0; i < groups.count; i++) {
    const fsdp_group *g = &groups.items[i];
    static_take(w, "exp_avg", CLASS_OPTIMIZER, DTYPE_FP32, kept(g, (cut & CUT_STATES) != 0) * 4,
                NO_PARAMETER);
    static_take(w, "exp_avg_sq", CLASS_OPTIMIZER, DTYPE_FP32, kept(g, (cut & CUT_STATES) != 0) * 4,
                NO_PARAMETER);
  }
  ARRAY_FREE(&groups);
}
