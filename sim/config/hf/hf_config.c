#include "sim/config/hf/hf_config.h"

#include <string.h>

#include "sim/base/file.h"
#include "sim/config/hf/parts.h"

/* --- What families have in common and where they differ --- */

/* Source: models/<model_type>/modeling_*.py and configuration_*.py of transformers; DeepSeek's own
 * modeling_deepseek.py has the same shapes. Kimi-K2 is DeepSeek-V3's architecture. */
static const family families[] = {
  { "llama", "LlamaForCausalLM", 0, 0 },
  { "mistral", "MistralForCausalLM", 0, 8 },
  { "qwen2", "Qwen2ForCausalLM", PART_QKV_BIAS, 0 },
  { "qwen2_moe", "Qwen2MoeForCausalLM", PART_EXPERTS | PART_SHARED_GATE | PART_QKV_BIAS, 0 },
  { "qwen3", "Qwen3ForCausalLM", PART_QK_NORM, 0 },
  { "qwen3_moe", "Qwen3MoeForCausalLM", PART_EXPERTS | PART_QK_NORM, 0 },
  { "mixtral", "MixtralForCausalLM", PART_EXPERTS, 8 },
  { "deepseek_v2", "DeepseekV2ForCausalLM", PART_EXPERTS | PART_LATENT | PART_QK_NORM, 0 },
  { "deepseek_v3", "DeepseekV3ForCausalLM", PART_EXPERTS | PART_LATENT | PART_QK_NORM, 0 },
  { "kimi_k2", "DeepseekV3ForCausalLM", PART_EXPERTS | PART_LATENT | PART_QK_NORM, 0 },
};

enum { FAMILY_COUNT = sizeof families / sizeof families[0] };

/* What all of them are. */
static const struct constant {
  const char *key, *text;
} constants[] = {
  { "model.normalization", "RMSNorm" },        { "model.swiglu", "true" },
  { "model.position_embedding_type", "rope" }, { "model.add_bias_linear", "false" },
  { "model.hidden_dropout", "0.0" },           { "model.fused_rms_norm", "false" },
};

/* A number that is copied. */
typedef struct field {
  const char *name; /* in config.json */
  const char *key;
  unsigned parts; /* only families with all of these parts have it */
  bool required;
} field;

static const field fields[] = {
  { "num_hidden_layers", "model.num_layers", 0, true },
  { "hidden_size", "model.hidden_size", 0, true },
  { "intermediate_size", "model.ffn_hidden_size", 0, true },
  { "num_attention_heads", "model.num_attention_heads", 0, true },
  { "vocab_size", "model.vocab_size", 0, true },
  { "max_position_embeddings", "model.max_position_embeddings", 0, false },
  { "attention_dropout", "model.attention_dropout", 0, false },
  { "rms_norm_eps", "model.norm_epsilon", 0, false },
  { "rope_theta", "model.rotary_base", 0, false },
  { "q_lora_rank", "model.q_lora_rank", PART_LATENT, false },
  { "kv_lora_rank", "model.kv_lora_rank", PART_LATENT, true },
  { "qk_nope_head_dim", "model.qk_head_dim", PART_LATENT, true },
  { "qk_rope_head_dim", "model.qk_pos_emb_head_dim", PART_LATENT, true },
  { "v_head_dim", "model.v_head_dim", PART_LATENT, true },
  { "num_experts_per_tok", "model.moe_router_topk", PART_EXPERTS, true },
  { "shared_expert_intermediate_size", "model.moe_shared_expert_intermediate_size",
    PART_EXPERTS | PART_SHARED_GATE, true },
  { "num_nextn_predict_layers", "model.mtp_num_layers", PART_LATENT, false },
};

/* --- Parts --- */

static bool set_constants(const hf_reader *r)
{
  for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++) {
    if (!hf_set(r, constants[i].key, constants[i].text, r->top->at)) {
      return false;
    }
  }
  return true;
}

static bool set_fields(const hf_reader *r)
{
  for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
    const field *f = &fields[i];
    const text_node *n = hf_get(r, f->name);
    int64_t count;
    if (!hf_has_parts(r, f->parts) || (n == NULL && !f->required)) {
      continue;
    }
    if (f->required && !hf_count(r, f->name, &count)) {
      return false;
    }
    const char *text;
    if (!text_as_string(n, &text, r->d) || !hf_set(r, f->key, text, n->at)) {
      return false;
    }
  }
  return true;
}

