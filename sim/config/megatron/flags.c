#include "sim/config/megatron/flags.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

#include "sim/base/text.h"
#include "sim/config/foreign_messages.h"
#include "sim/text/scalar.h"
#include "sim/text/suggest.h"

#define SETS(section, key)                                                                         \
  {                                                                                                \
    FLAG_SETS, KEY_##section##_##key, "", "", ""                                                   \
  }
#define GIVES(section, key, text)                                                                  \
  {                                                                                                \
    FLAG_GIVES, KEY_##section##_##key, text, "", ""                                                \
  }
#define OVERRIDES(list)                                                                            \
  {                                                                                                \
    FLAG_OVERRIDES, KEY_COUNT, list, "", ""                                                        \
  }
#define IGNORED                                                                                    \
  {                                                                                                \
    FLAG_IGNORED, KEY_COUNT, "", "", ""                                                            \
  }
#define READ                                                                                       \
  {                                                                                                \
    FLAG_READ, KEY_COUNT, "", "", ""                                                               \
  }
#define UNMODELLED(harmless, what)                                                                 \
  {                                                                                                \
    FLAG_UNMODELLED, KEY_COUNT, what, harmless, ""                                                 \
  }
#define REFUSED_UNLESS(word, what)                                                                 \
  {                                                                                                \
    FLAG_REFUSED, KEY_COUNT, what, word, ""                                                        \
  }
#define REFUSED_IF(words, what, otherwise)                                                         \
  {                                                                                                \
    FLAG_REFUSED_IF, KEY_COUNT, what, otherwise, words                                             \
  }
#define REFUSED(what)                                                                              \
  {                                                                                                \
    FLAG_REFUSED, KEY_COUNT, what, "", ""                                                          \
  }

