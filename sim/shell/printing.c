/* echo and printf: what they print, where it is known. */
#include <inttypes.h>
#include <string.h>

#include "sim/shell/parts.h"
#include "sim/text/scalar.h"

/* The word is -n, -e, -E or several of these. */
static bool is_echo_option(evaluator *e, const char *text, bool *newline, bool *escapes)
{
  const char *plain = plain_text(e, text);
  if (plain == NULL || plain[0] != '-' || plain[1] == '\0' ||
      plain[1 + strspn(plain + 1, "neE")] != '\0')
    return false;
  for (const char *p = plain + 1; *p != '\0'; p++) {
    if (*p == 'n') *newline = false;
    if (*p == 'e') *escapes = true;
    if (*p == 'E') *escapes = false;
  }
  return true;
}

/* False: an escape that is not read. */
static bool add_escapes(evaluator *e, text_buffer *out, const char *text)
{
  static const char names[] = "abefnrtv\\", values[] = "\a\b\033\f\n\r\t\v\\";
  for (const char *p = text; *p != '\0';) {
    if (is_mark(p)) {
      if (!buffer_add(e, out, p, MARK_BYTES)) return false;
      p += MARK_BYTES;
    } else if (*p != '\\') {
      if (!buffer_add(e, out, p++, 1)) return false;
    } else {
      const char *found = p[1] != '\0' ? strchr(names, p[1]) : NULL;
      if (found == NULL || !buffer_add(e, out, &values[found - names], 1)) return false;
      p += 2;
    }
  }
  return true;
}

bool print_echo(evaluator *e, const field *words, uint32_t count, text_buffer *out)
{
  bool newline = true, escapes = false;
  uint32_t first = 0;
  while (first < count && is_echo_option(e, words[first].text, &newline, &escapes)) {
    first++;
  }
  for (uint32_t i = first; i < count; i++) {
    if (i > first && !buffer_add(e, out, " ", 1)) return false;
    if (!(escapes ? add_escapes(e, out, words[i].text) : buffer_add_text(e, out, words[i].text)))
      return false;
  }
  return !newline || buffer_add(e, out, "\n", 1);
}

/* %s, %d and %%, with a width and zeros; false: a conversion that is not read. */
static bool add_conversion(evaluator *e, text_buffer *out, const char **p, const field *words,
                           uint32_t count, uint32_t *next)
{
  const char *start = ++*p;
  bool zeros = *start == '0';
  int width = 0;
  while (**p >= '0' && **p <= '9' && width < 1000) {
    width = width * 10 + *(*p)++ - '0';
  }
  char kind = **p;
  if (kind == '\0') return false;
  ++*p;
  if (kind == '%') return buffer_add(e, out, "%", 1);
  const char *text = *next < count ? words[(*next)++].text : "";
  if (kind == 's' && !zeros && width == 0) return buffer_add_text(e, out, text);
  const char *plain = plain_text(e, text);
  int64_t n = 0;
  if (plain == NULL) return false;
  if (kind == 's' && !zeros)
    return buffer_add_text(e, out, arena_printf(e->a, "%*s", width, plain));
  if ((kind != 'd' && kind != 'i') ||
      (*plain != '\0' && (!scalar_i64(plain, &n) || (plain[0] == '0' && plain[1] != '\0'))))
    return false;
  return buffer_add_text(e, out,
                         zeros ? arena_printf(e->a, "%0*" PRId64, width, n)
                               : arena_printf(e->a, "%*" PRId64, width, n));
}

bool print_formatted(evaluator *e, const field *words, uint32_t count, text_buffer *out)
{
  uint32_t next = 1;
  if (count > 0 && strcmp(words[0].text, "--") == 0) {
    words++;
    count--;
  }
  const char *raw = count > 0 ? plain_text(e, words[0].text) : NULL;
  if (raw == NULL || raw[0] == '-') return false;
  /* escapes first: a backslash never begins a conversion */
  text_buffer expanded = { 0 };
  if (!add_escapes(e, &expanded, raw)) return false;
  const char *format = buffer_text(e, &expanded);
  do {
    uint32_t before = next;
    for (const char *p = format; *p != '\0';) {
      if (*p == '%') {
        if (!add_conversion(e, out, &p, words, count, &next)) return false;
      } else if (!buffer_add(e, out, p++, 1)) {
        return false;
      }
    }
    if (next == before) break;
  } while (next < count && take_step(e, words[0].at));
  return diag_ok(e->d);
}
