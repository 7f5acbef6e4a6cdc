/* The families of models, what each of them fixes, and models that are known not to be modelled. */
#include <string.h>

#include "sim/config/hf/parts.h"

/* ---- what a family fixes in addition to the common part ---- */

#define END                                                                                        \
  {                                                                                                \
    NULL, NULL                                                                                     \
  }

/* clang-format off */
static const family_constant of_gemma[] = { { "model.apply_layernorm_1p", "true" }, END };
static const family_constant of_gemma2[] = { { "model.apply_layernorm_1p", "true" },
                                             { "model.layer_norms", "sandwich" }, END };
static const family_constant of_gemma3[] = { { "model.apply_layernorm_1p", "true" },
                                             { "model.layer_norms", "sandwich" },
                                             { "model.qk_norm", "transposed" },
                                             { "model.rotary_base", "1000000" }, END };
static const family_constant of_ministral3[] = { { "model.query_position_scale", "true" },
                                                 { "model.rotary_base", "1000000" },
                                                 { "model.norm_epsilon", "0.00001" }, END };
static const family_constant of_mixtral[] = { { "model.norm_topk_prob", "true" },
                                              { "model.moe_scores_in_fp32", "true" },
                                              { "model.norm_epsilon", "0.00001" }, END };
static const family_constant of_phi3[] = { { "model.fused_qkv_sliced", "true" },
                                           { "model.fused_gate_up", "true" },
                                           { "model.rotary_sliced", "true" },
                                           { "model.norm_epsilon", "0.00001" }, END };
static const family_constant of_gpt_oss[] = { { "model.moe_class", "gpt_oss" },
                                              { "model.attention_sinks", "true" },
                                              { "model.rotary_form", "halves" },
                                              { "model.norm_gain_in_fp32", "true" },
                                              { "model.rotary_base", "150000" },
                                              { "model.norm_epsilon", "0.00001" }, END };
static const family_constant of_deepseek_v2[] = { { "model.moe_class", "deepseek_v2" },
                                                  { "model.rotary_form", "complex" }, END };
static const family_constant of_deepseek_v3[] = { { "model.moe_class", "deepseek_v3" },
                                                  { "model.rotary_form", "pairs" }, END };
static const family_constant of_glm4_moe[] = { { "model.moe_class", "deepseek_v3" },
                                               { "model.rotary_sliced", "true" },
                                               { "model.rotary_percent", "0.5" },
                                               { "model.norm_epsilon", "0.00001" }, END };
static const family_constant of_glm4[] = { { "model.layer_norms", "sandwich" },
                                           { "model.fused_gate_up", "true" },
                                           { "model.rotary_interleaved", "true" },
                                           { "model.rotary_sliced", "true" },
                                           { "model.rotary_percent", "0.5" },
                                           { "model.norm_epsilon", "0.00000015625" }, END };
static const family_constant of_llama4[] = { { "model.attention_class", "llama4" },
                                             { "model.moe_router_score_function", "sigmoid" },
                                             { "model.moe_class", "llama4" },
                                             { "model.rotary_form", "complex" },
                                             { "model.qk_l2_norm", "true" },
                                             { "model.attn_temperature_tuning", "true" },
                                             { "model.rotary_base", "500000" },
                                             { "model.norm_epsilon", "0.00001" }, END };
static const family_constant of_olmo2[] = { { "model.layer_norms", "post" },
                                            { "model.norm_gain_in_fp32", "true" },
                                            { "model.qk_norm", "whole" },
                                            { "model.rotary_tables_fp32", "true" },
                                            { "model.norm_epsilon", "0.00001" }, END };
static const family_constant of_olmo3[] = { { "model.layer_norms", "post" },
                                            { "model.norm_gain_in_fp32", "true" },
                                            { "model.qk_norm", "whole" },
                                            { "model.rotary_tables_fp32", "true" },
                                            { "model.rotary_base", "500000" },
                                            { "model.norm_epsilon", "0.00001" }, END };
static const family_constant of_qwen2_vl[] = { { "model.position_embedding_type", "mrope" },
                                               { "model.norm_epsilon", "0.00001" }, END };
static const family_constant of_qwen3_vl[] = { { "model.position_embedding_type", "mrope" }, END };
static const family_constant of_qwen3_vl_moe[] = { { "model.position_embedding_type", "mrope" },
                                                   { "model.norm_topk_prob", "true" }, END };
