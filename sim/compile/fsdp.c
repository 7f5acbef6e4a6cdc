#include "sim/compile/fsdp.h"

#include <assert.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/compile/collectives.h"
#include "sim/compile/fsdp_parts.h"
#include "sim/compile/parameters.h"
#include "sim/model/hf/statics.h"

/* ---- ops ---- */

static uint32_t tensor_row(walk *w, const char *name, dtype type, int64_t elements)
{
  *ARRAY_PUSH(&w->plan->tensors) = (plan_tensor){
    .name = name, .site = w->fsdp->site, .dtype = (uint8_t)type, .rank = 1, .shape = { elements }
  };
  return w->plan->tensors.count - 1;
}

uint32_t fsdp_alloc(walk *w, const char *name, dtype type, int64_t elements, buffer_class class,
                    plan_stream pool)
{
  return walk_alloc(w, elements * dtype_bytes(type), tensor_row(w, name, type, elements), class,
                    pool);
}

static plan_op *emit(walk *w, op_kind kind, plan_stream stream, const plan_call *call,
                     const uint32_t *reads, uint32_t read_count, const uint32_t *writes,
                     uint32_t write_count)
{
  assert(read_count <= UINT8_MAX && write_count <= UINT8_MAX);
  uint32_t first = w->rank->operands.count;
  uint32_t *operands = ARRAY_EXTEND(&w->rank->operands, read_count + write_count);
  memcpy(operands, reads, read_count * sizeof *reads);
  memcpy(operands + read_count, writes, write_count * sizeof *writes);
  plan_op *made = walk_emit(w, kind, stream, plan_call_row(w->plan, call));
  made->operands = first;
  made->site = w->fsdp->site;
  made->reads = (uint8_t)read_count;
  made->writes = (uint8_t)write_count;
  return made;
}

static int64_t bytes_of(const walk *w, const uint32_t *buffers, uint32_t count)
{
  int64_t bytes = 0;
  for (uint32_t i = 0; i < count; i++)
    bytes += w->rank->buffers.items[buffers[i]].bytes;
  return bytes;
}

void fsdp_kernel(walk *w, kernel_kind kind, plan_stream stream, const uint32_t *reads,
                 uint32_t read_count, const uint32_t *writes, uint32_t write_count)
{
  plan_call call;
  memset(&call, 0, sizeof call);
  call.kind = (uint8_t)kind;
  uint32_t tensor = w->rank->buffers.items[writes[0]].tensor;
  call.dtype = w->plan->tensors.items[tensor].dtype;
  call.dims[0] = bytes_of(w, writes, write_count) / dtype_bytes((dtype)call.dtype);
  call.bytes = bytes_of(w, reads, read_count) + bytes_of(w, writes, write_count);
  emit(w, OP_KERNEL, stream, &call, reads, read_count, writes, write_count);
}

/* Neighbours of a sharding group stand side by side; those of a group of replicas, a group apart.
 */
void fsdp_collective(walk *w, collective_kind kind, int64_t ranks, int64_t bytes, uint32_t read,
                     uint32_t written)
{
  if (ranks == 1) return;
  plan_call call = collective_call(w->settings, kind, GROUP_DP, bytes);
  call.group_size = (uint32_t)ranks;
  if (kind == COLLECTIVE_ALL_REDUCE) call.group_stride = (uint32_t)w->fsdp->ranks;
  emit(w, OP_COLLECTIVE, STREAM_COMM, &call, &read, 1, &written, 1);
}

/* ---- shards ---- */

static uint32_t new_shard(walk *w, const fsdp_shard *s)
{
  dtype type = fsdp_storage_dtype(w->settings, (dtype)s->type);
  if (w->iteration == ITERATION_WARMUP)
    return fsdp_alloc(w, s->name, type, s->elements, CLASS_WEIGHT, STREAM_COMPUTE);
  return walk_resident(w, (plan_buffer){ .bytes = s->elements * dtype_bytes(type),
                                         .tensor = tensor_row(w, s->name, type, s->elements),
                                         .class = CLASS_WEIGHT,
                                         .stream = STREAM_COMPUTE });
}

void fsdp_begin(walk *w)
{
  fsdp *f = w->fsdp = ARENA_NEW(w->memory, fsdp);
  f->parameters = parameters_of_model(w);
  f->layout = fsdp_layout_of(w->settings, &f->parameters, w->memory);
  f->ranks = fsdp_ranks(w->settings);
  f->second = uses_fsdp2(w->settings);
  f->reduce_input = NO_BUFFER;
  f->given_back = ARENA_ARRAY(w->memory, event_id, fsdp_ring_size(f));
  f->units = ARENA_ARRAY(w->memory, unit_state, f->layout.unit_count);
  f->shard = ARENA_ARRAY(w->memory, uint32_t, f->layout.shard_count);
  for (uint32_t u = 0; u < f->layout.unit_count; u++) {
    const fsdp_unit *unit = fsdp_unit_of(f, u);
    *ARRAY_PUSH(&w->plan->sites) = (plan_site){ .module = "fsdp", .layer = unit->layer };
    f->site = w->plan->sites.count - 1;
    f->units[u] =
        (unit_state){ .site = f->site, .gradient = NO_BUFFER, .gather_output = NO_BUFFER };
    for (uint32_t k = unit->first_shard; k < unit->first_shard + unit->shard_count; k++)
      f->shard[k] = new_shard(w, &f->layout.shards[k]);
  }
}

