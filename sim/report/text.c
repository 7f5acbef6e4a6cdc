#include "sim/report/text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "sim/base/units.h"

/* ---- figures ---- */

const char *figure(arena *a, int64_t value, int64_t unit, int decimals)
{
  int64_t power = 1;
  assert(unit > 0 && decimals >= 0 && decimals <= 6);
  for (int i = 0; i < decimals; i++)
    power *= 10;
  int64_t scaled = (muldiv_i64(value < 0 ? -value : value, 2 * power, unit) + 1) / 2;
  const char *sign = value < 0 && scaled != 0 ? "-" : "";
  if (decimals == 0) return arena_printf(a, "%s%" PRId64, sign, scaled);
  return arena_printf(a, "%s%" PRId64 ".%0*" PRId64, sign, scaled / power, decimals,
                      scaled % power);
}

const char *figure_percent(arena *a, int64_t part, int64_t whole, int decimals)
{
  if (whole <= 0) return "-";
  int64_t millionths = muldiv_i64(part < 0 ? -part : part, 100000000, whole);
  return figure(a, part < 0 ? -millionths : millionths, 1000000, decimals);
}

const char *figure_mfu(arena *a, int64_t millionths)
{
  return figure_percent(a, millionths, millionths < 0 ? 0 : 1000000, 1);
}

figure_unit unit_of_bytes(int64_t largest)
{
  if (largest < 10 * GIB) return (figure_unit){ "MiB", MIB, 1 };
  return (figure_unit){ "GiB", GIB, 3 };
}

figure_unit unit_of_time(int64_t largest)
{
  if (largest < 10 * PS_PER_MS) return (figure_unit){ "us", PS_PER_US, 1 };
  if (largest < 100 * PS_PER_S) return (figure_unit){ "ms", PS_PER_MS, 1 };
  return (figure_unit){ "s", PS_PER_S, 2 };
}

const char *figure_in(arena *a, int64_t value, figure_unit unit)
{
  return figure(a, value, unit.size, unit.decimals);
}

const char *figure_with_unit(arena *a, int64_t value, figure_unit unit)
{
  return arena_printf(a, "%s %s", figure_in(a, value, unit), unit.name);
}

static bool without_limit(int64_t bytes)
{
  return bytes >= 1024 * 1024 * GIB;
}

const char *figure_of_capacity(arena *a, int64_t bytes)
{
  return without_limit(bytes) ? "" : arena_printf(a, " of %s", figure_capacity(a, bytes));
}

const char *figure_capacity(arena *a, int64_t bytes)
{
  if (without_limit(bytes)) return "without limit";
  return figure_with_unit(a, bytes, (figure_unit){ "GiB", GIB, bytes % GIB == 0 ? 0 : 1 });
}

const char *figure_count(arena *a, int64_t count, const char *one, const char *many)
{
  return arena_printf(a, "%" PRId64 " %s", count, count == 1 ? one : many);
}

/* ---- columns ---- */

grid grid_new(arena *a, uint32_t columns, uint32_t rows)
{
  grid g = { .columns = columns, .rows = rows };
  assert(columns > 0);
  g.head[0] = ARENA_ARRAY(a, const char *, columns);
  g.head[1] = ARENA_ARRAY(a, const char *, columns);
  g.cells = ARENA_ARRAY(a, const char *, (size_t)rows *columns);
  for (uint32_t c = 0; c < columns; c++)
    g.head[0][c] = g.head[1][c] = "";
  for (uint32_t i = 0; i < rows * columns; i++)
    g.cells[i] = "";
  return g;
}

static int wider(int width, const char *text)
{
  int length = (int)strlen(text);
  return length > width ? length : width;
}

static int column_width(const grid *g, uint32_t column)
{
  assert(column < g->columns);
  int width = wider(wider(0, g->head[0][column]), g->head[1][column]);
  for (uint32_t r = 0; r < g->rows; r++)
    width = wider(width, g->cells[r * g->columns + column]);
  return width;
}

/* Blanks are kept back until something follows them: no line ends with blanks. */
static void print_line(const grid *g, const char *const *texts, FILE *out)
{
  int blanks = 0;
  for (uint32_t c = 0; c < g->columns; c++) {
    int width = column_width(g, c) + (c > 0 ? 2 : 0);
    int length = (int)strlen(texts[c]);
    if (length > 0) {
      fprintf(out, "%*s", blanks + width, texts[c]);
      blanks = 0;
    } else {
      blanks += width;
    }
  }
  fputc('\n', out);
}

void grid_print(const grid *g, FILE *out)
{
  print_line(g, g->head[0], out);
  print_line(g, g->head[1], out);
  for (uint32_t r = 0; r < g->rows; r++)
    print_line(g, &g->cells[(size_t)r * g->columns], out);
}

/* ---- long lines ---- */

enum { LINE_CHARACTERS = 118, LEAST_CHARACTERS = 50 };

/* A narrow terminal's own; what goes to a file is the same everywhere. */
static int line_characters(FILE *out)
{
  struct winsize terminal;
  bool narrow = isatty(fileno(out)) == 1 && ioctl(fileno(out), TIOCGWINSZ, &terminal) == 0 &&
                terminal.ws_col >= LEAST_CHARACTERS && terminal.ws_col < LINE_CHARACTERS;
  return narrow ? terminal.ws_col : LINE_CHARACTERS;
}

/* The next piece of a text that stays on one line: up to a blank, or to the blank after `stop`. */
static int piece_length(const char *text, const char *stop)
{
  const char *end = strstr(text, stop);
  return end == NULL ? (int)strlen(text) : (int)(end - text) + (int)strlen(stop) - 1;
}

void wrap_text(FILE *out, const char *head, int indent, const char *text, const char *stop)
{
  int column = fprintf(out, "%-*s", indent, head), width = line_characters(out);
  for (const char *piece = text; *piece != '\0';) {
    int length = piece_length(piece, stop);
    if (column > indent && column + 1 + length > width)
      column = fprintf(out, "\n%*s", indent, "") - 1;
    else if (column > indent)
      column += fprintf(out, " ");
    column += fprintf(out, "%.*s", length, piece);
    piece += length;
    piece += strspn(piece, " ");
  }
  fputc('\n', out);
}
