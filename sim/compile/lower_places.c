#include "sim/compile/lower.h"

#include <assert.h>
#include <string.h>

#include "sim/compile/kernel_calls.h"

static bool is_data(const plan *p, uint32_t tensor)
{
  assert(tensor < p->tensors.count);
  return strcmp(p->sites.items[p->tensors.items[tensor].site].module, "data") == 0;
}

place_id lower_place(emitter *e, int64_t bytes, uint32_t tensor_row, buffer_class class)
{
  assert(bytes >= 0 && tensor_row < e->plan->tensors.count && e->stream < STREAM_HOST);
  *ARRAY_PUSH(&e->program->places) = (program_place){ .bytes = bytes,
                                                      .tensor = tensor_row,
                                                      .purpose = (uint8_t) class,
                                                      .stream = (uint8_t)e->stream,
                                                      .filled = is_data(e->plan, tensor_row) };
  return e->program->places.count - 1;
}

void lower_alloc(emitter *e, place_id p)
{
  assert(p > 0 && p < e->program->places.count);
  e->program->places.items[p].fresh = 1;
  lower_instruction(e, I_ALLOC, p, 0);
}

void lower_instruction(emitter *e, instruction_kind kind, uint32_t a, uint32_t b)
{
  assert(kind <= I_GROUP_BACKWARD_START);
  *ARRAY_PUSH(e->out) = (instruction){ (uint32_t)kind, a, b };
}

static bool *dropped_flag(emitter *e, place_id p)
{
  assert(!(p & (OPERAND_PARAMETER | OPERAND_PARAMETER_GRADIENT)));
  while (e->dropped_capacity <= p) {
    uint32_t old = e->dropped_capacity;
    e->dropped = array_grow(e->dropped, &e->dropped_capacity, old + 1, sizeof *e->dropped);
    memset(e->dropped + old, 0, e->dropped_capacity - old);
  }
  return &e->dropped[p];
}

bool lower_is_alive(const emitter *e, place_id p)
{
  assert((p & (OPERAND_PARAMETER | OPERAND_PARAMETER_GRADIENT)) || p < e->program->places.count);
  return p >= e->dropped_capacity || !e->dropped[p];
}

void lower_drop(emitter *e, place_id p)
{
  if (p == 0 || (p & (OPERAND_PARAMETER | OPERAND_PARAMETER_GRADIENT)) || !lower_is_alive(e, p))
    return;
  assert(p < e->program->places.count);
  *dropped_flag(e, p) = true;
  lower_instruction(e, I_DROP, p, 0);
}

place_id lower_refer(emitter *e, place_id from)
{
  assert(from != 0 && from < e->program->places.count);
  program_place same = e->program->places.items[from];
  place_id made = lower_place(e, same.bytes, same.tensor, (buffer_class)same.purpose);
  e->program->places.items[made].same_as = lower_root(e, from);
  e->program->places.items[made].view = same.view;
  lower_instruction(e, I_BIND, made, from);
  return made;
}

place_id lower_root(const emitter *e, place_id p)
{
  place_id same = e->program->places.items[p].same_as;
  assert(same == 0 || e->program->places.items[same].same_as == 0);
  return same != 0 ? same : p;
}

uint32_t lower_site_row(emitter *e, uint32_t graph_site)
{
  assert(graph_site < e->graph->sites.count);
  if (e->site_row[graph_site] == 0 && graph_site != 0) {
    *ARRAY_PUSH(&e->plan->sites) = e->graph->sites.items[graph_site];
    e->site_row[graph_site] = e->plan->sites.count - 1;
  }
  return e->site_row[graph_site];
}

uint32_t lower_tensor_row(emitter *e, tensor_id t)
{
  assert(t > 0 && t < e->graph->tensors.count);
  if (e->tensor_row[t] == 0) {
    const graph_tensor *from = &e->graph->tensors.items[t];
    plan_tensor row = { .name = from->name, .dtype = from->dtype, .rank = from->rank };
    row.site = lower_site_row(e, from->site);
    memcpy(row.shape, from->shape, sizeof row.shape);
    *ARRAY_PUSH(&e->plan->tensors) = row;
    e->tensor_row[t] = e->plan->tensors.count;
  }
  return e->tensor_row[t] - 1;
}

