/* $(( )): 64-bit integers as in bash, by precedence climbing. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "sim/base/text.h"
#include "sim/shell/parts.h"

enum { RECURSION_MOST = 32 };

typedef struct calculator {
  evaluator *e;
  const char *p;
  source_pos at;
  const char *unknown; /* the first unknown part, or NULL */
  const char *unset;   /* a variable that is not set and counts as nothing, or NULL */
  bool skipping;       /* the branch of ?:, && or || that is not taken */
  int depth;
  bool wrong;
  bool lenient; /* unknown parts may be any text: what does not parse is unknown */
} calculator;

static int64_t comma(calculator *c);
static int64_t assignment(calculator *c);
static int64_t value_of(calculator *c, const char *text);

static int64_t fail(calculator *c, const char *message)
{
  if (!c->wrong && !c->lenient && c->unset == NULL)
    diag_error(c->e->d, c->at, "arithmetic: %s at \"%.60s\"", message, c->p);
  c->wrong = true;
  return 0;
}

static void blanks(calculator *c)
{
  while (*c->p != '\0' && strchr(" \t\n", *c->p) != NULL) {
    c->p++;
  }
}

static bool take(calculator *c, const char *operator_)
{
  blanks(c);
  size_t length = strlen(operator_);
  if (strncmp(c->p, operator_, length) != 0) return false;
  c->p += length;
  return true;
}

/* ---- numbers and variables ---- */

static int digit_value(char ch, int base)
{
  if (ch >= '0' && ch <= '9') return ch - '0';
  if (ch >= 'a' && ch <= 'z') return ch - 'a' + 10;
  if (ch >= 'A' && ch <= 'Z') return base <= 36 ? ch - 'A' + 10 : ch - 'A' + 36;
  return 64;
}

static int64_t number(calculator *c)
{
  int base = 10;
  if (c->p[0] == '0' && (c->p[1] == 'x' || c->p[1] == 'X')) {
    base = 16;
    c->p += 2;
  } else if (c->p[0] == '0') {
    base = 8;
  }
  uint64_t n = 0;
  const char *start = c->p;
  while (digit_value(*c->p, base) < base) {
    n = n * (uint64_t)base + (uint64_t)digit_value(*c->p++, base);
  }
  if (*c->p == '#' && base == 10 && n >= 2 && n <= 64) {
    base = (int)n;
    n = 0;
    start = ++c->p;
    while (digit_value(*c->p, base) < base) {
      n = n * (uint64_t)base + (uint64_t)digit_value(*c->p++, base);
    }
  }
  if (c->p == start || digit_value(*c->p, 62) < 62 || *c->p == '_' || *c->p == '.')
    return fail(c, "this is no whole number");
  return (int64_t)n;
}

static int64_t value_of(calculator *c, const char *text)
{
  const char *plain = plain_text(c->e, text);
  if (plain == NULL) {
    if (c->unknown == NULL && !c->skipping) c->unknown = only_unknown(c->e, text);
    return 0;
  }
  if (c->depth == RECURSION_MOST) return fail(c, "variables refer to each other without end");
  calculator inner = {
    .e = c->e, .p = plain, .at = c->at, .skipping = c->skipping, .depth = c->depth + 1
  };
  blanks(&inner);
  if (*inner.p == '\0') {
    if (c->unset == NULL) c->unset = first_unset(c->e, text);
    return 0;
  }
  int64_t n = comma(&inner);
  if (!inner.wrong && *inner.p != '\0') fail(&inner, "unexpected text");
  c->wrong = c->wrong || inner.wrong;
  if (c->unknown == NULL) c->unknown = inner.unknown;
  return n;
}

typedef struct place {
  const char *name;
  int64_t index;
  bool has_index;
} place;

static const char *read_place(calculator *c, const place *x)
{
  const variable *v = find_variable(c->e, x->name);
  if (!x->has_index || v == NULL || v->kind == VARIABLE_SCALAR) {
    if (x->has_index && x->index != 0) return "";
    if (c->e->nounset && !is_set_variable(c->e, x->name))
      return unknown_text(c->e, x->name, arena_printf(c->e->a, "$%s", x->name), c->at);
    return scalar_text(c->e, x->name, c->at);
  }
  if (v->kind == VARIABLE_MAP || has_unknown_elements(c->e, v))
    return unknown_text(c->e, x->name, x->name, c->at);
  for (uint32_t i = 0; i < v->element_count; i++) {
    if (v->elements[i].index == x->index) return v->elements[i].text;
  }
  return "";
}

