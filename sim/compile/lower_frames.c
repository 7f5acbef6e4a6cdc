#include <assert.h>

#include "sim/compile/lowering.h"
#include "sim/graph/sizes.h"

static void used_at(emitter *e, tensor_id t, uint32_t item)
{
  assert(t < e->graph->tensors.count && (item == NEVER || item < e->graph->items.count));
  if (t != 0) e->last_use[tensor_storage(e->graph, t)] = item;
}

/* A part's outputs live at least until the part ends. */
static void used_by_part(emitter *e, part_id ends, uint32_t item)
{
  assert(ends < e->graph->parts.count);
  const graph_part *p = &e->graph->parts.items[ends];
  for (int i = 0; i < PART_OUTPUTS; i++)
    used_at(e, p->outputs[i], item);
  for (int i = 0; i < PART_DETACHED; i++)
    used_at(e, p->detached[i], item);
}

static void find_last_uses(lowering *l)
{
  const graph *g = l->e.graph;
  for (uint32_t i = 0; i < g->items.count; i++) {
    uint32_t index = g->items.items[i].index;
    switch ((item_kind)g->items.items[i].kind) {
    case ITEM_NODE:
      for (int k = 0; k < NODE_INPUTS; k++)
        used_at(&l->e, g->nodes.items[index].inputs[k], i);
      for (int k = 0; k < NODE_OUTPUTS; k++)
        used_at(&l->e, g->nodes.items[index].outputs[k], i);
      break;
    case ITEM_KEEP: used_at(&l->e, index, i); break;
    case ITEM_GROUP_COMMIT:
      for (int k = 0; k < 4; k++)
        used_at(&l->e, g->groups.items[index].released[k], i);
      break;
    case ITEM_REGION_BEGIN:
      l->region_begin[index] = i;
      for (int k = 0; k < REGION_CACHED && g->regions.items[index].cached[k] != 0; k++)
        l->cached_entry[g->regions.items[index].cached[k]] = NEVER;
      break;
    case ITEM_REGION_END:
      assert(l->region_begin[index] < i);
      l->region_end[index] = i;
      break;
    case ITEM_DISCARD:
      for (int k = 0; k < REGION_OUTPUTS && g->regions.items[index].outputs[k] != 0; k++) {
        tensor_id storage = tensor_storage(g, g->regions.items[index].outputs[k]);
        l->discarded_by[storage] = index;
        used_at(&l->e, storage, i);
      }
      break;
    case ITEM_GROUP_START:
    case ITEM_GROUP_HOOKS_END:
    case ITEM_LAYER_BEGIN:
    case ITEM_LAYER_END: break;
    case ITEM_PART:
      assert(index > 0);
      used_by_part(&l->e, index - 1, i);
      break;
    }
  }
  /* The output outlives the forward: the schedule keeps it until it is sent, then until the
   * backward. */
  used_at(&l->e, g->output, NEVER);
  used_at(&l->e, g->input, NEVER);
  for (int i = 0; i < BATCH_TENSORS && keeps_batches(l->e.settings); i++)
    used_at(&l->e, g->batch[i], NEVER);
  for (tensor_id t = 1; t < g->tensors.count; t++)
    if (g->tensors.items[t].callers) used_at(&l->e, t, NEVER);
}

static void sort_endings(lowering *l)
{
  for (uint32_t t = l->e.graph->tensors.count - 1; t > 0; t--) {
    uint32_t item = l->e.last_use[t];
    if (l->e.graph->tensors.items[t].base != t || l->e.graph->tensors.items[t].parameter ||
        item == NEVER)
      continue;
    assert(item < l->e.graph->items.count);
    l->next_ending[t] = l->first_ending[item];
    l->first_ending[item] = t;
  }
}

void lower_find_endings(lowering *l)
{
  find_last_uses(l);
  sort_endings(l);
}

/* A recomputation's function keeps its unpacked inputs until the region's backward is done. */
static bool is_held_by_recomputation(const lowering *l, tensor_id storage)
{
  const graph *g = l->e.graph;
  assert(storage != 0 && l->e.recomputing < g->regions.count);
  const tensor_id *inputs = g->regions.items[l->e.recomputing].inputs;
  for (int i = 0; l->e.recomputing != 0 && i < NODE_INPUTS && inputs[i] != 0; i++)
    if (tensor_storage(g, inputs[i]) == storage) return true;
  return false;
}

/* Drops the frame references that end after `item`. A discarded output keeps its handle until it is
 * recomputed. */
void lower_drop_ending(lowering *l, uint32_t item, saving mode)
{
  assert(item < l->e.graph->items.count);
  for (tensor_id t = l->first_ending[item]; t != 0; t = l->next_ending[t])
    if ((mode == NOT_SAVING || l->discarded_by[t] == 0) && !is_held_by_recomputation(l, t))
      lower_drop(&l->e, l->e.where[t]);
}
