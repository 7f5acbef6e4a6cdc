#include "sim/model/megatron/expert_activation.h"

#include "sim/graph/node.h"
#include "sim/operators/moe.h"
#include "sim/residents/parameters.h"

static activation_function gate_function(const settings *s)
{
  return s->model.quick_geglu ? ACTIVATION_QUICK_GELU : ACTIVATION_SILU;
}

static graph_node *activation_step(graph *g, const expert_rows *r, kernel_kind forward,
                                   kernel_kind backward, tensor_id a, tensor_id b, tensor_id y)
{
  graph_node *n = moe_step(g, forward, backward, a, b, y);
  n->dims[MOE_STEP_D0] = computed_rows(r->sizes, r->rows);
  n->dims[MOE_STEP_D1] = r->sizes->ffn;
  n->scalars[0] = gate_function(r->settings);
  return n;
}

/* weighted_bias_swiglu_impl, or what torch.compile makes of activation_func_with_probs: one kernel; input
 * and probabilities are kept. */
static tensor_id fused_activation(graph *g, const expert_rows *r, tensor_id x, tensor_id probs,
                                  activation_function function)
{
  tensor_id y = graph_tensor_new(g, "activated", r->sizes->type, r->rows, r->sizes->ffn, 0, 0);
  graph_node *n = activation_step(g, r, KERNEL_WEIGHTED_ACTIVATION_FORWARD,
                                  KERNEL_WEIGHTED_ACTIVATION_BACKWARD, x, probs, y);
  n->scalars[0] = function;
  n->scalars[1] = !is_gated(r->settings);
  node_save(n, x);
  node_save(n, probs);
  return y;
}

/* An activation of one operand, by one kernel. */
static tensor_id one_activation(graph *g, const expert_rows *r, const char *name, tensor_id x,
                                activation_function function)
{
  tensor_id y = graph_tensor_new(g, name, r->sizes->type, r->rows, r->sizes->ffn, 0, 0);
  graph_node *n =
      activation_step(g, r, KERNEL_ACTIVATION_FORWARD, KERNEL_ACTIVATION_BACKWARD, x, 0, y);
  n->scalars[0] = function;
  n->scalars[1] = is_gated(r->settings);
  node_save(n, x);
  return y;
}

/* relu keeps its result; pow keeps its operand, which is the same tensor. */
static tensor_id squared_relu(graph *g, const expert_rows *r, tensor_id x)
{
  const moe_sizes *m = r->sizes;
  tensor_id relu = graph_tensor_new(g, "relu", m->type, r->rows, m->ffn, 0, 0);
  node_save(moe_step(g, KERNEL_RELU_FORWARD, KERNEL_RELU_BACKWARD, x, 0, relu), relu);
  tensor_id y = graph_tensor_new(g, "squared", m->type, r->rows, m->ffn, 0, 0);
  node_save(moe_step(g, KERNEL_SQUARE, KERNEL_SQUARE_BACKWARD, relu, 0, y), relu);
  return y;
}

/* act(gate) x (linear + offset): the sum is a new tensor, and the product keeps both factors. The
 * offset is 0. */
static tensor_id gated_activation(graph *g, const expert_rows *r, tensor_id x)
{
  tensor_id gate = graph_tensor_new(g, "gate", r->sizes->type, r->rows, r->sizes->ffn, 0, 0);
  node_save(activation_step(g, r, KERNEL_GATE_FORWARD, KERNEL_GATE_BACKWARD, x, 0, gate), x);
  tensor_id linear = graph_tensor_new(g, "linear", r->sizes->type, r->rows, r->sizes->ffn, 0, 0);
  activation_step(g, r, KERNEL_UP_FORWARD, KERNEL_UP_BACKWARD, x, 0, linear);
  tensor_id y = graph_tensor_new(g, "activated", r->sizes->type, r->rows, r->sizes->ffn, 0, 0);
  graph_node *n = moe_step(g, KERNEL_MULTIPLY, KERNEL_MULTIPLY_BACKWARD, gate, linear, y);
  node_save(n, gate);
  node_save(n, linear);
  return y;
}

/* Transformer Engine's kernels. */
static activation_function whole_function(const settings *s)
{
  if (is_gated(s)) return gate_function(s);
  return s->model.squared_relu ? ACTIVATION_SQUARED_RELU : ACTIVATION_GELU_TANH;
}

