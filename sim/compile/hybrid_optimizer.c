#include "sim/compile/hybrid_optimizer.h"

#include <assert.h>
#include <string.h>

enum { MAIN_BYTES = 4 }; /* main parameters, their gradients and states are fp32 */

/* A parameter, or this rank's shard of it. */
typedef struct hybrid_tensor {
  optimizer_operands o; /* o.weight is the main parameter */
  uint32_t parameter, weight, gradient;
  plan_view weight_view, gradient_view; /* in the model's buffers */
  bool on_host;
} hybrid_tensor;

typedef struct hybrid {
  walk *w;
  const optimizer_buffers *buffers;
  hybrid_tensor *tensors; /* [count], in the order of the optimizer's groups */
  uint32_t count;
  plan_stream out, back;
} hybrid;

static const plan_view whole = { .whole = 1 };

/* ---- what there is --------------------------------------------------------------------------- */

static bool is_state(const char *name)
{
  return strcmp(name, "exp_avg") == 0 || strcmp(name, "exp_avg_sq") == 0;
}

static void add_allocation(hybrid_tensor *t, const static_allocation *a, uint32_t buffer)
{
  bool on_host = class_side((buffer_class)a->purpose) == ON_HOST;
  if (a->purpose != CLASS_OPTIMIZER && !on_host) return;
  if (strcmp(a->name, "main_param") == 0) t->o.weight = buffer;
  if (strcmp(a->name, "main_param.grad") == 0) t->o.gradient = buffer;
  if (!is_state(a->name)) return;
  assert(t->o.state_count < OPTIMIZER_STATES);
  assert((t->o.state_count == 0 || t->on_host == on_host) &&
         "all states of a tensor are on one side");
  t->o.states[t->o.state_count++] = buffer;
  t->o.elements = a->bytes / dtype_bytes((dtype)a->type);
  t->on_host = on_host;
}

static void place(const hybrid *h, hybrid_tensor *t, uint32_t row)
{
  assert(t->o.elements > 0 && t->o.state_count > 0 && row < h->buffers->list->rank.list.count);
  const rank_parameters *r = &h->buffers->list->rank;
  dtype type = (dtype)r->list.items[row].type;
  dtype gradient = (dtype)r->buffers.items[r->places[row].buffer].gradient_type;
  t->parameter = row;
  t->weight = h->buffers->of_weight[row];
  t->gradient = h->buffers->of_gradient[row];
  t->weight_view = r->buffered ? optimizer_shard_view(r, row, t->o.elements, type) : whole;
  t->gradient_view = optimizer_shard_view(r, row, t->o.elements, gradient);
  if (t->o.weight == NO_BUFFER) {
    t->o.weight = t->weight;
    t->o.weight_view = t->weight_view;
  }
  if (t->o.gradient != NO_BUFFER) return;
  t->o.gradient = t->gradient;
  t->o.gradient_view = t->gradient_view;
}

/* Those of experts, or the others, in the order in which their states were allocated: that of the
 * optimizer's groups. */
static void find_tensors(hybrid *h, bool experts)
{
  const static_allocation_list *list = h->buffers->list;
  const parameter_list *parameters = &list->rank.list;
  hybrid_tensor *all = ARENA_ARRAY(h->w->memory, hybrid_tensor, parameters->count);
  for (uint32_t i = 0; i < parameters->count; i++)
    all[i].o.weight = all[i].o.gradient = NO_BUFFER;
  for (uint32_t i = 0; i < list->count; i++)
    if (list->items[i].parameter != NO_PARAMETER)
      add_allocation(&all[list->items[i].parameter], &list->items[i], h->buffers->of_allocation[i]);
  h->tensors = ARENA_ARRAY(h->w->memory, hybrid_tensor, parameters->count);
  h->count = 0;
  for (uint32_t i = 0; i < list->count; i++) {
    uint32_t row = list->items[i].parameter;
    if (strcmp(list->items[i].name, "exp_avg") != 0 ||
        parameters->items[row].is_expert_parallel != experts)
      continue;
    place(h, &all[row], row);
    h->tensors[h->count++] = all[row];
    assert(h->count <= parameters->count);
  }
}

static bool decays(const hybrid *h, const hybrid_tensor *t)
{
  assert(t->parameter < h->buffers->list->rank.list.count);
  return optimizer_group_decays(
      optimizer_group_of(&h->buffers->list->rank.list.items[t->parameter]));
}

