/* Constraints of mixture-of-experts layers. Sources: see validate.h. */
#include <inttypes.h>
#include <string.h>

#include "sim/config/validate/validate.h"

static bool check_without_experts(const settings *s, diag *d)
{
  const struct model_settings *m = &s->model;
  setting_key experts = KEY_model_num_experts;

  return need(s, d, s->parallel.expert_model_parallel_size == 1,
              KEY_parallel_expert_model_parallel_size, experts,
              "expert_model_parallel_size is %" PRId64 " but num_experts is 0; it must be 1",
              s->parallel.expert_model_parallel_size) &&
         need(s, d, m->moe_ffn_hidden_size == UNSET || strcmp(m->moe_layer_freq, "1") != 0,
              KEY_model_moe_ffn_hidden_size, experts,
              "moe_ffn_hidden_size is given but num_experts is 0");
}

static bool check_experts(const settings *s, diag *d)
{
  const struct model_settings *m = &s->model;
  int64_t etp = s->parallel.expert_tensor_parallel_size;
  int64_t widths[] = { m->moe_ffn_hidden_size, m->moe_shared_expert_intermediate_size };

  return need_multiple(s, d, KEY_model_num_experts, KEY_parallel_expert_model_parallel_size) &&
         need(s, d, widths[0] % etp == 0, KEY_model_moe_ffn_hidden_size,
              KEY_parallel_expert_tensor_parallel_size,
              "moe_ffn_hidden_size is %" PRId64
              "; it must be divisible by expert_tensor_parallel_size (%" PRId64 ")",
              widths[0], etp) &&
         need_multiple(s, d, KEY_model_moe_shared_expert_intermediate_size,
                       KEY_parallel_tensor_model_parallel_size) &&
         need(s, d, m->moe_router_topk <= m->num_experts, KEY_model_moe_router_topk,
              KEY_model_num_experts,
              "moe_router_topk is %" PRId64 "; it may be at most num_experts (%" PRId64 ")",
              m->moe_router_topk, m->num_experts) &&
         need(s, d, !m->moe_apply_probs_on_input || m->moe_router_topk == 1,
              KEY_model_moe_apply_probs_on_input, KEY_model_moe_router_topk,
              "moe_apply_probs_on_input needs moe_router_topk 1; it is %" PRId64,
              m->moe_router_topk) &&
         need(s, d, !m->add_bias_linear || widths[1] == 0, KEY_model_add_bias_linear,
              KEY_model_moe_shared_expert_intermediate_size,
              "add_bias_linear does not work with shared experts") &&
         need(s, d, !m->add_bias_linear || etp == 1, KEY_model_add_bias_linear,
              KEY_parallel_expert_tensor_parallel_size,
              "add_bias_linear works in experts only with expert_tensor_parallel_size 1, as in "
              "Megatron-LM; it is %" PRId64,
              etp) &&
         need(s, d, s->parallel.tensor_model_parallel_size == 1 || s->parallel.sequence_parallel,
              KEY_parallel_sequence_parallel, KEY_parallel_tensor_model_parallel_size,
              "a model with experts on tensor_model_parallel_size %" PRId64
              " must be trained with sequence_parallel",
              s->parallel.tensor_model_parallel_size);
}

static bool check_weighted_outputs(const settings *s, diag *d)
{
  const struct model_settings *m = &s->model;
  bool flex = m->moe_token_dispatcher_type == DISPATCHER_FLEX;
  bool modelled = !flex && !m->add_bias_linear && m->moe_router_dtype == ROUTER_DTYPE_EMPTY &&
                  !m->moe_apply_probs_on_input && !s->parallel.overlap_moe_expert_parallel_comm;

  return need(s, d, !s->derived.weighs_expert_outputs || modelled, KEY_software_megatron_day,
              KEY_software_container,
              "Megatron-LM before 2025-04-09 multiplies the experts' outputs by the router's "
              "probabilities; this is modelled with moe_token_dispatcher_type allgather and "
              "alltoall, without add_bias_linear, moe_router_dtype, moe_apply_probs_on_input and "
              "overlap_moe_expert_parallel_comm");
}

