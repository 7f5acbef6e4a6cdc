/* Sizes of the model that follow from others. */
#include <inttypes.h>

#include "sim/base/units.h"
#include "sim/config/resolve/steps.h"

static int64_t default_ffn_hidden_size(const struct model_settings *m)
{
  /* Gated: 8/3 h, down to a multiple of 64, so that there are as many parameters as with 4 h. */
  return m->swiglu ? m->hidden_size * 8 / 3 / 64 * 64 : 4 * m->hidden_size;
}

static bool resolve_heads(settings *s, diag *d)
{
  struct model_settings *m = &s->model;

  if (m->kv_channels == UNSET) {
    if (!need_multiple(s, d, KEY_model_hidden_size, KEY_model_num_attention_heads)) {
      return false;
    }
    m->kv_channels = m->hidden_size / m->num_attention_heads;
  }
  if (!m->group_query_attention) {
    if (s->given[KEY_model_num_query_groups] && m->num_query_groups != m->num_attention_heads) {
      diag_note(d, s->at[KEY_model_num_query_groups],
                "num_query_groups has no effect without group_query_attention");
    }
    m->num_query_groups = m->num_attention_heads;
  }
  m->num_query_groups = if_unset(m->num_query_groups, 1);
  return true;
}

static bool take_vocabulary_of_tokenizer(settings *s, diag *d)
{
  const derived_settings *t = &s->derived;
  if (t->tokenizer == NULL)
    return diag_error(d, (source_pos){ 0 },
                      "model.vocab_size is not given; it, or model.padded_vocab_size, is needed");
  if (t->tokenizer_vocab_size == UNSET)
    return diag_error(
        d, t->tokenizer_at,
        "vocab_size is not given, and offsim does not know the vocabulary of \"%.200s\"; "
        "add --set vocab_size=N, or --hf-config FILE of the model",
        t->tokenizer);
  s->model.vocab_size = t->tokenizer_vocab_size;
  diag_note(d, t->tokenizer_at,
            "vocab_size is not given; taking %" PRId64
            ", that of the published tokenizer \"%.200s\"",
            s->model.vocab_size, t->tokenizer);
  return true;
}

/* Rows of the embedding: vocab_size up to a multiple of make_vocab_size_divisible_by x TP
 * (megatron/core/tokenizers/utils/build_tokenizer.py, vocab_size_with_padding); plain models have
 * vocab_size rows. */
static bool resolve_vocabulary(settings *s, diag *d)
{
  struct model_settings *m = &s->model;

  if (m->padded_vocab_size == UNSET) {
    if (m->vocab_size == UNSET && !take_vocabulary_of_tokenizer(s, d)) {
      return false;
    }
    int64_t multiple =
        uses_hf(s) ? 1 : m->make_vocab_size_divisible_by * s->parallel.tensor_model_parallel_size;
    m->padded_vocab_size = round_up(m->vocab_size, multiple);
  }
  return true;
}

static void resolve_activation(settings *s)
{
  struct model_settings *m = &s->model;
  bool gated = m->swiglu || m->quick_geglu;

  if (m->add_bias_linear) {
    m->add_qkv_bias = true;
  }
  /* Megatron refuses these with the fusion; if the fusion is only a default, it is switched off. */
  bool cannot_fuse = m->use_te_activation_func || m->squared_relu;
  if (cannot_fuse && !s->given[KEY_model_bias_activation_fusion]) {
    m->bias_activation_fusion = false;
  }
  if (!m->add_bias_linear && !gated) {
    m->bias_activation_fusion = false;
  }
}

static void resolve_positions(settings *s, const diag *d)
{
  struct model_settings *m = &s->model;

  m->max_position_embeddings = if_unset(m->max_position_embeddings, s->training.seq_length);
  if (uses_hf(s) && m->max_position_embeddings < s->training.seq_length)
    diag_note(d, s->at[KEY_training_seq_length],
              "seq_length is %" PRId64 ", beyond the model's max_position_embeddings, %" PRId64
              "; transformers goes on, for rotary embeddings have no last position",
              s->training.seq_length, m->max_position_embeddings);
  if (m->position_embedding_type != POSITIONS_ROPE) {
    m->apply_rope_fusion = false;
  }
  if (m->apply_query_key_layer_scaling) {
    m->attention_softmax_in_fp32 = true;
  }
}

static bool resolve_experts(settings *s, arena *a, diag *d)
{
  struct model_settings *m = &s->model;

  s->derived.layer_is_moe = ARENA_ARRAY(a, bool, (size_t)m->num_layers);
  if (m->num_experts == 0) {
    return true;
  }
  m->moe_ffn_hidden_size = if_unset(m->moe_ffn_hidden_size, m->ffn_hidden_size);
  if (m->moe_expert_capacity_factor < 0) {
    m->moe_expert_capacity_factor = -1;
  }
  if (s->parallel.expert_model_parallel_size == 1 && m->moe_imbalance > 1) {
    diag_note(d, s->at[KEY_model_moe_imbalance],
              "moe_imbalance has no effect with expert_model_parallel_size 1: the rank has all "
              "experts");
    m->moe_imbalance = 1;
  }
  return layer_pattern_parse(s, KEY_model_moe_layer_freq, m->moe_layer_freq,
                             s->derived.layer_is_moe, d);
}

bool resolve_model(settings *s, arena *a, diag *d)
{
  struct model_settings *m = &s->model;

  if (!resolve_heads(s, d) || !resolve_vocabulary(s, d) || !resolve_hf(s, a, d) ||
      !resolve_window(s, a, d)) {
    return false;
  }
  m->ffn_hidden_size = if_unset(m->ffn_hidden_size, default_ffn_hidden_size(m));
  resolve_activation(s);
  resolve_positions(s, d);
  return resolve_experts(s, a, d);
}
