/*
 * verl's Megatron-LM engine: the model that mbridge builds of a config.json, and verl's keys as
 * Megatron-LM's fields.
 *
 * Sources: verl/workers/megatron_workers.py (_init_hf_config_and_tf_config,
 * _build_model_optimizer), verl/models/mcore/config_converter.py, verl/utils/megatron_utils.py
 * (get_model, make_megatron_module), verl/utils/megatron/optimizer.py,
 * verl/workers/actor/megatron_actor.py, verl/trainer/config/engine/megatron.yaml; ISEEKYAN/mbridge:
 * core/llm_bridge.py (_build_base_config), core/util.py (get_model), models/.
 */
#include <inttypes.h>
#include <string.h>

#include "sim/config/foreign_messages.h"
#include "sim/config/megatron/flags.h"
#include "sim/config/verl/parts.h"
#include "sim/text/scalar.h"

/* ---- what mbridge builds ---- */

/* Fields at TransformerConfig's defaults, which are not those of Megatron-LM's options, and what
 * mbridge sets. */
static const struct setting {
  setting_key key;
  const char *text;
} always[] = {
  { KEY_model_implementation, "te" },
  { KEY_model_masked_softmax_fusion, "true" },
  { KEY_model_bias_activation_fusion, "false" },
  { KEY_model_bias_dropout_fusion, "false" },
  { KEY_model_apply_rope_fusion, "false" },
  { KEY_training_gradient_accumulation_fusion, "false" },
  { KEY_training_accumulate_allreduce_grads_in_fp32, "true" },
  { KEY_training_create_attention_mask_in_dataloader, "false" },
  { KEY_training_attention_backend, "flash" },
  { KEY_parallel_sequence_parallel, "true" }, /* where TP is above 1 */
  { KEY_parallel_use_distributed_optimizer, "true" },
  { KEY_software_cuda_device_max_connections, "1" }, /* verl/trainer/constants_ppo.py */
}, with_experts[] = {
  { KEY_model_moe_token_dispatcher_type, "alltoall" },
  { KEY_model_moe_router_load_balancing_type, "none" },
  { KEY_model_bias_activation_fusion, "true" },
  { KEY_model_bias_dropout_fusion, "true" },
};

static bool set_all(const verl_reader *r, const struct setting *rows, size_t count)
{
  bool good = true;

  for (size_t i = 0; i < count; i++) {
    good = diag_step(r->d, verl_set(r, rows[i].key, rows[i].text, ACTOR "strategy")) && good;
  }
  return good;
}

/* Nothing is padded: the embedding has the rows of config.json. Further tokens are predicted
 * only where MTP trains. */
static bool set_model(const verl_reader *r)
{
  const struct model_settings *m = &r->s->model;
  const char *because = MODEL "path", *enables = MODEL "mtp.enable";
  bool mtp, latent = m->multi_latent_attention;

  if (!verl_truth(r, enables, false, &mtp)) {
    return false;
  }
  return set_all(r, always, sizeof always / sizeof always[0]) &&
         (m->num_experts == 0 ||
          set_all(r, with_experts, sizeof with_experts / sizeof with_experts[0])) &&
         verl_set_number(r, KEY_model_padded_vocab_size, m->vocab_size, because) &&
         (mtp || m->mtp_num_layers == 0 || verl_set(r, KEY_model_mtp_num_layers, "0", enables)) &&
         (!latent ||
          (verl_set(r, KEY_training_attention_backend, "fused", because) &&
           (m->num_experts == 0 || verl_set(r, KEY_model_moe_router_dtype, "fp32", because))));
}

/* ---- fields ---- */

static const struct {
  const char *prefix, *of;
} overrides[] = {
  { MCORE "override_transformer_config.", "TransformerConfig" },
  { MCORE "override_ddp_config.", "DistributedDataParallelConfig" },
  { OPTIM "override_optimizer_config.", "OptimizerConfig" },
};

