/* [ ], test, and the leaves of [[ ]]: true, false, or unknown because of what they depend on. */
#include <regex.h>
#include <string.h>

#include "sim/base/text.h"
#include "sim/shell/parts.h"
#include "sim/text/scalar.h"

typedef enum truth { NO, YES, UNKNOWN, WRONG } truth;

typedef struct condition {
  evaluator *e;
  const field *words;
  uint32_t count, next;
  source_pos at;
  uint32_t origin; /* of the first unknown operand */
  int depth;
} condition;

static truth truth_of(bool value)
{
  return value ? YES : NO;
}

static truth not(truth t)
{
  return t == YES ? NO : t == NO ? YES : t;
}

static truth depends_on(condition *c, const char *text)
{
  if (c->origin == NO_ORIGIN) c->origin = first_unknown(c->e, text);
  return UNKNOWN;
}

/* ---- single conditions ---- */

static truth is_empty(condition *c, const char *text)
{
  const char *plain = plain_text(c->e, text);
  if (plain != NULL) return truth_of(*plain == '\0');
  return has_character(c->e, text) ? NO : depends_on(c, text);
}

static bool is_unary(const char *o)
{
  return o[0] == '-' && o[1] != '\0' && o[2] == '\0' &&
         strchr("abcdefghknoprstuvwxzGLNORS", o[1]) != NULL;
}

static truth unary(condition *c, const char *o, const char *text)
{
  if (o[1] == 'z') return is_empty(c, text);
  if (o[1] == 'n') return not(is_empty(c, text));
  const char *plain = plain_text(c->e, text);
  if (o[1] == 'v') {
    if (plain == NULL) return depends_on(c, text);
    uint32_t length = shell_name_length(plain, plain + strlen(plain));
    if (length == 0 || plain[length] != '\0') return UNKNOWN;
    const variable *v = find_variable(c->e, plain);
    return v != NULL && has_unknown_elements(c->e, v) ? UNKNOWN
                                                      : truth_of(is_set_variable(c->e, plain));
  }
  if (strchr("oRt", o[1]) != NULL) return UNKNOWN;
  /* a file: there is none without a name */
  return plain != NULL && *plain == '\0' ? NO : UNKNOWN;
}

static bool is_numeric(const char *o)
{
  static const char *const operators[] = { "-eq", "-ne", "-lt", "-le", "-gt", "-ge", NULL };
  return is_one_of(o, operators);
}

static truth compare(const char *o, int64_t x, int64_t y)
{
  switch (o[1] * 256 + o[2]) {
  case 'e' * 256 + 'q': return truth_of(x == y);
  case 'n' * 256 + 'e': return truth_of(x != y);
  case 'l' * 256 + 't': return truth_of(x < y);
  case 'l' * 256 + 'e': return truth_of(x <= y);
  case 'g' * 256 + 't': return truth_of(x > y);
  default: return truth_of(x >= y);
  }
}

/* A number with blanks around it. */
static bool read_number(evaluator *e, const char *text, int64_t *n)
{
  const char *start = text + strspn(text, " \t\n");
  size_t length = strlen(start);
  while (length > 0 && strchr(" \t\n", start[length - 1]) != NULL) {
    length--;
  }
  return scalar_i64(arena_strndup(e->a, start, length), n);
}

static truth numeric(condition *c, const char *o, const char *left, const char *right)
{
  const char *x = plain_text(c->e, left), *y = plain_text(c->e, right);
  int64_t m, n;
  if (x == NULL) return depends_on(c, left);
  if (y == NULL) return depends_on(c, right);
  if (!read_number(c->e, x, &m) || !read_number(c->e, y, &n)) return WRONG;
  return compare(o, m, n);
}

static bool is_binary(const char *o)
{
  static const char *const operators[] = { "=", "==", "!=", "<", ">", "-nt", "-ot", "-ef", NULL };
  return is_one_of(o, operators) || is_numeric(o);
}

