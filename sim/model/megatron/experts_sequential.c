/*
 * The routed experts of this rank, one after the other (moe_grouped_gemm off).
 *
 * Megatron-LM (d98e8a64) core/transformer/moe/experts.py: SequentialMLP; core/transformer/mlp.py
 * for one expert.
 */
#include "sim/base/units.h"
#include "sim/graph/node.h"
#include "sim/model/megatron/expert_activation.h"
#include "sim/model/megatron/moe.h"
#include "sim/operators/moe.h"

/* mlp.py: output += bias x probabilities, in place; the product is a temporary. */
static tensor_id add_scaled_bias(graph *g, tensor_id x, tensor_id bias, tensor_id probs)
{
  if (bias == 0) return x;
  graph_tensor of = g->tensors.items[x];
  tensor_id y =
      graph_tensor_new(g, "output_with_bias", (dtype)of.dtype, of.shape[0], of.shape[1], 0, 0);
  g->tensors.items[y].base = of.base;
  graph_node *n = graph_add(g, &operator_scaled_bias);
  n->dims[WEIGHTED_ROWS] = of.shape[0];
  n->dims[WEIGHTED_WIDTH] = of.shape[1];
  n->dims[WEIGHTED_ELEMENT_BYTES] = wider_bytes((dtype)of.dtype, type_of(g, probs));
  node_input(n, x);
  node_input(n, probs);
  node_input(n, bias);
  node_output(n, y);
  node_save(n, bias);
  node_save(n, probs);
  return y;
}

/* One expert: an MLP without communication. */
static tensor_id one_expert(graph *g, const settings *s, const moe_sizes *m, int64_t rows,
                            tensor_id x, tensor_id probs)
{
  bool bias = s->model.add_bias_linear;
  moe_frame frame = { 0 };
  linear_spec fc1 = { .module = "mlp.experts.linear_fc1",
                      .split = LINEAR_COLUMN,
                      .inputs = m->hidden,
                      .outputs = m->fc1_outputs,
                      .bias = bias,
                      .skip_bias_add = true,
                      .explicit_comm = true };
  module_output wide = linear(g, s, &fc1, x);
  expert_rows r = { s, m, rows, "mlp.experts.activation_func", 0 };
  graph_site(g, r.site);
  tensor_id activated =
      expert_activation(g, &r, add_bias(g, "biased", wide.output, wide.bias), probs);
  moe_hold(&frame, activated);
  linear_spec fc2 = { .module = "mlp.experts.linear_fc2",
                      .split = LINEAR_ROW,
                      .inputs = m->ffn,
                      .outputs = m->hidden,
                      .bias = bias,
                      .skip_bias_add = true,
                      .explicit_comm = true };
  module_output narrow = linear(g, s, &fc2, activated);
  tensor_id y = add_scaled_bias(g, narrow.output, narrow.bias, probs);
  moe_release(g, &frame);
  return y;
}

/* Rows of expert i if the rows are spread evenly; with fewer rows than experts, each gets one. */
static int64_t rows_of(const moe_sizes *m, int64_t i)
{
  return max_i64(1, m->rows / m->local_experts + (i < m->rows % m->local_experts ? 1 : 0));
}

/* torch.split: views, whose gradients are joined in a new tensor. The views' ids are
 * consecutive. */
static tensor_id split_rows(graph *g, const moe_sizes *m, const char *name, tensor_id x)
{
  graph_tensor of = g->tensors.items[x];
  tensor_id first = g->tensors.count;
  int64_t offset = of.offset_elements;
  for (int64_t i = 0; i < m->local_experts; i++) {
    tensor_id part = graph_tensor_new(g, name, (dtype)of.dtype, rows_of(m, i), of.shape[1], 0, 0);
    g->tensors.items[part].base = of.base;
    g->tensors.items[part].requires_grad = of.requires_grad;
    g->tensors.items[part].offset_elements = offset;
    offset += tensor_elements(g, part);
  }
  graph_node *n = graph_add(g, &operator_slices);
  n->dims[SLICES_FIRST] = first;
  n->dims[SLICES_COUNT] = m->local_experts;
  node_input(n, x);
  for (tensor_id i = 0; i < (tensor_id)m->local_experts && i < NODE_OUTPUTS; i++)
    node_output(n, first + i);
  return first;
}

/* torch.cat of the experts' outputs, which a list holds until then. */
static tensor_id join_rows(graph *g, const moe_sizes *m, const tensor_id *parts)
{
  tensor_id y = graph_tensor_new(g, "output", m->type, m->rows, m->hidden, 0, 0);
  tensor_id first = g->tensors.count;
  for (int64_t i = 0; i < m->local_experts; i++)
    graph_view(g, "expert_output", parts[i], true, rows_of(m, i), m->hidden, 0, 0);
  graph_node *n = graph_add(g, &operator_join_slices);
  n->dims[SLICES_FIRST] = first;
  n->dims[SLICES_COUNT] = m->local_experts;
  for (tensor_id i = 0; i < (tensor_id)m->local_experts && i < NODE_INPUTS; i++)
    node_input(n, first + i);
  node_output(n, y);
  for (int64_t i = 0; i < m->local_experts; i++)
    graph_keep(g, parts[i]);
  return y;
}

/* SequentialMLP.forward. */
tensor_id moe_sequential_mlp(graph *g, const settings *s, const moe_sizes *m, const moe_dispatch *d)
{
  graph_site(g, "mlp.experts");
  expert_rows r = { s, m, m->rows, "mlp.experts", 0 };
  tensor_id probs = d->probs;
  tensor_id x = moe_probs_on_input(g, &r, d->tokens, &probs);
  if (m->local_experts == 1) return one_expert(g, s, m, m->rows, x, probs);
  tensor_id tokens = split_rows(g, m, "expert_tokens", x);
  tensor_id weights = probs == 0 ? 0 : split_rows(g, m, "expert_probs", probs);
  tensor_id *outputs = ARENA_ARRAY(g->memory, tensor_id, (size_t)m->local_experts);
  for (tensor_id i = 0; i < (tensor_id)m->local_experts; i++)
    outputs[i] =
        one_expert(g, s, m, rows_of(m, (int64_t)i), tokens + i, weights == 0 ? 0 : weights + i);
  graph_site(g, "mlp.experts");
  graph_keep(g, x);
  return join_rows(g, m, outputs);
}
