#include "sim/graph/node.h"
#include "sim/model/megatron/dispatcher.h"
#include "sim/operators/moe.h"

static void set_shape(graph_node *n, int64_t d0, int64_t d1, int64_t d2, int64_t d3)
{
  n->dims[MOE_STEP_D0] = d0;
  n->dims[MOE_STEP_D1] = d1;
  n->dims[MOE_STEP_D2] = d2;
  n->dims[MOE_STEP_D3] = d3;
}

/* triton/permutation.py, make_row_id_map: int32 [tokens, 2 experts + 1], kept for backward and
 * for the unpermutation. Its workspace has a number for each expert and 1024 tokens. */
static row_pair fused_permute(graph *g, const permutation *p, row_pair from, tensor_id map,
                              tensor_id *restore)
{
  dtype router = type_of(g, from.probs);
  dtype type = type_of(g, from.tokens);
  row_pair to = { graph_tensor_new(g, "permuted_tokens", type, p->rows, p->width, 0, 0),
                  graph_tensor_new(g, "permuted_probs", router, p->rows, 0, 0, 0) };
  *restore = graph_constant(g, "row_id_map", DTYPE_INT32, p->tokens, 2 * p->experts + 1);
  graph_node *n = moe_step(g, KERNEL_MOE_PERMUTE_FORWARD, KERNEL_MOE_PERMUTE_BACKWARD, from.tokens,
                           from.probs, to.tokens);
  set_shape(n, p->rows, p->width, p->tokens, p->experts);
  n->scalars[0] = p->slotted;
  n->dims[MOE_STEP_FORWARD_BYTES] = p->experts * ((p->tokens + 1023) / 1024) * 4;
  node_input(n, map);
  node_output(n, *restore);
  node_output(n, to.probs);
  node_save(n, *restore);
  return to;
}

/* moe_utils.py, permute: a stable argsort of the transposed map. Dropless, the kept index is a
 * slice of the sort of all cells; with padding it is a copy. The sort works on a copy of keys and
 * values. */
tensor_id moe_sorted_cells(graph *g, const permutation *p, tensor_id map, tensor_id *indices)
{
  int64_t cells = p->tokens * p->experts;
  int64_t kept = p->padded ? p->rows : cells;
  tensor_id sorted = graph_constant(g, "flat_sorted", DTYPE_INT64, kept, 0);
  *indices = graph_constant(g, "sorted_indices", DTYPE_INT64, p->rows, 0);
  graph_node *n = moe_step(g, KERNEL_MOE_SORT_CELLS, KERNEL_KINDS, map, 0, sorted);
  set_shape(n, p->rows, p->tokens, p->experts, 0);
  n->scalars[0] = p->slotted;
  n->flags = MOE_STEP_FORWARD_ONLY;
  n->dims[MOE_STEP_FORWARD_BYTES] = cells * (3 + 8);
  node_output(n, *indices);
  return sorted;
}

static tensor_id permuted_probs(graph *g, const permutation *p, tensor_id probs, tensor_id sorted)
{
  dtype type = type_of(g, probs);
  tensor_id rows = graph_tensor_new(g, "permuted_probs", type, p->rows, 0, 0, 0);
  graph_node *n = moe_step(g, KERNEL_MOE_PERMUTE_PROBS_FORWARD, KERNEL_MOE_PERMUTE_PROBS_BACKWARD,
                           probs, sorted, rows);
  set_shape(n, p->rows, p->tokens, p->experts, 0);
  n->dims[MOE_STEP_FORWARD_BYTES] =
      p->tokens * p->experts * dtype_bytes(type); /* the transposed copy */
  node_save(n, sorted);
  return rows;
}

static row_pair unfused_permute(graph *g, const permutation *p, row_pair from, tensor_id map,
                                tensor_id *restore)
{
  row_pair to = { 0, 0 };
  tensor_id sorted = moe_sorted_cells(g, p, map, restore);
  to.probs = permuted_probs(g, p, from.probs, sorted);
  dtype type = type_of(g, from.tokens);
  to.tokens = graph_tensor_new(g, "permuted_tokens", type, p->rows, p->width, 0, 0);
  graph_node *n = moe_step(g, KERNEL_PERMUTE, KERNEL_UNPERMUTE, from.tokens, *restore, to.tokens);
  set_shape(n, p->rows, p->width, 0, 0);
  node_save(n, *restore);
  return to;
}

/* masked_select of the transposed probabilities keeps the transposed mask. Its gradient is that
 * of the transposed copy. */
