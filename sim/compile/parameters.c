#include "sim/compile/parameters.h"

#include <assert.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/compile/fsdp.h"
#include "sim/compile/optimizer.h"
#include "sim/compile/weights.h"
#include "sim/residents/fsdp_buffers.h"
#include "sim/residents/fsdp_units.h"
#include "sim/residents/hf_statics.h"

static bool are_own(const walk *w)
{
  return uses_hf(w->settings);
}

static hf_parameter description_of(const walk *w, const program_parameter *p)
{
  const plan_tensor *t = &w->plan->tensors.items[p->tensor];
  assert(p->bytes % dtype_bytes((dtype)t->dtype) == 0);
  return (hf_parameter){ .name = t->name,
                         .elements = p->bytes / dtype_bytes((dtype)t->dtype),
                         .rows = t->shape[0],
                         .layer = p->layer,
                         .type = t->dtype,
                         .trainable = p->trainable,
                         .embedding =
                             strcmp(w->plan->sites.items[t->site].module, "embed_tokens") == 0 };
}

hf_parameter_list parameters_of_model(const walk *w)
{
  const program_parameter_array *own = &w->programs[0]->parameters;
  hf_parameter_list list = { ARENA_ARRAY(w->memory, hf_parameter, own->count), own->count };
  assert(w->chunk_count == 1 && "one stage, one chunk");
  for (uint32_t i = 0; i < own->count; i++)
    list.items[i] = description_of(w, &own->items[i]);
  return list;
}

static uint32_t *all_set(arena *a, uint32_t count, uint32_t value)
{
  uint32_t *made = ARENA_ARRAY(a, uint32_t, count);
  for (uint32_t i = 0; i < count; i++)
    made[i] = value;
  return made;
}

void parameters_share(walk *w, uint32_t weights, uint32_t gradients)
{
  assert(w->chunk_count > 0);
  for (uint32_t c = 0; c < w->chunk_count; c++) {
    w->weight_of[c] = all_set(w->memory, w->programs[c]->parameters.count, weights);
    w->gradient_of[c] = all_set(w->memory, w->programs[c]->parameters.count, gradients);
  }
}

uint32_t parameters_resident(walk *w, const program_parameter *p, buffer_class class,
                             plan_stream pool)
{
  assert(p->bytes > 0 && w->iteration == ITERATION_STEADY);
  return walk_resident(w, (plan_buffer){ .bytes = p->bytes,
                                         .tensor = p->tensor,
                                         .purpose = (uint8_t) class,
                                         .stream = (uint8_t)pool });
}

static uint32_t weight_buffer(walk *w, const program_parameter *p)
{
  assert(p->bytes > 0 && p->shared == NULL);
  if (w->iteration == ITERATION_WARMUP)
    return walk_alloc(w, p->bytes, p->tensor, CLASS_WEIGHT, STREAM_COMPUTE);
  return weights_is_on_host(w, p) ? NO_BUFFER
                                  : parameters_resident(w, p, CLASS_WEIGHT, STREAM_COMPUTE);
}

void parameters_begin(walk *w)
{
  assert(!w->forward_seen && w->fsdp == NULL);
  parameters_share(w, NO_BUFFER, NO_BUFFER);
  if (uses_fsdp(w->settings)) {
    fsdp_begin(w);
    return;
  }
  for (uint32_t c = 0; c < w->chunk_count && are_own(w); c++)
    for (uint32_t k = 0; k < w->programs[c]->parameters.count; k++)
      w->weight_of[c][k] = weight_buffer(w, &w->programs[c]->parameters.items[k]);
  weights_begin(w);
}

/* In the order in which the first backward made the gradients. */
void parameters_resident_gradients(walk *w)
{
  assert(w->iteration == ITERATION_STEADY);
  if (!are_own(w) || !w->settings->training.keep_gradients) return;
  for (uint32_t c = w->chunk_count; c-- > 0;)
    for (uint32_t k = w->programs[c]->parameters.count; k-- > 0;) {
      const program_parameter *p = &w->programs[c]->parameters.items[k];
      if (p->trainable)
        w->gradient_of[c][k] = parameters_resident(w, p, CLASS_GRADIENT, STREAM_COMPUTE);
    }
}

