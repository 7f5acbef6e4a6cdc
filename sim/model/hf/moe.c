/*
 * Mixtures of experts (model.moe_class): Qwen2MoeSparseMoeBlock, MixtralSparseMoeBlock, GptOssMLP,
 * DeepseekV2Moe, DeepseekV3MoE. A router, the products of all experts by torch._grouped_mm
 * (transformers integrations/moe.py: grouped_mm_experts_forward, which it takes unless
 * experts_implementation says otherwise), and an MLP for all tokens beside them.
 * Rows are pairs of a token and an expert chosen for it.
 */
#include <assert.h>

#include "sim/graph/sizes.h"
#include "sim/model/hf/eager.h"
#include "sim/operators/hf.h"
#include "sim/operators/lora.h"
#include "sim/operators/operators.h"

/* An integer tensor of `count` elements. */
static tensor_id integers(graph *g, const char *name, dtype type, int64_t count, tensor_id from)
{
  const int64_t shape[4] = { count, 0, 0, 0 };
  return hf_side_result(g, graph_add_of(g, &operator_hf_integers, from), name, type, shape);
}

/* ---- the router ---- */

typedef struct choice {
  tensor_id weights, experts; /* [tokens, k] */
} choice;

/* softmax of the rows of x in `type` */
static tensor_id softmax(graph *g, dtype type, tensor_id x)
{
  graph_tensor t = g->tensors.items[x];
  graph_node *n = graph_add_of(g, &operator_hf_softmax, x);
  n->dims[0] = t.shape[0];
  n->dims[1] = t.shape[1];
  tensor_id y = hf_result(g, n, "probabilities", type, t.shape);
  if (hf_needs_gradient(g, y)) node_save(n, y);
  return y;
}

static choice topk(graph *g, const settings *s, tensor_id scores)
{
  graph_tensor t = g->tensors.items[scores];
  const int64_t shape[4] = { t.shape[0], s->model.moe_router_topk, 0, 0 };
  graph_node *n = graph_add_of(g, &operator_hf_topk, scores);
  choice made = { .weights = hf_result(g, n, "top_values", (dtype)t.dtype, shape),
                  .experts = hf_side_result(g, n, "top_experts", DTYPE_INT64, shape) };
  if (hf_needs_gradient(g, made.weights)) node_save(n, made.experts);
  return made;
}

/* weights /= their sum */
static tensor_id normalised(graph *g, tensor_id weights)
{
  graph_tensor t = g->tensors.items[weights];
  const int64_t column[4] = { t.shape[0], 1, 0, 0 };
  graph_node *n = graph_add_of(g, &operator_hf_normalise, weights);
  tensor_id y = hf_result(g, n, "normalised", DTYPE_FP32, t.shape);
  g->tensors.items[y].base = tensor_storage(g, weights);
  tensor_id sum = hf_side_result(g, n, "sum", DTYPE_FP32, column);
  tensor_id before = hf_side_result(g, n, "before", DTYPE_FP32, t.shape);
  if (!hf_needs_gradient(g, y)) return y;
  node_save(n, sum);
  node_save(n, before);
  return y;
}

static tensor_id router_logits(graph *g, const settings *s, const char *module, bool bias,
                               tensor_id rows)
{
  graph_site(g, module);
  hf_linear_spec spec = {
    .module = module, .inputs = s->model.hidden_size, .outputs = s->model.num_experts, .bias = bias
  };
  return hf_plain_linear(g, s, &spec, rows);
}

/* Probabilities of all experts, then the best. */
static choice route_sparse(graph *g, const settings *s, tensor_id rows)
{
  tensor_id logits = router_logits(g, s, "mlp.gate", false, rows);
  if (s->model.moe_scores_in_fp32) logits = hf_cast(g, logits, DTYPE_FP32);
  choice made = topk(g, s, softmax(g, DTYPE_FP32, logits));
  if (s->model.norm_topk_prob) made.weights = normalised(g, made.weights);
  if (!s->model.moe_scores_in_fp32) made.weights = hf_cast(g, made.weights, model_dtype(s));
  return made;
}

/* The best, then probabilities of these. */
static choice route_gpt_oss(graph *g, const settings *s, tensor_id rows)
{
  choice made = topk(g, s, router_logits(g, s, "mlp.router", true, rows));
  made.weights = softmax(g, type_of(g, made.weights), made.weights);
  return made;
}

/* In place of routed_scaling_factor: nothing computes these models, and the kernel is the same. */
enum { ROUTED_SCALE = 1 };