/* ---- copies ---------------------------------------------------------------------------------- */

static uint32_t fp32_block(const hybrid *h, const hybrid_tensor *t, plan_stream pool)
{
  assert(t->on_host && t->o.elements > 0);
  return walk_alloc(h->w, t->o.elements * MAIN_BYTES, h->w->rank->buffers.items[t->o.weight].tensor,
                    CLASS_TRANSIENT, pool);
}

static void cast(const hybrid *h, const hybrid_tensor *t, plan_stream stream,
                 walk_operand_view from, walk_operand_view to, dtype other)
{
  assert(stream < STREAM_HOST && t->o.elements > 0);
  walk_copy_kernel(h->w, stream, from, to, h->w->rank->buffers.items[t->o.weight].tensor,
                   t->o.elements, t->o.elements * (MAIN_BYTES + dtype_bytes(other)));
}

static void gradient_out(const hybrid *h, const hybrid_tensor *t)
{
  assert(t->on_host && t->o.gradient != t->gradient);
  uint32_t tensor = h->w->rank->buffers.items[t->o.gradient].tensor;
  if (t->gradient_view.dtype == DTYPE_FP32) {
    walk_copy(h->w, OP_D2H, h->out, t->gradient, t->o.gradient, tensor);
    walk_copy_parts(h->w, &t->gradient_view, &whole);
    return;
  }
  uint32_t block = fp32_block(h, t, h->out);
  cast(h, t, h->out,
       (walk_operand_view){ t->gradient, plan_view_row(h->w->plan, &t->gradient_view) },
       (walk_operand_view){ block, 0 }, (dtype)t->gradient_view.dtype);
  walk_copy(h->w, OP_D2H, h->out, block, t->o.gradient, tensor);
  walk_drop_reference(h->w, block);
}

/* The gradient in fp32, for a step on the device. */
static void gradient_cast(const hybrid *h, const hybrid_tensor *t)
{
  assert(!t->on_host);
  uint32_t view = plan_view_row(h->w->plan, &t->gradient_view);
  if (t->o.gradient != t->gradient)
    cast(h, t, h->out, (walk_operand_view){ t->gradient, view },
         (walk_operand_view){ t->o.gradient, 0 }, (dtype)t->gradient_view.dtype);
}

static dtype weight_type(const hybrid *h, const hybrid_tensor *t)
{
  assert(t->parameter < h->buffers->list->rank.list.count);
  return (dtype)h->buffers->list->rank.list.items[t->parameter].type;
}

/* PyTorch casts on the device: the parameter comes back in fp32, into a block of its own. (An fp32 weight
 * needs none; the plan's copies have no views of their targets.) */
