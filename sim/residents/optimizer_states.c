/* Main parameters and optimizer states, shard by shard. */
#include "sim/residents/optimizer_states.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Optimizer groups: experts have an optimizer of their own, after the dense one; within each,
 * groups without weight decay (vectors) come first. */
static int group_of(const parameter *p)
{
  return (p->is_expert ? 2 : 0) + (p->role == PARAMETER_VECTOR ? 0 : 1);
}

static optimizer_shard_list by_group(const parameter_list *parameters,
                                     const optimizer_shard_list *shards, arena *a)
{
  optimizer_shard_list out = { ARENA_ARRAY(a, optimizer_shard, shards->count), 0 };
  for (int group = 0; group < 4; group++)
    for (uint32_t i = 0; i < shards->count; i++)
      if (group_of(&parameters->items[shards->items[i].parameter]) == group)
        out.items[out.count++] = shards->items[i];
  assert(out.count == shards->count);
  return out;
}

static int by_elements(const void *left, const void *right)
{
  const optimizer_shard *a = left, *b = right;
  if (a->elements != b->elements) return a->elements < b->elements ? -1 : 1;
  return a->parameter < b->parameter ? -1 : a->parameter > b->parameter;
}

/* Whole parameters, sorted by size, are dealt to ranks 0 .. n-1, then n-1 .. 0, and again. The
 * last rank's turns are n-1 and n of every 2n. */
static optimizer_shard_list dealt_to_last(const settings *s, const parameter_list *parameters,
                                          const optimizer_shard_list *all, arena *a)
{
  optimizer_shard_list sorted = { ARENA_ARRAY(a, optimizer_shard, all->count), all->count };
  optimizer_shard_list mine = { ARENA_ARRAY(a, optimizer_shard, all->count), 0 };
  memcpy(sorted.items, all->items, all->count * sizeof *all->items);
  qsort(sorted.items, sorted.count, sizeof *sorted.items, by_elements);
  int64_t ranks[2] = { s->derived.data_parallel_size * s->parallel.context_parallel_size,
                       s->derived.expert_data_parallel_size };
  int64_t turn[2] = { 0, 0 };
  assert(ranks[0] > 0);
  for (uint32_t i = 0; i < sorted.count; i++) {
    int kind = parameters->items[sorted.items[i].parameter].is_expert ? 1 : 0;
    int64_t position = turn[kind]++ % (2 * ranks[kind]);
    if (position == ranks[kind] - 1 || position == ranks[kind])
      mine.items[mine.count++] = sorted.items[i];
  }
  return mine;
}

optimizer_shard_list optimizer_order(const settings *s, const parameter_list *parameters,
                                     const gradient_buffer_list *buffers, arena *a)
{
  optimizer_shard_list shards = optimizer_shards_of(s, parameters, buffers, a);
  if (s->derived.layer_wise_optimizer && !s->derived.layer_wise_layout)
    shards = dealt_to_last(s, parameters, &shards, a);
  return by_group(parameters, &shards, a);
}

bool optimizer_is_muon(optimizer_choice optimizer)
{
  return optimizer == OPTIMIZER_MUON || optimizer == OPTIMIZER_DIST_MUON ||
         optimizer == OPTIMIZER_ADAPTIVE_MUON;
}

static const dtype main_params_types[] = {
  [MAIN_PARAMS_FP32] = DTYPE_FP32,
  [MAIN_PARAMS_FP16] = DTYPE_FP16,
};

static const dtype exp_avg_types[] = {
  [EXP_AVG_FP32] = DTYPE_FP32,
  [EXP_AVG_FP16] = DTYPE_FP16,
  [EXP_AVG_BF16] = DTYPE_BF16,
  [EXP_AVG_FP8] = DTYPE_FP8,
};

static const dtype exp_avg_sq_types[] = {
  [EXP_AVG_SQ_FP32] = DTYPE_FP32,
  [EXP_AVG_SQ_FP16] = DTYPE_FP16,
  [EXP_AVG_SQ_BF16] = DTYPE_BF16,
  [EXP_AVG_SQ_FP8] = DTYPE_FP8,
};

