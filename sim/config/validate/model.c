/* Constraints within section model, without experts. Sources: see validate.h. */
#include <inttypes.h>

#include "sim/config/validate/validate.h"

static bool check_attention(const settings *s, diag *d)
{
  const struct model_settings *m = &s->model;
  setting_key mla = KEY_model_multi_latent_attention;

  return need(s, d, uses_hf(s) || !m->multi_latent_attention || !m->qk_l2_norm,
              KEY_model_qk_l2_norm, mla, "qk_l2_norm does not work with multi_latent_attention") &&
         need(s, d, !m->multi_latent_attention || !m->group_query_attention, mla,
              KEY_model_group_query_attention,
              "multi_latent_attention cannot be used with group_query_attention") &&
         need(s, d, !m->multi_latent_attention || !m->rotary_interleaved,
              KEY_model_rotary_interleaved, mla,
              "rotary_interleaved does not work with multi_latent_attention");
}

static bool check_activation(const settings *s, diag *d)
{
  const struct model_settings *m = &s->model;
  setting_key fusion = KEY_model_bias_activation_fusion;
  int kinds = m->swiglu + m->squared_relu + m->quick_geglu;

  return need(s, d, kinds <= 1, KEY_model_swiglu, KEY_model_squared_relu,
              "more than one of swiglu, squared_relu and quick_geglu is given; an MLP has one "
              "activation") &&
         need(s, d, !m->squared_relu || !m->bias_activation_fusion, fusion, KEY_model_squared_relu,
              "bias_activation_fusion does not work with squared_relu") &&
         need(s, d, !m->use_te_activation_func || !m->bias_activation_fusion, fusion,
              KEY_model_use_te_activation_func,
              "bias_activation_fusion and use_te_activation_func cannot both be used");
}

/* Rotation pairs columns of a head (Megatron-LM, core/models/common/embeddings/rope_utils.py,
 * _rotate_half). Multi-latent attention always rotates (multi_latent_attention.py). */
static bool check_rotation(const settings *s, diag *d)
{
  const struct model_settings *m = &s->model;
  bool latent = m->multi_latent_attention;
  bool rotates = latent || m->position_embedding_type == POSITIONS_ROPE ||
                 m->position_embedding_type == POSITIONS_MROPE ||
                 m->position_embedding_type == POSITIONS_YARN;
  int64_t width =
      latent ? m->qk_pos_emb_head_dim : (int64_t)((double)m->kv_channels * m->rotary_percent);

  return need(s, d, uses_hf(s) || !rotates || width % 2 == 0,
              latent ? KEY_model_qk_pos_emb_head_dim : KEY_model_kv_channels,
              KEY_model_position_embedding_type,
              "%" PRId64 " columns of a head are rotated; their number must be even", width);
}

static bool check_positions(const settings *s, diag *d)
{
  const struct model_settings *m = &s->model;
  setting_key key = KEY_model_position_embedding_type;

  return need(s, d, uses_hf(s) || m->max_position_embeddings >= s->training.seq_length,
              KEY_model_max_position_embeddings, KEY_training_seq_length,
              "max_position_embeddings is %" PRId64 "; it must be at least seq_length (%" PRId64
              ")",
              m->max_position_embeddings, s->training.seq_length) &&
         need(s, d,
              m->position_embedding_type != POSITIONS_RELATIVE ||
                  m->transformer_impl == TRANSFORMER_TE,
              key, KEY_model_transformer_impl,
              "position_embedding_type relative needs transformer_impl transformer_engine") &&
         need(s, d,
              m->mtp_num_layers == 0 || m->position_embedding_type == POSITIONS_ROPE ||
                  m->position_embedding_type == POSITIONS_NONE,
              KEY_model_mtp_num_layers, key,
              "mtp_num_layers does not work with position_embedding_type %s; it must be "
              "rope or none",
              chosen_word(s, KEY_model_position_embedding_type));
}

static bool check_precision(const settings *s, diag *d)
{
  const struct model_settings *m = &s->model;
  bool half = s->training.bf16 || s->training.fp16;

  return need(s, d, !m->fp32_residual_connection || half, KEY_model_fp32_residual_connection,
              KEY_model_fp32_residual_connection, "fp32_residual_connection needs bf16 or fp16");
}

static bool check_vocabulary(const settings *s, diag *d)
{
  const struct model_settings *m = &s->model;

  return need(s, d, m->vocab_size == UNSET || m->padded_vocab_size >= m->vocab_size,
              KEY_model_padded_vocab_size, KEY_model_vocab_size,
              "padded_vocab_size is %" PRId64 "; it must be at least vocab_size (%" PRId64 ")",
              m->padded_vocab_size, m->vocab_size);
}

bool validate_model(const settings *s, diag *d)
{
  return check_vocabulary(s, d) && check_attention(s, d) && check_activation(s, d) &&
         check_rotation(s, d) && check_positions(s, d) && check_precision(s, d);
}
