/* Main parameters and optimizer states, shard by shard. */
#include "sim/residents/optimizer_states.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

optimizer_shard_list optimizer_by_group(const parameter_list *parameters,
                                        const optimizer_shard_list *shards, arena *a)
{
  optimizer_shard_list out = { ARENA_ARRAY(a, optimizer_shard, shards->count), 0 };
  for (uint32_t group = 0; group < OPTIMIZER_GROUPS; group++)
    for (uint32_t i = 0; i < shards->count; i++)
      if (optimizer_group_of(&parameters->items[shards->items[i].parameter]) == group)
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
    int kind = parameters->items[sorted.items[i].parameter].is_expert_parallel ? 1 : 0;
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
  return optimizer_by_group(parameters, &shards, a);
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

/* ---- which shards the host steps ---- */

/* Each optimizer, the dense one and that of expert parallel parameters, has its own threshold: shards leave
 * in order while those before them have fewer elements than the fraction of all (HybridDeviceOptimizer). */
static bool *on_host_of(const settings *s, const parameter_list *parameters,
                        const optimizer_shard_list *shards, arena *a)
{
  bool *on_host = ARENA_ARRAY(a, bool, shards->count);
  int64_t total[2] = { 0, 0 }, moved[2] = { 0, 0 };
  if (!s->training.optimizer_cpu_offload) return on_host;
  for (uint32_t i = 0; i < shards->count; i++)
    total[parameters->items[shards->items[i].parameter].is_expert_parallel] +=
        shards->items[i].elements;
  for (uint32_t i = 0; i < shards->count; i++) {
    bool expert = parameters->items[shards->items[i].parameter].is_expert_parallel;
    double threshold = (double)total[expert] * s->training.optimizer_offload_fraction;
    on_host[i] = (double)moved[expert] < threshold;
    if (on_host[i]) moved[expert] += shards->items[i].elements;
  }
  return on_host;
}

static buffer_class host_class(bool pinned)
{
  return pinned ? CLASS_PINNED_HOST : CLASS_PAGEABLE_HOST;
}

/* The class of the main parameter; CLASS_WEIGHT: the weight is its own. A copy that came to the host in
 * fp32 is page-locked at once; one that is cast there, if the setting says so. */
static buffer_class main_class(const settings *s, dtype type, bool on_host)
{
  if (on_host) return host_class(s->training.pin_cpu_params || type == DTYPE_FP32);
  return type == DTYPE_FP32 ? CLASS_WEIGHT : CLASS_OPTIMIZER;
}

/* Master weights that the optimizer itself keeps (precision-aware) come with its states, but for those of
 * a HybridDeviceOptimizer, which makes them itself. */
void write_main_parameters(static_writer *w, const optimizer_shard_list *shards)
{
  const struct training_settings *t = &w->s->training;
  if (t->use_precision_aware_optimizer && !t->optimizer_cpu_offload) return;
  const bool *on_host = on_host_of(w->s, &w->parameters, shards, w->names);
  for (uint32_t i = 0; i < shards->count; i++) {
    const optimizer_shard *shard = &shards->items[i];
    dtype type = (dtype)w->parameters.items[shard->parameter].type;
    buffer_class class = main_class(w->s, type, on_host[i]);
    if (class == CLASS_WEIGHT) continue;
    uint32_t clone = static_take(w, "main_param.clone", CLASS_TRANSIENT, type,
                                 shard->elements * dtype_bytes(type), shard->parameter);
    static_take(w, "main_param", class, DTYPE_FP32, shard->elements * 4, shard->parameter);
    static_give_back(w, clone);
  }
}

/* Which states a parameter has, in the order in which FusedAdam makes them. */
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
  bool aware = t->use_precision_aware_optimizer && !t->optimizer_cpu_offload;
  dtype first = aware ? exp_avg_types[t->exp_avg_dtype] : DTYPE_FP32;
  dtype second = aware ? exp_avg_sq_types[t->exp_avg_sq_dtype] : DTYPE_FP32;
  rows[count++] = (state_row){ "exp_avg", first };
  if (t->optimizer != OPTIMIZER_LION) rows[count++] = (state_row){ "exp_avg_sq", second };
  if (aware && p->type != DTYPE_FP32)
    rows[count++] = (state_row){ "master_param", main_params_types[t->main_params_dtype] };
  assert(count > 0 && count <= 3);
  return count;
}

int64_t checkpointed_bytes(const settings *s, const parameter *p)
{
  state_row rows[3];
  uint32_t fields = 1, count = states_of(s, p, rows);
  for (uint32_t k = 0; k < count; k++)
    fields += strcmp(rows[k].name, "master_param") != 0;
  return fields * dtype_bytes(DTYPE_FP32);
}

/* optimizer.py: every step copies them from the model's gradients; zero_grad drops them. A
 * HybridDeviceOptimizer casts gradients of 16 bits, keeps them, and has all of those on the host. */
static void write_gradient_copies(static_writer *w, const optimizer_shard_list *shards,
                                  const bool *on_host)
{
  const struct training_settings *t = &w->s->training;
  bool hybrid = t->optimizer_cpu_offload, cast = gradient_type_of(w->s) != DTYPE_FP32;
  for (uint32_t i = 0; i < shards->count; i++) {
    if (!on_host[i] && (!cast || (t->use_precision_aware_optimizer && !hybrid))) continue;
    uint32_t id = static_take(
        w, "main_param.grad", on_host[i] ? host_class(t->pin_cpu_grads) : CLASS_OPTIMIZER,
        DTYPE_FP32, shards->items[i].elements * 4, shards->items[i].parameter);
    if (id != UINT32_MAX) w->allocations.items[id].each_step = !hybrid;
  }
}

void take_optimizer_states(static_writer *w, const optimizer_shard_list *shards, buffer_class class)
{
  const bool *on_host = on_host_of(w->s, &w->parameters, shards, w->names);
  for (uint32_t i = 0; i < shards->count; i++) {
    const optimizer_shard *shard = &shards->items[i];
    state_row rows[3];
    uint32_t count = states_of(w->s, &w->parameters.items[shard->parameter], rows);
    for (uint32_t k = 0; k < count; k++)
      static_take(w, rows[k].name, on_host[i] ? CLASS_PAGEABLE_HOST : class, rows[k].type,
                  shard->elements * dtype_bytes(rows[k].type), shard->parameter);
  }
}

void write_optimizer_states(static_writer *w, const optimizer_shard_list *shards)
{
  assert(w->phase == STATIC_STEP);
  write_gradient_copies(w, shards, on_host_of(w->s, &w->parameters, shards, w->names));
  if (!w->s->training.resumes) take_optimizer_states(w, shards, CLASS_OPTIMIZER);
}
