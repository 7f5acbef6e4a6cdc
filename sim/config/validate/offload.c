/*
 * Constraints of offloading: the fine_grained_activation_offloading part of
 * megatron/core/transformer/transformer_config.py (__post_init__) and
 * megatron/training/arguments.py (validate_args).
 */
#include <inttypes.h>

#include "sim/config/validate/validate.h"

static bool offloads(const settings *s, offload_modules_choice module)
{
  return has_choice(&s->offload.offload_modules, module);
}

/* The fused grouped MLP moves as a whole, its parts only without fuser (transformer_config.py,
 * moe/experts.py). */
static bool check_fuser(const settings *s, diag *d)
{
  setting_key key = KEY_offload_offload_modules, fuser = KEY_model_use_transformer_engine_op_fuser;
  bool whole = offloads(s, OFFLOAD_FUSED_GROUP_MLP);
  bool parts = offloads(s, OFFLOAD_EXPERT_FC1) || offloads(s, OFFLOAD_MOE_ACT);
  bool fused = s->model.use_transformer_engine_op_fuser;

  return need(s, d, !whole || fused, key, fuser,
              "offload_modules has fused_group_mlp, which needs use_transformer_engine_op_fuser") &&
         need(s, d, !whole || !parts, key, key,
              "offload_modules has fused_group_mlp beside expert_fc1 or moe_act; the whole MLP and "
              "its parts cannot both move") &&
         need(s, d, !fused || !parts, key, fuser,
              "offload_modules expert_fc1 and moe_act do not work with "
              "use_transformer_engine_op_fuser; offload fused_group_mlp instead") &&
         need(s, d, !whole || s->derived.software.transformer_engine >= SOFTWARE_VERSION(2, 14),
              key, KEY_software_container,
              "offload_modules has fused_group_mlp, which needs Transformer Engine 2.14; container "
              "is \"%.100s\"",
              s->software.container) &&
         need(s, d, !whole || s->parallel.expert_tensor_parallel_size == 1, key,
              KEY_parallel_expert_tensor_parallel_size,
              "offload_modules has fused_group_mlp, which needs expert_tensor_parallel_size 1");
}

static bool check_modules(const settings *s, diag *d)
{
  setting_key key = KEY_offload_offload_modules;
  bool selective = s->recompute.recompute_granularity == GRANULARITY_SELECTIVE;
  bool inside_moe = offloads(s, OFFLOAD_MOE_ACT) || offloads(s, OFFLOAD_EXPERT_FC1) ||
                    offloads(s, OFFLOAD_FUSED_GROUP_MLP);

  return need(s, d, s->offload.offload_modules.count > 0, key,
              KEY_offload_fine_grained_activation_offloading,
              "offload_modules is empty; offloading needs at least one module") &&
         need(s, d, !offloads(s, OFFLOAD_ATTN_PROJ) || offloads(s, OFFLOAD_CORE_ATTN), key, key,
              "offload_modules has attn_proj without core_attn; the input of the projection is the "
              "output of core attention, whose backward needs it") &&
         need(s, d,
              !inside_moe || !selective ||
                  !has_choice(&s->recompute.recompute_modules, RECOMPUTE_MOE),
              key, KEY_recompute_recompute_modules,
              "offload_modules moe_act, expert_fc1 and fused_group_mlp do not work with "
              "recompute_modules moe, which computes the whole MoE layer again") &&
         check_fuser(s, d);
}

/* Copies inside a captured graph (transformer_layer.py, _set_offload_modules). */
static bool check_captured(const settings *s, diag *d)
{
  const software_release *software = &s->derived.software;
  bool captured = has_choice(&s->training.cuda_graph_modules, CAPTURE_ATTN) &&
                  (offloads(s, OFFLOAD_CORE_ATTN) || offloads(s, OFFLOAD_ATTN_PROJ) ||
                   offloads(s, OFFLOAD_QKV_LINEAR));

  return need(s, d,
              !captured || (software->pytorch >= SOFTWARE_VERSION(2, 9) &&
                            software->transformer_engine >= SOFTWARE_VERSION(2, 14)),
              KEY_training_cuda_graph_modules, KEY_software_container,
              "cuda_graph_modules has attn, and offload_modules core_attn, attn_proj or qkv_linear "
              "inside it, which needs PyTorch 2.9 and Transformer Engine 2.14; container is "
              "\"%.100s\"",
              s->software.container);
}

