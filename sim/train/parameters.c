#include "sim/train/parameters.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/array.h"
#include "sim/base/text.h"
#include "sim/residents/rank_parameters.h"
#include "sim/train/generator.h"

typedef struct parameter_array {
  train_parameter *items;
  uint32_t count, capacity;
} parameter_array;

/* ---- elements -------------------------------------------------------------------------------- */

int64_t train_part_element(const train_part *p, int64_t own)
{
  assert(own >= 0 && own < p->own_rows * p->own_columns);
  int64_t row = own / p->own_columns, column = own % p->own_columns;
  if (p->own_columns < p->columns) return row * p->columns + p->index * p->own_columns + column;
  int64_t own_of_one = p->own_rows / p->tensors, of_one = p->rows / p->tensors;
  row = row / own_of_one * of_one + p->index * own_of_one + row % own_of_one;
  return row * p->columns + column;
}

double train_part_initial(const train_part *p, int64_t own)
{
  if (p->initial.deviation == 0) return p->initial.value;
  return p->initial.deviation * generator_normal(p->key, (uint64_t)train_part_element(p, own));
}

/* ---- how they begin -------------------------------------------------------------------------- */

static initial_value initial_of(const settings *s, const char *name, bool is_vector,
                                int64_t columns)
{
  double narrow = TRAIN_INIT_DEVIATION / sqrt(2 * (double)s->model.num_layers);
  bool output = ends_with(name, ".linear_proj.weight") || ends_with(name, ".linear_fc2.weight");
  if (strstr(name, "lora_B") != NULL) return (initial_value){ 0, 0 };
  if (strstr(name, "lora_A") != NULL) return (initial_value){ 1 / sqrt((double)columns), 0 };
  if (!is_vector) return (initial_value){ output ? narrow : TRAIN_INIT_DEVIATION, 0 };
  bool zero_centred = s->model.apply_layernorm_1p && !ends_with(name, "linear_attn.norm.weight");
  bool gain = ends_with(name, "weight") && !zero_centred;
  return (initial_value){ 0, gain ? 1 : 0 };
}

static train_part part_of(const settings *s, const char *name, bool is_vector, int64_t rows,
                          int64_t columns, uint64_t seed)
{
  assert(rows >= 0 && columns >= 0);
  return (train_part){ .name = name,
                       .rows = rows,
                       .columns = columns,
                       .own_rows = rows,
                       .own_columns = columns,
                       .tensors = 1,
                       .initial = initial_of(s, name, is_vector, columns),
                       .key = generator_key(seed, name) };
}

/* ---- Megatron-LM's --------------------------------------------------------------------------- */

static const char *name_in_model(const char *name, int32_t layer, arena *a)
{
  return layer < 0 ? name : arena_printf(a, "layers.%d.%s", (int)layer, name);
}

/* "mlp.experts.linear_fc1.weight" -> "mlp.experts.5.linear_fc1.weight", also for one of
 * "mlp.experts.local_experts". */
static const char *name_of_expert(const char *name, uint32_t expert, arena *a)
{
  static const char module[] = "mlp.experts.", own[] = "local_experts.";
  assert(begins_with(name, module));
  const char *rest = name + sizeof module - 1;
  if (begins_with(rest, own)) rest += sizeof own - 1;
  return arena_printf(a, "mlp.experts.%u.%s", expert, rest);
}

static train_part megatron_part(const settings *s, const parameter *p, const exec_rank *rank,
                                uint64_t seed, arena *a)
{
  bool is_embedding = p->role == PARAMETER_OUTPUT && p->shared_embedding;
  const char *name = is_embedding ? "embedding.word_embeddings.weight" : p->name;
  int64_t local = p->is_expert ? s->model.num_experts / s->parallel.expert_model_parallel_size : 0;
  if (p->is_expert)
    name = name_of_expert(name, rank->group[GROUP_EP].index * (uint32_t)local + p->expert, a);
  train_part part = part_of(s, name_in_model(name, p->layer, a), p->rank == 1, p->global_shape[0],
                            p->rank == 2 ? p->global_shape[1] : 1, seed);
  part.own_rows = p->shape[0];
  part.own_columns = p->rank == 2 ? p->shape[1] : 1;
  part.tensors = p->split_parts;
  assert(part.tensors > 0 && part.own_rows % part.tensors == 0);
  if (p->split_dimension >= 0) part.index = rank->group[p->is_expert ? GROUP_ETP : GROUP_TP].index;
  return part;
}

/* A gradient's place: buffers ascend in the rank's parameters as in the plan. */
typedef struct gradient_place {
  uint32_t buffer, index;
  int64_t offset;
} gradient_place;

