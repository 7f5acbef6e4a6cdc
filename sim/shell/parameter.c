/* $X and ${X...}: values of variables, and what the operators of bash make of them. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "sim/base/text.h"
#include "sim/shell/parts.h"
#include "sim/text/scalar.h"

enum { REPLACED_BYTES_MOST = 8192 };

/* What is before the operator: one text, or all elements. */
typedef struct subject {
  const char *name, *written;
  source_pos at;
  const char **texts;
  uint32_t count;
  bool all, star; /* [@], [*], @, * */
  bool is_set;
  bool unclear; /* the elements, or their order, are not known */
} subject;

typedef struct parameter {
  builder *b;
  evaluator *e;
  const char *p, *end; /* what is left of ${...} */
  bool in_quotes;
  subject s;
} parameter;

/* ---- values ---- */

/* The name is of a secret (HF_TOKEN, WANDB_API_KEY), whose value no message may show. */
static bool is_secret(const char *name)
{
  static const char *const ends[] = { "_KEY",    "_TOKEN", "_SECRET", "_PASSWORD",
                                      "_PASSWD", "APIKEY", "_PAT" };
  static const char *const names[] = { "TOKEN", "PASSWORD", "PASSWD", "SECRET", NULL };
  char upper[128];
  size_t length = strlen(name);
  if (length >= sizeof upper) return false;
  for (size_t i = 0; i <= length; i++) {
    upper[i] = name[i] >= 'a' && name[i] <= 'z' ? (char)(name[i] - 32) : name[i];
  }
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    if (ends_with(upper, ends[i])) return true;
  }
  return is_one_of(upper, names) || strstr(upper, "SECRET_") != NULL;
}

/* What could be a secret: not a number, not an option, not short. */
static bool looks_secret(const char *text)
{
  return strlen(text) >= 8 && text[0] != '-' && text[strspn(text, "0123456789")] != '\0';
}

static const char *guarded(evaluator *e, const char *name, const char *text, source_pos at)
{
  const char *plain = is_secret(name) ? plain_text(e, text) : NULL;
  if (plain == NULL || !looks_secret(plain)) return text;
  value_origin o = { .kind = ORIGIN_SECRET, .name = name, .what = "***", .value = plain, .at = at };
  return mark_text(e, new_origin(e, o));
}

static const char *argument_text(evaluator *e, const char *name, source_pos at)
{
  int64_t index;
  if (!scalar_i64(name, &index) || index > UINT32_MAX) index = UINT32_MAX;
  if (index == 0) return e->name;
  if (index <= e->argument_count) return e->arguments[index - 1].text;
  value_origin o = { .kind = ORIGIN_UNSET, .name = name, .what = name, .at = at };
  return mark_text(e, new_origin(e, o));
}

/* The value of a special parameter, an argument or a variable. */
static const char *value_of(evaluator *e, const char *name, const char *written, source_pos at,
                            bool *is_set)
{
  *is_set = true;
  switch (name[0]) {
  case '#':
    for (uint32_t i = 0; i < e->argument_count; i++) {
      uint32_t unknown = first_unknown(e, e->arguments[i].text);
      if (unknown != NO_ORIGIN && e->origins.items[unknown].many) return mark_text(e, unknown);
    }
    return arena_printf(e->a, "%" PRIu32, e->argument_count);
  case '?':
    if (e->status.number >= 0) return arena_printf(e->a, "%d", e->status.number);
    return unknown_text(e, NULL, written, at);
  case '$':
  case '!':
  case '-': return unknown_text(e, NULL, written, at);
  default: break;
  }
  if (name[0] >= '0' && name[0] <= '9') {
    int64_t index;
    *is_set = scalar_i64(name, &index) && index <= e->argument_count;
    return argument_text(e, name, at);
  }
  if (strcmp(name, "BASH_SOURCE") == 0) return e->source_name;
  *is_set = is_set_variable(e, name);
  return guarded(e, name, scalar_text(e, name, at), at);
}

