/*
 * The router: gating, choice of experts, probabilities, auxiliary losses.
 *
 * Megatron-LM (d98e8a64) core/transformer/moe/router.py, TopKRouter, and moe_utils.py;
 * Transformer Engine (d0067d0d) pytorch/router.py and csrc/extensions/router.cpp for the fused
 * kernels.
 */
#include "sim/graph/node.h"
#include "sim/model/megatron/moe.h"
#include "sim/operators/moe.h"

static const char site[] = "mlp.router";

static bool is_score(const settings *s, moe_router_score_function_choice score)
{
  return s->model.moe_router_score_function == score;
}

static bool balances_by(const settings *s, moe_router_load_balancing_type_choice type)
{
  return has_choice(&s->model.moe_router_load_balancing_type, type);
}

/* router.py, is_aux_loss_enabled. */
static bool has_aux_loss(const settings *s)
{
  return s->model.moe_aux_loss_coeff > 0 &&
         (balances_by(s, BALANCE_AUX_LOSS) || balances_by(s, BALANCE_SEQ_AUX_LOSS) ||
          balances_by(s, BALANCE_GLOBAL_AUX_LOSS));
}

static router_score score_of(const settings *s)
{
  if (is_score(s, SCORES_SIGMOID)) return ROUTER_SIGMOID;
  if (is_score(s, SCORES_SQRTSOFTPLUS)) return ROUTER_SQRT_SOFTPLUS;
  return s->model.moe_router_pre_softmax ? ROUTER_PRE_SOFTMAX : ROUTER_SOFTMAX;
}

static graph_node *router_step(graph *g, const moe_sizes *m, kernel_kind forward,
                               kernel_kind backward, tensor_id in, tensor_id out)
{
  graph_node *n = moe_step(g, forward, backward, in, 0, out);
  n->dims[MOE_STEP_D0] = m->tokens;
  n->dims[MOE_STEP_D1] = m->experts;
  n->dims[MOE_STEP_D2] = m->topk;
  return n;
}