static void write_place(calculator *c, const place *x, int64_t n)
{
  if (c->skipping || c->wrong) return;
  const char *text = c->unknown != NULL ? c->unknown : arena_printf(c->e->a, "%" PRId64, n);
  if (x->has_index) {
    fail(c, "assignments to elements are not read");
    return;
  }
  c->wrong = !set_scalar(c->e, x->name, text, c->at) || c->wrong;
}

static bool take_place(calculator *c, place *x)
{
  blanks(c);
  uint32_t length = shell_name_length(c->p, c->p + strlen(c->p));
  if (length == 0) return false;
  *x = (place){ .name = arena_strndup(c->e->a, c->p, length) };
  c->p += length;
  if (*c->p == '[') {
    c->p++;
    x->has_index = true;
    x->index = comma(c);
    if (!take(c, "]")) fail(c, "expected ]");
  }
  return true;
}

static int64_t primary(calculator *c)
{
  blanks(c);
  if (c->depth > RECURSION_MOST) return fail(c, "nested too deep");
  if (take(c, "(")) {
    c->depth++;
    int64_t n = comma(c);
    c->depth--;
    if (!take(c, ")")) return fail(c, "expected )");
    return n;
  }
  if (*c->p >= '0' && *c->p <= '9') return number(c);
  if (is_mark(c->p)) {
    if (c->unknown == NULL && !c->skipping) c->unknown = arena_strndup(c->e->a, c->p, MARK_BYTES);
    c->p += MARK_BYTES;
    return 0;
  }
  place x;
  if (!take_place(c, &x)) return fail(c, "expected a number");
  int64_t n = value_of(c, read_place(c, &x));
  blanks(c);
  bool up = begins_with(c->p, "++"), down = begins_with(c->p, "--");
  if (up || down) {
    c->p += 2;
    write_place(c, &x, (int64_t)((uint64_t)n + (up ? 1u : UINT64_MAX)));
  }
  return n;
}

static int64_t unary(calculator *c)
{
  blanks(c);
  if (c->depth > RECURSION_MOST) return fail(c, "nested too deep");
  char ch = *c->p;
  if ((ch == '+' || ch == '-') && c->p[1] == ch) {
    const char *before = c->p;
    c->p += 2;
    place x;
    if (take_place(c, &x)) {
      int64_t n =
          (int64_t)((uint64_t)value_of(c, read_place(c, &x)) + (ch == '+' ? 1u : UINT64_MAX));
      write_place(c, &x, n);
      return n;
    }
    c->p = before;
  }
  if (ch == '\0' || strchr("+-!~", ch) == NULL) return primary(c);
  c->p++;
  c->depth++;
  uint64_t n = (uint64_t)unary(c);
  c->depth--;
  return ch == '-' ? (int64_t)(0 - n) : ch == '!' ? n == 0 : ch == '~' ? (int64_t)~n : (int64_t)n;
}

static int64_t power(calculator *c)
{
  int64_t base = unary(c);
  if (!take(c, "**")) return base;
  if (c->depth > RECURSION_MOST) return fail(c, "nested too deep");
  c->depth++;
  int64_t exponent = power(c);
  c->depth--;
  if (exponent < 0) return c->unknown != NULL || c->skipping ? 0 : fail(c, "negative exponent");
  uint64_t result = 1, factor = (uint64_t)base;
  for (uint64_t n = (uint64_t)exponent; n > 0; n >>= 1) {
    if (n & 1) result *= factor;
    factor *= factor;
  }
  return (int64_t)result;
}

/* ---- operators of two operands ---- */

typedef struct binary {
  const char *text;
  int level; /* higher binds closer */
} binary;

/* Longer texts before those that begin them. */
static const binary binaries[] = {
  { "<<", 8 }, { ">>", 8 }, { "<=", 7 }, { ">=", 7 }, { "==", 6 }, { "!=", 6 },
  { "&&", 2 }, { "||", 1 }, { "*", 10 }, { "/", 10 }, { "%", 10 }, { "+", 9 },
  { "-", 9 },  { "<", 7 },  { ">", 7 },  { "&", 5 },  { "^", 4 },  { "|", 3 },
};

static const binary *next_binary(calculator *c)
{
  blanks(c);
  for (size_t i = 0; i < sizeof binaries / sizeof *binaries; i++) {
    size_t length = strlen(binaries[i].text);
    if (strncmp(c->p, binaries[i].text, length) != 0) continue;
    bool assigns =
        c->p[length] == '=' && (length == 2 ? binaries[i].level == 8 : c->p[length + 1] != '=');
    return assigns && binaries[i].level > 2 && binaries[i].level != 7 && binaries[i].level != 6
               ? NULL
               : &binaries[i];
  }
  return NULL;
}

