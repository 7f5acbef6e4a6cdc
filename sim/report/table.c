#include "sim/report/table.h"

#include <string.h>

#include "sim/base/units.h"
#include "sim/report/figures.h"
#include "sim/report/grid.h"
#include "sim/report/table_parts.h"

/* ---- columns ------------------------------------------------------------------------------------ */

typedef struct row {
  const view *view;
  uint32_t rank;
  const rank_prediction *with, *without;
} row;

typedef struct column {
  const char *over, *title;
  const char *(*cell)(const row *r);
  bool (*shown)(const view *v); /* NULL: always */
} column;

static bool offloads(const view *v)
{
  return v->offloads;
}

/* The first iteration reached more than a later one. */
static bool peaks_differ(const view *v)
{
  for (uint32_t i = 0; i < v->p->rank_count; i++) {
    const rank_prediction *r = &v->p->result.ranks[i];
    if (r->allocated_peak_bytes != r->steady_allocated_peak_bytes)
      return true;
  }
  return false;
}

static const char *bytes_cell(const row *r, int64_t value)
{
  return figure_in(r->view->memory, value, r->view->bytes);
}

static const char *time_cell(const row *r, int64_t value)
{
  return figure_in(r->view->memory, value, r->view->time);
}

static const char *busy_cell(const row *r, int64_t busy_ps)
{
  return figure_percent(r->view->memory, busy_ps, r->with->step_ps, 1);
}

static const char *cell_rank(const row *r)
{
  return arena_printf(r->view->memory, "%u", r->rank);
}

/* As in pipeline layouts: "E4", "4,4", "2mL"; chunks of a rank between commas. */
static const char *cell_layers(const row *r)
{
  const settings *s = r->view->p->settings;
  arena *a = r->view->memory;
  const char *text = "";
  for (int64_t chunk = 0; chunk < s->derived.virtual_stages; chunk++) {
    int64_t stage = chunk * s->parallel.pipeline_model_parallel_size + r->rank;
    const struct stage_content *c = &s->derived.stages[stage];
    text = arena_printf(a, "%s%s%s%u%s%s", text, chunk > 0 ? "," : "", c->embedding ? "E" : "",
                        c->layer_count, c->mtp_layers > 0 ? "m" : "", c->loss ? "L" : "");
  }
  return strlen(text) <= 16 ? text : arena_printf(a, "%.13s...", text);
}

static const char *cell_static(const row *r) { return bytes_cell(r, r->with->static_bytes); }
static const char *cell_peak(const row *r) { return bytes_cell(r, r->with->allocated_peak_bytes); }
/* What is on the clock ends where the memory does. */
static const char *clock_cell(const row *r, int64_t value)
{
  return r->with->out_of_memory ? "-" : bytes_cell(r, value);
}

static const char *cell_live(const row *r) { return clock_cell(r, r->with->live_peak_bytes); }
static const char *cell_reserved(const row *r) { return clock_cell(r, r->with->reserved_peak_bytes); }
static const char *cell_pinned(const row *r) { return bytes_cell(r, r->with->host_pinned_peak_bytes); }

static const char *cell_steady(const row *r)
{
  return bytes_cell(r, r->with->steady_allocated_peak_bytes);
}

static const char *cell_without(const row *r)
{
  return bytes_cell(r, r->without->steady_allocated_peak_bytes);
}

static const char *cell_theory(const row *r)
{
  return bytes_cell(r, r->with->theoretical_saving_bytes);
}

static const char *cell_saving(const row *r)
{
  return bytes_cell(r, r->with->simulated_saving_bytes);
}

static const char *cell_ratio(const row *r)
{
  return figure_percent(r->view->memory, r->with->simulated_saving_bytes,
                        r->with->theoretical_saving_bytes, 2);
}

static const char *gigabytes(const row *r, int64_t bytes)
{
  return figure(r->view->memory, bytes, 1000000000, 2);
}

