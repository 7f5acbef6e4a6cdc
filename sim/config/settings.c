#include "sim/config/settings.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "sim/config/key_table.h"
#include "sim/text/scalar.h"

/* ---- one value ---- */

static bool wrong_value(diag *d, source_pos at, const key_row *row, const char *text,
                        const char *wanted)
{
  return diag_error(d, at, "%s.%s is \"%.200s\"; %s is needed here", row->section, row->name, text,
                    wanted);
}

static bool set_int(const key_row *row, int64_t *member, const char *text, source_pos at, diag *d)
{
  int64_t value;

  if (row->fallback[0] == '\0' && (*text == '\0' || strcmp(text, "null") == 0)) {
    *member = UNSET;
    return true;
  }
  if (!scalar_i64(text, &value)) {
    return wrong_value(d, at, row, text, "a whole number");
  }
  if (value < row->least || value > row->most) {
    return row->most == NO_LIMIT
               ? diag_error(d, at, "%s is %" PRId64 "; it must be at least %" PRId64, row->name,
                            value, row->least)
               : diag_error(d, at, "%s is %" PRId64 "; it must be from %" PRId64 " to %" PRId64,
                            row->name, value, row->least, row->most);
  }
  *member = value;
  return true;
}

static bool set_real(const key_row *row, double *member, const char *text, source_pos at, diag *d)
{
  double value;

  if (!scalar_double(text, &value)) {
    return wrong_value(d, at, row, text, "a number");
  }
  if (!(value >= (double)row->least && value <= (double)row->most)) {
    return diag_error(d, at, "%s is %.100s; it must be from %" PRId64 " to %" PRId64, row->name,
                      text, row->least, row->most);
  }
  *member = value + 0.0; /* no negative zero: it would print as another text */
  return true;
}

static bool set_flag(const key_row *row, bool *member, const char *text, source_pos at, diag *d)
{
  return scalar_bool(text, member) || wrong_value(d, at, row, text, "true or false");
}

static bool wrong_choice(diag *d, source_pos at, const key_row *row, const char *text, arena *a)
{
  return diag_error(d, at, "%s is \"%.200s\"; it must be %s", row->name, text,
                    choice_sentence(a, row->choices));
}

static bool set_text(const key_row *row, const char **member, const char *text, source_pos at,
                     arena *a, diag *d)
{
  if (row->choices != NULL && !choice_contains(row->choices, text)) {
    return wrong_choice(d, at, row, text, a);
  }
  *member = arena_strdup(a, text);
  return true;
}

static size_t list_separators(const char *text)
{
  return strspn(text, " \t\n,[]\"'");
}

static size_t list_word(const char *text)
{
  return strcspn(text, " \t\n,[]\"'");
}

/* Words between blanks, commas, brackets and quotes: `a b`, `a, b`, `[a, "b"]`. */
static bool set_list(const key_row *row, name_list *member, const char *text, source_pos at,
                     arena *a, diag *d)
{
  name_list list = { 0 };

  for (const char *t = text + list_separators(text); *t != '\0'; t += list_separators(t)) {
    t += list_word(t);
    list.count++;
  }
  list.names = ARENA_ARRAY(a, const char *, list.count);
  uint32_t i = 0;
  for (const char *t = text + list_separators(text); *t != '\0'; t += list_separators(t)) {
    size_t length = list_word(t);
    const char *word = arena_strndup(a, t, length);
    if (row->choices != NULL && !choice_contains(row->choices, word)) {
      return wrong_choice(d, at, row, word, a);
    }
    list.names[i++] = word;
    t += length;
  }
  *member = list;
  return true;
}

static bool set_member(settings *s, setting_key key, const char *text, source_pos at, arena *a,
                       diag *d)
{
  const key_row *row = &key_rows[key];
  void *member = key_member(s, key);

  switch (row->type) {
  case KEY_TYPE_INT: return set_int(row, member, text, at, d);
  case KEY_TYPE_REAL: return set_real(row, member, text, at, d);
  case KEY_TYPE_FLAG: return set_flag(row, member, text, at, d);
  case KEY_TYPE_TEXT: return set_text(row, member, text, at, a, d);
  case KEY_TYPE_LIST: return set_list(row, member, text, at, a, d);
  }
  return false;
}

/* ---- the keys ---- */

void settings_init(settings *s, arena *a)
{
  diag d = { .quiet = true };

  memset(s, 0, sizeof *s);
  for (setting_key key = 0; key < KEY_COUNT; key++) {
    set_member(s, key, key_rows[key].fallback, (source_pos){ 0 }, a, &d);
  }
  assert(diag_ok(&d) && "a default of keys.def is not a value of its own key");
}

static bool unknown_key(const char *name, source_pos at, arena *a, diag *d)
{
  const char *dot = strchr(name, '.');
  const char *near = key_suggest(NULL, dot == NULL ? name : dot + 1, a);

  if (near == NULL) {
    return diag_error(d, at,
                      "there is no key \"%.200s\"; offsim predict --print-scenario lists them", name);
  }
  return diag_error(d, at, "there is no key \"%.200s\"; did you mean %s.%s?", name,
                    key_rows[key_find(near)].section, near);
}

bool settings_set(settings *s, const char *key, const char *text, source_pos at, arena *a, diag *d)
{
  setting_key found = key_find(key);

  if (found == KEY_COUNT) {
    return unknown_key(key, at, a, d);
  }
  return settings_set_key(s, found, text, at, a, d);
}

bool settings_set_key(settings *s, setting_key key, const char *text, source_pos at, arena *a,
                      diag *d)
{
  if (!set_member(s, key, text, at, a, d)) {
    return false;
  }
  s->at[key] = at;
  s->given[key] = key_rows[key].type != KEY_TYPE_INT || *(int64_t *)key_member(s, key) != UNSET;
  return true;
}

offload_scope offload_scope_of(const settings *s)
{
  return offload_system_find(s->offload.system)->scope;
}

bool offloads_layers(const settings *s)
{
  return offload_scope_of(s) == OFFLOAD_LAYERS;
}

bool uses_hf(const settings *s)
{
  return strcmp(s->model.implementation, "hf") == 0;
}

bool names_contain(const name_list *list, const char *name)
{
  for (uint32_t i = 0; i < list->count; i++) {
    if (strcmp(list->names[i], name) == 0) {
      return true;
    }
  }
  return false;
}
