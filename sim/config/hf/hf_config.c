#include "sim/config/hf/hf_config.h"

#include <math.h>
#include <string.h>

#include "sim/base/file.h"
#include "sim/config/hf/parts.h"
#include "sim/config/other_files.h"

/* What all of them are. */
static const family_constant constants[] = {
  { "model.normalization", "RMSNorm" },        { "model.swiglu", "true" },
  { "model.position_embedding_type", "rope" }, { "model.hidden_dropout", "0.0" },
  { "model.fused_rms_norm", "false" },         { "model.norm_epsilon", "0.000001" },
};

/* A number that is copied. */
typedef struct field {
  const char *name; /* in config.json */
  const char *key;
  unsigned parts; /* only families with all of these parts have it */
  bool required;
  bool of_dense; /* ... but for families without dense layers */
} field;

static const field fields[] = {
  { "num_hidden_layers", "model.num_layers", 0, true, false },
  { "hidden_size", "model.hidden_size", 0, true, false },
  { "intermediate_size", "model.ffn_hidden_size", 0, true, true },
  { "intermediate_size_mlp", "model.ffn_hidden_size", PART_LLAMA4, true, false },
  { "num_attention_heads", "model.num_attention_heads", 0, true, false },
  { "vocab_size", "model.vocab_size", 0, true, false },
  { "max_position_embeddings", "model.max_position_embeddings", 0, false, false },
  { "attention_dropout", "model.attention_dropout", 0, false, false },
  { "rms_norm_eps", "model.norm_epsilon", 0, false, false },
  { "norm_epsilon", "model.norm_epsilon", 0, false, false },
  { "residual_dropout", "model.hidden_dropout", 0, false, false },
  { "resid_pdrop", "model.hidden_dropout", 0, false, false },
  { "embedding_dropout", "model.embedding_dropout", 0, false, false },
  { "embedding_multiplier", "model.embedding_multiplier", 0, false, false },
  { "residual_multiplier", "model.residual_multiplier", 0, false, false },
  { "attention_multiplier", "model.attention_multiplier", 0, false, false },
  { "logits_scaling", "model.logits_scaling", 0, false, false },
  { "attn_logit_softcapping", "model.attn_logit_softcapping", PART_GEMMA, false, false },
  { "final_logit_softcapping", "model.final_logit_softcapping", PART_GEMMA, false, false },
  { "q_lora_rank", "model.q_lora_rank", PART_LATENT, false, false },
  { "kv_lora_rank", "model.kv_lora_rank", PART_LATENT, true, false },
  { "qk_nope_head_dim", "model.qk_head_dim", PART_LATENT, true, false },
  { "qk_rope_head_dim", "model.qk_pos_emb_head_dim", PART_LATENT, true, false },
  { "v_head_dim", "model.v_head_dim", PART_LATENT, true, false },
  { "num_experts_per_tok", "model.moe_router_topk", PART_EXPERTS, true, false },
  { "norm_topk_prob", "model.norm_topk_prob", PART_EXPERTS, false, false },
  { "shared_expert_intermediate_size", "model.moe_shared_expert_intermediate_size",
    PART_EXPERTS | PART_SHARED_GATE, true, false },
  { "num_nextn_predict_layers", "model.mtp_num_layers", PART_LATENT, false, false },
  { "mtp_num_hidden_layers", "model.mtp_num_layers", PART_LINEAR, false, false },
  { "linear_num_value_heads", "model.linear_num_value_heads", PART_LINEAR, false, false },
  { "linear_num_key_heads", "model.linear_num_key_heads", PART_LINEAR, false, false },
  { "linear_key_head_dim", "model.linear_key_head_dim", PART_LINEAR, false, false },
  { "linear_value_head_dim", "model.linear_value_head_dim", PART_LINEAR, false, false },
  { "linear_conv_kernel_dim", "model.linear_conv_kernel_dim", PART_LINEAR, false, false },
  { "use_qk_norm", "model.qk_l2_norm", PART_LLAMA4, false, false },
  { "attn_temperature_tuning", "model.attn_temperature_tuning", PART_LLAMA4, false, false },
  { "attn_scale", "model.attn_scale", PART_LLAMA4, false, false },
  { "floor_scale", "model.floor_scale", PART_LLAMA4, false, false },
};

/* --- Parts --- */

static bool set_constants(const hf_reader *r)
{
  for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++) {
    if (!hf_set(r, constants[i].key, constants[i].text, r->top->at)) {
      return false;
    }
  }
  const family_constant *c = r->family->constants;
  for (; c != NULL && c->key != NULL; c++) {
    if (!hf_set(r, c->key, c->text, r->top->at)) {
      return false;
    }
  }
  return true;
}

