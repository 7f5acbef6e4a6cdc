/* Constraints of precision and optimizer. Sources: see validate.h. */
#include <inttypes.h>

#include "sim/config/validate/validate.h"

static bool check_fp8(const settings *s, diag *d)
{
  const struct training_settings *t = &s->training;
  int64_t most = s->model.num_layers / s->parallel.pipeline_model_parallel_size;
  setting_key format = KEY_training_fp8_format, ends = KEY_training_first_last_layers_bf16;
  bool fp8 = t->fp8_format != FP8_FORMAT_NONE, keeps_ends = fp8 && t->first_last_layers_bf16;

  return need(s, d, !t->fp8_param_gather || fp8, KEY_training_fp8_param_gather, format,
              "fp8_param_gather needs fp8_format") &&
         need(s, d,
              !t->fp8_param_gather || s->parallel.use_distributed_optimizer ||
                  s->parallel.use_megatron_fsdp,
              KEY_training_fp8_param_gather, KEY_parallel_use_distributed_optimizer,
              "fp8_param_gather needs use_distributed_optimizer or use_megatron_fsdp") &&
         need(s, d, !fp8 || s->model.transformer_impl == TRANSFORMER_TE, format,
              KEY_model_transformer_impl, "fp8_format needs transformer_impl transformer_engine") &&
         need(s, d, !keeps_ends || t->fp8_recipe != FP8_RECIPE_DELAYED, ends,
              KEY_training_fp8_recipe,
              "first_last_layers_bf16 does not work with fp8_recipe delayed") &&
         need(s, d, !keeps_ends || t->num_layers_at_start_in_bf16 <= most,
              KEY_training_num_layers_at_start_in_bf16, ends,
              "num_layers_at_start_in_bf16 is %" PRId64
              "; it may be at most the layers of a pipeline rank (%" PRId64 ")",
              t->num_layers_at_start_in_bf16, most) &&
         need(s, d, !keeps_ends || t->num_layers_at_end_in_bf16 <= most,
              KEY_training_num_layers_at_end_in_bf16, ends,
              "num_layers_at_end_in_bf16 is %" PRId64
              "; it may be at most the layers of a pipeline rank (%" PRId64 ")",
              t->num_layers_at_end_in_bf16, most);
}

static bool check_precision(const settings *s, diag *d)
{
  const struct training_settings *t = &s->training;

  return need(s, d, !t->bf16 || !t->fp16, KEY_training_fp16, KEY_training_bf16,
              "bf16 and fp16 are both given; give one of them") &&
         need(s, d,
              !(t->bf16 && t->accumulate_allreduce_grads_in_fp32) ||
                  t->main_grads_dtype == MAIN_GRADS_FP32,
              KEY_training_main_grads_dtype, KEY_training_accumulate_allreduce_grads_in_fp32,
              "main_grads_dtype is %s; with accumulate_allreduce_grads_in_fp32 it must be fp32",
              chosen_word(s, KEY_training_main_grads_dtype)) &&
         check_fp8(s, d);
}

/* Megatron-LM's optimizers, and those that transformers and bitsandbytes bring. */
static bool check_whose_optimizer(const settings *s, diag *d)
{
  setting_key key = KEY_training_optimizer;
  optimizer_choice optimizer = s->training.optimizer;
  bool shared = optimizer == OPTIMIZER_ADAM || optimizer == OPTIMIZER_SGD;
  bool hf = optimizer >= OPTIMIZER_NONE; /* as the table says */

  return need(s, d, shared || hf == uses_hf(s), key, KEY_model_implementation,
              "optimizer is %s, which is %s; model.implementation is %s", chosen_word(s, key),
              hf ? "for model.implementation hf" : "Megatron-LM's",
              chosen_word(s, KEY_model_implementation));
}

