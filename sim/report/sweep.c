#include "sim/report/sweep.h"

#include <assert.h>
#include <stdlib.h>

#include "sim/report/ranking.h"
#include "sim/report/text.h"

/* ---- the best ---- */

void sweep_best_add(sweep_best *b, const sweep_row *row)
{
  b->verdicts[row->verdict]++;
  if (row->verdict != SWEEP_FITS || b->limit == 0) return;
  if (b->rows == NULL) b->rows = calloc(b->limit, sizeof *b->rows);
  if (b->rows == NULL) die_refused("no memory for %u rows of a sweep", b->limit);
  bool full = b->count == b->limit;
  if (full && ranking_order(row, &b->rows[b->count - 1]) > 0) return;
  uint32_t at = full ? b->count - 1 : b->count++;
  for (; at > 0 && ranking_order(row, &b->rows[at - 1]) < 0; at--)
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

static void print_columns(const sweep_best *b, FILE *out, arena *a)
{
  static const ranking_column columns[] = { RANKING_PLACE, RANKING_STEP,      RANKING_TOKENS,
                                            RANKING_MFU,   RANKING_ALLOCATED, RANKING_RESERVED,
                                            RANKING_PINNED };
  ranked *rows = ARENA_ARRAY(a, ranked, b->count);
  for (uint32_t i = 0; i < b->count; i++)
    rows[i].row = &b->rows[i];
  ranking_print(rows, b->count, columns, sizeof columns / sizeof *columns, out, a);
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
    ranking_sets_print(i + 1, &c, out);
  }
}
