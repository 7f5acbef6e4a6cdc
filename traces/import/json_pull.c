#include "traces/import/json_pull.h"

#include <stdlib.h>
#include <string.h>

void json_release(json_pull *j)
{
  free(j->text);
  *j = (json_pull){ .in = j->in };
}

static bool is_blank(int c)
{
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

int json_peek(json_pull *j)
{
  int c = input_peek(j->in);
  while (is_blank(c)) {
    j->in->next++;
    c = input_peek(j->in);
  }
  return c;
}

/* ---- objects and lists ---- */

static bool expect(json_pull *j, char c, const char *expected)
{
  if (json_peek(j) != c) return input_expected(j->in, expected);
  j->in->next++;
  return true;
}

bool json_enter(json_pull *j, char open)
{
  if (!expect(j, open, open == '{' ? "an object, '{'" : "a list, '['")) return false;
  if (json_peek(j) != (open == '{' ? '}' : ']')) return true;
  j->in->next++;
  return false;
}

bool json_more(json_pull *j, char close)
{
  if (j->in->failed) return false;
  int c = json_peek(j);
  if (c != ',' && c != close)
    return input_expected(j->in, close == '}' ? "',' or '}'" : "',' or ']'");
  j->in->next++;
  return c == ',';
}

/* ---- strings ---- */

static void put(json_pull *j, int c)
{
  if (j->length + 2 > j->capacity) {
    j->capacity = j->capacity == 0 ? 256 : 2 * j->capacity;
    j->text = realloc(j->text, j->capacity);
    if (j->text == NULL)
      die_refused("memory: requested %zu bytes, the system has none left", j->capacity);
  }
  if (j->length < JSON_TEXT_BYTES) j->text[j->length++] = (char)c;
}

/* Of the basic plane; halves of a pair are three bytes each, which nothing here looks into. */
static void put_code(json_pull *j, unsigned code)
{
  if (code < 0x80) {
    put(j, (int)code);
  } else if (code < 0x800) {
    put(j, (int)(0xc0 | code >> 6));
    put(j, (int)(0x80 | (code & 0x3f)));
  } else {
    put(j, (int)(0xe0 | code >> 12));
    put(j, (int)(0x80 | (code >> 6 & 0x3f)));
    put(j, (int)(0x80 | (code & 0x3f)));
  }
}

static bool take_hexadecimal(json_pull *j)
{
  unsigned code = 0;
  for (int i = 0; i < 4; i++) {
    int c = input_peek(j->in);
    const char *digits = "0123456789abcdefABCDEF", *at = c > 0 ? strchr(digits, c) : NULL;
    if (at == NULL) return input_expected(j->in, "four hexadecimal digits after \\u");
    unsigned digit = (unsigned)(at - digits);
    code = code << 4 | (digit > 15 ? digit - 6 : digit);
    j->in->next++;
  }
  if (code == 0) code = 0xfffd; /* a text ends at its NUL */
  put_code(j, code);
  return true;
}

static bool take_escape(json_pull *j)
{
  static const char written[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
  int c = input_peek(j->in);
  const char *at = c > 0 ? strchr(written, c) : NULL;
  if (at == NULL && c != 'u') return input_expected(j->in, "an escape of JSON after the backslash");
  j->in->next++;
  if (at == NULL) return take_hexadecimal(j);
  put(j, meant[at - written]);
  return true;
}

bool json_text(json_pull *j)
{
  j->length = 0;
  if (!expect(j, '"', "a string")) return false;
  for (int c; (c = input_peek(j->in)) != '"';) {
    if (c < ' ') return input_expected(j->in, "the end of a string, '\"'");
    j->in->next++;
    if (c == '\\') {
      if (!take_escape(j)) return false;
    } else {
      put(j, c);
    }
  }
  j->in->next++;
  put(j, 0);
  j->text[--j->length] = '\0';
  return true;
}

bool json_key(json_pull *j)
{
  return json_text(j) && expect(j, ':', "':' after the key");
}

/* ---- numbers ---- */

static bool is_digit(int c)
{
  return c >= '0' && c <= '9';
}

/* Whether value = 10 value + digit still fits with its sign. */
static bool append_digit(int64_t *value, int digit)
{
  if (*value > (INT64_MAX - digit) / 10) return false;
  *value = 10 * *value + digit;
  return true;
}

/* Python's json, with which people cut traces, writes 0.00005 as 5e-05. It writes no positive
 * exponent of a time or size. */
static bool divide_by_exponent(json_pull *j, int64_t *value)
{
  int64_t exponent = 0;
  bool any = false;
  j->in->next++;
  if (input_peek(j->in) != '-')
    return input_expected(j->in, "'-': a number here has no positive exponent");
  j->in->next++;
  for (int c; is_digit(c = input_peek(j->in)); j->in->next++, any = true)
    append_digit(&exponent, c - '0'); /* beyond 64 bits it is large enough as it is */
  for (; exponent > 0 && *value > 0; exponent--)
    *value /= 10;
  return any || input_expected(j->in, "the digits of an exponent");
}

bool json_scaled(json_pull *j, int digits, int64_t *value)
{
  int c = json_peek(j);
  int64_t at = input_offset(j->in), sum = 0;
  bool negative = c == '-', any = false, fits = true;
  if (negative) j->in->next++;
  for (; is_digit(c = input_peek(j->in)); j->in->next++, any = true)
    fits &= append_digit(&sum, c - '0');
  if (!any) return input_expected(j->in, "a number");
  if (c == '.')
    for (j->in->next++; is_digit(c = input_peek(j->in)); j->in->next++)
      if (digits > 0) {
        fits &= append_digit(&sum, c - '0');
        digits--;
      }
  for (; digits > 0; digits--)
    fits &= append_digit(&sum, 0);
  if ((c == 'e' || c == 'E') && !divide_by_exponent(j, &sum)) return false;
  if (!fits) return input_wrong(j->in, at, "this number is too large");
  *value = negative ? -sum : sum;
  return true;
}

bool json_whole_or_skip(json_pull *j, int64_t *value)
{
  int c = json_peek(j);
  *value = -1;
  return c == '-' || is_digit(c) ? json_scaled(j, 0, value) : json_skip(j);
}

/* ---- anything ---- */

/* true, false, null, NaN, or a number, with its exponent: no reader looks at it. */
static bool skip_word(json_pull *j)
{
  int64_t length = 0;
  for (int c; (c = input_peek(j->in)) != INPUT_END; length++) {
    bool inside = is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '+' ||
                  c == '-' || c == '.';
    if (!inside) break;
    j->in->next++;
  }
  return length > 0 || input_expected(j->in, "a value");
}

static bool skip_string(json_pull *j)
{
  j->in->next++;
  for (int c; (c = input_next(j->in)) != '"';) {
    if (c == '\\') c = input_next(j->in);
    if (c == INPUT_END) return input_expected(j->in, "the end of a string, '\"'");
  }
  return true;
}

/* Steps over brackets, of which `open` holds those that are not closed yet. */
bool json_skip(json_pull *j)
{
  char open[JSON_DEPTH];
  int depth = 0;
  do {
    int c = json_peek(j);
    if (c == '{' || c == '[') {
      if (depth == JSON_DEPTH)
        return input_wrong(j->in, input_offset(j->in), "more than %d brackets in each other",
                           JSON_DEPTH);
      open[depth++] = c == '{' ? '}' : ']';
      if (json_enter(j, (char)c)) {
        if (c == '{' && !json_key(j)) return false;
        continue;
      }
      if (j->in->failed) return false;
      depth--;
    } else if (!(c == '"' ? skip_string(j) : skip_word(j))) {
      return false;
    }
    while (depth > 0 && !json_more(j, open[depth - 1])) {
      if (j->in->failed) return false;
      depth--;
    }
    if (depth > 0 && open[depth - 1] == '}' && !json_key(j)) return false;
  } while (depth > 0);
  return true;
}

bool json_is_at_end(json_pull *j)
{
  if (json_peek(j) != INPUT_END) return input_expected(j->in, "the end of the file");
  return !j->in->failed;
}
