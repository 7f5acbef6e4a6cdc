#include "sim/compile/optimizer.h"

#include <assert.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/compile/kernel_calls.h"
#include "sim/compile/muon.h"
#include "sim/graph/sizes.h"

enum { TENSORS_AT_ONCE = OPTIMIZER_TENSORS, STATES = OPTIMIZER_STATES };

/* Defaults of Megatron-LM (core/optimizer/optimizer_config.py) and of torch.optim.AdamW. */
static const double weight_decay = 0.01, adam_beta1 = 0.9, adam_beta2 = 0.999, adam_epsilon = 1e-8,
                    sgd_momentum = 0.9;

/* One parameter, or this rank's shard of it. */
typedef struct stepped {
  uint32_t parameter;
  uint32_t main; /* allocation; NO_PARAMETER: the weight itself */
  uint32_t states[STATES];
  uint32_t state_count;
  int64_t elements;
} stepped;

typedef struct stepped_list {
  stepped *items; /* by parameter; no elements: not here */
  uint32_t count;
  int64_t elements;
} stepped_list;

static bool is_main(const static_allocation *a)
{
  assert(a->purpose == CLASS_OPTIMIZER);
  return strcmp(a->name, "main_param") == 0 || strcmp(a->name, "master_param") == 0;
}

static bool is_state(const static_allocation *a)
{
  assert(a->purpose == CLASS_OPTIMIZER);
  return strcmp(a->name, "exp_avg") == 0 || strcmp(a->name, "exp_avg_sq") == 0 ||
         strcmp(a->name, "momentum_buffer") == 0;
}

static void add_allocation(stepped_list *all, const static_allocation *a, uint32_t id)
{
  if (a->purpose != CLASS_OPTIMIZER || a->parameter == NO_PARAMETER) return;
  assert(a->parameter < all->count);
  stepped *p = &all->items[a->parameter];
  if (is_main(a)) p->main = id;
  if (!is_state(a)) return;
  if (p->state_count == 0) {
    p->elements = a->bytes / dtype_bytes((dtype)a->type);
    all->elements += p->elements;
  }
  assert(p->state_count < STATES);
  p->states[p->state_count++] = id;
}

static bool is_stepped(const optimizer_buffers *b, uint32_t row)
{
  assert(row == NO_PARAMETER || row < b->list->parameters.count);
  return b->only == NULL || row == NO_PARAMETER || b->only[row];
}

static stepped_list stepped_of(const optimizer_buffers *b, arena *a)
{
  const static_allocation_list *list = b->list;
  stepped_list all = { ARENA_ARRAY(a, stepped, list->parameters.count), list->parameters.count, 0 };
  for (uint32_t i = 0; i < all.count; i++)
    all.items[i] = (stepped){ .parameter = i, .main = NO_PARAMETER };
  for (uint32_t i = 0; i < list->count; i++)
    if (is_stepped(b, list->items[i].parameter)) add_allocation(&all, &list->items[i], i);
  return all;
}

uint32_t optimizer_tensors(const static_allocation_list *list, arena *a)
{
  stepped_list all = stepped_of(&(optimizer_buffers){ .list = list }, a);
  uint32_t count = 0;
  assert(all.count <= list->parameters.count);
  for (uint32_t i = 0; i < all.count; i++)
    count += all.items[i].elements > 0;
  return count > 0 ? count : list->parameters.count;
}

/* ---- one kernel ------------------------------------------------------------------------------ */

enum { OPERANDS = TENSORS_AT_ONCE * (STATES + 2) };

/* It is large: made by kernel_new, which leaves its arrays as they are, and never copied. */
typedef struct step_kernel {
  uint32_t read_count, write_count, tensors, state_count;
  int64_t elements;
  bool decays, has_main, on_host;
  uint32_t reads[OPERANDS], writes[OPERANDS];
  plan_view read_views[OPERANDS], write_views[OPERANDS];
} step_kernel;

static void kernel_new(step_kernel *k)
{
  k->read_count = k->write_count = k->tensors = k->state_count = 0;
  k->elements = 0;
  k->decays = k->has_main = k->on_host = false;
}