static bool check_groups(const settings *s, diag *d)
{
  const struct model_settings *m = &s->model;
  setting_key topk = KEY_model_moe_router_group_topk;

  return m->moe_router_group_topk == 0 ||
         (need(s, d, m->moe_router_num_groups > 0, topk, topk,
               "moe_router_group_topk needs moe_router_num_groups") &&
          need_multiple(s, d, KEY_model_num_experts, KEY_model_moe_router_num_groups) &&
          need(s, d, m->moe_router_group_topk <= m->moe_router_num_groups, topk,
               KEY_model_moe_router_num_groups,
               "moe_router_group_topk is %" PRId64
               "; it may be at most moe_router_num_groups (%" PRId64 ")",
               m->moe_router_group_topk, m->moe_router_num_groups));
}

static bool check_router(const settings *s, diag *d)
{
  const struct model_settings *m = &s->model;
  bool softmax = m->moe_router_score_function == SCORES_SOFTMAX;
  bool sinkhorn = has_choice(&m->moe_router_load_balancing_type, BALANCE_SINKHORN);
  setting_key bias = KEY_model_moe_router_enable_expert_bias;

  return need(s, d, !m->moe_router_enable_expert_bias || !softmax, bias,
              KEY_model_moe_router_score_function,
              "moe_router_enable_expert_bias needs moe_router_score_function sigmoid or "
              "sqrtsoftplus; it is softmax") &&
         need(s, d, m->moe_router_topk != 1 || !softmax || m->moe_router_pre_softmax || sinkhorn,
              KEY_model_moe_router_topk, KEY_model_moe_router_pre_softmax,
              "moe_router_topk 1 with softmax scores needs moe_router_pre_softmax: a softmax over "
              "one expert has no gradient") &&
         need(s, d, m->moe_expert_capacity_factor < 0 || !sinkhorn,
              KEY_model_moe_expert_capacity_factor, KEY_model_moe_router_load_balancing_type,
              "moe_expert_capacity_factor does not work with moe_router_load_balancing_type "
              "sinkhorn");
}

static bool check_dispatcher(const settings *s, diag *d)
{
  const struct model_settings *m = &s->model;
  moe_token_dispatcher_type_choice type = m->moe_token_dispatcher_type;
  moe_flex_dispatcher_backend_choice backend = m->moe_flex_dispatcher_backend;
  setting_key key = KEY_model_moe_token_dispatcher_type;
  bool flex = type == DISPATCHER_FLEX;
  bool exchanges = flex || type == DISPATCHER_ALLTOALL;
  bool fp8 = s->training.fp8_format != FP8_FORMAT_NONE;

  return need(
             s, d, !m->moe_shared_expert_overlap || exchanges, KEY_model_moe_shared_expert_overlap,
             key,
             "moe_shared_expert_overlap needs moe_token_dispatcher_type alltoall or flex; it is %s",
             chosen_word(s, KEY_model_moe_token_dispatcher_type)) &&
         need(s, d, backend != FLEX_NCCLEP || flex, KEY_model_moe_flex_dispatcher_backend, key,
              "moe_flex_dispatcher_backend ncclep needs moe_token_dispatcher_type flex; it is %s",
              chosen_word(s, KEY_model_moe_token_dispatcher_type)) &&
         need(s, d, !m->moe_pad_expert_input_to_capacity || m->moe_expert_capacity_factor >= 0,
              KEY_model_moe_pad_expert_input_to_capacity, KEY_model_moe_expert_capacity_factor,
              "moe_pad_expert_input_to_capacity needs moe_expert_capacity_factor") &&
         need(s, d, !m->moe_pad_expert_input_to_capacity || !flex || backend != FLEX_DEEPEP,
              KEY_model_moe_pad_expert_input_to_capacity, key,
              "moe_pad_expert_input_to_capacity does not work with the deepep backend of the flex "
              "dispatcher") &&
         need(s, d, !m->moe_router_padding_for_quantization || fp8,
              KEY_model_moe_router_padding_for_quantization, KEY_training_fp8_format,
              "moe_router_padding_for_quantization needs fp8_format") &&
         need(s, d, !m->moe_router_padding_for_quantization || exchanges,
              KEY_model_moe_router_padding_for_quantization, key,
              "moe_router_padding_for_quantization needs moe_token_dispatcher_type alltoall or "
              "flex; it is %s",
              chosen_word(s, KEY_model_moe_token_dispatcher_type));
}

