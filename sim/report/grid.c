#include "sim/report/grid.h"

#include <string.h>

grid grid_new(arena *a, uint32_t columns, uint32_t rows)
{
  grid g = { .columns = columns, .rows = rows };
  g.head[0] = ARENA_ARRAY(a, const char *, columns);
  g.head[1] = ARENA_ARRAY(a, const char *, columns);
  g.cells = ARENA_ARRAY(a, const char *, (size_t)rows * columns);
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
