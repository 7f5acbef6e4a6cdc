#include "sim/compile/parts.h"

#include <assert.h>
#include <string.h>

#include "sim/graph/parts.h"

/* ---- what the part under way is ------------------------------------------------------------- */

static const graph_part *part_of(const emitter *e, part_id part)
{
  assert(part > 0 && part < e->graph->parts.count);
  return &e->graph->parts.items[part];
}

static plan_stream stream_of(part_kind kind)
{
  return kind == PART_DISPATCH || kind == PART_COMBINE ? STREAM_A2A : STREAM_COMPUTE;
}

/* The part whose outputs are its inputs. */
static const graph_part *part_before(const emitter *e, part_id part)
{
  assert(part > 1 && "the first part has no predecessor");
  return part_of(e, part - 1);
}

static bool in_parts(const emitter *e)
{
  return e->graph->parts.count > 1;
}

void parts_start(emitter *e, arena *a)
{
  assert(e->parts.held == NULL && e->parts.current == 0);
  e->parts.held = ARENA_ARRAY(a, part_references, e->graph->parts.count);
  e->parts.held_at = ARENA_ARRAY(a, place_id, e->graph->tensors.count);
}

void parts_release(emitter *e)
{
  assert(e->parts.delayed.count == 0 && e->parts.part_gradients.count == 0);
  ARRAY_FREE(&e->parts.part_gradients);
  ARRAY_FREE(&e->parts.layer_gradients);
  ARRAY_FREE(&e->parts.layer_tensors);
  ARRAY_FREE(&e->parts.step_places);
  ARRAY_FREE(&e->parts.delayed);
  ARRAY_FREE(&e->parts.delayed_reads);
}

static program_part_array *runs(emitter *e)
{
  assert(e->out == &e->program->forward || e->out == &e->program->backward);
  return e->out == &e->program->forward ? &e->program->forward_parts : &e->program->backward_parts;
}

static void end_run(emitter *e)
{
  program_part_array *list = runs(e);
  assert(list->count == 0 || list->items[list->count - 1].first <= e->out->count);
  if (list->count > 0) list->items[list->count - 1].end = e->out->count;
}

static void begin_run(emitter *e, part_kind kind, bool weight_gradients)
{
  end_run(e);
  e->stream = stream_of(kind);
  uint32_t first = runs(e)->count == 0 ? 0 : e->out->count; /* the parts cover the whole program */
  assert(runs(e)->count == 0 || runs(e)->items[runs(e)->count - 1].end == first);
  *ARRAY_PUSH(runs(e)) = (program_part){ .kind = (uint8_t)kind,
                                         .stream = (uint8_t)e->stream,
                                         .weight_gradients = weight_gradients,
                                         .first = first };
}

static void drop_all(emitter *e, place_list *list)
{
  for (uint32_t i = 0; i < list->count; i++)
    lower_drop(e, list->items[i]);
  list->count = 0;
}

bool parts_know_counts(const emitter *e)
{
  return e->stream == STREAM_A2A &&
         e->settings->model.moe_token_dispatcher_type == DISPATCHER_ALLTOALL;
}

/* ---- forward -------------------------------------------------------------------------------- */

static place_id hold(emitter *e, tensor_id t)
{
  tensor_id storage = tensor_storage(e->graph, t);
  assert(e->where[storage] != 0);
  e->program->places.items[e->where[storage]].purpose = CLASS_SAVED;
  return e->parts.held_at[storage] = lower_refer(e, e->where[storage]);
}

static void end_forward(emitter *e)
{
  const graph_part *p = part_of(e, e->parts.current);
  part_references *held = &e->parts.held[e->parts.current];
  assert(held->outputs[0] == 0 && held->detached[0] == 0 && "a part ends once");
  for (int i = 0; i < PART_OUTPUTS && p->outputs[i] != 0; i++)
    held->outputs[i] = hold(e, p->outputs[i]);
  for (int i = 0; i < PART_DETACHED && p->detached[i] != 0; i++)
    held->detached[i] = hold(e, p->detached[i]);
  for (int i = 0; i < PART_FREED && p->freed[i] != 0; i++)
    lower_instruction(e, I_EMPTY, e->parts.held_at[tensor_storage(e->graph, p->freed[i])],
                      (uint32_t)e->stream);
  if (p->leaves_graph) lower_instruction(e, I_FORGET, 0, (uint32_t)p->layer);
}

void parts_forward(emitter *e, part_id begins)
{
  if (!in_parts(e)) return;
  assert((begins == 0 || begins == e->parts.current + 1) && "parts follow each other");
  if (e->parts.current != 0) end_forward(e);
  e->parts.current = begins;
  if (begins != 0)
    begin_run(e, part_of(e, begins)->kind, false);
  else
    end_run(e);
}

