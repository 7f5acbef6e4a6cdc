#include "sim/report/wrap.h"

#include <string.h>

enum { LINE_CHARACTERS = 118 };

/* The next piece of a text that stays on one line: up to a blank, or to the blank behind `stop`. */
static int piece_length(const char *text, const char *stop)
{
  const char *end = strstr(text, stop);
  return end == NULL ? (int)strlen(text) : (int)(end - text) + (int)strlen(stop) - 1;
}

void wrap_text(FILE *out, const char *head, int indent, const char *text, const char *stop)
{
  int column = fprintf(out, "%-*s", indent, head);
  for (const char *piece = text; *piece != '\0';) {
    int length = piece_length(piece, stop);
    if (column > indent && column + 1 + length > LINE_CHARACTERS)
      column = fprintf(out, "\n%*s", indent, "") - 1;
    else if (column > indent)
      column += fprintf(out, " ");
    column += fprintf(out, "%.*s", length, piece);
    piece += length;
    piece += strspn(piece, " ");
  }
  fputc('\n', out);
}
