/* Constraints of the paged stash: transformer_config.py (__post_init__), and experts.py
 * (TEGroupedMLP._is_fused_impl_supported) for the fused grouped MLP whose tensors it packs. */
#include "sim/config/validate/validate.h"

static setting_key stash_key(const settings *s)
{
  return s->given[KEY_offload_moe_paged_stash] ? KEY_offload_moe_paged_stash : KEY_offload_system;
}

static bool check_fused_mlp(const settings *s, diag *d)
{
  setting_key key = stash_key(s);
  const struct model_settings *m = &s->model;

  return !m->use_transformer_engine_op_fuser ||
         (need(
              s, d, s->derived.software.transformer_engine >= SOFTWARE_VERSION(2, 14), key,
              KEY_software_container,
              "moe_paged_stash with use_transformer_engine_op_fuser needs Transformer Engine 2.14; "
              "container is \"%.100s\"",
              s->software.container) &&
          need(s, d, s->parallel.expert_tensor_parallel_size == 1, key,
               KEY_parallel_expert_tensor_parallel_size,
               "moe_paged_stash with use_transformer_engine_op_fuser needs "
               "expert_tensor_parallel_size 1") &&
          need(s, d, !m->moe_apply_probs_on_input, key, KEY_model_moe_apply_probs_on_input,
               "moe_paged_stash with use_transformer_engine_op_fuser does not work with "
               "moe_apply_probs_on_input"));
}

bool validate_paged_stash(const settings *s, diag *d)
{
  const choice_list *modules = &s->offload.offload_modules;
  setting_key key = stash_key(s);
  bool inside = has_choice(modules, OFFLOAD_EXPERT_FC1) || has_choice(modules, OFFLOAD_MOE_ACT) ||
                has_choice(modules, OFFLOAD_FUSED_GROUP_MLP);

  return !s->offload.moe_paged_stash ||
         (need(s, d, !s->offload.cpu_offloading, key, KEY_offload_cpu_offloading,
               "moe_paged_stash does not work with cpu_offloading") &&
          need(
              s, d, !s->parallel.overlap_moe_expert_parallel_comm, key,
              KEY_parallel_overlap_moe_expert_parallel_comm,
              "moe_paged_stash with overlap_moe_expert_parallel_comm is not modelled: forwards and "
              "backwards of layers take turns; leave one of them out") &&
          need(s, d, s->model.moe_expert_rank_capacity_factor > 0, key,
               KEY_model_moe_expert_rank_capacity_factor,
               "moe_paged_stash needs moe_expert_rank_capacity_factor: without it, nothing is "
               "padded") &&
          need(s, d, !inside, KEY_offload_offload_modules, key,
               "offload_modules expert_fc1, moe_act and fused_group_mlp do not work with "
               "moe_paged_stash, which holds the same tensors") &&
          check_fused_mlp(s, d));
}
