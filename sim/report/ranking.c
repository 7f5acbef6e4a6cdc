#include "sim/report/ranking.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "sim/report/text.h"

static const char *cell_of(const ranked *rows, uint32_t place, ranking_column column, FILE *out,
                           arena *a)
{
  const sweep_row *best = rows[0].row, *r = rows[place].row;
  figure_unit bytes = unit_of_bytes(best->reserved_peak_bytes);
  switch (column) {
  case RANKING_PLACE: return arena_printf(a, "%u", place + 1);
  case RANKING_STEP: return figure_in(a, r->step_ps, unit_of_time(best->step_ps));
  case RANKING_SLOWER: return figure_percent(a, r->step_ps - best->step_ps, best->step_ps, 2);
  case RANKING_TOKENS: return arena_printf(a, "%" PRId64, r->speed.tokens_per_s);
  case RANKING_MFU: return figure_mfu(a, r->speed.mfu_millionths);
  case RANKING_ALLOCATED: return figure_in(a, r->allocated_peak_bytes, bytes);
  case RANKING_RESERVED: return figure_in(a, r->reserved_peak_bytes, bytes);
  case RANKING_PINNED: return figure_in(a, r->host_pinned_total_bytes, bytes);
  case RANKING_SAFE: return rows[place].unsafe ? alarm_text(a, "NO", out) : "yes";
  case RANKING_COLUMNS: break;
  }
  assert(0 && "column out of range");
  return "";
}

void ranking_print(const ranked *rows, uint32_t count, const ranking_column *columns,
                   uint32_t column_count, FILE *out, arena *a)
{
  static const char *const heads[RANKING_COLUMNS][2] = {
    [RANKING_PLACE] = { "", "" },
    [RANKING_STEP] = { "", "step" },
    [RANKING_SLOWER] = { "slower", "%" },
    [RANKING_TOKENS] = { "tokens/s", "per GPU" },
    [RANKING_MFU] = { "MFU", "%" },
    [RANKING_ALLOCATED] = { "peak:", "allocated" },
    [RANKING_RESERVED] = { "", "reserved" },
    [RANKING_PINNED] = { "pinned", "by a host" },
    [RANKING_SAFE] = { "", "safe" },
  };
  assert(count > 0);
  grid g = grid_new(a, column_count, count);
  for (uint32_t c = 0; c < column_count; c++) {
    g.head[0][c] = heads[columns[c]][0];
    g.head[1][c] = heads[columns[c]][1];
    for (uint32_t i = 0; i < count; i++) {
      assert(i == 0 || rows[i - 1].row->step_ps <= rows[i].row->step_ps);
      g.cells[i * column_count + c] = cell_of(rows, i, columns[c], out, a);
    }
  }
  grid_print(&g, out);
}

int ranking_order(const sweep_row *a, const sweep_row *b)
{
  if (a->step_ps != b->step_ps) return a->step_ps < b->step_ps ? -1 : 1;
  if (a->reserved_peak_bytes != b->reserved_peak_bytes)
    return a->reserved_peak_bytes < b->reserved_peak_bytes ? -1 : 1;
  return a->tried.order < b->tried.order ? -1 : a->tried.order > b->tried.order;
}

void candidate_sets_print(const candidate *c, FILE *out)
{
  if (c->set_count == 0) fputs(" as given", out);
  for (uint32_t i = 0; i < c->set_count; i++)
    fprintf(out,
            strpbrk(c->sets[i], " \t'\"$&|;<>()*?[]#~\\") == NULL ? " --set %s" : " --set '%s'",
            c->sets[i]);
  fputc('\n', out);
}

void ranking_sets_print(uint32_t place, const candidate *c, FILE *out)
{
  fprintf(out, "%5u ", place);
  candidate_sets_print(c, out);
}
