#include "sim/compile/fsdp.h"

#include <assert.h>

#include "sim/base/units.h"
#include "sim/compile/fsdp_parts.h"
#include "sim/compile/optimizer.h"
#include "sim/compile/parameters.h"
#include "sim/residents/hf_statics.h"

/* ---- shards ---- */

/* The parameter's rows as the parameter has them (FSDP2). */
static uint32_t rows_of_parameter(walk *w, uint32_t of, dtype type, int64_t elements)
{
  plan_tensor row = w->plan->tensors.items[w->programs[0]->parameters.items[of].tensor];
  int64_t of_row = 1;
  for (int i = 1; i < row.rank; i++)
    of_row *= row.shape[i];
  assert(of_row > 0 && elements % of_row == 0);
  row.dtype = (uint8_t)type;
  row.shape[0] = elements / of_row;
  *ARRAY_PUSH(&w->plan->tensors) = row;
  return w->plan->tensors.count - 1;
}

static uint32_t new_shard(walk *w, const fsdp_unit *unit, uint32_t shard)
{
  const fsdp_shard *s = &w->fsdp->layout.shards[shard];
  assert(shard - unit->first_shard < unit->shard_count && s->elements > 0);
  dtype type = fsdp_storage_dtype(w->settings, (dtype)s->type);
  uint32_t tensor =
      w->fsdp->second
          ? rows_of_parameter(w, unit->parameters[shard - unit->first_shard], type, s->elements)
          : fsdp_tensor_row(w, s->name, type, s->elements);
  int64_t bytes = s->elements * dtype_bytes(type);
  if (w->iteration == ITERATION_WARMUP)
    return walk_alloc(w, bytes, tensor, CLASS_WEIGHT, STREAM_COMPUTE);
  return walk_resident(
      w, (plan_buffer){
             .bytes = bytes, .tensor = tensor, .purpose = CLASS_WEIGHT, .stream = STREAM_COMPUTE });
}

void fsdp_begin(walk *w)
{
  assert(w->fsdp == NULL && w->chunk_count == 1);
  fsdp *f = w->fsdp = ARENA_NEW(w->memory, fsdp);
  f->parameters = parameters_of_model(w);
  f->layout = fsdp_layout_of(w->settings, &f->parameters, w->memory);
  f->ranks = fsdp_ranks(w->settings);
  f->second = uses_fsdp2(w->settings);
  f->stays = uses_zero(w->settings);
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
      f->shard[k] = new_shard(w, unit, k);
    if (f->stays) fsdp_find_whole(w, u);
  }
}

/* ---- when units come and go ---- */

static uint32_t unit_of_layer(const fsdp *f, int32_t layer)
{
  uint32_t unit = f->layout.embedding_unit + 1 + (uint32_t)layer;
  assert(layer >= 0 && unit < f->layout.unit_count);
  return unit;
}

/* Forward runs the units in order. Backward runs the root, then the other units from the last to
 * the first. */
static uint32_t next_in_backward(const fsdp *f, uint32_t unit)
{
  assert(unit < f->layout.unit_count);
  return unit == FSDP_ROOT_UNIT ? f->layout.unit_count - 1 : unit - 1;
}

static void before_forward(walk *w, uint32_t unit)
{
  assert(!w->fsdp->units[unit].in_backward && "forward runs before backward");
  fsdp_unshard(w, unit);
  fsdp_wait_for_unit(w, unit, true);
  if (w->settings->parallel.fsdp_forward_prefetch && unit + 1 < w->fsdp->layout.unit_count)
    fsdp_unshard(w, unit + 1);
}

static void after_forward(walk *w, uint32_t unit)
{
  assert(w->fsdp->units[unit].gathered && !w->fsdp->units[unit].in_backward);
  if (w->settings->parallel.fsdp_reshard_after_forward) fsdp_reshard(w, unit);
}

static void before_backward(walk *w, uint32_t unit)
{
  assert(unit < w->fsdp->layout.unit_count && w->backward_seen);
  uint32_t next = next_in_backward(w->fsdp, unit);
  if (w->fsdp->units[unit].in_backward) return;
  w->fsdp->units[unit].in_backward = true;
  fsdp_unshard(w, unit);
  fsdp_wait_for_unit(w, unit, false);
  assert(w->fsdp->units[unit].gathered);
  if (next != FSDP_ROOT_UNIT) fsdp_unshard(w, next);
}

