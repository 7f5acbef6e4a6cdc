#include "sim/sweep/space.h"

#include <assert.h>
#include <string.h>

#include "sim/base/array.h"
#include "sim/config/key_table.h"

static bool check_key(const char *key, source_pos at, arena *a, diag *d)
{
  if (key_find(key) < KEY_COUNT) return true;
  const char *near = key_suggest(NULL, key, a);
  return near == NULL
             ? diag_error(d, at, "there is no key \"%.200s\"", key)
             : diag_error(d, at, "there is no key \"%.200s\"; did you mean %s?", key, near);
}

/* Whether the key takes the value at all; which values go together, each setting shows. */
static bool check_value(const char *set, source_pos at, diag *d)
{
  arena scratch = { 0 };
  settings s;
  settings_init(&s, &scratch);
  const char *value = strchr(set, '=') + 1;
  const char *key = arena_strndup(&scratch, set, (size_t)(value - set) - 1);
  bool good = settings_set(&s, key, value, at, &scratch, d);
  arena_release(&scratch);
  return good;
}

/* ---- axes ---- */

static bool has_axis(const space *s, const char *key)
{
  for (uint32_t i = 0; i < s->axis_count; i++)
    if (s->axes[i].key != NULL && key_find(s->axes[i].key) == key_find(key)) return true;
  return false;
}

/* NULL after a diag error. */
static space_axis *new_axis(space *s, const char *key, source_pos at, diag *d)
{
  if (s->axis_count == SPACE_AXES) {
    diag_error(d, at, "more than %d keys are varied; a line of --list sets any number", SPACE_AXES);
    return NULL;
  }
  space_axis *axis = &s->axes[s->axis_count++];
  *axis = (space_axis){ .key = key };
  return axis;
}

static bool has_value(const space_axis *axis, const char *set)
{
  for (uint32_t i = 0; i < axis->count; i++)
    if (strcmp(axis->items[i].sets[0], set) == 0) return true;
  return false;
}

bool space_add_axis(space *s, const char *text, source_pos at, arena *a, diag *d)
{
  size_t key_length = strcspn(text, "=");
  if (text[key_length] == '\0' || key_length == 0)
    return diag_error(d, at, "found \"%.200s\"; expected KEY=VALUE|VALUE...", text);
  const char *key = arena_strndup(a, text, key_length);
  if (!check_key(key, at, a, d)) return false;
  if (has_axis(s, key)) return diag_error(d, at, "%s is already varied", key);
  space_axis *axis = new_axis(s, key, at, d);
  if (axis == NULL) return false;
  for (const char *rest = text + key_length; *rest != '\0';) {
    size_t length = strcspn(rest + 1, "|");
    space_choice choice = { ARENA_ARRAY(a, const char *, 1), 1 };
    choice.sets[0] = arena_printf(a, "%s=%.*s", key, (int)length, rest + 1);
    if (has_value(axis, choice.sets[0]))
      return diag_error(d, at, "%s has the value \"%.*s\" twice", key, (int)length, rest + 1);
    if (!check_value(choice.sets[0], at, d)) return false;
    *ARRAY_PUSH(axis) = choice;
    rest += 1 + length;
  }
  return true;
}

bool space_add_choices(space *s, const space_choice *choices, uint32_t count, source_pos at,
                       diag *d)
{
  space_axis *axis = new_axis(s, NULL, at, d);
  assert(count >= 1);
  if (axis == NULL) return false;
  for (uint32_t i = 0; i < count; i++)
    *ARRAY_PUSH(axis) = choices[i];
  return true;
}

static bool sets_key(const space_choice *c, setting_key key, arena *a)
{
  for (uint32_t i = 0; i < c->set_count; i++)
    if (key_find(arena_strndup(a, c->sets[i], strcspn(c->sets[i], "="))) == key) return true;
  return false;
}

bool space_varies(const space *s, setting_key key)
{
  arena a = { 0 };
  bool found = false;
  for (uint32_t i = 0; i < s->axis_count; i++)
    for (uint32_t k = 0; !found && k < s->axes[i].count; k++)
      found = sets_key(&s->axes[i].items[k], key, &a);
  arena_release(&a);
  return found;
}

/* ---- lists ---- */

