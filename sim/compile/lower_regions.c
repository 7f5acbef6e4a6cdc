#include "sim/compile/lowering.h"

#include <assert.h>

void lower_save_inputs(lowering *l, region_id id)
{
  const graph_region *r = &l->e.graph->regions.items[id];
  group_id active = l->e.active_group;
  int open = NODE_INPUTS - (int)r->closed_over;
  assert(r->closed_over <= NODE_INPUTS);
  l->e.active_group = 0;
  uint32_t first = l->e.region_entry[id] = lower_entries(l, r->inputs, (int)r->closed_over);
  l->e.active_group = active;
  lower_entries(l, r->inputs + r->closed_over, open);
  for (uint32_t i = 0; i < NODE_INPUTS && r->inputs[i] != 0; i++) {
    l->e.program->entries.items[first + i].checkpoint_input = r->kind == REGION_CHECKPOINT;
    lower_save(l, r->inputs[i], first + i);
    if (i >= r->closed_over) lower_tell_ready(l, first + i);
  }
}

void lower_empty_outputs(lowering *l, region_id id)
{
  assert(l->e.graph->regions.items[id].kind == REGION_DISCARD);
  const graph *g = l->e.graph;
  const tensor_id *outputs = g->regions.items[id].outputs;
  for (int i = 0; i < REGION_OUTPUTS && outputs[i] != 0; i++)
    lower_instruction(&l->e, I_EMPTY, l->e.where[tensor_storage(g, outputs[i])], STREAM_HOST);
}

/* The region reads its inputs from autograd's slots. */
static void read_region_inputs(lowering *l, region_id id)
{
  assert(l->e.region_entry[id] != 0 && "forward has saved the inputs");
  const graph *g = l->e.graph;
  const graph_region *r = &g->regions.items[id];
  lower_unpack(l, r->inputs, NODE_INPUTS, l->e.region_entry[id]);
  for (uint32_t i = 0; i < NODE_INPUTS && r->inputs[i] != 0; i++)
    if (!g->tensors.items[r->inputs[i]].parameter)
      l->e.where[tensor_storage(g, r->inputs[i])] =
          l->e.program->entry_places.items[l->e.region_entry[id] + i];
}

static bool saves(const graph *g, uint32_t item)
{
  const graph_item *i = &g->items.items[item];
  return i->kind == ITEM_NODE && g->nodes.items[i->index].saved[0] != 0;
}

/* The last operator of the region that saves anything. */
static uint32_t last_saving_item(const lowering *l, region_id id)
{
  assert(l->region_begin[id] < l->region_end[id]);
  for (uint32_t i = l->region_end[id]; i-- > l->region_begin[id];)
    if (saves(l->e.graph, i)) return i;
  return l->region_begin[id];
}

/* Drops the frame references of a recomputation that nothing inside it ended. */
static void drop_recomputed_outputs(lowering *l, region_id id)
{
  assert(l->region_begin[id] < l->region_end[id]);
  const graph *g = l->e.graph;
  for (uint32_t i = l->region_begin[id]; i < l->region_end[id]; i++) {
    if (g->items.items[i].kind != ITEM_NODE) continue;
    const graph_node *n = &g->nodes.items[g->items.items[i].index];
    for (int k = 0; k < NODE_OUTPUTS && n->outputs[k] != 0; k++)
      if (tensor_storage(g, n->outputs[k]) == n->outputs[k])
        lower_drop(&l->e, l->e.where[n->outputs[k]]);
  }
}

/* The exception that stops a recomputation ends its frames. Autograd has saved the region's inputs,
 * or what hooks packed instead of them; only the frames referred to what hooks brought back. */
static void end_frames(lowering *l, region_id id)
{
  assert(l->e.graph->regions.items[id].stops_early);
  const graph_region *r = &l->e.graph->regions.items[id];
  drop_recomputed_outputs(l, id);
  for (uint32_t i = r->closed_over; i < NODE_INPUTS && r->inputs[i] != 0; i++) {
    uint32_t entry = l->e.region_entry[id] + i;
    if (l->e.program->entries.items[entry].group != 0)
      lower_instruction(&l->e, I_DROP_UNPACKED, entry, 0);
  }
}

/* The region runs up to its last operator that saves anything; that operator itself runs only if it
 * saves more than its operands. */