static int64_t combine(calculator *c, const char *o, int64_t left, int64_t right)
{
  uint64_t x = (uint64_t)left, y = (uint64_t)right;
  switch (o[0]) {
  case '*': return (int64_t)(x * y);
  case '+': return (int64_t)(x + y);
  case '-': return (int64_t)(x - y);
  case '^': return (int64_t)(x ^ y);
  case '=': return left == right;
  case '!': return left != right;
  case '&': return (int64_t)(x & y);
  case '|': return (int64_t)(x | y);
  case '<':
    return o[1] == '<' ? (int64_t)(x << (y & 63)) : o[1] == '=' ? left <= right : left < right;
  case '>': return o[1] == '>' ? left >> (y & 63) : o[1] == '=' ? left >= right : left > right;
  default: break;
  }
  assert(o[0] == '/' || o[0] == '%');
  if (right == 0) return c->unknown != NULL || c->skipping ? 0 : fail(c, "division by 0");
  if (right == -1) return o[0] == '/' ? (int64_t)(0 - x) : 0;
  return o[0] == '/' ? left / right : left % right;
}

static int64_t binary_level(calculator *c, int least)
{
  int64_t left = power(c);
  for (const binary *o = next_binary(c); o != NULL && o->level >= least && !c->wrong;
       o = next_binary(c)) {
    c->p += strlen(o->text);
    bool logical = o->level <= 2, skips = logical && (left != 0) == (o->level == 1),
         before = c->skipping;
    c->skipping = before || (skips && c->unknown == NULL);
    c->depth++;
    int64_t right =
        c->depth > RECURSION_MOST ? fail(c, "nested too deep") : binary_level(c, o->level + 1);
    c->depth--;
    c->skipping = before;
    if (o->level == 2)
      left = left != 0 && right != 0;
    else if (o->level == 1)
      left = left != 0 || right != 0;
    else
      left = combine(c, o->text, left, right);
  }
  return left;
}

static int64_t conditional(calculator *c)
{
  int64_t condition = binary_level(c, 1);
  if (!take(c, "?")) return condition;
  if (c->depth > RECURSION_MOST) return fail(c, "nested too deep");
  c->depth++;
  bool before = c->skipping;
  c->skipping = before || condition == 0;
  int64_t yes = comma(c);
  c->skipping = before;
  int64_t no = 0;
  if (take(c, ":")) {
    c->skipping = before || condition != 0;
    no = conditional(c);
    c->skipping = before;
  } else {
    fail(c, "expected :");
  }
  c->depth--;
  return condition != 0 ? yes : no;
}

static int64_t assignment(calculator *c)
{
  static const char *const operators[] = { "<<=", ">>=", "+=", "-=", "*=", "/=",
                                           "%=",  "&=",  "^=", "|=", "=" };
  const char *before = c->p;
  place x;
  if (take_place(c, &x)) {
    blanks(c);
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
      const char *o = operators[i];
      if (!begins_with(c->p, o) || (o[0] == '=' && c->p[1] == '=')) continue;
      c->p += strlen(o);
      if (c->depth > RECURSION_MOST) return fail(c, "nested too deep");
      c->depth++;
      int64_t right = assignment(c);
      c->depth--;
      int64_t n = o[0] == '=' ? right : combine(c, o, value_of(c, read_place(c, &x)), right);
      write_place(c, &x, n);
      return n;
    }
  }
  if (c->wrong) return 0;
  c->p = before;
  return conditional(c);
}

static int64_t comma(calculator *c)
{
  int64_t n = assignment(c);
  while (!c->wrong && take(c, ",")) {
    n = assignment(c);
  }
  return n;
}

/* Where an unset variable makes it no expression, its value is unknown until the variable
 * is set. */
const char *arithmetic(evaluator *e, const char *text, source_pos at)
{
  const char *known = plain_text(e, text);
  const char *source = known != NULL ? known : with_unknown_marks(e, text);
  calculator c = {
    .e = e, .p = source, .at = at, .unset = first_unset(e, text), .lenient = known == NULL
  };
  blanks(&c);
  if (*c.p == '\0') return "0";
  int64_t n = comma(&c);
  if (!c.wrong && *c.p != '\0') fail(&c, "unexpected text");
  if (c.wrong && !diag_ok(e->d)) return NULL;
  if (c.wrong && c.lenient) return only_unknown(e, text);
  if (c.wrong) return unknown_text(e, c.unset, arena_printf(e->a, "$%s", c.unset), at);
  return c.unknown != NULL ? c.unknown : arena_printf(e->a, "%" PRId64, n);
}
