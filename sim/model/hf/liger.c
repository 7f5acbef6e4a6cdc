/* The modules that Liger's kernels replace (liger_kernel/transformers/swiglu.py,
 * model/llama.py). */
#include "sim/model/hf/liger.h"

#include "sim/operators/liger.h"

tensor_id hf_liger_glu(graph *g, tensor_id gate, tensor_id up)
{
  graph_tensor t = g->tensors.items[gate];
  graph_node *n = graph_add_of(g, &operator_liger_glu, gate);
  node_input(n, up);
  node_save(n, gate);
  node_save(n, up);
  return hf_result(g, n, "activated", (dtype)t.dtype, t.shape);
}

tensor_id hf_liger_linear_loss(graph *g, tensor_id hidden, tensor_id weight, tensor_id labels)
{
  graph_tensor w = g->tensors.items[weight];
  int64_t width = w.shape[1], rows = tensor_elements(g, hidden) / width;
  tensor_id flat = hf_view(g, "hidden_rows", hidden, true, rows, width, 0, 0);
  graph_node *n = graph_add(g, &operator_liger_linear_cross_entropy);
  n->dims[0] = rows;
  n->dims[1] = width;
  n->dims[2] = w.shape[0];
  node_input(n, flat);
  node_input(n, weight);
  node_input(n, labels);
  tensor_id loss = hf_result(g, n, "loss", DTYPE_FP32, (int64_t[4]){ 1, 0, 0, 0 });
  node_save(n, hf_side_result(g, n, "hidden_gradient", (dtype)w.dtype,
                              (int64_t[4]){ rows, width, 0, 0 }));
  if (w.requires_grad)
    node_save(n, hf_side_result(g, n, "weight_gradient", (dtype)w.dtype, w.shape));
  return loss;
}
