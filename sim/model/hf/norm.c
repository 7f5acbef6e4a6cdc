/* RMSNorm: LlamaRMSNorm and its copies in eager operators, or torch.nn.functional.rms_norm. */
#include "sim/model/hf/eager.h"
#include "sim/operators/hf.h"

static tensor_id fused(graph *g, int64_t width, tensor_id weight, tensor_id x)
{
  graph_tensor t = g->tensors.items[x];
  graph_node *n = graph_add(g, &operator_hf_rms_norm);
  node_input(n, x);
  node_input(n, weight);
  tensor_id y = hf_result(g, n, "normed", (dtype)t.dtype, t.shape);
  t.shape[t.rank - 1] = 1;
  tensor_id rstd = hf_side_result(g, n, "rstd", DTYPE_FP32, t.shape);
  n->dims[0] = tensor_elements(g, x) / width;
  n->dims[1] = width;
  if (!hf_needs_gradient(g, y)) return y;
  node_save(n, x);
  node_save(n, weight);
  node_save(n, rstd);
  return y;
}

static tensor_id squared(graph *g, tensor_id x)
{
  graph_node *n = graph_add(g, &operator_hf_square);
  node_input(n, x);
  if (hf_needs_gradient(g, x)) node_save(n, x);
  return hf_result(g, n, "squared", DTYPE_FP32, g->tensors.items[x].shape);
}

static tensor_id row_result(graph *g, const operator_kind *kind, const char *name, tensor_id x)
{
  graph_tensor t = g->tensors.items[x];
  graph_node *n = graph_add(g, kind);
  node_input(n, x);
  t.shape[t.rank - 1] = 1;
  tensor_id y = hf_result(g, n, name, DTYPE_FP32, t.shape);
  if (kind == &operator_hf_rsqrt && t.requires_grad) node_save(n, y);
  return y;
}

/* The function's frame refers to its argument, the variance and the normed fp32 rows until it
 * returns. */
static tensor_id eager(graph *g, tensor_id weight, tensor_id x)
{
  dtype type = (dtype)g->tensors.items[x].dtype;
  tensor_id wide = hf_cast(g, x, DTYPE_FP32);
  tensor_id variance = row_result(g, &operator_hf_row_mean, "variance", squared(g, wide));
  tensor_id rstd = row_result(g, &operator_hf_rsqrt, "rstd", variance);
  tensor_id normed = hf_multiply(g, wide, rstd);
  tensor_id y = hf_multiply(g, weight, hf_cast(g, normed, type));
  graph_keep(g, normed);
  graph_keep(g, variance);
  graph_keep(g, x);
  return y;
}

tensor_id hf_norm(graph *g, const settings *s, const char *module, int64_t width, tensor_id x)
{
  graph_site(g, module);
  tensor_id weight = hf_parameter(g, s, "weight", width, 0);
  return s->model.fused_rms_norm ? fused(g, width, weight, x) : eager(g, weight, x);
}