static truth binary(condition *c, const char *left, const char *o, const char *right)
{
  if (is_numeric(o)) return numeric(c, o, left, right);
  if (o[0] == '-') return UNKNOWN;
  const char *x = plain_text(c->e, left), *y = plain_text(c->e, right);
  if (x == NULL) return depends_on(c, left);
  if (y == NULL) return depends_on(c, right);
  if (o[0] == '=') offer_choice(c->e, left, y);
  if (o[0] == '<') return truth_of(strcmp(x, y) < 0);
  if (o[0] == '>') return truth_of(strcmp(x, y) > 0);
  return truth_of((strcmp(x, y) == 0) == (o[0] == '='));
}

/* ---- [ ] ---- */

static const char *word_at(condition *c, uint32_t index)
{
  const char *plain = index < c->count ? plain_text(c->e, c->words[index].text) : NULL;
  return plain != NULL ? plain : "";
}

static bool word_is(condition *c, uint32_t index, const char *text)
{
  return index < c->count && strcmp(word_at(c, index), text) == 0;
}

static truth any_of(condition *c);

static truth primary(condition *c)
{
  uint32_t left = c->count - c->next;
  const field *w = c->words + c->next;
  if (left == 0) return WRONG;
  if (++c->depth > 64) return WRONG;
  truth t;
  if (left >= 3 && is_binary(word_at(c, c->next + 1))) {
    c->next += 3;
    t = binary(c, w[0].text, plain_text(c->e, w[1].text), w[2].text);
  } else if (word_is(c, c->next, "!") && left >= 2) {
    c->next++;
    t = not(primary(c));
  } else if (word_is(c, c->next, "(") && left >= 3) {
    c->next++;
    t = any_of(c);
    if (!word_is(c, c->next++, ")")) t = WRONG;
  } else if (left >= 2 && is_unary(word_at(c, c->next))) {
    c->next += 2;
    t = unary(c, plain_text(c->e, w[0].text), w[1].text);
  } else {
    c->next++;
    t = not(is_empty(c, w[0].text));
  }
  c->depth--;
  return t;
}

static truth both(truth x, truth y)
{
  if (x == WRONG || y == WRONG) return WRONG;
  if (x == NO || y == NO) return NO;
  return x == UNKNOWN || y == UNKNOWN ? UNKNOWN : YES;
}

static truth all_of(condition *c)
{
  truth t = primary(c);
  while (word_is(c, c->next, "-a")) {
    c->next++;
    t = both(t, primary(c));
  }
  return t;
}

static truth any_of(condition *c)
{
  truth t = all_of(c);
  while (word_is(c, c->next, "-o")) {
    c->next++;
    t = not(both(not(t), not(all_of(c))));
  }
  return t;
}

static void set_truth(condition *c, truth t, const char *written)
{
  evaluator *e = c->e;
  if (t != UNKNOWN) {
    set_status(e, t == YES ? 0 : t == NO ? 1 : 2);
    return;
  }
  value_origin o = { .kind = ORIGIN_UNKNOWN, .what = written, .at = c->at };
  if (c->origin != NO_ORIGIN) o.name = e->origins.items[c->origin].name;
  set_unknown_status(e, new_origin(e, o));
}

/* The unset variables beside a word, without the word. */
static const char *missing_text(evaluator *e, const char *text)
{
  text_buffer b = { 0 };
  for (const char *p = text; *p != '\0'; p += is_mark(p) ? MARK_BYTES : 1) {
    if (is_mark(p) && mark_origin(e, p)->kind == ORIGIN_MISSING) buffer_add(e, &b, p, MARK_BYTES);
  }
  return buffer_text(e, &b);
}

void test_words(evaluator *e, const field *words, uint32_t count, source_pos at,
                const char *written)
{
  condition c = { .e = e, .words = words, .count = count, .at = at, .origin = NO_ORIGIN };
  truth t = NO;
  /* an unquoted unknown may be no word, or several: how the rest is read is not known either */
  bool unclear = false;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t unknown = first_unknown(e, words[i].text);
    if (unknown != NO_ORIGIN && e->origins.items[unknown].many) {
      unclear = true;
      c.origin = unknown;
    }
  }
  if (unclear) {
    t = UNKNOWN;
  } else if (count == 1) {
    t = not(is_empty(&c, words[0].text));
  } else if (count == 2) {
    /* [ $X = 7B ]: the unset variable left no word, and a mark after the [ */
    if (word_is(&c, 0, "=") || word_is(&c, 0, "=="))
      offer_choice(e, missing_text(e, words[-1].text), word_at(&c, 1));
    t = word_is(&c, 0, "!")        ? is_empty(&c, words[1].text)
        : is_unary(word_at(&c, 0)) ? unary(&c, word_at(&c, 0), words[1].text)
                                   : WRONG;
  } else if (count > 2) {
    t = any_of(&c);
    if (c.next != count) t = WRONG;
  }
  set_truth(&c, t, written);
}

