/* Checks for settings that the reference execution does not support. */
#include "sim/graph/attention_backend.h"
#include "sim/model/megatron/moe.h"
#include "sim/plan/fp8_copy.h"
#include "sim/residents/parameters.h"
#include "sim/train/train.h"

static bool refuse(diag *d, source_pos at, const char *what)
{
  return diag_error(d, at, "the reference execution does not run %s", what);
}

static bool knows_optimizer(const settings *s, diag *d)
{
  static const optimizer_choice known[] = { OPTIMIZER_ADAM, OPTIMIZER_SGD, OPTIMIZER_ADAMW_TORCH,
                                            OPTIMIZER_ADAMW_TORCH_FUSED, OPTIMIZER_NONE };
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (s->training.optimizer == known[i]) return true;
  return diag_error(d, s->at[KEY_training_optimizer],
                    "the reference execution does not run optimizer %s; it runs adam, sgd, "
                    "adamw_torch and adamw_torch_fused",
                    chosen_word(s, KEY_training_optimizer));
}

/* Each rank has a different shard of the states, and the plan is the last rank's. */
static bool knows_sharding(const settings *s, diag *d)
{
  bool shared = s->derived.data_parallel_size * s->parallel.context_parallel_size > 1 ||
                (s->model.num_experts > 0 && s->derived.expert_data_parallel_size > 1);
  if (s->parallel.use_megatron_fsdp)
    return refuse(d, s->at[KEY_parallel_use_megatron_fsdp], "Megatron-FSDP");
  if (s->parallel.fsdp == FSDP_ZERO)
    return refuse(d, s->at[KEY_parallel_fsdp], "ZeRO; parallel.fsdp: fsdp2 it does");
  if (s->parallel.fsdp == FSDP_1)
    return refuse(d, s->at[KEY_parallel_fsdp],
                  "FSDP1, whose shards span parameters; it runs parallel.fsdp: fsdp2");
  if (s->parallel.fsdp != FSDP_NONE && s->parallel.world_size > 1)
    return refuse(d, s->at[KEY_parallel_fsdp], "FSDP over several ranks");
  if (s->parallel.use_distributed_optimizer && shared)
    return diag_error(d, s->at[KEY_parallel_use_distributed_optimizer],
                      "the reference execution does not run the distributed optimizer over several "
                      "ranks, whose shards the plan does not distinguish; set "
                      "parallel.use_distributed_optimizer: false");
  return true;
}

enum { MOST_LOCAL_EXPERTS = 48 }; /* operands of one kernel */

static bool knows_experts(const settings *s, diag *d)
{
  if (s->model.num_experts == 0 || !s->model.moe_grouped_gemm || uses_hf(s)) return true;
  if (!experts_are_grouped_by_te(s))
    return refuse(d, s->at[KEY_model_moe_grouped_gemm],
                  "experts whose weights are one tensor (Transformer Engine before 1.9)");
  if (s->model.num_experts / s->parallel.expert_model_parallel_size > MOST_LOCAL_EXPERTS)
    return diag_error(d, s->at[KEY_model_num_experts],
                      "the reference execution runs at most %d experts on a rank",
                      MOST_LOCAL_EXPERTS);
  return true;
}

enum { MOST_FLEX_EXPERTS = 31 }; /* bits of a table's entry */

/* The stash keeps a share of each tensor in proportion to its rows. For fp8 copies, whose scales
 * belong to tiles, that share is a copy of those rows only if they fill whole tiles. */
static bool knows_stash(const settings *s, const moe_sizes *m, diag *d)
{
  bool fills_tiles = m->rows % FP8_MX_TILE_OUTER == 0 && m->computed % FP8_MX_TILE_OUTER == 0;
  if (!s->offload.moe_paged_stash || fills_tiles) return true;
  return diag_error(d, s->at[KEY_model_moe_expert_rank_capacity_factor],
                    "the reference execution runs moe_paged_stash only with multiples of %d rows; "
                    "there are %lld in buffers of %lld",
                    FP8_MX_TILE_OUTER, (long long)m->computed, (long long)m->rows);
}

