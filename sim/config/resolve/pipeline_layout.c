/*
 * pipeline_model_parallel_layout, as PipelineParallelLayerLayout.parse_str_to_list of
 * megatron/core/transformer/pipeline_parallel_layer_layout.py reads it: commas are dropped, then
 * (x)*n is expanded if x has no bracket, then c*n for a single character c. The rest are stages
 * separated by |, of the letters E (embedding), t (decoder layer), m (MTP layer), L (loss). Stage k
 * is virtual stage k / PP of pipeline rank k mod PP.
 */
#include <inttypes.h>
#include <string.h>

#include "sim/config/resolve/steps.h"

enum { LAYOUT_LIMIT = 65536 }; /* characters after expansion: more than any model has layers */

typedef struct text_buffer {
  char *text;
  size_t length;
} text_buffer;

static bool append(text_buffer *b, const char *text, size_t length, size_t times)
{
  if (length != 0 && times > (LAYOUT_LIMIT - b->length) / length) {
    return false;
  }
  for (size_t i = 0; i < times; i++) {
    memcpy(b->text + b->length, text, length);
    b->length += length;
  }
  b->text[b->length] = '\0';
  return true;
}

/* The digits at `at`, at most LAYOUT_LIMIT + 1; `*end` is after them. */
static size_t number_at(const char *at, const char **end)
{
  size_t n = 0;

  for (; *at >= '0' && *at <= '9'; at++) {
    n = n * 10 + (size_t)(*at - '0');
    if (n > LAYOUT_LIMIT) {
      n = LAYOUT_LIMIT + 1;
    }
  }
  *end = at;
  return n;
}

static bool is_times(const char *at)
{
  return at[0] == '*' && at[1] >= '0' && at[1] <= '9';
}

/* "(x)*n": from '(' to the first ')' after it; x is not empty. */
static bool unroll_brackets(const char *from, text_buffer *to)
{
  while (*from != '\0') {
    const char *close = *from == '(' ? strchr(from, ')') : NULL;
    if (close != NULL && close > from + 1 && is_times(close + 1)) {
      const char *body = from + 1;
      size_t times = number_at(close + 2, &from);
      if (!append(to, body, (size_t)(close - body), times)) {
        return false;
      }
    } else if (!append(to, from++, 1, 1)) {
      return false;
    }
  }
  return true;
}

static bool unroll_characters(const char *from, text_buffer *to)
{
  while (*from != '\0') {
    const char *c = from++;
    size_t times = 1;
    if (is_times(from)) {
      times = number_at(from + 1, &from);
    }
    if (!append(to, c, 1, times)) {
      return false;
    }
  }
  return true;
}

/* The expanded layout: letters and bars; NULL after an error. */
static const char *write_out(const settings *s, arena *a, diag *d)
{
  const char *given = s->parallel.pipeline_model_parallel_layout;
  setting_key key = KEY_parallel_pipeline_model_parallel_layout;
  text_buffer plain = { .text = ARENA_ARRAY(a, char, LAYOUT_LIMIT + 1) };
  text_buffer flat = { .text = ARENA_ARRAY(a, char, LAYOUT_LIMIT + 1) };
  text_buffer out = { .text = ARENA_ARRAY(a, char, LAYOUT_LIMIT + 1) };
  bool fits = true;

  for (const char *t = given; *t != '\0' && fits; t++) {
    fits = *t == ',' || append(&plain, t, 1, 1);
  }
  fits = fits && unroll_brackets(plain.text, &flat) && unroll_characters(flat.text, &out);
  if (!need(s, d, fits, key, key,
            "pipeline_model_parallel_layout has more than %d stages and layers", LAYOUT_LIMIT)) {
    return NULL;
  }
  size_t good = strspn(out.text, "Etm|L");
  if (!need(s, d, out.text[good] == '\0', key, key,
            "pipeline_model_parallel_layout has '%c', which is no layer; it must be made of E "
            "(embedding), t (decoder layer), m (MTP layer), L (loss) and | between stages, with "
            "x*n or (x)*n for repetition",
            out.text[good])) {
    return NULL;
  }
  return out.text;
}

int64_t pipeline_layout_stage_count(const settings *s, arena *a, diag *d)
{
  const char *text = write_out(s, a, d);
  int64_t count = 1;

  if (text == NULL) {
    return 0;
  }
  for (; *text != '\0'; text++) {
    count += *text == '|';
  }
  return count;
}

typedef struct letter_counts {
  int64_t embeddings, layers, mtp_layers, losses;
} letter_counts;