/* ---- [[ ]] ---- */

/* POSIX's extended expressions, as long as they are short: bash uses the same library. */
static truth matches(condition *c, const char *text, const char *pattern)
{
  enum { PATTERN_BYTES_MOST = 120, TEXT_MOST = 1000 };
  if (strlen(pattern) > PATTERN_BYTES_MOST || strlen(text) > TEXT_MOST ||
      strpbrk(pattern, "{}\\") != NULL)
    return UNKNOWN;
  for (const char *p = pattern; *p != '\0'; p++) {
    if ((unsigned char)*p >= 0x80) return UNKNOWN;
  }
  regex_t compiled;
  if (regcomp(&compiled, pattern, REG_EXTENDED | REG_NOSUB) != 0) return WRONG;
  int found = regexec(&compiled, text, 0, NULL, 0);
  regfree(&compiled);
  drop_variable(c->e, "BASH_REMATCH");
  return truth_of(found == 0);
}

static truth compare_arithmetic(condition *c, const char *o, const char *left, const char *right)
{
  const char *x = arithmetic(c->e, left, c->at),
             *y = x != NULL ? arithmetic(c->e, right, c->at) : NULL;
  return y == NULL ? WRONG : numeric(c, o, x, y);
}

static truth match_operator(condition *c, const raw_word *left_word, const char *o,
                            const raw_word *right_word)
{
  evaluator *e = c->e;
  bool pattern =
      strcmp(o, "=") == 0 || strcmp(o, "==") == 0 || strcmp(o, "!=") == 0 || strcmp(o, "=~") == 0;
  const char *left = expand_text(e, left_word, EXPAND_VALUE);
  const char *right =
      left != NULL ? expand_text(e, right_word, pattern ? EXPAND_PATTERN : EXPAND_VALUE) : NULL;
  if (right == NULL) return WRONG;
  if (is_numeric(o)) return compare_arithmetic(c, o, left, right);
  if (!pattern) return is_binary(o) ? binary(c, left, o, right) : WRONG;
  const char *x = plain_text(e, left), *y = plain_text(e, right);
  if (x == NULL) return depends_on(c, left);
  if (y == NULL) return depends_on(c, right);
  if (o[0] == '=' && o[1] != '~') offer_choice(e, left, y);
  if (o[1] == '~') return matches(c, x, y);
  if (has_extended_pattern(y)) return UNKNOWN;
  return truth_of(pattern_matches(y, x) == (o[0] == '='));
}

bool test_leaf(evaluator *e, shell_node *n)
{
  condition c = { .e = e, .at = node_place(n), .origin = NO_ORIGIN };
  const char *written = arena_printf(e->a, "[[ %s ]]", node_text(e, n));
  uint32_t ended = e->ended_count;
  truth t = WRONG;
  if (n->word_count == 1) {
    const char *text = expand_text(e, &n->words[0], EXPAND_VALUE);
    if (text != NULL) t = not(is_empty(&c, text));
  } else {
    const raw_word *o = &n->words[n->word_count - 2];
    const char *operator_ = raw_text(e, o);
    if (n->word_count == 3) {
      t = match_operator(&c, &n->words[0], operator_, &n->words[2]);
    } else {
      const char *text = expand_text(e, &n->words[1], EXPAND_VALUE);
      if (text != NULL && is_unary(operator_)) t = unary(&c, operator_, text);
    }
  }
  if (e->ended_count > ended || !diag_ok(e->d)) return false;
  if (t == WRONG)
    return diag_error(e->d, c.at, "%.200s is no condition that offsim reads", written);
  set_truth(&c, t, written);
  return true;
}
