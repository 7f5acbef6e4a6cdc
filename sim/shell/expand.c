/* Words -> texts: quotes, $, backquotes, word splitting. */
#include <assert.h>
#include <string.h>

#include "sim/shell/parts.h"

static field *add_field(evaluator *e, field_list *list)
{
  if (list->count == list->capacity) {
    uint32_t capacity = list->capacity == 0 ? 8 : list->capacity * 2;
    field *more = ARENA_ARRAY(e->a, field, capacity);
    if (list->count > 0) memcpy(more, list->items, list->count * sizeof *more);
    list->items = more;
    list->capacity = capacity;
  }
  return &list->items[list->count++];
}

/* ---- fields ---- */

/* The marks of unset variables in a text of which no word is left, as marks of missing words. */
static const char *missing_marks(evaluator *e, const char *text)
{
  text_buffer b = { 0 };
  for (const char *p = text; *p != '\0'; p += is_mark(p) ? MARK_BYTES : 1) {
    if (!is_mark(p)) continue;
    value_origin o = *mark_origin(e, p);
    if (o.kind == ORIGIN_PLACE) continue;
    o.kind = ORIGIN_MISSING;
    if (!buffer_add_text(e, &b, mark_text(e, new_origin(e, o)))) return "";
  }
  return buffer_text(e, &b);
}

bool end_field(builder *b)
{
  evaluator *e = b->e;
  assert(b->how == EXPAND_FIELDS);
  const char *text = buffer_text(e, &b->text);
  bool is_field = b->begun || b->quoted;
  b->text = (text_buffer){ 0 };
  if (!is_field) {
    const char *marks = missing_marks(e, text);
    if (*marks == '\0') return true;
    if (b->fields->count > 0) {
      field *last = &b->fields->items[b->fields->count - 1];
      last->text = arena_printf(e->a, "%s%s", last->text, marks);
    } else {
      b->missing = arena_printf(e->a, "%s%s", b->missing != NULL ? b->missing : "", marks);
    }
    return true;
  }
  if (b->missing != NULL) text = arena_printf(e->a, "%s%s", b->missing, text);
  b->missing = NULL;
  *add_field(e, b->fields) = (field){ .text = text, .at = b->at, .quoted = b->quoted };
  b->begun = b->quoted = false;
  return take_step(e, b->at);
}

const char *separators(evaluator *e)
{
  const variable *v = find_variable(e, "IFS");
  if (v == NULL || !v->is_set || v->kind != VARIABLE_SCALAR) return " \t\n";
  const char *plain = plain_text(e, v->text);
  return plain != NULL ? plain : " \t\n";
}

static bool is_blank(char c)
{
  return c == ' ' || c == '\t' || c == '\n';
}

/* An unquoted value: its blanks, or what IFS has, separate words. */
static bool add_split(builder *b, const char *text)
{
  evaluator *e = b->e;
  const char *ifs = separators(e);
  for (const char *p = text; *p != '\0';) {
    if (is_mark(p)) {
      origin_kind kind = mark_origin(e, p)->kind;
      b->begun = b->begun || kind == ORIGIN_UNKNOWN || kind == ORIGIN_SECRET;
      if (kind == ORIGIN_PLACE)
        b->at = mark_origin(e, p)->at; /* of the words up to the next place */
      if (!buffer_add(e, &b->text, p, MARK_BYTES)) return false;
      p += MARK_BYTES;
    } else if (strchr(ifs, *p) == NULL) {
      b->begun = true;
      if (!buffer_add(e, &b->text, p++, 1)) return false;
    } else if (is_blank(*p)) {
      if (!end_field(b)) return false;
      while (*p != '\0' && is_blank(*p) && strchr(ifs, *p) != NULL) {
        p++;
      }
      /* blanks around another separator belong to it */
      if (*p != '\0' && !is_mark(p) && strchr(ifs, *p) != NULL && p > text) p++;
    } else {
      b->quoted = true; /* an empty field counts */
      if (!end_field(b)) return false;
      p++;
      while (*p != '\0' && is_blank(*p) && strchr(ifs, *p) != NULL) {
        p++;
      }
    }
  }
  return true;
}

