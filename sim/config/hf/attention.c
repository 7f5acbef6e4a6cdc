/* Attention: heads, biases, norms of queries and keys, rotary embedding, sliding windows. */
#include <math.h>
#include <string.h>

#include "sim/config/hf/parts.h"

/* Heads of keys and values, and the width of a head. Latent attention has widths of its own. */
static bool set_heads(const hf_reader *r)
{
  int64_t heads, groups, width, hidden;
  if (hf_has_parts(r, PART_LATENT)) {
    return hf_set(r, "model.multi_latent_attention", "true", r->top->at);
  }
  const text_node *n = hf_get(r, "num_key_value_heads");
  if (!hf_count(r, "num_attention_heads", &heads) || !hf_count(r, "hidden_size", &hidden)) {
    return false;
  }
  int64_t usual = r->family->key_value_heads != 0 ? r->family->key_value_heads : heads;
  int64_t usual_width = r->family->head_width != 0 ? r->family->head_width : hidden / heads;
  if (!hf_number(r, "num_key_value_heads", usual, &groups) ||
      !hf_number(r, "head_dim", usual_width, &width)) {
    return false;
  }
  source_pos at = n != NULL ? n->at : r->top->at;
  return hf_set_number(r, "model.kv_channels", width, r->top->at) &&
         (groups == heads || (hf_set(r, "model.group_query_attention", "true", at) &&
                              hf_set_number(r, "model.num_query_groups", groups, at)));
}

/* A key that is true or false, and its fallback. */
static bool get_flag(const hf_reader *r, const char *name, bool fallback, bool *value)
{
  const text_node *n = hf_get(r, name);
  *value = fallback;
  return n == NULL || text_as_bool(n, value, r->d);
}

static bool set_flag(const hf_reader *r, const char *key, bool value, source_pos at)
{
  return hf_set(r, key, value ? "true" : "false", at);
}

/* Families without PART_BIAS_KEY ignore attention_bias and mlp_bias. */
static bool set_biases(const hf_reader *r)
{
  bool attention = false, mlp = false, all = false, qk_norm = hf_has_parts(r, PART_QK_NORM);
  bool reads = hf_has_parts(r, PART_BIAS_KEY);
  const text_node *of_mlp = hf_get(r, "mlp_bias"), *n = hf_get(r, "attention_bias");
  bool usual = hf_has_parts(r, PART_ALL_BIAS) ||
               (hf_has_parts(r, PART_NO_O_BIAS) && !hf_has_parts(r, PART_EXPERTS));
  if ((reads && (!get_flag(r, "attention_bias", usual, &attention) ||
                 !get_flag(r, "mlp_bias", false, &mlp))) ||
      (hf_has_parts(r, PART_USE_BIAS) && !get_flag(r, "use_bias", true, &all)) ||
      (hf_has_parts(r, PART_QK_NORM_KEY) && !get_flag(r, "use_qk_norm", false, &qk_norm))) {
    return false;
  }
  if (mlp && !attention) {
    return diag_error(r->d, of_mlp->at,
                      "mlp_bias is true, but attention_bias is not; a bias of the MLP alone is not "
                      "modelled");
  }
  all = all || mlp;
  source_pos at = n != NULL ? n->at : r->top->at;
  bool output = attention && !all && !hf_has_parts(r, PART_NO_O_BIAS);
  return set_flag(r, "model.add_bias_linear", all, at) &&
         set_flag(r, "model.add_qkv_bias", attention || all || hf_has_parts(r, PART_QKV_BIAS),
                  at) &&
         set_flag(r, "model.add_attention_output_bias", output, at) &&
         (!qk_norm || hf_set(r, "model.qk_layernorm", "true", r->top->at));
}

/* ---- rotary embedding ---- */

/* rope_parameters, which may have a mapping for each type of layer. */
static const text_node *rope_value(const hf_reader *r, const char *layer_type, const char *name)
{
  const text_node *of = hf_get(r, "rope_parameters");
  const text_node *by_type = text_get(of, layer_type);
  const text_node *n = text_get(by_type != NULL ? by_type : of, name);
  return n != NULL && !text_is_null(n) ? n : NULL;
}

static bool set_text(const hf_reader *r, const char *key, const text_node *n)
{
  const char *text;
  return n == NULL || (text_as_string(n, &text, r->d) && hf_set(r, key, text, n->at));
}

