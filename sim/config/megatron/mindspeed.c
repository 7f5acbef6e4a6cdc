/*
 * mindspeed_llm/core/transformer/transformer_block.py builds layer i, from 0, as a mixture of experts if
 * i >= --first-k-dense-replace and i is a multiple of --moe-layer-freq.
 * mindspeed_llm/features_manager/moe/shared_expert.py: --n-shared-experts of the width of an expert.
 * mindspeed/core/pipeline_parallel/noop_layers: the layers that --noop-layers names, from 0, do nothing;
 * they count where layers are given to stages.
 */
#include "sim/config/megatron/mindspeed.h"

#include <assert.h>
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

/* ---- layers that do nothing ---- */

enum { LAYERS_MOST = 4096 };

static flag_use *use_of(flag_use_array *uses, const char *name)
{
  return (flag_use *)megatron_flag_last_use(uses, name);
}

/* The value, or `absent` where the option is not given; -1 if it is no number. */
static int64_t count_of(const flag_use_array *uses, const char *name, int64_t absent)
{
  const flag_use *use = megatron_flag_last_use(uses, name);
  int64_t n = absent;
  return use == NULL || (scalar_i64(use->value, &n) && n >= 0) ? n : -1;
}

/* "61,62,63": marks these of `layers`. */
static bool read_noops(const flag_use *use, bool *noop, int64_t layers, arena *a, diag *d)
{
  char *list = arena_strdup(a, use->value);
  for (char *item = strtok(list, ", "); item != NULL; item = strtok(NULL, ", ")) {
    int64_t layer;
    if (!scalar_i64(item, &layer) || layer < 0 || layer >= layers)
      return diag_error(d, use->value_at,
                        "--noop-layers has \"%.40s\"; it must have numbers from 0 to %" PRId64,
                        item, layers - 1);
    noop[layer] = true;
  }
  return true;
}

/* "Ettt|tttt|ttL": stage after stage, each with `of_stage` layers of which some are left out. */
static const char *layout_of(const bool *noop, int64_t layers, int64_t of_stage, int64_t mtp,
                             arena *a)
{
  char *text = ARENA_ARRAY(a, char, (size_t)(2 * layers + mtp + 3)), *out = text;
  *out++ = 'E';
  for (int64_t i = 0; i < layers; i++) {
    if (i > 0 && i % of_stage == 0) *out++ = '|';
    if (!noop[i]) *out++ = 't';
  }
  for (int64_t i = 0; i < mtp; i++) {
    *out++ = 'm';
  }
  *out++ = 'L';
  *out = '\0';
  return text;
}

static void give(flag_use *use, const char *name, const char *value)
{
  use->flag = megatron_flag_find(name);
  use->value = value;
  assert(use->flag != MEGATRON_FLAG_UNKNOWN);
}

bool megatron_mindspeed_leave_out(flag_use_array *uses, arena *a, diag *d)
{
  static const char virtual_stage[] = "--num-layers-per-virtual-pipeline-stage";
  flag_use *use = use_of(uses, "--noop-layers"), *layers_use = use_of(uses, "--num-layers");
  int64_t layers = count_of(uses, "--num-layers", 0),
          pp = count_of(uses, "--pipeline-model-parallel-size", 1);
  int64_t mtp = count_of(uses, "--mtp-num-layers", 0),
          dense = count_of(uses, "--first-k-dense-replace", 0);
  if (use == NULL || layers <= 0 || layers > LAYERS_MOST || pp <= 0 || mtp < 0 || mtp > LAYERS_MOST)
    return true;
  int64_t of_stage = count_of(uses, virtual_stage, layers / pp);
  if (of_stage <= 0 || layers % (of_stage * pp) != 0) return true;
  bool *noop = ARENA_ARRAY(a, bool, (size_t)layers);
  memset(noop, 0, (size_t)layers * sizeof *noop);
  if (!read_noops(use, noop, layers, a, d)) return false;
  int64_t left = 0, left_dense = 0;
  for (int64_t i = 0; i < layers; i++) {
    left += !noop[i];
    left_dense += !noop[i] && i < dense;
  }
  if (left == 0)
    return diag_error(d, use->value_at, "--noop-layers leaves no layer that does something");
  diag_note(d, use->at,
            "--noop-layers: %" PRId64 " of %" PRId64 " layers do nothing and are left out",
            layers - left, layers);
  if (dense > 0)
    use_of(uses, "--first-k-dense-replace")->value = arena_printf(a, "%" PRId64, left_dense);
  layers_use->value = arena_printf(a, "%" PRId64, left);
  if (pp == 1 && of_stage == layers) return true;
  flag_use *stage_use = use_of(uses, virtual_stage);
  give(stage_use != NULL ? stage_use : use, "--pipeline-model-parallel-layout",
       layout_of(noop, layers, of_stage, mtp, a));
  return true;
}

bool megatron_mindspeed_apply(settings *s, const flag_use_array *uses, arena *a, diag *d)
{
  bool layers = set_dense_layers(s, uses, a, d);
  diag_go_on(d);
  return set_shared_experts(s, uses, a, d) && layers;
}
