#include "sim/plan/line.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "sim/text/suggest.h"

/* The longest part of a word that a message repeats, the longest description of what it expects,
 * and the longest list of names. */
enum { SHOWN = 60, EXPECTED = 160, FEW = 15 };

plan_word line_word(plan_line *l)
{
  assert(l->next <= l->end);
  while (l->next < l->end && *l->next == ' ') {
    l->next++;
    l->at.column++;
  }
  plan_word w = { .text = l->next, .at = l->at };
  while (l->next < l->end && *l->next != ' ')
    l->next++;
  w.length = (size_t)(l->next - w.text);
  l->at.column += (int)w.length;
  assert((w.length == 0) == (w.text == l->end) && "only the end of the line is an empty word");
  return w;
}

plan_word line_peek(const plan_line *l)
{
  plan_line ahead = *l;
  return line_word(&ahead);
}

bool word_is(const plan_word *w, const char *text)
{
  return w->length == strlen(text) && memcmp(w->text, text, w->length) == 0;
}

bool text_number(const char *text, size_t length, int64_t most, int64_t *value)
{
  int64_t number = 0;
  assert(most >= 0);
  for (size_t i = 0; i < length; i++) {
    if (text[i] < '0' || text[i] > '9') return false;
    int64_t digit = text[i] - '0';
    if (digit > most || number > (most - digit) / 10) return false;
    number = 10 * number + digit;
    assert(number <= most);
  }
  if (length > 0) *value = number;
  return length > 0;
}

bool line_wrong(plan_line *l, const plan_word *found, const char *expected)
{
  if (found->length == 0)
    return diag_error(l->d, found->at, "the line ends here; expected %s", expected);
  int shown = found->length < SHOWN ? (int)found->length : SHOWN;
  return diag_error(l->d, found->at, "found \"%.*s\"; expected %s", shown, found->text, expected);
}

bool line_expect(plan_line *l, const char *word)
{
  plan_word w = line_word(l);
  if (word_is(&w, word)) return true;
  char expected[EXPECTED];
  assert(word[strcspn(word, " ")] == '\0' && strlen(word) < EXPECTED - 2);
  snprintf(expected, sizeof expected, "\"%s\"", word);
  return line_wrong(l, &w, expected);
}

bool line_number(plan_line *l, const char *what, int64_t least, int64_t most, int64_t *value)
{
  plan_word w = line_word(l);
  if (text_number(w.text, w.length, most, value) && *value >= least) return true;
  char expected[EXPECTED];
  assert(least <= most && strlen(what) < EXPECTED / 2);
  snprintf(expected, sizeof expected, "%s, from %" PRId64 " to %" PRId64, what, least, most);
  return line_wrong(l, &w, expected);
}

bool line_bytes(plan_line *l, int64_t *bytes)
{
  return line_number(l, "a number of bytes", 0, INT64_MAX, bytes) && line_expect(l, "bytes");
}

bool line_numbered(plan_line *l, char sign, const char *expected, uint32_t *number, source_pos *at)
{
  assert(sign != '\0' && sign != ' ');
  plan_word w = line_word(l);
  int64_t value;
  if (w.length < 2 || w.text[0] != sign ||
      !text_number(w.text + 1, w.length - 1, UINT32_MAX, &value))
    return line_wrong(l, &w, expected);
  *number = (uint32_t)value;
  if (at != NULL) *at = w.at;
  return true;
}

/* The message lists the names if they are few. */
static bool wrong_of_few(plan_line *l, const plan_word *w, const char *what,
                         const char *const *names, uint32_t count)
{
  char expected[EXPECTED];
  size_t used = (size_t)snprintf(expected, sizeof expected, "%s", what);
  for (uint32_t i = 0; count <= FEW && i < count && used < sizeof expected; i++)
    used += (size_t)snprintf(expected + used, sizeof expected - used, "%s%s", i == 0 ? ": " : ", ",
                             names[i]);
  return line_wrong(l, w, expected);
}

static bool wrong_choice(plan_line *l, const plan_word *w, const char *what,
                         const char *const *names, uint32_t count)
{
  char found[SHOWN + 1];
  size_t shown = w->length < SHOWN ? w->length : SHOWN;
  memcpy(found, w->text, shown);
  found[shown] = '\0';
  const char *near = suggest_nearest(found, names, count);
  if (w->length == 0 || near == NULL) return wrong_of_few(l, w, what, names, count);
  return diag_error(l->d, w->at, "found \"%s\"; expected %s: did you mean \"%s\"?", found, what,
                    near);
}

bool line_choice(plan_line *l, const char *what, const char *const *names, uint32_t count,
                 uint32_t *index)
{
  assert(count > 0);
  plan_word w = line_word(l);
  for (uint32_t i = 0; i < count; i++)
    if (word_is(&w, names[i])) {
      *index = i;
      return true;
    }
  return wrong_choice(l, &w, what, names, count);
}

bool line_end(plan_line *l, const char *expected)
{
  plan_word w = line_word(l);
  return w.length == 0 || line_wrong(l, &w, expected);
}