/* ---- Megatron's ------------------------------------------------------------------------------ */

static uint32_t *by_gradient_buffer(walk *w, const static_allocation_list *list,
                                    const uint32_t *buffer, buffer_class class)
{
  assert(class == CLASS_WEIGHT || class == CLASS_GRADIENT);
  uint32_t *found = ARENA_ARRAY(w->memory, uint32_t, list->rank.buffers.count);
  for (uint32_t i = 0; i < list->count; i++) {
    bool is_of =
        class == CLASS_WEIGHT ? static_has_weights(list, i) : list->items[i].purpose == class;
    if (is_of && list->items[i].buffer != NO_PARAMETER) found[list->items[i].buffer] = buffer[i];
  }
  return found;
}

static parameter_buffers buffers_of_rows(walk *w, const static_allocation_list *list,
                                         const uint32_t *buffer)
{
  const rank_parameters *r = &list->rank;
  const uint32_t *weights = by_gradient_buffer(w, list, buffer, CLASS_WEIGHT);
  const uint32_t *gradients = by_gradient_buffer(w, list, buffer, CLASS_GRADIENT);
  parameter_buffers found = { ARENA_ARRAY(w->memory, uint32_t, r->list.count),
                              ARENA_ARRAY(w->memory, uint32_t, r->list.count) };
  for (uint32_t i = 0; i < r->list.count; i++) {
    assert(r->places[i].buffer < r->buffers.count);
    found.weight_of[i] = weights[r->places[i].buffer];
    found.gradient_of[i] = gradients[r->places[i].buffer];
  }
  /* A parameter's first buffer; the next ones are its fp8 copies. */
  for (uint32_t i = list->count; i-- > 0 && !r->buffered;)
    if (static_has_weights(list, i) && list->items[i].parameter != NO_PARAMETER)
      found.weight_of[list->items[i].parameter] = buffer[i];
  return found;
}

parameter_buffers parameters_place(walk *w, const static_allocation_list *list,
                                   const uint32_t *buffer)
{
  parameter_buffers found = buffers_of_rows(w, list, buffer);
  for (uint32_t c = 0; c < w->chunk_count; c++)
    for (uint32_t k = 0; k < w->programs[c]->parameters.count; k++) {
      uint32_t row = w->programs[c]->parameters.items[k].row;
      if (row == NO_ROW) continue;
      assert(row < list->rank.list.count);
      w->weight_of[c][k] = found.weight_of[row];
      w->gradient_of[c][k] = found.gradient_of[row];
    }
  return found;
}

uint32_t parameters_fsdp_gradients(const static_allocation_list *list, const uint32_t *buffer,
                                   uint8_t type)
{
  for (uint32_t i = 0; i < list->count; i++)
    if (strcmp(list->items[i].name, FSDP_GRADIENTS) == 0 && list->items[i].type == type)
      return buffer[i];
  assert(0 && "each type has its buffer");
  return NO_BUFFER;
}

void parameters_place_fsdp_gradients(walk *w, const static_allocation_list *list,
                                     const uint32_t *buffer)
{
  assert(w->settings->parallel.use_megatron_fsdp);
  for (uint32_t c = 0; c < w->chunk_count; c++)
    for (uint32_t k = 0; k < w->programs[c]->parameters.count; k++) {
      const program_parameter *p = &w->programs[c]->parameters.items[k];
      if (!p->gradient.whole && p->row != NO_ROW)
        w->gradient_of[c][k] = parameters_fsdp_gradients(list, buffer, p->gradient.dtype);
    }
}

static uint32_t buffer_named(const static_allocation_list *list, const uint32_t *buffer,
                             const char *name)
{
  for (uint32_t i = 0; i < list->count; i++)
    if (strcmp(list->items[i].name, name) == 0) return buffer[i];
  assert(0 && "the shared buffer is a static allocation");
  return NO_BUFFER;
}