static void weight_back(const hybrid *h, const hybrid_tensor *t)
{
  assert(t->on_host && t->o.weight != t->weight);
  uint32_t block = fp32_block(h, t, h->back);
  walk_copy(h->w, OP_H2D, h->back, t->o.weight, block,
            h->w->rank->buffers.items[t->o.weight].tensor);
  cast(h, t, h->back, (walk_operand_view){ block, 0 },
       (walk_operand_view){ t->weight, plan_view_row(h->w->plan, &t->weight_view) },
       weight_type(h, t));
  walk_drop_reference(h->w, block);
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Gradient, main parameter and two states are read; the last three written. */
static int64_t step_bytes(const hybrid_tensor *t)
{
  assert(t->o.state_count <= OPTIMIZER_STATES);
  return t->o.elements * MAIN_BYTES * (1 + 2 * (1 + t->o.state_count));
}

/* Steps the tensors [from, to) that are on that side, as many in a kernel as have the same decay. */
static void step_side(const hybrid *h, uint32_t from, uint32_t to, bool on_host)
{
  assert(from <= to && to <= h->count);
  optimizer_operands items[OPTIMIZER_TENSORS];
  optimizer_step step = { .items = items, .on_host = on_host };
  for (uint32_t i = from; i < to; i++) {
    const hybrid_tensor *t = &h->tensors[i];
    if (t->on_host != on_host) continue;
    if (step.count == OPTIMIZER_TENSORS || (step.count > 0 && step.decays != decays(h, t))) {
      optimizer_step_tensors(h->w, &step);
      step.count = 0;
      step.bytes = 0;
    }
    step.decays = decays(h, t);
    step.bytes += step_bytes(t);
    items[step.count++] = t->o;
  }
  if (step.count > 0) optimizer_step_tensors(h->w, &step);
}

static void cast_device_weights(const hybrid *h)
{
  for (uint32_t i = 0; i < h->count; i++) {
    const hybrid_tensor *t = &h->tensors[i];
    if (t->on_host || t->o.weight == t->weight) continue;
    assert(t->o.weight != NO_BUFFER && t->weight != NO_BUFFER);
    cast(h, t, STREAM_COMPUTE, (walk_operand_view){ t->o.weight, 0 },
         (walk_operand_view){ t->weight, plan_view_row(h->w->plan, &t->weight_view) },
         weight_type(h, t));
  }
}

/* The tensors [from, to), by one optimizer of the host, whose gradients have arrived at the event. */
static void step_on_host(const hybrid *h, uint32_t from, uint32_t to, event_id arrived)
{
  assert(from < to && to <= h->count && arrived < h->w->rank->events);
  act_host_wait(h->w, arrived);
  step_side(h, from, to, true);
  walk_host_sync(h->w, STREAM_CPU);
  if (h->back != STREAM_COMPUTE) act_join(h->w, h->back, STREAM_COMPUTE);
  for (uint32_t i = from; i < to; i++)
    if (h->tensors[i].on_host) weight_back(h, &h->tensors[i]);
  if (h->back != STREAM_COMPUTE) act_join(h->w, STREAM_COMPUTE, h->back);
}

static void gradients_out(const hybrid *h, bool overlaps, event_id *arrived)
{
  assert(overlaps == (h->out != STREAM_COMPUTE));
  if (overlaps) act_join(h->w, h->out, STREAM_COMPUTE);
  for (uint32_t i = 0; i < h->count; i++)
    if (!h->tensors[i].on_host) gradient_cast(h, &h->tensors[i]);
  for (uint32_t i = 0; i < h->count; i++) {
    if (!h->tensors[i].on_host) continue;
    gradient_out(h, &h->tensors[i]);
    if (overlaps) arrived[i] = act_record(h->w, h->out);
  }
}

static bool casts_on_device(const hybrid *h)
{
  assert(h->count > 0);
  for (uint32_t i = 0; i < h->count; i++)
    if (!h->tensors[i].on_host && h->tensors[i].o.gradient != h->tensors[i].gradient) return true;
  return false;
}

static bool any_on_host(const hybrid *h)
{
  assert(h->count > 0);
  for (uint32_t i = 0; i < h->count; i++)
    if (h->tensors[i].on_host) return true;
  return false;
}

/* All tensors on the host have one optimizer, or each has its own. The released code casts the device's
 * gradients on the stream of the copies, for which the device's step does not wait. */
static void step_optimizer(const hybrid *h, bool overlaps)
{
  assert(h->count > 0 && overlaps == (h->back != STREAM_COMPUTE));
  event_id *arrived = ARENA_ARRAY(h->w->memory, event_id, h->count + 1), all = 0;
  bool on_host = any_on_host(h);
  gradients_out(h, overlaps, arrived);
  if (!overlaps && on_host) all = act_record(h->w, h->out);
  if (overlaps && casts_on_device(h) && h->w->settings->offload.mode != MODE_AS_RELEASED)
    act_join(h->w, STREAM_COMPUTE, h->out);
  step_side(h, 0, h->count, false);
  cast_device_weights(h);
  if (!overlaps && on_host) step_on_host(h, 0, h->count, all);
  for (uint32_t i = 0; i < h->count && overlaps; i++)
    if (h->tensors[i].on_host) step_on_host(h, i, i + 1, arrived[i]);
}

void hybrid_optimizer_step(walk *w, const optimizer_buffers *b)
{
  assert(w->forward_seen && w->backward_seen && w->settings->training.optimizer_cpu_offload);
  bool overlaps = w->settings->training.overlap_cpu_optimizer_d2h_h2d;
  hybrid h = { .w = w,
               .buffers = b,
               .out = overlaps ? STREAM_D2H : STREAM_COMPUTE,
               .back = overlaps ? STREAM_H2D : STREAM_COMPUTE };
  for (int experts = 0; experts < 2; experts++) {
    find_tensors(&h, experts != 0);
    if (h.count > 0) step_optimizer(&h, overlaps);
  }
}