/* How a token's choice of experts is limited. */
static void limit_choice(const settings *s, double *groups)
{
  if (s->model.moe_router_group_topk > 0) {
    groups[0] = (double)s->model.moe_router_num_groups;
    groups[1] = (double)s->model.moe_router_group_topk;
  }
  groups[2] = s->model.moe_router_force_load_balancing;
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

/* schedules.py, forward_step_calc_loss: the factor of losses that are attached to a tensor. */
static double loss_scale(const settings *s)
{
  return (double)s->parallel.context_parallel_size / (double)s->derived.num_microbatches;
}

static tensor_id with_loss(graph *g, const char *name, tensor_id of, tensor_id loss, graph_node **n)
{
  graph_tensor base = g->tensors.items[of];
  tensor_id y = graph_tensor_new(g, name, (dtype)base.dtype, base.shape[0], base.shape[1], 0, 0);
  g->tensors.items[y].base = tensor_storage(g, of);
  *n = graph_add(g, &operator_attach_loss);
  node_input(*n, of);
  node_input(*n, loss);
  node_output(*n, y);
  return y;
}

/* Of one sequence. */
static int64_t sharing_ranks(const settings *s)
{
  return size_tp(s) * s->parallel.context_parallel_size;
}

/* moe_utils.py, z_loss_func: logsumexp keeps its input and result; each token has one square. The
 * ranks that share the sequence divide the mean. */
static tensor_id with_z_loss(graph *g, const settings *s, const moe_sizes *m, tensor_id logits)
{
  if (s->model.moe_z_loss_coeff <= 0) return logits;
  tensor_id logsum = graph_tensor_new(g, "logsum", m->router, m->tokens, 0, 0, 0);
  graph_node *n =
      router_step(g, m, KERNEL_ROUTER_LOG_SUM, KERNEL_ROUTER_Z_LOSS_BACKWARD, logits, logsum);
  node_save(n, logits);
  node_save(n, logsum);
  tensor_id y = with_loss(g, "logits_with_loss", logits, logsum, &n);
  n->scalars[0] =
      2 * s->model.moe_z_loss_coeff / (double)sharing_ranks(s) / (double)m->tokens * loss_scale(s);
  return y;
}

static moe_routing new_routing(graph *g, const moe_sizes *m)
{
  return (
      moe_routing){ .probs = graph_tensor_new(g, "probs", m->router, m->tokens, m->experts, 0, 0),
                    .map = graph_constant(g, "routing_map", DTYPE_BYTE, m->tokens, m->experts) };
}

/* TE router.py, FusedTopkScoreFunction: one kernel; keeps the map and the scores in fp32. */
static moe_routing fused_choice(graph *g, const settings *s, const moe_sizes *m, tensor_id logits)
{
  moe_routing r = new_routing(g, m);
  tensor_id scores = graph_constant(g, "scores", DTYPE_FP32, m->tokens, m->experts);
  graph_node *n = router_step(g, m, KERNEL_ROUTER_FORWARD, KERNEL_ROUTER_BACKWARD, logits, r.probs);
  n->scalars[0] = score_of(s);
  limit_choice(s, &n->scalars[1]);
  node_output(n, r.map);
  node_output(n, scores);
  node_save(n, r.map);
  node_save(n, scores);
  return r;
}

/* torch.topk over experts: the gradient needs the indexes. `scratch`: temporaries of the steps
 * before it, which die with it. */
static tensor_id top_experts(graph *g, const settings *s, const moe_sizes *m, tensor_id scores,
                             tensor_id *indices, int64_t scratch_bytes)
{
  dtype type = type_of(g, scores);
  tensor_id top = graph_tensor_new(g, "top_scores", type, m->tokens, m->topk, 0, 0);
  *indices = graph_constant(g, "top_indices", DTYPE_INT64, m->tokens, m->topk);
  graph_node *n =
      router_step(g, m, KERNEL_ROUTER_TOPK_FORWARD, KERNEL_ROUTER_TOPK_BACKWARD, scores, top);
  limit_choice(s, n->scalars);
  n->dims[MOE_STEP_FORWARD_BYTES] = scratch_bytes;
  node_output(n, *indices);
  node_save(n, *indices);
  return top;
}

static void set_rows_and_columns(graph_node *n, int64_t rows, int64_t columns)
{
  n->dims[MOE_STEP_D0] = rows;
  n->dims[MOE_STEP_D1] = columns;
}

/* softmax in fp32; the result is kept. */
static tensor_id softmax(graph *g, tensor_id x, int64_t rows, int64_t columns, const char *name)
{
  tensor_id y = graph_tensor_new(g, name, DTYPE_FP32, rows, columns, 0, 0);
  graph_node *n = moe_step(g, KERNEL_SOFTMAX_FORWARD, KERNEL_SOFTMAX_BACKWARD, x, 0, y);
  set_rows_and_columns(n, rows, columns);
  node_save(n, y);
  return y;
}

/* sigmoid, or the square root of softplus, of fp32 logits; the result is kept. */
static tensor_id elementwise_score(graph *g, const settings *s, const moe_sizes *m,
                                   tensor_id logits)
{
  tensor_id wide = moe_cast(g, "logits_fp32", logits, DTYPE_FP32);
  tensor_id y = graph_tensor_new(g, "scores", DTYPE_FP32, m->tokens, m->experts, 0, 0);
  graph_node *n =
      moe_step(g, KERNEL_ROUTER_SCORE_FORWARD, KERNEL_ROUTER_SCORE_BACKWARD, wide, 0, y);
  n->scalars[0] = score_of(s);
  node_save(n, y);
  return y;
}

/* scores / (their sum + epsilon): both operands are kept. */
static tensor_id normalised(graph *g, tensor_id scores, int64_t rows, int64_t columns,
                            const char *name)
{
  tensor_id sum = graph_tensor_new(g, "score_sum", DTYPE_FP32, rows, 1, 0, 0);
  graph_node *n = moe_step(g, KERNEL_ROW_SUM_FORWARD, KERNEL_ROW_SUM_BACKWARD, scores, 0, sum);
  set_rows_and_columns(n, rows, columns);
  tensor_id y = graph_tensor_new(g, name, DTYPE_FP32, rows, columns, 0, 0);
  n = moe_step(g, KERNEL_ROW_DIVIDE_FORWARD, KERNEL_ROW_DIVIDE_BACKWARD, scores, sum, y);
  set_rows_and_columns(n, rows, columns);
  n->scalars[0] = 1e-20; /* moe_utils.py */
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
  if (is_score(s, SCORES_SOFTMAX)) {
    if (s->model.moe_router_pre_softmax)
      return top_experts(g, s, m, softmax(g, logits, m->tokens, m->experts, "scores"), indices,
                         scratch);
    return softmax(g, top_experts(g, s, m, logits, indices, scratch), m->tokens, m->topk,
                   "top_probs");
  }
  if (s->model.moe_router_enable_expert_bias) scratch += m->tokens * m->experts * 4;
  tensor_id top = top_experts(g, s, m, elementwise_score(g, s, m, logits), indices, scratch);
  return m->topk > 1 ? normalised(g, top, m->tokens, m->topk, "top_probs") : top;
}

/* Scatters into [tokens, experts]: zeros in the type of the logits, and the map through int32. */
static moe_routing scattered(graph *g, const moe_sizes *m, tensor_id top, tensor_id indices)
{
  int64_t cells = m->tokens * m->experts;
  moe_routing r = new_routing(g, m);
  graph_node *n = router_step(g, m, KERNEL_ROUTER_SCATTER_FORWARD, KERNEL_ROUTER_SCATTER_BACKWARD,
                              top, r.probs);
  node_input(n, indices);
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
 * router.py, sinkhorn_load_balancing: the iteration runs in fp32 without gradient, and the host
 * reads the error after each step. The probability is the activated logit of the chosen experts.
 */
static moe_routing sinkhorn_choice(graph *g, const moe_sizes *m, tensor_id logits)
{
  int64_t cells = m->tokens * m->experts;
  tensor_id indices = graph_constant(g, "top_indices", DTYPE_INT64, m->tokens, m->topk);
  graph_node *n = router_step(g, m, KERNEL_ROUTER_SINKHORN, KERNEL_KINDS, logits, indices);
  n->flags = MOE_STEP_WAITS | MOE_STEP_FORWARD_ONLY;
  n->dims[MOE_STEP_FORWARD_BYTES] =
      3 * cells * 4; /* fp32 logits, their exponential, the scaled cost */
  tensor_id score = 0;
  if (m->topk == 1) {
    score = graph_tensor_new(g, "scores", m->router, m->tokens, m->experts, 0, 0);
    n = moe_step(g, KERNEL_ROUTER_SCORE_FORWARD, KERNEL_ROUTER_SCORE_BACKWARD, logits, 0, score);
    n->scalars[0] = ROUTER_SIGMOID;
    node_save(n, score);
  } else {
    score =
        moe_cast(g, "scores_cast", softmax(g, logits, m->tokens, m->experts, "scores"), m->router);
  }
  moe_routing r = new_routing(g, m);
  n = router_step(g, m, KERNEL_ROUTER_MAP, KERNEL_KINDS, indices, r.map);
  n->flags = MOE_STEP_FORWARD_ONLY;
  n->dims[MOE_STEP_FORWARD_BYTES] = cells * (dtype_bytes(m->router) + 2 * 4);
  node_save(moe_step(g, KERNEL_ROUTER_MASK, KERNEL_ROUTER_MASK, score, r.map, r.probs), r.map);
  return r;
}

/* moe_utils.py, apply_router_token_dropping: the mask of what fits, probabilities times mask. */
static moe_routing limited_to_capacity(graph *g, const moe_sizes *m, moe_routing r)
{
  if (m->capacity == 0) return r;
  moe_routing limited = {
    .probs = graph_tensor_new(g, "capped_probs", m->router, m->tokens, m->experts, 0, 0),
    .map = graph_constant(g, "capped_map", DTYPE_BYTE, m->tokens, m->experts)
  };
  graph_node *n = router_step(g, m, KERNEL_ROUTER_CAPACITY, KERNEL_KINDS, r.map, limited.map);
  moe_reads_rows(g, r.probs);
  n->scalars[0] = (double)m->capacity;
  n->scalars[1] = m->padded;
  n->flags = MOE_STEP_FORWARD_ONLY;
  n->dims[MOE_STEP_FORWARD_BYTES] = m->capacity * m->experts * (8 + dtype_bytes(m->router)) +
                                    m->tokens * m->experts * dtype_bytes(m->router);
  node_save(
      moe_step(g, KERNEL_ROUTER_MASK, KERNEL_ROUTER_MASK, r.probs, limited.map, limited.probs),
      limited.map);
  return limited;
}

/* moe_utils.py, compute_routing_scores_for_aux_loss: fp32 scores of all experts. `kept`: the tensor
 * that their kernel saves, whose largest scores choose the experts of the loss. */
static tensor_id aux_scores(graph *g, const settings *s, const moe_sizes *m, tensor_id logits,
                            tensor_id *kept)
{
  if (s->model.moe_router_fusion) {
    tensor_id scores = graph_tensor_new(g, "aux_scores", DTYPE_FP32, m->tokens, m->experts, 0, 0);
    tensor_id map = graph_constant(g, "aux_map", DTYPE_BYTE, m->tokens, m->experts);
    *kept = graph_constant(g, "aux_intermediate", DTYPE_FP32, m->tokens, m->experts);
    graph_node *n =
        router_step(g, m, KERNEL_ROUTER_AUX_FORWARD, KERNEL_ROUTER_AUX_BACKWARD, logits, scores);
    n->scalars[0] = score_of(s);
    node_output(n, map);
    node_output(n, *kept);
    node_save(n, *kept);
    return scores;
  }
  if (is_score(s, SCORES_SOFTMAX))
    return *kept = softmax(g, logits, m->tokens, m->experts, "aux_scores");
  *kept = elementwise_score(g, s, m, logits);
  return normalised(g, *kept, m->tokens, m->experts, "aux_scores");
}

static int64_t balanced_sequences(const settings *s)
{
  return balances_by(s, BALANCE_SEQ_AUX_LOSS) ? s->training.micro_batch_size : 1;
}

/* router.py, _apply_global_aux_loss. */
static bool balances_all(const settings *s)
{
  return balances_by(s, BALANCE_GLOBAL_AUX_LOSS) && !balances_by(s, BALANCE_AUX_LOSS) &&
         !balances_by(s, BALANCE_SEQ_AUX_LOSS);
}

static int64_t counting_ranks(const settings *s)
{
  return sharing_ranks(s) * (balances_all(s) ? s->derived.data_parallel_size : 1);
}

/* Counts the choices of all ranks that share a sequence, or of all of the stage (global_aux_loss).
 * If there is one, the loss itself counts. */
static tensor_id shared_counts(graph *g, const settings *s, const moe_sizes *m, tensor_id kept)
{
  if (counting_ranks(s) == 1) return 0;
  tensor_id counts =
      graph_constant(g, "tokens_per_expert", DTYPE_INT64, balanced_sequences(s), m->experts);
  graph_node *n = graph_add(g, &operator_count_choices);
  n->dims[COUNT_TOKENS] = m->tokens;
  n->dims[COUNT_EXPERTS] = m->experts;
  n->dims[COUNT_TOPK] = m->topk;
  n->dims[COUNT_SEQUENCES] = balanced_sequences(s);
  n->dims[COUNT_GROUP] = balances_all(s) ? GROUP_TP_DP : GROUP_TP_CP;
  node_input(n, kept);
  node_output(n, counts);
  return counts;
}

/*
 * moe_utils.py, switch_load_balancing_loss_func: coefficient x experts / (k tokens^2) x the sum
 * over experts of (how often the expert is chosen) x (the sum of its scores). seq_aux_loss: the
 * mean of the losses of the sequences.
 */
static void set_balancing(graph_node *n, const settings *s, const moe_sizes *m, tensor_id kept)
{
  int64_t sequences = balanced_sequences(s);
  double tokens = (double)(m->tokens / sequences * counting_ranks(s));
  n->dims[ATTACH_TOKENS] = m->tokens;
  n->dims[ATTACH_EXPERTS] = m->experts;
  n->dims[ATTACH_TOPK] = m->topk;
  n->dims[ATTACH_SCORES] = kept;
  n->scalars[0] = s->model.moe_aux_loss_coeff * (double)m->experts /
                  ((double)m->topk * tokens * tokens) / (double)sequences * loss_scale(s);
  n->scalars[1] = (double)sequences;
}

/* router.py, attach_and_log_load_balancing_loss: attaches the loss to the probabilities. */
static moe_routing with_aux_loss(graph *g, const settings *s, const moe_sizes *m, tensor_id logits,
                                 moe_routing r)
{
  if (!has_aux_loss(s)) return r;
  tensor_id kept = 0;
  graph_node *n = NULL;
  tensor_id scores = aux_scores(g, s, m, logits, &kept);
  tensor_id counts = shared_counts(g, s, m, kept);
  r.probs = with_loss(g, "probs_with_loss", r.probs, scores, &n);
  node_input(n, counts);
  node_save(n, counts);
  set_balancing(n, s, m, kept);
  return r;
}

moe_routing moe_route(graph *g, const settings *s, const moe_sizes *m, tensor_id x)
{
  graph_site(g, site);
  tensor_id logits = with_z_loss(g, s, m, gating(g, s, m, x));
  moe_routing r;
  if (balances_by(s, BALANCE_SINKHORN))
    r = sinkhorn_choice(g, m, logits);
  else
    r = s->model.moe_router_fusion ? fused_choice(g, s, m, logits)
                                   : unfused_choice(g, s, m, logits);
  r = limited_to_capacity(g, m, r);
  r = with_aux_loss(g, s, m, logits, r);
  graph_keep(g, logits);
  return r;
}