/* clang-format on */
#define OF_LINEAR                                                                                  \
  { "model.apply_layernorm_1p", "true" }, { "model.attention_output_gate", "true" },               \
      { "model.rotary_percent", "0.25" },                                                          \
  {                                                                                                \
    "model.linear_num_value_heads", "32"                                                           \
  }
/* clang-format off */
static const family_constant of_qwen3_next[] = { OF_LINEAR, { "model.linear_fused_projections", "true" },
                                                 { "model.norm_topk_prob", "true" }, END };
static const family_constant of_qwen3_5[] = { OF_LINEAR, { "model.position_embedding_type", "mrope" },
                                              { "model.norm_topk_prob", "true" }, END };
static const family_constant of_smollm3[] = { { "model.rotary_base", "2000000" }, END };
static const family_constant of_starcoder2[] = { { "model.normalization", "LayerNorm" },
                                                 { "model.swiglu", "false" },
                                                 { "model.norm_epsilon", "0.00001" }, END };
/* clang-format on */

enum { LINEAR = PART_HF | PART_LINEAR | PART_QK_NORM | PART_BIAS_KEY };
enum { DENSE_GEMMA = PART_HF | PART_GEMMA | PART_TIED | PART_BIAS_KEY };

/* Source: models/<model_type>/modeling_*.py and configuration_*.py of transformers 5.23; DeepSeek's
 * own modeling_deepseek.py has the same shapes. Kimi-K2 is DeepSeek-V3's architecture. */
