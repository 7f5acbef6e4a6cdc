/* MLP and its activation (Megatron-LM core/transformer/mlp.py: MLP.forward). */
#include "sim/graph/node.h"
#include "sim/model/megatron/modules.h"
#include "sim/operators/operators.h"

static tensor_id with_last_dimension(graph *g, const char *name, tensor_id like, int64_t width)
{
  graph_tensor t = g->tensors.items[like];
  t.shape[t.rank - 1] = width;
  return graph_tensor_new(g, name, (dtype)t.dtype, t.shape[0], t.shape[1], t.shape[2], t.shape[3]);
}

static int64_t last_dimension(const graph *g, tensor_id t)
{
  return g->tensors.items[t].shape[g->tensors.items[t].rank - 1];
}

static void set_row_dims(const graph *g, const settings *s, graph_node *n, tensor_id x,
                         int64_t outputs)
{
  n->dims[3] = activation_of(s);
  n->dims[1] = last_dimension(g, x);
  n->dims[0] = tensor_elements(g, x) / n->dims[1];
  n->dims[2] = outputs;
}

/* One autograd function for bias, activation and, if gated, the product; it saves its input. */
static tensor_id fused_activation(graph *g, const settings *s, tensor_id x, tensor_id bias,
                                  int64_t outputs)
{
  tensor_id y = with_last_dimension(g, "activation", x, outputs);
  graph_node *n = graph_add(g, &operator_activation);
  n->flags = bias != 0;
  set_row_dims(g, s, n, x, outputs);
  node_input(n, x);
  node_input(n, bias);
  node_output(n, y);
  node_save(n, x);
  return y;
}

tensor_id add_bias(graph *g, const char *name, tensor_id x, tensor_id bias)
{
  if (bias == 0) return x;
  tensor_id y = with_last_dimension(g, name, x, last_dimension(g, x));
  graph_node *n = graph_add(g, &operator_add);
  n->flags = 1;
  node_input(n, x);
  node_input(n, bias);
  node_output(n, y);
  return y;
}

/* act(a) * b over the two halves. The function saves its half as a view, the product its factors: act(a),
 * and b as a view, or, since Megatron-LM has an offset (2e29a5e1), b + 0. */
static tensor_id gated_apart(graph *g, const settings *s, tensor_id x, int64_t outputs)
{
  bool adds_offset = megatron_is_from(s, 20250909, 2025, 9);
  tensor_id act = with_last_dimension(g, "gate", x, outputs);
  tensor_id y = with_last_dimension(g, "activation", x, outputs);
  tensor_id linear = adds_offset ? with_last_dimension(g, "linear", x, outputs) : 0;
  graph_node *n = graph_add(g, &operator_gated_activation);
  n->flags = adds_offset;
  set_row_dims(g, s, n, x, outputs);
  node_input(n, x);
  node_output(n, act);
  node_output(n, y);
  node_output(n, linear);
  node_save(n, x);
  node_save(n, act);
  node_save(n, linear);
  return y;
}

tensor_id activation(graph *g, const settings *s, const char *module, tensor_id x, tensor_id bias)
{
  graph_site(g, module);
  int64_t outputs = is_gated(s) ? last_dimension(g, x) / 2 : last_dimension(g, x);
  if (s->model.use_te_activation_func)
    return fused_activation(g, s, add_bias(g, "biased", x, bias), 0, outputs);
  if (s->model.bias_activation_fusion && !s->model.squared_relu)
    return fused_activation(g, s, x, bias, outputs);
  tensor_id biased = add_bias(g, "biased", x, bias);
  return is_gated(s) ? gated_apart(g, s, biased, outputs)
                     : fused_activation(g, s, biased, 0, outputs);
}

static const char *submodule(graph *g, const char *module, const char *name)
{
  return arena_printf(g->memory, "%s.%s", module, name);
}

/* The activation as a group, or recomputed, or both: then its input leaves and its result is dropped. */
typedef struct marked_activation {
  tensor_id output;
  group_id group;
  region_id discarded; /* 0: stays */
} marked_activation;

static marked_activation activation_with_markers(graph *g, const settings *s, const mlp_spec *spec,
                                                 module_output hidden)
{
  marked_activation act = { 0 };
  graph_site(g, spec->module);
  if (spec->is_dense && marks_group(s, OFFLOAD_MLP_ACT))
    act.group = graph_group_start(g, "mlp_act");
  if (spec->is_dense && recomputes(s, RECOMPUTE_MLP_ACT))
    act.discarded = graph_region_begin(g, REGION_DISCARD, &hidden.output, 1);
  act.output = activation(g, s, spec->module, hidden.output, hidden.bias);
  if (act.discarded != 0) graph_region_end(g, act.discarded, act.output);
  if (act.group != 0) graph_group_hooks_end(g, act.group);
  return act;
}

/* fc2 has run. */
static void commit_activation(graph *g, const marked_activation *act, tensor_id input)
{
  if (act->discarded != 0) graph_discard(g, act->discarded);
  if (act->group == 0) return;
  graph_group_release(g, act->group, input);
  graph_group_commit(g, act->group);
}

module_output mlp(graph *g, const settings *s, const mlp_spec *spec, tensor_id x)
{
  int64_t width = spec->ffn_hidden_size / size_tp(s);
  linear_spec fc1 = { .module = submodule(g, spec->module, "linear_fc1"),
                      .split = LINEAR_COLUMN,
                      .inputs = s->model.hidden_size,
                      .outputs = is_gated(s) ? 2 * width : width,
                      .bias = s->model.add_bias_linear,
                      .skip_bias_add = true,
                      .norm = spec->norm_in_fc1,
                      .sequence_parallel = s->parallel.sequence_parallel,
                      .explicit_comm = spec->explicit_comm,
                      .keeps_original = spec->keeps_original,
                      .user = USER_FC1 };
  module_output hidden = linear(g, s, &fc1, x);
  marked_activation act = activation_with_markers(g, s, spec, hidden);
  linear_spec fc2 = { .module = submodule(g, spec->module, "linear_fc2"),
                      .split = LINEAR_ROW,
                      .inputs = width,
                      .outputs = s->model.hidden_size,
                      .bias = s->model.add_bias_linear,
                      .skip_bias_add = true,
                      .sequence_parallel = s->parallel.sequence_parallel,
                      .explicit_comm = spec->explicit_comm,
                      .user = USER_FC2 };
  module_output out = linear(g, s, &fc2, act.output);
  commit_activation(g, &act, hidden.output);
  return out;
}
