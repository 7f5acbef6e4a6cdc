#include "sim/offload/megatron_conditions.h"

#include <assert.h>

#include "sim/config/checks.h"
#include "sim/config/megatron_releases.h"
#include "sim/config/software.h"

static bool offloads(const settings *s, offload_modules_choice module)
{
  return has_choice(&s->offload.offload_modules, module);
}

/* The fused grouped MLP moves as a whole; its parts move only without the fuser
 * (transformer_config.py, moe/experts.py). */
static bool check_fuser(const settings *s, diag *d)
{
  setting_key key = KEY_offload_offload_modules, fuser = KEY_model_use_transformer_engine_op_fuser;
  bool whole = offloads(s, OFFLOAD_FUSED_GROUP_MLP);
  bool parts = offloads(s, OFFLOAD_EXPERT_FC1) || offloads(s, OFFLOAD_MOE_ACT);
  bool fused = s->model.use_transformer_engine_op_fuser;

  return need(s, d, !whole || fused, key, fuser,
              "offload_modules has fused_group_mlp, which needs use_transformer_engine_op_fuser") &&
         need(s, d, !whole || !parts, key, key,
              "offload_modules has fused_group_mlp and expert_fc1 or moe_act; the whole MLP and "
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

  bool whole_mlp = selective && has_choice(&s->recompute.recompute_modules, RECOMPUTE_MLP);

  return need(
             s, d, !offloads(s, OFFLOAD_MLP_ACT) || s->offload.mode != MODE_AS_RELEASED, key,
             KEY_offload_mode,
             "offload_modules has mlp_act, which no released Megatron-LM knows; it is a what-if of "
             "offload.mode fixed") &&
         need(s, d, !offloads(s, OFFLOAD_MLP_ACT) || !whole_mlp, key, key,
              "offload_modules has mlp_act, but recompute_modules has mlp: then forward saves "
              "nothing inside the MLP") &&
         need(s, d, s->offload.offload_modules.count > 0, key,
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
              "recompute_modules moe, which recomputes the whole MoE layer") &&
         check_fuser(s, d);
}

/* Pull request #5218, transformer_config.py. */
static bool check_layer_input(const settings *s, diag *d)
{
  const struct recompute_settings *r = &s->recompute;
  setting_key key = KEY_offload_offload_modules;

  if (!offloads(s, OFFLOAD_LAYER_INPUT)) {
    return true;
  }
  diag_note(d, s->at[key],
            "offload_modules layer_input is predicted as in Megatron-LM pull request #5218, which "
            "is not merged");
  return need(s, d, s->offload.offload_modules.count == 1, key, key,
              "offload_modules has layer_input and others; layer_input cannot be combined") &&
         need(s, d,
              r->recompute_granularity == GRANULARITY_FULL && r->recompute_method == METHOD_UNIFORM,
              key, KEY_recompute_recompute_granularity,
              "offload_modules has layer_input, the input of a checkpoint, which needs "
              "recompute_granularity full and recompute_method uniform") &&
         need(s, d, s->offload.mode != MODE_PR7575, KEY_offload_mode, key,
              "offload_modules layer_input with offload.mode pr7575 is not modelled: each changes "
              "when a group comes back") &&
         need(s, d, s->training.cuda_graph_impl == GRAPHS_NONE, KEY_training_cuda_graph_impl, key,
              "offload_modules layer_input with cuda_graph_impl is not modelled") &&
         need(s, d, s->software.megatron >= MEGATRON_MAIN_2026_08, KEY_software_megatron, key,
              "offload_modules layer_input is modelled with software.megatron main_2026_08 alone");
}

/* Conditions for copies inside a captured graph (transformer_layer.py, _set_offload_modules). */
static bool check_captured(const settings *s, diag *d)
{
  assert(s->training.cuda_graph_impl != GRAPHS_NONE);
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

/* Conditions with CUDA graphs. */
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
              "with cuda_graph_impl local, offload_modules may have only expert_fc1, moe_act and "
              "fused_group_mlp") &&
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

/* What older versions do not have (transformer_config.py at each tag). Markers are those of main in every
 * version. */
static bool check_version(const settings *s, diag *d)
{
  assert(s->software.megatron >= MEGATRON_CORE_V0_16 &&
         s->software.megatron <= MEGATRON_MAIN_2026_08);
  const struct offload_settings *o = &s->offload;
  setting_key version = KEY_software_megatron;
  uint32_t has = s->software.megatron;

  bool too_old = s->offload.system == SYSTEM_megatron && s->derived.megatron_day != 0 &&
                 s->derived.megatron_day < megatron_first_day();

  return need(s, d, !too_old, KEY_offload_fine_grained_activation_offloading,
              KEY_software_megatron_day,
              "fine_grained_activation_offloading needs megatron_day 2026-01-15 or later; it is %s",
              s->software.megatron_day) &&
         need(s, d,
              o->fine_grained_offloading_max_inflight_offloads == UNSET ||
                  has >= MEGATRON_CORE_V0_18,
              KEY_offload_fine_grained_offloading_max_inflight_offloads, version,
              "fine_grained_offloading_max_inflight_offloads needs software.megatron core_v0.18 or "
              "later") &&
         need(s, d, o->delta_offload_bytes_across_pp_ranks == 0 || has >= MEGATRON_CORE_V0_19,
              KEY_offload_delta_offload_bytes_across_pp_ranks, version,
              "delta_offload_bytes_across_pp_ranks needs software.megatron core_v0.19 or later") &&
         need(s, d, o->activation_offload_fraction == 1 || has >= MEGATRON_CORE_V0_19,
              KEY_offload_activation_offload_fraction, version,
              "activation_offload_fraction below 1 needs software.megatron core_v0.19 or later") &&
         need(s, d, !offloads(s, OFFLOAD_FUSED_GROUP_MLP) || has >= MEGATRON_CORE_V0_19,
              KEY_offload_offload_modules, version,
              "offload_modules has fused_group_mlp, which needs software.megatron core_v0.19 or "
              "later") &&
         need(
             s, d, s->training.cuda_graph_impl == GRAPHS_NONE || has >= MEGATRON_CORE_V0_19,
             KEY_training_cuda_graph_impl, version,
             "cuda_graph_impl with offloading before software.megatron core_v0.19 is not modelled");
}

bool megatron_conditions(const settings *s, diag *d)
{
  assert(s->offload.system == SYSTEM_megatron || s->offload.system == SYSTEM_megatron_pr1752);
  return check_version(s, d) && check_neighbours(s, d) && check_modules(s, d) &&
         check_layer_input(s, d) && check_graphs(s, d);
}
