/*
 * Which layers: moe_layer_freq and its like. Megatron evaluates the text as a Python expression. A
 * layer pattern needs only a small grammar of that, which is read here by recursive descent:
 *
 *   pattern = product { "+" product }
 *   product = { number "*" } atom { "*" number }
 *   atom    = "[" [ bit { "," bit } ] "]" | "(" pattern ")"
 */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "sim/config/resolve/steps.h"
#include "sim/text/scalar.h"

typedef struct pattern_parser {
  const char *at;
  bool *bits;       /* the layers read so far */
  int64_t count;    /* of them */
  int64_t capacity; /* longer patterns cannot be right */
  int depth;
  bool wrong;
} pattern_parser;

enum { NESTING_LIMIT = 64 };

static void skip_blanks(pattern_parser *p)
{
  while (isspace((unsigned char)*p->at)) {
    p->at++;
  }
}

static bool take(pattern_parser *p, char c)
{
  skip_blanks(p);
  if (*p->at != c) {
    return false;
  }
  p->at++;
  return true;
}

static bool fail(pattern_parser *p)
{
  p->wrong = true;
  return false;
}

static bool take_number(pattern_parser *p, int64_t *number)
{
  skip_blanks(p);
  if (!isdigit((unsigned char)*p->at)) {
    return fail(p);
  }
  int64_t n = 0;
  for (; isdigit((unsigned char)*p->at); p->at++) {
    n = n * 10 + (*p->at - '0');
    if (n > p->capacity) {
      n = p->capacity + 1; /* too long, however it goes on */
    }
  }
  *number = n;
  return true;
}

static bool take_bits(pattern_parser *p)
{
  if (take(p, ']')) {
    return true;
  }
  do {
    skip_blanks(p);
    if ((*p->at != '0' && *p->at != '1') || isdigit((unsigned char)p->at[1])) {
      return fail(p);
    }
    if (p->count < p->capacity) {
      p->bits[p->count] = *p->at == '1';
    }
    p->count = p->count < p->capacity ? p->count + 1 : p->capacity + 1;
    p->at++;
  } while (take(p, ','));
  return take(p, ']') || fail(p);
}

/* Repeats everything read since `start`, so that it is there `times` times. */
static void repeat(pattern_parser *p, int64_t start, int64_t times)
{
  int64_t length = p->count - start;

  if (length == 0) {
    return;
  }
  if (p->count > p->capacity || times > (p->capacity - start) / length) {
    p->count = times == 0 ? start : p->capacity + 1;
    return;
  }
  for (int64_t i = 1; i < times; i++) {
    memcpy(p->bits + start + i * length, p->bits + start, (size_t)length * sizeof *p->bits);
  }
  p->count = start + times * length;
}

static bool take_pattern(pattern_parser *p);

static bool take_atom(pattern_parser *p)
{
  if (take(p, '[')) {
    return take_bits(p);
  }
  if (!take(p, '(') || p->depth == NESTING_LIMIT) {
    return fail(p);
  }
  p->depth++;
  bool read = take_pattern(p) && (take(p, ')') || fail(p));
  p->depth--;
  return read;
}

static bool take_product(pattern_parser *p)
{
  int64_t start = p->count, times = 1, factor;

  for (skip_blanks(p); isdigit((unsigned char)*p->at); skip_blanks(p)) {
    if (!take_number(p, &factor) || !(take(p, '*') || fail(p))) {
      return false;
    }
    times = factor == 0 || times <= p->capacity / factor ? times * factor : p->capacity + 1;
  }
  if (!take_atom(p)) {
    return false;
  }
  repeat(p, start, times);
  while (take(p, '*')) {
    if (!take_number(p, &factor)) {
      return false;
    }
    repeat(p, start, factor);
  }
  return true;
}

static bool take_pattern(pattern_parser *p)
{
  do {
    if (!take_product(p)) {
      return false;
    }
  } while (take(p, '+'));
  return true;
}

bool layer_pattern_parse(const settings *s, setting_key key, const char *text, bool *layers,
                         diag *d)
{
  const char *name = key_rows[key].name;
  int64_t count = s->model.num_layers, every;
  pattern_parser p = { .at = text, .bits = layers, .capacity = count };

  if (scalar_i64(text, &every)) {
    /* Python's `layer % every == 0` does not see the sign */
    if (!need(s, d, every != 0, key, key, "%s is 0; it must be at least 1", name)) {
      return false;
    }
    for (int64_t layer = 0; layer < count; layer++) {
      layers[layer] = layer % every == 0;
    }
    return true;
  }
  bool read = take_pattern(&p);
  skip_blanks(&p);
  if (!read || *p.at != '\0') {
    return need(s, d, false, key, key,
                "%s is \"%.200s\", wrong from character %td on; it must be a whole "
                "number, or a list such as ([0]*3+[1]*58)",
                name, text, p.at - text + 1);
  }
  return need(s, d, p.count <= count, key, key,
              "%s has more than the %" PRId64 " entries of num_layers", name, count) &&
         need(s, d, p.count == count, key, key,
              "%s has %" PRId64 " entries; it must have num_layers (%" PRId64 ")", name, p.count,
              count);
}