static bool check_activation(const hf_reader *r)
{
  const text_node *n = hf_get(r, "hidden_act");
  return n == NULL || (n->kind == TEXT_SCALAR && strcmp(n->text, "silu") == 0) ||
         diag_error(r->d, n->at, "hidden_act is %s; a %s model is known with silu",
                    text_describe(r->a, n), r->family->model_type);
}

/* Heads of keys and values, and the width of a head. Latent attention has widths of its own. */
static bool set_heads(const hf_reader *r)
{
  int64_t heads, groups, width, hidden;
  if (hf_has_parts(r, PART_LATENT)) {
    return hf_set(r, "model.multi_latent_attention", "true", r->top->at);
  }
  const text_node *n = hf_get(r, "num_key_value_heads");
  if (!hf_count(r, "num_attention_heads", &heads) || !hf_count(r, "hidden_size", &hidden)) {
    return false;
  }
  int64_t usual = r->family->key_value_heads != 0 ? r->family->key_value_heads : heads;
  if (!hf_number(r, "num_key_value_heads", usual, &groups) ||
      !hf_number(r, "head_dim", hidden / heads, &width)) {
    return false;
  }
  source_pos at = n != NULL ? n->at : r->top->at;
  return hf_set_number(r, "model.kv_channels", width, r->top->at) &&
         (groups == heads || (hf_set(r, "model.group_query_attention", "true", at) &&
                              hf_set_number(r, "model.num_query_groups", groups, at)));
}

static bool set_attention_parts(const hf_reader *r)
{
  const text_node *bias = hf_get(r, "attention_bias");
  bool biased = hf_has_parts(r, PART_QKV_BIAS);
  if (bias != NULL && !text_as_bool(bias, &biased, r->d)) {
    return false;
  }
  source_pos at = bias != NULL ? bias->at : r->top->at;
  return hf_set(r, "model.add_qkv_bias", biased ? "true" : "false", at) &&
         (!hf_has_parts(r, PART_QK_NORM) || hf_set(r, "model.qk_layernorm", "true", r->top->at));
}

/* Every family unties its embeddings unless it says otherwise. */
static bool set_embeddings(const hf_reader *r)
{
  const text_node *n = hf_get(r, "tie_word_embeddings");
  bool tied = false;
  if (n != NULL && !text_as_bool(n, &tied, r->d)) {
    return false;
  }
  return hf_set(r, "model.untie_embeddings_and_output_weights", tied ? "false" : "true",
                n != NULL ? n->at : r->top->at);
}

/* --- Family --- */

static const char *known_families(arena *a)
{
  const char *list = families[0].model_type;
  for (size_t i = 1; i < FAMILY_COUNT; i++) {
    list = arena_printf(a, "%s, %s", list, families[i].model_type);
  }
  return list;
}

static bool is_family(const family *f, const text_node *type, const text_node *architectures)
{
  if (type != NULL) {
    return strcmp(type->text, f->model_type) == 0;
  }
  return architectures != NULL && architectures->count > 0 &&
         strcmp(architectures->children[0].text, f->architecture) == 0;
}

static bool find_family(hf_reader *r)
{
  const text_node *type = hf_get(r, "model_type");
  const text_node *architectures = hf_get(r, "architectures");
  for (size_t i = 0; i < FAMILY_COUNT; i++) {
    if (is_family(&families[i], type, architectures)) {
      r->family = &families[i];
      return true;
    }
  }
  if (type == NULL && architectures == NULL) {
    return diag_error(r->d, r->top->at, "neither model_type nor architectures; known models: %s",
                      known_families(r->a));
  }
  return diag_error(r->d, type != NULL ? type->at : architectures->at, "%s is %s; known models: %s",
                    type != NULL ? "model_type" : "architectures",
                    text_describe(r->a, type != NULL ? type : architectures), known_families(r->a));
}

bool hf_config_parse(settings *s, const char *path, const char *text, size_t length, arena *a,
                     diag *d)
{
  hf_reader r = { .s = s, .top = text_read(a, path, text, length, d), .a = a, .d = d };
  return r.top != NULL && text_expect(r.top, TEXT_MAPPING, d) && find_family(&r) &&
         check_activation(&r) && set_constants(&r) && set_fields(&r) && set_heads(&r) &&
         set_attention_parts(&r) && set_embeddings(&r) && hf_set_experts(&r);
}

bool hf_config_read(settings *s, const char *path, arena *a, diag *d)
{
  size_t length;
  const char *text = file_read(a, path, FILE_TEXT_LIMIT_BYTES, &length, d);
  return text != NULL && hf_config_parse(s, path, text, length, a, d);
}
