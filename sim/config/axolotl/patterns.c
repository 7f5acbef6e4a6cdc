/*
 * lora_target_modules as one text: a Python regular expression that must match a module's whole path
 * (PEFT, tuners_utils.py: match_target_against_key, re.fullmatch). What such patterns use is rewritten
 * as an extended regular expression of POSIX; look-arounds, back references and the like are refused.
 */
#include <assert.h>
#include <ctype.h>
#include <regex.h>
#include <stdio.h>
#include <string.h>

#include "sim/config/axolotl/parts.h"
#include "sim/config/key_table.h"

enum { PATTERN_BYTES = 1000 };

/* Where a causal model has its layers, and a model that also sees or hears has those of its text. */
static const char *const stems[] = { "model.layers", "model.language_model.layers",
                                     "language_model.model.layers", "model.text_model.layers" };
static const char *const parts[] = { "self_attn", "mlp", "linear_attn", "feed_forward" };
#define COUNT(rows) (sizeof(rows) / sizeof(rows)[0])

/* ---- Python's syntax as POSIX has it ---- */

typedef struct rewriting {
  const char *from;
  char *to;
  bool in_brackets;
} rewriting;

static void put(rewriting *w, const char *text)
{
  size_t length = strlen(text);
  memcpy(w->to, text, length);
  w->to += length;
}

/* A backslash and the character after it. */
static bool rewrite_escape(rewriting *w)
{
  char c = *w->from++;
  if (c == 'd') {
    put(w, w->in_brackets ? "0-9" : "[0-9]");
  } else if (c == 'w') {
    put(w, w->in_brackets ? "A-Za-z0-9_" : "[A-Za-z0-9_]");
  } else if (!ispunct((unsigned char)c) || (w->in_brackets && strchr("]^-\\", c) != NULL)) {
    return false;
  } else {
    put(w, w->in_brackets ? (char[]){ c, '\0' } : (char[]){ '\\', c, '\0' });
  }
  return true;
}

/* Lazy repetition matches the same whole paths; possessive does not. */
static bool rewrite_repetition(rewriting *w)
{
  if (*w->from == '+' || *w->from == '*') return false;
  if (*w->from == '?') w->from++;
  return true;
}

static bool rewrite_one(rewriting *w)
{
  char c = *w->from++;
  if (c == '\\') return rewrite_escape(w);
  if (w->in_brackets) {
    w->in_brackets = c != ']';
    if (c == '[') return false; /* a class by name, in POSIX */
  } else if (c == '[') {
    w->in_brackets = true;
    put(w, "[");
    if (*w->from == '^') put(w, (char[]){ *w->from++, '\0' });
    return *w->from != ']';
  } else if (c == '{') {
    return false;
  } else if (c == '(' && *w->from == '?') {
    if (w->from[1] != ':') return false;
    w->from += 2;
  }
  put(w, (char[]){ c, '\0' });
  return w->in_brackets || c == ']' || strchr("*+?", c) == NULL || rewrite_repetition(w);
}

/* The POSIX pattern, or NULL. No construct becomes more than eight times as long. */
static const char *rewritten(arena *a, const char *pattern)
{
  enum { GROWTH = 8, ANCHORS = sizeof "^()$" };
  size_t length = strlen(pattern);
  if (length > PATTERN_BYTES) return NULL;
  char *made = ARENA_ARRAY(a, char, GROWTH *length + ANCHORS);
  rewriting w = { .from = pattern, .to = made };
  put(&w, "^(");
  while (*w.from != '\0')
    if (!rewrite_one(&w)) return NULL;
  put(&w, ")$");
  return w.in_brackets ? NULL : made;
}

/* ---- what it takes ---- */

static bool takes(const regex_t *pattern, int64_t layer, const char *linear)
{
  char path[128];
  for (size_t stem = 0; stem < COUNT(stems); stem++)
    for (size_t part = 0; part < COUNT(parts); part++) {
      int length = snprintf(path, sizeof path, "%s.%lld.%s.%s", stems[stem], (long long)layer,
                            parts[part], linear);
      assert(length > 0 && (size_t)length < sizeof path);
      if (regexec(pattern, path, 0, NULL, 0) == 0) return true;
    }
  return false;
}

/* Bit k: the pattern takes the k-th word of the key in this layer. */
static uint32_t taken_in(const regex_t *pattern, int64_t layer)
{
  const char *const *words = key_rows[KEY_lora_lora_target_modules].words;
  uint32_t taken = 0;
  for (uint32_t k = 0; words[k] != NULL; k++)
    if (takes(pattern, layer, words[k])) taken |= UINT32_C(1) << k;
  return taken;
}

/* "gate_proj" takes "shared_expert.gate_proj" too. */
static bool is_covered(const char *word, uint32_t taken)
{
  const char *dot = strrchr(word, '.');
  uint32_t plain;
  return dot != NULL && choice_find(KEY_lora_lora_target_modules, dot + 1, &plain) &&
         (taken >> plain & 1) != 0;
}

static const char *words_of(const axolotl_reader *r, uint32_t taken)
{
  const char *const *words = key_rows[KEY_lora_lora_target_modules].words;
  const char *list = "";
  for (uint32_t k = 0; words[k] != NULL; k++)
    if ((taken >> k & 1) != 0 && !is_covered(words[k], taken))
      list = axolotl_join(r, list, words[k]);
  return list;
}

static bool find_targets(const axolotl_reader *r, const text_node *n, const regex_t *pattern,
                         const char **known)
{
  uint32_t taken = taken_in(pattern, 0);
  for (int64_t layer = 1; layer < r->s->model.num_layers; layer++)
    if (taken_in(pattern, layer) != taken)
      return diag_error(
          r->d, n->at,
          "lora_target_modules takes other linears in layer %lld than in layer 0; only "
          "adapters on the same linears of every layer are predicted",
          (long long)layer);
  *known = words_of(r, taken);
  return taken != 0 ||
         diag_error(r->d, n->at,
                    "lora_target_modules matches no linear of a decoder layer, such as "
                    "model.layers.0.self_attn.q_proj; %s",
                    choice_sentence(r->a, KEY_lora_lora_target_modules));
}

bool axolotl_match_targets(const axolotl_reader *r, const text_node *n, const char **known)
{
  const char *posix = rewritten(r->a, n->text);
  regex_t pattern;
  if (posix == NULL || regcomp(&pattern, posix, REG_EXTENDED | REG_NOSUB) != 0)
    return diag_error(
        r->d, n->at,
        "lora_target_modules is a pattern that is not read; give a list of names, such as "
        "[q_proj, v_proj]");
  bool good = find_targets(r, n, &pattern, known);
  regfree(&pattern);
  return good;
}
