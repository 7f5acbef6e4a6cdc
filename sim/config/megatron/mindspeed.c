/*
 * mindspeed_llm/core/transformer/transformer_block.py builds layer i, from 0, as a mixture of experts if
 * i >= --first-k-dense-replace and i is a multiple of --moe-layer-freq.
 * mindspeed_llm/features_manager/moe/shared_expert.py: --n-shared-experts of the width of an expert.
 */
#include "sim/config/megatron/mindspeed.h"

#include <inttypes.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/text/scalar.h"

/* The value of an option that was given and is not 0. */
static const flag_use *number_of(const flag_use_array *uses, const char *name, int64_t *number)
{
  const flag_use *use = megatron_flag_last_use(uses, name);
  return use != NULL && scalar_i64(use->value, number) && *number != 0 ? use : NULL;
}

/* As a pattern of --moe-layer-freq: "[0]*3+[1]*58", or a bit for each layer. */
static const char *layer_pattern(int64_t layers, int64_t dense, int64_t frequency, arena *a)
{
  if (frequency == 1 || frequency == -1)
    return arena_printf(a, "[0]*%" PRId64 "+[1]*%" PRId64, dense, layers - dense);
  char *bits = ARENA_ARRAY(a, char, 2 * (size_t)layers + 2);
  for (int64_t i = 0; i < layers; i++) {
    bits[2 * i] = i == 0 ? '[' : ',';
    bits[2 * i + 1] = i >= dense && i % frequency == 0 ? '1' : '0';
  }
  bits[2 * layers] = ']';
  return bits;
}

static bool set_dense_layers(settings *s, const flag_use_array *uses, arena *a, diag *d)
{
  const struct model_settings *m = &s->model;
  int64_t dense, frequency = 1;
  const flag_use *use = number_of(uses, "--first-k-dense-replace", &dense);
  if (use == NULL || m->num_experts <= 0) return true;
  if (!scalar_i64(m->moe_layer_freq, &frequency) || frequency == 0)
    return diag_error(
        d, use->at, "--first-k-dense-replace needs a whole number as --moe-layer-freq, not \"%s\"",
        m->moe_layer_freq);
  dense = max_i64(dense, 0);
  if (dense >= m->num_layers)
    return diag_error(d, use->value_at,
                      "--first-k-dense-replace is %" PRId64
                      "; it must be less than num_layers, %" PRId64,
                      dense, m->num_layers);
  const char *pattern = layer_pattern(m->num_layers, dense, frequency, a);
  return settings_set_key(s, KEY_model_moe_layer_freq, pattern, use->at, a, d);
}

static bool set_shared_experts(settings *s, const flag_use_array *uses, arena *a, diag *d)
{
  const struct model_settings *m = &s->model;
  int64_t count, width = m->moe_ffn_hidden_size > 0 ? m->moe_ffn_hidden_size : m->ffn_hidden_size;
  const flag_use *use = number_of(uses, "--n-shared-experts", &count);
  if (use == NULL || m->num_experts <= 0 ||
      megatron_flag_last_use(uses, "--moe-shared-expert-intermediate-size") != NULL)
    return true;
  int64_t all;
  if (width <= 0 || count < 0 || __builtin_mul_overflow(count, width, &all))
    return diag_error(d, use->at,
                      "--n-shared-experts needs a width of an expert: --moe-ffn-hidden-size");
  return settings_set_key(s, KEY_model_moe_shared_expert_intermediate_size,
                          arena_printf(a, "%" PRId64, all), use->at, a, d);
}

bool megatron_mindspeed_apply(settings *s, const flag_use_array *uses, arena *a, diag *d)
{
  bool layers = set_dense_layers(s, uses, a, d);
  diag_go_on(d);
  return set_shared_experts(s, uses, a, d) && layers;
}