/* set -u ends a script at a variable that is not set: where the script runs, it has a value from
 * outside. */
static const char *text_from_outside(evaluator *e, const char *name, source_pos at)
{
  return unknown_text(e, name, arena_printf(e->a, "$%s", name), at);
}

bool expand_name(builder *b, const char *name, const char *written, source_pos at, bool in_quotes)
{
  bool is_set;
  const char *text = value_of(b->e, name, written, at, &is_set);
  if (!is_set) want_argument(b->e, name, at);
  if (!is_set && b->e->nounset) text = text_from_outside(b->e, name, at);
  return add_value(b, text, in_quotes);
}

/* ---- the subject ---- */

static bool read_subscript(parameter *q, const char **start, const char **end)
{
  if (q->p == q->end || *q->p != '[') return false;
  int open = 0;
  for (const char *p = q->p; p < q->end; p++) {
    open += (*p == '[') - (*p == ']');
    if (open > 0) continue;
    *start = q->p + 1;
    *end = p;
    q->p = p + 1;
    return true;
  }
  return false;
}

static void one_text(parameter *q, const char *text, bool is_set)
{
  q->s.texts = ARENA_ARRAY(q->e->a, const char *, 1);
  q->s.texts[0] = text;
  q->s.count = 1;
  q->s.is_set = is_set;
}

static const char *unset_mark(parameter *q)
{
  value_origin o = { .kind = ORIGIN_UNSET, .name = q->s.name, .what = q->s.name, .at = q->s.at };
  return mark_text(q->e, new_origin(q->e, o));
}

static void all_elements(parameter *q, const variable *v)
{
  evaluator *e = q->e;
  q->s.all = true;
  if (v == NULL || !v->is_set) return;
  if (v->kind == VARIABLE_SCALAR) {
    one_text(q, v->text, true);
    return;
  }
  q->s.texts = ARENA_ARRAY(e->a, const char *, v->element_count + 1);
  for (uint32_t i = 0; i < v->element_count; i++) {
    q->s.texts[q->s.count++] = v->elements[i].text;
  }
  q->s.is_set = v->element_count > 0;
  q->s.unclear = (v->kind == VARIABLE_MAP && v->element_count > 1) || has_unknown_elements(e, v);
}

/* One more than the last index. */
static int64_t index_end(const variable *v)
{
  if (v == NULL || !v->is_set) return 0;
  if (v->kind == VARIABLE_SCALAR) return 1;
  return v->element_count > 0 ? v->elements[v->element_count - 1].index + 1 : 0;
}

/* NULL: there is none. A scalar is its own element 0. */
static const char *element_text(const variable *v, const char *key, int64_t index)
{
  if (v == NULL || !v->is_set) return NULL;
  if (v->kind == VARIABLE_SCALAR) return index == 0 ? v->text : NULL;
  for (uint32_t i = 0; i < v->element_count; i++) {
    const element *x = &v->elements[i];
    if (v->kind == VARIABLE_MAP ? strcmp(x->key, key) == 0 : x->index == index) return x->text;
  }
  return NULL;
}

/* One element: by key of a map, else by number; negative ones count from the end. */
static bool one_element(parameter *q, const variable *v, const char *start, const char *end)
{
  evaluator *e = q->e;
  builder inner = { .e = e, .source = q->b->source, .how = EXPAND_VALUE, .at = q->s.at };
  if (!expand_range(&inner, start, end, v == NULL || v->kind != VARIABLE_MAP)) return false;
  const char *subscript = buffer_text(e, &inner.text);
  bool is_map = v != NULL && v->kind == VARIABLE_MAP;
  const char *key = is_map ? subscript : arithmetic(e, subscript, q->s.at);
  if (key == NULL) return false;
  key = plain_text(e, key);
  int64_t index = 0;
  if (key == NULL || (v != NULL && !is_map && has_unknown_elements(e, v))) {
    one_text(q, unknown_text(e, NULL, q->s.written, q->s.at), true);
    return true;
  }
  if (!is_map) scalar_i64(key, &index);
  if (index < 0) index += index_end(v);
  if (index < 0)
    return diag_error(e->d, q->s.at, "%.100s: the array has no such element", q->s.written);
  const char *text = element_text(v, key, index);
  one_text(q, text != NULL ? guarded(e, q->s.name, text, q->s.at) : unset_mark(q), text != NULL);
  return true;
}