static bool check_optimizer(const settings *s, diag *d)
{
  const struct training_settings *t = &s->training;
  setting_key aware = KEY_training_use_precision_aware_optimizer;
  bool aware_or_fp32 =
      t->use_precision_aware_optimizer ||
      (t->main_grads_dtype == MAIN_GRADS_FP32 && t->main_params_dtype == MAIN_PARAMS_FP32 &&
       t->exp_avg_dtype == EXP_AVG_FP32 && t->exp_avg_sq_dtype == EXP_AVG_SQ_FP32);
  bool known = t->optimizer == OPTIMIZER_ADAM || t->optimizer == OPTIMIZER_SGD;
  bool shards_sgd = t->optimizer == OPTIMIZER_SGD && s->parallel.use_distributed_optimizer &&
                    !t->optimizer_cpu_offload; /* then a HybridDeviceOptimizer has it */

  return need(s, d, !shards_sgd, KEY_training_optimizer, KEY_parallel_use_distributed_optimizer,
              "optimizer sgd does not work with use_distributed_optimizer: its checkpoints know "
              "the states of Adam") &&
         need(
             s, d, aware_or_fp32, aware, aware,
             "main_grads_dtype, main_params_dtype, exp_avg_dtype and exp_avg_sq_dtype must be fp32 "
             "without use_precision_aware_optimizer") &&
         need(s, d, !t->use_precision_aware_optimizer || t->optimizer == OPTIMIZER_ADAM, aware,
              KEY_training_optimizer, "use_precision_aware_optimizer needs optimizer adam") &&
         need(s, d, !t->use_precision_aware_optimizer || s->parallel.use_distributed_optimizer,
              aware, KEY_parallel_use_distributed_optimizer,
              "use_precision_aware_optimizer needs use_distributed_optimizer") &&
         need(s, d, !t->optimizer_cpu_offload || t->use_precision_aware_optimizer || uses_hf(s),
              KEY_training_optimizer_cpu_offload, aware,
              "optimizer_cpu_offload needs use_precision_aware_optimizer") &&
         need(s, d,
              !t->optimizer_cpu_offload || !t->fp8_param_gather ||
                  t->fp8_recipe == FP8_RECIPE_DELAYED,
              KEY_training_optimizer_cpu_offload, KEY_training_fp8_param_gather,
              "optimizer_cpu_offload with fp8_param_gather needs fp8_recipe delayed") &&
         need(s, d, !t->optimizer_cpu_offload || !s->parallel.use_megatron_fsdp,
              KEY_training_optimizer_cpu_offload, KEY_parallel_use_megatron_fsdp,
              "optimizer_cpu_offload with use_megatron_fsdp is not modelled") &&
         need(s, d, !t->overlap_cpu_optimizer_d2h_h2d || t->optimizer_cpu_offload,
              KEY_training_overlap_cpu_optimizer_d2h_h2d, KEY_training_optimizer_cpu_offload,
              "overlap_cpu_optimizer_d2h_h2d needs optimizer_cpu_offload") &&
         need(s, d, !s->parallel.use_megatron_fsdp || known, KEY_training_optimizer,
              KEY_parallel_use_megatron_fsdp,
              "optimizer is %s; Megatron-FSDP knows adam and sgd alone",
              chosen_word(s, KEY_training_optimizer));
}

/* Megatron-LM's arguments; both take Transformer Engine's FusedAdam. */
static bool check_states_away(const settings *s, diag *d, setting_key key, const char *name)
{
  return need(s, d, s->parallel.use_distributed_optimizer, key,
              KEY_parallel_use_distributed_optimizer, "%s needs use_distributed_optimizer", name) &&
         need(s, d, s->training.optimizer == OPTIMIZER_ADAM, key, KEY_training_optimizer,
              "%s needs optimizer adam", name) &&
         need(s, d, !s->parallel.use_megatron_fsdp, key, KEY_parallel_use_megatron_fsdp,
              "%s does not work with use_megatron_fsdp", name) &&
         need(s, d, !s->training.optimizer_cpu_offload, key, KEY_training_optimizer_cpu_offload,
              "%s does not work with optimizer_cpu_offload", name);
}

/* optimizer_config.py of branch dev. */
static bool check_chunked_types(const settings *s, diag *d, setting_key key)
{
  const struct training_settings *t = &s->training;
  bool first = t->exp_avg_dtype == EXP_AVG_FP32 || t->exp_avg_dtype == EXP_AVG_BF16,
       second = t->exp_avg_sq_dtype == EXP_AVG_SQ_FP32 || t->exp_avg_sq_dtype == EXP_AVG_SQ_BF16;

  return !t->use_precision_aware_optimizer ||
         (need(s, d, t->main_params_dtype == MAIN_PARAMS_FP32, key, KEY_training_main_params_dtype,
               "chunked_optimizer_state_offload needs main_params_dtype fp32: Megatron-LM refuses "
               "others") &&
          need(s, d, first && second, key,
               first ? KEY_training_exp_avg_sq_dtype : KEY_training_exp_avg_dtype,
               "chunked_optimizer_state_offload needs exp_avg_dtype and exp_avg_sq_dtype fp32 or "
               "bf16: Megatron-LM refuses others"));
}

