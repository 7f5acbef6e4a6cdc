/*
 * Hugging Face configs: the shapes of published models, and what is wrong with a config.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sim/config/hf/hf_config.h"

typedef struct fixture {
  settings s;
  arena a;
  diag d;
} fixture;

static fixture empty(void)
{
  fixture f = { .d = { .quiet = true } };
  settings_init(&f.s, &f.a);
  return f;
}

static fixture read_model(const char *name)
{
  fixture f = empty();
  char path[96];
  snprintf(path, sizeof path, "tests/data/hf/%s.json", name);
  bool good = hf_config_read(&f.s, path, NULL, &f.a, &f.d);
  if (!good) {
    print_error("%s\n", f.d.message);
  }
  assert_true(good);
  return f;
}

/* Published figures: model cards and technical reports. */
typedef struct shape {
  const char *name;
  int64_t layers, hidden, ffn, heads, groups, head_width, vocabulary;
  bool qkv_bias, qk_norm;
  int64_t experts, topk, expert_width, shared_width;
} shape;

static const shape shapes[] = {
  { "llama-3-8b", 32, 4096, 14336, 32, 8, 128, 128256, false, false, 0, 2, UNSET, 0 },
  { "qwen2.5-7b", 28, 3584, 18944, 28, 4, 128, 152064, true, false, 0, 2, UNSET, 0 },
  { "qwen3-8b", 36, 4096, 12288, 32, 8, 128, 151936, false, true, 0, 2, UNSET, 0 },
  { "qwen3-30b-a3b", 48, 2048, 6144, 32, 4, 128, 151936, false, true, 128, 8, 768, 0 },
  { "mixtral-8x7b", 32, 4096, 14336, 32, 8, 128, 32000, false, false, 8, 2, 14336, 0 },
  { "deepseek-v2-lite", 27, 2048, 10944, 16, UNSET, UNSET, 102400, false, true, 64, 6, 1408, 2816 },
  { "deepseek-v3", 61, 7168, 18432, 128, UNSET, UNSET, 129280, false, true, 256, 8, 2048, 2048 },
};

static void assert_shape(const struct model_settings *m, const shape *x)
{
  assert_int_equal(m->num_layers, x->layers);
  assert_int_equal(m->hidden_size, x->hidden);
  assert_int_equal(m->ffn_hidden_size, x->ffn);
  assert_int_equal(m->num_attention_heads, x->heads);
  assert_int_equal(m->num_query_groups, x->groups);
  assert_int_equal(m->group_query_attention, x->groups != UNSET);
  assert_int_equal(m->kv_channels, x->head_width);
  assert_int_equal(m->vocab_size, x->vocabulary);
  assert_int_equal(m->add_qkv_bias, x->qkv_bias);
  assert_int_equal(m->qk_layernorm, x->qk_norm);
  assert_int_equal(m->num_experts, x->experts);
  assert_int_equal(m->moe_router_topk, x->topk);
  assert_int_equal(m->moe_ffn_hidden_size, x->expert_width);
  assert_int_equal(m->moe_shared_expert_intermediate_size, x->shared_width);
  assert_int_equal(m->normalization, NORM_RMS);
  assert_int_equal(m->position_embedding_type, POSITIONS_ROPE);
  assert_true(m->swiglu && m->untie_embeddings_and_output_weights);
  assert_false(m->add_bias_linear);
}

static void published_models(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
    fixture f = read_model(shapes[i].name);
    assert_shape(&f.s.model, &shapes[i]);
    arena_release(&f.a);
  }
}

static void latent_attention(void **state)
{
  (void)state;
  fixture f = read_model("deepseek-v3");
  const struct model_settings *m = &f.s.model;
  assert_true(m->multi_latent_attention);
  assert_int_equal(m->q_lora_rank, 1536);
  assert_int_equal(m->kv_lora_rank, 512);
  assert_int_equal(m->qk_head_dim, 128);
  assert_int_equal(m->qk_pos_emb_head_dim, 64);
  assert_int_equal(m->v_head_dim, 128);
  assert_int_equal(m->mtp_num_layers, 1);
  assert_int_equal(m->moe_router_num_groups, 8);
  assert_int_equal(m->moe_router_group_topk, 4);
  assert_int_equal(m->moe_router_score_function, SCORES_SIGMOID);
  assert_true(m->moe_router_enable_expert_bias);
  assert_int_equal(strncmp(m->moe_layer_freq, "[0,0,0,1,1", 10), 0);
  assert_int_equal(strlen(m->moe_layer_freq), 2 * 61 + 1);
  arena_release(&f.a);

  f = read_model("deepseek-v2-lite");
  assert_int_equal(f.s.model.q_lora_rank, 0);
  assert_int_equal(f.s.model.moe_router_num_groups, 0);
  assert_int_equal(strncmp(f.s.model.moe_layer_freq, "[0,1,1", 6), 0);
  arena_release(&f.a);
}

