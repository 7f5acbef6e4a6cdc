/* a{b,c}d -> abd acd, and {1..4}: on the text of a word, before all other expansions. */
#include <inttypes.h>
#include <string.h>

#include "sim/shell/parts.h"
#include "sim/text/scalar.h"

enum { WORDS_MOST = 4096 };

typedef struct brace_words {
  evaluator *e;
  const shell_source *source; /* of the word that is expanded */
  raw_word *items;
  uint32_t count, capacity;
} brace_words;

/* The byte after quotes, an expansion or a character at `p`. */
static const char *skip(brace_words *w, const char *p, const char *end)
{
  if (*p == '\\') return p + 1 < end ? p + 2 : end;
  if (*p == '\'') {
    const char *closing = memchr(p + 1, '\'', (size_t)(end - p - 1));
    return closing != NULL ? closing + 1 : end;
  }
  if (*p == '"') {
    for (p++; p < end && *p != '"';) {
      p = *p == '\\'               ? p + 2
          : *p == '$' || *p == '`' ? shell_skip_expansion(w->e->a, w->source, p, end, true, w->e->d)
                                   : p + 1;
      if (p == NULL) return NULL;
    }
    return p < end ? p + 1 : end;
  }
  if (*p == '$' || *p == '`')
    return shell_skip_expansion(w->e->a, w->source, p, end, false, w->e->d);
  return p + 1;
}

/* The } that closes the { at `p`, whether a comma separates its parts; NULL: none. */
static const char *closing_brace(brace_words *w, const char *p, const char *end, bool *has_comma)
{
  int open = 0;
  *has_comma = false;
  while (p != NULL && p < end) {
    open += (*p == '{') - (*p == '}');
    if (open == 0) return p;
    *has_comma = *has_comma || (*p == ',' && open == 1);
    p = skip(w, p, end);
  }
  return NULL;
}

typedef struct brace_range {
  int64_t first, last, step;
  int width;
  bool letters;
} brace_range;

static bool read_end(const char *text, size_t length, int64_t *value, bool *letter, int *width)
{
  char copy[24];
  if (length == 0 || length >= sizeof copy) return false;
  memcpy(copy, text, length);
  copy[length] = '\0';
  *letter = length == 1 && ((copy[0] | 0x20) >= 'a' && (copy[0] | 0x20) <= 'z');
  if (*letter) {
    *value = copy[0];
    return true;
  }
  bool padded = copy[0] == '0' || (copy[0] == '-' && copy[1] == '0');
  if (padded && length > 1 && (int)length > *width) *width = (int)length;
  return scalar_i64(copy, value);
}

/* 1..4, a..d, 0..8..2 */
static bool read_range(const char *start, const char *end, brace_range *r)
{
  const char *dots = NULL, *more = NULL;
  for (const char *p = start; p + 1 < end; p++) {
    if (p[0] != '.' || p[1] != '.') continue;
    if (dots == NULL)
      dots = p;
    else if (more == NULL)
      more = p;
    p++;
  }
  if (dots == NULL) return false;
  bool first_letter, last_letter, step_letter = false;
  const char *last_end = more != NULL ? more : end;
  *r = (brace_range){ .step = 1 };
  if (!read_end(start, (size_t)(dots - start), &r->first, &first_letter, &r->width) ||
      !read_end(dots + 2, (size_t)(last_end - dots - 2), &r->last, &last_letter, &r->width) ||
      first_letter != last_letter)
    return false;
  int ignored = 0;
  if (more != NULL &&
      !read_end(more + 2, (size_t)(end - more - 2), &r->step, &step_letter, &ignored))
    return false;
  if (r->step < 0) r->step = -r->step;
  if (r->step == 0) r->step = 1;
  r->letters = first_letter;
  return !step_letter && r->first > -(INT64_C(1) << 40) && r->first < INT64_C(1) << 40 &&
         r->last > -(INT64_C(1) << 40) && r->last < INT64_C(1) << 40 && r->step < INT64_C(1) << 40;
}

