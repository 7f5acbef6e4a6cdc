/* What a verl configuration asks of the actor's update step. */
#include "sim/config/verl/verl.h"

#include <string.h>

#include "sim/base/file.h"
#include "sim/base/units.h"
#include "sim/config/verl/parts.h"

/* ---- strategy and types ---- */

static bool apply_strategy(const verl_reader *r)
{
  const char *name = ACTOR "strategy", *strategy = verl_text_of(r, name, "fsdp");
  bool second = strcmp(strategy, "fsdp2") == 0, offload;

  if (!verl_truth(r, MODEL "enable_activation_offload", false, &offload)) {
    return false;
  }
  if (!second && strcmp(strategy, "fsdp") != 0) {
    return diag_error(r->d, verl_place(r, name),
                      offload ? "strategy is %s; activation offload needs fsdp or fsdp2"
                              : "strategy is %s; --verl predicts fsdp and fsdp2 (Megatron-LM's "
                                "flags are read by --megatron-args)",
                      strategy);
  }
  return verl_set(r, KEY_parallel_fsdp, strategy, name) &&
         verl_set(r, KEY_parallel_fsdp_wrap_embedding, second ? "true" : "false", name) &&
         verl_set(r, KEY_model_implementation, "hf", name);
}

/* verl/utils/torch_dtypes.py, PrecisionType. */
static const char *type_named(const char *word)
{
  static const struct {
    const char *word, *type;
  } types[] = {
    { "fp32", "fp32" },     { "float", "fp32" }, { "float32", "fp32" }, { "bf16", "bf16" },
    { "bfloat16", "bf16" }, { "fp16", "fp16" },  { "float16", "fp16" }, { "half", "fp16" },
  };

  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
    if (strcmp(types[i].word, word) == 0) {
      return types[i].type;
    }
  }
  return NULL;
}

/* The type under the first of two keys that is given. */
static bool type_of(const verl_reader *r, const char *name, const char *older,
                    const char *otherwise, const char **type)
{
  const verl_given *g = verl_get(r, name) != NULL ? verl_get(r, name) : verl_get(r, older);

  *type = g == NULL ? otherwise : type_named(g->value);
  return *type != NULL || verl_wrong(r, g, "fp32, bf16 or fp16");
}

static bool apply_types(const verl_reader *r)
{
  const char *mixed = FSDP "mixed_precision.param_dtype", *own = FSDP "dtype";
  const char *computed, *stored, *reduced;

  if (!type_of(r, mixed, own, "bf16", &computed) ||
      !type_of(r, FSDP "model_dtype", FSDP "model_dtype", "fp32", &stored) ||
      !type_of(r, FSDP "mixed_precision.reduce_dtype", FSDP "mixed_precision.reduce_dtype", "fp32",
               &reduced)) {
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

static bool apply_recompute_and_offload(const verl_reader *r)
{
  const char *checkpoint = MODEL "enable_gradient_checkpointing";
  const char *activations = MODEL "enable_activation_offload";
  bool recomputes, offloads;

  if (!verl_truth(r, checkpoint, true, &recomputes) ||
      !verl_truth(r, activations, false, &offloads)) {
    return false;
  }
  return (!recomputes || (verl_set(r, KEY_recompute_recompute_granularity, "full", checkpoint) &&
                          verl_set(r, KEY_recompute_recompute_method, "uniform", checkpoint) &&
                          verl_set(r, KEY_recompute_recompute_num_layers, "1", checkpoint))) &&
         verl_set(r, KEY_offload_system, offloads ? "verl" : "none", activations);
}

static bool apply_adapter(const verl_reader *r)
{
  const char *rank_name = MODEL "lora_rank", *targets_name = MODEL "target_modules";
  const char *targets = verl_text_of(r, targets_name, "all-linear");
  int64_t rank, alpha;

  if (!verl_number(r, rank_name, 0, 0, &rank) ||
      !verl_number(r, MODEL "lora_alpha", 1, 16, &alpha)) {
    return false;
  }
  if (rank == 0) {
    return true;
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

/* verl's own default, unless model.override_config says otherwise. */
static bool apply_model(const verl_reader *r)
{
  setting_key attention = KEY_model_attn_implementation;

  if (!r->s->given[KEY_model_num_layers]) {
    return diag_error(r->d, verl_place(r, MODEL "path"),
                      "the model's shape is not known; give the config.json of %s with --hf-config",
                      verl_text_of(r, MODEL "path", "actor_rollout_ref.model.path"));
  }
  return verl_set(r, KEY_training_loss, "log_probs", MODEL "path") &&
         (r->s->given[attention] || verl_set(r, attention, "flash_attention_2", MODEL "path"));
}

static bool apply(const verl_reader *r)
{
  int64_t gpus;

  return apply_strategy(r) && verl_apply_keys(r) && apply_model(r) && apply_types(r) &&
         verl_apply_batch(r, &gpus) && apply_sharding(r, gpus) && apply_recompute_and_offload(r) &&
         apply_adapter(r) && apply_optimizer(r);
}

bool verl_parse(settings *s, const char *path, const char *text, size_t length,
                const verl_options *options, arena *a, diag *d)
{
  verl_reader r = {
    .s = s, .path = path, .ignore_unknown = options->ignore_unknown, .a = a, .d = d
  };
  bool done = verl_collect(&r, text, length) && apply(&r);

  ARRAY_FREE(&r.given);
  return done;
}

bool verl_read(settings *s, const char *path, const verl_options *options, arena *a, diag *d)
{
  size_t length;
  const char *text = file_read(a, path, FILE_TEXT_LIMIT_BYTES, &length, d);

  return text != NULL && verl_parse(s, path, text, length, options, a, d);
}