static int by_place(const void *left, const void *right)
{
  const gradient_place *a = left, *b = right;
  if (a->buffer != b->buffer) return a->buffer < b->buffer ? -1 : 1;
  return (a->offset > b->offset) - (a->offset < b->offset);
}

/* Optimizers with a part on the host do not step parameters in the order of the list. By parameter: the
 * step, found by the gradient's place. */
static const uint32_t *steps_by_place(const rank_parameters *r, const parameter_array *all,
                                      arena *a)
{
  uint32_t count = all->count, *step = ARENA_ARRAY(a, uint32_t, count);
  gradient_place *steps = ARENA_ARRAY(a, gradient_place, count);
  gradient_place *parameters = ARENA_ARRAY(a, gradient_place, count);
  assert(r->list.count == count && "a step for each parameter");
  for (uint32_t i = 0; i < count; i++) {
    const train_home *g = &all->items[i].gradient;
    steps[i] = (gradient_place){ g->buffer, i, g->view.whole ? 0 : g->view.offset };
    parameters[i] = (gradient_place){ r->places[i].buffer, i, r->places[i].start };
  }
  qsort(steps, count, sizeof *steps, by_place);
  qsort(parameters, count, sizeof *parameters, by_place);
  for (uint32_t i = 0; i < count; i++)
    step[parameters[i].index] = steps[i].index;
  return step;
}

static void describe_megatron(const settings *s, const exec_rank *rank, uint64_t seed,
                              parameter_array *all, arena *a)
{
  rank_parameters r = rank_parameters_of(s, rank->stage, a);
  bool own_order = s->training.optimizer_cpu_offload || s->training.chunked_optimizer_state_offload;
  const uint32_t *step_of = own_order ? steps_by_place(&r, all, a) : NULL;
  train_parameter *stepped = ARENA_ARRAY(a, train_parameter, all->count);
  uint32_t next = 0;
  if (all->count > 0) memcpy(stepped, all->items, all->count * sizeof *stepped);
  for (uint32_t group = 0; group < OPTIMIZER_GROUPS; group++)
    for (uint32_t i = 0; i < r.list.count; i++) {
      if (optimizer_group_of(&r.list.items[i]) != group) continue;
      all->items[next] = stepped[step_of != NULL ? step_of[i] : next];
      all->items[next++].part = megatron_part(s, &r.list.items[i], rank, seed, a);
    }
  assert(next == all->count && "a step for each parameter");
}

/* ---- plain PyTorch's ------------------------------------------------------------------------- */

static void describe_buffer(const settings *s, const plan *p, const exec_rank *rank, uint64_t seed,
                            train_parameter *of, arena *a)
{
  const plan_buffer *b = &p->ranks[rank->stage].buffers.items[of->weight.buffer];
  const plan_tensor *t = &p->tensors.items[b->tensor];
  const plan_site *site = &p->sites.items[t->site];
  const char *name = arena_printf(a, "%s.%s", site->module, t->name);
  of->part = part_of(s, name_in_model(name, site->layer, a), t->rank < 2, t->shape[0],
                     t->rank < 2 ? 1 : t->shape[1], seed);
}

static bool is_weight_at_the_beginning(const rank_plan *r, uint32_t buffer)
{
  const plan_buffer *b = &r->buffers.items[buffer];
  bool made = buffer < r->residents || r->marks.items[b->mark].kind == MARK_SETUP;
  return b->purpose == CLASS_WEIGHT && made;
}

static void add_frozen(const rank_plan *r, parameter_array *all)
{
  uint32_t trained = all->count;
  for (uint32_t i = 0; i < r->buffers.count; i++) {
    bool known = !is_weight_at_the_beginning(r, i);
    for (uint32_t k = 0; k < trained && !known; k++)
      known = all->items[k].weight.buffer == i;
    if (!known)
      *ARRAY_PUSH(all) = (train_parameter){ .weight = { i, { .whole = 1 } },
                                            .gradient = { .buffer = NO_BUFFER },
                                            .main = { .buffer = NO_BUFFER },
                                            .first_main = { .buffer = NO_BUFFER } };
  }
}

/* ---- where they are -------------------------------------------------------------------------- */

static train_home home_of(const plan *p, const rank_plan *r, const plan_op *o, uint32_t operand)
{
  assert(operand < (uint32_t)o->reads + o->writes);
  return (train_home){ r->operands.items[o->operands + operand], plan_op_view(p, o, operand) };
}

static bool copies_within_memory(const plan *p, const plan_op *o)
{
  return o->kind == OP_KERNEL && (p->calls.items[o->arg].kind == KERNEL_COPY ||
                                  p->calls.items[o->arg].kind == KERNEL_HOST_COPY);
}