/* Weights of mxfp8 that share the gradient buffer are staged when the step begins, so main parameters leave
 * later (training.py, delay_master_offload_for_param_buffer). */
static bool delays_masters(const settings *s)
{
  return s->training.fp8_param_gather && s->training.fp8_recipe == FP8_RECIPE_MXFP8 &&
         s->parallel.overlap_param_gather;
}

static bool check_moving_states(const settings *s, diag *d)
{
  const struct training_settings *t = &s->training;
  setting_key key = KEY_training_chunked_optimizer_state_offload;

  if (t->offload_optimizer_states && !uses_hf(s)) {
    return check_states_away(s, d, KEY_training_offload_optimizer_states,
                             "offload_optimizer_states");
  }
  return !t->chunked_optimizer_state_offload || uses_hf(s) ||
         (need(s, d, !optimizer_is_muon(t->optimizer), key, KEY_training_optimizer,
               "chunked_optimizer_state_offload with Muon is not modelled") &&
          check_states_away(s, d, key, "chunked_optimizer_state_offload") &&
          check_chunked_types(s, d, key) &&
          need(s, d, t->cuda_graph_impl != GRAPHS_FULL_ITERATION, key, KEY_training_cuda_graph_impl,
               "chunked_optimizer_state_offload does not work with cuda_graph_impl "
               "full_iteration") &&
          need(s, d, !delays_masters(s), key, KEY_parallel_overlap_param_gather,
               "chunked_optimizer_state_offload with fp8_param_gather, fp8_recipe mxfp8 and "
               "overlap_param_gather is not modelled") &&
          need(s, d, !t->resumes || t->optimizer_state_offload_fraction >= 1, key,
               KEY_training_optimizer_state_offload_fraction,
               "chunked_optimizer_state_offload with resumes and an "
               "optimizer_state_offload_fraction below 1 is not modelled"));
}

/* core/optimizer/emerging_optimizers.py stops at the first step otherwise. */
static bool check_muon(const settings *s, diag *d)
{
  int64_t groups = s->model.num_query_groups, tp = s->parallel.tensor_model_parallel_size;
  bool splits = optimizer_is_muon(s->training.optimizer) && s->training.muon_split_qkv &&
                !s->model.multi_latent_attention;

  return need(s, d, !splits || groups % tp == 0, KEY_training_optimizer,
              KEY_parallel_tensor_model_parallel_size,
              "optimizer %s with muon_split_qkv needs whole groups of queries on each tensor "
              "parallel rank; num_query_groups is %" PRId64
              ", tensor_model_parallel_size is %" PRId64,
              chosen_word(s, KEY_training_optimizer), groups, tp);
}

static bool check_resuming(const settings *s, diag *d)
{
  setting_key key = KEY_training_resumes;

  return !s->training.resumes || uses_hf(s) ||
         (need(s, d, !s->parallel.use_megatron_fsdp, key, KEY_parallel_use_megatron_fsdp,
               "resumes with use_megatron_fsdp is not modelled") &&
          need(s, d, !s->training.optimizer_cpu_offload, key, KEY_training_optimizer_cpu_offload,
               "resumes with optimizer_cpu_offload is not modelled"));
}

static bool check_deferral(const settings *s, diag *d)
{
  const struct training_settings *t = &s->training;
  setting_key key = KEY_training_defer_embedding_wgrad_compute;

  return !t->defer_embedding_wgrad_compute ||
         (need(s, d, s->parallel.pipeline_model_parallel_size > 1, key, key,
               "defer_embedding_wgrad_compute needs a pipeline_model_parallel_size above 1") &&
          need(s, d, t->gradient_accumulation_fusion, key,
               KEY_training_gradient_accumulation_fusion,
               "defer_embedding_wgrad_compute needs gradient_accumulation_fusion"));
}

static bool check_rerun(const settings *s, diag *d)
{
  rerun_mode_choice mode = s->training.rerun_mode;
  setting_key key = KEY_training_rerun_mode;

  return need(s, d, mode == RERUN_VALIDATE_RESULTS || mode == RERUN_DISABLED, key, key,
              "rerun_mode %s runs each step forward and backward twice, which is not modelled",
              chosen_word(s, key));
}

bool validate_training(const settings *s, diag *d)
{
  return check_precision(s, d) && check_whose_optimizer(s, d) && check_optimizer(s, d) &&
         check_moving_states(s, d) && check_muon(s, d) && check_resuming(s, d) &&
         check_deferral(s, d) && check_rerun(s, d);
}