/* A list in Hydra's writing, ["core_attn","mlp"], as its words. */
static const char *words_of(arena *a, const char *value)
{
  char *words = arena_strdup(a, value);

  for (char *c = words; *c != '\0'; c++) {
    *c = strchr("[],\"'", *c) != NULL ? ' ' : *c;
  }
  words += strspn(words, " ");
  for (size_t length = strlen(words); length > 0 && words[length - 1] == ' ';) {
    words[--length] = '\0';
  }
  return words;
}

/* A switch of the command line gives `true`; a field of that name can also say false. */
static bool switch_off(const verl_reader *r, const megatron_flag *flag, const verl_given *g)
{
  bool gives = flag->effect.kind == FLAG_GIVES && strcmp(flag->effect.text, "true") == 0;

  return !gives || settings_set_key(r->s, flag->effect.key, "false", g->value_at, r->a, r->d);
}

/* The flag's name as the field's. */
static const char *field_nearest(arena *a, const char *field)
{
  const char *flag = megatron_flag_nearest(a, field);

  if (flag == NULL) {
    return NULL;
  }
  char *near = arena_strdup(a, flag + strspn(flag, "-"));
  for (char *c = near; *c != '\0'; c++) {
    *c = *c == '-' ? '_' : *c;
  }
  return near;
}

static bool push_field(const verl_reader *r, const verl_given *g, const char *field, const char *of,
                       flag_use_array *uses)
{
  uint32_t index = megatron_flag_find(field);
  bool truth;

  if (index == MEGATRON_FLAG_UNKNOWN) {
    const char *kind = arena_printf(r->a, "field of Megatron-LM's %s", of);
    const char *near = field_nearest(r->a, field);
    return foreign_unknown(r->d, g->at, kind, field, near, r->ignore_unknown);
  }
  const megatron_flag *flag = &megatron_flags[index];
  const char *value = words_of(r->a, g->value);
  if (flag->type == FLAG_TYPE_FLAG) {
    if (!scalar_bool(g->value, &truth)) {
      return verl_wrong(r, g, "True or False");
    }
    if (!truth && flag->values == FLAG_VALUES_NONE) {
      return switch_off(r, flag, g);
    }
    value = flag->values == FLAG_VALUES_NONE ? "" : truth ? "true" : "false";
  }
  *ARRAY_PUSH(uses) =
      (flag_use){ .flag = index, .value = value, .at = g->at, .value_at = g->value_at };
  return true;
}

static bool collect_fields(const verl_reader *r, flag_use_array *uses)
{
  bool good = true;

  for (uint32_t i = 0; i < r->given.count; i++) {
    const verl_given *g = &r->given.items[i];
    for (size_t k = 0; k < sizeof overrides / sizeof overrides[0]; k++) {
      size_t length = strlen(overrides[k].prefix);
      if (strncmp(g->name, overrides[k].prefix, length) == 0 && verl_get(r, g->name) == g) {
        good = diag_step(r->d, push_field(r, g, g->name + length, overrides[k].of, uses)) && good;
      }
    }
  }
  return good;
}

static bool apply_fields(const verl_reader *r)
{
  flag_use_array uses = { 0 };
  bool good = collect_fields(r, &uses) && megatron_flags_apply(r->s, &uses, r->a, r->d);

  ARRAY_FREE(&uses);
  return good;
}

/* ---- verl's own keys ---- */

static const struct {
  const char *name;
  setting_key key;
} sizes[] = {
  { MCORE "tensor_model_parallel_size", KEY_parallel_tensor_model_parallel_size },
  { MCORE "pipeline_model_parallel_size", KEY_parallel_pipeline_model_parallel_size },
  { MCORE "virtual_pipeline_model_parallel_size",
    KEY_parallel_num_virtual_stages_per_pipeline_rank },
  { MCORE "context_parallel_size", KEY_parallel_context_parallel_size },
  { MCORE "expert_model_parallel_size", KEY_parallel_expert_model_parallel_size },
  { MCORE "expert_tensor_parallel_size", KEY_parallel_expert_tensor_parallel_size },
};

