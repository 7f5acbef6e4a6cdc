#include "sim/config/settings.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "sim/config/key_table.h"
#include "sim/text/scalar.h"

/* A choice is set and printed through a pointer to the type that all their enums have. */
static_assert(sizeof(system_choice) == sizeof(uint32_t), "enums are of 32 bits");

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
  if (scalar_may_be_octal(text)) return wrong_value(d, at, row, text, scalar_without_zeros);
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
  if (scalar_may_be_octal(text)) return wrong_value(d, at, row, text, scalar_without_zeros);
  if (!(value >= (double)row->least && value <= (double)row->most)) {
    return diag_error(d, at, "%s is %.100s; it must be from %" PRId64 " to %" PRId64, row->name,
                      text, row->least, row->most);
  }
  *member = value + 0.0; /* no negative zero: its text would be another one */
  return true;
}

static bool set_flag(const key_row *row, bool *member, const char *text, source_pos at, diag *d)
{
  return scalar_bool(text, member) || wrong_value(d, at, row, text, "true or false");
}

static bool set_choice(setting_key key, uint32_t *member, const char *text, source_pos at, arena *a,
                       diag *d)
{
  uint32_t choice;

  if (!choice_find(key, text, &choice)) {
    return diag_error(d, at, "%s is \"%.200s\"; it must be %s", key_rows[key].name, text,
                      choice_sentence(a, key));
  }
  *member = choice;
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
static name_list split_list(const char *text, arena *a)
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
    list.names[i++] = arena_strndup(a, t, length);
    t += length;
  }
  return list;
}

static bool set_choices(setting_key key, choice_list *member, const char *text, source_pos at,
                        arena *a, diag *d)
{
  name_list words = split_list(text, a);
  choice_list list = { .items = ARENA_ARRAY(a, uint32_t, words.count) };

  for (uint32_t i = 0; i < words.count; i++) {
    uint32_t choice = 0;
    if (!set_choice(key, &choice, words.names[i], at, a, d)) {
      return false;
    }
    choice_add(&list, choice);
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
  case KEY_TYPE_TEXT: *(const char **)member = arena_strdup(a, text); return true;
  case KEY_TYPE_LIST: *(name_list *)member = split_list(text, a); return true;
  case KEY_TYPE_CHOICE: return set_choice(key, member, text, at, a, d);
  case KEY_TYPE_CHOICES: return set_choices(key, member, text, at, a, d);
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
    return diag_error(
        d, at, "there is no key \"%.200s\"; offsim predict --print-scenario lists them", name);
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
  assert(key < KEY_COUNT && text != NULL);
  if (!set_member(s, key, text, at, a, d)) {
    return false;
  }
  s->at[key] = at;
  s->given[key] = key_rows[key].type != KEY_TYPE_INT || *(int64_t *)key_member(s, key) != UNSET;
  return true;
}

offload_scope offload_scope_of(const settings *s)
{
  assert(s->offload.system != SYSTEM_EMPTY);
  return offload_systems[s->offload.system].scope;
}

bool stashes_experts(const settings *s)
{
  system_choice system = s->offload.system;

  return s->offload.moe_paged_stash && (system == SYSTEM_paged_stash || system == SYSTEM_megatron);
}

bool keeps_experts_on_host(const settings *s)
{
  return s->offload.moe_use_offloading_experts;
}

bool offloads_layers(const settings *s)
{
  return offload_scope_of(s) == OFFLOAD_LAYERS;
}

bool uses_hf(const settings *s)
{
  return s->model.implementation == IMPLEMENTATION_HF;
}

bool optimizer_is_muon(optimizer_choice optimizer)
{
  return optimizer == OPTIMIZER_MUON || optimizer == OPTIMIZER_DIST_MUON ||
         optimizer == OPTIMIZER_ADAPTIVE_MUON;
}

void choice_add(choice_list *list, uint32_t choice)
{
  assert(choice < 32); /* bits of `set` */
  list->items[list->count++] = choice;
  list->set |= UINT32_C(1) << choice;
}

const char *chosen_word(const settings *s, setting_key key)
{
  assert(key_rows[key].type == KEY_TYPE_CHOICE);
  return choice_word(key, *(const uint32_t *)key_member_const(s, key));
}