/* One KEY=VALUE of a line. */
static bool add_word(space_choice *line, const char *word, source_pos at, arena *a, diag *d)
{
  size_t key_length = strcspn(word, "=");
  if (word[key_length] == '\0' || key_length == 0)
    return diag_error(d, at, "found \"%.200s\"; expected KEY=VALUE", word);
  if (!check_key(arena_strndup(a, word, key_length), at, a, d)) return false;
  line->sets[line->set_count++] = word;
  return true;
}

static const char blanks[] = " \t\r";

/* The words of a line, up to a comment. */
static bool read_line(space_choice *line, const char *text, size_t length, source_pos at, arena *a,
                      diag *d)
{
  const char *end = memchr(text, '#', length);
  const char *copy = arena_strndup(a, text, end == NULL ? length : (size_t)(end - text));
  line->sets = ARENA_ARRAY(a, const char *, strlen(copy) / 2 + 1);
  for (const char *word = copy + strspn(copy, blanks); *word != '\0';) {
    size_t word_length = strcspn(word, blanks);
    at.column = (int)(word - copy) + 1;
    if (!add_word(line, arena_strndup(a, word, word_length), at, a, d)) return false;
    word += word_length;
    word += strspn(word, blanks);
  }
  return true;
}

bool space_add_list(space *s, const char *file, const char *text, arena *a, diag *d)
{
  source_pos at = { file, 1, 1 };
  space_axis *axis = new_axis(s, NULL, (source_pos){ file, 0, 0 }, d);
  if (axis == NULL) return false;
  for (const char *rest = text; *rest != '\0'; at.line++) {
    size_t length = strcspn(rest, "\n");
    space_choice line = { 0 };
    at.column = 1;
    diag_go_on(d);
    read_line(&line, rest, length, at, a, d);
    if (line.set_count > 0) *ARRAY_PUSH(axis) = line;
    rest += length + (rest[length] == '\n');
  }
  if (!diag_ok(d)) return false;
  return axis->count > 0 || diag_error(d, (source_pos){ file, 0, 0 }, "it lists no setting");
}

/* ---- the settings ---- */

/* Saturates above the limit. */
static int64_t count_of(const space *s)
{
  int64_t count = 1;
  for (uint32_t i = 0; i < s->axis_count && count <= SPACE_MOST_SETTINGS; i++)
    count *= s->axes[i].count;
  return count;
}

/* The most keys that a setting sets. */
static uint32_t most_sets(const space *s)
{
  uint32_t sets = 0;
  for (uint32_t i = 0; i < s->axis_count; i++) {
    uint32_t most = 0;
    for (uint32_t k = 0; k < s->axes[i].count; k++)
      if (s->axes[i].items[k].set_count > most) most = s->axes[i].items[k].set_count;
    sets += most;
  }
  return sets;
}

bool space_check(const space *s, source_pos at, diag *d)
{
  if (s->axis_count == 0)
    return diag_error(d, at, "nothing is varied; give --over KEY=VALUE|VALUE or --list FILE");
  if (count_of(s) > SPACE_MOST_SETTINGS)
    return diag_error(d, at, "more than %d settings; a sweep of fewer keys or values is possible",
                      SPACE_MOST_SETTINGS);
  if (most_sets(s) > CANDIDATE_SETS)
    return diag_error(d, at, "a setting sets %u keys; at most %d are possible", most_sets(s),
                      CANDIDATE_SETS);
  return true;
}

uint32_t space_count(const space *s)
{
  int64_t count = count_of(s);
  assert(count >= 1 && count <= SPACE_MOST_SETTINGS);
  return (uint32_t)count;
}

candidate space_at(const space *s, uint32_t index)
{
  assert(index < space_count(s));
  uint32_t choices[SPACE_AXES], rest = index;
  for (uint32_t i = s->axis_count; i-- > 0;) {
    choices[i] = rest % s->axes[i].count;
    rest /= s->axes[i].count;
  }
  assert(rest == 0);
  candidate c = { .order = index };
  for (uint32_t i = 0; i < s->axis_count; i++) {
    const space_choice *choice = &s->axes[i].items[choices[i]];
    for (uint32_t k = 0; k < choice->set_count; k++)
      c.sets[c.set_count++] = choice->sets[k];
  }
  assert(c.set_count <= CANDIDATE_SETS);
  return c;
}

void space_release(space *s)
{
  for (uint32_t i = 0; i < s->axis_count; i++)
    ARRAY_FREE(&s->axes[i]);
}