static bool read_named(parameter *q)
{
  const char *start = NULL, *end = NULL;
  const variable *v = find_variable(q->e, q->s.name);
  bool has_subscript = read_subscript(q, &start, &end);
  if (strcmp(q->s.name, "BASH_SOURCE") == 0) {
    one_text(q, q->e->source_name, true);
    return true;
  }
  if (!has_subscript) {
    bool is_set;
    const char *text = value_of(q->e, q->s.name, q->s.written, q->s.at, &is_set);
    one_text(q, text, is_set);
    return true;
  }
  if (end - start == 1 && (*start == '@' || *start == '*')) {
    q->s.star = *start == '*';
    if (v == NULL && is_set_variable(q->e, q->s.name))
      one_text(q, scalar_text(q->e, q->s.name, q->s.at), true);
    else
      all_elements(q, v);
    q->s.all = true;
    return true;
  }
  return one_element(q, v, start, end);
}

static bool read_subject(parameter *q)
{
  evaluator *e = q->e;
  if (q->p == q->end) return false;
  uint32_t length = shell_name_length(q->p, q->end);
  if (length > 0) {
    q->s.name = arena_strndup(e->a, q->p, length);
    q->p += length;
    return read_named(q);
  }
  if (*q->p == '@' || *q->p == '*') {
    q->s.name = "@";
    q->s.all = true;
    q->s.star = *q->p++ == '*';
    q->s.texts = ARENA_ARRAY(e->a, const char *, e->argument_count + 1);
    for (uint32_t i = 0; i < e->argument_count; i++) {
      q->s.texts[q->s.count++] = e->arguments[i].text;
    }
    q->s.is_set = e->argument_count > 0;
    return true;
  }
  size_t digits = 0;
  while (q->p + digits < q->end && q->p[digits] >= '0' && q->p[digits] <= '9') {
    digits++;
  }
  if (digits == 0 && strchr("#?$!-", *q->p) != NULL) digits = 1;
  if (digits == 0) return false;
  q->s.name = arena_strndup(e->a, q->p, digits);
  q->p += digits;
  bool is_set;
  const char *text = value_of(e, q->s.name, q->s.written, q->s.at, &is_set);
  one_text(q, text, is_set);
  return true;
}

/* ---- output ---- */

static bool add_unknown(parameter *q)
{
  const char *name =
      q->s.name != NULL && shell_name_length(q->s.name, q->s.name + strlen(q->s.name)) > 0
          ? q->s.name
          : NULL;
  /* where the value itself has an unknown part, that is what the result depends on */
  for (uint32_t i = 0; i < q->s.count; i++) {
    uint32_t index = first_unknown(q->e, q->s.texts[i]);
    if (index == NO_ORIGIN) continue;
    value_origin o = q->e->origins.items[index];
    o.alternatives = NULL;
    o.alternative_count = 0;
    o.directory = NULL;
    o.many = o.many || q->s.all;
    return add_value(q->b, mark_text(q->e, new_origin(q->e, o)), q->in_quotes);
  }
  value_origin o = {
    .kind = ORIGIN_UNKNOWN, .many = q->s.all, .name = name, .what = q->s.written, .at = q->s.at
  };
  return add_value(q->b, mark_text(q->e, new_origin(q->e, o)), q->in_quotes);
}

/* What "${A[*]}" has between its elements: the first character of IFS, if there is one. */
static const char *joint(parameter *q)
{
  if (!q->s.star) return " ";
  const char *ifs = separators(q->e);
  size_t length = *ifs != '\0';
  while ((ifs[length] & 0xC0) == 0x80) { /* the rest of a character in UTF-8 */
    length++;
  }
  return arena_strndup(q->e->a, ifs, length);
}