static const plan_view whole = { .whole = 1 };

static void reads(step_kernel *k, uint32_t buffer, plan_view view)
{
  assert(k->read_count < OPERANDS);
  k->reads[k->read_count] = buffer;
  k->read_views[k->read_count++] = view;
}

static void writes(step_kernel *k, uint32_t buffer, plan_view view)
{
  assert(k->write_count < OPERANDS);
  k->writes[k->write_count] = buffer;
  k->write_views[k->write_count++] = view;
}

static bool uses_momentum(const step_kernel *k)
{
  assert(k->state_count <= STATES);
  return k->state_count < STATES;
}

static void emit(walk *w, step_kernel *k, int64_t bytes)
{
  plan_view views[2 * OPERANDS];
  plan_call call = kernel_call(k->on_host ? KERNEL_HOST_OPTIMIZER_STEP : KERNEL_OPTIMIZER_STEP,
                               DTYPE_FP32, bytes);
  assert(k->tensors > 0);
  call.dims[0] = k->elements;
  call.dims[1] = k->tensors;
  call.dims[2] = k->state_count;
  call.dims[3] = k->has_main;
  call.scalars[0] = k->decays ? weight_decay : 0;
  call.scalars[1] = uses_momentum(k) ? sgd_momentum : adam_beta1;
  call.scalars[2] = uses_momentum(k) ? 0 : adam_beta2;
  call.scalars[3] = uses_momentum(k) ? 0 : adam_epsilon;
  memcpy(views, k->read_views, k->read_count * sizeof *views);
  memcpy(views + k->read_count, k->write_views, k->write_count * sizeof *views);
  plan_call_views(w->plan, &call, views, k->read_count + k->write_count);
  walk_call(w, k->on_host ? STREAM_CPU : STREAM_COMPUTE, &call, k->reads, k->read_count, k->writes,
            k->write_count);
}

void optimizer_step_tensors(walk *w, const optimizer_step *step)
{
  assert(step->count > 0 && step->count <= TENSORS_AT_ONCE && step->bytes >= 0);
  step_kernel k;
  kernel_new(&k);
  k.tensors = step->count;
  k.state_count = step->items[0].state_count;
  k.decays = step->decays;
  k.on_host = step->on_host;
  for (uint32_t t = 0; t < step->count; t++) {
    const optimizer_operands *o = &step->items[t];
    assert(o->state_count == k.state_count && k.state_count <= STATES && o->elements > 0);
    k.elements += o->elements;
    plan_view weight_view = o->weight_view.rank > 0 ? o->weight_view : whole;
    reads(&k, o->gradient, o->gradient_view.rank > 0 ? o->gradient_view : whole);
    reads(&k, o->weight, weight_view);
    writes(&k, o->weight, weight_view);
    for (uint32_t i = 0; i < o->state_count; i++) {
      reads(&k, o->states[i], whole);
      writes(&k, o->states[i], whole);
    }
  }
  emit(w, &k, step->bytes);
}

void optimizer_step_tensor(walk *w, const optimizer_operands *o, int64_t bytes)
{
  optimizer_step_tensors(w, &(optimizer_step){ .items = o, .count = 1, .bytes = bytes });
}

/* ---- Megatron's parameters ------------------------------------------------------------------- */

typedef struct step_context {
  walk *w;
  const optimizer_buffers *buffers;
  int64_t bytes_left, elements_left;
  step_kernel open;
} step_context;

static void close_kernel(step_context *c)
{
  if (c->open.tensors == 0) return;
  assert(c->open.elements > 0 && c->open.elements <= c->elements_left);
  int64_t bytes = muldiv_i64(c->bytes_left, c->open.elements, c->elements_left);
  emit(c->w, &c->open, bytes);
  c->bytes_left -= bytes;
  c->elements_left -= c->open.elements;
  assert(c->bytes_left >= 0 && c->elements_left >= 0);
  kernel_new(&c->open);
}