/* Operators see more parts as one: a step cannot have that many operands. */
enum { MOST_PARTS = 48 };

static void place_parameter(emitter *e, program_parameter p, const graph_place *place)
{
  program_parameter_array *all = &e->program->parameters;
  bool apart = place->weight.whole && place->count > 1 && place->count <= MOST_PARTS;
  p.row = place->row;
  if (place->row != NO_ROW) {
    p.weight = place->weight;
    p.gradient = place->gradient;
  }
  p.parts = apart ? place->count - 1 : 0;
  assert(p.parts < MOST_PARTS);
  *ARRAY_PUSH(all) = p;
  p.bytes = 0; /* only the first place has bytes: they count all parts */
  for (uint32_t i = p.parts; i > 0; i--) {
    p.row++;
    p.parts = 0;
    *ARRAY_PUSH(all) = p;
  }
}

uint32_t lower_parameter(emitter *e, tensor_id parameter)
{
  static const graph_place untold = { .row = NO_ROW };
  const graph *g = e->graph;
  const graph_tensor *from = &g->tensors.items[parameter];
  assert(from->parameter);
  if (e->parameter_row[parameter] == 0) {
    e->parameter_row[parameter] = e->program->parameters.count + 1;
    place_parameter(e,
                    (program_parameter){ .bytes = tensor_bytes(g, parameter),
                                         .tensor = lower_tensor_row(e, parameter),
                                         .layer = g->sites.items[from->site].layer,
                                         .trainable = from->requires_grad,
                                         .companion = from->companion,
                                         .weight = { .whole = 1 },
                                         .gradient = { .whole = 1 } },
                    g->places == NULL ? &untold : &g->places[parameter]);
  }
  return e->parameter_row[parameter] - 1;
}

/* A part of the host's buffer, or a tensor of its own. */
static program_parameter expert_weight(const graph_place *place, program_parameter all,
                                       int64_t experts, uint32_t number)
{
  assert(all.bytes % experts == 0 && number < experts);
  all.bytes /= experts;
  all.row = place->row == NO_ROW ? NO_ROW : place->row + number;
  if (place->weight.whole) return all;
  dtype type = (dtype)place->weight.dtype;
  all.weight = elements_from(type, place->weight.offset + number * place->weight.strides[0],
                             all.bytes / dtype_bytes(type));
  return all;
}

uint32_t lower_expert_weights(emitter *e, tensor_id weight, int64_t experts)
{
  const graph *g = e->graph;
  const graph_place *place = &g->places[weight];
  if (e->experts_row[weight] != 0) return e->experts_row[weight] - 1;
  program_parameter all = { .bytes = tensor_bytes(g, weight),
                            .tensor = lower_tensor_row(e, weight),
                            .layer = g->sites.items[g->tensors.items[weight].site].layer,
                            .weight = { .whole = 1 },
                            .gradient = { .whole = 1 } };
  assert(g->places != NULL && (place->row == NO_ROW || place->count == experts));
  e->experts_row[weight] = e->program->parameters.count + 1;
  for (uint32_t i = 0; i < experts; i++)
    *ARRAY_PUSH(&e->program->parameters) = expert_weight(place, all, experts, i);
  return e->experts_row[weight] - 1;
}

tensor_id lower_gradient_key(const graph *g, tensor_id t)
{
  while (g->tensors.items[t].parent != 0) {
    assert(g->tensors.items[t].parent < t && "a view is made after its parent");
    t = g->tensors.items[t].parent;
  }
  return t;
}

/* Refs have 232 bytes: those of one operator stay in the CPU's caches. Products that wait for the end of
 * their part keep theirs. */
static void forget_refs(emitter *e)
{
  if (e->refs.count > 0 && e->parts.delayed_reads.count == 0) e->refs.count = 1;
}

void lower_drop_temporaries(emitter *e)
{
  assert(e->temporaries.count == 0 || e->node != NULL);
  for (uint32_t i = 0; i < e->temporaries.count; i++)
    lower_drop(e, e->temporaries.items[i]);
  e->temporaries.count = 0;
  forget_refs(e);
}