static bool set_field(const hf_reader *r, const field *f)
{
  const text_node *n = hf_get(r, f->name);
  int64_t count;
  bool required = f->required && !(f->of_dense && hf_has_parts(r, PART_NO_DENSE));
  if (!hf_has_parts(r, f->parts) || (n == NULL && !required)) {
    return true;
  }
  const char *text;
  return (!required || hf_count(r, f->name, &count)) && text_as_string(n, &text, r->d) &&
         hf_set(r, f->key, text, n->at);
}

static bool set_fields(const hf_reader *r)
{
  bool good = true;
  for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
    good = diag_step(r->d, set_field(r, &fields[i])) && good;
  }
  return good;
}

/* Gemma's and StarCoder 2's gelu, the others' silu. hidden_activation is Gemma's name for it; its
 * older configurations leave it empty and mean gelu_pytorch_tanh. */
static bool set_activation(const hf_reader *r)
{
  bool gelu = hf_has_parts(r, PART_GEMMA) || hf_has_parts(r, PART_USE_BIAS);
  const text_node *n = hf_get(r, "hidden_activation");
  if (n == NULL) {
    n = hf_get(r, "hidden_act");
  }
  bool fits = n == NULL || (n->kind == TEXT_SCALAR &&
                            (gelu ? strncmp(n->text, "gelu", 4) : strcmp(n->text, "silu")) == 0);
  if (!fits) {
    return diag_error(r->d, n->at, "%s is %s; a %s model must have %s", n->key,
                      text_describe(r->a, n), r->family->model_type, gelu ? "gelu" : "silu");
  }
  bool exact = n != NULL && !hf_has_parts(r, PART_GEMMA) && strcmp(n->text, "gelu") == 0;
  return !gelu || hf_set(r, "model.hidden_act", exact ? "gelu" : "gelu_pytorch_tanh",
                         n != NULL ? n->at : r->top->at);
}

/* What changes the model and is not modelled. */
static bool check_unmodelled(const hf_reader *r)
{
  const text_node *quantised = text_get(r->whole, "quantization_config");
  const text_node *balancing = hf_get(r, "output_router_logits");
  if (quantised != NULL && !text_is_null(quantised)) {
    diag_note(r->d, quantised->key_at,
              "quantization_config: weights are predicted in the type of the training");
  }
  if (balancing != NULL && strcmp(balancing->text, "true") == 0) {
    diag_note(r->d, balancing->at,
              "output_router_logits: the loss that balances experts is not modelled");
  }
  static const struct {
    const char *flag, *modelled;
  } flags[] = { { "use_bidirectional_attention", "only causal decoders are modelled" },
                { "is_encoder_decoder", "only causal decoders are modelled" },
                { "add_cross_attention", "only causal decoders are modelled" },
                { "attention_out_bias", "this bias is not modelled" } };
  for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
    const text_node *n = hf_get(r, flags[i].flag);
    if (n != NULL && strcmp(n->text, "false") != 0) {
      return diag_error(r->d, n->at, "%s is %s; %s", flags[i].flag, text_describe(r->a, n),
                        flags[i].modelled);
    }
  }
  return true;
}

/* Gemma multiplies embeddings by the root of their width, scores by that of
 * query_pre_attn_scalar. */
static bool set_gemma(const hf_reader *r)
{
  const text_node *n = hf_get(r, "query_pre_attn_scalar");
  int64_t hidden;
  double scalar;
  if (!hf_has_parts(r, PART_GEMMA)) {
    return true;
  }
  if (!hf_count(r, "hidden_size", &hidden) ||
      !hf_set(r, "model.embedding_multiplier", arena_printf(r->a, "%.17g", sqrt((double)hidden)),
              r->top->at)) {
    return false;
  }
  if (n == NULL) {
    return true;
  }
  if (!text_as_double(n, &scalar, r->d)) {
    return false;
  }
  if (!(scalar > 0)) {
    return diag_error(r->d, n->at, "query_pre_attn_scalar is %s; it must be above 0", n->text);
  }
  return hf_set(r, "model.attention_multiplier", arena_printf(r->a, "%.17g", 1 / sqrt(scalar)),
                n->at);
}

