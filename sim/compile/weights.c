#include "sim/compile/weights.h"

#include <assert.h>

#include "sim/compile/parameters.h"

/* One chunk: plain PyTorch has no pipeline. */
struct weights {
  const chunk_program *program;
  uint32_t layers;
  bool *on_device;       /* by layer */
  uint32_t *twin;        /* by parameter: its host buffer */
  uint32_t *first_saved; /* by parameter: the first entry that is the Parameter itself, 0 = none */
  uint32_t *next_saved;  /* by entry: the next entry of the same parameter */
  bool *followed;        /* by entry: its place lost the device buffer with the Parameter */
};

bool weights_is_on_host(const walk *w, const program_parameter *p)
{
  assert(p->layer < w->settings->model.num_layers);
  return w->settings->offload.layer_offloading && program_parameter_visits(p);
}

bool act_weights_on_device(const walk *w, int32_t layer)
{
  assert(layer >= 0 && (uint32_t)layer < w->weights->layers);
  return w->weights->on_device[layer];
}

/* ---- what autograd has saved ---------------------------------------------------------------- */

static void list_saved(struct weights *x, uint32_t parameter)
{
  const entry_array *entries = &x->program->entries;
  uint32_t tensor = x->program->parameters.items[parameter].tensor;
  assert(x->first_saved[parameter] == 0);
  for (uint32_t e = entries->count; e-- > 1;) {
    if (!entries->items[e].parameter || entries->items[e].tensor != tensor) continue;
    x->next_saved[e] = x->first_saved[parameter];
    x->first_saved[parameter] = e;
  }
}

static instance *in_flight(const walk *w)
{
  assert(w->chunk_count == 1);
  for (int64_t i = 0; i < w->settings->derived.num_microbatches; i++)
    if (w->instances[i] != NULL) return w->instances[i];
  return NULL;
}

static void unbind_saved(walk *w, uint32_t parameter, uint32_t buffer)
{
  assert(buffer != NO_BUFFER && parameter < w->weights->program->parameters.count);
  struct weights *x = w->weights;
  instance *in = in_flight(w);
  for (uint32_t e = x->first_saved[parameter]; e != 0 && in != NULL; e = x->next_saved[e]) {
    uint32_t *place = &in->buffer_of[x->program->entry_places.items[e]];
    if (*place != buffer) continue;
    walk_drop_reference(w, buffer);
    *place = NO_BUFFER;
    x->followed[e] = true;
  }
}

static void bind_saved(walk *w, uint32_t parameter, uint32_t buffer)
{
  struct weights *x = w->weights;
  instance *in = in_flight(w);
  for (uint32_t e = x->first_saved[parameter]; e != 0 && in != NULL; e = x->next_saved[e]) {
    if (!x->followed[e]) continue;
    assert(in->buffer_of[x->program->entry_places.items[e]] == NO_BUFFER);
    in->buffer_of[x->program->entry_places.items[e]] = buffer;
    walk_refer(w, buffer);
    x->followed[e] = false;
  }
}

/* ---- moving --------------------------------------------------------------------------------- */

static bool is_of_layer(const walk *w, uint32_t parameter, int32_t layer)
{
  assert(parameter < w->weights->program->parameters.count);
  const program_parameter *p = &w->weights->program->parameters.items[parameter];
  return p->layer == layer && weights_is_on_host(w, p);
}

static void move_out(walk *w, uint32_t parameter, plan_stream stream)
{
  uint32_t *weight = &w->weight_of[0][parameter];
  assert(stream < STREAM_HOST);
  assert(*weight != NO_BUFFER && "the weight is on the device");
  walk_copy(w, OP_D2H, stream, *weight, w->weights->twin[parameter],
            w->weights->program->parameters.items[parameter].tensor);
  unbind_saved(w, parameter, *weight);
  walk_drop_reference(w, *weight);
  *weight = NO_BUFFER;
}

static void move_in(walk *w, uint32_t parameter, plan_stream stream, plan_stream pool)
{
  const program_parameter *p = &w->weights->program->parameters.items[parameter];
  assert(w->weight_of[0][parameter] == NO_BUFFER && "the weight is on the host");
  uint32_t made = walk_alloc(w, p->bytes, p->tensor, CLASS_WEIGHT, pool);
  walk_copy(w, OP_H2D, stream, w->weights->twin[parameter], made, p->tensor);
  bind_saved(w, parameter, made);
  w->weight_of[0][parameter] = made;
}

void act_weights_out(walk *w, int32_t layer, plan_stream stream)
{
  struct weights *x = w->weights;
  assert(layer >= 0 && (uint32_t)layer < x->layers);
  assert(x->on_device[layer] && "weights that are on the host already");
  for (uint32_t k = 0; k < x->program->parameters.count; k++)
    if (is_of_layer(w, k, layer)) move_out(w, k, stream);
  x->on_device[layer] = false;
}

void act_weights_in(walk *w, int32_t layer, plan_stream stream, plan_stream pool)
{
  struct weights *x = w->weights;
  assert(layer >= 0 && (uint32_t)layer < x->layers && stream < STREAM_HOST);
  assert(!x->on_device[layer] && "weights that are on the device already");
  for (uint32_t k = 0; k < x->program->parameters.count; k++)
    if (is_of_layer(w, k, layer)) move_in(w, k, stream, pool);
  x->on_device[layer] = true;
}

/* ---- the beginning -------------------------------------------------------------------------- */

static uint32_t new_twin(walk *w, const program_parameter *p)
{
  assert(weights_is_on_host(w, p) && p->bytes > 0);
  if (w->iteration == ITERATION_WARMUP) return walk_host_alloc(w, p->bytes, p->tensor, 0);
  return parameters_resident(w, p, CLASS_PINNED_HOST, STREAM_HOST);
}

void weights_begin(walk *w)
{
  if (!w->settings->offload.layer_offloading) return;
  assert(w->chunk_count == 1 && "one stage, one chunk");
  struct weights *x = w->weights = ARENA_NEW(w->memory, struct weights);
  x->program = w->programs[0];
  x->layers = (uint32_t)w->settings->model.num_layers;
  x->on_device = ARENA_ARRAY(w->memory, bool, x->layers);
  x->twin = ARENA_ARRAY(w->memory, uint32_t, x->program->parameters.count);
  x->first_saved = ARENA_ARRAY(w->memory, uint32_t, x->program->parameters.count);
  x->next_saved = ARENA_ARRAY(w->memory, uint32_t, x->program->entries.count);
  x->followed = ARENA_ARRAY(w->memory, bool, x->program->entries.count);
  for (uint32_t k = 0; k < x->program->parameters.count; k++) {
    if (!weights_is_on_host(w, &x->program->parameters.items[k])) continue;
    x->twin[k] = new_twin(w, &x->program->parameters.items[k]);
    list_saved(x, k);
  }
  for (uint32_t layer = 0; layer < x->layers && w->iteration == ITERATION_WARMUP; layer++) {
    x->on_device[layer] = true;
    act_weights_out(w, (int32_t)layer, STREAM_COMPUTE);
  }
}

void weights_brought_back(walk *w)
{
  if (!w->settings->offload.layer_offloading) return;
  assert(w->iteration == ITERATION_STEADY && !w->weights->on_device[0]);
  for (uint32_t k = 0; k < w->weights->program->parameters.count; k++)
    if (is_of_layer(w, k, 0))
      w->weight_of[0][k] = parameters_resident(w, &w->weights->program->parameters.items[k],
                                               CLASS_WEIGHT, STREAM_H2D);
  w->weights->on_device[0] = true;
}