static const text_node *either(const text_node *a, const text_node *b)
{
  return a != NULL ? a : b;
}

/* DeepSeek-V3 rotates pairs of neighbours by default. */
static bool set_rotary_form(const hf_reader *r)
{
  bool pairs;
  const text_node *n = hf_get(r, "rope_interleave");
  return n == NULL || !hf_has_parts(r, PART_LATENT) ||
         (text_as_bool(n, &pairs, r->d) &&
          (pairs || hf_set(r, "model.rotary_form", "whole", n->at)));
}

static bool set_rotary(const hf_reader *r)
{
  const char *all = "full_attention", *sliding = "sliding_attention";
  const text_node *part =
      either(hf_get(r, "partial_rotary_factor"), rope_value(r, all, "partial_rotary_factor"));
  const text_node *local =
      either(hf_get(r, "rope_local_base_freq"), rope_value(r, sliding, "rope_theta"));
  const text_node *base = either(hf_get(r, "rope_theta"), rope_value(r, all, "rope_theta"));
  if (!set_text(r, "model.rotary_base", base)) {
    return false;
  }
  /* Tables for each type of layer: Gemma 3 and OLMo 3, whose bases may be equal. */
  if (r->family->window == WINDOW_ALTERNATING && r->family->window_pattern > 2) {
    const char *usual = hf_has_parts(r, PART_GEMMA) ? "10000"
                        : base != NULL              ? base->text
                                                    : "500000";
    bool given = local != NULL ? set_text(r, "model.rope_local_base_freq", local)
                               : hf_set(r, "model.rope_local_base_freq", usual, r->top->at);
    if (!given) {
      return false;
    }
  }
  return set_rotary_form(r) && set_text(r, "model.rotary_percent", part);
}

/* no_rope_layers has a 0 for each layer without rotary embedding; otherwise each
 * no_rope_layer_interval-th has none. */
static bool rotating_layers(const hf_reader *r, bool *rotates, int64_t layers)
{
  const text_node *list = hf_get(r, "no_rope_layers");
  int64_t interval, bit;
  if (!hf_number(r, "no_rope_layer_interval", 4, &interval)) {
    return false;
  }
  if (list != NULL && !text_expect(list, TEXT_SEQUENCE, r->d)) {
    return false;
  }
  if (list != NULL && list->count > 0 && list->count < layers) {
    return diag_error(r->d, list->at, "no_rope_layers has %u entries, num_hidden_layers is %lld",
                      list->count, (long long)layers);
  }
  if (interval < 1) {
    return diag_error(r->d, hf_get(r, "no_rope_layer_interval")->at,
                      "no_rope_layer_interval is %lld; it must be at least 1", (long long)interval);
  }
  for (int64_t i = 0; i < layers; i++) {
    rotates[i] = (i + 1) % interval != 0;
    if (list != NULL && list->count > 0) {
      if (!text_as_i64(&list->children[i], &bit, r->d)) {
        return false;
      }
      rotates[i] = bit != 0;
    }
  }
  return true;
}

/* ---- types of layers ---- */

/* Which layers are called `word`; the others must have full_attention. */
static bool named_layers(const hf_reader *r, const text_node *types, const char *word, bool *named,
                         int64_t layers)
{
  if (!text_expect(types, TEXT_SEQUENCE, r->d)) {
    return false;
  }
  if (types->count < layers) {
    return diag_error(r->d, types->at, "layer_types has %u entries, num_hidden_layers is %lld",
                      types->count, (long long)layers);
  }
  for (int64_t i = 0; i < layers; i++) {
    const text_node *n = &types->children[i];
    named[i] = strcmp(n->text, word) == 0;
    if (!named[i] && strcmp(n->text, "full_attention") != 0) {
      return diag_error(r->d, n->at, "layer_types has %s; full_attention and %s are modelled",
                        text_describe(r->a, n), word);
    }
  }
  return true;
}

/* ---- linear attention ---- */

/* layer_types has linear_attention or full_attention for each layer; otherwise each
 * full_attention_interval-th has full attention. */