static bool add_texts(parameter *q)
{
  builder *b = q->b;
  if (!q->s.all) return q->s.count == 0 || add_value(b, q->s.texts[0], q->in_quotes);
  if (q->s.count == 0 && q->s.name[0] != '@' && find_variable(q->e, q->s.name) == NULL &&
      !add_value(b, unset_mark(q), false))
    return false;
  if (q->s.count == 0 && !q->s.star) b->empty_at = true;
  for (uint32_t i = 0; i < q->s.count; i++) {
    bool separate = b->how == EXPAND_FIELDS && (!q->s.star || !q->in_quotes);
    if (i > 0 && separate && !end_field(b)) return false;
    if (i > 0 && !separate && !buffer_add_text(q->e, &b->text, joint(q))) return false;
    if (separate && q->in_quotes) b->quoted = true;
    if (!add_value(b, q->s.texts[i], q->in_quotes)) return false;
  }
  return true;
}

/* ---- operators ---- */

/* The rest of ${...} as one text. */
static const char *rest_text(parameter *q, const char *from, const char *to, expansion how)
{
  builder inner = { .e = q->e, .source = q->b->source, .how = how, .at = q->s.at };
  bool quoted = q->in_quotes && how != EXPAND_PATTERN;
  return expand_range(&inner, from, to, quoted) ? buffer_text(q->e, &inner.text) : NULL;
}

/* 1: the subject has a value; 0: it has none; -1: unknown. */
static int has_value(parameter *q, bool null_counts)
{
  if (q->s.unclear) return -1;
  if (!q->s.is_set) return 0;
  if (!null_counts || (q->s.all && q->s.count > 1)) return 1;
  const char *plain = plain_text(q->e, q->s.texts[0]);
  if (plain != NULL) return *plain != '\0';
  return has_character(q->e, q->s.texts[0]) ? 1 : -1;
}

/* A default or alternative in the word's place. */
static bool add_word(parameter *q)
{
  bool before = q->b->splits_literals;
  q->b->splits_literals = q->b->how == EXPAND_FIELDS && !q->in_quotes;
  bool good = expand_range(q->b, q->p, q->end, q->in_quotes);
  q->b->splits_literals = before;
  return good;
}

/* The alternative of a subject that may have a value: perhaps it is there. */
static bool add_perhaps_word(parameter *q)
{
  evaluator *e = q->e;
  const char *text = rest_text(q, q->p, q->end, EXPAND_VALUE);
  if (text == NULL) return false;
  const char **alternatives = ARENA_ARRAY(e->a, const char *, 1);
  alternatives[0] = plain_text(e, text);
  value_origin o = { .kind = ORIGIN_UNKNOWN,
                     .many = true,
                     .name = q->s.name,
                     .what = q->s.written,
                     .at = q->s.at,
                     .alternatives = alternatives,
                     .alternative_count = alternatives[0] != NULL };
  return add_value(q->b, mark_text(e, new_origin(e, o)), q->in_quotes);
}

