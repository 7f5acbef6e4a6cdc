/*
 * Transformer Engine's choice (attention/dot_product_attention/utils.py: get_attention_backend;
 * common/fused_attn/fused_attn.cpp: nvte_get_fused_attn_backend; d0067d0d), as far as it concerns
 * causal self-attention in training. Libraries are those of the image: flash-attn 2,
 * and a cuDNN as new as Transformer Engine's rules ask for (8.9.5 for determinism on Hopper, 9.18.1 on
 * Blackwell, 9.5 for wide heads, 9.23 for 256 on Blackwell), which is assumed.
 *
 * If both are possible, TE picks flash-attn below 9.0 and cuDNN from 9.0 on.
 */
#include "sim/graph/attention_backend.h"

#include "sim/graph/sizes.h"

enum {
  HOPPER = 90,
  BLACKWELL = 100,
  /* 1.2 and older: "version 2 does not support deterministic execution". 43 runs that NVIDIA recorded with
   * the image 24.01 (TE 1.2) and deterministic algorithms were unfused. */
  TE_DETERMINISTIC_FLASH = SOFTWARE_VERSION(1, 3),
  TE_DETERMINISTIC_BLACKWELL = SOFTWARE_VERSION(2, 12), /* 27fc168e */
  TE_WIDE_BLACKWELL = SOFTWARE_VERSION(2, 18),          /* bffde8f4 */
};

/* Values as wide as queries, up to 256. */
static bool flash_is_available(const settings *s, int64_t qk_dim, int64_t v_dim)
{
  if (!s->software.nvte_flash_attn || qk_dim > 256 || qk_dim != v_dim) return false;
  return s->software.nvte_allow_nondeterministic_algo ||
         s->derived.software.transformer_engine >= TE_DETERMINISTIC_FLASH;
}

static bool fused_takes_widths(const settings *s, int64_t qk_dim, int64_t v_dim)
{
  int capability = s->derived.compute_capability;
  bool latent = qk_dim == 192 && v_dim == 128; /* DeepSeek's */
  if (qk_dim % 8 != 0 || v_dim % 8 != 0) return false;
  if (qk_dim <= 128 && v_dim <= 128) return true;
  if (capability < HOPPER) return false;
  if (capability < BLACKWELL)
    return qk_dim <= 256 && v_dim <= 256 &&
           (qk_dim == v_dim || latent || qk_dim < 128 || v_dim < 128);
  return latent || (qk_dim == 256 && v_dim == 256 && s->model.attention_dropout <= 0 &&
                    s->derived.software.transformer_engine >= TE_WIDE_BLACKWELL);
}

/* With a sliding window, it has no dropout. */
static bool fused_is_available(const settings *s, int64_t qk_dim, int64_t v_dim, bool slides)
{
  if (!s->software.nvte_fused_attn || !fused_takes_widths(s, qk_dim, v_dim)) return false;
  if (slides && s->model.attention_dropout > 0) return false;
  if (s->software.nvte_allow_nondeterministic_algo) return true;
  if (s->derived.compute_capability < BLACKWELL) return s->derived.compute_capability >= HOPPER;
  return s->model.attention_dropout <= 0 &&
         s->derived.software.transformer_engine >= TE_DETERMINISTIC_BLACKWELL;
}

static attention_backend automatic(const settings *s, int64_t qk_dim, int64_t v_dim, bool slides)
{
  bool half = s->training.bf16 || s->training.fp16;
  bool flash = half && flash_is_available(s, qk_dim, v_dim);
  bool fused = half && fused_is_available(s, qk_dim, v_dim, slides);
  if (flash && fused)
    return s->derived.compute_capability >= HOPPER ? ATTENTION_BACKEND_FUSED
                                                   : ATTENTION_BACKEND_FLASH;
  if (flash) return ATTENTION_BACKEND_FLASH;
  return fused ? ATTENTION_BACKEND_FUSED : ATTENTION_BACKEND_UNFUSED;
}

/* Megatron sets NVTE_*_ATTN from --attention-backend, so that TE has one choice left. */
attention_backend attention_backend_of(const settings *s, int64_t qk_dim, int64_t v_dim,
                                       bool slides)
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
  return automatic(s, qk_dim, v_dim, slides);
}

bool attends_in_parts(const settings *s)
{
  const struct model_settings *m = &s->model;
  int64_t qk = m->multi_latent_attention ? m->qk_head_dim + m->qk_pos_emb_head_dim : m->kv_channels;
  int64_t v = m->multi_latent_attention ? m->v_head_dim : m->kv_channels;
  /* a layer without a window does so only if those with one do */
  attention_backend backend = attention_backend_of(s, qk, v, s->derived.window_keys > 0);
  return backend == ATTENTION_BACKEND_UNFUSED || backend == ATTENTION_BACKEND_LOCAL;
}