/* Static buffers of a rank (core/transformer/moe/token_dispatcher.py, _HybridEPManager). What
 * exceeds them makes Megatron repeat the step without them. */
static bool check_rank_capacity(const settings *s, diag *d)
{
  const struct model_settings *m = &s->model;
  moe_flex_dispatcher_backend_choice backend = m->moe_flex_dispatcher_backend;
  setting_key key = KEY_model_moe_expert_rank_capacity_factor;
  bool static_rows = m->moe_use_grouped_tensor || m->use_transformer_engine_op_fuser;

  return m->moe_expert_rank_capacity_factor == 0 ||
         (need(s, d, backend == FLEX_HYBRIDEP || backend == FLEX_NCCLEP, key,
               KEY_model_moe_flex_dispatcher_backend,
               "moe_expert_rank_capacity_factor needs moe_flex_dispatcher_backend hybridep or "
               "ncclep; it is %s",
               chosen_word(s, KEY_model_moe_flex_dispatcher_backend)) &&
          need(s, d, static_rows || backend != FLEX_HYBRIDEP, key, key,
               "moe_expert_rank_capacity_factor with the hybridep backend needs "
               "use_transformer_engine_op_fuser or moe_use_grouped_tensor") &&
          need(s, d, m->moe_imbalance <= m->moe_expert_rank_capacity_factor, key,
               KEY_model_moe_imbalance,
               "moe_expert_rank_capacity_factor is less than moe_imbalance: the busiest rank would "
               "run every step twice, the second time with larger buffers"));
}

/* Conditions of the overlap of the token exchange with another micro-batch's compute. */
static bool check_needs_of_overlap(const settings *s, diag *d)
{
  const struct parallel_settings *p = &s->parallel;
  setting_key key = KEY_parallel_overlap_moe_expert_parallel_comm;
  moe_token_dispatcher_type_choice type = s->model.moe_token_dispatcher_type;

  return need(s, d, p->pipeline_model_parallel_size == 1 || s->derived.virtual_stages > 1, key, key,
              "overlap_moe_expert_parallel_comm in a pipeline needs virtual stages") &&
         need(s, d, s->derived.software.pytorch >= SOFTWARE_VERSION(2, 6), key,
              KEY_software_container,
              "overlap_moe_expert_parallel_comm needs PyTorch 2.6, which comes with "
              "pytorch:24.11-py3; container is \"%.100s\"",
              s->software.container) &&
         need(s, d, p->expert_model_parallel_size > 1, key, key,
              "overlap_moe_expert_parallel_comm needs an expert_model_parallel_size above 1") &&
         need(s, d, type == DISPATCHER_ALLTOALL || type == DISPATCHER_FLEX, key,
              KEY_model_moe_token_dispatcher_type,
              "overlap_moe_expert_parallel_comm needs moe_token_dispatcher_type alltoall or flex; "
              "it is %s",
              chosen_word(s, KEY_model_moe_token_dispatcher_type)) &&
         need(s, d, s->training.bf16 || s->training.fp16, key, key,
              "overlap_moe_expert_parallel_comm needs bf16 or fp16");
}

static bool keeps_experts_in_bf16(const settings *s)
{
  const struct training_settings *t = &s->training;
  int64_t end = s->model.num_layers - t->num_layers_at_end_in_bf16;

  for (int64_t i = 0; t->first_last_layers_bf16 && i < s->model.num_layers; i++)
    if (s->derived.layer_is_moe[i] && (i < t->num_layers_at_start_in_bf16 || i >= end)) return true;
  return false;
}

/* With fp8 the schedule empties every layer's experts' input after forward, as if all of them had
 * saved a copy (megatron/core/models/common/utils.py, should_free_input). The product with the
 * probabilities, before fp8, has saved the input itself. */
