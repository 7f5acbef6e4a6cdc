#include "sim/text/limits.h"

#include <string.h>

#include "sim/base/file.h"

typedef struct cursor {
  source_pos at;
  const unsigned char *next;
  size_t left;
} cursor;

/* Bytes of the UTF-8 sequence that begins here; 0 when none does (RFC 3629, section 4). */
static size_t utf8_length(const unsigned char *s, size_t left)
{
  if (s[0] < 0x80) return 1;
  size_t length = s[0] < 0xC2 ? 0 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : s[0] < 0xF5 ? 4 : 0;
  if (length == 0 || left < length) return 0;

  /* The second byte's range excludes overlong forms, surrogates and values above U+10FFFF. */
  unsigned least = s[0] == 0xE0 ? 0xA0 : s[0] == 0xF0 ? 0x90 : 0x80;
  unsigned most = s[0] == 0xED ? 0x9F : s[0] == 0xF4 ? 0x8F : 0xBF;
  if (s[1] < least || s[1] > most) return 0;
  for (size_t i = 2; i < length; i++) {
    if (s[i] < 0x80 || s[i] > 0xBF) return 0;
  }
  return length;
}

static void advance(cursor *c, size_t length)
{
  if (*c->next == '\n') {
    c->at.line++;
    c->at.column = 1;
  } else {
    c->at.column++;
  }
  c->next += length;
  c->left -= length;
}

static cursor cursor_at_start(const char *file, const char *text, size_t length)
{
  return (cursor){ { file, 1, 1 }, (const unsigned char *)text, length };
}

bool text_check_bytes(const char *file, const char *text, size_t length, diag *d)
{
  if (length > FILE_TEXT_LIMIT_BYTES) {
    return diag_error(d, (source_pos){ file, 0, 0 }, "the text has %zu bytes; at most %d are read",
                      length, FILE_TEXT_LIMIT_BYTES);
  }
  cursor c = cursor_at_start(file, text, length);
  while (c.left > 0) {
    if (*c.next == 0) {
      return diag_error(d, c.at, "a NUL byte; expected text in UTF-8");
    }
    size_t bytes = utf8_length(c.next, c.left);
    if (bytes == 0) {
      return diag_error(d, c.at, "byte 0x%02X is not UTF-8; expected text in UTF-8", *c.next);
    }
    advance(&c, bytes);
  }
  return true;
}

/* ---- depth ---- */

/* Block levels are the columns at which they begin, outermost first. Inside brackets indentation
 * means nothing, so only brackets count there. */
typedef struct nesting {
  int columns[TEXT_DEPTH_LIMIT];
  int blocks;
  int brackets;
  char quote; /* the current one, or 0 */
} nesting;

static bool is_blank(unsigned char ch)
{
  return ch == ' ' || ch == '\t';
}

static bool is_line_end(const cursor *c)
{
  return c->left == 0 || *c->next == '\n' || *c->next == '\r';
}

static void skip_blanks(cursor *c)
{
  while (c->left > 0 && is_blank(*c->next)) {
    advance(c, 1);
  }
}

static bool is_indicator(const cursor *c)
{
  return c->left >= 2 && (*c->next == '-' || *c->next == '?') &&
         (is_blank(c->next[1]) || c->next[1] == '\n' || c->next[1] == '\r');
}

static bool too_deep(const nesting *n)
{
  return n->blocks + n->brackets > TEXT_DEPTH_LIMIT;
}

static void open_block(nesting *n, int column)
{
  while (n->blocks > 0 && n->columns[n->blocks - 1] >= column) {
    n->blocks--;
  }
  if (n->blocks < TEXT_DEPTH_LIMIT) {
    n->columns[n->blocks] = column;
  }
  n->blocks++;
}

/* The beginning of a line: its indentation, then every "- " opens one more level. */
static void count_indentation(nesting *n, cursor *c)
{
  skip_blanks(c);
  if (is_line_end(c) || *c->next == '#' || *c->next == '[' || *c->next == '{') return;
  open_block(n, c->at.column);
  while (is_indicator(c) && !too_deep(n)) {
    advance(c, 1);
    skip_blanks(c);
    open_block(n, c->at.column);
  }
}

/* A quote begins a quoted text only where a value can begin: "don't" contains none. */
static bool value_can_begin_after(unsigned char previous)
{
  return previous != 0 && strchr(" \t\r\n[{,:", previous) != NULL;
}

static void skip_comment(cursor *c)
{
  while (c->left > 0 && *c->next != '\n') {
    advance(c, 1);
  }
}

/* Brackets that open count everywhere, so that quotes cannot hide them. */
static void count_character(nesting *n, const cursor *c, unsigned char previous)
{
  unsigned char ch = *c->next;
  if (ch == '[' || ch == '{') {
    n->brackets++;
  } else if (n->quote != 0) {
    bool escaped = n->quote == '"' && previous == '\\';
    if (ch == (unsigned char)n->quote && !escaped) n->quote = 0;
  } else if (ch == ']' || ch == '}') {
    n->brackets -= n->brackets > 0;
  } else if ((ch == '"' || ch == '\'') && value_can_begin_after(previous)) {
    n->quote = (char)ch;
  }
}

static bool count_line(nesting *n, cursor *c)
{
  if (n->brackets == 0 && n->quote == 0) count_indentation(n, c);
  unsigned char previous = '\n';
  while (c->left > 0 && *c->next != '\n' && !too_deep(n)) {
    if (*c->next == '#' && n->quote == 0 && value_can_begin_after(previous)) {
      skip_comment(c);
      break;
    }
    count_character(n, c, previous);
    previous = *c->next;
    advance(c, 1);
  }
  if (too_deep(n)) return false;
  if (c->left > 0) advance(c, 1);
  return true;
}

bool text_check_depth(const char *file, const char *text, size_t length, diag *d)
{
  nesting n = { .blocks = 0 };
  cursor c = cursor_at_start(file, text, length);
  while (c.left > 0) {
    if (!count_line(&n, &c)) {
      return diag_error(d, c.at, "nested more than %d levels deep; expected at most %d",
                        TEXT_DEPTH_LIMIT, TEXT_DEPTH_LIMIT);
    }
  }
  return true;
}
