#include "sim/base/wrap.h"

#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/diag.h"
#include "sim/base/terminal.h"

/* Other control characters, of a name that was read, are what they are. */
static const char *past_styles(const char *c)
{
  while (c[0] == '\033' && c[1] == '[') {
    size_t digits = strspn(c + 2, "0123456789;");
    if (c[2 + digits] != 'm') break;
    c += 2 + digits + 1;
  }
  return c;
}

/* Of the first `bytes` of the text; sequences of a style take no room. */
static int shown_part(const char *text, int bytes)
{
  int length = 0;
  for (const char *c = text; c < text + bytes; length++) {
    c = past_styles(c);
    if (c >= text + bytes) break;
    c++;
  }
  return length;
}

int terminal_length(const char *text)
{
  return shown_part(text, (int)strlen(text));
}

enum { LINE_CHARACTERS = 118 };

static int line_characters(FILE *out)
{
  int columns = terminal_columns(out);
  return columns > 0 && columns < LINE_CHARACTERS ? columns : LINE_CHARACTERS;
}

/* The next piece of a text that stays on one line: up to a blank, or to the blank after `stop`. */
static int piece_length(const char *text, const char *stop)
{
  const char *end = strstr(text, stop);
  return end == NULL ? (int)strlen(text) : (int)(end - text) + (int)strlen(stop) - 1;
}

/* After a head that fills `indent` columns. */
static void wrap_rest(FILE *out, int indent, const char *text, const char *stop, int width)
{
  int column = indent;
  for (const char *piece = text; *piece != '\0';) {
    int length = piece_length(piece, stop), shown = shown_part(piece, length);
    if (column > indent && width > 0 && column + 1 + shown > width)
      column = fprintf(out, "\n%*s", indent, "") - 1;
    else if (column > indent)
      column += fprintf(out, " ");
    fprintf(out, "%.*s", length, piece);
    column += shown;
    piece += length;
    piece += strspn(piece, " ");
  }
  fputc('\n', out);
}

void wrap_text(FILE *out, const char *head, int indent, const char *text, const char *stop)
{
  fprintf(out, "%-*s", indent, head);
  wrap_rest(out, indent, text, stop, line_characters(out));
}

void wrap_line(FILE *out, int indent, const char *format, ...)
{
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int length = vsnprintf(NULL, 0, format, args);
  va_end(args);
  assert(length >= indent);
  char *line = malloc((size_t)length + 1), *text = line + indent;
  if (line == NULL) die_refused("no memory for a line of %d characters", length);
  vsnprintf(line, (size_t)length + 1, format, again);
  va_end(again);
  char first = *text;
  *text = '\0';
  fputs(line, out);
  *text = first;
  wrap_rest(out, indent, text, " ", terminal_columns(out));
  free(line);
}
