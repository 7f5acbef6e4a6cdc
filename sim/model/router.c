/*
 * The router: gating, choice of experts, probabilities, auxiliary losses.
 *
 * Megatron-LM (d98e8a64) core/transformer/moe/router.py, TopKRouter, and moe_utils.py;
 * Transformer Engine (d0067d0d) pytorch/router.py and csrc/extensions/router.cpp for the fused
 * kernels.
 */
#include <string.h>

#include "sim/model/moe.h"
#include "sim/model/node.h"
#include "sim/model/operators_moe.h"

static const char site[] = "mlp.router";

static bool is_score(const settings *s, const char *name)
{
  return strcmp(s->model.moe_router_score_function, name) == 0;
}

static bool balances_by(const settings *s, const char *name)
{
  for (uint32_t i = 0; i < s->model.moe_router_load_balancing_type.count; i++)
    if (strcmp(s->model.moe_router_load_balancing_type.names[i], name) == 0) return true;
  return false;
}

/* router.py, is_aux_loss_enabled. */
static bool has_aux_loss(const settings *s)
{
  return s->model.moe_aux_loss_coeff > 0 &&
         (balances_by(s, "aux_loss") || balances_by(s, "seq_aux_loss") ||
          balances_by(s, "global_aux_loss"));
}

static graph_node *router_step(graph *g, const moe_sizes *m, tensor_id in, tensor_id out)
{
  graph_node *n = moe_step(g, KERNEL_ROUTER_FORWARD, KERNEL_ROUTER_BACKWARD, in, 0, out);
  n->dims[MOE_STEP_D0] = m->tokens;
  n->dims[MOE_STEP_D1] = m->experts;
  n->dims[MOE_STEP_D2] = m->topk;
  return n;
}

/* moe_utils.py, RouterGatingLinearFunction: input and weight are kept in the model's type. */
static tensor_id gating(graph *g, const settings *s, const moe_sizes *m, tensor_id x)
{
  tensor_id weight = graph_parameter(g, "weight", m->type, m->experts, m->hidden);
  tensor_id bias =
      s->model.add_bias_linear ? graph_parameter(g, "bias", m->type, m->experts, 0) : 0;
  tensor_id logits = graph_tensor_new(g, "logits", m->router, m->tokens, m->experts, 0, 0);
  graph_node *n = graph_add(g, &operator_gating);
  n->dims[GATING_TOKENS] = m->tokens;
  n->dims[GATING_WIDTH] = m->hidden;
  n->dims[GATING_EXPERTS] = m->experts;
  node_input(n, x);
  node_input(n, weight);
  node_input(n, bias);
  node_output(n, logits);
  node_save(n, x);
  node_save(n, weight);
  node_save(n, bias);
  return logits;
}

/* moe_utils.py, z_loss_func: logsumexp keeps its input and result; the squares are of one number a
 * token. */
static tensor_id with_z_loss(graph *g, const settings *s, const moe_sizes *m, tensor_id logits)
{
  if (s->model.moe_z_loss_coeff <= 0) return logits;
  tensor_id logsum = graph_tensor_new(g, "logsum", m->router, m->tokens, 0, 0, 0);
  graph_node *n = moe_step(g, KERNEL_REDUCE, KERNEL_ELEMENTWISE, logits, 0, logsum);
  node_save(n, logits);
  node_save(n, logsum);
  return logits;
}

/* TE router.py, FusedTopkScoreFunction: one kernel; keeps the map and the scores in fp32. */
static moe_routing fused_choice(graph *g, const moe_sizes *m, tensor_id logits)
{
  moe_routing r = { .probs = graph_tensor_new(g, "probs", m->router, m->tokens, m->experts, 0, 0),
                    .map = moe_index(g, "routing_map", DTYPE_BYTE, m->tokens, m->experts) };
  tensor_id scores = moe_index(g, "scores", DTYPE_FP32, m->tokens, m->experts);
  graph_node *n = router_step(g, m, logits, r.probs);
  node_output(n, r.map);
  node_output(n, scores);
  node_save(n, r.map);
  node_save(n, scores);
  return r;
}

/* torch.topk over experts: the gradient needs the indexes. `scratch` is what precedes it and dies
 * with it. */
static tensor_id top_experts(graph *g, const moe_sizes *m, tensor_id scores, tensor_id *indices,
                             int64_t scratch_bytes)
{
  dtype type = (dtype)g->tensors.items[scores].dtype;
  tensor_id top = graph_tensor_new(g, "top_scores", type, m->tokens, m->topk, 0, 0);
  *indices = moe_index(g, "top_indices", DTYPE_INT64, m->tokens, m->topk);
  graph_node *n = router_step(g, m, scores, top);
  n->dims[MOE_STEP_FORWARD_BYTES] = scratch_bytes;
  node_output(n, *indices);
  node_save(n, *indices);
  return top;
}

