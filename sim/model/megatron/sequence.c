/*
 * Moves between the whole sequence and this tensor parallel rank's part (Megatron-LM
 * core/tensor_parallel/mappings.py).
 */
#include "sim/graph/node.h"
#include "sim/model/megatron/modules.h"
#include "sim/operators/operators.h"

static graph_node *sequence_step(graph *g, const struct operator_kind *kind, tensor_id x,
                                 tensor_id y)
{
  graph_node *n = graph_add_of(g, kind, x);
  node_output(n, y);
  return n;
}

tensor_id gathered_sequence(graph *g, const settings *s, const char *name, tensor_id x)
{
  graph_tensor of = g->tensors.items[x];
  tensor_id y = graph_tensor_new(g, name, (dtype)of.dtype, of.shape[0] * size_tp(s), of.shape[1],
                                 of.shape[2], 0);
  sequence_step(g, &operator_gather_sequence, x, y);
  return y;
}

tensor_id sequence_part(graph *g, const settings *s, const char *name, tensor_id x, bool reduces)
{
  graph_tensor of = g->tensors.items[x];
  tensor_id y = graph_tensor_new(g, name, (dtype)of.dtype, of.shape[0] / size_tp(s), of.shape[1],
                                 of.shape[2], 0);
  sequence_step(g, &operator_scatter_sequence, x, y)->flags = reduces;
  return y;
}
