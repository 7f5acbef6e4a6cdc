#include "sim/config/hf_config.h"

#include <string.h>

#include "sim/base/file.h"
#include "sim/text/yaml_text.h"

/* --- What families have in common and where they differ --- */

typedef enum family_parts {
  PART_EXPERTS = 1,     /* routed experts */
  PART_SHARED_GATE = 2, /* the shared expert has a gate */
  PART_LATENT = 4,      /* multi-latent attention */
  PART_QKV_BIAS = 8,    /* the QKV projection always has a bias */
  PART_QK_NORM = 16,    /* norm of queries and keys */
} family_parts;

typedef struct family {
  const char *model_type;
  const char *architecture;
  unsigned parts;
  const char *key_value_heads; /* where num_key_value_heads is missing; NULL: as many as heads */
} family;

/* Source: models/<model_type>/modeling_*.py and configuration_*.py of transformers; DeepSeek's own
 * modeling_deepseek.py has the same shapes. Kimi-K2 is DeepSeek-V3's architecture. */
static const family families[] = {
  { "llama", "LlamaForCausalLM", 0, NULL },
  { "mistral", "MistralForCausalLM", 0, "8" },
  { "qwen2", "Qwen2ForCausalLM", PART_QKV_BIAS, NULL },
  { "qwen2_moe", "Qwen2MoeForCausalLM", PART_EXPERTS | PART_SHARED_GATE | PART_QKV_BIAS, NULL },
  { "qwen3", "Qwen3ForCausalLM", PART_QK_NORM, NULL },
  { "qwen3_moe", "Qwen3MoeForCausalLM", PART_EXPERTS | PART_QK_NORM, NULL },
  { "mixtral", "MixtralForCausalLM", PART_EXPERTS, "8" },
  { "deepseek_v2", "DeepseekV2ForCausalLM", PART_EXPERTS | PART_LATENT | PART_QK_NORM, NULL },
  { "deepseek_v3", "DeepseekV3ForCausalLM", PART_EXPERTS | PART_LATENT | PART_QK_NORM, NULL },
  { "kimi_k2", "DeepseekV3ForCausalLM", PART_EXPERTS | PART_LATENT | PART_QK_NORM, NULL },
};

enum { FAMILY_COUNT = sizeof families / sizeof families[0] };

/* What all of them are. */
static const struct constant {
  const char *key, *text;
} constants[] = {
  { "model.normalization", "RMSNorm" },        { "model.swiglu", "true" },
  { "model.position_embedding_type", "rope" }, { "model.add_bias_linear", "false" },
  { "model.hidden_dropout", "0.0" },
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

typedef struct hf_reader {
  settings *s;
  const text_node *top;
  const family *family;
  arena *a;
  diag *d;
} hf_reader;

static bool has_parts(const hf_reader *r, unsigned parts)
{
  return (r->family->parts & parts) == parts;
}

/* The value of `name`, or NULL: not there, or null. */
static const text_node *get(const hf_reader *r, const char *name)
{
  const text_node *n = text_get(r->top, name);
  return n != NULL && !text_is_null(n) ? n : NULL;
}

/* The number under `name`, `fallback` if there is none. */
static bool get_number(const hf_reader *r, const char *name, int64_t fallback, int64_t *value)
{
  const text_node *n = get(r, name);
  *value = fallback;
  return n == NULL || text_as_i64(n, value, r->d);
}

/* The same where there must be one that counts something. */
static bool get_count(const hf_reader *r, const char *name, int64_t *value)
{
  const text_node *n = get(r, name);
  if (n == NULL) {
    return diag_error(r->d, r->top->at, "%s is missing; a %s model has it", name,
                      r->family->model_type);
  }
  if (!text_as_i64(n, value, r->d)) {
    return false;
  }
  return *value > 0 || diag_error(r->d, n->at, "%s is %s; it must be at least 1", name, n->text);
}

static bool set_text(const hf_reader *r, const char *key, const char *text, source_pos at)
{
  return settings_set(r->s, key, text, at, r->a, r->d);
}

static bool set_number(const hf_reader *r, const char *key, int64_t value, source_pos at)
{
  return set_text(r, key, arena_printf(r->a, "%lld", (long long)value), at);
}

/* --- Parts --- */

static bool set_constants(const hf_reader *r)
{
  for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++) {
    if (!set_text(r, constants[i].key, constants[i].text, r->top->at)) {
      return false;
    }
  }
  return true;
}

