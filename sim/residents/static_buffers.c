/* The life of a training process up to its first optimizer step, without activations. */
#include "sim/residents/static_buffers.h"

#include <assert.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/graph/host_experts.h"
#include "sim/residents/fsdp_buffers.h"
#include "sim/residents/graph_buffers.h"
#include "sim/residents/loading.h"
#include "sim/residents/optimizer_states.h"
#include "sim/residents/static_writer.h"
#include "sim/residents/workspaces.h"

enum { ALLOCATION_GRANULE_BYTES = 512 };

static int64_t parameter_bytes(const parameter *p)
{
  return parameter_elements(p) * dtype_bytes((dtype)p->type);
}

static buffer_class weight_class(const settings *s, bool is_expert)
{
  return is_expert && keeps_experts_on_host(s) ? CLASS_PINNED_HOST : CLASS_WEIGHT;
}

/* A layer's experts end at `last`, with the weights of second linears. */
static void write_expert_buffers(static_writer *w, uint32_t last)
{
  const parameter *p = &w->parameters.items[last];
  int64_t local = w->s->model.num_experts / w->s->parallel.expert_model_parallel_size;
  int64_t copies = w->s->offload.moe_offloading_num_stages * host_experts_of_chunk(w->s);
  assert(p->is_expert && last + 1 >= 2 * (uint32_t)local);
  for (int second = 0; second < 2; second++) {
    const parameter *of = second ? p : &w->parameters.items[last - (uint32_t)local];
    static_take(w, host_experts_buffer(p->layer, second, w->names), CLASS_WORKSPACE,
                (dtype)of->type, copies * parameter_bytes(of), NO_PARAMETER);
  }
}

static bool ends_experts(const static_writer *w, uint32_t i)
{
  const parameter *p = &w->parameters.items[i];
  return p->is_expert && (i + 1 == w->parameters.count || !w->parameters.items[i + 1].is_expert);
}

/* Each parameter is built as a separate tensor. */
static uint32_t *write_parameters(static_writer *w)
{
  uint32_t *ids = ARENA_ARRAY(w->names, uint32_t, w->parameters.count);
  for (uint32_t i = 0; i < w->parameters.count; i++) {
    const parameter *p = &w->parameters.items[i];
    ids[i] = static_take(w, p->name, weight_class(w->s, p->is_expert), (dtype)p->type,
                         parameter_bytes(p), i);
    if (keeps_experts_on_host(w->s) && ends_experts(w, i)) write_expert_buffers(w, i);
  }
  return ids;
}

static void take_buffer(static_writer *w, uint32_t buffer, const char *name, buffer_class class,
                        dtype type, int64_t bytes)
{
  uint32_t id = static_take(w, name, class, type, bytes, NO_PARAMETER);
  if (id != UINT32_MAX) w->allocations.items[id].buffer = buffer;
}

/* With the distributed optimizer the parameters move into a buffer, and their own tensors are
 * freed. */
static void write_buffers(static_writer *w, const uint32_t *parameter_ids)
{
  for (uint32_t i = 0; i < w->buffers.count; i++) {
    const gradient_buffer *b = &w->buffers.items[i];
    dtype type = (dtype)w->parameters.items[b->slots[0].parameter].type;
    take_buffer(w, i, b->is_expert ? "expert_param_buffer" : "param_buffer",
                weight_class(w->s, b->is_expert), type, b->parameter_bytes);
    take_buffer(w, i, b->is_expert ? "expert_grad_buffer" : "grad_buffer", CLASS_GRADIENT,
                (dtype)b->gradient_type, b->gradient_bytes);
    for (uint32_t k = 0; b->parameter_bytes > 0 && k < b->slot_count; k++) {
      uint32_t id = parameter_ids[b->slots[k].parameter];
      assert(id < w->allocations.count);
      if (w->allocations.items[id].purpose == CLASS_WEIGHT)
        w->allocations.items[id].purpose = CLASS_TRANSIENT;
      static_give_back(w, id);
    }
  }
}

static_allocation_list static_writer_finish(static_writer *w, arena *a)
{
  static_allocation_list list = {
    .items = ARENA_ARRAY(a, static_allocation, w->allocations.count),
    .count = w->allocations.count,
    .events = ARENA_ARRAY(a, static_event, w->events.count),
    .event_count = w->events.count,
    .parameters = w->parameters,
  };
  memcpy(list.items, w->allocations.items, list.count * sizeof *list.items);
  memcpy(list.events, w->events.items, list.event_count * sizeof *list.events);
  ARRAY_FREE(&w->allocations);
  ARRAY_FREE(&w->events);
  return list;
}

static_allocation_list static_allocations(const settings *s, int compute_capability,
                                          uint32_t pp_rank, arena *a)
{
  static_writer w = {
    .s = s,
    .names = a,
    .compute_capability = compute_capability,
    .pp_rank = pp_rank,
    .phase = STATIC_BUILD,
  };
  rank_parameters rank = rank_parameters_of(s, pp_rank, a);
  w.parameters = rank.list;
  w.buffers = rank.buffers;
  write_user_buffers(&w);
  optimizer_shard_list shards = optimizer_order(s, &w.parameters, &w.buffers, a);
  fsdp_group_list groups = { 0 };
  if (s->parallel.use_megatron_fsdp) {
    groups = fsdp_groups_of(s, pp_rank, &w.parameters, a);
    write_fsdp_buffers(&w, &groups);
  } else {
    write_buffers(&w, write_parameters(&w));
    write_main_parameters(&w, &shards);
  }
  write_build_tensors(&w);
  if (s->training.resumes) write_loading(&w, &shards);
  w.phase = STATIC_FORWARD;
  if (s->parallel.use_megatron_fsdp) write_fsdp_gathered(&w, &groups);
  write_forward_workspaces(&w);
  w.phase = STATIC_BACKWARD;
  write_backward_workspaces(&w);
  w.phase = STATIC_STEP;
  if (s->parallel.use_megatron_fsdp)
    write_fsdp_states(&w, &groups);
  else
    write_optimizer_states(&w, &shards);
  write_graph_buffers(&w);
  w.phase = STATIC_RETAINED;
  if (s->parallel.use_megatron_fsdp) write_fsdp_gathered_ahead(&w, &groups);
  write_retained(&w);
  static_allocation_list list = static_writer_finish(&w, a);
  if (!s->parallel.use_megatron_fsdp) list.rank = rank;
  return list;
}

bool static_has_weights(const static_allocation_list *list, uint32_t i)
{
  const static_allocation *a = &list->items[i];
  assert(i < list->count);
  if (a->purpose != CLASS_PINNED_HOST) return a->purpose == CLASS_WEIGHT;
  return a->buffer != NO_PARAMETER ||
         (a->parameter != NO_PARAMETER && a->name == list->parameters.items[a->parameter].name);
}

int64_t static_requested_bytes(const static_allocation_list *list)
{
  int64_t sum = 0;
  for (uint32_t i = 0; i < list->count; i++)
    if (list->items[i].purpose < CLASS_TRANSIENT)
      sum += round_up(list->items[i].bytes, ALLOCATION_GRANULE_BYTES);
  return sum;
}
