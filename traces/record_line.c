#include "traces/record_line.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The longest part of the text that a message repeats, and the longest description of what it
 * expects. */
enum { SHOWN = 24, EXPECTED = 160, TEXT_BYTES = 4096, HEX_DIGITS = 16 };

static source_pos place_of(const record_line *l)
{
  return (source_pos){ l->file, l->number, (int)(l->next - l->begin) + 1 };
}

bool record_wrong(const record_line *l, const char *expected)
{
  assert(l->begin <= l->next && l->next <= l->end);
  size_t left = (size_t)(l->end - l->next);
  if (left == 0) return diag_error(l->d, place_of(l), "the line ends here; expected %s", expected);
  return diag_error(l->d, place_of(l), "found \"%.*s\"; expected %s",
                    (int)(left < SHOWN ? left : SHOWN), l->next, expected);
}

static void skip_blanks(record_line *l)
{
  while (l->next < l->end && (*l->next == ' ' || *l->next == '\t'))
    l->next++;
}

bool record_has(record_line *l, char punctuation)
{
  skip_blanks(l);
  if (l->next == l->end || *l->next != punctuation) return false;
  l->next++;
  return true;
}

bool record_expect(record_line *l, const char *punctuation)
{
  char expected[EXPECTED];
  if (record_has(l, *punctuation)) return true;
  snprintf(expected, sizeof expected, "\"%s\"", punctuation);
  return record_wrong(l, expected);
}

static bool has_word(record_line *l, const char *word)
{
  size_t length = strlen(word);
  skip_blanks(l);
  if ((size_t)(l->end - l->next) < length || memcmp(l->next, word, length) != 0) return false;
  l->next += length;
  return true;
}

bool record_key(record_line *l, const char *key)
{
  char quoted[EXPECTED], expected[2 * EXPECTED];
  bool first = l->next > l->begin && l->next[-1] == '{';
  if (!first && !record_expect(l, ",")) return false;
  snprintf(quoted, sizeof quoted, "\"%s\"", key);
  if (has_word(l, quoted)) return record_expect(l, ":");
  snprintf(expected, sizeof expected, "the key %s", quoted);
  return record_wrong(l, expected);
}

bool record_comes(record_line *l, const char *key)
{
  const char *from = l->next;
  char quoted[EXPECTED];
  snprintf(quoted, sizeof quoted, "\"%s\"", key);
  bool comes = has_word(l, quoted);
  l->next = from;
  return comes;
}

bool record_end(record_line *l)
{
  skip_blanks(l);
  return l->next == l->end || record_wrong(l, "the end of the line");
}

/* ---- numbers ---- */

static bool digits(record_line *l, int64_t *value)
{
  int64_t number = 0;
  const char *from = l->next;
  for (; l->next < l->end && *l->next >= '0' && *l->next <= '9'; l->next++) {
    int64_t digit = *l->next - '0';
    if (number > (INT64_MAX - digit) / 10) return false;
    number = 10 * number + digit;
  }
  *value = number;
  return l->next > from;
}

bool record_value(record_line *l, int64_t least, int64_t most, int64_t *value)
{
  char expected[EXPECTED];
  assert(least <= most);
  skip_blanks(l);
  const char *from = l->next;
  bool negative = record_has(l, '-');
  bool number = digits(l, value);
  if (negative) *value = -*value;
  if (number && *value >= least && *value <= most) return true;
  l->next = from;
  snprintf(expected, sizeof expected, "a whole number from %" PRId64 " to %" PRId64, least, most);
  return record_wrong(l, expected);
}

bool record_number(record_line *l, const char *key, int64_t least, int64_t most, int64_t *value)
{
  return record_key(l, key) && record_value(l, least, most, value);
}

bool record_count(record_line *l, const char *key, uint32_t most, uint32_t *value)
{
  int64_t number = 0;
  if (!record_number(l, key, 0, most, &number)) return false;
  *value = (uint32_t)number;
  return true;
}

/* ---- texts ---- */

static int hex_digit(char c)
{
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

static bool hex(record_line *l, int count, uint64_t *value)
{
  assert(count <= HEX_DIGITS);
  *value = 0;
  for (int i = 0; i < count; i++, l->next++) {
    int digit = l->next < l->end ? hex_digit(*l->next) : -1;
    if (digit < 0) return record_wrong(l, "a hexadecimal digit, 0 to 9 or a to f");
    *value = *value << 4 | (uint64_t)digit;
  }
  return true;
}

/* A character by its number, below U+10000, in UTF-8. */
static size_t encode(uint64_t c, char *to)
{
  assert(c < 0x10000);
  if (c < 0x80) {
    to[0] = (char)c;
    return 1;
  }
  size_t length = c < 0x800 ? 2 : 3;
  for (size_t i = length - 1; i > 0; i--, c >>= 6)
    to[i] = (char)(0x80 | (c & 0x3f));
  to[0] = (char)((length == 2 ? 0xc0 : 0xe0) | c);
  return length;
}

/* What follows a backslash. */
static bool escape(record_line *l, char *to, size_t *length)
{
  uint64_t code;
  if (l->next < l->end && strchr("\"\\/", *l->next) != NULL) {
    to[(*length)++] = *l->next++;
    return true;
  }
  if (!record_expect(l, "u") || !hex(l, 4, &code)) return false;
  if (code == 0 || (code >= 0xd800 && code < 0xe000))
    return record_wrong(l, "a different character before this one");
  *length += encode(code, to + *length);
  return true;
}

bool record_text(record_line *l, const char *key, const char **text)
{
  enum { LONGEST_CHARACTER = 3 };
  char read[TEXT_BYTES + LONGEST_CHARACTER];
  size_t length = 0;
  if (!record_key(l, key) || !record_expect(l, "\"")) return false;
  for (;;) {
    if (length >= TEXT_BYTES) return record_wrong(l, "an end of the text: it is too long");
    if (l->next == l->end || (unsigned char)*l->next < ' ') return record_wrong(l, "\"");
    char c = *l->next++;
    if (c == '"') break;
    if (c != '\\')
      read[length++] = c;
    else if (!escape(l, read, &length))
      return false;
  }
  uint32_t number = intern(l->texts, read, length);
  *text = l->texts->keys[number].bytes;
  return true;
}

bool record_fingerprint(record_line *l, const char *key, bool *known, uint64_t value[2])
{
  if (!record_key(l, key)) return false;
  *known = !has_word(l, "null");
  return !*known || (record_expect(l, "\"") && hex(l, HEX_DIGITS, &value[0]) &&
                     hex(l, HEX_DIGITS, &value[1]) && record_expect(l, "\""));
}
