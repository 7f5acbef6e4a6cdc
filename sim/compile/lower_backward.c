#include "sim/compile/lowering.h"

#include <assert.h>

#include "sim/compile/parts.h"

static void backward_node(lowering *l, node_id id)
{
  emitter *e = &l->e;
  const graph_node *n = &e->graph->nodes.items[id];
  assert(e->gradients.count == 0 && e->parameter_gradients.count == 0 && "all are delivered");
  e->node = n;
  e->node_first_entry = e->node_entry[id];
  if (n->kind->backward != NULL && lower_any_gradient(e, n)) {
    lower_unpack(l, n->saved, NODE_SAVED, e->node_first_entry);
    n->kind->backward(e, e->graph, n);
  }
  lower_drop_temporaries(e);
  lower_consume_gradients(e, n);
  lower_release(l, n->saved, NODE_SAVED, e->node_first_entry);
  lower_drop(e, l->held_by[id]);
  lower_tell_used(l, n->saved, NODE_SAVED, e->node_first_entry);
  lower_deliver_gradients(e);
  lower_accumulate(e);
}

void lower_backward(lowering *l, uint32_t from, uint32_t to, bool hooks)
{
  const graph *g = l->e.graph;
  assert(from <= to && to <= g->items.count);
  for (uint32_t i = to; i-- > from;) {
    uint32_t index = g->items.items[i].index;
    switch ((item_kind)g->items.items[i].kind) {
    case ITEM_NODE:
      backward_node(l, index);
      lower_checkpoint_passed(l, i);
      break;
    case ITEM_GROUP_START:
      if (hooks && l->group_row[index] != 0)
        lower_instruction(&l->e, I_GROUP_BACKWARD_START, l->group_row[index], 0);
      break;
    case ITEM_GROUP_COMMIT:
      if (hooks && l->group_row[index] != 0)
        lower_instruction(&l->e, I_GROUP_BACKWARD_COMMIT, l->group_row[index], 0);
      break;
    case ITEM_REGION_END:
      if (g->regions.items[index].kind == REGION_CHECKPOINT) {
        lower_checkpoint_backward(l, index);
        i = l->region_begin[index];
      }
      break;
    case ITEM_REGION_BEGIN: lower_discarded_backward_end(l, index); break;
    case ITEM_LAYER_END:
      if (l->begun_layer != i) lower_layer_hook(l, I_LAYER_BEGIN, index, PASS_BACKWARD);
      break;
    case ITEM_LAYER_BEGIN: lower_layer_hook(l, I_LAYER_END, index, PASS_BACKWARD); break;
    case ITEM_PART: parts_backward_end(&l->e, index); break;
    case ITEM_DISCARD: lower_recompute_discarded(l, index); break;
    case ITEM_KEEP:
    case ITEM_GROUP_HOOKS_END: break;
    }
  }
}