static bool linear_layers(const hf_reader *r, bool *linear, int64_t layers)
{
  const text_node *types = hf_get(r, "layer_types");
  int64_t interval;
  if (types != NULL) {
    return named_layers(r, types, "linear_attention", linear, layers);
  }
  if (!hf_number(r, "full_attention_interval", 4, &interval)) {
    return false;
  }
  if (interval < 1) {
    return diag_error(r->d, hf_get(r, "full_attention_interval")->at,
                      "full_attention_interval is %lld; it must be at least 1",
                      (long long)interval);
  }
  for (int64_t i = 0; i < layers; i++) {
    linear[i] = (i + 1) % interval != 0;
  }
  return true;
}

/* ---- sliding windows ---- */

static bool usual_sliding(const hf_reader *r, const bool *rotates, bool *slides, int64_t layers)
{
  int64_t late, pattern;
  if (!hf_number(r, "max_window_layers", 28, &late) ||
      !hf_number(r, "sliding_window_pattern", r->family->window_pattern, &pattern)) {
    return false;
  }
  if (r->family->window == WINDOW_ALTERNATING && pattern < 1) {
    return diag_error(r->d, hf_get(r, "sliding_window_pattern")->at,
                      "sliding_window_pattern is %lld; it must be at least 1", (long long)pattern);
  }
  for (int64_t i = 0; i < layers; i++) {
    switch (r->family->window) {
    case WINDOW_NONE: slides[i] = false; break;
    case WINDOW_TYPED:
    case WINDOW_ALL: slides[i] = true; break;
    case WINDOW_LATE: slides[i] = i >= late; break;
    case WINDOW_NO_ROPE: slides[i] = !rotates[i]; break;
    case WINDOW_CHUNKS: slides[i] = rotates[i]; break;
    case WINDOW_ALTERNATING: slides[i] = (i + 1) % pattern != 0; break;
    }
  }
  return true;
}

static const char *window_name(const hf_reader *r)
{
  return r->family->window == WINDOW_CHUNKS ? "attention_chunk_size" : "sliding_window";
}

/* The window in keys, 0: none. */
static bool window_of(const hf_reader *r, int64_t *window)
{
  const text_node *n = text_get(r->top, window_name(r));
  window_rule rule = r->family->window;
  bool uses = true;
  *window = 0;
  if (rule == WINDOW_NONE) {
    return true;
  }
  if (rule == WINDOW_LATE || rule == WINDOW_NO_ROPE) {
    if (!get_flag(r, "use_sliding_window", false, &uses)) {
      return false;
    }
  }
  if (!uses || (n != NULL && text_is_null(n))) {
    return true;
  }
  return hf_number(r, window_name(r), r->family->window_keys, window);
}

static bool set_layers(const hf_reader *r)
{
  int64_t layers, window;
  if (!hf_count(r, "num_hidden_layers", &layers) || !window_of(r, &window)) {
    return false;
  }
  bool *rotates = ARENA_ARRAY(r->a, bool, (size_t)layers);
  bool *slides = ARENA_ARRAY(r->a, bool, (size_t)layers);
  if (hf_has_parts(r, PART_NO_ROPE) &&
      (!rotating_layers(r, rotates, layers) ||
       !hf_set_layers(r, "model.rope_layers", rotates, r->top->at))) {
    return false;
  }
  bool *linear = ARENA_ARRAY(r->a, bool, (size_t)layers);
  if (hf_has_parts(r, PART_LINEAR) &&
      (!linear_layers(r, linear, layers) ||
       !hf_set_layers(r, "model.linear_attention_layers", linear, r->top->at))) {
    return false;
  }
  if (window == 0) {
    return true;
  }
  const text_node *types = hf_get(r, "layer_types"), *n = hf_get(r, window_name(r));
  bool by_name = types != NULL && r->family->window != WINDOW_ALL;
  const char *word = r->family->window == WINDOW_CHUNKS ? "chunked_attention" : "sliding_attention";
  bool known = by_name ? named_layers(r, types, word, slides, layers)
                       : usual_sliding(r, rotates, slides, layers);
  return known &&
         hf_set_number(r, "model.sliding_window", window, n != NULL ? n->at : r->top->at) &&
         hf_set_layers(r, "model.sliding_window_layers", slides, r->top->at);
}

bool hf_set_attention(const hf_reader *r)
{
  return set_heads(r) && set_biases(r) && set_rotary(r) && set_layers(r);
}
