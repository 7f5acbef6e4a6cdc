/*
 * verl's FSDP engine: transformers' model in eager PyTorch. VeOmni and FSDP-Turbo shard
 * by FSDP2 and replace parts of the models, which are predicted as transformers' own.
 *
 * Sources: verl/workers/fsdp_workers.py (_build_model_optimizer), verl/workers/actor/dp_actor.py,
 * verl/trainer/config/engine/fsdp.yaml, verl/utils/ulysses.py; verl/workers/engine/veomni
 * (transformer_impl.py), verl/workers/engine/fsdp/fsdp_turbo_impl.py.
 */
#include <inttypes.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/config/verl/parts.h"

/* ---- VeOmni and FSDP-Turbo ---- */

static bool refuse_expert_parallelism(const verl_reader *r, const char *name)
{
  int64_t ranks;

  return verl_number(r, name, 1, 1, &ranks) &&
         (ranks == 1 ||
          diag_error(r->d, verl_place(r, name),
                     "%s is %" PRId64
                     "; expert parallelism of verl's FSDP engines is not predicted, 1 is",
                     verl_said(r, name), ranks));
}

/* What is recomputed are whole layers, so a plan must name them. */
static bool check_turbo_plan(const verl_reader *r)
{
  const verl_given *plan = verl_get(r, TURBO "memory.recompute_plan");

  return plan == NULL || strstr(plan->value, "layers.{*}") != NULL ||
         diag_error(r->d, plan->value_at,
                    "recompute_plan is %.100s; only recomputation of whole decoder layers is "
                    "predicted, \"model.language_model.layers.{*}\"",
                    plan->value);
}

/* Both prefetch the next module that they shard: layers, and with a plan of Turbo's the embedding. */
static bool apply_others_fsdp(const verl_reader *r)
{
  const char *name = verl_get(r, ACTOR "strategy") != NULL ? ACTOR "strategy" : "model_engine";
  bool turbo = r->fsdp == FSDP_TURBO;
  const char *modules = verl_text_of(r, TURBO "distributed.fsdp_plan.apply_modules", "");
  setting_key prefetch = KEY_parallel_fsdp_forward_prefetch;
  bool good = turbo ? refuse_expert_parallelism(r, TURBO "distributed.expert_parallel_size") &&
                          check_turbo_plan(r)
                    : refuse_expert_parallelism(r, OMNI "expert_parallel_size");

  if (!good) {
    return false;
  }
  diag_note(r->d, verl_place(r, name),
            "%s is predicted as strategy fsdp2, with transformers' models and kernels",
            turbo ? "fsdp_turbo" : "veomni");
  return verl_set(r, KEY_parallel_fsdp, "fsdp2", name) &&
         verl_set(r, KEY_parallel_fsdp_wrap_embedding,
                  strstr(modules, "embed_tokens") != NULL ? "true" : "false", name) &&
         (r->s->given[prefetch] || verl_set(r, prefetch, "true", name)) &&
         verl_set(r, KEY_model_implementation, "hf", name);
}

static bool apply_strategy(const verl_reader *r)
{
  const char *name = ACTOR "strategy", *strategy = verl_text_of(r, name, "fsdp");
  bool second = strcmp(strategy, "fsdp2") == 0;

  if (r->fsdp != FSDP_OF_VERL) {
    return apply_others_fsdp(r);
  }
  return verl_set(r, KEY_parallel_fsdp, strategy, name) &&
         verl_set(r, KEY_parallel_fsdp_wrap_embedding, second ? "true" : "false", name) &&
         verl_set(r, KEY_model_implementation, "hf", name);
}

static bool apply_types(const verl_reader *r)
{
  const char *mixed = FSDP "mixed_precision.param_dtype", *own = FSDP "dtype";
  const char *computed, *stored, *reduced;
  bool mixes;

  if (r->fsdp == FSDP_OF_VEOMNI) {
    return verl_truth(r, OMNI "mixed_precision", true, &mixes) &&
           verl_set(r, KEY_training_bf16, "true", OMNI "mixed_precision") &&
           verl_set(r, KEY_parallel_fsdp_model_dtype, mixes ? "fp32" : "",
                    OMNI "mixed_precision") &&
           verl_set(r, KEY_parallel_fsdp_reduce_dtype, mixes ? "fp32" : "", OMNI "mixed_precision");
  }
  if (!verl_type(r, mixed, own, "bf16", &computed) ||
      !verl_type(r, FSDP "model_dtype", FSDP "model_dtype", "fp32", &stored) ||
      !verl_type(r, FSDP "mixed_precision.reduce_dtype", FSDP "mixed_precision.reduce_dtype",
                 "fp32", &reduced)) {
    return false;
  }
  bool half = strcmp(computed, "fp16") == 0;
  return (strcmp(computed, "fp32") == 0 ||
          verl_set(r, half ? KEY_training_fp16 : KEY_training_bf16, "true", own)) &&
         verl_set(r, KEY_parallel_fsdp_model_dtype, strcmp(stored, computed) == 0 ? "" : stored,
                  FSDP "model_dtype") &&
         verl_set(r, KEY_parallel_fsdp_reduce_dtype, strcmp(reduced, computed) == 0 ? "" : reduced,
                  FSDP "mixed_precision.reduce_dtype");
}