static tensor_id unweighted_activation(graph *g, const expert_rows *r, tensor_id x)
{
  const settings *s = r->settings;
  if (s->model.use_te_activation_func)
    return one_activation(g, r, "activated", x, whole_function(s));
  if (is_gated(s)) return gated_activation(g, r, x);
  if (s->model.squared_relu) return squared_relu(g, r, x);
  return one_activation(g, r, "gelu", x, ACTIVATION_GELU_ERF);
}

tensor_id expert_weighted(graph *g, tensor_id x, tensor_id probs)
{
  graph_tensor of = g->tensors.items[x];
  tensor_id y = graph_tensor_new(g, "weighted", (dtype)of.dtype, of.shape[0], of.shape[1], 0, 0);
  graph_node *n = graph_add(g, &operator_weighted);
  n->dims[WEIGHTED_ROWS] = of.shape[0];
  n->dims[WEIGHTED_WIDTH] = of.shape[1];
  n->dims[WEIGHTED_ELEMENT_BYTES] = wider_bytes((dtype)of.dtype, type_of(g, probs));
  node_input(n, x);
  node_input(n, probs);
  node_output(n, y);
  node_save(n, x);
  node_save(n, probs);
  return y;
}

/* weighted_bias_quick_geglu_impl and bias_act_func: the halves are clamped one by one and joined in a
 * new tensor. Backward has a mask for each limit (the linear half has two), the masked gradients of the
 * halves, and joins those. */
static tensor_id clamped(graph *g, const expert_rows *r, tensor_id x)
{
  const settings *s = r->settings;
  if (s->model.activation_func_clamp_value == 0 || !is_gated(s)) return x;
  int64_t width = 2 * r->sizes->ffn, type_bytes = dtype_bytes(r->sizes->type);
  int64_t elements = computed_rows(r->sizes, r->rows) * width, mask_bytes = elements / 2;
  tensor_id y = graph_tensor_new(g, "clamped", r->sizes->type, r->rows, width, 0, 0);
  graph_node *n = moe_step(g, KERNEL_ELEMENTWISE, KERNEL_ELEMENTWISE, x, 0, y);
  n->dims[MOE_STEP_FORWARD_BYTES] = elements * type_bytes;
  n->dims[MOE_STEP_BACKWARD_BYTES] = elements * type_bytes + mask_bytes;
  n->dims[MOE_STEP_FORWARD_MOVED] = (2 + 2) * elements * type_bytes;
  n->dims[MOE_STEP_BACKWARD_MOVED] =
      3 * (elements / 2 * type_bytes + 2 * mask_bytes) + (2 + 2) * elements * type_bytes;
  node_save(n, x);
  return y;
}

/* experts.py, GroupedMLP: torch.compile joins the activation and its product with the probabilities;
 * without probabilities, a gate and its product. */
static activation_function compiled_function(const settings *s)
{
  if (is_gated(s)) return gate_function(s);
  return s->model.squared_relu ? ACTIVATION_SQUARED_RELU : ACTIVATION_GELU_ERF;
}

tensor_id expert_activation(graph *g, const expert_rows *r, tensor_id x, tensor_id probs)
{
  const settings *s = r->settings;
  graph_site(g, r->site);
  if (!s->model.use_te_activation_func) x = clamped(g, r, x);
  bool merged = s->model.moe_grouped_gemm && !experts_are_grouped_by_te(s);
  bool fused = is_gated(s) && s->model.bias_activation_fusion && !s->model.use_te_activation_func;
  if (merged && probs != 0) return fused_activation(g, r, x, probs, compiled_function(s));
  if (probs == 0)
    return fused || (merged && is_gated(s)) ? one_activation(g, r, "activated", x, gate_function(s))
                                            : unweighted_activation(g, r, x);
  if (fused) return fused_activation(g, r, x, probs, gate_function(s));
  return expert_weighted(g, unweighted_activation(g, r, x), probs);
}

tensor_id moe_probs_on_input(graph *g, const expert_rows *r, tensor_id x, tensor_id *probs)
{
  if (!r->settings->model.moe_apply_probs_on_input) return x;
  x = expert_weighted(g, x, *probs);
  *probs = graph_constant(g, "ones", r->sizes->router, r->rows, 0);
  graph_node *ones = moe_step(g, KERNEL_FILL, KERNEL_KINDS, 0, 0, *probs);
  ones->flags = MOE_STEP_FORWARD_ONLY;
  ones->scalars[0] = 1;
  return x;
}