static bool check_emptied_input(const settings *s, diag *d)
{
  const struct model_settings *m = &s->model;
  bool flex = m->moe_token_dispatcher_type == DISPATCHER_FLEX;
  bool reordered = flex ? m->moe_flex_dispatcher_backend == FLEX_DEEPEP
                        : m->num_experts > s->parallel.expert_model_parallel_size;

  bool emptied = s->training.fp8_format != FP8_FORMAT_NONE && !reordered;

  return need(
             s, d, !emptied || !m->moe_apply_probs_on_input, KEY_model_moe_apply_probs_on_input,
             KEY_parallel_overlap_moe_expert_parallel_comm,
             "with overlap_moe_expert_parallel_comm and fp8_format, moe_apply_probs_on_input loses "
             "the experts' input before backward; use the deepep backend, or alltoall with more "
             "than one expert on a rank") &&
         need(s, d, !emptied || !keeps_experts_in_bf16(s), KEY_training_first_last_layers_bf16,
              KEY_parallel_overlap_moe_expert_parallel_comm,
              "with overlap_moe_expert_parallel_comm and fp8_format, experts in layers that "
              "first_last_layers_bf16 keeps in bf16 lose their input before backward; use the "
              "deepep backend, or alltoall with more than one expert on a rank");
}

/* Settings that it excludes. */
static bool check_conflicts_of_overlap(const settings *s, diag *d)
{
  const struct model_settings *m = &s->model;
  const struct recompute_settings *r = &s->recompute;
  setting_key key = KEY_parallel_overlap_moe_expert_parallel_comm;
  bool te_graphs = s->training.cuda_graph_impl == GRAPHS_TE;

  return need(s, d, r->recompute_granularity != GRANULARITY_FULL, key,
              KEY_recompute_recompute_granularity,
              "overlap_moe_expert_parallel_comm does not work with recompute_granularity full") &&
         need(s, d, r->recompute_method == METHOD_NONE && r->recompute_num_layers == UNSET,
              KEY_recompute_recompute_method, KEY_recompute_recompute_num_layers,
              "recompute_method and recompute_num_layers do not work with "
              "overlap_moe_expert_parallel_comm") &&
         need(s, d, !has_choice(&r->recompute_modules, RECOMPUTE_MOE),
              KEY_recompute_recompute_modules, key,
              "recompute_modules has moe, which does not work with "
              "overlap_moe_expert_parallel_comm") &&
         need(s, d, !m->moe_shared_expert_overlap, KEY_model_moe_shared_expert_overlap, key,
              "moe_shared_expert_overlap does not work with overlap_moe_expert_parallel_comm") &&
         need(s, d, m->mtp_num_layers <= 1, KEY_model_mtp_num_layers, key,
              "mtp_num_layers is %" PRId64
              "; with overlap_moe_expert_parallel_comm it may be at most 1",
              m->mtp_num_layers) &&
         need(s, d,
              !te_graphs || (!has_choice(&s->training.cuda_graph_modules, CAPTURE_MOE) &&
                             !has_choice(&s->training.cuda_graph_modules, CAPTURE_MLP)),
              KEY_training_cuda_graph_modules, key,
              "cuda_graph_modules moe and mlp do not work with overlap_moe_expert_parallel_comm");
}

static bool check_overlap(const settings *s, diag *d)
{
  if (!s->parallel.overlap_moe_expert_parallel_comm) {
    setting_key key = KEY_parallel_overlap_moe_expert_parallel_comm;
    return need(s, d, !s->training.delay_wgrad_compute, KEY_training_delay_wgrad_compute, key,
                "delay_wgrad_compute needs overlap_moe_expert_parallel_comm") &&
           need(s, d, !s->parallel.ep_overlap_early_attn_memory_release,
                KEY_parallel_ep_overlap_early_attn_memory_release, key,
                "ep_overlap_early_attn_memory_release needs overlap_moe_expert_parallel_comm");
  }
  return need(s, d, !s->training.delay_wgrad_compute || s->model.transformer_impl == TRANSFORMER_TE,
              KEY_training_delay_wgrad_compute, KEY_model_transformer_impl,
              "delay_wgrad_compute needs transformer_impl transformer_engine") &&
         check_needs_of_overlap(s, d) && check_conflicts_of_overlap(s, d) &&
         check_emptied_input(s, d);
}

bool validate_moe(const settings *s, diag *d)
{
  if (s->model.num_experts == 0) {
    return check_without_experts(s, d) && check_overlap(s, d);
  }
  return check_experts(s, d) && check_groups(s, d) && check_router(s, d) &&
         check_dispatcher(s, d) && check_rank_capacity(s, d) && check_overlap(s, d) &&
         check_weighted_outputs(s, d);
}