/* softmax in fp32; the result is kept. */
static tensor_id softmax(graph *g, tensor_id x, int64_t rows, int64_t columns, const char *name)
{
  tensor_id y = graph_tensor_new(g, name, DTYPE_FP32, rows, columns, 0, 0);
  graph_node *n = moe_step(g, KERNEL_SOFTMAX_FORWARD, KERNEL_SOFTMAX_BACKWARD, x, 0, y);
  n->dims[MOE_STEP_D0] = rows;
  n->dims[MOE_STEP_D1] = columns;
  node_save(n, y);
  return y;
}

/* sigmoid, or the square root of softplus, of fp32 logits; the result is kept. */
static tensor_id elementwise_score(graph *g, const moe_sizes *m, tensor_id logits)
{
  tensor_id wide = moe_cast(g, "logits_fp32", logits, DTYPE_FP32);
  tensor_id y = graph_tensor_new(g, "scores", DTYPE_FP32, m->tokens, m->experts, 0, 0);
  node_save(moe_step(g, KERNEL_ELEMENTWISE, KERNEL_ELEMENTWISE, wide, 0, y), y);
  return y;
}

/* scores / (their sum + epsilon): both operands are kept. */
static tensor_id normalised(graph *g, tensor_id scores, int64_t rows, int64_t columns,
                            const char *name)
{
  tensor_id sum = graph_tensor_new(g, "score_sum", DTYPE_FP32, rows, 1, 0, 0);
  moe_step(g, KERNEL_REDUCE, KERNEL_ELEMENTWISE, scores, 0, sum);
  tensor_id y = graph_tensor_new(g, name, DTYPE_FP32, rows, columns, 0, 0);
  graph_node *n = moe_step(g, KERNEL_ELEMENTWISE, KERNEL_ELEMENTWISE, scores, sum, y);
  node_save(n, scores);
  node_save(n, sum);
  return y;
}

/* group_limited_topk masks the scores of the groups that were not chosen: mask and masked scores,
 * fp32. */
static int64_t group_limit_bytes(const settings *s, const moe_sizes *m)
{
  return s->model.moe_router_group_topk > 0 ? 2 * m->tokens * m->experts * 4 : 0;
}

/* moe_utils.py, topk_routing_with_score_function: probabilities of the chosen experts, in fp32. */
static tensor_id chosen_probabilities(graph *g, const settings *s, const moe_sizes *m,
                                      tensor_id logits, tensor_id *indices)
{
  int64_t scratch = group_limit_bytes(s, m);
  if (is_score(s, "softmax")) {
    if (s->model.moe_router_pre_softmax)
      return top_experts(g, m, softmax(g, logits, m->tokens, m->experts, "scores"), indices,
                         scratch);
    return softmax(g, top_experts(g, m, logits, indices, scratch), m->tokens, m->topk, "top_probs");
  }
  if (s->model.moe_router_enable_expert_bias) scratch += m->tokens * m->experts * 4;
  tensor_id top = top_experts(g, m, elementwise_score(g, m, logits), indices, scratch);
  return m->topk > 1 ? normalised(g, top, m->tokens, m->topk, "top_probs") : top;
}

/* Scatter into [tokens, experts]: zeros in the type of the logits, and the map by way of int32. */
static moe_routing scattered(graph *g, const moe_sizes *m, tensor_id top, tensor_id indices)
{
  int64_t cells = m->tokens * m->experts;
  moe_routing r = { .probs = graph_tensor_new(g, "probs", m->router, m->tokens, m->experts, 0, 0),
                    .map = moe_index(g, "routing_map", DTYPE_BYTE, m->tokens, m->experts) };
  graph_node *n = moe_step(g, KERNEL_ELEMENTWISE, KERNEL_ELEMENTWISE, top, indices, r.probs);
  n->dims[MOE_STEP_FORWARD_BYTES] = cells * (dtype_bytes(m->router) + 2 * 4);
  node_output(n, r.map);
  node_save(n, indices);
  return r;
}

static moe_routing unfused_choice(graph *g, const settings *s, const moe_sizes *m, tensor_id logits)
{
  tensor_id indices = 0;
  tensor_id top = chosen_probabilities(g, s, m, logits, &indices);
  return scattered(g, m, moe_cast(g, "top_probs_cast", top, m->router), indices);
}

/*
 * router.py, sinkhorn_load_balancing: the iteration runs in fp32 without gradient, the host reading
 * the error after each step; the probability is the activated logit of the chosen experts.
 */
