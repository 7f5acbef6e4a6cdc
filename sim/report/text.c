#include "sim/report/text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "sim/base/terminal.h"
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

const char *figure_ppm(arena *a, int64_t ppm)
{
  return figure(a, ppm, 10000, 2);
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
  if (largest < 10 * PS_PER_S) return (figure_unit){ "ms", PS_PER_MS, 1 };
  return (figure_unit){ "s", PS_PER_S, 3 };
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

const char *alarm_text(arena *a, const char *text, FILE *out)
{
  const char *begin = terminal_style(out, STYLE_ALARM), *end = terminal_style(out, STYLE_PLAIN);
  return *begin == '\0' ? text : arena_printf(a, "%s%s%s", begin, text, end);
}

static int wider(int width, const char *text)
{
  int length = terminal_length(text);
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

/* Columns that are printed side by side: the first of the grid, and those from `from` to before
 * `to`. */
typedef struct grid_part {
  const grid *grid;
  uint32_t from, to;
  FILE *out;
} grid_part;

/* Blanks are kept back until something follows them: no line ends with blanks. */
static void print_line(const grid_part *p, const char *const *texts)
{
  int blanks = 0;
  for (uint32_t c = 0; c < p->to; c = c == 0 ? p->from : c + 1) {
    int width = column_width(p->grid, c) + (c > 0 ? 2 : 0), length = terminal_length(texts[c]);
    blanks += width;
    if (length == 0) continue;
    fprintf(p->out, "%*s%s", blanks - length, "", texts[c]);
    blanks = 0;
  }
  fputc('\n', p->out);
}

/* "peak:" is over all columns up to the next head; a part may begin within them. */
static const char *group_of(const grid *g, uint32_t column)
{
  const char *head = "";
  for (uint32_t c = 0; c <= column; c++)
    if (*g->head[0][c] != '\0') head = g->head[0][c];
  size_t length = strlen(head);
  return length > 0 && head[length - 1] == ':' ? head : g->head[0][column];
}

static bool has_upper_head(const grid_part *p)
{
  bool has = *p->grid->head[0][0] != '\0';
  for (uint32_t c = p->from; c < p->to; c++)
    has = has || *p->grid->head[0][c] != '\0';
  return has;
}

static void print_part(const grid_part *p)
{
  const grid *g = p->grid;
  const char *begun = g->head[0][p->from];
  g->head[0][p->from] = group_of(g, p->from);
  if (has_upper_head(p)) print_line(p, g->head[0]);
  g->head[0][p->from] = begun;
  print_line(p, g->head[1]);
  for (uint32_t r = 0; r < g->rows; r++)
    print_line(p, &g->cells[(size_t)r * g->columns]);
}

/* Where the part that begins at `from` ends: at least one column beside the first. An empty column
 * takes no room. */
static uint32_t end_of_part(const grid *g, uint32_t from, int most)
{
  int width = column_width(g, 0);
  for (uint32_t c = from; c < g->columns; c++) {
    if (column_width(g, c) == 0) continue;
    width += 2 + column_width(g, c);
    if (most > 0 && width > most && c > from) return c;
  }
  return g->columns;
}

void grid_print(const grid *g, FILE *out)
{
  int most = terminal_columns(out);
  assert(g->columns > 1);
  for (uint32_t from = 1, to; from < g->columns; from = to) {
    to = end_of_part(g, from, most);
    if (from > 1) fputc('\n', out);
    print_part(&(grid_part){ g, from, to, out });
  }
}