static bool use_default(parameter *q, char operator_, bool null_counts)
{
  evaluator *e = q->e;
  int has = has_value(q, null_counts);
  for (const char *p = q->p; q->in_quotes && p + 1 < q->end; p++) {
    if (p[0] == '$' && p[1] == '\'')
      return diag_error(e->d, q->s.at, "$'...' in \"${...}\" is not read; assign it to a variable");
  }
  if (operator_ == '+') return has == 0 || (has > 0 ? add_word(q) : add_perhaps_word(q));
  if (has != 0) return q->s.unclear ? add_unknown(q) : add_texts(q);
  if (operator_ == '-') return add_word(q);
  const char *text = rest_text(q, q->p, q->end, EXPAND_VALUE);
  if (text == NULL) return false;
  bool is_argument = q->s.name[0] >= '0' && q->s.name[0] <= '9';
  if (operator_ == '?' && !is_argument) /* as with set -u */
    return add_value(q->b, unknown_text(e, q->s.name, q->s.written, q->s.at), q->in_quotes);
  if (operator_ == '?') {
    const char *plain = plain_text(e, text);
    bool says = plain != NULL && *plain != '\0';
    return end_run(
        e, q->s.at,
        arena_printf(e->a,
                     "argument $%s is not given; --arg VALUE gives the script's arguments"
                     "%s%.200s%s",
                     q->s.name, says ? " (" : "", says ? plain : "", says ? ")" : ""));
  }
  assert(operator_ == '=');
  return set_scalar(e, q->s.name, text, q->s.at) && add_value(q->b, text, q->in_quotes);
}

/* Every character is one byte. */
static bool is_ascii(const char *text)
{
  for (; *text != '\0'; text++) {
    if ((unsigned char)*text >= 0x80) return false;
  }
  return true;
}

static bool read_number(parameter *q, const char *from, const char *to, int64_t *value, bool *known)
{
  builder inner = { .e = q->e, .source = q->b->source, .how = EXPAND_VALUE, .at = q->s.at };
  if (!expand_range(&inner, from, to, true)) return false;
  const char *text = arithmetic(q->e, buffer_text(q->e, &inner.text), q->s.at);
  if (text == NULL) return false;
  text = plain_text(q->e, text);
  *known = text != NULL && scalar_i64(text, value);
  return true;
}

/* :offset and :offset:length, of a text or of elements. */
static bool use_slice(parameter *q)
{
  evaluator *e = q->e;
  const char *colon = q->p;
  int open = 0;
  while (colon < q->end && (*colon != ':' || open > 0)) {
    open += (*colon == '(' || *colon == '{' || *colon == '?') -
            (*colon == ')' || *colon == '}' || (*colon == ':' && open > 0));
    colon++;
  }
  int64_t offset = 0, length = 0;
  bool known = true, length_known = true, has_length = colon < q->end;
  if (!read_number(q, q->p, colon, &offset, &known)) return false;
  if (has_length && !read_number(q, colon + 1, q->end, &length, &length_known)) return false;
  if (!known || !length_known || q->s.unclear) return add_unknown(q);
  if (q->s.all) {
    bool arguments = q->s.name[0] == '@';
    const variable *v = arguments ? NULL : find_variable(e, q->s.name);
    bool indexed = v != NULL && v->kind == VARIABLE_ARRAY && v->element_count > 0;
    if ((v != NULL && v->kind == VARIABLE_MAP) || (arguments && offset <= 0) || length < 0)
      return add_unknown(q);
    if (arguments) offset--;
    if (offset < 0) offset += indexed ? v->elements[v->element_count - 1].index + 1 : q->s.count;
    if (offset >= 0 && indexed) { /* an offset is an index: elements before it do not count */
      uint32_t first = 0;
      while (first < v->element_count && v->elements[first].index < offset) {
        first++;
      }
      offset = first;
    }
    if (offset < 0 || offset > q->s.count) offset = q->s.count;
    q->s.texts += offset;
    q->s.count -= (uint32_t)offset;
    if (has_length && length < q->s.count) q->s.count = (uint32_t)length;
    return add_texts(q);
  }
  const char *text = q->s.count > 0 ? plain_text(e, q->s.texts[0]) : "";
  if (text == NULL || !is_ascii(text)) return add_unknown(q);
  int64_t size = (int64_t)strlen(text);
  if (offset < 0) offset += size;
  if (offset < 0 || offset > size) return true;
  int64_t last = !has_length  ? size
                 : length < 0 ? size + length
                              : offset + (length < size - offset ? length : size - offset);
  if (last < offset)
    return end_run(e, q->s.at,
                   arena_printf(e->a, "%.100s: the substring has a negative length", q->s.written));
  return add_value(q->b, arena_strndup(e->a, text + offset, (size_t)(last - offset)), q->in_quotes);
}