static bool knows_flex(const settings *s, const moe_sizes *m, diag *d)
{
  bool hybridep = s->model.moe_flex_dispatcher_backend != FLEX_DEEPEP;
  source_pos at = s->at[KEY_model_moe_token_dispatcher_type];
  if (m->local_experts > MOST_FLEX_EXPERTS)
    return diag_error(d, s->at[KEY_model_num_experts],
                      "the reference execution runs at most %d experts on a rank with the flex "
                      "dispatcher",
                      MOST_FLEX_EXPERTS);
  if (hybridep && m->slotted && !m->padded)
    return refuse(d, s->at[KEY_model_moe_grouped_gemm], "HybridEP without moe_grouped_gemm");
  if (!knows_stash(s, m, d)) return false;
  if (!hybridep && m->etp > 1) return refuse(d, at, "DeepEP over expert tensor parallel ranks");
  if (s->model.moe_apply_probs_on_input && s->model.moe_expert_rank_capacity_factor > 0)
    return refuse(d, s->at[KEY_model_moe_apply_probs_on_input],
                  "moe_apply_probs_on_input with moe_expert_rank_capacity_factor, whose rows "
                  "beyond those that arrived have no contents");
  return true;
}

/* A rank's rows for another rank's experts are equal parts of the buffer in the plan. */
static bool knows_exchange(const settings *s, diag *d)
{
  moe_token_dispatcher_type_choice dispatcher = s->model.moe_token_dispatcher_type;
  if (s->model.num_experts == 0 || uses_hf(s)) return true;
  if (s->model.activation_func_clamp_value > 0)
    return refuse(d, s->at[KEY_model_activation_func_clamp_value], "clamped activations");
  moe_sizes m = moe_sizes_of(s);
  int64_t ranks = m.ep * m.etp;
  bool apart = dispatcher != DISPATCHER_ALLGATHER && ranks > 1;
  assert((m.ep > 1 || s->model.moe_imbalance == 1) && "one rank has all experts");
  if (dispatcher == DISPATCHER_FLEX) return knows_flex(s, &m, d);
  if (apart && m.rows % (ranks * m.local_experts) != 0)
    return diag_error(d, s->at[KEY_model_num_experts],
                      "the reference execution does not run %lld rows for %lld experts from %lld "
                      "ranks, which do not divide into equal parts",
                      (long long)m.rows, (long long)m.local_experts, (long long)ranks);
  return true;
}

static bool knows_hf_attention(const settings *s, diag *d)
{
  if (s->model.num_experts > 0 && s->model.moe_class != MOE_LLAMA4)
    return refuse(d, s->at[KEY_model_num_experts],
                  "experts with model.implementation hf, unless moe_class is llama4");
  if (s->model.query_position_scale)
    return refuse(d, s->at[KEY_model_query_position_scale], "queries that are scaled by position");
  bool gelu = s->model.hidden_act != HIDDEN_ACT_SILU;
  if (gelu && (s->model.liger_glu_activation || s->lora.lora_mlp_kernel))
    return refuse(d, s->at[KEY_model_hidden_act], "fused kernels of a gated gelu");
  bool capped = s->model.attn_logit_softcapping != 0;
  bool masks =
      s->model.attn_implementation == ATTN_EAGER || s->model.attn_implementation == ATTN_SDPA;
  if (s->derived.window_is_shorter && (masks || s->model.attention_class == ATTENTION_LLAMA4))
    return refuse(d, s->at[s->derived.window_key],
                  masks ? "a sliding window that is shorter than the sequence, unless "
                          "attn_implementation is flash_attention_2"
                        : "attention to chunks of the sequence");
  if (capped && s->model.attn_implementation != ATTN_EAGER)
    return refuse(d, s->at[KEY_model_attn_logit_softcapping],
                  "attn_logit_softcapping within flash attention");
  return true;
}