/* ---- backward: gradients handed over -------------------------------------------------------- */

static place_id gradient_of(const emitter *e, tensor_id t)
{
  assert(t > 0 && t < e->graph->tensors.count);
  return e->gradient[lower_gradient_key(e->graph, t)];
}

static void hold_gradients(emitter *e, const tensor_id *tensors, int limit, place_list *list)
{
  for (int i = 0; i < limit && tensors[i] != 0; i++) {
    if (gradient_of(e, tensors[i]) == 0) continue;
    place_id held = lower_refer(e, gradient_of(e, tensors[i]));
    assert(lower_is_alive(e, held));
    lower_instruction(e, I_MARK, held,
                      (uint32_t)e->stream); /* its memory may belong to another stream's pool */
    *ARRAY_PUSH(list) = held;
  }
}

static void begin_backward(emitter *e, part_id part)
{
  const graph_part *p = part_of(e, part);
  assert(e->parts.part_gradients.count == 0 && "the part before has released its own");
  e->parts.current = part;
  begin_run(e, p->kind, false);
  hold_gradients(e, p->outputs, PART_OUTPUTS, &e->parts.part_gradients);
  hold_gradients(e, p->detached, PART_DETACHED, &e->parts.layer_gradients);
}

static bool lists(const emitter *e, const place_list *list, place_id root)
{
  for (uint32_t i = 0; i < list->count; i++)
    if (lower_root(e, list->items[i]) == root) return true;
  return false;
}

bool parts_hold(const emitter *e, place_id gradient)
{
  if (e->parts.current == 0) return false;
  assert(lower_is_alive(e, gradient));
  place_id root = lower_root(e, gradient);
  return lists(e, &e->parts.part_gradients, root) || lists(e, &e->parts.layer_gradients, root);
}

static void copy_gradient(emitter *e, place_id *gradient)
{
  assert(*gradient != 0 && lower_is_alive(e, *gradient));
  program_place old = e->program->places.items[*gradient];
  place_id made = lower_place(e, old.bytes, old.tensor, CLASS_TRANSIENT);
  e->program->places.items[made].view = old.view;
  lower_instruction(e, I_ALLOC, made, 0);
  emit_kernel(e, (kernel_shape){ .kind = KERNEL_COPY, .type = DTYPE_BF16 },
              (ref[]){ lower_ref(e, *gradient), 0 }, (ref[]){ lower_ref(e, made), 0 });
  lower_drop(e, *gradient);
  *gradient = made;
}

static void own_gradients(emitter *e, const tensor_id *tensors, int limit)
{
  for (int i = 0; i < limit && tensors[i] != 0; i++) {
    place_id *gradient = &e->gradient[lower_gradient_key(e->graph, tensors[i])];
    assert(*gradient == 0 || lower_is_alive(e, *gradient));
    if (*gradient != 0 && parts_hold(e, *gradient)) copy_gradient(e, gradient);
  }
}

/* The inputs of this part that earlier parts made get gradients of their own. */
static void own_gradients_of_inputs(emitter *e)
{
  assert(e->parts.current > 0 && e->parts.current < e->graph->parts.count);
  for (part_id part = 1; part < e->parts.current; part++) {
    own_gradients(e, part_of(e, part)->outputs, PART_OUTPUTS);
    own_gradients(e, part_of(e, part)->detached, PART_DETACHED);
  }
}

/* ---- backward: delayed weight gradients ----------------------------------------------------- */

static bool delays(const emitter *e)
{
  if (!e->settings->training.delay_wgrad_compute || e->parts.current == 0) return false;
  part_kind kind = part_of(e, e->parts.current)->kind;
  assert(e->out == &e->program->backward);
  return kind == PART_PRE_DISPATCH || kind == PART_MLP;
}

bool parts_delay(emitter *e, const kernel_shape *shape, const ref *reads, tensor_id weight)
{
  assert(e->graph->tensors.items[weight].parameter && shape->kind < KERNEL_KINDS);
  if (!delays(e)) return false;
  delayed_gradient made = { .shape = *shape, .weight = weight, .node = e->node };
  made.first_read = e->parts.delayed_reads.count;
  for (; reads[made.reads] != 0; made.reads++)
    *ARRAY_PUSH(&e->parts.delayed_reads) = lower_ref_again(e, reads[made.reads]);
  assert(made.reads > 0 && made.reads <= DELAYED_READS);
  *ARRAY_PUSH(&e->parts.delayed) = made;
  return true;
}