/* With CUDA graphs. */
static bool check_graphs(const settings *s, diag *d)
{
  const struct training_settings *t = &s->training;
  setting_key impl = KEY_training_cuda_graph_impl, modules = KEY_training_cuda_graph_modules;
  bool local = t->cuda_graph_impl == GRAPHS_LOCAL;
  uint32_t in_experts = (uint32_t)offloads(s, OFFLOAD_EXPERT_FC1) + offloads(s, OFFLOAD_MOE_ACT) +
                        offloads(s, OFFLOAD_FUSED_GROUP_MLP);

  if (t->cuda_graph_impl == GRAPHS_NONE) {
    return true;
  }
  return need(s, d, !local || in_experts == s->offload.offload_modules.count,
              KEY_offload_offload_modules, impl,
              "with cuda_graph_impl local, offload_modules may have expert_fc1, moe_act and "
              "fused_group_mlp alone") &&
         need(s, d, !local || t->cuda_graph_modules.count > 0, impl, modules,
              "cuda_graph_impl local with empty cuda_graph_modules captures whole layers, which "
              "cannot be offloaded") &&
         need(s, d, !has_choice(&t->cuda_graph_modules, CAPTURE_MOE), modules, impl,
              "cuda_graph_modules moe does not work with offloading") &&
         need(s, d, t->cuda_graph_warmup_steps > 0, KEY_training_cuda_graph_warmup_steps, impl,
              "cuda_graph_warmup_steps is 0; offloading needs at least 1") &&
         need(s, d,
              t->cuda_graph_impl != GRAPHS_FULL_ITERATION ||
                  s->offload.fine_grained_offloading_max_inflight_offloads != UNSET,
              impl, impl,
              "cuda_graph_impl full_iteration with offloading needs "
              "fine_grained_offloading_max_inflight_offloads") &&
         check_captured(s, d);
}

static bool check_neighbours(const settings *s, diag *d)
{
  setting_key key = KEY_offload_fine_grained_activation_offloading;
  bool ncclep = s->model.moe_token_dispatcher_type == DISPATCHER_FLEX &&
                s->model.moe_flex_dispatcher_backend == FLEX_NCCLEP;

  return need(s, d, !s->offload.cpu_offloading, KEY_offload_cpu_offloading, key,
              "cpu_offloading and fine_grained_activation_offloading cannot both be used") &&
         need(s, d, s->model.transformer_impl == TRANSFORMER_TE, key, KEY_model_transformer_impl,
              "fine_grained_activation_offloading needs transformer_impl transformer_engine; it is "
              "%s",
              chosen_word(s, KEY_model_transformer_impl)) &&
         need(s, d,
              !s->parallel.overlap_moe_expert_parallel_comm || !ncclep ||
                  !offloads(s, OFFLOAD_EXPERT_FC1),
              KEY_offload_offload_modules, KEY_parallel_overlap_moe_expert_parallel_comm,
              "offload_modules expert_fc1 does not work with overlap_moe_expert_parallel_comm on "
              "the ncclep backend");
}

static bool has_layer_everywhere(const settings *s)
{
  int64_t count = s->parallel.pipeline_model_parallel_size * s->derived.virtual_stages;

  for (int64_t k = 0; k < count; k++) {
    if (s->derived.stages[k].layer_count == 0) {
      return false;
    }
  }
  return true;
}