/* The optimizer's bytes on the device; the rest is offloaded to the host. */
static bool lives_on_host(const settings *s, int64_t before, int64_t total)
{
  if (!s->training.optimizer_cpu_offload) return false;
  return (double)before < s->training.optimizer_offload_fraction * (double)total;
}

static int64_t total_elements(const optimizer_shard_list *shards)
{
  int64_t sum = 0;
  for (uint32_t i = 0; i < shards->count; i++)
    sum += shards->items[i].elements;
  return sum;
}

/* Master weights that the optimizer itself keeps (precision-aware) come with its states. */
void write_main_parameters(static_writer *w, const optimizer_shard_list *shards)
{
  if (w->s->training.use_precision_aware_optimizer) return;
  int64_t total = total_elements(shards), before = 0;
  for (uint32_t i = 0; i < shards->count; i++) {
    const optimizer_shard *shard = &shards->items[i];
    dtype type = (dtype)w->parameters.items[shard->parameter].type;
    bool on_host = lives_on_host(w->s, before, total);
    before += shard->elements;
    if (type == DTYPE_FP32 || on_host) continue;
    uint32_t clone = static_take(w, "main_param.clone", CLASS_TRANSIENT, type,
                                 shard->elements * dtype_bytes(type), shard->parameter);
    static_take(w, "main_param", CLASS_OPTIMIZER, DTYPE_FP32, shard->elements * 4,
                shard->parameter);
    static_give_back(w, clone);
  }
}

/* Which states a parameter has. */
typedef struct state_row {
  const char *name;
  dtype type;
} state_row;

static uint32_t states_of(const settings *s, const parameter *p, state_row rows[3])
{
  const struct training_settings *t = &s->training;
  uint32_t count = 0;
  bool matrix = p->role == PARAMETER_WEIGHT;
  if (t->optimizer == OPTIMIZER_SGD || (matrix && optimizer_is_muon(t->optimizer))) {
    rows[count++] = (state_row){ "momentum_buffer", DTYPE_FP32 };
    return count;
  }
  if (t->use_precision_aware_optimizer && p->type != DTYPE_FP32)
    rows[count++] = (state_row){ "master_param", main_params_types[t->main_params_dtype] };
  bool aware = t->use_precision_aware_optimizer;
  dtype first = aware ? exp_avg_types[t->exp_avg_dtype] : DTYPE_FP32;
  dtype second = aware ? exp_avg_sq_types[t->exp_avg_sq_dtype] : DTYPE_FP32;
  rows[count++] = (state_row){ "exp_avg", first };
  if (t->optimizer != OPTIMIZER_LION) rows[count++] = (state_row){ "exp_avg_sq", second };
  assert(count > 0 && count <= 3);
  return count;
}

/* optimizer.py: every step copies them from the model's gradients; zero_grad drops them. */
static void write_gradient_copies(static_writer *w, const optimizer_shard_list *shards)
{
  if (gradient_type_of(w->s) == DTYPE_FP32 || w->s->training.use_precision_aware_optimizer) return;
  for (uint32_t i = 0; i < shards->count; i++) {
    uint32_t id = static_take(w, "main_param.grad", CLASS_OPTIMIZER, DTYPE_FP32,
                              shards->items[i].elements * 4, shards->items[i].parameter);
    if (id != UINT32_MAX) w->allocations.items[id].each_step = true;
  }
}

void write_optimizer_states(static_writer *w, const optimizer_shard_list *shards)
{
  int64_t total = total_elements(shards), before = 0;
  write_gradient_copies(w, shards);
  for (uint32_t i = 0; i < shards->count; i++) {
    const optimizer_shard *shard = &shards->items[i];
    state_row rows[3];
    uint32_t count = states_of(w->s, &w->parameters.items[shard->parameter], rows);
    bool on_host = lives_on_host(w->s, before, total);
    before += shard->elements;
    for (uint32_t k = 0; k < count && !on_host; k++)
      static_take(w, rows[k].name, CLASS_OPTIMIZER, rows[k].type,
                  shard->elements * dtype_bytes(rows[k].type), shard->parameter);
  }
}