#define QWEN_MOE                                                                                   \
  "{\"architectures\": [\"Qwen2MoeForCausalLM\"], \"num_hidden_layers\": 4, \"hidden_size\": 64, " \
  "\"intermediate_size\": 128, \"num_attention_heads\": 4, \"vocab_size\": 100, "                  \
  "\"num_experts\": 8, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 32, "                \
  "\"shared_expert_intermediate_size\": 96"

static bool parse(fixture *f, const char *text)
{
  *f = empty();
  return hf_config_parse(&f->s, "config.json", text, strlen(text), NULL, &f->a, &f->d);
}

/* Maverick: every other layer has experts, three of four rotate and see chunks. */
static void llama4(void **state)
{
  (void)state;
  fixture f = read_model("llama-4-maverick-17b-128e");
  const struct model_settings *m = &f.s.model;
  assert_int_equal(m->ffn_hidden_size, 16384);
  assert_int_equal(m->moe_ffn_hidden_size, 8192);
  assert_int_equal(m->moe_shared_expert_intermediate_size, 8192);
  assert_int_equal(m->num_experts, 128);
  assert_int_equal(strncmp(m->moe_layer_freq, "[0,1,0,1,", 9), 0);
  assert_int_equal(strncmp(m->rope_layers, "[1,1,1,0,1,", 11), 0);
  assert_string_equal(m->sliding_window_layers, m->rope_layers);
  assert_int_equal(m->sliding_window, 8192);
  assert_false(m->qk_l2_norm); /* only Scout has it */
  assert_true(m->attn_temperature_tuning);
  arena_release(&f.a);
  f = read_model("tiny/llama4-linearized");
  assert_string_equal(f.s.model.moe_layer_freq, "[0,1]"); /* moe_layers */
  assert_string_equal(f.s.model.rope_layers, "[1,0]");    /* no_rope_layers */
  arena_release(&f.a);
}

static void sparse_layers(void **state)
{
  (void)state;
  fixture f;
  assert_true(parse(&f, QWEN_MOE ", \"decoder_sparse_step\": 2, \"mlp_only_layers\": [3]}"));
  assert_string_equal(f.s.model.moe_layer_freq, "[0,1,0,0]");
  assert_int_equal(f.s.model.moe_shared_expert_intermediate_size, 96);
  assert_true(f.s.model.moe_shared_expert_gate);
  assert_int_equal(f.s.model.num_query_groups, UNSET);
  arena_release(&f.a);
  assert_true(parse(&f, QWEN_MOE ", \"tie_word_embeddings\": true}"));
  assert_string_equal(f.s.model.moe_layer_freq, "1");
  assert_false(f.s.model.untie_embeddings_and_output_weights);
  arena_release(&f.a);
}

#define KNOWN                                                                                      \
  "llama, llama4_text, mistral, ministral, ministral3, qwen2, qwen2_moe, qwen3, qwen3_moe, "       \
  "qwen2_vl, "                                                                                     \
  "qwen2_vl_text, "                                                                                \
  "qwen2_5_vl, qwen2_5_vl_text, qwen3_vl_text, qwen3_vl_moe_text, qwen3_next, qwen3_5_text, "      \
  "qwen3_5_moe_text, mixtral, gpt_oss, deepseek_v2, "                                              \
  "deepseek_v3, kimi_k2, glm4_moe, gemma, "                                                        \
  "gemma2, gemma3_text, phi3, olmo2, olmo3, granite, glm4, seed_oss, smollm3, starcoder2"

#define SHAPE                                                                                      \
  "\"num_hidden_layers\": 2, \"hidden_size\": 64, \"intermediate_size\": 128, "                    \
  "\"num_attention_heads\": 4, \"vocab_size\": 100"
#define LLAMA  "{\"model_type\": \"llama\", " SHAPE
#define GEMMA3 "{\"model_type\": \"gemma3_text\", " SHAPE