static const char *removed(evaluator *e, const char *text, const char *pattern, char side,
                           bool longest)
{
  size_t length = strlen(text);
  for (size_t i = 0; i <= length; i++) {
    size_t kept =
        longest ? i : length - i; /* of a prefix: where the rest begins is length - kept */
    if (side == '%') {
      if (pattern_matches(pattern, text + kept)) return arena_strndup(e->a, text, kept);
    } else if (pattern_matches_part(pattern, text, length - kept)) {
      return arena_strdup(e->a, text + (length - kept));
    }
  }
  return text;
}

/* How many bytes from `text` on match, at most; SIZE_MAX: none. */
static size_t longest_match(const char *pattern, const char *text)
{
  for (size_t length = strlen(text) + 1; length-- > 0;) {
    if (pattern_matches_part(pattern, text, length)) return length;
  }
  return SIZE_MAX;
}

/* `anchor`: '/' everywhere, '#' at the beginning, '%' at the end, 0 the first. */
static const char *replaced(evaluator *e, const char *text, const char *pattern, const char *by,
                            char anchor)
{
  text_buffer b = { 0 };
  size_t size = strlen(text);
  bool done = false;
  if (size == 0 && anchor != '#' && anchor != '%') return text;
  for (const char *p = text; *p != '\0' || (anchor == '%' && !done);) {
    size_t length = done || (anchor == '#' && p > text) ? SIZE_MAX : longest_match(pattern, p);
    if (anchor == '%') length = !done && pattern_matches(pattern, p) ? strlen(p) : SIZE_MAX;
    if (length != SIZE_MAX && (length > 0 || anchor == '#' || anchor == '%')) {
      if (!buffer_add_text(e, &b, by)) return NULL;
      p += length;
      done = anchor != '/';
      if (anchor == '%') break;
      if (length > 0) continue;
    }
    if (*p == '\0') break;
    if (!buffer_add(e, &b, p++, 1)) return NULL;
  }
  return buffer_text(e, &b);
}

static const char *with_case(evaluator *e, const char *text, char operator_, bool all)
{
  char *copy = arena_strdup(e->a, text);
  for (char *c = copy; *c != '\0' && (all || c == copy); c++) {
    if (operator_ == '^' && *c >= 'a' && *c <= 'z') *c = (char)(*c - 32);
    if (operator_ == ',' && *c >= 'A' && *c <= 'Z') *c = (char)(*c + 32);
  }
  return copy;
}

/* The / that ends the pattern of ${x/pattern/by}. */
static const char *pattern_end(parameter *q)
{
  const char *p = q->p;
  while (p != NULL && p < q->end && *p != '/') {
    if (*p == '\\') {
      p = p + 1 < q->end ? p + 2 : q->end;
    } else if (*p == '\'' || *p == '"') {
      const char *closing = memchr(p + 1, *p, (size_t)(q->end - p - 1));
      p = closing != NULL ? closing + 1 : q->end;
    } else if (*p == '$' || *p == '`') {
      p = shell_skip_expansion(q->e->a, q->b->source, p, q->end, q->in_quotes, q->e->d);
    } else {
      p++;
    }
  }
  return p;
}

typedef struct edit {
  char operator_;
  char anchor; /* of a replacement, or the doubled operator */
  const char *pattern, *by;
} edit;

static bool read_edit(parameter *q, edit *x)
{
  *x = (edit){ .operator_ = *q->p++ };
  if (x->operator_ == '/') {
    if (q->p < q->end && strchr("/#%", *q->p) != NULL) x->anchor = *q->p++;
    const char *slash = pattern_end(q);
    if (slash == NULL) return false;
    x->pattern = rest_text(q, q->p, slash, EXPAND_PATTERN);
    x->by = slash < q->end ? rest_text(q, slash + 1, q->end, EXPAND_VALUE) : "";
    return x->pattern != NULL && x->by != NULL;
  }
  if (q->p < q->end && *q->p == x->operator_) x->anchor = *q->p++;
  x->pattern = rest_text(q, q->p, q->end, EXPAND_PATTERN);
  x->by = "";
  return x->pattern != NULL;
}

