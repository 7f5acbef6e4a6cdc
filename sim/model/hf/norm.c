/*
 * RMSNorm: LlamaRMSNorm and its copies in eager operators, or torch.nn.functional.rms_norm. The
 * gain multiplies the converted rows, or in OLMo 2, OLMo 3 and Gemma the fp32 rows, which are
 * converted afterwards. Gemma's gain is zero-centred. LayerNorm: torch.nn.LayerNorm.
 */
#include "sim/model/hf/eager.h"
#include "sim/operators/hf.h"

static tensor_id fused(graph *g, int64_t width, tensor_id weight, tensor_id x)
{
  graph_tensor t = g->tensors.items[x];
  graph_node *n = graph_add_of(g, &operator_hf_rms_norm, x);
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
  graph_node *n = graph_add_of(g, &operator_hf_square, x);
  if (hf_needs_gradient(g, x)) node_save(n, x);
  return hf_result(g, n, "squared", DTYPE_FP32, g->tensors.items[x].shape);
}

static tensor_id row_result(graph *g, const operator_kind *kind, const char *name, tensor_id x)
{
  graph_tensor t = g->tensors.items[x];
  graph_node *n = graph_add_of(g, kind, x);
  t.shape[t.rank - 1] = 1;
  tensor_id y = hf_result(g, n, name, DTYPE_FP32, t.shape);
  if (kind == &operator_hf_rsqrt && t.requires_grad) node_save(n, y);
  return y;
}

static tensor_id zero_centred(graph *g, tensor_id weight)
{
  graph_node *n = graph_add_of(g, &operator_hf_gain, weight);
  return hf_result(g, n, "gain", DTYPE_FP32, g->tensors.items[weight].shape);
}

/* The rows times the gain. */
static tensor_id scaled(graph *g, const settings *s, tensor_id weight, tensor_id normed, dtype type)
{
  if (s->model.apply_layernorm_1p)
    return hf_cast(g, hf_multiply(g, normed, zero_centred(g, weight)), type);
  return s->model.norm_gain_in_fp32 ? hf_cast(g, hf_multiply(g, weight, normed), type)
                                    : hf_multiply(g, weight, hf_cast(g, normed, type));
}

/* The rows in fp32, divided by the root of their mean square. */
static tensor_id unit_rows(graph *g, tensor_id x, tensor_id *variance)
{
  tensor_id wide = hf_cast(g, x, DTYPE_FP32);
  *variance = row_result(g, &operator_hf_row_mean, "variance", squared(g, wide));
  return hf_multiply(g, wide, row_result(g, &operator_hf_rsqrt, "rstd", *variance));
}

/* Its frame refers to its argument until it returns. */
tensor_id hf_l2_norm(graph *g, const char *module, tensor_id x)
{
  graph_site(g, module);
  tensor_id variance;
  tensor_id y = hf_cast(g, unit_rows(g, x, &variance), type_of(g, x));
  graph_keep(g, x);
  return y;
}

/* The function's frame refers to its argument, the variance and the normed fp32 rows until it
 * returns. */
static tensor_id eager(graph *g, const settings *s, tensor_id weight, tensor_id x)
{
  tensor_id variance, normed = unit_rows(g, x, &variance);
  tensor_id y = scaled(g, s, weight, normed, type_of(g, x));
  graph_keep(g, normed);
  graph_keep(g, variance);
  graph_keep(g, x);
  return y;
}

/* Qwen3NextRMSNormGated. Its frame refers to the variance and the rows until it returns. */
tensor_id hf_gated_norm(graph *g, const settings *s, const char *module, int64_t width, tensor_id x,
                        tensor_id gate)
{
  graph_site(g, module);
  dtype type = type_of(g, x);
  tensor_id weight = hf_parameter(g, s, "weight", width, 0);
  tensor_id variance, rows = unit_rows(g, x, &variance);
  tensor_id normed = hf_multiply(g, weight, hf_cast(g, rows, type));
  tensor_id activated = hf_activation(g, s, hf_cast(g, gate, DTYPE_FP32));
  tensor_id y = hf_cast(g, hf_multiply(g, normed, activated), type);
  graph_keep(g, variance);
  graph_keep(g, x);
  return y;
}

static tensor_id layer_norm(graph *g, const settings *s, int64_t width, tensor_id weight,
                            tensor_id x)
{
  graph_tensor t = g->tensors.items[x];
  tensor_id bias = hf_parameter(g, s, "bias", width, 0);
  graph_node *n = graph_add_of(g, &operator_hf_layer_norm, x);
  node_input(n, weight);
  node_input(n, bias);
  tensor_id y = hf_result(g, n, "normed", (dtype)t.dtype, t.shape);
  t.shape[t.rank - 1] = 1;
  tensor_id mean = hf_side_result(g, n, "mean", DTYPE_FP32, t.shape);
  tensor_id rstd = hf_side_result(g, n, "rstd", DTYPE_FP32, t.shape);
  n->dims[0] = tensor_elements(g, x) / width;
  n->dims[1] = width;
  if (!hf_needs_gradient(g, y)) return y;
  const tensor_id saved[] = { bias, x, weight, mean, rstd };
  for (size_t i = 0; i < sizeof saved / sizeof *saved; i++)
    node_save(n, saved[i]);
  return y;
}

tensor_id hf_norm(graph *g, const settings *s, const char *module, int64_t width, tensor_id x)
{
  graph_site(g, module);
  tensor_id weight = hf_parameter(g, s, "weight", width, 0);
  if (s->model.normalization == NORM_LAYER) return layer_norm(g, s, width, weight, x);
  return s->model.fused_rms_norm ? fused(g, width, weight, x) : eager(g, s, weight, x);
}