static bool apply_sharding(const verl_reader *r, int64_t gpus)
{
  const char *name = FSDP "fsdp_size";
  int64_t size;

  if (verl_text_of(r, name, "-1")[0] == '-') {
    return true;
  }
  return verl_number(r, name, 1, gpus, &size) &&
         verl_set_number(r, KEY_parallel_fsdp_size, min_i64(size, gpus), name);
}

/* ---- model ---- */

static bool apply_recompute(const verl_reader *r)
{
  const char *checkpoint = MODEL "enable_gradient_checkpointing";
  const char *kind = OMNI "enable_reentrant";
  bool recomputes, reentrant;

  if (!verl_truth(r, checkpoint, true, &recomputes) || !verl_truth(r, kind, false, &reentrant)) {
    return false;
  }
  return !recomputes ||
         (verl_set(r, KEY_recompute_recompute_granularity, "full", checkpoint) &&
          verl_set(r, KEY_recompute_recompute_method, "uniform", checkpoint) &&
          verl_set(r, KEY_recompute_recompute_num_layers, "1", checkpoint) &&
          (r->fsdp != FSDP_OF_VEOMNI ||
           verl_set(r, KEY_recompute_use_reentrant, reentrant ? "true" : "false", kind)));
}

/* VeOmni has its own, and a limit for it. */
static bool apply_offload(const verl_reader *r)
{
  const char *activations = MODEL "enable_activation_offload";
  const char *limit = OMNI "activation_gpu_limit";
  bool offloads, of_veomni = r->fsdp == FSDP_OF_VEOMNI;

  if (!verl_truth(r, activations, false, &offloads)) {
    return false;
  }
  return verl_set(r, KEY_offload_system,
                  !offloads   ? "none"
                  : of_veomni ? "veomni"
                              : "verl",
                  activations) &&
         (!offloads || !of_veomni ||
          verl_set(r, KEY_offload_activation_gpu_limit, verl_text_of(r, limit, "0"), limit));
}

enum { USUAL_RANK = 8 }; /* of PEFT's LoraConfig */

/* An adapter that was saved before has its own rank and linears (_build_lora_module). */
static bool apply_adapter(const verl_reader *r)
{
  const char *rank_name = MODEL "lora_rank", *targets_name = MODEL "target_modules";
  const char *targets = verl_text_of(r, targets_name, "all-linear");
  const char *saved = MODEL "lora_adapter_path";
  int64_t rank, alpha;

  if (!verl_number(r, rank_name, 0, verl_get(r, saved) != NULL ? USUAL_RANK : 0, &rank)) {
    return false;
  }
  if (rank == 0) {
    return true;
  }
  if (verl_get(r, saved) != NULL) {
    diag_note(r->d, verl_place(r, saved),
              "the saved adapter's own rank and linears count, which are not read: predicted with "
              "rank %" PRId64
              " on %s; --set lora_r=N and --set lora_target_modules=[...] give them",
              rank, targets);
  }
  if (!verl_number(r, MODEL "lora_alpha", 1, 16, &alpha)) {
    return false;
  }
  return verl_set(r, KEY_lora_adapter, "lora", rank_name) &&
         verl_set_number(r, KEY_lora_lora_r, rank, rank_name) &&
         verl_set_number(r, KEY_lora_lora_alpha, alpha, MODEL "lora_alpha") &&
         verl_set(r, KEY_lora_autocast_adapter_dtype, "false",
                  rank_name) && /* FSDP casts them too */
         verl_set(r, KEY_lora_lora_target_modules,
                  strcmp(targets, "all-linear") == 0 ? "" : targets, targets_name);
}

/* verl/workers/config/optimizer.py, build_optimizer: a class of a module, by name. */
static bool apply_optimizer(const verl_reader *r)
{
  static const struct {
    const char *class, *optimizer;
  } classes[] = {
    { "AdamW", "adamw_torch" },
    { "SGD", "sgd" },
    { "AdamW8bit", "adamw_8bit" },
    { "PagedAdamW8bit", "paged_adamw_8bit" },
    { "PagedAdamW32bit", "paged_adamw_32bit" },
  };
  const char *name = ACTOR "optim.optimizer", *class = verl_text_of(r, name, "AdamW");
  const char *optimizer = NULL;
  bool fused;

  if (!verl_truth(r, ACTOR "optim.override_optimizer_config.fused", false, &fused)) {
    return false;
  }
  for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
    if (strcmp(classes[i].class, class) == 0) {
      optimizer = classes[i].optimizer;
    }
  }
  if (optimizer == NULL) {
    diag_note(r->d, verl_place(r, name),
              "optimizer %s is not modelled; predicted as torch.optim.AdamW", class);
    optimizer = "adamw_torch";
  }
  bool of_torch = strcmp(optimizer, "adamw_torch") == 0;
  return verl_set(r, KEY_training_optimizer, of_torch && fused ? "adamw_torch_fused" : optimizer,
                  name);
}