/* DeepSeek multiplies fp32 copies of the rows and of its weight. */
static tensor_id logits_in_fp32(graph *g, const settings *s, tensor_id rows)
{
  graph_site(g, "mlp.gate");
  tensor_id weight = hf_parameter(g, s, "weight", s->model.num_experts, s->model.hidden_size);
  tensor_id wide = hf_cast(g, rows, DTYPE_FP32);
  if (model_dtype(s) == DTYPE_FP32) return hf_linear_with(g, wide, weight, 0);
  graph_node *n = graph_add_of(g, &operator_autocast_weight, weight);
  tensor_id copy = hf_result(g, n, "weight_fp32", DTYPE_FP32, g->tensors.items[weight].shape);
  graph_tensor of = g->tensors.items[copy], x = g->tensors.items[wide];
  tensor_id turned = hf_transposed_weight(g, copy);
  n = graph_add_of(g, &operator_hf_matmul, wide);
  node_input(n, turned);
  const int64_t dims[] = { 1, x.shape[0], of.shape[0], of.shape[1] };
  for (int i = 0; i < 4; i++)
    n->dims[i] = dims[i];
  if (x.requires_grad) node_save(n, turned);
  if (of.requires_grad) node_save(n, wide);
  return hf_result(g, n, "logits", DTYPE_FP32, (int64_t[4]){ x.shape[0], of.shape[0], 0, 0 });
}

/* A mask of the experts whose groups are not among the best: their scores do not count. It has no
 * gradient. */
static tensor_id group_mask(graph *g, tensor_id scores)
{
  graph_node *n = graph_add_of(g, &operator_hf_integers, scores);
  return hf_side_result(g, n, "group_mask", DTYPE_BYTE, g->tensors.items[scores].shape);
}

static choice route_deepseek_v2(graph *g, const settings *s, tensor_id rows)
{
  tensor_id scores = softmax(g, DTYPE_FP32, logits_in_fp32(g, s, rows));
  if (s->model.moe_router_num_groups > 1) {
    tensor_id mask = group_mask(g, scores);
    graph_node *n = graph_add_of(g, &operator_hf_masked, scores);
    node_input(n, mask);
    if (hf_needs_gradient(g, scores)) node_save(n, mask);
    scores = hf_result(g, n, "scores", DTYPE_FP32, g->tensors.items[scores].shape);
  }
  choice made = topk(g, s, scores);
  made.weights = hf_scale(g, made.weights, ROUTED_SCALE);
  return made;
}

/* A bias without gradient takes part in the choice, not in the weights. */
static choice route_deepseek_v3(graph *g, const settings *s, tensor_id rows)
{
  tensor_id scores = hf_sigmoid(g, logits_in_fp32(g, s, rows));
  const int64_t shape[4] = { g->tensors.items[scores].shape[0], s->model.moe_router_topk, 0, 0 };
  graph_node *n = graph_add_of(g, &operator_hf_integers, scores);
  choice made = { .experts = hf_side_result(g, n, "top_experts", DTYPE_INT64, shape) };
  n = graph_add_of(g, &operator_hf_gather_elements, scores);
  node_input(n, made.experts);
  made.weights = hf_result(g, n, "top_scores", DTYPE_FP32, shape);
  if (hf_needs_gradient(g, scores)) {
    node_save(n, made.experts);
    node_save(n, scores);
  }
  if (s->model.norm_topk_prob) made.weights = normalised(g, made.weights);
  made.weights = hf_scale(g, made.weights, ROUTED_SCALE);
  return made;
}

static choice route(graph *g, const settings *s, tensor_id rows)
{
  switch (s->model.moe_class) {
  case MOE_SPARSE: return route_sparse(g, s, rows);
  case MOE_GPT_OSS: return route_gpt_oss(g, s, rows);
  case MOE_DEEPSEEK_V2: return route_deepseek_v2(g, s, rows);
  case MOE_DEEPSEEK_V3: return route_deepseek_v3(g, s, rows);
  case MOE_LLAMA4: break; /* moe_llama4.c */
  }
  assert(0 && "moe_class out of range");
  return (choice){ 0 };
}

/* ---- the experts ---- */

static tensor_id gathered(graph *g, const char *name, tensor_id x, tensor_id index)
{
  graph_tensor t = g->tensors.items[x];
  graph_node *n = graph_add_of(g, &operator_hf_gather, x);
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
  graph_node *n = graph_add_of(g, &operator_hf_grouped_linear, x);
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
  graph_node *n = graph_add_of(g, &operator_split, whole);
  const int64_t shape[4] = { 1, rows, width, 0 };
  tensor_id gate = hf_split_view(g, n, "gate", whole, 0, shape);
  tensor_id up = hf_split_view(g, n, "up", whole, width, shape);
  tensor_id y = hf_multiply(g, hf_activation(g, s, gate), up);
  return hf_view(g, "inner", y, true, rows, width, 0, 0);
}

/* (up + 1) gate sigmoid(alpha gate) of the even and odd columns, both clamped (GptOssExperts). */
static tensor_id gated_by_clamped(graph *g, tensor_id both)
{
  static const double alpha = 1.702, limit = 7;
  tensor_id gate = hf_every_other(g, "gate", both, 0), up = hf_every_other(g, "up", both, 1);
  gate = hf_clamp(g, limit, false, gate);
  up = hf_clamp(g, limit, true, up);
  tensor_id swished = hf_multiply(g, gate, hf_sigmoid(g, hf_scale(g, gate, alpha)));
  graph_keep(g, gate);
  return hf_multiply(g, hf_plus(g, up, 1), swished);
}

