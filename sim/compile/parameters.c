#include "sim/compile/parameters.h"

#include <assert.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/compile/fsdp.h"
#include "sim/model/hf/fsdp_units.h"
#include "sim/model/hf/statics.h"
#include "sim/compile/weights.h"

static bool are_own(const walk *w)
{
  return uses_hf(w->settings);
}

static hf_parameter description_of(const walk *w, const program_parameter *p)
{
  const plan_tensor *t = &w->plan->tensors.items[p->tensor];
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
  for (uint32_t c = 0; c < w->chunk_count; c++) {
    w->weight_of[c] = all_set(w->memory, w->programs[c]->parameters.count, weights);
    w->gradient_of[c] = all_set(w->memory, w->programs[c]->parameters.count, gradients);
  }
}

uint32_t parameters_resident(walk *w, const program_parameter *p, buffer_class class, plan_stream pool)
{
  return walk_resident(w, (plan_buffer){ .bytes = p->bytes,
                                         .tensor = p->tensor,
                                         .class = (uint8_t)class,
                                         .stream = (uint8_t)pool });
}

static uint32_t weight_buffer(walk *w, const program_parameter *p)
{
  if (w->iteration == ITERATION_WARMUP)
    return walk_alloc(w, p->bytes, p->tensor, CLASS_WEIGHT, STREAM_COMPUTE);
  return weights_is_on_host(w, p) ? NO_BUFFER
                                  : parameters_resident(w, p, CLASS_WEIGHT, STREAM_COMPUTE);
}

void parameters_begin(walk *w)
{
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

/* In the order in which the first backward made them. */
void parameters_resident_gradients(walk *w)
{
  if (!are_own(w) || !w->settings->training.keep_gradients) return;
  for (uint32_t c = w->chunk_count; c-- > 0;)
    for (uint32_t k = w->programs[c]->parameters.count; k-- > 0;) {
      const program_parameter *p = &w->programs[c]->parameters.items[k];
      if (p->trainable)
        w->gradient_of[c][k] = parameters_resident(w, p, CLASS_GRADIENT, STREAM_COMPUTE);
    }
}

bool parameters_adopt(walk *w, const chunk_program *p, instance *in, const program_step *step)
{
  const uint32_t *operands = &p->operands.items[step->operands];
  assert(operands[0] & OPERAND_PARAMETER_GRADIENT);
  uint32_t *gradient = &in->gradient_of[operands[0] & ~OPERAND_PARAMETER_GRADIENT];
  uint32_t *made = &in->buffer_of[operands[1]];
  if (*gradient != NO_BUFFER) return false;
  w->rank->buffers.items[*made].class = CLASS_GRADIENT;
  *gradient = *made;
  *made = NO_BUFFER;
  return true;
}

static int64_t trainable_bytes(const walk *w)
{
  int64_t bytes = 0;
  for (uint32_t c = 0; c < w->chunk_count; c++)
    for (uint32_t k = 0; k < w->programs[c]->parameters.count; k++)
      if (w->programs[c]->parameters.items[k].trainable)
        bytes += w->programs[c]->parameters.items[k].bytes;
  return bytes;
}

/* Reads the gradient, reads and writes the weight and its states. */
static void step_one(walk *w, uint32_t weight, uint32_t gradient, int64_t bytes)
{
  plan_call call;
  memset(&call, 0, sizeof call);
  call.kind = KERNEL_OPTIMIZER_STEP;
  call.dtype = DTYPE_FP32;
  call.bytes = call.dims[0] = bytes;
  uint32_t *operands = ARRAY_EXTEND(&w->rank->operands, 2);
  operands[0] = gradient;
  operands[1] = weight;
  plan_op *made = walk_emit(w, OP_KERNEL, STREAM_COMPUTE, plan_call_row(w->plan, &call));
  made->operands = w->rank->operands.count - 2;
  made->reads = made->writes = 1;
}

void parameters_step(walk *w, int64_t state_bytes)
{
  if (w->fsdp != NULL) {
    fsdp_step(w, state_bytes);
    return;
  }
  int64_t all = trainable_bytes(w);
  for (uint32_t c = 0; c < w->chunk_count; c++)
    for (uint32_t k = 0; k < w->programs[c]->parameters.count; k++) {
      int64_t bytes = w->programs[c]->parameters.items[k].bytes;
      if (w->gradient_of[c][k] != NO_BUFFER)
        step_one(w, w->weight_of[c][k], w->gradient_of[c][k],
                 hf_step_traffic_bytes(w->settings, bytes, muldiv_i64(state_bytes, bytes, all)));
    }
}

void parameters_zero_gradients(walk *w)
{
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