static bool apply_sizes(const verl_reader *r)
{
  bool good = true;

  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    int64_t size;
    good = (verl_get(r, sizes[i].name) == NULL ||
            (verl_number(r, sizes[i].name, 1, 1, &size) &&
             verl_set_number(r, sizes[i].key, size, sizes[i].name))) &&
           good;
  }
  return good;
}

/* fp16 uses the precision-aware optimizer with whole fp32 weights. */
static bool apply_type(const verl_reader *r)
{
  const char *name = MCORE "dtype", *type;

  if (!verl_type(r, name, name, "bf16", &type)) {
    return false;
  }
  if (strcmp(type, "fp32") == 0) {
    return verl_wrong(r, verl_get(r, name), "bfloat16 or float16");
  }
  bool half = strcmp(type, "fp16") == 0;
  return verl_set(r, half ? KEY_training_fp16 : KEY_training_bf16, "true", name) &&
         (!half || verl_set(r, KEY_training_use_precision_aware_optimizer, "true", name));
}

/* An adapter leaves most weights without gradients and optimizer states. */
static bool check_adapter(const verl_reader *r)
{
  static const char *const names[] = { MODEL "lora.rank", MODEL "lora_rank" };

  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    int64_t rank;
    if (!verl_number(r, names[i], 0, 0, &rank)) {
      return false;
    }
    if (rank > 0) {
      return diag_error(r->d, verl_place(r, names[i]),
                        "%s is %" PRId64
                        "; adapters of Megatron-LM's engine are not predicted: with strategy fsdp "
                        "they are",
                        names[i], rank);
    }
  }
  return true;
}

static bool check_offload(const verl_reader *r)
{
  const char *name = MODEL "enable_activation_offload", *strategy = ACTOR "strategy";
  bool offloads;

  return verl_truth(r, name, false, &offloads) &&
         (!offloads ||
          diag_error(r->d, verl_place(r, verl_get(r, strategy) != NULL ? strategy : name),
                     "strategy is megatron; activation offload needs fsdp or fsdp2"));
}

/* verl's fused kernel (verl/utils/kernel/linear_cross_entropy.py) has no logits, as
 * Megatron-LM's own; entropy needs two more copies of them without it. */
static bool apply_loss(const verl_reader *r)
{
  const char *fused = MODEL "use_fused_kernels", *coefficient = ACTOR "entropy_coeff";
  double factor;
  bool fuses;

  if (!verl_truth(r, fused, false, &fuses) || !verl_real(r, coefficient, 0, &factor)) {
    return false;
  }
  if (fuses) {
    diag_note(r->d, verl_place(r, fused),
              "use_fused_kernels is predicted as Megatron-LM's linear cross entropy, which has no "
              "logits either");
    return verl_set(r, KEY_model_cross_entropy_loss_fusion, "true", fused) &&
           verl_set(r, KEY_model_cross_entropy_fusion_impl, "linear", fused);
  }
  if (factor != 0) {
    diag_note(r->d, verl_place(r, coefficient),
              "entropy_coeff: the entropy is not modelled; it keeps two more copies of the logits "
              "in bf16");
  }
  return true;
}

bool verl_apply_megatron(const verl_reader *r)
{
  const struct parallel_settings *p = &r->s->parallel;
  bool sharded;

  if (!set_model(r) || !verl_truth(r, MCORE "use_distributed_optimizer", true, &sharded)) {
    return false;
  }
  bool good = sharded || verl_set(r, KEY_parallel_use_distributed_optimizer, "false",
                                  MCORE "use_distributed_optimizer");
  good = diag_step(r->d, apply_sizes(r)) && good;
  good = diag_step(r->d, apply_type(r)) && good;
  good = diag_step(r->d, check_adapter(r)) && good;
  good = diag_step(r->d, check_offload(r)) && good;
  good = diag_step(r->d, apply_loss(r)) && good;
  good = diag_step(r->d, apply_fields(r)) && good;
  return good &&
         verl_apply_batch(r, p->tensor_model_parallel_size * p->pipeline_model_parallel_size *
                                 p->context_parallel_size);
}
