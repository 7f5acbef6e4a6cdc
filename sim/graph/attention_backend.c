/*
 * Transformer Engine's choice (attention/dot_product_attention/utils.py: get_attention_backend,
 * d0067d0d), as far as it concerns training of decoders.
 *
 * flash-attn is installed in every image. It is deterministic from 2.4.1 on, which images from
 * 24.03 on have. It accepts head widths up to 256, and only value heads as wide as the query's.
 *
 * cuDNN runs from compute capability 8.0 on. Its backward is deterministic from 9.0 on (cuDNN
 * 8.9.5, in images from 23.10 on), from 10.0 on only without dropout (cuDNN 9.18.1, in images from
 * 26.02 on; common/fused_attn/fused_attn.cpp: nvte_get_fused_attn_backend).
 *
 * If both are possible, TE picks flash-attn below 9.0 and cuDNN from 9.0 on.
 */
#include "sim/graph/attention_backend.h"

#include "sim/graph/sizes.h"

enum { FLASH_MOST_WIDTH = 256, HOPPER = 90, BLACKWELL = 100 };

static bool flash_is_available(const settings *s, int64_t qk_dim, int64_t v_dim)
{
  if (!s->software.nvte_flash_attn || qk_dim > FLASH_MOST_WIDTH || qk_dim != v_dim) return false;
  bool deterministic = !s->software.nvte_allow_nondeterministic_algo;
  return !deterministic || image_is_from(s, 2024, 3);
}

static bool fused_is_available(const settings *s)
{
  if (!s->software.nvte_fused_attn) return false;
  if (s->software.nvte_allow_nondeterministic_algo) return true;
  if (s->derived.compute_capability >= BLACKWELL)
    return s->model.attention_dropout <= 0 && image_is_from(s, 2026, 2);
  return s->derived.compute_capability >= HOPPER;
}

static attention_backend automatic(const settings *s, int64_t qk_dim, int64_t v_dim)
{
  bool half = s->training.bf16 || s->training.fp16;
  bool flash = half && flash_is_available(s, qk_dim, v_dim);
  bool fused = half && fused_is_available(s);
  if (flash && fused)
    return s->derived.compute_capability >= HOPPER ? ATTENTION_BACKEND_FUSED
                                                   : ATTENTION_BACKEND_FLASH;
  if (flash) return ATTENTION_BACKEND_FLASH;
  return fused ? ATTENTION_BACKEND_FUSED : ATTENTION_BACKEND_UNFUSED;
}

/* Megatron sets NVTE_*_ATTN from --attention-backend, so that TE has one choice left. */
attention_backend attention_backend_of(const settings *s, int64_t qk_dim, int64_t v_dim)
{
  if (!uses_te(s))
    return s->training.use_flash_attn ? ATTENTION_BACKEND_FLASH : ATTENTION_BACKEND_LOCAL;
  switch (s->training.attention_backend) {
  case BACKEND_FLASH: return ATTENTION_BACKEND_FLASH;
  case BACKEND_FUSED: return ATTENTION_BACKEND_FUSED;
  case BACKEND_UNFUSED: return ATTENTION_BACKEND_UNFUSED;
  case BACKEND_LOCAL: return ATTENTION_BACKEND_LOCAL;
  case BACKEND_AUTO: break;
  }
  return automatic(s, qk_dim, v_dim);
}

bool attends_in_parts(const settings *s)
{
  const struct model_settings *m = &s->model;
  int64_t qk = m->multi_latent_attention ? m->qk_head_dim + m->qk_pos_emb_head_dim : m->kv_channels;
  int64_t v = m->multi_latent_attention ? m->v_head_dim : m->kv_channels;
  attention_backend backend = attention_backend_of(s, qk, v);
  return backend == ATTENTION_BACKEND_UNFUSED || backend == ATTENTION_BACKEND_LOCAL;
}
