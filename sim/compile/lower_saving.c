#include "sim/compile/lowering.h"

#include <assert.h>

static saved_entry entry_of(const lowering *l, tensor_id t)
{
  const graph *g = l->e.graph;
  const graph_tensor *tensor = &g->tensors.items[t];
  tensor_id storage = tensor_storage(g, t);
  assert(tensor_bytes(g, t) <= tensor_bytes(g, storage) || !tensor->contiguous);
  return (saved_entry){ .parameter = tensor->parameter,
                        .of_parameter = !tensor->parameter && g->tensors.items[storage].parameter,
                        .trained_transpose = tensor->transposed_weight && tensor->requires_grad,
                        .contiguous = tensor->contiguous,
                        .not_offloadable = tensor->not_offloadable,
                        .discarded = l->discarded_by[storage] != 0,
                        .callers = g->tensors.items[storage].callers,
                        .elements = tensor_elements(g, t),
                        .offset_elements = tensor->offset_elements,
                        .bytes = tensor_bytes(g, t),
                        .storage_bytes = tensor_bytes(g, storage),
                        .element_bytes = (uint8_t)dtype_bytes((dtype)tensor->dtype),
                        .group = l->e.active_group };
}

/* The entries of an operator or region that is about to run, in the order in which autograd packs. */
uint32_t lower_entries(lowering *l, const tensor_id *tensors, int limit)
{
  chunk_program *p = l->e.program;
  uint32_t first = p->entries.count;
  for (int i = 0; i < limit && tensors[i] != 0; i++) {
    saved_entry entry = entry_of(l, tensors[i]);
    plan_view view = lower_tensor_view(l->e.graph, tensors[i]);
    entry.view = plan_view_row(l->e.plan, &view);
    entry.operator_first = first;
    *ARRAY_PUSH(&p->entries) = entry;
    *ARRAY_PUSH(&p->entry_places) = 0;
  }
  if (l->e.active_group != 0) {
    saved_group *group = &p->groups.items[l->e.active_group];
    if (group->entry_count == 0) group->first_entry = first;
    group->entry_count += p->entries.count - first;
    assert(group->first_entry + group->entry_count <= p->entries.count);
  }
  assert(p->entries.count == p->entry_places.count);
  return first;
}

/* Saves a tensor: a place that refers to the same buffer as the frame's place. A Parameter needs
 * one only if the policy's hooks see parameters. */
void lower_save(lowering *l, tensor_id t, uint32_t entry)
{
  emitter *e = &l->e;
  chunk_program *p = e->program;
  saved_entry *saved = &p->entries.items[entry];
  tensor_id storage = tensor_storage(e->graph, t);
  assert(p->entry_places.items[entry] == 0 && "an entry is saved once");
  if (saved->bytes == 0) return;
  saved->tensor = lower_tensor_row(e, t);
  if (saved->parameter && !l->packs_parameters) return;
  if (e->graph->tensors.items[storage].parameter && l->gathers_parameters &&
      !(l->moves_gathered && saved->group != 0))
    return;
  place_id slot = lower_place(e, saved->bytes, saved->tensor, CLASS_RELOAD);
  p->entry_places.items[entry] = slot;
  p->places.items[slot].entry = entry;
  if (e->graph->tensors.items[storage].parameter) {
    uint32_t parameter = lower_parameter(e, storage);
    saved->slot = slot;
    saved->parameter_number = parameter + 1;
    lower_instruction(e, I_BIND, slot, OPERAND_PARAMETER | parameter);
    return;
  }
  place_id from = lower_place_of(e, t);
  assert(lower_is_alive(e, from) && "an operator saves a live tensor");
  p->places.items[from].purpose = CLASS_SAVED;
  saved->slot = from;
  lower_instruction(e, I_BIND, slot, from);
}

void lower_tell_ready(lowering *l, uint32_t entry)
{
  assert(entry > 0 && entry < l->e.program->entries.count);
  if (l->e.active_group != 0) lower_instruction(&l->e, I_ENTRY_READY, entry, 0);
}

static bool is_input(const graph *g, const graph_node *n, tensor_id t)
{
  assert(t != 0 && "tensor 0 is none");
  for (int i = 0; i < NODE_INPUTS && n->inputs[i] != 0; i++)
    if (tensor_storage(g, n->inputs[i]) == tensor_storage(g, t)) return true;
  return false;
}

/* Before the operator runs: saves inputs that it packs first, and outputs that it announces before
 * it makes them. */
void lower_save_early(lowering *l, const graph_node *n, uint32_t first_entry, uint16_t early)
{
  assert(early == 0 || first_entry > 0);
  for (uint32_t i = 0; i < NODE_SAVED && n->saved[i] != 0; i++) {
    if (!(early >> i & 1)) continue;
    if (is_input(l->e.graph, n, n->saved[i])) lower_save(l, n->saved[i], first_entry + i);
    lower_tell_ready(l, first_entry + i);
  }
}

void lower_save_late(lowering *l, const graph_node *n, uint32_t first_entry, uint16_t early)
{
  assert(n->saved[0] == 0 || first_entry > 0);
  for (uint32_t i = 0; i < NODE_SAVED && n->saved[i] != 0; i++) {
    bool is_early = early >> i & 1;
    if (!is_early || !is_input(l->e.graph, n, n->saved[i]))
      lower_save(l, n->saved[i], first_entry + i);
    if (!is_early) lower_tell_ready(l, first_entry + i);
  }
}

void lower_unpack(lowering *l, const tensor_id *tensors, int limit, uint32_t first_entry)
{
  const chunk_program *p = l->e.program;
  assert(first_entry < p->entries.count || tensors[0] == 0);
  for (uint32_t i = 0; i < (uint32_t)limit && tensors[i] != 0; i++)
    if (p->entries.items[first_entry + i].group != 0 && p->entry_places.items[first_entry + i] != 0)
      lower_instruction(&l->e, I_UNPACK, first_entry + i, 0);
}

void lower_release(lowering *l, const tensor_id *tensors, int limit, uint32_t first_entry)
{
  assert(limit >= 0 && (tensors[0] == 0 || first_entry < l->e.program->entries.count));
  for (uint32_t i = 0; i < (uint32_t)limit && tensors[i] != 0; i++)
    lower_drop(&l->e, l->e.program->entry_places.items[first_entry + i]);
}

/* The hook fires for tensors that were saved while hooks were active, and after operators inside a
 * non-reentrant checkpoint: the first of these unpacks the checkpoint's inputs. */
void lower_tell_used(lowering *l, const tensor_id *tensors, int limit, uint32_t first_entry)
{
  assert(limit >= 0 && (tensors[0] == 0 || first_entry < l->e.program->entries.count));
  uint32_t count = 0;
  while (count < (uint32_t)limit && tensors[count] != 0)
    count++;
  bool hooked = l->node_hooks && count > 0;
  if (hooked && (l->e.program->entries.items[first_entry].group != 0 ||
                 !l->e.settings->recompute.use_reentrant))
    lower_instruction(&l->e, I_NODE_BACKWARD_END, first_entry, count);
}