static void recompute_until_saved(lowering *l, region_id id)
{
  uint32_t last = last_saving_item(l, id);
  assert(l->packs_only == 0 && last < l->region_end[id]);
  l->packs_only = last;
  lower_forward(l, l->region_begin[id] + 1, last + 1, RECOMPUTING);
  l->packs_only = 0;
  end_frames(l, id);
}

/* The region's items run again, inside another region's recomputation or not. */
static void recompute(lowering *l, region_id id)
{
  region_id outer = l->e.recomputing;
  assert(l->region_begin[id] < l->region_end[id]);
  read_region_inputs(l, id);
  l->e.recomputing = id;
  if (l->e.graph->regions.items[id].stops_early)
    recompute_until_saved(l, id);
  else
    lower_forward(l, l->region_begin[id] + 1, l->region_end[id], RECOMPUTING);
  l->e.recomputing = outer;
}

/* Megatron-LM before f5440349: the emptied storage is allocated again, and takes a copy of the new output. */
static place_id copy_into_emptied(lowering *l, tensor_id storage, place_id emptied)
{
  emitter *e = &l->e;
  place_id computed = e->where[storage];
  assert(computed != emptied && emptied != 0);
  e->where[storage] = emptied;
  lower_refill(e, storage);
  kernel_shape copy = { .kind = KERNEL_COPY,
                        .type = (dtype)e->graph->tensors.items[storage].dtype,
                        .dims = { tensor_elements(e->graph, storage) } };
  emit_kernel(e, copy, (ref[]){ lower_output_ref(e, computed, storage), 0 },
              (ref[]){ lower_output_ref(e, emptied, storage), 0 });
  lower_drop(e, emptied);
  return computed;
}

void lower_recompute_discarded(lowering *l, region_id id)
{
  assert(l->e.graph->regions.items[id].kind == REGION_DISCARD);
  assert(l->e.refilling == 0 && "discarded regions do not nest");
  const tensor_id *outputs = l->e.graph->regions.items[id].outputs;
  bool copies = l->e.settings->derived.copies_recomputed;
  place_id emptied[REGION_OUTPUTS];
  for (uint32_t i = 0; i < REGION_OUTPUTS && outputs[i] != 0; i++)
    emptied[i] = l->e.where[tensor_storage(l->e.graph, outputs[i])];
  l->e.refilling = copies ? 0 : id;
  recompute(l, id);
  l->e.refilling = 0;
  for (uint32_t i = 0; i < REGION_OUTPUTS && outputs[i] != 0; i++)
    l->recomputed[id * REGION_OUTPUTS + i] =
        copies ? copy_into_emptied(l, tensor_storage(l->e.graph, outputs[i]), emptied[i])
               : emptied[i];
}

void lower_discarded_backward_end(lowering *l, region_id id)
{
  const graph_region *r = &l->e.graph->regions.items[id];
  assert(r->kind == REGION_DISCARD);
  for (uint32_t i = 0; i < REGION_OUTPUTS && r->outputs[i] != 0; i++)
    lower_drop(&l->e, l->recomputed[id * REGION_OUTPUTS + i]);
  lower_release(l, r->inputs, NODE_INPUTS, l->e.region_entry[id]);
  lower_tell_used(l, r->inputs, NODE_INPUTS, l->e.region_entry[id]);
}

/* The backward of the last layer in the region begins when its output's gradient exists. */
static void begin_last_layer(lowering *l, region_id id)
{
  assert(!l->e.settings->recompute.use_reentrant);
  const graph_item *items = l->e.graph->items.items;
  for (uint32_t i = l->region_end[id]; i-- > l->region_begin[id];)
    if (items[i].kind == ITEM_LAYER_END) {
      lower_layer_hook(l, I_LAYER_BEGIN, items[i].index, PASS_BACKWARD);
      l->begun_layer = i;
      return;
    }
}

/* Also releases what the recomputation did not reach. */
static void release_kept(lowering *l, region_id id)
{
  assert(l->e.graph->regions.items[id].kind == REGION_CHECKPOINT);
  const tensor_id *cached = l->e.graph->regions.items[id].cached;
  uint32_t first = l->cached_entry[cached[0]];
  if (cached[0] == 0) return;
  lower_release(l, cached, REGION_CACHED, first);
  lower_tell_used(l, cached, REGION_CACHED, first);
}

static void let_go(lowering *l, region_id id)
{
  const tensor_id *inputs = l->e.graph->regions.items[id].inputs;
  uint32_t closed_over = l->e.graph->regions.items[id].closed_over;
  assert(closed_over <= NODE_INPUTS);
  release_kept(l, id);
  lower_release(l, inputs, NODE_INPUTS, l->e.region_entry[id]);
  lower_tell_used(l, inputs + closed_over, NODE_INPUTS - (int)closed_over,
                  l->e.region_entry[id] + closed_over);
}

