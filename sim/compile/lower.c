#include <assert.h>

#include "sim/compile/lowering.h"
#include "sim/compile/parts.h"
#include "sim/graph/sizes.h"
#include "sim/offload/systems.h"
#include "sim/residents/fsdp_units.h"

static lowering lowering_new(const settings *s, const graph *g, plan *p, chunk_program *program,
                             arena *a)
{
  assert(g->tensors.count > 0 && g->items.count > 0 && g->nodes.count > 0);
  lowering l = { .e = { .settings = s, .graph = g, .plan = p, .program = program } };
  uint32_t tensors = g->tensors.count;
  l.e.where = ARENA_ARRAY(a, place_id, tensors);
  l.e.last_use = ARENA_ARRAY(a, uint32_t, tensors);
  l.e.gradient = ARENA_ARRAY(a, place_id, tensors);
  l.e.tensor_row = ARENA_ARRAY(a, uint32_t, tensors);
  l.e.site_row = ARENA_ARRAY(a, uint32_t, g->sites.count);
  l.e.node_entry = ARENA_ARRAY(a, uint32_t, g->nodes.count);
  l.e.region_entry = ARENA_ARRAY(a, uint32_t, g->regions.count);
  l.first_ending = ARENA_ARRAY(a, uint32_t, g->items.count);
  l.next_ending = ARENA_ARRAY(a, uint32_t, tensors);
  l.region_begin = ARENA_ARRAY(a, uint32_t, g->regions.count);
  l.region_end = ARENA_ARRAY(a, uint32_t, g->regions.count);
  l.discarded_by = ARENA_ARRAY(a, region_id, tensors);
  l.recomputed = ARENA_ARRAY(a, place_id, g->regions.count * REGION_OUTPUTS);
  l.cached_entry = ARENA_ARRAY(a, uint32_t, tensors);
  l.group_row = ARENA_ARRAY(a, uint32_t, g->groups.count);
  l.held_by = ARENA_ARRAY(a, place_id, g->nodes.count);
  l.e.parameter_row = ARENA_ARRAY(a, uint32_t, tensors);
  l.e.experts_row = ARENA_ARRAY(a, uint32_t, tensors);
  l.packs_parameters = uses_hf(s);
  l.layer_hooks = uses_hf(s) || s->parallel.use_megatron_fsdp;
  l.gathers_parameters = uses_fsdp(s);
  l.moves_gathered = offload_policy_of(s)->moves_gathered;
  l.node_hooks = offload_policy_of(s)->node_backward_end != NULL;
  l.groups_recomputed = offload_policy_of(s)->marks_recomputation != NULL &&
                        offload_policy_of(s)->marks_recomputation(s);
  return l;
}

static void start_tables(chunk_program *program)
{
  assert(program->places.count == 0 && program->entries.count == 0 && program->groups.count == 0);
  *ARRAY_PUSH(&program->places) = (program_place){ 0 };
  *ARRAY_PUSH(&program->entries) = (saved_entry){ 0 };
  *ARRAY_PUSH(&program->entry_places) = 0;
  *ARRAY_PUSH(&program->groups) = (saved_group){ 0 };
}

/* Lists all parameters, including those that no operator reads. */
static void list_parameters(emitter *e)
{
  assert(e->program->parameters.count == 0);
  for (tensor_id t = 1; t < e->graph->tensors.count; t++)
    if (e->graph->tensors.items[t].parameter) lower_parameter(e, t);
}

/* Megatron-LM's loss function asks whether the loss is NaN (pretrain_gpt.py, loss_func:
 * validate_result). The trainers of plain PyTorch ask after backward (walk_schedule.c). */
static bool reads_loss(const emitter *e)
{
  assert(e->graph->output != 0);
  return e->graph->ends_in_loss && !uses_hf(e->settings) &&
         e->settings->training.check_for_nan_in_loss_and_grad;
}

