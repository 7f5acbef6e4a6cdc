/*
 * The sliding window of attention: Megatron-LM's window_size and window_attn_skip_freq, or transformers'
 * sliding_window and sliding_window_layers.
 */
#include <string.h>

#include "sim/config/resolve/steps.h"
#include "sim/text/scalar.h"

enum { MOST_KEYS = 1 << 30 };

/* "2048,0", perhaps in brackets (arguments.py: tuple_type). */
static bool read_pair(const char *text, arena *a, int64_t *before, int64_t *after)
{
  char *first = arena_strdup(a, text + strspn(text, " (["));
  for (char *end = first + strlen(first); end > first && strchr(" )]", end[-1]) != NULL;)
    *--end = '\0';
  char *comma = strchr(first, ',');
  if (comma == NULL) return false;
  *comma = '\0';
  return scalar_i64(first, before) && scalar_i64(comma + 1 + strspn(comma + 1, " "), after);
}

/* Keys after a query are hidden in any case: Transformer Engine's check_set_window_size sets theirs to 0. */
static bool keys_of_window_size(settings *s, arena *a, diag *d)
{
  const char *text = s->model.window_size;
  setting_key key = KEY_model_window_size;
  int64_t before = 0, after = 0;
  bool read =
      read_pair(text, a, &before, &after) && before >= -1 && before < MOST_KEYS && after >= -1;

  s->derived.window_keys = read ? before + 1 : 0;
  return need(s, d, read, key, key,
              "window_size is \"%.200s\"; it must be two whole numbers such as 2048,0, below %d; "
              "-1 is all keys",
              text, MOST_KEYS) &&
         need(s, d, s->model.sliding_window == 0, key, KEY_model_sliding_window,
              "window_size and sliding_window are both given; they are the same window");
}

/* megatron/core/transformer/utils.py: is_layer_window_attention. */
static bool layers_of_skip_freq(settings *s, diag *d)
{
  const char *text = s->model.window_attn_skip_freq;
  setting_key key = KEY_model_window_attn_skip_freq;
  int64_t every = 0;

  if (*text != '\0' && !scalar_i64(text, &every))
    return layer_pattern_parse(s, key, text, s->derived.layer_slides, d);
  if (!need(s, d, *text == '\0' || every != 0, key, key,
            "window_attn_skip_freq is 0; it must be at least 1"))
    return false;
  for (int64_t layer = 0; layer < s->model.num_layers; layer++) {
    s->derived.layer_slides[layer] = *text == '\0' || (layer + 1) % every != 0;
  }
  return true;
}

/* A window of more keys than the sequence has hides nothing; one of as many neither, but transformers makes a
 * mask for it (masking_utils.py: _ignore_causal_mask_sdpa). */
bool resolve_window(settings *s, arena *a, diag *d)
{
  bool of_megatron = *s->model.window_size != '\0', known = true;

  s->derived.layer_slides = ARENA_ARRAY(a, bool, (size_t)s->model.num_layers);
  s->derived.window_keys = s->model.sliding_window;
  s->derived.window_key = of_megatron ? KEY_model_window_size : KEY_model_sliding_window;
  if (of_megatron && !keys_of_window_size(s, a, d)) return false;
  if (s->derived.window_keys > 0) {
    known = of_megatron
                ? layers_of_skip_freq(s, d)
                : layer_pattern_parse(s, KEY_model_sliding_window_layers,
                                      s->model.sliding_window_layers, s->derived.layer_slides, d);
  }
  s->derived.window_is_shorter =
      s->derived.window_keys > 0 && s->derived.window_keys <= s->training.seq_length;
  return known;
}
