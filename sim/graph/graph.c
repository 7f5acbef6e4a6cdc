/* The builder of the autograd graph: appends tensors, operators and markers, and nothing else. */
#include "sim/graph/graph.h"

#include <assert.h>
#include <string.h>

#include "sim/graph/node.h"

graph *graph_new(arena *a)
{
  graph *g = ARENA_NEW(a, graph);
  g->memory = a;
  g->layer = -1;
  *ARRAY_PUSH(&g->tensors) = (graph_tensor){ .name = "none" };
  *ARRAY_PUSH(&g->nodes) = (graph_node){ 0 };
  *ARRAY_PUSH(&g->regions) = (graph_region){ 0 };
  *ARRAY_PUSH(&g->groups) = (graph_group){ .name = "none", .layer = -1 };
  *ARRAY_PUSH(&g->parts) = (graph_part){ 0 };
  *ARRAY_PUSH(&g->sites) = (plan_site){ .module = "", .layer = -1 };
  return g;
}

void graph_release(graph *g)
{
  ARRAY_FREE(&g->tensors);
  ARRAY_FREE(&g->nodes);
  ARRAY_FREE(&g->regions);
  ARRAY_FREE(&g->groups);
  ARRAY_FREE(&g->parts);
  ARRAY_FREE(&g->items);
  ARRAY_FREE(&g->sites);
}

/* The operators of a module follow each other, so the newest sites hold most repetitions. A chunk
 * has some tens of sites per layer. */
void graph_site(graph *g, const char *module)
{
  assert(module != NULL);
  for (uint32_t i = g->sites.count; i-- > 1;) {
    const plan_site *site = &g->sites.items[i];
    if (site->layer != g->layer) break;
    if (strcmp(site->module, module) == 0) {
      g->site = i;
      return;
    }
  }
  g->site = g->sites.count;
  *ARRAY_PUSH(&g->sites) = (plan_site){ .module = module, .layer = g->layer };
}

/* Up to the last dimension that is not 0. A tensor of no rows is empty; there are no scalars. */
static uint8_t rank_of(const int64_t shape[4])
{
  uint8_t rank = 4;
  while (rank > 1 && shape[rank - 1] == 0)
    rank--;
  for (uint8_t i = 0; i < rank; i++)
    assert(shape[i] >= 0);
  return rank;
}

static tensor_id push_tensor(graph *g, graph_tensor t)
{
  tensor_id id = g->tensors.count;
  t.site = g->site;
  t.rank = rank_of(t.shape);
  assert(t.name != NULL && t.dtype < DTYPES && t.base <= id);
  if (t.base == 0) t.base = id;
  *ARRAY_PUSH(&g->tensors) = t;
  return id;
}

tensor_id graph_tensor_new(graph *g, const char *name, dtype type, int64_t d0, int64_t d1,
                           int64_t d2, int64_t d3)
{
  return push_tensor(g, (graph_tensor){ .name = name,
                                        .dtype = (uint8_t)type,
                                        .requires_grad = true,
                                        .contiguous = true,
                                        .shape = { d0, d1, d2, d3 } });
}

tensor_id graph_tensor_like(graph *g, const char *name, dtype type, tensor_id like)
{
  const int64_t *shape = g->tensors.items[like].shape;
  return graph_tensor_new(g, name, type, shape[0], shape[1], shape[2], shape[3]);
}

tensor_id graph_constant(graph *g, const char *name, dtype type, int64_t d0, int64_t d1)
{
  tensor_id t = graph_tensor_new(g, name, type, d0, d1, 0, 0);
  g->tensors.items[t].requires_grad = false;
  return t;
}

tensor_id graph_parameter(graph *g, const char *name, dtype type, int64_t d0, int64_t d1)
{
  return push_tensor(g, (graph_tensor){ .name = name,
                                        .dtype = (uint8_t)type,
                                        .parameter = true,
                                        .requires_grad = true,
                                        .contiguous = true,
                                        .not_offloadable = true,
                                        .shape = { d0, d1 } });
}

tensor_id graph_view(graph *g, const char *name, tensor_id base, bool contiguous, int64_t d0,
                     int64_t d1, int64_t d2, int64_t d3)
{
  assert(base > 0 && base < g->tensors.count);
  const graph_tensor *of = &g->tensors.items[base];
  bool dense = contiguous && of->contiguous;
  return push_tensor(g, (graph_tensor){ .name = name,
                                        .dtype = of->dtype,
                                        .requires_grad = of->requires_grad,
                                        .contiguous = contiguous,
                                        .offset_elements = dense ? of->offset_elements : 0,
                                        .shape = { d0, d1, d2, d3 },
                                        .base = of->base,
                                        .parent = base });
}

void graph_strides(graph *g, tensor_id t, int64_t offset, uint32_t rank, const int64_t *shape,
                   const int64_t *strides)
{
  assert(t > 0 && t < g->tensors.count);
  assert(offset >= 0 && rank > 0 && rank <= PLAN_VIEW_DIMS);
  graph_tensor *of = &g->tensors.items[t];
  of->contiguous = false;
  of->offset_elements = offset;
  of->view = (plan_view){ .dtype = of->dtype, .rank = (uint8_t)rank, .offset = offset };
  memcpy(of->view.shape, shape, rank * sizeof *shape);
  memcpy(of->view.strides, strides, rank * sizeof *strides);
}