static moe_routing sinkhorn_choice(graph *g, const moe_sizes *m, tensor_id logits)
{
  int64_t cells = m->tokens * m->experts;
  tensor_id indices = moe_index(g, "top_indices", DTYPE_INT64, m->tokens, m->topk);
  graph_node *n = router_step(g, m, logits, indices);
  n->flags = MOE_STEP_WAITS | MOE_STEP_FORWARD_ONLY;
  n->dims[MOE_STEP_FORWARD_BYTES] =
      3 * cells * 4; /* fp32 logits, their exponential, the scaled cost */
  tensor_id score = 0;
  if (m->topk == 1) {
    score = graph_tensor_new(g, "scores", m->router, m->tokens, m->experts, 0, 0);
    node_save(moe_step(g, KERNEL_ELEMENTWISE, KERNEL_ELEMENTWISE, logits, 0, score), score);
  } else {
    score =
        moe_cast(g, "scores_cast", softmax(g, logits, m->tokens, m->experts, "scores"), m->router);
  }
  moe_routing r = { .probs = graph_tensor_new(g, "probs", m->router, m->tokens, m->experts, 0, 0),
                    .map = moe_index(g, "routing_map", DTYPE_BYTE, m->tokens, m->experts) };
  n = moe_step(g, KERNEL_ELEMENTWISE, KERNEL_ELEMENTWISE, indices, 0, r.map);
  n->flags = MOE_STEP_FORWARD_ONLY;
  n->dims[MOE_STEP_FORWARD_BYTES] = cells * (dtype_bytes(m->router) + 2 * 4);
  node_save(moe_step(g, KERNEL_ELEMENTWISE, KERNEL_ELEMENTWISE, score, r.map, r.probs), r.map);
  return r;
}

/* moe_utils.py, apply_router_token_dropping: the mask of what fits, probabilities times mask. */
static moe_routing limited_to_capacity(graph *g, const moe_sizes *m, moe_routing r)
{
  if (m->capacity == 0) return r;
  moe_routing limited = { .probs = graph_tensor_new(g, "capped_probs", m->router, m->tokens,
                                                    m->experts, 0, 0),
                          .map = moe_index(g, "capped_map", DTYPE_BYTE, m->tokens, m->experts) };
  graph_node *n = moe_step(g, KERNEL_ROUTER_FORWARD, KERNEL_ELEMENTWISE, r.map, 0, limited.map);
  n->flags = MOE_STEP_FORWARD_ONLY;
  n->dims[MOE_STEP_FORWARD_BYTES] = m->capacity * m->experts * (8 + dtype_bytes(m->router)) +
                                    m->tokens * m->experts * dtype_bytes(m->router);
  node_save(
      moe_step(g, KERNEL_ELEMENTWISE, KERNEL_ELEMENTWISE, r.probs, limited.map, limited.probs),
      limited.map);
  return limited;
}

/* moe_utils.py, compute_routing_scores_for_aux_loss: scores of all experts, fp32, kept by what
 * makes them. */
static tensor_id aux_scores(graph *g, const settings *s, const moe_sizes *m, tensor_id logits)
{
  if (s->model.moe_router_fusion) {
    tensor_id scores = graph_tensor_new(g, "aux_scores", DTYPE_FP32, m->tokens, m->experts, 0, 0);
    tensor_id map = moe_index(g, "aux_map", DTYPE_BYTE, m->tokens, m->experts);
    tensor_id kept = moe_index(g, "aux_intermediate", DTYPE_FP32, m->tokens, m->experts);
    graph_node *n = router_step(g, m, logits, scores);
    node_output(n, map);
    node_output(n, kept);
    node_save(n, kept);
    return scores;
  }
  if (is_score(s, "softmax")) return softmax(g, logits, m->tokens, m->experts, "aux_scores");
  return normalised(g, elementwise_score(g, m, logits), m->tokens, m->experts, "aux_scores");
}

/* router.py, attach_and_log_load_balancing_loss: the loss hangs on the probabilities. */
static moe_routing with_aux_loss(graph *g, const settings *s, const moe_sizes *m, tensor_id logits,
                                 moe_routing r)
{
  if (!has_aux_loss(s)) return r;
  tensor_id scores = aux_scores(g, s, m, logits);
  tensor_id probs = graph_tensor_new(g, "probs_with_loss", m->router, m->tokens, m->experts, 0, 0);
  g->tensors.items[probs].base = tensor_storage(g, r.probs);
  graph_node *n = graph_add(g, &operator_attach_loss);
  node_input(n, r.probs);
  node_input(n, scores);
  node_output(n, probs);
  r.probs = probs;
  return r;
}

moe_routing moe_route(graph *g, const settings *s, const moe_sizes *m, tensor_id x)
{
  graph_site(g, site);
  tensor_id logits = with_z_loss(g, s, m, gating(g, s, m, x));
  moe_routing r;
  if (balances_by(s, "sinkhorn"))
    r = sinkhorn_choice(g, m, logits);
  else
    r = s->model.moe_router_fusion ? fused_choice(g, m, logits) : unfused_choice(g, s, m, logits);
  r = limited_to_capacity(g, m, r);
  r = with_aux_loss(g, s, m, logits, r);
  graph_keep(g, logits);
  return r;
}
