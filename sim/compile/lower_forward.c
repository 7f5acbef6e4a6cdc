#include "sim/compile/lowering.h"

#include <assert.h>

#include "sim/base/units.h"
#include "sim/compile/parts.h"
#include "sim/model/saved_marks.h"

/* A selective checkpoint keeps the operator's outputs. */
static void keep_outputs(lowering *l, const graph_node *n)
{
  for (int i = 0; i < NODE_OUTPUTS && n->outputs[i] != 0; i++) {
    uint32_t *entry = &l->cached_entry[n->outputs[i]];
    if (*entry == 0) continue;
    assert(*entry == NEVER && tensor_storage(l->e.graph, n->outputs[i]) == n->outputs[i]);
    *entry = lower_entries(l, &n->outputs[i], 1);
    l->e.program->entries.items[*entry].cached = true;
    lower_save(l, n->outputs[i], *entry);
    lower_tell_ready(l, *entry);
  }
}

static bool is_kept(const lowering *l, const graph_node *n)
{
  assert(n->kind != NULL);
  for (int i = 0; i < NODE_OUTPUTS && n->outputs[i] != 0; i++)
    if (l->cached_entry[n->outputs[i]] == 0) return false;
  return n->outputs[0] != 0;
}

/* The recomputation takes them instead of running the operator: its frame gets the checkpoint's
 * reference. */
static void find_outputs(lowering *l, const graph_node *n)
{
  for (int i = 0; i < NODE_OUTPUTS && n->outputs[i] != 0; i++) {
    uint32_t entry = l->cached_entry[n->outputs[i]];
    assert(entry != 0 && entry != NEVER && "the first run has kept the output");
    lower_unpack(l, &n->outputs[i], 1, entry);
    l->e.where[n->outputs[i]] = l->e.program->entry_places.items[entry];
  }
}

static bool saves_only(const graph_node *n, uint16_t early)
{
  assert(n->kind != NULL);
  for (uint32_t i = 0; i < NODE_SAVED && n->saved[i] != 0; i++)
    if (!(early >> i & 1)) return false;
  return true;
}

/* A node keeps its `held` parameter if autograd goes back through it: through the nodes of a
 * non-reentrant checkpoint's first run, or of a reentrant checkpoint's second run. */
static void hold(lowering *l, node_id id, saving mode)
{
  assert(id < l->e.graph->nodes.count);
  emitter *e = &l->e;
  tensor_id held = e->graph->nodes.items[id].held;
  saving without = e->settings->recompute.use_reentrant ? NOT_SAVING : RECOMPUTING;
  bool parameter = e->graph->tensors.items[held].parameter;
  if (held == 0 || mode == without || (parameter && l->gathers_parameters)) return;
  uint32_t from = parameter ? OPERAND_PARAMETER | lower_parameter(e, held)
                            : e->where[tensor_storage(e->graph, held)];
  l->held_by[id] =
      lower_place(e, tensor_bytes(e->graph, held), lower_tensor_row(e, held), CLASS_RELOAD);
  if (!parameter) {
    e->program->places.items[from].purpose = CLASS_SAVED;
    *ARRAY_PUSH(&e->program->held) = from;
  }
  lower_instruction(e, I_BIND, l->held_by[id], from);
}

static void set_marks(lowering *l, const graph_node *n, uint32_t first_entry, saved_marks marks)
{
  assert(n->saved[0] == 0 || first_entry > 0);
  const graph *g = l->e.graph;
  for (uint32_t i = 0; i < NODE_SAVED && n->saved[i] != 0; i++) {
    saved_entry *entry = &l->e.program->entries.items[first_entry + i];
    bool is_view = tensor_storage(g, n->saved[i]) != n->saved[i];
    assert(first_entry + i < l->e.program->entries.count);
    entry->marked = marks.marked >> i & 1;
    entry->base_leaves = is_view && (marks.base >> i & 1);
  }
  if (l->e.active_group == 0) return;
  saved_group *group = &l->e.program->groups.items[l->e.active_group];
  group->wrapped_elements =
      max_i64(group->wrapped_elements, saved_wrapped_elements(l->e.settings, g, n));
}

