/* Norms (Megatron-LM core/extensions/transformer_engine.py: TENorm;
 * core/transformer/torch_norm.py). */
#include "sim/graph/node.h"
#include "sim/model/megatron/modules.h"
#include "sim/operators/operators.h"

tensor_id norm_of_width(graph *g, const settings *s, const char *module, tensor_id x, int64_t width)
{
  graph_site(g, module);
  int64_t rows = tensor_elements(g, x) / width;
  dtype type = model_dtype(s);
  tensor_id gamma = graph_parameter(g, "weight", type, width, 0);
  tensor_id beta = is_layernorm(s) ? graph_parameter(g, "bias", type, width, 0) : 0;
  tensor_id y = graph_tensor_like(g, "normed", type, x);
  tensor_id rstd = graph_tensor_new(g, "rstd", DTYPE_FP32, rows, 0, 0, 0);
  tensor_id mean = is_layernorm(s) ? graph_tensor_new(g, "mean", DTYPE_FP32, rows, 0, 0, 0) : 0;
  graph_node *n = graph_add(g, &operator_norm);
  n->flags = is_layernorm(s);
  n->dims[0] = rows;
  n->dims[1] = width;
  node_input(n, x);
  node_input(n, gamma);
  node_input(n, beta);
  node_output(n, y);
  node_output(n, rstd);
  node_output(n, mean);
  node_save(n, x);
  node_save(n, rstd);
  node_save(n, mean);
  return y;
}

/* torch.compile's function takes x in its layout, and keeps it for backward. */
tensor_id unscaled_norm(graph *g, const settings *s, const char *module, tensor_id x)
{
  graph_site(g, module);
  const graph_tensor shape = g->tensors.items[x];
  int64_t width = shape.shape[shape.rank - 1], rows = tensor_elements(g, x) / width;
  tensor_id y = graph_tensor_like(g, "normed", model_dtype(s), x);
  tensor_id rstd = graph_tensor_new(g, "rstd", DTYPE_FP32, rows, 0, 0, 0);
  graph_node *n = graph_add(g, &operator_unscaled_norm);
  n->dims[0] = rows;
  n->dims[1] = width;
  node_input(n, x);
  node_output(n, y);
  node_output(n, rstd);
  node_save(n, x);
  node_save(n, rstd);
  return y;
}

tensor_id norm(graph *g, const settings *s, const char *module, tensor_id x)
{
  return norm_of_width(g, s, module, x, s->model.hidden_size);
}
