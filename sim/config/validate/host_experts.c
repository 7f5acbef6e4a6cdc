/*
 * Constraints of experts whose weights are on the host: Megatron-LM pull request #6494 at 917bf593
 * (transformer_config.py, __post_init__; moe/experts.py, OffloadingExpertsMLP; moe/experts_offloading.py;
 * optimizer/optimizer.py and distrib_optimizer.py, which find host parameters by their type).
 */
#include <inttypes.h>

#include "sim/config/validate/validate.h"

static const setting_key on_host = KEY_offload_moe_use_offloading_experts;

/* What the module always computes: settings of other experts are refused. */
static bool check_module(const settings *s, diag *d)
{
  const struct model_settings *m = &s->model;
  bool swiglu = m->swiglu && !m->quick_geglu && !m->squared_relu &&
                m->activation_func_clamp_value == 0 && !m->use_te_activation_func;

  return need(s, d, m->num_experts > 0, on_host, KEY_model_num_experts,
              "moe_use_offloading_experts needs num_experts") &&
         need(s, d, m->moe_grouped_gemm && s->model.implementation == IMPLEMENTATION_TE, on_host,
              KEY_model_moe_grouped_gemm,
              "moe_use_offloading_experts multiplies by Transformer Engine's grouped products; set "
              "moe_grouped_gemm and transformer_impl transformer_engine") &&
         need(s, d, swiglu, on_host, KEY_model_swiglu,
              "moe_use_offloading_experts has SwiGLU experts only; set swiglu and no other "
              "activation") &&
         need(s, d, !m->add_bias_linear, on_host, KEY_model_add_bias_linear,
              "experts of moe_use_offloading_experts have no biases; set add_bias_linear: false") &&
         need(s, d, !m->moe_apply_probs_on_input, on_host, KEY_model_moe_apply_probs_on_input,
              "moe_use_offloading_experts multiplies by probabilities after the activation, even "
              "with moe_apply_probs_on_input") &&
         need(s, d, s->parallel.expert_tensor_parallel_size == 1, on_host,
              KEY_parallel_expert_tensor_parallel_size,
              "moe_use_offloading_experts needs expert_tensor_parallel_size 1") &&
         need(s, d, s->training.gradient_accumulation_fusion, on_host,
              KEY_training_gradient_accumulation_fusion,
              "moe_use_offloading_experts needs gradient_accumulation_fusion");
}

static bool check_chunks(const settings *s, diag *d)
{
  int64_t chunks = s->offload.moe_offloading_num_chunks,
          stages = s->offload.moe_offloading_num_stages;
  int64_t local = s->model.num_experts / s->parallel.expert_model_parallel_size;
  setting_key key = KEY_offload_moe_offloading_num_chunks,
              of_stages = KEY_offload_moe_offloading_num_stages;

  return need(s, d, local % chunks == 0, key, key,
              "moe_offloading_num_chunks is %" PRId64 "; it must divide the %" PRId64
              " experts of a rank",
              chunks, local) &&
         need(s, d, chunks == 1 || stages > 1, of_stages, key,
              "moe_offloading_num_stages is 1; with %" PRId64
              " chunks it must be 2, or the next chunk would overwrite the one that is used",
              chunks) &&
         need(s, d, stages <= 2 || chunks <= 2, of_stages, key,
              "moe_offloading_num_stages is %" PRId64
              "; Megatron-LM's StreamManager has two copying streams and fails at the third chunk",
              stages);
}

static bool check_optimizer(const settings *s, diag *d)
{
  const struct training_settings *t = &s->training;
  bool sharded = s->parallel.use_distributed_optimizer;

  return need(s, d, t->bf16, on_host, KEY_training_bf16,
              "moe_use_offloading_experts needs bf16: Megatron-LM's optimizers know no other type "
              "of parameters on the host") &&
         need(s, d, !sharded || s->parallel.expert_model_parallel_size > 1, on_host,
              KEY_parallel_expert_model_parallel_size,
              "moe_use_offloading_experts with use_distributed_optimizer needs "
              "expert_model_parallel_size above 1: on one rank experts share their buffer with "
              "parameters on the device, and so move there") &&
         need(s, d, s->parallel.num_distributed_optimizer_instances == 1, on_host,
              KEY_parallel_num_distributed_optimizer_instances,
              "moe_use_offloading_experts with num_distributed_optimizer_instances is not "
              "modelled") &&
         need(s, d, !t->use_precision_aware_optimizer, on_host,
              KEY_training_use_precision_aware_optimizer,
              "moe_use_offloading_experts does not work with use_precision_aware_optimizer, "
              "whose kernels step parameters of the device") &&
         need(s, d, !t->optimizer_cpu_offload, on_host, KEY_training_optimizer_cpu_offload,
              "moe_use_offloading_experts with optimizer_cpu_offload is not modelled") &&
         need(s, d, !optimizer_is_muon(t->optimizer), on_host, KEY_training_optimizer,
              "moe_use_offloading_experts with Muon is not modelled") &&
         need(s, d, !t->resumes, on_host, KEY_training_resumes,
              "moe_use_offloading_experts with resumes is not modelled");
}

static bool check_others(const settings *s, diag *d)
{
  const struct training_settings *t = &s->training;

  return need(s, d, t->fp8_format == FP8_FORMAT_NONE, on_host, KEY_training_fp8_format,
              "moe_use_offloading_experts with fp8_format is not modelled: experts would compute "
              "in bf16") &&
         need(s, d, !t->delay_wgrad_compute, on_host, KEY_training_delay_wgrad_compute,
              "moe_use_offloading_experts does not work with delay_wgrad_compute: weight "
              "gradients are not delayed, and their hooks run twice") &&
         need(s, d, !s->parallel.overlap_moe_expert_parallel_comm, on_host,
              KEY_parallel_overlap_moe_expert_parallel_comm,
              "moe_use_offloading_experts with overlap_moe_expert_parallel_comm is not modelled") &&
         need(s, d, !s->parallel.use_megatron_fsdp, on_host, KEY_parallel_use_megatron_fsdp,
              "moe_use_offloading_experts with use_megatron_fsdp is not modelled") &&
         need(s, d, t->cuda_graph_impl == GRAPHS_NONE, on_host, KEY_training_cuda_graph_impl,
              "moe_use_offloading_experts with cuda_graph_impl is not modelled") &&
         need(s, d, !s->offload.moe_paged_stash, on_host, KEY_offload_moe_paged_stash,
              "moe_use_offloading_experts replaces the module whose tensors moe_paged_stash "
              "packs") &&
         need(s, d, s->model.moe_expert_rank_capacity_factor == 0, on_host,
              KEY_model_moe_expert_rank_capacity_factor,
              "moe_use_offloading_experts reads each expert's rows on the host; leave out "
              "moe_expert_rank_capacity_factor") &&
         need(s, d, s->derived.software.transformer_engine >= SOFTWARE_VERSION(1, 9), on_host,
              KEY_software_container,
              "moe_use_offloading_experts needs Transformer Engine 1.9; container is \"%.100s\"",
              s->software.container);
}

bool validate_host_experts(const settings *s, diag *d)
{
  return !s->offload.moe_use_offloading_experts || uses_hf(s) ||
         (check_module(s, d) && check_chunks(s, d) && check_optimizer(s, d) && check_others(s, d));
}