/* Quoted characters of a pattern mean themselves. */
static bool add_escaped(builder *b, const char *text, size_t length)
{
  for (const char *p = text, *end = text + length; p < end;) {
    if (is_mark(p)) {
      if (!buffer_add(b->e, &b->text, p, MARK_BYTES)) return false;
      p += MARK_BYTES;
    } else {
      if (strchr("*?[]\\+@!()|^-.{}$", *p) != NULL && !buffer_add(b->e, &b->text, "\\", 1))
        return false;
      if (!buffer_add(b->e, &b->text, p++, 1)) return false;
    }
  }
  return true;
}

bool add_value(builder *b, const char *text, bool in_quotes)
{
  if (in_quotes && b->how == EXPAND_PATTERN) return add_escaped(b, text, strlen(text));
  if (!in_quotes && b->how == EXPAND_FIELDS) return add_split(b, text);
  return buffer_add_text(b->e, &b->text, text);
}

static bool add_place(builder *b, const char *byte)
{
  value_origin o = { .kind = ORIGIN_PLACE, .at = shell_place(b->source, byte) };
  return buffer_add_text(b->e, &b->text, mark_text(b->e, new_origin(b->e, o)));
}

/* Characters that are in the script. */
static bool add_literal(builder *b, const char *byte, size_t count, bool quoted)
{
  if (b->splits_literals && !quoted && count == 1 && is_blank(*byte)) return add_split(b, " ");
  b->begun = true;
  bool after_blank = b->text.count == 0 || is_blank(b->text.bytes[b->text.count - 1]);
  if (b->places && after_blank && !is_blank(*byte) && !is_mark(byte) && !add_place(b, byte))
    return false;
  if (quoted && b->how == EXPAND_PATTERN) return add_escaped(b, byte, count);
  return buffer_add(b->e, &b->text, byte, count);
}

/* ---- quotes ---- */

static bool add_single(builder *b, const char *p, const char *end)
{
  b->begun = b->quoted = true;
  for (; p < end; p++) {
    if (!add_literal(b, p, 1, true)) return false;
  }
  return true;
}