/* The first version of the feature, which PR #1752 of Megatron-LM measured. */
static bool check_variant(const settings *s, diag *d)
{
  setting_key key = KEY_offload_offload_modules;

  return need(s, d, s->offload.offload_modules.count == 1 && offloads(s, OFFLOAD_CORE_ATTN), key,
              KEY_offload_system, "offload system megatron_pr1752 offloads core_attn alone") &&
         need(s, d, s->derived.virtual_stages > 1, KEY_offload_system, KEY_offload_system,
              "offload system megatron_pr1752 needs virtual pipeline stages") &&
         need(s, d, has_layer_everywhere(s), KEY_offload_system,
              KEY_parallel_pipeline_model_parallel_layout,
              "offload system megatron_pr1752 needs a decoder layer on every virtual stage") &&
         need(s, d, s->recompute.recompute_granularity != GRANULARITY_FULL, KEY_offload_system,
              KEY_recompute_recompute_granularity,
              "offload system megatron_pr1752 does not work with recompute_granularity full, which "
              "leaves layers without a group of their own");
}

/* Of the engines themselves: get_cpu_offload_context (transformer_engine/pytorch/cpu_offload.py).
 */
static bool check_layer_engine(const settings *s, diag *d)
{
  setting_key count = KEY_offload_cpu_offloading_num_layers, key = KEY_offload_system;
  int64_t release = s->derived.software.transformer_engine;

  return need(s, d, !s->offload.fine_grained_activation_offloading,
              KEY_offload_fine_grained_activation_offloading, key,
              "cpu_offloading and fine_grained_activation_offloading cannot both be used") &&
         need(s, d, s->offload.cpu_offloading_activations, KEY_offload_cpu_offloading_activations,
              key, "offload system %s needs cpu_offloading_activations", chosen_word(s, key)) &&
         need(s, d, s->offload.system == SYSTEM_te_v2 || s->offload.cpu_offloading_num_layers > 0,
              count, key, "cpu_offloading_num_layers is 0; offload system te_v1 needs a layer") &&
         need(s, d, s->offload.system == SYSTEM_te_v1 || release >= SOFTWARE_VERSION(2, 10), key,
              KEY_software_container,
              "offload system te_v2 needs Transformer Engine 2.10; container is \"%.100s\"",
              s->software.container);
}

static bool check_layer_level(const settings *s, diag *d)
{
  setting_key count = KEY_offload_cpu_offloading_num_layers, key = KEY_offload_cpu_offloading;

  /* Megatron-LM's own conditions; it does not use the manual mode. */
  bool manual = s->offload.cpu_offloading_manual_synchronization;

  return !s->offload.cpu_offloading ||
         (need(s, d, manual || s->offload.cpu_offloading_num_layers < s->model.num_layers, count,
               key,
               "cpu_offloading_num_layers is %" PRId64 "; it must be less than num_layers (%" PRId64
               ")",
               s->offload.cpu_offloading_num_layers, s->model.num_layers) &&
          need(s, d, manual || s->parallel.pipeline_model_parallel_size == 1, key, count,
               "cpu_offloading needs pipeline_model_parallel_size 1; it is %" PRId64,
               s->parallel.pipeline_model_parallel_size) &&
          need(s, d, s->offload.cpu_offloading_activations || s->offload.cpu_offloading_weights,
               KEY_offload_cpu_offloading_activations, key,
               "cpu_offloading_activations and cpu_offloading_weights are both false; "
               "cpu_offloading needs one of them") &&
          need(s, d, s->recompute.recompute_granularity == GRANULARITY_NONE, key, count,
               "cpu_offloading does not work with recomputation"));
}

static bool check_frozen(const settings *s, diag *d)
{
  return need(
      s, d, s->lora.adapter != ADAPTER_NONE, KEY_offload_system, KEY_lora_adapter,
      "offload system layer_offloading moves frozen parameters; without lora.adapter all of "
      "them train");
}

bool validate_offload(const settings *s, diag *d)
{
  if (!check_layer_level(s, d)) {
    return false;
  }
  if (s->offload.system == SYSTEM_layer_offloading) {
    return check_frozen(s, d);
  }
  if (s->offload.system == SYSTEM_none || uses_hf(s)) {
    return true;
  }
  if (offloads_layers(s)) {
    return check_layer_engine(s, d);
  }
  if (offload_scope_of(s) != OFFLOAD_MODULES) {
    return true;
  }
  return check_neighbours(s, d) && check_modules(s, d) && check_graphs(s, d) &&
         (s->offload.system != SYSTEM_megatron_pr1752 || check_variant(s, d));
}