static const char *cell_out(const row *r) { return gigabytes(r, r->with->d2h_bytes); }
static const char *cell_back(const row *r) { return gigabytes(r, r->with->h2d_bytes); }
static const char *cell_d2h_busy(const row *r) { return busy_cell(r, r->with->d2h_busy_ps); }
static const char *cell_h2d_busy(const row *r) { return busy_cell(r, r->with->h2d_busy_ps); }
static const char *cell_exposed_d2h(const row *r) { return time_cell(r, r->with->exposed_d2h_ps); }
static const char *cell_exposed_h2d(const row *r) { return time_cell(r, r->with->exposed_h2d_ps); }
static const char *cell_compute(const row *r) { return time_cell(r, r->with->compute_busy_ps); }
static const char *cell_bubble(const row *r) { return time_cell(r, r->with->bubble_ps); }
static const char *cell_step(const row *r) { return time_cell(r, r->with->step_ps); }

static const column memory_columns[] = {
  { "", "rank", cell_rank, NULL },
  { "", "layers", cell_layers, NULL },
  { "", "static", cell_static, NULL },
  { "peak:", "allocated", cell_peak, NULL },
  { "one", "step's", cell_steady, peaks_differ },
  { "", "live", cell_live, NULL },
  { "", "reserved", cell_reserved, NULL },
  { "without", "offload", cell_without, offloads },
  { "saving:", "theory", cell_theory, offloads },
  { "", "simulated", cell_saving, offloads },
  { "", "R %", cell_ratio, offloads },
  { "pinned", "on host", cell_pinned, offloads },
};

static const column time_columns[] = {
  { "", "rank", cell_rank, NULL },
  { "GB", "out", cell_out, offloads },
  { "GB", "back", cell_back, offloads },
  { "link busy", "out %", cell_d2h_busy, offloads },
  { "", "back %", cell_h2d_busy, offloads },
  { "exposed", "D2H", cell_exposed_d2h, offloads },
  { "", "H2D", cell_exposed_h2d, offloads },
  { "", "compute", cell_compute, NULL },
  { "", "bubble", cell_bubble, NULL },
  { "", "step", cell_step, NULL },
};

enum {
  MEMORY_COLUMNS = sizeof memory_columns / sizeof *memory_columns,
  TIME_COLUMNS = sizeof time_columns / sizeof *time_columns
};

static void print_columns(const view *v, const column *columns, uint32_t count)
{
  uint32_t shown = 0;
  grid g = grid_new(v->memory, count, v->p->rank_count);
  for (uint32_t c = 0; c < count; c++) {
    if (columns[c].shown != NULL && !columns[c].shown(v))
      continue;
    g.head[0][shown] = columns[c].over;
    g.head[1][shown] = columns[c].title;
    for (uint32_t i = 0; i < v->p->rank_count; i++) {
      row r = { v, i, &v->p->result.ranks[i], &v->p->baseline.ranks[i] };
      g.cells[i * count + shown] = columns[c].cell(&r);
    }
    shown++;
  }
  grid_print(&g, v->out);
}

/* ---- the whole ---------------------------------------------------------------------------------- */

static view view_new(const prediction *p, FILE *out, arena *a)
{
  view v = { .p = p, .out = out, .memory = a };
  int64_t largest = 0;
  for (uint32_t i = 0; i < p->rank_count; i++) {
    largest = max_i64(largest, p->baseline.ranks[i].allocated_peak_bytes);
    v.offloads |= p->result.ranks[i].d2h_bytes > 0 || p->warmup.ranks[i].d2h_bytes > 0 ||
                  p->result.ranks[i].theoretical_saving_bytes != 0;
  }
  v.bytes = unit_of_bytes(largest);
  v.time = unit_of_time(p->result.step_ps);
  return v;
}

void prediction_table(const prediction *p, const measured_bytes *measured, FILE *out, arena *a)
{
  view v = view_new(p, out, a);
  print_head(&v);
  fprintf(out, "\nMemory, %s on each GPU\n", v.bytes.name);
  print_columns(&v, memory_columns, MEMORY_COLUMNS);
  fprintf(out, "\nTime of one step, %s\n", v.time.name);
  print_columns(&v, time_columns, TIME_COLUMNS);
  print_peaks(&v);
  print_savings(&v);
  print_defects(&v);
  print_verdict(&v);
  print_measured(&v, measured);
}