static int hex_value(char c)
{
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

/* The escape after a backslash at *p, as $'...' and printf read it; -1: none of them. */
static int escaped_character(const char **p, const char *end)
{
  static const char names[] = "abefnrtv\\'\"?E", values[] = "\a\b\033\f\n\r\t\v\\'\"?\033";
  const char *found = **p != '\0' ? strchr(names, **p) : NULL;
  if (found != NULL) {
    ++*p;
    return values[found - names];
  }
  int value = 0, digits = 0;
  if (**p == 'x') {
    for (++*p; digits < 2 && *p < end && hex_value(**p) >= 0; digits++) {
      value = value * 16 + hex_value(*(*p)++);
    }
    return digits > 0 ? value : -1;
  }
  for (; digits < 3 && *p < end && **p >= '0' && **p <= '7'; digits++) {
    value = value * 8 + *(*p)++ - '0';
  }
  return digits > 0 ? value & 0xFF : -1;
}

static bool add_ansi(builder *b, const char *p, const char *end)
{
  b->begun = b->quoted = true;
  while (p < end) {
    if (*p != '\\' || p + 1 >= end) {
      if (!add_literal(b, p++, 1, true)) return false;
      continue;
    }
    const char *start = p++;
    int c = escaped_character(&p, end);
    if (c == 0 || c >= 0x80 || (c < 0 && strchr("cuUx", start[1]) != NULL))
      return diag_error(b->e->d, shell_place(b->source, start),
                        "this escape is not read; write the character itself");
    char byte = (char)c;
    if (!(c < 0 ? add_literal(b, start, (size_t)(p - start), true)
                : add_literal(b, &byte, 1, true)))
      return false;
    if (c < 0 && p == start + 1 && !add_literal(b, p++, 1, true)) return false;
  }
  return true;
}

/* ---- substitutions ---- */

static bool add_captured(builder *b, shell_node *n, const char *start, const char *end,
                         bool in_quotes)
{
  if (n == NULL) return false;
  const char *text = captured(b->e, n, arena_strndup(b->e->a, start, (size_t)(end - start)),
                              shell_place(b->source, start));
  return text != NULL && add_value(b, text, in_quotes);
}

/* `...`: \\ \$ and \` lose their backslash, then it is read as a text of its own. */
static bool add_backquotes(builder *b, const char *start, const char *end, bool in_quotes)
{
  evaluator *e = b->e;
  char *text = ARENA_ARRAY(e->a, char, (size_t)(end - start) + 1);
  size_t length = 0;
  for (const char *p = start + 1; p < end - 1; p++) {
    if (*p == '\\' && p + 1 < end - 1 &&
        (strchr("\\$`", p[1]) != NULL || (in_quotes && p[1] == '"')))
      p++;
    text[length++] = *p;
  }
  const shell_source *s = new_source(e, text, length, shell_place(b->source, start), true);
  return add_captured(b, shell_parse(e->a, s, e->d), start, end, in_quotes);
}

static bool add_arithmetic(builder *b, const char *start, const char *end, bool in_quotes)
{
  builder inner = { .e = b->e, .source = b->source, .how = EXPAND_VALUE, .at = b->at };
  if (!expand_range(&inner, start, end, true)) return false;
  const char *value =
      arithmetic(b->e, buffer_text(b->e, &inner.text), shell_place(b->source, start - 3));
  return value != NULL && add_value(b, value, in_quotes);
}

static bool all_arguments(builder *b, bool star, bool in_quotes)
{
  evaluator *e = b->e;
  b->empty_at = b->empty_at || (e->argument_count == 0 && !star);
  const char *ifs = separators(e);
  char joint[2] = { star ? *ifs : ' ', '\0' };
  for (uint32_t i = 0; i < e->argument_count; i++) {
    bool separate = b->how == EXPAND_FIELDS && (!star || !in_quotes);
    if (i > 0 && separate && !end_field(b)) return false;
    if (i > 0 && !separate && !buffer_add_text(e, &b->text, joint)) return false;
    if (separate && in_quotes) b->quoted = true;
    if (!add_value(b, e->arguments[i].text, in_quotes)) return false;
  }
  return true;
}

static bool add_dollar(builder *b, const char *start, const char *end, bool in_quotes)
{
  evaluator *e = b->e;
  const char *p = start + 1;
  source_pos at = shell_place(b->source, start);
  if (p == end) return add_literal(b, start, 1, in_quotes);
  if (*p == '(' && p + 1 < end && p[1] == '(' && end - start >= 5 && end[-1] == ')' &&
      end[-2] == ')') {
    /* `$((` may also begin a substitution with a subshell: then its brackets close one after the
     * other */
    int open = 0;
    bool arithmetic_form = true;
    for (const char *q = p + 1; q < end - 1; q++) {
      open += (*q == '(') - (*q == ')');
      if (open == 0 && q < end - 2) arithmetic_form = false;
    }
    if (arithmetic_form) return add_arithmetic(b, start + 3, end - 2, in_quotes);
  }
  if (*p == '(') {
    const char *closing;
    shell_node *n = shell_parse_substitution(e->a, b->source, p + 1, &closing, e->d);
    return add_captured(b, n, start, end, in_quotes);
  }
  if (*p == '{') return expand_parameter(b, p + 1, end - 1, in_quotes);
  if (*p == '\'' && !in_quotes) return add_ansi(b, p + 1, end - 1);
  uint32_t length = shell_name_length(p, end);
  if (length > 0)
    return expand_name(b, arena_strndup(e->a, p, length), arena_strndup(e->a, start, length + 1),
                       at, in_quotes);
  return add_literal(b, start, 1, in_quotes);
}

/* The end of the expansion at `p`, which begins with $ or `. */
static const char *expansion_end(builder *b, const char *p, const char *end, bool in_quotes)
{
  if (*p == '$' && p + 1 < end && p[1] != '(' && p[1] != '{' && (p[1] != '\'' || in_quotes)) {
    uint32_t length = shell_name_length(p + 1, end);
    return p + 1 +
           (length > 0                                                  ? length
            : strchr("0123456789@*#?$!-", p[1]) != NULL && p[1] != '\0' ? 1
                                                                        : 0);
  }
  return shell_skip_expansion(b->e->a, b->source, p, end, in_quotes, b->e->d);
}

static bool add_expansion(builder *b, const char *p, const char *end, bool in_quotes)
{
  if (*p == '`') return add_backquotes(b, p, end, in_quotes);
  if (end - p == 2 && strchr("@*", p[1]) != NULL) return all_arguments(b, p[1] == '*', in_quotes);
  if (end - p == 2 && strchr("0123456789#?$!-", p[1]) != NULL) {
    char *name = arena_strndup(b->e->a, p + 1, 1);
    return expand_name(b, name, arena_strndup(b->e->a, p, 2), shell_place(b->source, p), in_quotes);
  }
  return add_dollar(b, p, end, in_quotes);
}

/* ---- words ---- */

static const char *closing_quote(builder *b, const char *p, const char *end)
{
  for (p++; p < end && *p != '"';) {
    if (*p == '\\')
      p += 2;
    else if (*p == '$' || *p == '`')
      p = expansion_end(b, p, end, true);
    else
      p++;
    if (p == NULL) return NULL;
  }
  return p < end ? p : end;
}

/* No character from `from` to `to`. */
static bool only_marks(const char *bytes, size_t from, size_t to)
{
  while (from < to && is_mark(bytes + from)) {
    from += MARK_BYTES;
  }
  return from == to;
}

static bool add_double(builder *b, const char *p, const char *end, const char **rest)
{
  const char *closing = closing_quote(b, p, end);
  if (closing == NULL) return false;
  size_t before = b->text.count;
  uint32_t fields = b->fields != NULL ? b->fields->count : 0;
  b->empty_at = false;
  if (!expand_range(b, p + 1, closing, true)) return false;
  bool nothing = b->empty_at && only_marks(b->text.bytes, before, b->text.count) &&
                 (b->fields == NULL || b->fields->count == fields);
  b->quoted = b->quoted || !nothing;
  *rest = closing < end ? closing + 1 : end;
  return true;
}

static bool add_tilde(builder *b, const char *p, const char *end, const char **rest)
{
  const char *slash = p + 1;
  while (slash < end && *slash != '/' && *slash != ':') {
    slash++;
  }
  const char *written = arena_strndup(b->e->a, p, (size_t)(slash - p));
  b->begun = true;
  *rest = slash;
  return add_value(b, unknown_text(b->e, "HOME", written, shell_place(b->source, p)), true);
}

static bool is_tilde(const builder *b, const char *p, const char *start, const char *end)
{
  if (*p != '~' || p != start || b->how == EXPAND_DOCUMENT) return false;
  return p + 1 == end || p[1] == '/' || (p[1] >= 'a' && p[1] <= 'z');
}

static bool add_backslash(builder *b, const char *p, const char *end, bool in_quotes,
                          const char **rest)
{
  bool document = b->how == EXPAND_DOCUMENT;
  *rest = p + 1;
  if (p + 1 == end) return add_literal(b, p, 1, true);
  if (p[1] == '\n') {
    *rest = p + 2;
    return true;
  }
  bool keeps = (in_quotes || document) && strchr(document ? "$`\\" : "$`\\\"", p[1]) == NULL;
  *rest = p + 2;
  if (keeps)
    return add_literal(b, p, 1, true) &&
           (is_mark(p + 1) ? (*rest = p + 1, true) : add_literal(b, p + 1, 1, true));
  b->quoted = b->quoted || !in_quotes;
  if (is_mark(p + 1)) {
    *rest = p + 1;
    return true;
  }
  return add_literal(b, p + 1, 1, true);
}

static bool add_mark(builder *b, const char *p)
{
  origin_kind kind = mark_origin(b->e, p)->kind;
  b->begun = b->begun || kind == ORIGIN_UNKNOWN || kind == ORIGIN_SECRET;
  return buffer_add(b->e, &b->text, p, MARK_BYTES);
}

/* <( ) and >( ): the name of a pipe. */
static bool is_process(const char *p, const char *start, const char *end)
{
  return p == start && p + 1 < end && (*p == '<' || *p == '>') && p[1] == '(';
}

/* Some text, one word of it. */
static bool add_unknown(builder *b, const char *p, const char *end)
{
  const char *written = arena_strndup(b->e->a, p, (size_t)(end - p));
  b->begun = true;
  return add_value(b, unknown_text(b->e, NULL, written, shell_place(b->source, p)), true);
}

bool expand_range(builder *b, const char *p, const char *end, bool in_quotes)
{
  const char *start = p;
  bool quotes = !in_quotes && b->how != EXPAND_DOCUMENT;
  bool literal_quotes = in_quotes || b->how == EXPAND_DOCUMENT;
  while (p < end) {
    const char *rest = p + 1;
    bool good;
    if (is_mark(p)) {
      good = add_mark(b, p);
      rest = p + MARK_BYTES;
    } else if (*p == '$' || *p == '`') {
      rest = expansion_end(b, p, end, literal_quotes);
      good = rest != NULL && add_expansion(b, p, rest, literal_quotes);
    } else if (*p == '\\') {
      good = add_backslash(b, p, end, in_quotes, &rest);
    } else if (*p == '\'' && quotes) {
      const char *closing = memchr(p + 1, '\'', (size_t)(end - p - 1));
      closing = closing != NULL ? closing : end;
      good = add_single(b, p + 1, closing);
      rest = closing < end ? closing + 1 : end;
    } else if (*p == '"' && quotes) {
      good = add_double(b, p, end, &rest);
    } else if (*p == '"' && in_quotes && b->how != EXPAND_DOCUMENT) {
      good = true; /* inside "${x:-"a"}" */
    } else if (!in_quotes && is_tilde(b, p, start, end)) {
      good = add_tilde(b, p, end, &rest);
    } else if (quotes && is_process(p, start, end)) {
      good = add_unknown(b, p, end);
      rest = end;
    } else if (quotes && *p == '<' && shell_placeholder_end(p, end) != NULL) {
      rest = shell_placeholder_end(p, end);
      good = add_unknown(b, p, rest);
    } else {
      good = add_literal(b, p, 1, in_quotes);
    }
    if (!good) return false;
    p = rest;
  }
  return true;
}

static bool expand_word(evaluator *e, const raw_word *w, field_list *out, const char **missing)
{
  builder b = { .e = e,
                .source = w->source,
                .how = EXPAND_FIELDS,
                .fields = out,
                .missing = *missing,
                .at = shell_place(w->source, w->start) };
  bool good = expand_range(&b, w->start, w->end, false) && end_field(&b);
  *missing = b.missing;
  return good;
}

bool expand_words(evaluator *e, const raw_word *words, uint32_t count, field_list *out)
{
  const char *missing = NULL;
  for (uint32_t i = 0; i < count; i++) {
    raw_word *parts;
    uint32_t part_count;
    if (!expand_braces(e, &words[i], &parts, &part_count)) return false;
    for (uint32_t j = 0; j < part_count; j++) {
      if (!expand_word(e, &parts[j], out, &missing)) return false;
    }
  }
  return true;
}

const char *expand_text(evaluator *e, const raw_word *w, expansion how)
{
  assert(how != EXPAND_FIELDS);
  builder b = { .e = e,
                .source = w->source,
                .how = how,
                .places = how == EXPAND_VALUE,
                .at = shell_place(w->source, w->start) };
  if (!take_step(e, b.at) || !expand_range(&b, w->start, w->end, false)) return NULL;
  return buffer_text(e, &b.text);
}