/* The last rank's shard of a parameter is its end. */
plan_view optimizer_shard_view(const rank_parameters *r, uint32_t row, int64_t elements, dtype type)
{
  int64_t before = parameter_elements(&r->list.items[row]) - elements;
  assert(before >= 0 && "a shard is a part of its row");
  return elements_from(type, r->places[row].start + before, elements);
}

static plan_view last_elements(const rank_parameters *r, const stepped *p, dtype type)
{
  assert(p->elements > 0);
  return optimizer_shard_view(r, p->parameter, p->elements, type);
}

static void add_tensor(step_context *c, const stepped *p, bool decays)
{
  const optimizer_buffers *b = c->buffers;
  const rank_parameters *r = &b->list->rank;
  step_kernel *k = &c->open;
  uint32_t in = r->places[p->parameter].buffer;
  dtype type = (dtype)r->list.items[p->parameter].type;
  dtype gradient = (dtype)r->buffers.items[in].gradient_type;
  uint32_t weight = b->of_weight[p->parameter];
  bool on_host = c->w->rank->buffers.items[weight].stream == STREAM_HOST;
  bool has_main = p->main != NO_PARAMETER && !on_host;
  assert(p->elements > 0 && p->state_count > 0 && p->elements <= c->elements_left);
  assert((!on_host || p->main != NO_PARAMETER) && "the device steps a main parameter");
  if (k->tensors == TENSORS_AT_ONCE || k->state_count != p->state_count || k->has_main != has_main)
    close_kernel(c);
  k->state_count = p->state_count;
  k->has_main = has_main;
  k->decays = decays;
  k->tensors++;
  k->elements += p->elements;
  plan_view weight_view = r->buffered && !on_host ? last_elements(r, p, type) : whole;
  if (on_host) weight = b->of_allocation[p->main];
  reads(k, b->of_gradient[p->parameter], last_elements(r, p, gradient));
  reads(k, has_main ? b->of_allocation[p->main] : weight, has_main ? whole : weight_view);
  writes(k, weight, weight_view);
  if (has_main) writes(k, b->of_allocation[p->main], whole);
  for (uint32_t i = 0; i < p->state_count; i++) {
    plan_view seen = b->view_of_allocation == NULL ? whole : b->view_of_allocation[p->states[i]];
    reads(k, b->of_allocation[p->states[i]], seen);
    writes(k, b->of_allocation[p->states[i]], seen);
  }
}

/* Muon's matrices have momentum alone. */
static bool steps_by_muon(const walk *w, const stepped *p)
{
  assert(p->state_count > 0);
  return optimizer_is_muon(w->settings->training.optimizer) && p->state_count < STATES;
}

static void step_by_muon(step_context *c, const stepped *p)
{
  const optimizer_buffers *b = c->buffers;
  const rank_parameters *r = &b->list->rank;
  const parameter *matrix = &r->list.items[p->parameter];
  uint32_t weight = b->of_weight[p->parameter], in = r->places[p->parameter].buffer;
  plan_view weight_view = r->buffered ? last_elements(r, p, (dtype)matrix->type) : whole;
  bool has_main = p->main != NO_PARAMETER;
  assert(p->elements == parameter_elements(matrix) && "ranks step whole matrices");
  close_kernel(c);
  int64_t bytes = muldiv_i64(c->bytes_left, p->elements, c->elements_left);
  muon_step(c->w, &(muon_matrix){
                      .parameter = matrix,
                      .operands = { .gradient = b->of_gradient[p->parameter],
                                    .gradient_view = last_elements(
                                        r, p, (dtype)r->buffers.items[in].gradient_type),
                                    .weight = has_main ? b->of_allocation[p->main] : weight,
                                    .weight_view = has_main ? whole : weight_view,
                                    .states = { b->of_allocation[p->states[0]] },
                                    .state_count = 1,
                                    .elements = p->elements },
                      .copy = has_main ? weight : NO_BUFFER,
                      .copy_view = weight_view,
                  });
  c->bytes_left -= bytes;
  c->elements_left -= p->elements;
}