/* VeOmni's names, of which those of flash attention say more. */
static const char *veomni_attention(const verl_reader *r)
{
  const char *name = verl_text_of(r, OMNI "attn_implementation", "flash_attention_2");
  return strcmp(name, "eager") == 0 || strcmp(name, "sdpa") == 0 ? name : "flash_attention_2";
}

/* verl's own attention, unless model.override_config says otherwise. The older SFT trainer takes
 * cross entropy. */
static bool apply_model(const verl_reader *r)
{
  setting_key attention = KEY_model_attn_implementation;
  const char *loss = r->trainer == VERL_SFT ? "causal_lm" : "log_probs";
  const char *kind = r->fsdp == FSDP_OF_VEOMNI ? veomni_attention(r) : "flash_attention_2";

  return verl_set(r, KEY_training_loss, loss, MODEL "path") &&
         (r->s->given[attention] || verl_set(r, attention, kind, MODEL "path"));
}

static bool apply_fused_kernels(const verl_reader *r)
{
  const char *name = MODEL "use_fused_kernels", *other = ACTOR "use_fused_kernels";
  const char *backend = MODEL "fused_kernel_options.impl_backend";
  bool of_model, of_actor;

  if (!verl_truth(r, name, false, &of_model) || !verl_truth(r, other, of_model, &of_actor)) {
    return false;
  }
  if (!of_model || !of_actor || r->trainer == VERL_SFT) {
    return true;
  }
  if (strcmp(verl_text_of(r, backend, "torch"), "torch") != 0) {
    diag_note(r->d, verl_place(r, backend),
              "impl_backend %s is predicted as torch, which has no logits in memory either",
              verl_text_of(r, backend, ""));
  }
  return verl_set(r, KEY_model_fused_log_probs, "true", name);
}

/* verl/workers/actor/dp_actor.py: any coefficient but 0 makes it a part of the loss. The fused
 * kernel has it anyway. */
static bool apply_entropy(const verl_reader *r)
{
  const char *coefficient = ACTOR "entropy_coeff", *logs = ACTOR "calculate_entropy";
  double factor;
  bool logged;

  if (!verl_real(r, coefficient, 0, &factor) || !verl_truth(r, logs, false, &logged)) {
    return false;
  }
  if ((factor == 0 && !logged) || r->s->model.fused_log_probs) {
    return true;
  }
  return verl_set(r, KEY_training_entropy, factor != 0 ? "loss" : "logged",
                  factor != 0 ? coefficient : logs);
}

/* GPUs that share a sequence: each has all positions of some heads in attention, and all heads
 * of some positions elsewhere. */
static bool apply_ulysses(const verl_reader *r)
{
  const char *name = ACTOR "ulysses_sequence_parallel_size",
             *other = FSDP "ulysses_sequence_parallel_size";
  int64_t size, of_engine;

  if (!verl_number(r, name, 1, 1, &size) || !verl_number(r, other, 1, 1, &of_engine)) {
    return false;
  }
  const char *because = size > 1 ? name : other;
  size = max_i64(size, of_engine);
  return size == 1 || (verl_set_number(r, KEY_parallel_context_parallel_size, size, because) &&
                       verl_set(r, KEY_parallel_cp_comm_type, "a2a", because));
}

bool verl_apply_fsdp(const verl_reader *r)
{
  int64_t gpus;
  bool good = diag_step(r->d, apply_strategy(r));

  good = diag_step(r->d, apply_model(r)) && good;
  good = diag_step(r->d, apply_fused_kernels(r)) && good;
  good = diag_step(r->d, apply_entropy(r)) && good;
  good = diag_step(r->d, apply_types(r)) && good;
  good = diag_step(r->d, apply_recompute(r)) && good;
  good = diag_step(r->d, apply_offload(r)) && good;
  good = diag_step(r->d, apply_adapter(r)) && good;
  good = diag_step(r->d, apply_optimizer(r)) && good;
  good = diag_step(r->d, verl_gpus(r, &gpus) && apply_sharding(r, gpus)) && good;
  good = diag_step(r->d, apply_ulysses(r)) && good;
  return diag_step(r->d, verl_apply_batch(r, r->s->parallel.context_parallel_size)) && good;
}