/* A main parameter that is stepped alone is copied to its weight, between host and device through a block. */
static train_home weight_of_main(const plan *p, const rank_plan *r, uint32_t step, train_home main)
{
  uint32_t at = main.buffer;
  for (uint32_t i = step + 1;
       i < r->ops.count && r->buffers.items[main.buffer].purpose != CLASS_WEIGHT; i++) {
    const plan_op *o = &r->ops.items[i];
    if (!op_works((op_kind)o->kind) || o->reads != 1 || r->operands.items[o->operands] != at)
      continue;
    if (copies_within_memory(p, o)) return home_of(p, r, o, 1);
    if (o->kind == OP_H2D || o->kind == OP_D2H) at = r->operands.items[o->operands + 1];
  }
  return main;
}

/* A gradient that the optimizer keeps was copied or cast from that of the model. */
static train_home gradient_of_model(const plan *p, const rank_plan *r, uint32_t step,
                                    train_home home)
{
  uint32_t at = home.buffer;
  const plan_buffer *b = &r->buffers.items[at];
  bool is_copy = b->stream == STREAM_HOST || b->purpose == CLASS_OPTIMIZER;
  for (uint32_t i = step; i-- > 0 && is_copy;) {
    const plan_op *o = &r->ops.items[i];
    if (!op_works((op_kind)o->kind) || o->writes != 1 ||
        r->operands.items[o->operands + o->reads] != at)
      continue;
    train_home from = home_of(p, r, o, 0);
    if (r->buffers.items[from.buffer].purpose == CLASS_GRADIENT) return from;
    at = from.buffer;
  }
  return home;
}

/* A main parameter that the step finds has come back from the host, where it came from another buffer. */
static train_home before_it_left(const rank_plan *r, uint32_t step, train_home main)
{
  for (uint32_t i = step; i-- > 0 && main.buffer != NO_BUFFER;) {
    const plan_op *o = &r->ops.items[i];
    bool moves = o->kind == OP_H2D || o->kind == OP_D2H;
    if (moves && r->operands.items[o->operands + 1] == main.buffer)
      main.buffer = r->operands.items[o->operands];
  }
  return main;
}

/* Adds the parameters of one optimizer kernel; sim/compile/optimizer.h has the order of its
 * operands. */
static void add_stepped(const plan *p, const rank_plan *r, uint32_t op, parameter_array *all)
{
  const plan_op *o = &r->ops.items[op];
  const plan_call *call = &p->calls.items[o->arg];
  uint32_t tensors = (uint32_t)call->dims[1], states = (uint32_t)call->dims[2];
  uint32_t main = (uint32_t)call->dims[3];
  assert(main <= 1 && tensors * (1 + main + states) <= o->writes);
  for (uint32_t i = 0; i < tensors; i++) {
    uint32_t written = o->reads + i * (1 + main + states);
    train_parameter *made = ARRAY_PUSH(all);
    train_home stepped = home_of(p, r, o, written);
    *made = (train_parameter){ .gradient =
                                   gradient_of_model(p, r, op, home_of(p, r, o, i * (2 + states))),
                               .weight = weight_of_main(p, r, op, stepped),
                               .main = { .buffer = NO_BUFFER },
                               .trained = true };
    if (main) made->main = home_of(p, r, o, written + 1);
    if (made->weight.buffer != stepped.buffer) made->main = stepped;
    made->first_main = before_it_left(r, op, made->main);
  }
}

static parameter_array stepped_in(const plan *p, const rank_plan *r)
{
  parameter_array all = { 0 };
  for (uint32_t i = 0; i < r->ops.count; i++) {
    const plan_op *o = &r->ops.items[i];
    uint8_t kind = o->kind == OP_KERNEL ? p->calls.items[o->arg].kind : KERNEL_KINDS;
    if (kind == KERNEL_OPTIMIZER_STEP || kind == KERNEL_HOST_OPTIMIZER_STEP)
      add_stepped(p, r, i, &all);
  }
  return all;
}

train_parameter_list train_parameters_of(const settings *s, const plan *p, const exec_rank *rank,
                                         uint64_t seed, arena *a)
{
  const rank_plan *r = &p->ranks[rank->stage];
  parameter_array all = stepped_in(p, r);
  if (uses_hf(s)) {
    add_frozen(r, &all);
    for (uint32_t i = 0; i < all.count; i++)
      describe_buffer(s, p, rank, seed, &all.items[i], a);
  } else {
    describe_megatron(s, rank, seed, &all, a);
  }
  train_parameter_list list = { ARENA_ARRAY(a, train_parameter, all.count), all.count };
  if (all.count > 0) memcpy(list.items, all.items, all.count * sizeof *list.items);
  ARRAY_FREE(&all);
  return list;
}