/* Input `i` of the region, as autograd has saved it: a region inside may have read the same tensor from
 * a slot of its own. The chunk keeps the input that it has received, and its gradient, anyway (frames.h). */
static void leave_input(lowering *l, region_id id, uint32_t i, uint32_t layer)
{
  emitter *e = &l->e;
  const graph *g = e->graph;
  tensor_id input = g->regions.items[id].inputs[i];
  place_id gradient = e->gradient[lower_gradient_key(g, input)];
  bool received = g->input != 0 && tensor_storage(g, input) == tensor_storage(g, g->input);
  if (gradient == 0 || received) return;
  lower_instruction(e, I_LEAVE, e->program->entry_places.items[e->region_entry[id] + i], layer);
  lower_instruction(e, I_LEAVE, gradient, layer);
}

/* For the modules inside that keep a tensor with its graph: the last one runs last again. */
static void leave_inputs(lowering *l, region_id id)
{
  const graph *g = l->e.graph;
  const tensor_id *inputs = g->regions.items[id].inputs;
  uint32_t leaves = 0;
  assert(l->region_begin[id] < l->region_end[id]);
  for (uint32_t i = l->region_end[id]; leaves == 0 && i-- > l->region_begin[id];)
    if (g->items.items[i].kind == ITEM_NODE)
      leaves = g->nodes.items[g->items.items[i].index].leaves_graph;
  for (uint32_t i = 0; leaves != 0 && i < NODE_INPUTS && inputs[i] != 0; i++)
    leave_input(l, id, i, leaves - 1);
}

/* The backward of torch.utils.checkpoint's autograd function runs autograd inside: it keeps its
 * arguments and its unpacked tensors until that returns. So does Megatron-LM's function. */
static void backward_reentrant(lowering *l, region_id id)
{
  emitter *e = &l->e;
  place_id outer = e->held_gradient;
  tensor_id output = e->graph->regions.items[id].outputs[0];
  place_id given = e->gradient[lower_gradient_key(e->graph, output)];
  e->held_gradient = given == 0 ? 0 : lower_refer(e, given);
  lower_backward(l, l->region_begin[id] + 1, l->region_end[id], l->groups_recomputed);
  lower_join_accumulators(e);
  drop_recomputed_outputs(l, id);
  assert(e->held_gradient == 0 || lower_is_alive(e, e->held_gradient));
  lower_drop(e, e->held_gradient);
  e->held_gradient = outer;
  leave_inputs(l, id);
  let_go(l, id);
}

static uint32_t first_saving_item(const lowering *l, region_id id)
{
  assert(l->region_begin[id] < l->region_end[id]);
  for (uint32_t i = l->region_begin[id]; i < l->region_end[id]; i++)
    if (saves(l->e.graph, i)) return i;
  return l->region_begin[id];
}

/* The tensors saved inside refer to the checkpoint, which dies with the last of them. */
static void backward_not_reentrant(lowering *l, region_id id)
{
  assert(!l->e.settings->recompute.use_reentrant && l->lets_go != id);
  region_id outer = l->lets_go;
  uint32_t outer_at = l->lets_go_at;
  l->lets_go = id;
  l->lets_go_at = first_saving_item(l, id);
  lower_backward(l, l->region_begin[id] + 1, l->region_end[id], l->groups_recomputed);
  lower_checkpoint_passed(l, l->region_begin[id]);
  drop_recomputed_outputs(l, id);
  l->lets_go = outer;
  l->lets_go_at = outer_at;
}

void lower_checkpoint_passed(lowering *l, uint32_t item)
{
  assert(l->lets_go == 0 || l->lets_go_at < l->e.graph->items.count);
  if (l->lets_go != 0 && item == l->lets_go_at) let_go(l, l->lets_go);
}

void lower_checkpoint_backward(lowering *l, region_id id)
{
  const settings *s = l->e.settings;
  assert(l->e.graph->regions.items[id].kind == REGION_CHECKPOINT);
  if (!s->recompute.use_reentrant) begin_last_layer(l, id);
  recompute(l, id);
  if (uses_hf(s) && !s->recompute.use_reentrant)
    backward_not_reentrant(l, id);
  else
    backward_reentrant(l, id);
}