static bool add_word(brace_words *w, const char *start, const char *end)
{
  if (w->count == WORDS_MOST)
    return diag_error(w->e->d, shell_place(w->source, start),
                      "braces give more than %d words, which offsim does not read", WORDS_MOST);
  if (w->count == w->capacity) {
    uint32_t capacity = w->capacity == 0 ? 4 : w->capacity * 2;
    raw_word *more = ARENA_ARRAY(w->e->a, raw_word, capacity);
    if (w->count > 0) memcpy(more, w->items, w->count * sizeof *more);
    w->items = more;
    w->capacity = capacity;
  }
  w->items[w->count++] = (raw_word){ .start = start, .end = end, .source = w->source };
  return true;
}

static bool expand_from(brace_words *w, const char *text, size_t length, size_t from, int depth);

/* head + middle + tail, in whose rest further braces are expanded. */
static bool with_part(brace_words *w, const char *text, size_t head, const char *middle,
                      size_t middle_length, const char *tail, size_t tail_length, int depth)
{
  if (!take_step(w->e, shell_place(w->source, text))) return false;
  char *joined = ARENA_ARRAY(w->e->a, char, head + middle_length + tail_length + 1);
  memcpy(joined, text, head);
  memcpy(joined + head, middle, middle_length);
  memcpy(joined + head + middle_length, tail, tail_length);
  size_t length = head + middle_length + tail_length;
  const shell_source *outer =
      w->source; /* expansions are skipped by parsing them: in a source of their own */
  w->source = new_source(w->e, joined, length,
                         shell_place(outer, outer->derived ? outer->start : text), true);
  bool good = expand_from(w, joined, length, head, depth + 1);
  w->source = outer;
  return good;
}

static bool expand_list(brace_words *w, const char *text, size_t length, const char *open,
                        const char *close, int depth)
{
  const char *part = open + 1;
  int nested = 0;
  for (const char *p = open + 1; p != NULL;) {
    if ((p == close || (*p == ',' && nested == 0)) &&
        !with_part(w, text, (size_t)(open - text), part, (size_t)(p - part), close + 1,
                   (size_t)(text + length - close - 1), depth))
      return false;
    if (p == close) return true;
    if (*p == ',' && nested == 0) part = p + 1;
    nested += (*p == '{') - (*p == '}');
    p = skip(w, p, close);
  }
  return false;
}

static bool expand_numbers(brace_words *w, const char *text, size_t length, const char *open,
                           const char *close, const brace_range *r, int depth)
{
  int64_t step = r->first <= r->last ? r->step : -r->step;
  for (int64_t n = r->first; step > 0 ? n <= r->last : n >= r->last; n += step) {
    char byte[2] = { (char)n, '\0' };
    const char *part = r->letters ? byte : arena_printf(w->e->a, "%0*" PRId64, r->width, n);
    if (!with_part(w, text, (size_t)(open - text), part, strlen(part), close + 1,
                   (size_t)(text + length - close - 1), depth))
      return false;
  }
  return true;
}

static bool expand_from(brace_words *w, const char *text, size_t length, size_t from, int depth)
{
  const char *end = text + length;
  for (const char *p = text + from; p != NULL && p < end && depth < 32;) {
    bool has_comma;
    brace_range r;
    const char *close = *p == '{' ? closing_brace(w, p, end, &has_comma) : NULL;
    if (!diag_ok(w->e->d)) return false;
    if (close != NULL && has_comma) return expand_list(w, text, length, p, close, depth);
    if (close != NULL && read_range(p + 1, close, &r))
      return expand_numbers(w, text, length, p, close, &r, depth);
    p = skip(w, p, end);
    if (p == NULL) return false;
  }
  return add_word(w, text, end);
}

bool expand_braces(evaluator *e, const raw_word *word, raw_word **out, uint32_t *count)
{
  if (memchr(word->start, '{', (size_t)(word->end - word->start)) == NULL) {
    raw_word *one = ARENA_NEW(e->a, raw_word);
    *one = *word;
    *out = one;
    *count = 1;
    return true;
  }
  brace_words w = { .e = e, .source = word->source };
  /* the first level keeps the word's own source, so that what has no braces keeps its places */
  if (!expand_from(&w, word->start, (size_t)(word->end - word->start), 0, 0)) return false;
  *out = w.items;
  *count = w.count;
  return true;
}
