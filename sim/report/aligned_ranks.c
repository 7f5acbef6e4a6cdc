/*
 * The clocks of several ranks' traces.
 */
#include <inttypes.h>

#include "sim/base/units.h"
#include "sim/report/real_run.h"
#include "sim/report/text.h"
#include "sim/text/json_text.h"

enum { NS_PER_US = 1000 };

/* ==== for people ==== */

enum { R_FILE, R_RANK, R_OFFSET, R_UNCERTAINTY, R_VIA, R_MEETINGS, R_WAIT, R_COLUMNS };

static const char *rank_text(const aligned_ranks *r, uint32_t i, arena *a)
{
  return r->runs[i]->rank < 0 ? "-" : arena_printf(a, "%" PRId64, r->runs[i]->rank);
}

static void put_row(grid *g, const aligned_ranks *r, uint32_t i, arena *a)
{
  const rank_clock *c = &r->clocks[i];
  const char **cells = &g->cells[i * R_COLUMNS];
  cells[R_FILE] = r->files[i];
  cells[R_RANK] = rank_text(r, i, a);
  for (int k = R_OFFSET; k < R_COLUMNS; k++)
    cells[k] = "-";
  if (!c->is_known) return;
  cells[R_WAIT] = figure(a, c->wait_ns, NS_PER_S / 1000, 2);
  if (i == 0) return;
  cells[R_OFFSET] = figure(a, c->offset_ns, NS_PER_US, 1);
  cells[R_UNCERTAINTY] = figure(a, c->uncertainty_ns, NS_PER_US, 1);
  cells[R_VIA] = rank_text(r, c->via, a);
  cells[R_MEETINGS] = arena_printf(a, "%" PRIu32, c->meetings);
}

static void print_remarks(const aligned_ranks *r, FILE *out)
{
  for (uint32_t i = 1; i < r->count; i++) {
    const rank_clock *c = &r->clocks[i];
    if (!c->is_known)
      fprintf(out, "%s: has no collective or messages in both directions with another rank here\n",
              r->files[i]);
    if (c->drifts)
      fprintf(out, "%s: no one offset fits all of them: the clocks drift within the trace\n",
              r->files[i]);
    if (c->unmatched > 0)
      fprintf(out, "%s: %" PRIu32 " are in one of the two traces only; their kinds are left out\n",
              r->files[i], c->unmatched);
  }
}

void aligned_ranks_table(const aligned_ranks *r, FILE *out, arena *a)
{
  grid g = grid_new(a, R_COLUMNS, r->count);
  static const char *const heads[2][R_COLUMNS] = {
    { "", "", "clock", "+-,", "compared", "", "waits for" },
    { "file", "rank", "+, us", "us", "with", "meetings", "others, ms" },
  };
  for (int line = 0; line < 2; line++)
    for (int k = 0; k < R_COLUMNS; k++)
      g.head[line][k] = heads[line][k];
  for (uint32_t i = 0; i < r->count; i++)
    put_row(&g, r, i, a);
  grid_print(&g, out);
  print_remarks(r, out);
}

/* ==== for programs ==== */

static void put_time(FILE *out, const char *key, bool known, int64_t ns)
{
  fprintf(out, ", \"%s\": ", key);
  if (known)
    json_decimal(out, ns, 9);
  else
    fputs("null", out);
}

static void json_rank(const aligned_ranks *r, uint32_t i, FILE *out)
{
  const rank_clock *c = &r->clocks[i];
  fputs("{\"file\": ", out);
  json_string(out, r->files[i]);
  fprintf(out, ", \"rank\": %" PRId64, r->runs[i]->rank);
  put_time(out, "offset_s", c->is_known, c->offset_ns);
  put_time(out, "uncertainty_s", c->is_known, c->uncertainty_ns);
  put_time(out, "wait_s", c->is_known, c->wait_ns);
  fprintf(out,
          ", \"drifts\": %s, \"compared_with\": %" PRIu32 ", \"meetings\": %" PRIu32
          ", \"unmatched\": %" PRIu32 "}",
          c->drifts ? "true" : "false", c->via, c->meetings, c->unmatched);
}

void aligned_ranks_json(const aligned_ranks *r, FILE *out)
{
  fputs("{\n  \"format_version\": 1,\n  \"ranks\": [", out);
  for (uint32_t i = 0; i < r->count; i++) {
    fputs(i > 0 ? ",\n    " : "\n    ", out);
    json_rank(r, i, out);
  }
  fputs("]\n}\n", out);
}