void parameters_place_shared(walk *w, const static_allocation_list *list, const uint32_t *buffer)
{
  assert(!w->backward_seen);
  for (uint32_t c = 0; c < w->chunk_count; c++)
    for (uint32_t k = 0; k < w->programs[c]->parameters.count; k++) {
      const char *shared = w->programs[c]->parameters.items[k].shared;
      if (shared != NULL) w->weight_of[c][k] = buffer_named(list, buffer, shared);
    }
}

/* ---- own ones, at work ----------------------------------------------------------------------- */

bool parameters_adopt(walk *w, const chunk_program *p, instance *in, const program_step *step)
{
  /* It reads the gradient last, and writes the sum. */
  const uint32_t *sum = &p->operands.items[step->operands + step->reads];
  assert(step->writes == 1 && step->reads > 0 && (*sum & OPERAND_PARAMETER_GRADIENT) != 0);
  uint32_t k = *sum & ~OPERAND_PARAMETER_GRADIENT;
  uint32_t *gradient = &in->gradient_of[k];
  uint32_t *made = &in->buffer_of[sum[-1]];
  if (*gradient != NO_BUFFER) return false;
  assert(*made != NO_BUFFER && walk_references(w, *made) == 1 && "only the place refers to it");
  /* From here on this buffer is the parameter's gradient, for later iterations too. */
  w->rank->buffers.items[*made].purpose = CLASS_GRADIENT;
  w->rank->buffers.items[*made].tensor = p->parameters.items[k].tensor;
  *gradient = *made;
  *made = NO_BUFFER;
  return true;
}

static int64_t trainable_bytes(const walk *w)
{
  assert(are_own(w));
  int64_t bytes = 0;
  for (uint32_t c = 0; c < w->chunk_count; c++)
    for (uint32_t k = 0; k < w->programs[c]->parameters.count; k++)
      if (w->programs[c]->parameters.items[k].trainable)
        bytes += w->programs[c]->parameters.items[k].bytes;
  return bytes;
}

static optimizer_operands operands_of(const walk *w, const static_allocation_list *list,
                                      const uint32_t *buffer, uint32_t c, uint32_t k)
{
  assert(w->gradient_of[c][k] != NO_BUFFER && w->weight_of[c][k] != NO_BUFFER);
  const program_parameter *p = &w->programs[c]->parameters.items[k];
  dtype type = (dtype)w->plan->tensors.items[p->tensor].dtype;
  optimizer_operands o = { .gradient = w->gradient_of[c][k],
                           .weight = w->weight_of[c][k],
                           .elements = p->bytes / dtype_bytes(type) };
  for (uint32_t i = 0; i < list->count && o.state_count < OPTIMIZER_STATES; i++)
    if (list->items[i].purpose == CLASS_OPTIMIZER && list->items[i].parameter == k)
      o.states[o.state_count++] = buffer[i];
  return o;
}

void parameters_step(walk *w, const static_allocation_list *list, const uint32_t *buffer,
                     int64_t state_bytes)
{
  if (w->fsdp != NULL) {
    fsdp_step(w, list, buffer, state_bytes);
    return;
  }
  int64_t all = trainable_bytes(w);
  assert(all >= 0 && state_bytes >= 0);
  for (uint32_t c = 0; c < w->chunk_count; c++)
    for (uint32_t k = 0; k < w->programs[c]->parameters.count; k++) {
      int64_t bytes = w->programs[c]->parameters.items[k].bytes;
      if (w->gradient_of[c][k] == NO_BUFFER) continue;
      assert(all > 0 && "it is trained");
      optimizer_operands o = operands_of(w, list, buffer, c, k);
      optimizer_step_tensor(
          w, &o, hf_step_traffic_bytes(w->settings, bytes, muldiv_i64(state_bytes, bytes, all)));
    }
}

void parameters_zero_gradients(walk *w)
{
  assert(w->forward_seen && w->backward_seen);
  if (w->fsdp != NULL) {
    fsdp_zero_gradients(w);
    return;
  }
  for (uint32_t c = 0; c < w->chunk_count; c++)
    for (uint32_t k = 0; k < w->programs[c]->parameters.count; k++) {
      uint32_t *gradient = &w->gradient_of[c][k];
      if (*gradient != NO_BUFFER) walk_drop_reference(w, *gradient);
      *gradient = NO_BUFFER;
    }
}