/* A product that runs after its part's event is recorded may read another stream's memory, which
 * goes back to that stream's pool unmarked as soon as the product is issued. As released
 * (fine_grained_callables.py): HybridEP's output is what the experts save. */
static void end_delayed_read(emitter *e, place_id place)
{
  assert(place != 0 && lower_is_alive(e, place));
  if (e->settings->offload.mode != MODE_AS_RELEASED)
    lower_instruction(e, I_MARK, place, (uint32_t)e->stream);
  lower_drop(e, place);
}

static void run_delayed(emitter *e, const delayed_gradient *d)
{
  ref reads[DELAYED_READS + 1] = { 0 };
  assert(d->reads <= DELAYED_READS);
  memcpy(reads, e->parts.delayed_reads.items + d->first_read, d->reads * sizeof *reads);
  e->node = d->node;
  ref target = emit_parameter_grad(e, d->weight, true);
  emit_kernel(e, d->shape, reads, (ref[]){ target, 0 });
  lower_accumulate_at_once(e);
  for (uint32_t i = 0; i < d->reads; i++)
    end_delayed_read(e, lower_operand(e, reads[i]));
}

static void run_weight_gradients(emitter *e, part_kind kind)
{
  assert(delays(e) && (kind == PART_PRE_DISPATCH || kind == PART_MLP));
  begin_run(e, kind, true);
  for (uint32_t i = 0; i < e->parts.delayed.count; i++)
    run_delayed(e, &e->parts.delayed.items[i]);
  e->parts.delayed.count = e->parts.delayed_reads.count = 0;
}

/* ---- backward: parts ------------------------------------------------------------------------ */

static void keep_for_layer(emitter *e, const part_references *held)
{
  assert(e->parts.current > 0);
  for (int i = 0; i < PART_DETACHED; i++)
    if (held->detached[i] != 0) *ARRAY_PUSH(&e->parts.layer_tensors) = held->detached[i];
}

/* This part's autograd graph ends at its inputs, whose gradients exist by now. */
static void leave_inputs(emitter *e, part_id part)
{
  assert(part > 1 && part_of(e, part)->leaves_graph);
  uint32_t layer = (uint32_t)part_of(e, part)->layer;
  const graph_part *before = part_before(e, part);
  for (int i = 0; i < PART_OUTPUTS && before->outputs[i] != 0; i++) {
    if (gradient_of(e, before->outputs[i]) == 0) continue;
    lower_instruction(e, I_LEAVE, e->parts.held[part - 1].outputs[i], layer);
    lower_instruction(e, I_LEAVE, gradient_of(e, before->outputs[i]), layer);
  }
}

static void end_layer(emitter *e)
{
  assert(e->parts.part_gradients.count == 0);
  drop_all(e, &e->parts.layer_gradients);
  drop_all(e, &e->parts.layer_tensors);
}

static void move_all(place_list *from, place_list *to)
{
  assert(from != to);
  for (uint32_t i = 0; i < from->count; i++)
    *ARRAY_PUSH(to) = from->items[i];
  from->count = 0;
}

static void release_part(emitter *e, const part_references *held)
{
  assert(e->parts.current > 0);
  for (int i = 0; i < PART_OUTPUTS; i++)
    if (held->outputs[i] != 0) *ARRAY_PUSH(&e->parts.part_gradients) = held->outputs[i];
  if (parts_last_for_the_step(e->settings))
    move_all(&e->parts.part_gradients, &e->parts.step_places);
  else
    drop_all(e, &e->parts.part_gradients);
}

void parts_backward_start(emitter *e)
{
  assert(e->out == &e->program->backward && e->parts.current == 0);
  if (!in_parts(e)) return;
  begin_backward(e, e->graph->parts.count - 1);
  hold_gradients(e, &e->graph->output, 1, &e->parts.part_gradients);
}

void parts_backward_end(emitter *e, part_id ends)
{
  const part_references *held = &e->parts.held[ends];
  part_kind kind = part_of(e, ends)->kind;
  assert(ends == e->parts.current);
  lower_join_accumulators(e);
  own_gradients_of_inputs(e);
  if (part_of(e, ends)->leaves_graph) leave_inputs(e, ends);
  release_part(e, held);
  keep_for_layer(e, held);
  if (delays(e)) run_weight_gradients(e, kind);
  if (kind == PART_PRE_DISPATCH) end_layer(e);
  if (ends > 1) begin_backward(e, ends - 1);
}

void parts_finish(emitter *e)
{
  drop_all(e, &e->parts.step_places);
  assert(e->parts.delayed.count == 0 && "every weight gradient has run");
  if (in_parts(e)) end_run(e);
}