static void step_tensor(step_context *c, const stepped *p, bool decays)
{
  if (p->elements == 0) return;
  if (steps_by_muon(c->w, p))
    step_by_muon(c, p);
  else
    add_tensor(c, p, decays);
}

bool optimizer_step_buffers(walk *w, const optimizer_buffers *b, int64_t bytes)
{
  assert(bytes >= 0 && w->backward_seen);
  stepped_list all = stepped_of(b, w->memory);
  step_context c;
  if (all.elements == 0) return false;
  c.w = w;
  c.buffers = b;
  c.bytes_left = bytes;
  c.elements_left = all.elements;
  kernel_new(&c.open);
  for (uint32_t group = 0; group < OPTIMIZER_GROUPS; group++) {
    for (uint32_t i = 0; i < all.count; i++)
      if (optimizer_group_of(&b->list->rank.list.items[i]) == group)
        step_tensor(&c, &all.items[i], optimizer_group_decays(group));
    close_kernel(&c);
  }
  assert(c.elements_left == 0 && c.bytes_left == 0 && "all bytes are shared out");
  return true;
}

/* ---- weights in fp8 -------------------------------------------------------------------------- */

static bool casts_rows(const settings *s)
{
  const struct training_settings *t = &s->training;
  bool delayed = t->fp8_recipe == FP8_RECIPE_DELAYED;
  if (!t->fp8_param_gather || (!delayed && t->fp8_recipe != FP8_RECIPE_TENSORWISE)) return false;
  return !t->use_precision_aware_optimizer ||
         (!delayed && t->main_params_dtype == MAIN_PARAMS_FP32);
}

static uint32_t convert_main(walk *w, uint32_t main, int64_t elements)
{
  dtype type = model_dtype(w->settings);
  uint32_t row = walk_alloc_matrix(w, "converted_main", type, 1, elements);
  walk_copy_kernel(w, STREAM_COMPUTE, (walk_operand_view){ main, 0 }, (walk_operand_view){ row, 0 },
                   w->rank->buffers.items[row].tensor, elements,
                   elements * (dtype_bytes(DTYPE_FP32) + dtype_bytes(type)));
  return row;
}

static void cast_row(walk *w, uint32_t row, uint32_t weight, plan_view shard, int64_t elements)
{
  dtype type = model_dtype(w->settings);
  plan_call call = kernel_call(KERNEL_CAST_TRANSPOSE_ROW, type,
                               elements * (dtype_bytes(type) + 2 * dtype_bytes(DTYPE_FP8)));
  uint32_t transposed = walk_alloc_matrix(w, "transposed_row", DTYPE_FP8, 1, elements);
  call.dims[0] = elements;
  plan_call_views(w->plan, &call, (plan_view[]){ whole, shard, whole }, 3);
  walk_call(w, STREAM_COMPUTE, &call, &row, 1, (uint32_t[]){ weight, transposed }, 2);
  walk_drop_reference(w, transposed);
}

void optimizer_cast_weights(walk *w, const optimizer_buffers *b)
{
  assert(w->backward_seen);
  if (!casts_rows(w->settings)) return;
  const rank_parameters *r = &b->list->rank;
  stepped_list all = stepped_of(b, w->memory);
  uint32_t *rows = ARENA_ARRAY(w->memory, uint32_t, all.count), count = 0;
  for (uint32_t i = 0; i < all.count; i++) {
    if (all.items[i].elements == 0 || r->list.items[i].type != DTYPE_FP8) continue;
    assert(all.items[i].main != NO_PARAMETER && "a weight in fp8 has a main parameter");
    all.items[count++] = all.items[i];
  }
  for (uint32_t i = 0; i < count; i++)
    rows[i] = convert_main(w, b->of_allocation[all.items[i].main], all.items[i].elements);
  for (uint32_t i = 0; i < count; i++)
    cast_row(w, rows[i], b->of_weight[all.items[i].parameter],
             last_elements(r, &all.items[i], DTYPE_FP8), all.items[i].elements);
  for (uint32_t i = 0; i < count; i++)
    walk_drop_reference(w, rows[i]);
}
