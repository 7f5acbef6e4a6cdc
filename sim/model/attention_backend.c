/*
 * Transformer Engine's choice (attention/dot_product_attention/utils.py: get_attention_backend,
 * d0067d0d), as far as training of decoders can meet it.
 *
 *   flash-attn   installed in every image; deterministic only from 2.4.1 on, which images
 * from 24.03 on have; not with head widths above 256, nor with a value head unlike the query's
 *   cuDNN        from compute capability 8.0 on; deterministic backward from 9.0 on (cuDNN 8.9.5,
 * in images from 23.10 on), from 10.0 on only without dropout (cuDNN 9.18.1, in images from 26.02
 * on; common/fused_attn/fused_attn.cpp: nvte_get_fused_attn_backend) both         flash-attn
 * below 9.0, cuDNN from there on
 */
#include "sim/model/attention_backend.h"

#include <stdlib.h>
#include <string.h>

enum { FLASH_DETERMINISTIC_IMAGE = 2403, NEWEST_IMAGE = 9999, FLASH_MOST_WIDTH = 256, HOPPER = 90 };
enum { BLACKWELL = 100, BLACKWELL_DETERMINISTIC_IMAGE = 2602 };

int64_t container_month(const settings *s)
{
  const char *tag = strstr(s->software.container, "pytorch:");
  if (tag == NULL) return NEWEST_IMAGE;
  char *end = NULL;
  long year = strtol(tag + strlen("pytorch:"), &end, 10);
  if (*end != '.' || year < 0 || year > 99) return NEWEST_IMAGE;
  long month = strtol(end + 1, NULL, 10);
  return month >= 1 && month <= 12 ? year * 100 + month : NEWEST_IMAGE;
}

static bool flash_is_available(const settings *s, int64_t qk_dim, int64_t v_dim)
{
  if (!s->software.nvte_flash_attn || qk_dim > FLASH_MOST_WIDTH || qk_dim != v_dim) return false;
  bool deterministic = !s->software.nvte_allow_nondeterministic_algo;
  return !deterministic || container_month(s) >= FLASH_DETERMINISTIC_IMAGE;
}

static bool fused_is_available(const settings *s)
{
  if (!s->software.nvte_fused_attn) return false;
  if (s->software.nvte_allow_nondeterministic_algo) return true;
  if (s->derived.compute_capability >= BLACKWELL)
    return s->model.attention_dropout <= 0 && container_month(s) >= BLACKWELL_DETERMINISTIC_IMAGE;
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
  static const struct {
    const char *name;
    attention_backend backend;
  } named[] = {
    { "flash", ATTENTION_BACKEND_FLASH },
    { "fused", ATTENTION_BACKEND_FUSED },
    { "unfused", ATTENTION_BACKEND_UNFUSED },
    { "local", ATTENTION_BACKEND_LOCAL },
  };
  if (strcmp(s->model.transformer_impl, "local") == 0)
    return s->training.use_flash_attn ? ATTENTION_BACKEND_FLASH : ATTENTION_BACKEND_LOCAL;
  for (size_t i = 0; i < sizeof named / sizeof named[0]; i++)
    if (strcmp(s->training.attention_backend, named[i].name) == 0) return named[i].backend;
  return automatic(s, qk_dim, v_dim);
}