static bool set_fields(const hf_reader *r)
{
  for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
    const field *f = &fields[i];
    const text_node *n = get(r, f->name);
    int64_t count;
    if (!has_parts(r, f->parts) || (n == NULL && !f->required)) {
      continue;
    }
    if (f->required && !get_count(r, f->name, &count)) {
      return false;
    }
    const char *text;
    if (!text_as_string(n, &text, r->d) || !set_text(r, f->key, text, n->at)) {
      return false;
    }
  }
  return true;
}

static bool check_activation(const hf_reader *r)
{
  const text_node *n = get(r, "hidden_act");
  return n == NULL || (n->kind == TEXT_SCALAR && strcmp(n->text, "silu") == 0) ||
         diag_error(r->d, n->at, "hidden_act is %s; a %s model is known with silu",
                    text_describe(r->a, n), r->family->model_type);
}

/* Heads of keys and values, and the width of a head. Latent attention has widths of its own. */
static bool set_heads(const hf_reader *r)
{
  int64_t heads, groups, width, hidden;
  if (has_parts(r, PART_LATENT)) {
    return set_text(r, "model.multi_latent_attention", "true", r->top->at);
  }
  const text_node *n = get(r, "num_key_value_heads");
  if (!get_count(r, "num_attention_heads", &heads) || !get_count(r, "hidden_size", &hidden)) {
    return false;
  }
  int64_t usual = r->family->key_value_heads != NULL ? *r->family->key_value_heads - '0' : heads;
  if (!get_number(r, "num_key_value_heads", usual, &groups) ||
      !get_number(r, "head_dim", hidden / heads, &width)) {
    return false;
  }
  source_pos at = n != NULL ? n->at : r->top->at;
  return set_number(r, "model.kv_channels", width, r->top->at) &&
         (groups == heads || (set_text(r, "model.group_query_attention", "true", at) &&
                              set_number(r, "model.num_query_groups", groups, at)));
}

static bool set_attention_parts(const hf_reader *r)
{
  const text_node *bias = get(r, "attention_bias");
  bool biased = has_parts(r, PART_QKV_BIAS);
  if (bias != NULL && !text_as_bool(bias, &biased, r->d)) {
    return false;
  }
  source_pos at = bias != NULL ? bias->at : r->top->at;
  return set_text(r, "model.add_qkv_bias", biased ? "true" : "false", at) &&
         (!has_parts(r, PART_QK_NORM) || set_text(r, "model.qk_layernorm", "true", r->top->at));
}

/* Every family unties its embeddings unless it says otherwise. */
static bool set_embeddings(const hf_reader *r)
{
  const text_node *n = get(r, "tie_word_embeddings");
  bool tied = false;
  if (n != NULL && !text_as_bool(n, &tied, r->d)) {
    return false;
  }
  return set_text(r, "model.untie_embeddings_and_output_weights", tied ? "false" : "true",
                  n != NULL ? n->at : r->top->at);
}

/* --- Experts --- */

/* Which layers are MoE: DeepSeek counts from layer 0 and keeps the first dense, Qwen counts from 1
 * and names dense layers. */
typedef struct moe_rule {
  int64_t first;           /* layers before it are dense */
  int64_t step, step_from; /* layer i is MoE if (i + step_from) % step == 0 */
  const text_node *dense;  /* list of layers, or NULL */
} moe_rule;

static bool named_dense(const moe_rule *rule, const char *layer)
{
  for (uint32_t i = 0; rule->dense != NULL && i < rule->dense->count; i++) {
    if (strcmp(rule->dense->children[i].text, layer) == 0) {
      return true;
    }
  }
  return false;
}

static bool read_moe_rule(const hf_reader *r, moe_rule *rule)
{
  rule->step_from = get(r, "decoder_sparse_step") != NULL;
  const char *step = rule->step_from != 0 ? "decoder_sparse_step" : "moe_layer_freq";
  rule->dense = get(r, "mlp_only_layers");
  if (!get_number(r, "first_k_dense_replace", 0, &rule->first) ||
      !get_number(r, step, 1, &rule->step)) {
    return false;
  }
  if (rule->step < 1) {
    return diag_error(r->d, get(r, step)->at, "%s is %s; it must be at least 1", step,
                      get(r, step)->text);
  }
  return rule->dense == NULL || text_expect(rule->dense, TEXT_SEQUENCE, r->d);
}

