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

/* ---- axes ---- */

static bool has_axis(const space *s, const char *key)
{
  for (uint32_t i = 0; i < s->axis_count; i++)
    if (key_find(s->axes[i].key) == key_find(key)) return true;
  return false;
}

static uint32_t pieces_of(const char *text, char between)
{
  uint32_t count = 1;
  for (; *text != '\0'; text++)
    count += *text == between;
  return count;
}

bool space_add_axis(space *s, const char *text, source_pos at, arena *a, diag *d)
{
  size_t key_length = strcspn(text, "=");
  if (text[key_length] == '\0' || key_length == 0)
    return diag_error(d, at, "found \"%.200s\"; expected KEY=VALUE|VALUE...", text);
  const char *key = arena_strndup(a, text, key_length);
  if (!check_key(key, at, a, d)) return false;
  if (has_axis(s, key)) return diag_error(d, at, "%s is already varied", key);
  if (s->axis_count == SPACE_AXES)
    return diag_error(d, at, "more than %d keys are varied; a --list has no such limit",
                      SPACE_AXES);
  const char *rest = text + key_length + 1;
  space_axis axis = { .key = key, .value_count = pieces_of(rest, '|') };
  if (axis.value_count > SPACE_AXIS_VALUES)
    return diag_error(d, at, "%s has %u values; at most %d are possible", key, axis.value_count,
                      SPACE_AXIS_VALUES);
  axis.values = ARENA_ARRAY(a, const char *, axis.value_count);
  for (uint32_t i = 0; i < axis.value_count; i++) {
    size_t length = strcspn(rest, "|");
    axis.values[i] = arena_strndup(a, rest, length);
    for (uint32_t k = 0; k < i; k++)
      if (strcmp(axis.values[k], axis.values[i]) == 0)
        return diag_error(d, at, "%s has the value \"%.200s\" twice", key, axis.values[i]);
    rest += length + 1;
  }
  s->axes[s->axis_count++] = axis;
  return true;
}

/* ---- lists ---- */

/* One KEY=VALUE of a line. */
static bool add_word(space_line *line, const char *word, source_pos at, arena *a, diag *d)
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
static bool read_line(space_line *line, const char *text, size_t length, source_pos at, arena *a,
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
  for (const char *rest = text; *rest != '\0'; at.line++) {
    size_t length = strcspn(rest, "\n");
    space_line line = { 0 };
    at.column = 1;
    diag_go_on(d);
    read_line(&line, rest, length, at, a, d);
    if (line.set_count > 0) *ARRAY_PUSH(&s->lines) = line;
    rest += length + (rest[length] == '\n');
  }
  if (!diag_ok(d)) return false;
  return s->lines.count > 0 || diag_error(d, (source_pos){ file, 0, 0 }, "it lists no setting");
}

/* ---- the settings ---- */

/* Saturates above the limit. */
static int64_t count_of(const space *s)
{
  int64_t count = s->lines.count == 0 ? 1 : s->lines.count;
  for (uint32_t i = 0; i < s->axis_count && count <= SPACE_MOST_SETTINGS; i++)
    count *= s->axes[i].value_count;
  return count;
}

bool space_check(const space *s, source_pos at, diag *d)
{
  if (s->axis_count == 0 && s->lines.count == 0)
    return diag_error(d, at, "nothing is varied: --over KEY=VALUE|VALUE or --list FILE says what");
  if (count_of(s) > SPACE_MOST_SETTINGS)
    return diag_error(d, at, "more than %d settings; a sweep of fewer keys or values is possible",
                      SPACE_MOST_SETTINGS);
  for (uint32_t i = 0; i < s->lines.count; i++)
    if (s->lines.items[i].set_count + s->axis_count > CANDIDATE_SETS)
      return diag_error(d, at, "setting %u of the list and the axes set more than %d keys", i + 1,
                        CANDIDATE_SETS);
  return true;
}

uint32_t space_count(const space *s)
{
  int64_t count = count_of(s);
  assert(count >= 1 && count <= SPACE_MOST_SETTINGS);
  return (uint32_t)count;
}

candidate space_at(const space *s, uint32_t index, arena *a)
{
  assert(index < space_count(s));
  uint32_t digits[SPACE_AXES], rest = index;
  for (uint32_t i = s->axis_count; i-- > 0;) {
    digits[i] = rest % s->axes[i].value_count;
    rest /= s->axes[i].value_count;
  }
  candidate c = { .order = index };
  if (s->lines.count > 0) {
    const space_line *line = &s->lines.items[rest];
    for (uint32_t i = 0; i < line->set_count; i++)
      c.sets[c.set_count++] = line->sets[i];
  }
  for (uint32_t i = 0; i < s->axis_count; i++)
    candidate_set(&c, s->axes[i].key, s->axes[i].values[digits[i]], a);
  assert(c.set_count <= CANDIDATE_SETS && (s->lines.count > 0 || rest == 0));
  return c;
}

void space_release(space *s)
{
  ARRAY_FREE(&s->lines);
}
