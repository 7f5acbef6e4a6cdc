#include "sim/config/key_table.h"

#include <assert.h>
#include <string.h>

#include "sim/text/suggest.h"

#define ROW(part, word, row_type, row_fallback, row_meaning)                                       \
  .section = #part, .name = #word, .type = KEY_TYPE_##row_type, .fallback = row_fallback,          \
  .offset = offsetof(settings, part.word), .meaning = row_meaning
#define ROW_INT(high, low)  .least = low, .most = high
#define ROW_REAL            ROW_INT
#define ROW_FLAG(high, low) .words = NULL
#define ROW_TEXT            ROW_FLAG
#define ROW_LIST            ROW_FLAG
#define ROW_CHOICE(high, ...)                                                                      \
  .words = (const char *const[])                                                                   \
  {                                                                                                \
    __VA_ARGS__ NULL                                                                               \
  }
#define ROW_CHOICES          ROW_CHOICE
#define WORD(constant, word) word,

const key_row key_rows[KEY_COUNT] = {
#define KEY(section, key, type, fallback, low, high, meaning)                                      \
  [KEY_##section##_##key] = { ROW(section, key, type, fallback, meaning), ROW_##type(high, low) },
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

const char *choice_word(setting_key key, uint32_t choice)
{
  assert(key_rows[key].words != NULL);
  const char *word = key_rows[key].words[choice];
  assert(word != NULL);
  return word;
}

bool choice_find(setting_key key, const char *word, uint32_t *choice)
{
  const char *const *words = key_rows[key].words;

  assert(words != NULL);
  for (*choice = 0; words[*choice] != NULL; ++*choice) {
    if (strcmp(words[*choice], word) == 0) {
      return true;
    }
  }
  return false;
}

const char *choice_sentence(arena *a, setting_key key)
{
  const char *sentence = "";

  for (const char *const *word = key_rows[key].words; *word != NULL; word++) {
    const char *between = *sentence == '\0' ? "" : word[1] == NULL ? " or " : ", ";
    sentence = arena_printf(a, "%s%s%s", sentence, between, **word == '\0' ? "\"\"" : *word);
  }
  return sentence;
}

bool key_word_is_released(setting_key key, uint32_t word)
{
  return (key != KEY_offload_offload_modules ||
          (word != OFFLOAD_MLP_ACT && word != OFFLOAD_LAYER_INPUT)) &&
         (key != KEY_recompute_recompute_modules || word != RECOMPUTE_MLP_ACT);
}