/* The pattern as Megatron's list, a 1 for each MoE layer. */
static bool set_moe_layers(const hf_reader *r)
{
  moe_rule rule;
  int64_t layers = r->s->model.num_layers;
  if (!read_moe_rule(r, &rule)) {
    return false;
  }
  char *pattern = ARENA_ARRAY(r->a, char, (size_t)(2 * layers + 2));
  bool all = true;
  pattern[0] = '[';
  for (int64_t i = 0; i < layers; i++) {
    const char *name = arena_printf(r->a, "%lld", (long long)i);
    bool moe =
        i >= rule.first && (i + rule.step_from) % rule.step == 0 && !named_dense(&rule, name);
    all = all && moe;
    pattern[2 * i + 1] = moe ? '1' : '0';
    pattern[2 * i + 2] = i + 1 < layers ? ',' : ']';
  }
  return set_text(r, "model.moe_layer_freq", all ? "1" : pattern, r->top->at);
}

/* n_shared_experts of the routed experts' width make one MLP. */
static bool set_shared_experts(const hf_reader *r, int64_t width)
{
  int64_t count;
  const text_node *n = get(r, "n_shared_experts");
  if (has_parts(r, PART_SHARED_GATE)) {
    return set_text(r, "model.moe_shared_expert_gate", "true", r->top->at);
  }
  if (n == NULL) {
    return true;
  }
  if (!text_as_i64(n, &count, r->d)) {
    return false;
  }
  if (count < 0 || count > INT64_MAX / width) {
    return diag_error(r->d, n->at, "n_shared_experts is %s; it must be 0 or a few", n->text);
  }
  return set_number(r, "model.moe_shared_expert_intermediate_size", count * width, n->at);
}

/* DeepSeek's choice of groups of experts first; one group is none. */
static bool set_routing(const hf_reader *r)
{
  int64_t groups, chosen;
  const text_node *score = get(r, "scoring_func");
  const text_node *method = get(r, "topk_method");
  if (!get_number(r, "n_group", 1, &groups) || !get_number(r, "topk_group", 1, &chosen)) {
    return false;
  }
  if (groups > 1 &&
      (!set_number(r, "model.moe_router_num_groups", groups, get(r, "n_group")->at) ||
       !set_number(r, "model.moe_router_group_topk", chosen, get(r, "n_group")->at))) {
    return false;
  }
  if (score != NULL && !set_text(r, "model.moe_router_score_function", score->text, score->at)) {
    return false;
  }
  return method == NULL || strcmp(method->text, "noaux_tc") != 0 ||
         set_text(r, "model.moe_router_enable_expert_bias", "true", method->at);
}

/* The name under which the family counts its routed experts. */
static const char *experts_name(const hf_reader *r)
{
  static const char *const names[] = { "num_local_experts", "n_routed_experts" };
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    if (get(r, names[i]) != NULL) {
      return names[i];
    }
  }
  return "num_experts";
}

static bool set_experts(const hf_reader *r)
{
  int64_t experts, width;
  const char *width_name =
      get(r, "moe_intermediate_size") != NULL ? "moe_intermediate_size" : "intermediate_size";
  if (!has_parts(r, PART_EXPERTS)) {
    return true;
  }
  return get_count(r, experts_name(r), &experts) && get_count(r, width_name, &width) &&
         set_number(r, "model.num_experts", experts, get(r, experts_name(r))->at) &&
         set_number(r, "model.moe_ffn_hidden_size", width, get(r, width_name)->at) &&
         set_text(r, "model.moe_grouped_gemm", "true", r->top->at) && set_moe_layers(r) &&
         set_shared_experts(r, width) && set_routing(r);
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
  const text_node *type = get(r, "model_type");
  const text_node *architectures = get(r, "architectures");
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
         set_attention_parts(&r) && set_embeddings(&r) && set_experts(&r);
}

bool hf_config_read(settings *s, const char *path, arena *a, diag *d)
{
  size_t length;
  const char *text = file_read(a, path, FILE_TEXT_LIMIT_BYTES, &length, d);
  return text != NULL && hf_config_parse(s, path, text, length, a, d);
}