/* All tensor parallel ranks share a plan, so they must slice the same ranges. */
static bool knows_attention(const settings *s, diag *d)
{
  const struct parallel_settings *p = &s->parallel;
  bool latent = s->model.multi_latent_attention;
  if (uses_hf(s)) return knows_hf_attention(s, d);
  if (!latent && s->model.num_query_groups < p->tensor_model_parallel_size)
    return refuse(d, s->at[KEY_model_num_query_groups],
                  "fewer key/value heads than tensor parallel ranks");
  if (latent && p->tensor_model_parallel_size > 1 && !p->sequence_parallel)
    return refuse(d, s->at[KEY_parallel_sequence_parallel],
                  "latent attention over tensor parallel ranks without sequence_parallel, whose "
                  "gradients of the shared keys Megatron-LM does not add up");
  if (s->derived.window_is_shorter && attends_in_parts(s))
    return refuse(d, s->at[KEY_training_attention_backend],
                  "a sliding window with unfused attention");
  if (p->context_parallel_size > 1 && attends_in_parts(s))
    return refuse(d, s->at[KEY_training_attention_backend],
                  "context parallelism with unfused attention");
  return true;
}

/* The plan has no kernels that combine the ranks' sums of exponentials. */
static bool knows_loss(const settings *s, diag *d)
{
  if (s->model.fused_log_probs)
    return refuse(d, s->at[KEY_model_fused_log_probs], "verl's fused output layer");
  if (s->training.entropy != ENTROPY_NONE)
    return refuse(d, s->at[KEY_training_entropy], "the entropy of the logits");
  bool linear = s->model.cross_entropy_loss_fusion &&
                s->model.cross_entropy_fusion_impl == CROSS_ENTROPY_LINEAR;
  if (linear && s->parallel.tensor_model_parallel_size > 1)
    return refuse(d, s->at[KEY_model_cross_entropy_fusion_impl],
                  "the linear cross entropy over tensor parallel ranks");
  return true;
}

static bool knows_types(const settings *s, diag *d)
{
  const struct training_settings *t = &s->training;
  bool whole = t->main_params_dtype == MAIN_PARAMS_FP32 && t->exp_avg_dtype == EXP_AVG_FP32 &&
               t->exp_avg_sq_dtype == EXP_AVG_SQ_FP32;
  if (t->use_precision_aware_optimizer && !t->optimizer_cpu_offload && !whole)
    return refuse(d, s->at[KEY_training_use_precision_aware_optimizer],
                  "main parameters or states of less than 32 bits");
  if (t->optimizer_cpu_offload && uses_hf(s))
    return refuse(d, s->at[KEY_training_optimizer_cpu_offload], "optimizer states on the host");
  if (s->training.fp8_param_gather)
    return refuse(d, s->at[KEY_training_fp8_param_gather], "parameters in fp8");
  return true;
}

/* Parts of one matrix that has been quantised share its scales, which are beside none of them. */
static bool knows_overlap(const settings *s, diag *d)
{
  bool sums = s->parallel.tp_comm_overlap && s->parallel.tp_comm_overlap_rs && !uses_hf(s);
  return !sums || s->training.fp8_format == FP8_FORMAT_NONE ||
         refuse(d, s->at[KEY_parallel_tp_comm_overlap],
                "fp8 with tp_comm_overlap_rs; set parallel.tp_comm_overlap_rs: false, which "
                "changes no number");
}

bool train_knows(const train_input *in, const executor *by, diag *d)
{
  const settings *s = in->settings;
  return knows_optimizer(s, d) && knows_sharding(s, d) && knows_experts(s, d) &&
         knows_exchange(s, d) && knows_attention(s, d) && knows_loss(s, d) && knows_types(s, d) &&
         knows_overlap(s, d) && by->knows(by, in->first, d) && by->knows(by, in->steady, d);
}
