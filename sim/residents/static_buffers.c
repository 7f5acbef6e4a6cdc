/* The life of a training process up to its first optimizer step, without activations. */
#include "sim/residents/static_buffers.h"

#include <assert.h>
#include <string.h>

#include "sim/base/units.h"
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

/* Each parameter is built as a separate tensor. */
static uint32_t *write_parameters(static_writer *w)
{
  uint32_t *ids = ARENA_ARRAY(w->names, uint32_t, w->parameters.count);
  for (uint32_t i = 0; i < w->parameters.count; i++) {
    const parameter *p = &w->parameters.items[i];
    ids[i] = static_take(w, p->name, CLASS_WEIGHT, (dtype)p->type, parameter_bytes(p), i);
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
    take_buffer(w, i, b->is_expert ? "expert_param_buffer" : "param_buffer", CLASS_WEIGHT, type,
                b->parameter_bytes);
    take_buffer(w, i, b->is_expert ? "expert_grad_buffer" : "grad_buffer", CLASS_GRADIENT,
                (dtype)b->gradient_type, b->gradient_bytes);
    for (uint32_t k = 0; b->parameter_bytes > 0 && k < b->slot_count; k++) {
      uint32_t id = parameter_ids[b->slots[k].parameter];
      assert(id < w->allocations.count);
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
  optimizer_shard_list shards = optimizer_order(s, &w.parameters, &w.buffers, a);
  if (s->parallel.use_megatron_fsdp) {
    write_fsdp_buffers(&w, write_parameters(&w));
  } else {
    write_buffers(&w, write_parameters(&w));
    write_main_parameters(&w, &shards);
  }
  write_build_tensors(&w);
  if (s->training.resumes) write_loading(&w, &shards);
  w.phase = STATIC_FORWARD;
  if (s->parallel.use_megatron_fsdp) write_fsdp_gathered(&w);
  write_forward_workspaces(&w);
  w.phase = STATIC_BACKWARD;
  write_backward_workspaces(&w);
  w.phase = STATIC_STEP;
  if (s->parallel.use_megatron_fsdp)
    write_fsdp_states(&w);
  else
    write_optimizer_states(&w, &shards);
  write_graph_buffers(&w);
  w.phase = STATIC_RETAINED;
  if (s->parallel.use_megatron_fsdp) write_fsdp_gathered_ahead(&w);
  write_retained(&w);
  static_allocation_list list = static_writer_finish(&w, a);
  if (!s->parallel.use_megatron_fsdp) list.rank = rank;
  return list;
}

int64_t static_requested_bytes(const static_allocation_list *list)
{
  int64_t sum = 0;
  for (uint32_t i = 0; i < list->count; i++)
    if (list->items[i].purpose != CLASS_TRANSIENT &&
        class_side((buffer_class)list->items[i].purpose) == ON_DEVICE)
      sum += round_up(list->items[i].bytes, ALLOCATION_GRANULE_BYTES);
  return sum;
}