/* ---- when units come and go ---- */

static uint32_t unit_of_layer(const fsdp *f, int32_t layer)
{
  return f->layout.embedding_unit + 1 + (uint32_t)layer;
}

/* Forward runs the units in their order. Backward runs the root, then the others from the last on.
 */
static uint32_t next_in_backward(const fsdp *f, uint32_t unit)
{
  return unit == FSDP_ROOT_UNIT ? f->layout.unit_count - 1 : unit - 1;
}

static void before_forward(walk *w, uint32_t unit)
{
  fsdp_unshard(w, unit);
  fsdp_wait_for_unit(w, unit, true);
  if (w->settings->parallel.fsdp_forward_prefetch && unit + 1 < w->fsdp->layout.unit_count)
    fsdp_unshard(w, unit + 1);
}

static void after_forward(walk *w, uint32_t unit)
{
  if (w->settings->parallel.fsdp_reshard_after_forward) fsdp_reshard(w, unit);
}

static void before_backward(walk *w, uint32_t unit)
{
  uint32_t next = next_in_backward(w->fsdp, unit);
  if (w->fsdp->units[unit].in_backward) return;
  w->fsdp->units[unit].in_backward = true;
  fsdp_unshard(w, unit);
  fsdp_wait_for_unit(w, unit, false);
  if (next != FSDP_ROOT_UNIT) fsdp_unshard(w, next);
}

/* Gathering waits for the optimizer step. */
void fsdp_forward_begin(walk *w)
{
  if (w->fsdp == NULL) return;
  act_join(w, STREAM_COMM, STREAM_COMPUTE);
  before_forward(w, FSDP_ROOT_UNIT);
  if (w->fsdp->layout.embedding_unit != 0) before_forward(w, w->fsdp->layout.embedding_unit);
}

void fsdp_backward_begin(walk *w)
{
  if (w->fsdp == NULL) return;
  if (w->fsdp->second) fsdp_forget_output(w);
  before_backward(w, FSDP_ROOT_UNIT);
}

void fsdp_backward_end(walk *w)
{
  if (w->fsdp == NULL) return;
  if (w->fsdp->layout.embedding_unit != 0) fsdp_reduce(w, w->fsdp->layout.embedding_unit);
  fsdp_reduce(w, FSDP_ROOT_UNIT);
  fsdp_finish_reductions(w);
}

/* A checkpoint lies inside its unit: the unit is gathered before the layer runs again, once. */
void fsdp_layer_begin(walk *w, int32_t layer, layer_pass pass)
{
  if (w->fsdp == NULL) return;
  uint32_t embedding = w->fsdp->layout.embedding_unit, unit = unit_of_layer(w->fsdp, layer);
  if (pass != PASS_FORWARD) {
    before_backward(w, unit);
    return;
  }
  if (layer == 0 && embedding != 0) after_forward(w, embedding);
  before_forward(w, unit);
}

void fsdp_layer_end(walk *w, int32_t layer, layer_pass pass)
{
  if (w->fsdp == NULL || pass == PASS_RECOMPUTE) return;
  uint32_t embedding = w->fsdp->layout.embedding_unit, unit = unit_of_layer(w->fsdp, layer);
  if (pass == PASS_FORWARD) {
    after_forward(w, unit);
    return;
  }
  fsdp_reduce(w, unit);
  if (layer == 0 && embedding != 0) before_backward(w, embedding);
}

/* ---- the optimizer ---- */

static int64_t trainable_bytes(const walk *w)
{
  const fsdp *f = w->fsdp;
  int64_t bytes = 0;
  for (uint32_t i = 0; i < f->layout.shard_count; i++)
    if (f->layout.shards[i].trainable) bytes += w->rank->buffers.items[f->shard[i]].bytes;
  return bytes;
}

static void step_shard(walk *w, uint32_t shard, uint32_t gradient, int64_t state_bytes)
{
  int64_t bytes = w->rank->buffers.items[w->fsdp->shard[shard]].bytes;
  plan_call call;
  memset(&call, 0, sizeof call);
  call.kind = KERNEL_OPTIMIZER_STEP;
  call.dtype = DTYPE_FP32;
  call.bytes = call.dims[0] =
      hf_step_traffic_bytes(w->settings, bytes, muldiv_i64(state_bytes, bytes, trainable_bytes(w)));
  emit(w, OP_KERNEL, STREAM_COMPUTE, &call, &gradient, 1, &w->fsdp->shard[shard], 1);
}

void fsdp_step(walk *w, int64_t state_bytes)
{
  for (uint32_t u = 0; u < w->fsdp->layout.unit_count; u++) {
    const fsdp_unit *unit = fsdp_unit_of(w->fsdp, u);
    uint32_t gradient = w->fsdp->units[u].gradient;
    w->fsdp->site = w->fsdp->units[u].site;
    for (uint32_t k = unit->first_shard; k < unit->first_shard + unit->shard_count; k++)
      if (gradient != NO_BUFFER && w->fsdp->layout.shards[k].trainable)
        step_shard(w, k, gradient, state_bytes);
  }
}

void fsdp_zero_gradients(walk *w)
{
  for (uint32_t u = 0; u < w->fsdp->layout.unit_count; u++) {
    uint32_t *gradient = &w->fsdp->units[u].gradient;
    if (*gradient != NO_BUFFER) walk_drop_reference(w, *gradient);
    *gradient = NO_BUFFER;
  }
}
