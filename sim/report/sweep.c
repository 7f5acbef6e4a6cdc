#include "sim/report/sweep.h"

#include <assert.h>
#include <stdlib.h>

#include "sim/base/units.h"
#include "sim/report/sets.h"
#include "sim/report/text.h"

/* ---- the best ---- */

static bool is_better(const sweep_row *a, const sweep_row *b)
{
  if (a->step_ps != b->step_ps) return a->step_ps < b->step_ps;
  assert(a->tried.order != b->tried.order);
  return a->tried.order < b->tried.order;
}

void sweep_best_add(sweep_best *b, const sweep_row *row)
{
  b->verdicts[row->verdict]++;
  if (row->verdict != SWEEP_FITS || b->limit == 0) return;
  if (b->rows == NULL) b->rows = calloc(b->limit, sizeof *b->rows);
  if (b->rows == NULL) die_refused("no memory for %u rows of a sweep", b->limit);
  bool full = b->count == b->limit;
  if (full && !is_better(row, &b->rows[b->count - 1])) return;
  uint32_t at = full ? b->count - 1 : b->count++;
  for (; at > 0 && is_better(row, &b->rows[at - 1]); at--)
    b->rows[at] = b->rows[at - 1];
  b->rows[at] = *row;
  b->rows[at].tried = (candidate){ .order = row->tried.order };
  assert(b->count <= b->limit);
}

void sweep_best_release(sweep_best *b)
{
  free(b->rows);
  *b = (sweep_best){ 0 };
}

/* ---- the table ---- */

typedef enum best_column {
  BEST_PLACE,
  BEST_STEP,
  BEST_ALLOCATED,
  BEST_RESERVED,
  BEST_PINNED,
  BEST_COLUMNS
} best_column;

static const char *cell_of(const sweep_best *b, uint32_t row, best_column column, arena *a)
{
  const sweep_row *r = &b->rows[row];
  figure_unit bytes = unit_of_bytes(b->rows[0].reserved_peak_bytes);
  switch (column) {
  case BEST_PLACE: return arena_printf(a, "%u", row + 1);
  case BEST_STEP: return figure_in(a, r->step_ps, unit_of_time(b->rows[0].step_ps));
  case BEST_ALLOCATED: return figure_in(a, r->allocated_peak_bytes, bytes);
  case BEST_RESERVED: return figure_in(a, r->reserved_peak_bytes, bytes);
  case BEST_PINNED: return figure_in(a, r->host_pinned_total_bytes, bytes);
  case BEST_COLUMNS: break;
  }
  assert(0 && "column out of range");
  return "";
}

static void print_columns(const sweep_best *b, FILE *out, arena *a)
{
  static const char *const heads[2][BEST_COLUMNS] = {
    { "", "", "peak:", "", "pinned" }, { "", "step", "allocated", "reserved", "by a host" }
  };
  grid g = grid_new(a, BEST_COLUMNS, b->count);
  for (uint32_t c = 0; c < BEST_COLUMNS; c++) {
    g.head[0][c] = heads[0][c];
    g.head[1][c] = heads[1][c];
    for (uint32_t i = 0; i < b->count; i++)
      g.cells[i * BEST_COLUMNS + c] = cell_of(b, i, (best_column)c, a);
  }
  grid_print(&g, out);
}

void sweep_table(const sweep_best *b, const space *of, FILE *out, arena *a)
{
  uint32_t all = 0;
  for (int i = 0; i < SWEEP_VERDICTS; i++)
    all += b->verdicts[i];
  fprintf(out, "%s: %u fit, %u do not, %u refused\n", figure_count(a, all, "setting", "settings"),
          b->verdicts[SWEEP_FITS], b->verdicts[SWEEP_DOES_NOT_FIT], b->verdicts[SWEEP_REFUSED]);
  if (b->count == 0) return;
  fprintf(out, "\n%s; %s and %s\n",
          b->count == 1 ? "the fastest that fits"
                        : arena_printf(a, "the %u fastest that fit", b->count),
          unit_of_bytes(b->rows[0].reserved_peak_bytes).name,
          unit_of_time(b->rows[0].step_ps).name);
  print_columns(b, out, a);
  fputc('\n', out);
  for (uint32_t i = 0; i < b->count; i++) {
    candidate c = space_at(of, b->rows[i].tried.order);
    sets_print(i + 1, &c, out);
  }
}