void graph_uses_rows(graph *g, tensor_id t, int64_t rows)
{
  graph_tensor *of = &g->tensors.items[t];
  int64_t stride = 1;
  assert(of->base == t && of->view.rank == 0);
  assert(rows > 0 && rows <= of->shape[0]);
  of->view = (plan_view){ .dtype = of->dtype, .rank = of->rank };
  for (uint32_t i = of->rank; i-- > 0; stride *= of->view.shape[i]) {
    of->view.shape[i] = i == 0 ? rows : of->shape[i];
    of->view.strides[i] = stride;
  }
}

static void push_item(graph *g, item_kind kind, uint32_t index)
{
  *ARRAY_PUSH(&g->items) = (graph_item){ .kind = (uint8_t)kind, .index = index };
}

graph_node *graph_add(graph *g, const struct operator_kind *kind)
{
  assert(kind != NULL);
  push_item(g, ITEM_NODE, g->nodes.count);
  graph_node *n = ARRAY_PUSH(&g->nodes);
  *n = (graph_node){ .kind = kind, .site = g->site };
  return n;
}

void graph_keep(graph *g, tensor_id t)
{
  assert(t > 0 && t < g->tensors.count);
  push_item(g, ITEM_KEEP, t);
}

void graph_layer_begin(graph *g, int32_t layer)
{
  assert(layer >= 0);
  g->layer = layer;
  push_item(g, ITEM_LAYER_BEGIN, (uint32_t)layer);
}

void graph_layer_end(graph *g)
{
  assert(g->layer >= 0);
  push_item(g, ITEM_LAYER_END, (uint32_t)g->layer);
  g->layer = -1;
}

group_id graph_group_start(graph *g, const char *name)
{
  group_id id = g->groups.count;
  *ARRAY_PUSH(&g->groups) = (graph_group){ .name = name, .layer = g->layer };
  push_item(g, ITEM_GROUP_START, id);
  return id;
}

void graph_group_hooks_end(graph *g, group_id group)
{
  assert(group > 0 && group < g->groups.count);
  push_item(g, ITEM_GROUP_HOOKS_END, group);
}

void graph_group_release(graph *g, group_id group, tensor_id t)
{
  assert(group > 0 && group < g->groups.count);
  assert(t > 0 && t < g->tensors.count);
  list_append(g->groups.items[group].released, 4, t);
}

void graph_group_commit(graph *g, group_id group)
{
  assert(group > 0 && group < g->groups.count);
  push_item(g, ITEM_GROUP_COMMIT, group);
}

region_id graph_region_begin(graph *g, region_kind kind, const tensor_id *inputs, uint32_t count)
{
  assert(count <= NODE_INPUTS);
  region_id id = g->regions.count;
  graph_region *r = ARRAY_PUSH(&g->regions);
  *r = (graph_region){ .kind = kind };
  for (uint32_t i = 0; i < count; i++)
    r->inputs[i] = inputs[i];
  push_item(g, ITEM_REGION_BEGIN, id);
  return id;
}

void graph_region_end(graph *g, region_id region, tensor_id output)
{
  assert(region > 0 && region < g->regions.count);
  assert(output > 0 && output < g->tensors.count);
  g->regions.items[region].outputs[0] = output;
  push_item(g, ITEM_REGION_END, region);
}

void graph_region_output(graph *g, region_id region, tensor_id another)
{
  assert(g->regions.items[region].kind == REGION_DISCARD && another != 0);
  list_append(g->regions.items[region].outputs, REGION_OUTPUTS, another);
}

void graph_region_cache(graph *g, region_id region, tensor_id t)
{
  assert(g->regions.items[region].kind == REGION_CHECKPOINT);
  list_append(g->regions.items[region].cached, REGION_CACHED, t);
}

void graph_discard(graph *g, region_id region)
{
  assert(region > 0 && g->regions.items[region].kind == REGION_DISCARD);
  push_item(g, ITEM_DISCARD, region);
}

part_id graph_part_begin(graph *g, part_kind kind)
{
  part_id id = g->parts.count;
  *ARRAY_PUSH(&g->parts) = (graph_part){ .kind = kind };
  push_item(g, ITEM_PART, id);
  return id;
}

int64_t tensor_elements(const graph *g, tensor_id t)
{
  assert(t < g->tensors.count);
  const graph_tensor *tensor = &g->tensors.items[t];
  int64_t elements = 1;
  for (uint8_t i = 0; i < tensor->rank; i++)
    elements *= tensor->shape[i];
  return elements;
}

int64_t tensor_bytes(const graph *g, tensor_id t)
{
  return tensor_elements(g, t) * dtype_bytes(type_of(g, t));
}

tensor_id tensor_storage(const graph *g, tensor_id t)
{
  return g->tensors.items[t].base;
}