/* The first gather waits for the optimizer step. */
void fsdp_forward_begin(walk *w)
{
  if (w->fsdp == NULL) return;
  assert(!w->fsdp->units[FSDP_ROOT_UNIT].in_backward && "micro-batches run one after the other");
  act_join(w, STREAM_COMM, STREAM_COMPUTE);
  before_forward(w, FSDP_ROOT_UNIT);
  if (w->fsdp->layout.embedding_unit != 0) before_forward(w, w->fsdp->layout.embedding_unit);
}

void fsdp_backward_begin(walk *w)
{
  if (w->fsdp == NULL) return;
  assert(!w->fsdp->units[FSDP_ROOT_UNIT].in_backward && w->forward_seen);
  if (w->fsdp->second) fsdp_forget_output(w);
  before_backward(w, FSDP_ROOT_UNIT);
}

void fsdp_backward_end(walk *w)
{
  if (w->fsdp == NULL) return;
  if (w->fsdp->layout.embedding_unit != 0) fsdp_reduce(w, w->fsdp->layout.embedding_unit);
  assert(w->fsdp->units[FSDP_ROOT_UNIT].in_backward);
  fsdp_reduce(w, FSDP_ROOT_UNIT);
  fsdp_finish_reductions(w);
}

/* A checkpoint is inside its unit, so the unit is gathered once, before the layer is recomputed. */
void fsdp_layer_begin(walk *w, int32_t layer, layer_pass pass)
{
  if (w->fsdp == NULL) return;
  uint32_t embedding = w->fsdp->layout.embedding_unit, unit = unit_of_layer(w->fsdp, layer);
  assert(unit != FSDP_ROOT_UNIT && unit != embedding);
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
  assert(unit != FSDP_ROOT_UNIT && unit != embedding);
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
  assert(bytes > 0);
  return bytes;
}

/* The shard's gradient is a slice of the unit's. */
static plan_view gradient_view(const walk *w, const fsdp_unit *unit, uint32_t shard)
{
  const fsdp_shard *shards = w->fsdp->layout.shards;
  assert(shards[shard].trainable && shard - unit->first_shard < unit->shard_count);
  dtype type = fsdp_storage_dtype(w->settings, (dtype)shards[shard].type);
  plan_view v = { .dtype = (uint8_t)type, .rank = 1 };
  v.shape[0] = shards[shard].elements;
  v.strides[0] = 1;
  for (uint32_t k = unit->first_shard; k < shard; k++)
    if (shards[k].trainable) v.offset += shards[k].elements;
  return v;
}

static void step_shard(walk *w, const fsdp_unit *unit, uint32_t shard, uint32_t gradient,
                       const static_allocation_list *list, const uint32_t *buffer,
                       int64_t state_bytes)
{
  assert(gradient != NO_BUFFER && state_bytes >= 0);
  int64_t bytes = w->rank->buffers.items[w->fsdp->shard[shard]].bytes;
  optimizer_operands o = { .gradient = gradient,
                           .gradient_view = gradient_view(w, unit, shard),
                           .weight = w->fsdp->shard[shard],
                           .elements = w->fsdp->layout.shards[shard].elements };
  for (uint32_t i = 0; i < list->count && o.state_count < OPTIMIZER_STATES; i++)
    if (list->items[i].purpose == CLASS_OPTIMIZER && list->items[i].parameter == shard)
      o.states[o.state_count++] = buffer[i];
  optimizer_step_tensor(w, &o,
                        hf_step_traffic_bytes(w->settings, bytes,
                                              muldiv_i64(state_bytes, bytes, trainable_bytes(w))));
}

void fsdp_step(walk *w, const static_allocation_list *list, const uint32_t *buffer,
               int64_t state_bytes)
{
  assert(w->fsdp->reduce_input == NO_BUFFER && "all reductions are finished");
  for (uint32_t u = 0; u < w->fsdp->layout.unit_count; u++) {
    const fsdp_unit *unit = fsdp_unit_of(w->fsdp, u);
    uint32_t gradient = w->fsdp->units[u].gradient;
    w->fsdp->site = w->fsdp->units[u].site;
    for (uint32_t k = unit->first_shard; k < unit->first_shard + unit->shard_count; k++)
      if (gradient != NO_BUFFER && w->fsdp->layout.shards[k].trainable)
        step_shard(w, unit, k, gradient, list, buffer, state_bytes);
  }
}

void fsdp_zero_gradients(walk *w)
{
  assert(w->fsdp->reduce_input == NO_BUFFER);
  for (uint32_t u = 0; u < w->fsdp->layout.unit_count; u++) {
    uint32_t *gradient = &w->fsdp->units[u].gradient;
    if (*gradient != NO_BUFFER) walk_drop_reference(w, *gradient);
    *gradient = NO_BUFFER;
  }
}