static const family families[] = {
  { "llama", "LlamaForCausalLM", PART_BIAS_KEY, 0, 0, WINDOW_NONE, 0, 0, NULL },
  { "llama4_text", "Llama4ForCausalLM",
    PART_HF | PART_EXPERTS | PART_LLAMA4 | PART_NO_ROPE | PART_BIAS_KEY, 8, 128, WINDOW_CHUNKS,
    8192, 0, of_llama4 },
  { "mistral", "MistralForCausalLM", 0, 8, 0, WINDOW_ALL, 4096, 0, NULL },
  { "ministral", "MinistralForCausalLM", 0, 8, 0, WINDOW_TYPED, 4096, 0, NULL },
  { "ministral3", "Ministral3ForCausalLM", PART_HF, 8, 128, WINDOW_ALL, 0, 0, of_ministral3 },
  { "qwen2", "Qwen2ForCausalLM", PART_QKV_BIAS, 0, 0, WINDOW_LATE, 4096, 0, NULL },
  { "qwen2_moe", "Qwen2MoeForCausalLM", PART_EXPERTS | PART_SHARED_GATE | PART_QKV_BIAS, 0, 0,
    WINDOW_LATE, 4096, 0, NULL },
  { "qwen3", "Qwen3ForCausalLM", PART_QK_NORM | PART_BIAS_KEY, 0, 128, WINDOW_LATE, 4096, 0, NULL },
  { "qwen3_moe", "Qwen3MoeForCausalLM", PART_EXPERTS | PART_QK_NORM | PART_BIAS_KEY, 0, 0,
    WINDOW_LATE, 4096, 0, NULL },
  { "qwen2_vl", "Qwen2VLForConditionalGeneration", PART_QKV_BIAS, 0, 0, WINDOW_LATE, 4096, 0,
    of_qwen2_vl },
  { "qwen2_vl_text", "", PART_QKV_BIAS, 0, 0, WINDOW_LATE, 4096, 0, of_qwen2_vl },
  { "qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", PART_QKV_BIAS, 0, 0, WINDOW_LATE, 4096, 0,
    of_qwen2_vl },
  { "qwen2_5_vl_text", "", PART_QKV_BIAS, 0, 0, WINDOW_LATE, 4096, 0, of_qwen2_vl },
  { "qwen3_vl_text", "", PART_QK_NORM | PART_BIAS_KEY, 0, 128, WINDOW_LATE, 4096, 0, of_qwen3_vl },
  { "qwen3_vl_moe_text", "", PART_EXPERTS | PART_QK_NORM | PART_BIAS_KEY, 0, 0, WINDOW_NONE, 0, 0,
    of_qwen3_vl_moe },
  { "qwen3_next", "Qwen3NextForCausalLM", LINEAR | PART_EXPERTS | PART_SHARED_GATE, 2, 256,
    WINDOW_NONE, 0, 0, of_qwen3_next },
  { "qwen3_5_text", "Qwen3_5ForCausalLM", LINEAR, 4, 256, WINDOW_NONE, 0, 0, of_qwen3_5 },
  { "qwen3_5_moe_text", "Qwen3_5MoeForCausalLM",
    LINEAR | PART_EXPERTS | PART_SHARED_GATE | PART_NO_DENSE, 2, 256, WINDOW_NONE, 0, 0,
    of_qwen3_5 },
  { "mixtral", "MixtralForCausalLM", PART_EXPERTS, 8, 0, WINDOW_ALL, 0, 0, of_mixtral },
  { "gpt_oss", "GptOssForCausalLM", PART_HF | PART_EXPERTS | PART_BIAS_KEY | PART_ALL_BIAS, 8, 64,
    WINDOW_ALTERNATING, 128, 2, of_gpt_oss },
  { "deepseek_v2", "DeepseekV2ForCausalLM", PART_EXPERTS | PART_LATENT | PART_QK_NORM, 0, 0,
    WINDOW_NONE, 0, 0, of_deepseek_v2 },
  { "deepseek_v3", "DeepseekV3ForCausalLM", PART_EXPERTS | PART_LATENT | PART_QK_NORM, 0, 0,
    WINDOW_NONE, 0, 0, of_deepseek_v3 },
  { "kimi_k2", "DeepseekV3ForCausalLM", PART_EXPERTS | PART_LATENT | PART_QK_NORM, 0, 0,
    WINDOW_NONE, 0, 0, of_deepseek_v3 },
  { "glm4_moe", "Glm4MoeForCausalLM",
    PART_HF | PART_EXPERTS | PART_BIAS_KEY | PART_NO_O_BIAS | PART_QK_NORM_KEY, 8, 128, WINDOW_NONE,
    0, 0, of_glm4_moe },
  { "gemma", "GemmaForCausalLM", DENSE_GEMMA, 16, 256, WINDOW_NONE, 0, 0, of_gemma },
  { "gemma2", "Gemma2ForCausalLM", DENSE_GEMMA, 4, 256, WINDOW_ALTERNATING, 4096, 2, of_gemma2 },
  { "gemma3_text", "Gemma3ForCausalLM", DENSE_GEMMA | PART_QK_NORM, 4, 256, WINDOW_ALTERNATING,
    4096, 6, of_gemma3 },
  { "phi3", "Phi3ForCausalLM", PART_HF, 0, 0, WINDOW_ALL, 0, 0, of_phi3 },
  { "olmo2", "Olmo2ForCausalLM", PART_HF | PART_QK_NORM | PART_BIAS_KEY, 0, 0, WINDOW_NONE, 0, 0,
    of_olmo2 },
  { "olmo3", "Olmo3ForCausalLM", PART_HF | PART_QK_NORM | PART_BIAS_KEY, 0, 0, WINDOW_ALTERNATING,
    4096, 4, of_olmo3 },
  { "granite", "GraniteForCausalLM", PART_HF | PART_BIAS_KEY, 0, 0, WINDOW_NONE, 0, 0, NULL },
  { "glm4", "Glm4ForCausalLM", PART_HF | PART_BIAS_KEY | PART_NO_O_BIAS, 2, 128, WINDOW_NONE, 0, 0,
    of_glm4 },
  { "seed_oss", "SeedOssForCausalLM", PART_HF | PART_BIAS_KEY | PART_NO_O_BIAS, 8, 128, WINDOW_NONE,
    0, 0, NULL },
  { "smollm3", "SmolLM3ForCausalLM", PART_HF | PART_BIAS_KEY | PART_NO_ROPE | PART_TIED, 4, 0,
    WINDOW_NO_ROPE, 0, 0, of_smollm3 },
  { "starcoder2", "Starcoder2ForCausalLM", PART_HF | PART_USE_BIAS | PART_TIED, 2, 0, WINDOW_ALL, 0,
    0, of_starcoder2 },
};

enum { FAMILY_COUNT = sizeof families / sizeof families[0] };

/* ---- models that are not modelled ---- */

#define HYBRID    "state-space, convolution or linear-attention layers"
#define ENCODER   "an encoder and no causal loss"
#define SEQ2SEQ   "an encoder beside its decoder"
#define VISION    "no text decoder"
#define PARALLEL  "attention and MLP that read the same norm"
#define NO_EXPERT "experts whose operators are not modelled"