/* Each row's part of its expert's bias, or 0. */
static tensor_id bias_rows(graph *g, const settings *s, const char *name, int64_t width,
                           tensor_id sorted)
{
  if (s->model.moe_class != MOE_GPT_OSS) return 0;
  tensor_id bias = hf_parameter(g, s, name, s->model.num_experts, width);
  return gathered(g, "bias_rows", bias, sorted);
}

static tensor_id biased(graph *g, tensor_id x, tensor_id bias)
{
  return bias == 0 ? x : hf_add_in_place(g, x, bias);
}

/* Sums the rows of each token. */
static tensor_id summed(graph *g, const settings *s, tensor_id rows)
{
  graph_tensor t = g->tensors.items[rows];
  int64_t k = s->model.moe_router_topk;
  tensor_id parts = hf_view(g, "rows_of_tokens", rows, true, t.shape[0] / k, k, t.shape[1], 0);
  graph_node *n = graph_add_of(g, &operator_hf_sum_parts, parts);
  return hf_result(g, n, "summed", (dtype)t.dtype,
                   (int64_t[4]){ t.shape[0] / k, t.shape[1], 0, 0 });
}

/* The function's frame refers to the rows in token order until it returns. */
static tensor_id experts(graph *g, const settings *s, tensor_id rows, choice chosen)
{
  int64_t count = tensor_elements(g, chosen.experts);
  graph_site(g, "mlp.experts");
  graph_node *sort = graph_add_of(g, &operator_hf_integers, chosen.experts);
  const int64_t all[4] = { count, 0, 0, 0 };
  tensor_id sorted = hf_side_result(g, sort, "sorted_experts", DTYPE_INT64, all);
  tensor_id order = hf_side_result(g, sort, "order", DTYPE_INT64, all);
  tensor_id token = integers(g, "token_of_row", DTYPE_INT64, count, order);
  tensor_id selected = gathered(g, "selected", rows, token);
  tensor_id flat = hf_view(g, "weights", chosen.weights, true, count, 1, 0, 0);
  tensor_id weights = gathered(g, "weights_sorted", flat, order);
  tensor_id offsets = integers(g, "offsets", DTYPE_INT32, s->model.num_experts, sorted);
  int64_t wide = 2 * s->model.moe_ffn_hidden_size, hidden = s->model.hidden_size;
  tensor_id bias = bias_rows(g, s, "gate_up_proj_bias", wide, sorted);
  tensor_id both = biased(g, grouped_linear(g, s, "gate_up_proj", selected, wide, offsets), bias);
  tensor_id inner =
      s->model.moe_class == MOE_GPT_OSS ? gated_by_clamped(g, both) : gated(g, s, both);
  bias = bias_rows(g, s, "down_proj_bias", hidden, sorted);
  tensor_id y = biased(g, grouped_linear(g, s, "down_proj", inner, hidden, offsets), bias);
  tensor_id weighted = hf_multiply(g, y, weights);
  tensor_id inverse = integers(g, "inverse_order", DTYPE_INT64, count, order);
  tensor_id by_token = gathered(g, "by_token", weighted, inverse);
  tensor_id sum = hf_cast(g, summed(g, s, by_token), model_dtype(s));
  graph_keep(g, by_token);
  graph_keep(g, selected);
  return sum;
}

/* ---- the block ---- */

static int64_t shared_width(const settings *s)
{
  return s->model.moe_shared_expert_intermediate_size;
}

/* Qwen's shared expert runs first; a gate scales it afterwards. */
static tensor_id sparse_block(graph *g, const settings *s, tensor_id rows)
{
  tensor_id shared =
      shared_width(s) == 0 ? 0 : hf_shared_mlp(g, s, "mlp.shared_expert.", shared_width(s), rows);
  tensor_id y = experts(g, s, rows, route(g, s, rows));
  if (shared == 0) return y;
  if (s->model.moe_shared_expert_gate) {
    hf_linear_spec gate = { .module = "mlp.shared_expert_gate",
                            .inputs = s->model.hidden_size,
                            .outputs = 1,
                            .in_layer = true };
    shared = hf_multiply(g, hf_sigmoid(g, hf_linear(g, s, &gate, rows)), shared);
  }
  graph_site(g, "mlp");
  return hf_add(g, y, shared);
}

tensor_id hf_moe(graph *g, const settings *s, tensor_id x)
{
  graph_tensor t = g->tensors.items[x];
  bool sparse = s->model.moe_class == MOE_SPARSE;
  tensor_id rows = hf_view(g, "tokens", x, true, t.shape[0] * t.shape[1], t.shape[2], 0, 0);
  bool llama4 = s->model.moe_class == MOE_LLAMA4;
  tensor_id y = sparse   ? sparse_block(g, s, rows)
                : llama4 ? hf_llama4_moe(g, s, rows)
                         : experts(g, s, rows, route(g, s, rows));
  y = hf_view(g, "experts_output", y, true, t.shape[0], t.shape[1], t.shape[2], 0);
  if (sparse || llama4 || shared_width(s) == 0) return y;
  tensor_id shared = hf_shared_mlp(g, s, "mlp.shared_experts.", shared_width(s), x);
  graph_site(g, "mlp");
  return hf_add(g, y, shared);
}
