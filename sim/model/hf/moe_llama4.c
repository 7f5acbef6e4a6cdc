/*
 * Llama4TextMoe: every expert sees every token, multiplied by its score before; scores of experts that
 * were not chosen are 0. A shared expert beside them.
 *
 * Llama4TextExperts has the weights of all experts in one tensor for each projection. Axolotl's
 * llama4_linearized_experts (monkeypatch/models/llama4/modeling.py) has linears in their place and
 * runs them one after the other.
 */
#include <string.h>

#include "sim/graph/sizes.h"
#include "sim/model/hf/eager.h"
#include "sim/operators/hf.h"
#include "sim/operators/operators.h"

/* ---- the router: Llama4Router ---- */

/* The chosen experts' logits, -inf for the others. */
static tensor_id chosen_logits(graph *g, const settings *s, tensor_id logits)
{
  graph_tensor t = g->tensors.items[logits];
  const int64_t best[4] = { t.shape[0], s->model.moe_router_topk, 0, 0 };
  graph_node *n = graph_add_of(g, &operator_hf_topk, logits);
  tensor_id values = hf_result(g, n, "top_values", (dtype)t.dtype, best);
  tensor_id experts = hf_side_result(g, n, "top_experts", DTYPE_INT64, best);
  if (hf_needs_gradient(g, values)) node_save(n, experts);
  n = graph_add_of(g, &operator_hf_scatter, values);
  node_input(n, experts);
  if (hf_needs_gradient(g, values)) node_save(n, experts);
  return hf_result(g, n, "chosen_logits", (dtype)t.dtype, t.shape);
}

/* [tokens, experts] */
static tensor_id scores_of(graph *g, const settings *s, tensor_id rows)
{
  graph_site(g, "mlp.router");
  hf_linear_spec spec = { .module = "mlp.router",
                          .inputs = s->model.hidden_size,
                          .outputs = s->model.num_experts };
  tensor_id logits = hf_plain_linear(g, s, &spec, rows);
  tensor_id wide = hf_cast(g, chosen_logits(g, s, logits), DTYPE_FP32);
  return hf_cast(g, hf_sigmoid(g, wide), model_dtype(s));
}

/* ---- the experts ---- */

/* x [experts, tokens, inputs] times each expert's weight [inputs, outputs]. */
static tensor_id batched(graph *g, const settings *s, const char *name, int64_t outputs,
                         tensor_id x)
{
  graph_tensor t = g->tensors.items[x];
  const int64_t experts = t.shape[0], inputs = t.shape[2];
  tensor_id weight = hf_parameter(g, s, name, experts * inputs, outputs);
  tensor_id view = hf_view(g, name, weight, true, experts, inputs, outputs, 0);
  graph_node *n = graph_add_of(g, &operator_hf_batched_linear, x);
  node_input(n, view);
  const int64_t dims[] = { experts, t.shape[1], outputs, inputs };
  memcpy(n->dims, dims, sizeof dims);
  if (t.requires_grad) node_save(n, view);
  if (hf_needs_gradient(g, weight)) node_save(n, x);
  t.shape[2] = outputs;
  return hf_result(g, n, "output", (dtype)t.dtype, t.shape);
}

/* up silu(gate) of the halves of the first product */
static tensor_id gated(graph *g, const settings *s, tensor_id both)
{
  graph_tensor t = g->tensors.items[both];
  t.shape[2] /= 2;
  graph_node *n = graph_add_of(g, &operator_split, both);
  tensor_id gate = hf_split_view(g, n, "gate", both, 0, t.shape);
  tensor_id up = hf_split_view(g, n, "up", both, t.shape[2], t.shape);
  return hf_multiply(g, up, hf_activation(g, s, gate));
}

static tensor_id experts(graph *g, const settings *s, tensor_id x)
{
  graph_site(g, "mlp.experts");
  tensor_id both = batched(g, s, "gate_up_proj", 2 * s->model.moe_ffn_hidden_size, x);
  tensor_id y = batched(g, s, "down_proj", s->model.hidden_size, gated(g, s, both));
  graph_keep(g, both);
  graph_keep(g, x);
  return y;
}

/* ---- as linears ---- */

static tensor_id linear(graph *g, const settings *s, const char *module, int64_t expert,
                        int64_t outputs, tensor_id x)
{
  hf_linear_spec spec = { .module = arena_printf(g->memory, "mlp.experts.%s.%lld", module,
                                                 (long long)expert),
                          .inputs = g->tensors.items[x].shape[1],
                          .outputs = outputs,
                          .in_layer = true };
  return hf_linear(g, s, &spec, x);
}