/* Source: the same files. A name that ends with '*' covers all that begin with it. */
static const struct refused_family {
  const char *model_type, *has;
} refused[] = {
  { "falcon_h1", HYBRID },
  { "falcon_mamba", HYBRID },
  { "mamba*", HYBRID },
  { "jamba", HYBRID },
  { "bamba", HYBRID },
  { "nemotron_h*", HYBRID },
  { "rwkv*", HYBRID },
  { "zamba*", HYBRID },
  { "lfm2*", HYBRID },
  { "recurrent_gemma", HYBRID },
  { "granitemoehybrid", HYBRID },
  { "olmo_hybrid", HYBRID },
  { "kimi_linear", HYBRID },
  { "minimax", HYBRID },
  { "xlstm", HYBRID },
  { "bert*", ENCODER },
  { "roberta*", ENCODER },
  { "xlm-roberta*", ENCODER },
  { "distilbert", ENCODER },
  { "deberta*", ENCODER },
  { "electra", ENCODER },
  { "modernbert", ENCODER },
  { "t5*", SEQ2SEQ },
  { "mt5", SEQ2SEQ },
  { "umt5", SEQ2SEQ },
  { "bart", SEQ2SEQ },
  { "mbart", SEQ2SEQ },
  { "whisper", SEQ2SEQ },
  { "vit*", VISION },
  { "clip*", VISION },
  { "siglip*", VISION },
  { "wav2vec2*", VISION },
  { "cohere*", PARALLEL },
  { "falcon", PARALLEL },
  { "phi", PARALLEL },
  { "gpt_neox*", PARALLEL },
  { "gptj", PARALLEL },
  { "granitemoe*", NO_EXPERT },
  { "glm4_moe_lite", NO_EXPERT },
  { "glm_moe*", NO_EXPERT },
  { "olmoe", NO_EXPERT },
  { "phimoe", NO_EXPERT },
  { "gemma3n*", "embeddings for each layer and layers that share keys and values" },
  { "gemma4*", "embeddings for each layer and layers that share keys and values" },
  { "phi4_multimodal", "adapters of its own for images and speech" },
  { "chatglm", "code of its own instead of a class of transformers" },
};

static bool is_called(const char *name, const char *model_type)
{
  size_t length = strlen(name);
  return name[length - 1] == '*' ? strncmp(name, model_type, length - 1) == 0
                                 : strcmp(name, model_type) == 0;
}

static const char *what_is_not_modelled(const char *model_type)
{
  for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
    if (is_called(refused[i].model_type, model_type)) {
      return refused[i].has;
    }
  }
  return NULL;
}

/* ---- finding ---- */

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

/* Vision-language models keep the text model's keys under text_config. */
static bool enter_text_model(hf_reader *r)
{
  const text_node *text = hf_get(r, "text_config"), *type = hf_get(r, "model_type");
  const text_node *beside = text != NULL ? text : hf_get(r, "vision_config");
  if (beside == NULL) {
    return true;
  }
  if (!text_expect(beside, TEXT_MAPPING, r->d)) {
    return false;
  }
  diag_note(r->d, beside->key_at,
            "%s: the text model of %s alone is predicted, for text alone; encoders of images or "
            "sound are neither in memory nor trained",
            beside->key, type != NULL ? type->text : "the model");
  r->top = text != NULL ? text : r->top;
  return true;
}

static bool not_known(const hf_reader *r, const text_node *type, const text_node *architectures)
{
  if (type == NULL && architectures == NULL) {
    return diag_error(r->d, r->top->at, "neither model_type nor architectures; known models: %s",
                      known_families(r->a));
  }
  const char *has = type != NULL ? what_is_not_modelled(type->text) : NULL;
  if (has != NULL) {
    return diag_error(r->d, type->at,
                      "model_type is %s, a model with %s, which is not modelled; known models: %s",
                      text_describe(r->a, type), has, known_families(r->a));
  }
  return diag_error(r->d, type != NULL ? type->at : architectures->at, "%s is %s; known models: %s",
                    type != NULL ? "model_type" : "architectures",
                    text_describe(r->a, type != NULL ? type : architectures), known_families(r->a));
}

bool hf_find_family(hf_reader *r)
{
  if (!enter_text_model(r)) {
    return false;
  }
  const text_node *type = hf_get(r, "model_type");
  const text_node *architectures = hf_get(r, "architectures");
  for (size_t i = 0; i < FAMILY_COUNT; i++) {
    if (is_family(&families[i], type, architectures)) {
      r->family = &families[i];
      return true;
    }
  }
  return not_known(r, type, architectures);
}