static bool set_embeddings(const hf_reader *r)
{
  const text_node *n = text_get(r->whole, "tie_word_embeddings");
  if (n == NULL || text_is_null(n)) {
    n = hf_get(r, "tie_word_embeddings");
  }
  bool tied = hf_has_parts(r, PART_TIED);
  if (n != NULL && !text_as_bool(n, &tied, r->d)) {
    return false;
  }
  return hf_set(r, "model.untie_embeddings_and_output_weights", tied ? "false" : "true",
                n != NULL ? n->at : r->top->at);
}

static hf_config_facts facts_of(const hf_reader *r)
{
  static const char *const names[] = { "dtype", "torch_dtype" };
  const text_node *const places[] = { r->top, r->whole };
  hf_config_facts found = { .needs_hf = hf_has_parts(r, PART_HF) };
  for (size_t i = 0; i < 4 && found.dtype == NULL; i++) {
    const text_node *n = text_get(places[i / 2], names[i % 2]);
    if (n != NULL && !text_is_null(n)) {
      found.dtype = n->text;
      found.dtype_at = n->at;
    }
  }
  return found;
}

bool hf_config_parse(settings *s, const char *path, const char *text, size_t length,
                     hf_config_facts *facts, arena *a, diag *d)
{
  const text_node *whole = text_read(a, path, text, length, d);
  hf_reader r = { .s = s, .whole = whole, .top = whole, .a = a, .d = d };
  if (whole == NULL || !text_expect(whole, TEXT_MAPPING, d) ||
      !other_files_check(whole, "--hf-config", d) || !hf_find_family(&r)) {
    return false;
  }
  if (facts != NULL) {
    *facts = facts_of(&r);
  }
  if (!check_unmodelled(&r) || !set_constants(&r)) {
    return false;
  }
  bool good = diag_step(d, set_activation(&r));
  good = diag_step(d, set_fields(&r)) && good;
  /* these need the shape */
  return good && set_gemma(&r) && hf_set_attention(&r) && set_embeddings(&r) && hf_set_experts(&r);
}

bool hf_config_read(settings *s, const char *path, hf_config_facts *facts, arena *a, diag *d)
{
  size_t length;
  if (file_kind_of(path) == FILE_FOLDER) path = arena_printf(a, "%s/config.json", path);
  if (file_kind_of(path) == FILE_MISSING) {
    return diag_error(d, (source_pos){ path, 0, 0 },
                      "there is no such file; no model is looked up by its name: give its "
                      "config.json, or the folder with it");
  }
  const char *text = file_read(a, path, FILE_TEXT_LIMIT_BYTES, &length, d);
  return text != NULL && hf_config_parse(s, path, text, length, facts, a, d);
}

/* ---- a config.json alone ---- */

static bool assume_precision(settings *s, const hf_config_facts *f, arena *a, diag *d)
{
  const char *key = f->dtype == NULL                    ? NULL
                    : strcmp(f->dtype, "bfloat16") == 0 ? "training.bf16"
                    : strcmp(f->dtype, "float16") == 0  ? "training.fp16"
                                                        : NULL;
  if (key == NULL || s->given[KEY_training_bf16] || s->given[KEY_training_fp16]) {
    return true;
  }
  diag_note(d, f->dtype_at, "dtype is %s, and so is the training; --set %s=false for fp32",
            f->dtype, key);
  return settings_set(s, key, "true", f->dtype_at, a, d);
}

/* Without a word, attention is by sdpa; transformers itself takes eager attention where sdpa cannot
 * do what the model needs. */
static bool assume_implementation(settings *s, const hf_config_facts *f, arena *a, diag *d)
{
  bool open = s->model.implementation == IMPLEMENTATION_EMPTY && s->offload.system == SYSTEM_EMPTY;
  bool sinks = s->model.attention_sinks, capped = s->model.attn_logit_softcapping != 0;
  if (open && f->needs_hf) {
    diag_note(d, f->dtype_at, "model.implementation is hf: Megatron-LM has no such modules");
    if (!settings_set(s, "model.implementation", "hf", f->dtype_at, a, d)) {
      return false;
    }
  }
  if ((!capped && !sinks) || s->given[KEY_model_attn_implementation]) {
    return true;
  }
  diag_note(d, f->dtype_at, "attn_implementation is eager: sdpa cannot %s, flash_attention_2 can",
            sinks ? "have sinks" : "cap scores");
  return settings_set(s, "model.attn_implementation", "eager", f->dtype_at, a, d);
}

bool hf_config_assume(settings *s, const hf_config_facts *facts, arena *a, diag *d)
{
  return assume_precision(s, facts, a, d) && assume_implementation(s, facts, a, d);
}