static tensor_id one_expert(graph *g, const settings *s, int64_t expert, tensor_id x)
{
  int64_t width = s->model.moe_ffn_hidden_size;
  tensor_id gate = linear(g, s, "gate_projs", expert, width, x);
  tensor_id up = linear(g, s, "up_projs", expert, width, x);
  graph_site(g, "mlp.experts");
  tensor_id inner = hf_multiply(g, up, hf_activation(g, s, gate));
  tensor_id y = linear(g, s, "down_projs", expert, s->model.hidden_size, inner);
  graph_keep(g, gate);
  graph_keep(g, up);
  return y;
}

/* x[expert]: a view, whose gradient is a zeroed tensor of the size of x with a copy of its own. */
static tensor_id part_of(graph *g, tensor_id x, int64_t expert)
{
  graph_tensor t = g->tensors.items[x];
  graph_node *n = graph_add_of(g, &operator_hf_select, x);
  n->dims[0] = expert;
  tensor_id y =
      hf_result(g, n, "input", (dtype)t.dtype, (int64_t[4]){ t.shape[1], t.shape[2], 0, 0 });
  g->tensors.items[y].base = tensor_storage(g, x);
  g->tensors.items[y].offset_elements = t.offset_elements + expert * t.shape[1] * t.shape[2];
  return y;
}

/* all[expert] = y */
static tensor_id put(graph *g, tensor_id all, tensor_id y, int64_t expert)
{
  graph_tensor t = g->tensors.items[all];
  graph_node *n = graph_add_of(g, &operator_hf_put, all);
  node_input(n, y);
  n->dims[0] = expert;
  tensor_id made = hf_result(g, n, "next_states", (dtype)t.dtype, t.shape);
  g->tensors.items[made].base = tensor_storage(g, all);
  return made;
}

static tensor_id linearized_experts(graph *g, const settings *s, tensor_id x)
{
  graph_tensor t = g->tensors.items[x];
  graph_site(g, "mlp.experts");
  tensor_id all =
      hf_side_result(g, graph_add(g, &operator_hf_zeros), "next_states", (dtype)t.dtype, t.shape);
  for (int64_t i = 0; i < t.shape[0]; i++) {
    graph_site(g, "mlp.experts");
    tensor_id y = one_expert(g, s, i, part_of(g, x, i));
    graph_site(g, "mlp.experts");
    all = put(g, all, y, i);
  }
  graph_keep(g, x);
  return all;
}

/* ---- the block ---- */

/* Each expert's copy of the rows, times its scores: [experts, tokens, hidden] */
static tensor_id scored(graph *g, tensor_id rows, tensor_id scores)
{
  graph_tensor t = g->tensors.items[rows];
  int64_t count = g->tensors.items[scores].shape[1];
  graph_node *n = graph_add_of(g, &operator_hf_tile, rows);
  t.shape[2] = t.shape[1];
  t.shape[1] = t.shape[0];
  t.shape[0] = count;
  tensor_id copies = hf_result(g, n, "copies", (dtype)t.dtype, t.shape);
  tensor_id column = hf_copy(g, "scores", hf_transposed_view(g, "scores", scores, 0));
  column = hf_view(g, "scores", column, true, count, t.shape[1], 1, 0);
  return hf_multiply(g, copies, column);
}

tensor_id hf_llama4_moe(graph *g, const settings *s, tensor_id rows)
{
  tensor_id scores = scores_of(g, s, rows);
  graph_site(g, "mlp");
  tensor_id x = scored(g, rows, scores);
  tensor_id y = s->model.linearized_experts ? linearized_experts(g, s, x) : experts(g, s, x);
  tensor_id shared =
      hf_shared_mlp(g, s, "mlp.shared_expert.", s->model.moe_shared_expert_intermediate_size, rows);
  graph_site(g, "mlp");
  graph_node *n = graph_add_of(g, &operator_hf_sum_tiles, y);
  tensor_id sum = hf_result(g, n, "summed", model_dtype(s), g->tensors.items[rows].shape);
  tensor_id out = hf_add_in_place(g, shared, sum);
  graph_keep(g, x);
  graph_keep(g, y);
  graph_keep(g, scores);
  return out;
}
