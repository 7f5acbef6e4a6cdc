#include <inttypes.h>

#include "sim/report/json.h"
#include "sim/report/prediction.h"
#include "sim/report/text.h"

typedef enum figure_kind { BYTES, TIME } figure_kind;

static const struct {
  const char *head, *below, *key;
  figure_kind kind;
} columns[] = {
  { "peak:", "requested", "requested_peak_bytes", BYTES },
  { "", "allocated", "allocated_peak_bytes", BYTES },
  { "", "live", "live_peak_bytes", BYTES },
  { "", "reserved", "reserved_peak_bytes", BYTES },
  { "pinned", "on host", "host_pinned_peak_bytes", BYTES },
  { "", "compute", "compute_busy_s", TIME },
  { "exposed", "D2H", "exposed_d2h_s", TIME },
  { "", "H2D", "exposed_h2d_s", TIME },
  { "", "end", "end_s", TIME },
};

enum { COLUMNS = sizeof columns / sizeof columns[0] };

static void values_of(const plan_prediction *p, uint32_t rank, int64_t values[COLUMNS])
{
  const replay_result *m = &p->memory[rank];
  const rank_timeline *t = &p->times.ranks[rank];
  const int64_t all[COLUMNS] = { m->requested_peak_bytes,  m->allocated_peak_bytes,
                                 m->live_peak_bytes,       m->reserved_peak_bytes,
                                 m->host_exact_peak_bytes, t->compute_busy_ps,
                                 t->exposed_d2h_ps,        t->exposed_h2d_ps,
                                 t->end_of_rank_ps };
  for (int i = 0; i < COLUMNS; i++)
    values[i] = all[i];
}

static figure_unit unit_of(const plan_prediction *p, figure_kind kind)
{
  int64_t largest = 0, values[COLUMNS];
  for (uint32_t r = 0; r < p->rank_count; r++) {
    values_of(p, r, values);
    for (int i = 0; i < COLUMNS; i++)
      if (columns[i].kind == kind && values[i] > largest) largest = values[i];
  }
  return kind == BYTES ? unit_of_bytes(largest) : unit_of_time(largest);
}

void plan_prediction_table(const plan_prediction *p, FILE *out, arena *a)
{
  figure_unit units[] = { [BYTES] = unit_of(p, BYTES), [TIME] = unit_of(p, TIME) };
  grid g = grid_new(a, COLUMNS + 1, p->rank_count);
  g.head[1][0] = "rank";
  for (uint32_t i = 0; i < COLUMNS; i++) {
    g.head[0][i + 1] = columns[i].head;
    g.head[1][i + 1] = columns[i].below;
  }
  for (uint32_t r = 0; r < p->rank_count; r++) {
    int64_t values[COLUMNS];
    values_of(p, r, values);
    g.cells[r * g.columns] = arena_printf(a, "%" PRIu32, r);
    for (uint32_t i = 0; i < COLUMNS; i++)
      g.cells[r * g.columns + i + 1] = figure_in(a, values[i], units[columns[i].kind]);
  }
  fprintf(out, "One iteration on %s, %s and %s\n\n", p->machine->name, units[BYTES].name,
          units[TIME].name);
  grid_print(&g, out);
  fprintf(out, "\nstep  %s\n", figure_with_unit(a, p->times.step_ps, units[TIME]));
}

void plan_prediction_json(const plan_prediction *p, FILE *out)
{
  fprintf(out, "{\"format_version\": %d, \"machine\": ", JSON_FORMAT_VERSION);
  json_string(out, p->machine->name);
  fputs(", ", out);
  seconds_member(out, "step_time_s", p->times.step_ps, ", \"ranks\": [");
  for (uint32_t r = 0; r < p->rank_count; r++) {
    int64_t values[COLUMNS];
    values_of(p, r, values);
    fprintf(out, "%s{", r == 0 ? "" : ", ");
    for (int i = 0; i < COLUMNS; i++)
      if (columns[i].kind == BYTES)
        bytes_member(out, columns[i].key, values[i]);
      else
        seconds_member(out, columns[i].key, values[i], i + 1 < COLUMNS ? ", " : "}");
  }
  fputs("]}\n", out);
}
