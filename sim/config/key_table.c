#include "sim/config/key_table.h"

#include <string.h>

#include "sim/text/suggest.h"

#define ROW(part, word, row_type, row_fallback, row_meaning)                                       \
  .section = #part, .name = #word, .type = KEY_TYPE_##row_type, .fallback = row_fallback,          \
  .offset = offsetof(settings, part.word), .meaning = row_meaning
#define ROW_INT(low, high, words)  .least = low, .most = high
#define ROW_REAL(low, high, words) .least = low, .most = high
#define ROW_FLAG(low, high, words) .choices = NULL
#define ROW_TEXT(low, high, words) .choices = words
#define ROW_LIST(low, high, words) .choices = words

const key_row key_rows[KEY_COUNT] = {
#define KEY(section, key, type, fallback, low, high, meaning)                                      \
  [KEY_##section##_##                                                                              \
      key] = { ROW(section, key, type, fallback, meaning), ROW_##type(low, high, low) },
#include "sim/config/keys.def"
};

const char *const section_names[SECTION_COUNT] = {
  "model", "parallel", "training", "recompute", "lora", "offload", "machine", "software",
};

setting_key key_find_in(const char *section, const char *name)
{
  for (setting_key key = 0; key < KEY_COUNT; key++) {
    if (strcmp(key_rows[key].section, section) == 0 && strcmp(key_rows[key].name, name) == 0) {
      return key;
    }
  }
  return KEY_COUNT;
}

setting_key key_find(const char *name)
{
  const char *dot = strchr(name, '.');

  for (setting_key key = 0; key < KEY_COUNT; key++) {
    const key_row *row = &key_rows[key];
    if (dot == NULL) {
      if (strcmp(row->name, name) == 0) {
        return key;
      }
    } else if (strlen(row->section) == (size_t)(dot - name) &&
               strncmp(row->section, name, (size_t)(dot - name)) == 0 &&
               strcmp(row->name, dot + 1) == 0) {
      return key;
    }
  }
  return KEY_COUNT;
}

const char *key_suggest(const char *section, const char *name, arena *a)
{
  const char **names = ARENA_ARRAY(a, const char *, KEY_COUNT);
  size_t count = 0;

  for (setting_key key = 0; key < KEY_COUNT; key++) {
    if (section == NULL || strcmp(key_rows[key].section, section) == 0) {
      names[count++] = key_rows[key].name;
    }
  }
  return suggest_nearest(name, names, count);
}

bool key_is_required(setting_key key)
{
  return key == KEY_model_num_layers || key == KEY_model_hidden_size ||
         key == KEY_model_num_attention_heads || key == KEY_training_seq_length;
}

bool choice_contains(const char *choices, const char *word)
{
  size_t length = strlen(word);

  for (const char *at = choices;; at++) {
    size_t span = strcspn(at, "|");
    if (span == length && strncmp(at, word, length) == 0) {
      return true;
    }
    at += span;
    if (*at == '\0') {
      return false;
    }
  }
}

const char *choice_sentence(arena *a, const char *choices)
{
  const char *sentence = "";

  for (const char *at = choices;; at++) {
    size_t span = strcspn(at, "|");
    const char *between = at == choices ? "" : at[span] == '\0' ? " or " : ", ";
    const char *word = span == 0 ? "\"\"" : arena_strndup(a, at, span);
    sentence = arena_printf(a, "%s%s%s", sentence, between, word);
    at += span;
    if (*at == '\0') {
      return sentence;
    }
  }
}
