/*
 * Text in columns: a head of two lines, cells to the right.
 *
 *     grid g = grid_new(a, 3, rows);
 *     g.head[0][2] = "peak"; g.head[1][2] = "allocated"; g.cells[row * g.columns + 2] = "1.5";
 *     grid_print(&g, out);
 */
#ifndef OFFSIM_SIM_REPORT_GRID_H
#define OFFSIM_SIM_REPORT_GRID_H

#include <stdint.h>
#include <stdio.h>

#include "sim/base/arena.h"

typedef struct grid {
  uint32_t columns, rows;
  const char **head[2]; /* [columns] each */
  const char **cells;   /* [rows * columns] */
} grid;

/* Every text is empty; they are set by the caller and must outlive the grid. */
grid grid_new(arena *a, uint32_t columns, uint32_t rows);
void grid_print(const grid *g, FILE *out);

#endif