static bool check_counts(const settings *s, const letter_counts *n, const char *text, diag *d)
{
  setting_key key = KEY_parallel_pipeline_model_parallel_layout;
  size_t length = strlen(text);
  bool ends = length > 0 && text[strspn(text, "|")] == 'E';

  while (length > 0 && text[length - 1] == '|') {
    length--;
  }
  return need(s, d, ends && n->embeddings == 1, key, key,
              "pipeline_model_parallel_layout must begin with the embedding (E), and have one") &&
         need(s, d, length > 0 && text[length - 1] == 'L' && n->losses == 1, key, key,
              "pipeline_model_parallel_layout must end with the loss (L), and have one") &&
         need(s, d, n->layers == s->model.num_layers, key, KEY_model_num_layers,
              "pipeline_model_parallel_layout has %" PRId64
              " decoder layers (t); it must have num_layers (%" PRId64 ")",
              n->layers, s->model.num_layers) &&
         need(s, d, n->mtp_layers == 0 || n->mtp_layers == s->model.mtp_num_layers, key,
              KEY_model_mtp_num_layers,
              "pipeline_model_parallel_layout has %" PRId64
              " MTP layers (m); it must have mtp_num_layers (%" PRId64
              "), or none, then they are with the loss",
              n->mtp_layers, s->model.mtp_num_layers);
}

static bool check_mtp(const settings *s, const struct stage_content *stages, const char *text,
                      diag *d)
{
  setting_key key = KEY_parallel_pipeline_model_parallel_layout;
  int64_t pp = s->parallel.pipeline_model_parallel_size;
  const char *first = strchr(text, 'm');

  if (!need(s, d, first == NULL || strchr(first, 't') == NULL, key, key,
            "pipeline_model_parallel_layout has a decoder layer (t) after an MTP layer (m); MTP "
            "layers must be after all decoder layers")) {
    return false;
  }
  for (int64_t k = 0; k < pp * s->derived.virtual_stages; k++) {
    bool last_chunk = k / pp == s->derived.virtual_stages - 1;
    if (stages[k].mtp_layers != 0 &&
        !need(s, d, last_chunk && stages[k].mtp_layers == s->model.mtp_num_layers, key, key,
              "pipeline_model_parallel_layout: all MTP layers (m) must be together, on the last "
              "virtual stage of a rank")) {
      return false;
    }
  }
  return true;
}

/* The last of `count` layer numbers goes to the stage. */
static void push_layer(struct stage_content *stage, uint32_t *numbers, int64_t layer)
{
  numbers[layer] = (uint32_t)layer;
  if (stage->layer_count == 0) {
    stage->layers = &numbers[layer];
  }
  stage->layer_count++;
}

/* Stages may be empty, ranks may not: one without parameters has nothing to train. */
static bool check_ranks(const settings *s, const struct stage_content *stages, const char *text,
                        diag *d)
{
  int64_t pp = s->parallel.pipeline_model_parallel_size;
  setting_key key = KEY_parallel_pipeline_model_parallel_layout;

  for (int64_t rank = 0; rank < pp; rank++) {
    bool empty = true;
    for (int64_t k = rank; k < pp * s->derived.virtual_stages; k += pp) {
      const struct stage_content *stage = &stages[k];
      empty =
          empty && stage->layer_count + stage->mtp_layers == 0 && !stage->embedding && !stage->loss;
    }
    if (!need(s, d, !empty, key, key,
              "pipeline_model_parallel_layout \"%.200s\" leaves pipeline rank %" PRId64
              " with nothing; it must have a layer, the embedding or the loss",
              text, rank)) {
      return false;
    }
  }
  return true;
}

bool pipeline_layout_parse(const settings *s, struct stage_content *stages, arena *a, diag *d)
{
  const char *text = write_out(s, a, d);
  letter_counts n = { 0 };

  if (text == NULL) {
    return false;
  }
  uint32_t *numbers = ARENA_ARRAY(a, uint32_t, strlen(text));
  struct stage_content *stage = stages, *loss_stage = stages;
  for (const char *t = text; *t != '\0'; t++) {
    if (*t == '|') {
      stage++;
    } else if (*t == 't') {
      push_layer(stage, numbers, n.layers++);
    } else if (*t == 'm') {
      stage->mtp_layers++;
      n.mtp_layers++;
    } else if (*t == 'E') {
      stage->embedding = true;
      n.embeddings++;
    } else {
      loss_stage = stage;
      stage->loss = true;
      n.losses++;
    }
  }
  if (!check_counts(s, &n, text, d)) {
    return false;
  }
  if (n.mtp_layers == 0) {
    loss_stage->mtp_layers =
        (uint32_t)s->model.mtp_num_layers; /* as in Megatron-LM of summer 2025 */
  }
  return check_mtp(s, stages, text, d) && check_ranks(s, stages, text, d);
}