/* NULL: unknown. */
static const char *edited(evaluator *e, const edit *x, const char *text)
{
  if (x->operator_ == '%' || x->operator_ == '#')
    return removed(e, text, x->pattern, x->operator_, x->anchor != 0);
  if (x->operator_ == '/')
    return strlen(text) > REPLACED_BYTES_MOST ? NULL
                                              : replaced(e, text, x->pattern, x->by, x->anchor);
  return *x->pattern == '\0' && is_ascii(text) ? with_case(e, text, x->operator_, x->anchor != 0)
                                               : NULL;
}

static bool use_edit(parameter *q)
{
  edit x;
  if (!read_edit(q, &x)) return false;
  x.pattern = plain_text(q->e, x.pattern);
  x.by = plain_text(q->e, x.by);
  /* an & in the replacement means the match, in newer versions of bash */
  bool unclear = q->s.unclear || x.pattern == NULL || x.by == NULL ||
                 has_extended_pattern(x.pattern) || strchr(x.by, '&') != NULL;
  for (uint32_t i = 0; i < q->s.count && !unclear; i++) {
    const char *plain = plain_text(q->e, q->s.texts[i]);
    const char *text = plain != NULL ? edited(q->e, &x, plain) : NULL;
    if (text == NULL)
      unclear = true;
    else if (*plain != '\0')
      q->s.texts[i] = text;
  }
  return diag_ok(q->e->d) && (unclear ? add_unknown(q) : add_texts(q));
}

static bool is_end(const parameter *q)
{
  return q->p == q->end;
}

/* ${#X}, ${#A[@]}, ${#} */
static bool use_length(parameter *q)
{
  evaluator *e = q->e;
  if (!read_subject(q) || !is_end(q)) return false;
  if (q->s.all) {
    if (q->s.unclear && find_variable(e, q->s.name) != NULL &&
        find_variable(e, q->s.name)->kind == VARIABLE_MAP)
      q->s.unclear = false;
    if (q->s.unclear) return add_unknown(q);
    return add_value(q->b, arena_printf(e->a, "%" PRIu32, q->s.count), q->in_quotes);
  }
  if (!q->s.is_set && e->nounset)
    return add_value(q->b, text_from_outside(e, q->s.name, q->s.at), q->in_quotes);
  const char *plain = plain_text(e, q->s.texts[0]);
  if (plain == NULL || !is_ascii(plain)) return add_unknown(q);
  return add_value(q->b, arena_printf(e->a, "%zu", strlen(plain)), q->in_quotes);
}

/* ${!A[@]}: the keys. */
static bool use_keys(parameter *q, const variable *v, bool star)
{
  evaluator *e = q->e;
  q->s = (subject){
    .name = q->s.name, .written = q->s.written, .at = q->s.at, .all = true, .star = star
  };
  if (v == NULL || !v->is_set) return add_texts(q);
  if (v->kind == VARIABLE_SCALAR) {
    one_text(q, "0", true);
    return add_texts(q);
  }
  q->s.texts = ARENA_ARRAY(e->a, const char *, v->element_count + 1);
  for (uint32_t i = 0; i < v->element_count; i++) {
    const element *x = &v->elements[i];
    q->s.texts[q->s.count++] = x->key != NULL ? x->key : arena_printf(e->a, "%" PRId64, x->index);
  }
  if (has_unknown_elements(e, v) || (v->kind == VARIABLE_MAP && v->element_count > 1))
    return add_unknown(q);
  return add_texts(q);
}

static bool use_operator(parameter *q);