static tensor_id transposed(graph *g, const permutation *p, const char *name, tensor_id t)
{
  graph_tensor from = g->tensors.items[t];
  tensor_id y = graph_tensor_new(g, name, (dtype)from.dtype, p->experts, p->tokens, 0, 0);
  g->tensors.items[y].requires_grad = from.requires_grad;
  graph_node *n = moe_step(g, KERNEL_TRANSPOSE, KERNEL_TRANSPOSE_BACKWARD, t, 0, y);
  set_shape(n, p->tokens, p->experts, 0, 0);
  return y;
}

tensor_id moe_selected_probs(graph *g, const permutation *p, tensor_id probs, tensor_id map)
{
  tensor_id mask = transposed(g, p, "local_map_t", map);
  g->nodes.items[g->nodes.count - 1].flags = MOE_STEP_FORWARD_ONLY;
  tensor_id by_expert = transposed(g, p, "local_probs_t", probs);
  dtype type = type_of(g, probs);
  tensor_id rows = graph_tensor_new(g, "permuted_probs", type, p->rows, 0, 0, 0);
  graph_node *n = moe_step(g, KERNEL_MOE_SELECT_PROBS_FORWARD, KERNEL_MOE_SELECT_PROBS_BACKWARD,
                           by_expert, mask, rows);
  set_shape(n, p->rows, p->tokens, p->experts, 0);
  n->scalars[0] = p->slotted;
  n->flags = MOE_STEP_WAITS;
  node_save(n, by_expert);
  node_save(n, mask);
  return rows;
}

/* Tokens alone. */
static row_pair permuted_tokens(graph *g, const settings *s, const permutation *p, tensor_id tokens,
                                tensor_id map, tensor_id *restore)
{
  if (s->model.moe_permute_fusion)
    *restore = moe_row_map(g, p, map);
  else
    moe_sorted_cells(g, p, map, restore);
  dtype type = type_of(g, tokens);
  tensor_id rows = graph_tensor_new(g, "permuted_tokens", type, p->rows, p->width, 0, 0);
  graph_node *n = moe_step(g, KERNEL_PERMUTE, KERNEL_UNPERMUTE, tokens, *restore, rows);
  set_shape(n, p->rows, p->width, 0, 0);
  node_save(n, *restore);
  return (row_pair){ rows, 0 };
}

tensor_id moe_row_map(graph *g, const permutation *p, tensor_id map)
{
  tensor_id index = graph_constant(g, "row_id_map", DTYPE_INT32, p->tokens, 2 * p->experts + 1);
  graph_node *n = moe_step(g, KERNEL_MOE_ROW_MAP, KERNEL_KINDS, map, 0, index);
  set_shape(n, p->rows, p->tokens, p->experts, 0);
  n->scalars[0] = p->slotted;
  n->flags = MOE_STEP_FORWARD_ONLY;
  return index;
}

row_pair moe_permute(graph *g, const settings *s, const permutation *p, row_pair from,
                     tensor_id map, tensor_id *restore)
{
  if (from.probs == 0) return permuted_tokens(g, s, p, from.tokens, map, restore);
  return s->model.moe_permute_fusion ? fused_permute(g, p, from, map, restore)
                                     : unfused_permute(g, p, from, map, restore);
}

/*
 * moe_utils.py, unpermute: deterministic algorithms add rows with index_add, whose autograd node
 * keeps them (its formula expands the gradient "as source"), and allocate the zeros of the sum
 * twice. This came with Megatron-LM 56818f9e50 (16 October 2025); the older scatter_add keeps only
 * indexes.
 */
static bool unpermute_keeps_rows(const settings *s)
{
  return megatron_is_from(s, 20251016, 2025, 9) && s->training.deterministic_mode &&
         !s->model.moe_permute_fusion;
}

tensor_id moe_unpermute(graph *g, const settings *s, const char *name, tensor_id rows,
                        tensor_id restore, int64_t tokens, int64_t width)
{
  dtype type = type_of(g, rows);
  tensor_id y = graph_tensor_new(g, name, type, tokens, width, 0, 0);
  graph_node *n = moe_step(g, KERNEL_UNPERMUTE, KERNEL_PERMUTE, rows, restore, y);
  set_shape(n, g->tensors.items[rows].shape[0], width, 0, 0);
  node_save(n, restore);
  if (unpermute_keeps_rows(s)) {
    n->dims[MOE_STEP_FORWARD_BYTES] = tokens * width * dtype_bytes(type);
    node_save(n, rows);
  }
  return y;
}