const megatron_flag megatron_flags[] = {
#define MEGATRON_FLAG(name, values, type, effect)                                                  \
  { name, FLAG_VALUES_##values, FLAG_TYPE_##type, effect },
#include "sim/config/megatron/flags.def"
};

const uint32_t megatron_flag_count = sizeof megatron_flags / sizeof megatron_flags[0];

static const char *without_dashes(const char *name)
{
  return name + strspn(name, "-");
}

static char dashed(char c)
{
  return c == '_' ? '-' : c;
}

static bool same_name(const char *left, const char *right)
{
  while (*left != '\0' && dashed(*left) == dashed(*right)) {
    left++;
    right++;
  }
  return dashed(*left) == dashed(*right);
}

uint32_t megatron_flag_find(const char *name)
{
  const char *bare = without_dashes(name);
  for (uint32_t i = 0; i < megatron_flag_count; i++) {
    if (same_name(bare, without_dashes(megatron_flags[i].name))) {
      return i;
    }
  }
  return MEGATRON_FLAG_UNKNOWN;
}

bool megatron_flag_matters(const megatron_flag *flag)
{
  switch (flag->effect.kind) {
  case FLAG_SETS:
  case FLAG_GIVES:
  case FLAG_OVERRIDES:
  case FLAG_REFUSED:
  case FLAG_REFUSED_IF: return true;
  case FLAG_READ:
  case FLAG_IGNORED:
  case FLAG_UNMODELLED: return false;
  }
  assert(0 && "flag effect out of range");
  return true;
}

const flag_use *megatron_flag_last_use(const flag_use_array *uses, const char *name)
{
  uint32_t flag = megatron_flag_find(name);
  assert(flag != MEGATRON_FLAG_UNKNOWN);
  for (uint32_t i = uses->count; i-- > 0;) {
    if (uses->items[i].flag == flag) return &uses->items[i];
  }
  return NULL;
}

/* Only names of about the same length are compared: the others differ by more than is meant. */
const char *megatron_flag_nearest(arena *a, const char *name)
{
  const char **names = ARENA_ARRAY(a, const char *, megatron_flag_count);
  const char *wanted = arena_printf(a, "--%s", without_dashes(name));
  size_t length = strlen(wanted);
  size_t count = 0;
  for (uint32_t i = 0; i < megatron_flag_count; i++) {
    size_t other = strlen(megatron_flags[i].name);
    size_t difference = other > length ? other - length : length - other;
    if (difference <= length / 3) {
      names[count++] = megatron_flags[i].name;
    }
  }
  return suggest_nearest(wanted, names, count);
}

/* --- What a use does --- */

typedef struct applying {
  settings *s;
  const flag_use_array *uses;
  const uint32_t *last; /* [megatron_flag_count] index of the last use + 1, 0 = not given */
  arena *a;
  diag *d;
} applying;

/* "false": the option asks for nothing, so no note is needed. */
static bool switched_off(const megatron_flag *flag, const char *value)
{
  bool truth;
  return flag->type == FLAG_TYPE_FLAG && scalar_bool(value, &truth) && !truth;
}

static bool set_value(const applying *p, const flag_use *use)
{
  const megatron_flag *flag = &megatron_flags[use->flag];
  bool number = flag->type == FLAG_TYPE_INT || flag->type == FLAG_TYPE_REAL;
  const char *value = use->value;
  if (flag->type == FLAG_TYPE_FLAG && *value == '\0') {
    value = "true";
  }
  if (number && strchr(value, '$') != NULL) {
    return diag_error(p->d, use->value_at,
                      "%s is \"%s\"; a number is needed here (variables are not expanded)",
                      flag->name, value);
  }
  if (number && flag->values == FLAG_VALUES_SOME) {
    /* one number for each of several losses: the key gets the first */
    value = arena_strndup(p->a, value, strcspn(value, " "));
  }
  return settings_set_key(p->s, flag->effect.key, value, use->value_at, p->a, p->d);
}

static bool is_harmless(const megatron_flag *flag, const char *value)
{
  bool truth;
  if (flag->type == FLAG_TYPE_FLAG && scalar_bool(value, &truth)) {
    return truth == (strcmp(flag->effect.harmless, "true") == 0);
  }
  return *value != '\0' && strcmp(value, flag->effect.harmless) == 0;
}

static void say_unmodelled(const applying *p, const flag_use *use)
{
  const megatron_flag *flag = &megatron_flags[use->flag];
  if (!is_harmless(flag, use->value)) {
    foreign_unmodelled(p->d, use->at, flag->name, flag->effect.text);
  }
}

/* Whether `text` has one of the words "a|b" in it, in small or capital letters. */
static bool has_word(const char *text, const char *words)
{
  for (const char *word = words; *word != '\0';) {
    size_t length = strcspn(word, "|");
    for (const char *t = text; *t != '\0'; t++) {
      if (strncasecmp(t, word, length) == 0) return true;
    }
    word += length + (word[length] == '|');
  }
  return false;
}

/* What the run trains is no decoder model, or it trains nothing. */
static bool is_refused(const flag_use *use)
{
  const megatron_flag *flag = &megatron_flags[use->flag];
  if (switched_off(flag, use->value)) return false;
  if (flag->effect.kind == FLAG_REFUSED_IF) return has_word(use->value, flag->effect.words);
  return flag->effect.kind == FLAG_REFUSED &&
         (*use->value == '\0' || strcmp(use->value, flag->effect.harmless) != 0);
}

bool megatron_flags_refuse(const flag_use_array *uses, diag *d)
{
  for (uint32_t i = 0; i < uses->count; i++) {
    const flag_use *use = &uses->items[i];
    const flag_effect *effect = &megatron_flags[use->flag].effect;
    if (is_refused(use)) {
      diag_forget(d);
      return diag_error(d, use->at, "%s%s%.200s: %s", megatron_flags[use->flag].name,
                        effect->kind == FLAG_REFUSED_IF ? " " : "",
                        effect->kind == FLAG_REFUSED_IF ? use->value : "", effect->text);
    }
  }
  return true;
}

static void say_otherwise(const applying *p, const flag_use *use)
{
  const megatron_flag *flag = &megatron_flags[use->flag];
  if (*flag->effect.harmless != '\0') {
    foreign_unmodelled(p->d, use->at, flag->name, flag->effect.harmless);
  }
}

static bool apply_in_order(const applying *p, const flag_use *use)
{
  const megatron_flag *flag = &megatron_flags[use->flag];
  switch (flag->effect.kind) {
  case FLAG_SETS: return set_value(p, use);
  case FLAG_GIVES:
    return switched_off(flag, use->value) ||
           settings_set_key(p->s, flag->effect.key, flag->effect.text, use->at, p->a, p->d);
  case FLAG_UNMODELLED: say_unmodelled(p, use); return true;
  case FLAG_REFUSED: return true;
  case FLAG_REFUSED_IF: say_otherwise(p, use); return true;
  case FLAG_OVERRIDES:
  case FLAG_READ:
  case FLAG_IGNORED: return true;
  }
  assert(0 && "flag effect out of range");
  return false;
}

/* Whether the condition " if --x" or " unless --x" that may follow an assignment holds. */
static bool condition_holds(const applying *p, const char *condition)
{
  if (*condition == '\0') {
    return true;
  }
  const char *name = strstr(condition, "--");
  assert(name != NULL);
  uint32_t flag = megatron_flag_find(name);
  assert(flag != MEGATRON_FLAG_UNKNOWN);
  uint32_t last = p->last[flag];
  bool given = last != 0 && !switched_off(&megatron_flags[flag], p->uses->items[last - 1].value);
  return begins_with(condition, " if ") ? given : !given;
}

/* One "section.key=text condition". */
static bool assign(const applying *p, const flag_use *use, const char *item)
{
  size_t key_length = strcspn(item, "=");
  assert(item[key_length] == '=');
  const char *text = item + key_length + 1;
  const char *condition = strstr(text, " if --");
  condition = condition != NULL ? condition : strstr(text, " unless --");
  condition = condition != NULL ? condition : text + strlen(text);
  if (!condition_holds(p, condition)) {
    return true;
  }
  const char *key = arena_strndup(p->a, item, key_length);
  const char *value =
      *text == '*' ? use->value : arena_strndup(p->a, text, (size_t)(condition - text));
  return settings_set(p->s, key, *value == '\0' ? "true" : value, use->at, p->a, p->d);
}

static bool apply_override(const applying *p, const flag_use *use)
{
  const megatron_flag *of = &megatron_flags[use->flag];
  if (of->values == FLAG_VALUES_NONE && switched_off(of, use->value)) {
    return true;
  }
  const char *list = megatron_flags[use->flag].effect.text;
  while (*list != '\0') {
    const char *end = strstr(list, "; ");
    size_t length = end != NULL ? (size_t)(end - list) : strlen(list);
    if (!assign(p, use, arena_strndup(p->a, list, length))) {
      return false;
    }
    list = end != NULL ? end + 2 : list + length;
  }
  return true;
}

bool megatron_flags_apply(settings *s, const flag_use_array *uses, arena *a, diag *d)
{
  uint32_t *last = ARENA_ARRAY(a, uint32_t, megatron_flag_count);
  const applying p = { .s = s, .uses = uses, .last = last, .a = a, .d = d };
  for (uint32_t i = 0; i < uses->count; i++) {
    last[uses->items[i].flag] = i + 1;
  }
  bool good = true;
  for (uint32_t i = 0; i < uses->count; i++) {
    if (last[uses->items[i].flag] == i + 1) {
      good = apply_in_order(&p, &uses->items[i]) && good;
      diag_go_on(d);
    }
  }
  for (uint32_t i = 0; i < uses->count; i++) {
    uint32_t flag = uses->items[i].flag;
    if (last[flag] == i + 1 && megatron_flags[flag].effect.kind == FLAG_OVERRIDES) {
      good = apply_override(&p, &uses->items[i]) && good;
      diag_go_on(d);
    }
  }
  return good;
}

/* ---- from a key to an option ---- */

static bool gives(const megatron_flag *f, setting_key key)
{
  return (f->effect.kind == FLAG_SETS || f->effect.kind == FLAG_GIVES) && f->effect.key == key &&
         f->values != FLAG_VALUES_FIELD;
}

/* Values of a list are separated by commas in a scenario, and by blanks in options. */
static const char *option_with(const megatron_flag *f, const char *value, arena *a)
{
  char *text = arena_printf(a, "%s %s", f->name, value);
  for (char *c = text + strlen(f->name); *c != '\0'; c++)
    if (*c == ',') *c = ' ';
  return text;
}

const char *megatron_flag_for(setting_key key, const char *value, bool *leaves_out, arena *a)
{
  const char *without = NULL;
  *leaves_out = false;
  for (uint32_t i = 0; i < megatron_flag_count; i++) {
    const megatron_flag *f = &megatron_flags[i];
    if (!gives(f, key)) continue;
    if (f->effect.kind == FLAG_SETS && *value != '\0') return option_with(f, value, a);
    if (f->effect.kind == FLAG_GIVES && strcmp(f->effect.text, value) == 0) return f->name;
    if (without == NULL) without = f->name;
  }
  *leaves_out = without != NULL;
  return without;
}
