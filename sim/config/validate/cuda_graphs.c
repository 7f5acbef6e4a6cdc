/* Constraints of CUDA graphs: megatron/core/transformer/transformer_config.py, __post_init__. */
#include "sim/config/validate/validate.h"

static bool has(const settings *s, cuda_graph_modules_choice module)
{
  return has_choice(&s->training.cuda_graph_modules, module);
}

static bool has_dense_layer(const settings *s)
{
  for (int64_t i = 0; i < s->model.num_layers; i++) {
    if (!s->derived.layer_is_moe[i]) {
      return true;
    }
  }
  return false;
}

static bool check_modules(const settings *s, diag *d)
{
  const struct model_settings *m = &s->model;
  setting_key key = KEY_training_cuda_graph_modules;
  bool drops_and_pads = m->moe_expert_capacity_factor >= 0 && m->moe_pad_expert_input_to_capacity;
  bool host_counts = m->moe_token_dispatcher_type == DISPATCHER_ALLTOALL && !drops_and_pads &&
                     (m->moe_expert_capacity_factor >= 0 || m->moe_router_padding_for_quantization);

  return need(s, d, !has(s, CAPTURE_MOE) || !has(s, CAPTURE_MOE_ROUTER), key, key,
              "cuda_graph_modules has both moe and moe_router; give one of them") &&
         need(s, d, !has(s, CAPTURE_MOE_PREPROCESS) || has(s, CAPTURE_MOE_ROUTER), key, key,
              "cuda_graph_modules has moe_preprocess, which needs moe_router") &&
         need(s, d, m->num_experts > 1 || (!has(s, CAPTURE_MOE) && !has(s, CAPTURE_MOE_ROUTER)),
              key, KEY_model_num_experts,
              "cuda_graph_modules moe and moe_router need a model with experts") &&
         need(s, d, !has(s, CAPTURE_MOE) || drops_and_pads, key, key,
              "cuda_graph_modules moe needs moe_expert_capacity_factor and "
              "moe_pad_expert_input_to_capacity") &&
         need(s, d, !has(s, CAPTURE_MLP) || has_dense_layer(s), key, KEY_model_moe_layer_freq,
              "cuda_graph_modules mlp needs a dense layer; every layer has experts") &&
         need(s, d, !has(s, CAPTURE_MOE_PREPROCESS) || !host_counts, key, key,
              "cuda_graph_modules moe_preprocess does not work with the alltoall dispatcher where "
              "the host reads counts (moe_expert_capacity_factor, "
              "moe_router_padding_for_quantization)");
}

/* A recomputed part is inside a graph or outside, and draws no random numbers inside one. */
static bool check_recompute(const settings *s, diag *d)
{
  const choice_list *modules = &s->recompute.recompute_modules;
  setting_key key = KEY_recompute_recompute_modules, graph = KEY_training_cuda_graph_impl;
  bool whole = s->training.cuda_graph_modules.count == 0;
  bool te = s->training.cuda_graph_impl == GRAPHS_TE;
  bool attention = (whole || has(s, CAPTURE_ATTN)) && has_choice(modules, RECOMPUTE_CORE_ATTN);
  bool mlp = (whole || has(s, CAPTURE_MLP)) && has_choice(modules, RECOMPUTE_MLP);
  bool moe = (whole || has(s, CAPTURE_MOE)) && has_choice(modules, RECOMPUTE_MOE);

  if (s->recompute.recompute_granularity != GRANULARITY_SELECTIVE) {
    return true;
  }
  return need(s, d, !te || !has_choice(modules, RECOMPUTE_MOE) || !has(s, CAPTURE_MOE_ROUTER), key,
              graph, "recompute_modules moe does not work with cuda_graph_modules moe_router") &&
         need(s, d, !attention || s->model.attention_dropout == 0, key, graph,
              "recompute_modules core_attn inside a CUDA graph needs attention_dropout 0") &&
         need(s, d, (!mlp && !moe) || s->model.hidden_dropout == 0, key, graph,
              "recompute_modules mlp and moe inside a CUDA graph need hidden_dropout 0");
}

bool validate_cuda_graphs(const settings *s, diag *d)
{
  const struct training_settings *t = &s->training;
  setting_key impl = KEY_training_cuda_graph_impl, modules = KEY_training_cuda_graph_modules;
  bool full = t->cuda_graph_impl == GRAPHS_FULL_ITERATION;

  if (t->cuda_graph_impl == GRAPHS_NONE) {
    return true;
  }
  return need(s, d, !full || t->cuda_graph_modules.count == 0, modules, impl,
              "cuda_graph_modules must be empty with cuda_graph_impl full_iteration") &&
         need(s, d, !full || !t->check_for_nan_in_loss_and_grad, impl,
              KEY_training_check_for_nan_in_loss_and_grad,
              "cuda_graph_impl full_iteration needs check_for_nan_in_loss_and_grad false") &&
         need(s, d, full || !s->offload.cpu_offloading, impl, KEY_offload_cpu_offloading,
              "cuda_graph_impl %s does not work with cpu_offloading",
              chosen_word(s, KEY_training_cuda_graph_impl)) &&
         need(s, d, full || s->recompute.recompute_granularity != GRANULARITY_FULL,
              KEY_recompute_recompute_granularity, impl,
              "recompute_granularity full needs cuda_graph_impl none or full_iteration; it is %s",
              chosen_word(s, KEY_training_cuda_graph_impl)) &&
         check_modules(s, d) && check_recompute(s, d);
}
