/*
 * Experts of Qwen3MoeSparseMoeBlock and MixtralSparseMoeBlock: a router, and the products of all
 * experts by torch._grouped_mm (transformers integrations/moe.py: grouped_mm_experts_forward, which
 * it takes unless it is told otherwise). Rows are pairs of a token and an expert chosen for it.
 */
#include "sim/graph/sizes.h"
#include "sim/model/hf/eager.h"
#include "sim/operators/hf.h"
#include "sim/operators/operators.h"

static graph_node *of_one(graph *g, const operator_kind *kind, tensor_id x)
{
  graph_node *n = graph_add(g, kind);
  node_input(n, x);
  return n;
}

/* An integer tensor of `count` elements. */
static tensor_id integers(graph *g, const char *name, dtype type, int64_t count, tensor_id from)
{
  const int64_t shape[4] = { count, 0, 0, 0 };
  return hf_side_result(g, of_one(g, &operator_hf_integers, from), name, type, shape);
}

/* ---- the router ---- */

typedef struct choice {
  tensor_id weights, experts; /* [tokens, k] */
} choice;

static tensor_id probabilities(graph *g, const settings *s, tensor_id logits)
{
  if (s->model.moe_scores_in_fp32) logits = hf_cast(g, logits, DTYPE_FP32);
  graph_tensor t = g->tensors.items[logits];
  graph_node *n = of_one(g, &operator_hf_softmax, logits);
  n->dims[0] = t.shape[0];
  n->dims[1] = t.shape[1];
  tensor_id y = hf_result(g, n, "probabilities", DTYPE_FP32, t.shape);
  if (hf_needs_gradient(g, y)) node_save(n, y);
  return y;
}

static choice topk(graph *g, const settings *s, tensor_id scores)
{
  const int64_t shape[4] = { g->tensors.items[scores].shape[0], s->model.moe_router_topk, 0, 0 };
  graph_node *n = of_one(g, &operator_hf_topk, scores);
  choice made = { .weights = hf_result(g, n, "top_values", DTYPE_FP32, shape),
                  .experts = hf_side_result(g, n, "top_experts", DTYPE_INT64, shape) };
  if (hf_needs_gradient(g, made.weights)) node_save(n, made.experts);
  return made;
}

/* weights /= their sum */
static tensor_id normalised(graph *g, tensor_id weights)
{
  graph_tensor t = g->tensors.items[weights];
  const int64_t column[4] = { t.shape[0], 1, 0, 0 };
  graph_node *n = of_one(g, &operator_hf_normalise, weights);
  tensor_id y = hf_result(g, n, "normalised", DTYPE_FP32, t.shape);
  g->tensors.items[y].base = tensor_storage(g, weights);
  tensor_id sum = hf_side_result(g, n, "sum", DTYPE_FP32, column);
  tensor_id before = hf_side_result(g, n, "before", DTYPE_FP32, t.shape);
  if (!hf_needs_gradient(g, y)) return y;
  node_save(n, sum);
  node_save(n, before);
  return y;
}

static choice route(graph *g, const settings *s, tensor_id rows)
{
  graph_site(g, "mlp.gate");
  hf_linear_spec spec = { .module = "mlp.gate",
                          .inputs = s->model.hidden_size,
                          .outputs = s->model.num_experts };
  tensor_id logits = hf_plain_linear(g, s, &spec, rows);
  choice made = topk(g, s, probabilities(g, s, logits));
  if (s->model.norm_topk_prob) made.weights = normalised(g, made.weights);
  if (!s->model.moe_scores_in_fp32) made.weights = hf_cast(g, made.weights, model_dtype(s));
  return made;
}

/* ---- the experts ---- */

static tensor_id gathered(graph *g, const char *name, tensor_id x, tensor_id index)
{
  graph_tensor t = g->tensors.items[x];
  graph_node *n = of_one(g, &operator_hf_gather, x);
  node_input(n, index);
  t.shape[0] = tensor_elements(g, index);
  tensor_id y = hf_result(g, n, name, (dtype)t.dtype, t.shape);
  if (hf_needs_gradient(g, y)) node_save(n, index);
  return y;
}

