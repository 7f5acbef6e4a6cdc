/*
 * Text for people: figures rounded half away from zero, by integers alone; columns. Long
 * lines are in sim/base/wrap.h.
 * Private to sim/report.
 */
#ifndef OFFSIM_SIM_REPORT_TEXT_H
#define OFFSIM_SIM_REPORT_TEXT_H

#include <stdint.h>
#include <stdio.h>

#include "sim/base/arena.h"
#include "sim/base/wrap.h"

/* ---- figures ---- */

/* value / unit with `decimals` (0 to 6) decimals: (1536, 1024, 2) -> "1.50". unit > 0. */
const char *figure(arena *a, int64_t value, int64_t unit, int decimals);

/* 100 part / whole; "-" of nothing. */
const char *figure_percent(arena *a, int64_t part, int64_t whole, int decimals);

/* Millionths as percent with two decimals. */
const char *figure_ppm(arena *a, int64_t ppm);

/* Of sim/predict/throughput.h, in percent; "-" where it is not known. */
const char *figure_mfu(arena *a, int64_t millionths);

/* In which unit a table shows sizes, or times, of which `largest` is the largest. */
typedef struct figure_unit {
  const char *name; /* "GiB" */
  int64_t size;
  int decimals;
} figure_unit;

figure_unit unit_of_bytes(int64_t largest); /* MiB or GiB */
figure_unit unit_of_time(int64_t largest);  /* us, ms or s, of picoseconds */

const char *figure_in(arena *a, int64_t value, figure_unit unit);
/* The same, then its unit. */
const char *figure_with_unit(arena *a, int64_t value, figure_unit unit);

/* Device or host memory as a whole: "78.3 GiB", or "without limit" from a PiB on, as machine
 * `ideal` has it. The second: " of 78.3 GiB", to follow what is taken of it, or nothing. */
const char *figure_capacity(arena *a, int64_t bytes);
const char *figure_of_capacity(arena *a, int64_t bytes);

/* (1, "GPU", "GPUs") -> "1 GPU" */
const char *figure_count(arena *a, int64_t count, const char *one, const char *many);

/* What a reader must not miss, in the colour for that where `out` has colours. */
const char *alarm_text(arena *a, const char *text, FILE *out);

/* ---- columns ---- */

/*
 * A head of one line or two, cells to the right. On a terminal that is too narrow for all columns, parts
 * come one after the other, each with the first column.
 *
 *     grid g = grid_new(a, 3, rows);
 *     g.head[0][2] = "peak"; g.head[1][2] = "allocated"; g.cells[row * g.columns + 2] = "1.5";
 *     grid_print(&g, out);
 */
typedef struct grid {
  uint32_t columns, rows;
  const char **head[2]; /* [columns] each */
  const char **cells;   /* [rows * columns] */
} grid;

/* Every text is empty; they are set by the caller and must outlive the grid. */
grid grid_new(arena *a, uint32_t columns, uint32_t rows);
void grid_print(const grid *g, FILE *out);

#endif