/* What else the families' keys become. */
static void keys_of_families(void **state)
{
  (void)state;
  fixture f;
  assert_true(parse(&f, LLAMA ", \"attention_bias\": true, \"mlp_bias\": true}"));
  assert_true(f.s.model.add_bias_linear && f.s.model.add_qkv_bias);
  assert_false(f.s.model.add_attention_output_bias);
  arena_release(&f.a);
  assert_true(parse(&f, LLAMA ", \"attention_bias\": true}"));
  assert_true(f.s.model.add_attention_output_bias && f.s.model.add_qkv_bias);
  arena_release(&f.a);
  assert_true(parse(&f, GEMMA3 ", \"sliding_window_pattern\": 2, \"sliding_window\": 16}"));
  assert_string_equal(f.s.model.sliding_window_layers, "[1,0]");
  assert_int_equal(f.s.model.sliding_window, 16);
  assert_true(f.s.model.embedding_multiplier == 8 && f.s.model.kv_channels == 256);
  assert_false(f.s.model.untie_embeddings_and_output_weights);
  arena_release(&f.a);
  assert_true(parse(&f, "{\"model_type\": \"gemma3\", \"text_config\": " GEMMA3 "}}"));
  assert_string_equal(f.s.model.sliding_window_layers, "1");
  assert_int_equal(f.s.model.num_layers, 2);
  arena_release(&f.a);
  assert_true(parse(&f, "{\"model_type\": \"smollm3\", " SHAPE ", \"no_rope_layers\": [0, 1]}"));
  assert_string_equal(f.s.model.rope_layers, "[0,1]");
  arena_release(&f.a);
  assert_true(parse(&f, "{\"model_type\": \"qwen3_next\", " SHAPE ", \"num_experts\": 8, "
                        "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 32, "
                        "\"shared_expert_intermediate_size\": 32"
                        ", \"full_attention_interval\": 2, \"linear_num_value_heads\": 8}"));
  assert_string_equal(f.s.model.linear_attention_layers, "[1,0]");
  assert_true(f.s.model.linear_num_value_heads == 8 && f.s.model.linear_fused_projections);
  assert_true(f.s.model.rotary_percent == 0.25 && f.s.model.attention_output_gate);
  arena_release(&f.a);
  assert_true(parse(&f, "{\"model_type\": \"qwen3_5_text\", " SHAPE ", \"layer_types\": "
                        "[\"full_attention\", \"linear_attention\"]}"));
  assert_string_equal(f.s.model.linear_attention_layers, "[0,1]");
  assert_true(!f.s.model.linear_fused_projections && f.s.model.kv_channels == 256);
  arena_release(&f.a);
  assert_true(parse(&f, "{\"model_type\": \"qwen2\", " SHAPE ", \"use_sliding_window\": false, "
                        "\"sliding_window\": 16}"));
  assert_int_equal(f.s.model.sliding_window, 0);
  arena_release(&f.a);
}

static void messages(void **state)
{
  (void)state;
  static const struct {
    const char *text, *message;
  } cases[] = {
    { "{\"model_type\": \"bert\"}",
      "config.json:1:16: error: model_type is 'bert', a model with an encoder and no causal loss, "
      "which is not modelled; known models: " KNOWN },
    { "{\"model_type\": \"mamba2\"}",
      "config.json:1:16: error: model_type is 'mamba2', a model with state-space, convolution or "
      "linear-attention layers, which is not modelled; known models: " KNOWN },
    { "{\"model_type\": \"new\"}",
      "config.json:1:16: error: model_type is 'new'; known models: " KNOWN },
    { "{\"model_type\": \"gemma3\", \"text_config\": {\"model_type\": \"gemma3n_text\"}}",
      "config.json:1:56: error: model_type is 'gemma3n_text', a model with embeddings for each "
      "layer "
      "and layers that share keys and values, which is not modelled; known models: " KNOWN },
    { "{\"a\": 1}",
      "config.json:1:1: error: neither model_type nor architectures; known models: " KNOWN },
    { "{\"model_type\": \"llama\"}",
      "config.json:1:1: error: num_hidden_layers is missing; a llama model has it" },
    { "{\"model_type\": \"llama\", \"num_hidden_layers\": 0}",
      "config.json:1:46: error: num_hidden_layers is 0; it must be at least 1" },
    { "{\"model_type\": \"llama\", \"hidden_act\": \"gelu\"}",
      "config.json:1:39: error: hidden_act is 'gelu'; a llama model must have silu" },
    { LLAMA ", \"mlp_bias\": true}",
      "config.json:1:151: error: mlp_bias is true, but attention_bias is not; a bias of the MLP "
      "alone is not modelled" },
    { GEMMA3 ", \"layer_types\": [\"full_attention\", \"chunked_attention\"]}",
      "config.json:1:179: error: layer_types has 'chunked_attention'; full_attention and "
      "sliding_attention are modelled" },
    { GEMMA3 ", \"layer_types\": [\"full_attention\"]}",
      "config.json:1:160: error: layer_types has 1 entries, num_hidden_layers is 2" },
    { GEMMA3 ", \"use_bidirectional_attention\": true}",
      "config.json:1:176: error: use_bidirectional_attention is 'true'; only causal decoders are "
      "modelled" },
    { GEMMA3 ", \"query_pre_attn_scalar\": 0}",
      "config.json:1:170: error: query_pre_attn_scalar is 0; it must be above 0" },
    { "{\"model_type\": \"qwen3_5_text\", " SHAPE ", \"full_attention_interval\": 0}",
      "config.json:1:173: error: full_attention_interval is 0; it must be at least 1" },
    { "{\"model_type\": \"qwen3_5_text\", " SHAPE ", \"layer_types\": [\"sliding_attention\", 0]}",
      "config.json:1:162: error: layer_types has 'sliding_attention'; full_attention and "
      "linear_attention are modelled" },
    { QWEN_MOE ", \"decoder_sparse_step\": 0}",
      "config.json:1:293: error: decoder_sparse_step is 0; it must be at least 1" },
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    fixture f;
    assert_false(parse(&f, cases[i].text));
    assert_int_equal(f.d.exit_status, 2);
    assert_string_equal(f.d.message, cases[i].message);
    arena_release(&f.a);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(published_models), cmocka_unit_test(latent_attention),
    cmocka_unit_test(llama4),           cmocka_unit_test(sparse_layers),
    cmocka_unit_test(keys_of_families), cmocka_unit_test(messages),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