static void lower_whole_forward(lowering *l)
{
  emitter *e = &l->e;
  e->out = &e->program->forward;
  tensor_id input = e->graph->input;
  if (input != 0) {
    e->program->input =
        lower_place(e, tensor_bytes(e->graph, input), lower_tensor_row(e, input), CLASS_SAVED);
    e->where[tensor_storage(e->graph, input)] = e->program->input;
  }
  lower_forward(l, 0, e->graph->items.count, SAVING);
  if (reads_loss(e)) emit_host_read(e);
  parts_forward(e, 0);
  e->program->output = e->where[tensor_storage(e->graph, e->graph->output)];
  assert(e->program->output != 0 && "the graph makes its output");
  for (int i = 0; i < BATCH_TENSORS; i++)
    if (e->graph->batch[i] != 0 && keeps_batches(e->settings))
      e->program->batch[i] = e->where[e->graph->batch[i]];
}

/* backward() of a scalar begins with the gradient 1 (torch.ones_like). Trainers of plain PyTorch
 * models first divide the loss by the number of micro-batches (transformers trainer.py:
 * training_step); here the initial gradient is divided instead. */
static double first_gradient(const settings *s)
{
  assert(!uses_hf(s) || s->derived.num_microbatches > 0);
  return uses_hf(s) ? 1 / (double)s->derived.num_microbatches : 1;
}

static void start_gradient(emitter *e, place_id gradient)
{
  const graph *g = e->graph;
  assert(g->ends_in_loss && g->nodes.count > 0);
  lower_instruction(e, I_ALLOC, gradient, 0);
  e->node = &g->nodes.items[g->nodes.count - 1];
  emit_kernel(e,
              (kernel_shape){ .kind = KERNEL_FILL,
                              .type = type_of(g, g->output),
                              .dims = { tensor_elements(g, g->output) },
                              .scalars = { first_gradient(e->settings) } },
              NULL, (ref[]){ lower_ref(e, gradient), 0 });
}

static void lower_whole_backward(lowering *l, bool last_stage)
{
  assert(l->e.program->output != 0 && last_stage == l->e.graph->ends_in_loss);
  emitter *e = &l->e;
  const graph *g = e->graph;
  chunk_program *p = e->program;
  e->out = &p->backward;
  p->output_gradient =
      lower_place(e, tensor_bytes(g, g->output), lower_tensor_row(e, g->output), CLASS_TRANSIENT);
  if (last_stage) start_gradient(e, p->output_gradient);
  e->gradient[lower_gradient_key(g, g->output)] = p->output_gradient;
  parts_backward_start(e);
  lower_backward(l, 0, g->items.count, true);
  lower_join_accumulators(e);
  if (last_stage) lower_drop(e, p->output);
  if (g->input != 0) {
    p->input_gradient = e->gradient[lower_gradient_key(g, g->input)];
    lower_drop(e, p->input);
  }
  for (tensor_id t = 1; t < g->tensors.count; t++)
    if (g->tensors.items[t].callers) lower_drop(e, e->where[t]);
  parts_finish(e);
}

chunk_program *lower_chunk(const settings *s, const graph *g, plan *p, arena *a)
{
  chunk_program *program = ARENA_NEW(a, chunk_program);
  lowering l = lowering_new(s, g, p, program, a);
  start_tables(program);
  if (uses_hf(s)) list_parameters(&l.e);
  parts_start(&l.e, a);
  lower_find_endings(&l);
  lower_whole_forward(&l);
  lower_whole_backward(&l, g->ends_in_loss);
  assert(program->entries.count == program->entry_places.count);
  assert(l.e.gradients.count == 0 && l.e.temporaries.count == 0 && "nothing is in flight");
  parts_release(&l.e);
  array_release(l.e.dropped);
  ARRAY_FREE(&l.e.refs);
  ARRAY_FREE(&l.e.temporaries);
  ARRAY_FREE(&l.e.gradients);
  ARRAY_FREE(&l.e.parameter_gradients);
  return program;
}

void chunk_program_release(chunk_program *c)
{
  ARRAY_FREE(&c->forward);
  ARRAY_FREE(&c->backward);
  ARRAY_FREE(&c->forward_parts);
  ARRAY_FREE(&c->backward_parts);
  ARRAY_FREE(&c->places);
  ARRAY_FREE(&c->steps);
  ARRAY_FREE(&c->operands);
  ARRAY_FREE(&c->step_views);
  ARRAY_FREE(&c->parameters);
  ARRAY_FREE(&c->refills);
  ARRAY_FREE(&c->refill_places);
  ARRAY_FREE(&c->entries);
  ARRAY_FREE(&c->entry_places);
  ARRAY_FREE(&c->held);
  ARRAY_FREE(&c->groups);
}