/* x [rows, inputs] times each expert's part of the weight [experts x outputs, inputs]. */
static tensor_id grouped_linear(graph *g, const settings *s, const char *name, tensor_id x,
                                int64_t outputs, tensor_id offsets)
{
  int64_t rows = g->tensors.items[x].shape[0], inputs = g->tensors.items[x].shape[1];
  int64_t experts = s->model.num_experts;
  tensor_id weight = hf_parameter(g, s, name, experts * outputs, inputs);
  tensor_id turned = hf_transposed_view(g, "weight_transposed", weight, 0);
  graph_node *n = of_one(g, &operator_hf_grouped_linear, x);
  node_input(n, turned);
  node_input(n, offsets);
  const int64_t dims[] = { rows, inputs, outputs, experts };
  for (int i = 0; i < 4; i++)
    n->dims[i] = dims[i];
  bool of_x = hf_needs_gradient(g, x), of_weight = hf_needs_gradient(g, weight);
  if (of_x) node_save(n, turned);
  if (of_x || of_weight) node_save(n, offsets);
  if (of_weight) node_save(n, x);
  return hf_result(g, n, "output", model_dtype(s), (int64_t[4]){ rows, outputs, 0, 0 });
}

/* act(gate) * up of the halves of a projection [rows, 2 width] */
static tensor_id gated(graph *g, const settings *s, tensor_id both)
{
  const int64_t *of = g->tensors.items[both].shape;
  int64_t rows = of[0], width = of[1] / 2;
  tensor_id whole = hf_view(g, "halves", both, true, 1, rows, 2 * width, 0);
  graph_node *n = of_one(g, &operator_split, whole);
  const int64_t shape[4] = { 1, rows, width, 0 };
  tensor_id gate = hf_split_view(g, n, "gate", whole, 0, shape);
  tensor_id up = hf_split_view(g, n, "up", whole, width, shape);
  tensor_id y = hf_multiply(g, hf_activation(g, s, gate), up);
  return hf_view(g, "inner", y, true, rows, width, 0, 0);
}

/* Sums the rows of each token. */
static tensor_id summed(graph *g, const settings *s, tensor_id rows)
{
  graph_tensor t = g->tensors.items[rows];
  int64_t k = s->model.moe_router_topk;
  tensor_id parts = hf_view(g, "rows_of_tokens", rows, true, t.shape[0] / k, k, t.shape[1], 0);
  graph_node *n = of_one(g, &operator_hf_sum_parts, parts);
  return hf_result(g, n, "summed", (dtype)t.dtype,
                   (int64_t[4]){ t.shape[0] / k, t.shape[1], 0, 0 });
}

/* The function's frame refers to the rows in token order until it returns. */
static tensor_id experts(graph *g, const settings *s, tensor_id rows, choice chosen)
{
  int64_t count = tensor_elements(g, chosen.experts);
  graph_site(g, "mlp.experts");
  graph_node *sort = of_one(g, &operator_hf_integers, chosen.experts);
  const int64_t all[4] = { count, 0, 0, 0 };
  tensor_id sorted = hf_side_result(g, sort, "sorted_experts", DTYPE_INT64, all);
  tensor_id order = hf_side_result(g, sort, "order", DTYPE_INT64, all);
  tensor_id token = integers(g, "token_of_row", DTYPE_INT64, count, order);
  tensor_id selected = gathered(g, "selected", rows, token);
  tensor_id flat = hf_view(g, "weights", chosen.weights, true, count, 1, 0, 0);
  tensor_id weights = gathered(g, "weights_sorted", flat, order);
  tensor_id offsets = integers(g, "offsets", DTYPE_INT32, s->model.num_experts, sorted);
  tensor_id both =
      grouped_linear(g, s, "gate_up_proj", selected, 2 * s->model.moe_ffn_hidden_size, offsets);
  tensor_id y = grouped_linear(g, s, "down_proj", gated(g, s, both), s->model.hidden_size, offsets);
  tensor_id weighted = hf_multiply(g, y, weights);
  tensor_id inverse = integers(g, "inverse_order", DTYPE_INT64, count, order);
  tensor_id by_token = gathered(g, "by_token", weighted, inverse);
  tensor_id sum = hf_cast(g, summed(g, s, by_token), model_dtype(s));
  graph_keep(g, by_token);
  graph_keep(g, selected);
  return sum;
}

tensor_id hf_moe(graph *g, const settings *s, tensor_id x)
{
  graph_tensor t = g->tensors.items[x];
  tensor_id rows = hf_view(g, "tokens", x, true, t.shape[0] * t.shape[1], t.shape[2], 0, 0);
  tensor_id y = experts(g, s, rows, route(g, s, rows));
  return hf_view(g, "experts_output", y, true, t.shape[0], t.shape[1], t.shape[2], 0);
}