/* ${!X}: the variable that X names. */
static bool use_indirect(parameter *q)
{
  evaluator *e = q->e;
  uint32_t length = shell_name_length(q->p, q->end);
  const char *name = arena_strndup(e->a, q->p, length), *rest = q->p + length;
  if (length > 0 && q->end - rest == 3 &&
      (memcmp(rest, "[@]", 3) == 0 || memcmp(rest, "[*]", 3) == 0)) {
    q->s.name = name;
    return use_keys(q, find_variable(e, name), rest[1] == '*');
  }
  if (length > 0 && q->end - rest == 1 && (*rest == '@' || *rest == '*')) {
    q->s.name = name;
    return add_unknown(q);
  }
  if (!read_subject(q)) return false;
  if (q->s.all || q->s.count == 0) return add_unknown(q);
  const char *target = plain_text(e, q->s.texts[0]);
  if (target == NULL) return add_unknown(q) && true;
  if (!q->s.is_set || *target == '\0')
    return end_run(e, q->s.at, arena_printf(e->a, "%.100s names no variable", q->s.written));
  parameter inner = {
    .b = q->b, .e = e, .p = target, .end = target + strlen(target), .in_quotes = q->in_quotes
  };
  inner.s = (subject){ .written = q->s.written, .at = q->s.at };
  /* a subscript in the name would need a source of its own */
  if (shell_name_length(target, inner.end) != strlen(target) &&
      target[strspn(target, "0123456789")] != '\0')
    return add_unknown(q);
  if (!read_subject(&inner)) return false;
  inner.p = q->p;
  inner.end = q->end;
  return use_operator(&inner);
}

static bool use_operator(parameter *q)
{
  evaluator *e = q->e;
  if (is_end(q)) {
    if (!q->s.is_set) want_argument(e, q->s.name, q->s.at);
    if (!q->s.is_set && e->nounset && !q->s.all)
      return add_value(q->b, text_from_outside(e, q->s.name, q->s.at), q->in_quotes);
    return q->s.unclear && find_variable(e, q->s.name) != NULL &&
                   find_variable(e, q->s.name)->kind == VARIABLE_MAP
               ? add_unknown(q)
               : add_texts(q);
  }
  bool colon = *q->p == ':' && q->p + 1 < q->end && strchr("-=?+", q->p[1]) != NULL;
  char operator_ = colon ? q->p[1] : *q->p;
  if (strchr("-=?+", operator_) != NULL) {
    q->p += colon ? 2 : 1;
    return use_default(q, operator_, colon);
  }
  if (!q->s.is_set && e->nounset && !q->s.all)
    one_text(q, text_from_outside(e, q->s.name, q->s.at), true);
  if (operator_ == ':') {
    q->p++;
    return use_slice(q);
  }
  if (strchr("%#/^,", operator_) != NULL) return use_edit(q);
  if (operator_ == '@') return add_unknown(q);
  return diag_error(e->d, q->s.at, "%.100s is no expansion that offsim reads", q->s.written);
}

bool expand_parameter(builder *b, const char *p, const char *end, bool in_quotes)
{
  evaluator *e = b->e;
  parameter q = { .b = b, .e = e, .p = p, .end = end, .in_quotes = in_quotes };
  q.s.at = shell_place(b->source, p);
  q.s.written = arena_printf(e->a, "${%s}", arena_strndup(e->a, p, (size_t)(end - p)));
  if (!take_step(e, q.s.at)) return false;
  bool length =
      p < end && *p == '#' &&
      (p + 1 < end ? shell_name_length(p + 1, end) > 0 || strchr("@*0123456789", p[1]) != NULL
                   : false);
  uint32_t ended = e->ended_count;
  bool good;
  if (length) {
    q.p++;
    good = use_length(&q);
  } else if (p < end && *p == '!' && p + 1 < end) {
    q.p++;
    good = use_indirect(&q);
  } else {
    good = read_subject(&q) && use_operator(&q);
  }
  if (good || !diag_ok(e->d) || e->ended_count > ended) return good;
  return diag_error(e->d, q.s.at, "%.100s is no expansion that offsim reads", q.s.written);
}