/* `only_packs`: the checkpoint needs only what the operator packs, and stops there. */
static void forward_node(lowering *l, node_id id, saving mode, bool only_packs)
{
  assert(l->e.temporaries.count == 0 && "the operator before has dropped its own");
  const graph_node *n = &l->e.graph->nodes.items[id];
  l->e.node = n;
  hold(l, id, mode);
  if (mode == NOT_SAVING) {
    n->kind->forward(&l->e, l->e.graph, n);
    keep_outputs(l, n);
  } else {
    saved_marks marks = saved_marks_of(l->e.settings, n);
    uint32_t first = l->e.node_entry[id] = lower_entries(l, n->saved, NODE_SAVED);
    set_marks(l, n, first, marks);
    lower_save_early(l, n, first, marks.early);
    if (only_packs && saves_only(n, marks.early)) return;
    if (is_kept(l, n))
      find_outputs(l, n);
    else
      n->kind->forward(&l->e, l->e.graph, n);
    lower_save_late(l, n, first, marks.early);
  }
  if (n->leaves_graph != 0 && mode != SAVING)
    lower_instruction(&l->e, I_FORGET, 0, n->leaves_graph - 1);
  lower_drop_temporaries(&l->e);
}

/* Autograd packs nothing in a region that will be recomputed, so that run's group stays empty. */
static void begin_group(lowering *l, group_id id, saving mode)
{
  const graph_group *from = &l->e.graph->groups.items[id];
  group_array *groups = &l->e.program->groups;
  assert((l->group_row[id] == 0 || mode == RECOMPUTING) && "a group begins once in each run");
  *ARRAY_PUSH(groups) =
      (saved_group){ .name = from->name, .layer = from->layer, .recomputed = mode == RECOMPUTING };
  l->group_row[id] = groups->count - 1;
  l->e.active_group = mode == NOT_SAVING ? 0 : l->group_row[id];
  lower_instruction(&l->e, I_GROUP_START, l->group_row[id], 0);
}

static void commit_group(lowering *l, group_id id)
{
  const graph_group *from = &l->e.graph->groups.items[id];
  assert(l->group_row[id] != 0 && "a group begins before it is committed");
  saved_group *to = &l->e.program->groups.items[l->group_row[id]];
  for (int i = 0; i < 4 && from->released[i] != 0; i++) {
    to->released[i] = l->e.where[tensor_storage(l->e.graph, from->released[i])];
    to->released_elements[i] = tensor_elements(l->e.graph, from->released[i]);
  }
  lower_instruction(&l->e, I_GROUP_COMMIT, l->group_row[id], 0);
}

void lower_layer_hook(lowering *l, instruction_kind kind, uint32_t layer, layer_pass pass)
{
  assert(kind == I_LAYER_BEGIN || kind == I_LAYER_END);
  if (l->layer_hooks) lower_instruction(&l->e, kind, layer, (uint32_t)pass);
}

void lower_forward(lowering *l, uint32_t from, uint32_t to, saving mode)
{
  const graph *g = l->e.graph;
  assert(from <= to && to <= g->items.count);
  for (uint32_t i = from; i < to; i++) {
    uint32_t index = g->items.items[i].index;
    switch ((item_kind)g->items.items[i].kind) {
    case ITEM_NODE: forward_node(l, index, mode, mode == RECOMPUTING && i == l->packs_only); break;
    case ITEM_GROUP_START:
      if (mode == SAVING || l->groups_recomputed) begin_group(l, index, mode);
      break;
    case ITEM_GROUP_HOOKS_END: l->e.active_group = 0; break;
    case ITEM_GROUP_COMMIT:
      if (mode == SAVING || l->groups_recomputed) commit_group(l, index);
      break;
    case ITEM_REGION_BEGIN:
      if (mode != NOT_SAVING) {
        lower_save_inputs(l, index);
        lower_forward(l, i + 1, l->region_end[index], NOT_SAVING);
        i = l->region_end[index];
      }
      break;
    case ITEM_DISCARD:
      if (mode != NOT_SAVING) lower_empty_outputs(l, index);
      break;
    case ITEM_LAYER_BEGIN:
      lower_layer_hook(l, I_LAYER_BEGIN, index,
                       mode == RECOMPUTING ? PASS_RECOMPUTE : PASS_FORWARD);
      break;
    case ITEM_LAYER_END:
      if (mode != RECOMPUTING || l->e.settings->recompute.use_reentrant)
        lower_layer_hook(l, I_LAYER_END, index,
                         mode == RECOMPUTING ? PASS_RECOMPUTE : PASS_FORWARD);
      break;
    case ITEM_PART: parts_forward(&l->e, index); break;
    case ITEM_KEEP:
    case ITEM_REGION_END: break;
    }
    lower_drop_ending(l, i, mode);
  }
}
