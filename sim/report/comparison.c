#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/report/json.h"
#include "sim/report/prediction.h"
#include "sim/report/text.h"

/* ---- for people ---- */

typedef struct view {
  const comparison *c;
  FILE *out;
  arena *memory;
  figure_unit bytes, time;
} view;

typedef enum cell_kind {
  CELL_FRONT,
  CELL_BYTES,
  CELL_TIME,
  CELL_OVERHEAD,
  CELL_TOKENS,
  CELL_MFU,
  CELL_R,
  CELL_FITS,
  CELL_SAFE
} cell_kind;

static const struct column {
  const char *over, *title;
  cell_kind kind;
  size_t member; /* of comparison_row */
} columns[] = {
  { "", "", CELL_FRONT, 0 },
  { "", "peak", CELL_BYTES, offsetof(comparison_row, peak_bytes) },
  { "", "saving", CELL_BYTES, offsetof(comparison_row, saving_bytes) },
  { "", "step", CELL_TIME, offsetof(comparison_row, step_ps) },
  { "over-", "head %", CELL_OVERHEAD, 0 },
  { "tokens/s", "per GPU", CELL_TOKENS, 0 },
  { "", "MFU %", CELL_MFU, 0 },
  { "", "R %", CELL_R, 0 },
  { "memory", "on host", CELL_BYTES, offsetof(comparison_row, host_total_bytes) },
  { "exposed", "D2H", CELL_TIME, offsetof(comparison_row, exposed_d2h_ps) },
  { "", "H2D", CELL_TIME, offsetof(comparison_row, exposed_h2d_ps) },
  { "", "fits", CELL_FITS, 0 },
  { "", "safe", CELL_SAFE, 0 },
};

enum { COLUMNS = sizeof columns / sizeof *columns };

static const char *cell_of(const view *v, const struct column *c, const comparison_row *r)
{
  int64_t value, without_ps = v->c->reference.step_ps;
  assert(c->member + sizeof value <= sizeof *r);
  memcpy(&value, (const char *)r + c->member, sizeof value);
  switch (c->kind) {
  case CELL_FRONT: return r->on_front ? "*" : "";
  case CELL_BYTES: break;
  case CELL_TIME: return figure_in(v->memory, value, v->time);
  case CELL_OVERHEAD: return figure_percent(v->memory, r->step_ps - without_ps, without_ps, 1);
  case CELL_TOKENS: return arena_printf(v->memory, "%" PRId64, r->speed.tokens_per_s);
  case CELL_MFU: return figure_mfu(v->memory, r->speed.mfu_millionths);
  case CELL_R:
    return figure_percent(v->memory, r->simulated_saving_bytes, r->theoretical_saving_bytes, 1);
  case CELL_SAFE: return r->safe ? "yes" : alarm_text(v->memory, "NO", v->out);
  case CELL_FITS:
    return r->fits_device && r->fits_host
               ? "yes"
               : alarm_text(v->memory, r->fits_device ? "NOT THE HOST" : "NO", v->out);
  }
  return figure_in(v->memory, value, v->bytes);
}

/* Names are at the left; cells are right-aligned, so blanks fill them up to the longest. */
static void put_names(const view *v, grid *g)
{
  int width = (int)strlen("system");
  for (uint32_t i = 0; i < v->c->row_count; i++) {
    int length = (int)strlen(v->c->rows[i].tried.name);
    width = length > width ? length : width;
  }
  g->head[1][0] = arena_printf(v->memory, "%-*s", width, "system");
  for (uint32_t i = 0; i < v->c->row_count; i++)
    g->cells[i * g->columns] = arena_printf(v->memory, "%-*s", width, v->c->rows[i].tried.name);
}

static void print_rows(const view *v)
{
  grid g = grid_new(v->memory, 1 + COLUMNS, v->c->row_count);
  put_names(v, &g);
  for (uint32_t k = 0; k < COLUMNS; k++) {
    g.head[0][1 + k] = columns[k].over;
    g.head[1][1 + k] = columns[k].title;
    for (uint32_t i = 0; i < v->c->row_count; i++)
      g.cells[i * g.columns + 1 + k] = cell_of(v, &columns[k], &v->c->rows[i]);
  }
  grid_print(&g, v->out);
}

/* On one line, to paste. */
static void print_sets(const view *v, const char *what, const comparison_row *r)
{
  fprintf(v->out, "%-9s %s%s:", what, r->tried.name,
          r->tried.system == SYSTEM_planned ? " (offsim's own)" : "");
  for (uint32_t i = 0; i < r->tried.set_count; i++)
    fprintf(v->out, " --set %s", r->tried.sets[i]);
  fputc('\n', v->out);
}

/* The first row is the fastest that fits, the last on the front the smallest. */
static void print_best(const view *v)
{
  const comparison_row *smallest = NULL;
  for (uint32_t i = 0; i < v->c->row_count; i++)
    if (v->c->rows[i].on_front) smallest = &v->c->rows[i];
  if (smallest == NULL) {
    fprintf(v->out, "\nnone of them fits\n");
    return;
  }
  fprintf(v->out, "\n* nothing that fits is both faster and smaller\n");
  print_sets(v, "fastest", &v->c->rows[0]);
  if (smallest != &v->c->rows[0]) print_sets(v, "smallest", smallest);
}

static void print_refused(const view *v)
{
  if (v->c->refused_count > 0) fprintf(v->out, "\nNot for this configuration\n");
  for (uint32_t i = 0; i < v->c->refused_count; i++)
    wrap_text(v->out, "", 2,
              arena_printf(v->memory, "%s: %s", v->c->refused[i].systems, v->c->refused[i].reason),
              " ");
}

void comparison_table(const comparison *c, FILE *out, arena *a)
{
  view v = { .c = c, .out = out, .memory = a };
  int64_t longest_ps = 0;
  for (uint32_t i = 0; i < c->row_count; i++)
    longest_ps = max_i64(longest_ps, c->rows[i].step_ps);
  assert(c->row_count > 0);
  v.bytes = unit_of_bytes(c->reference.peak_bytes);
  v.time = unit_of_time(longest_ps);
  wrap_line(out, 0, "Offload systems on %s, of the rank with most; %s and %s", c->machine->name,
            v.bytes.name, v.time.name);
  wrap_line(out, 0, "saving and overhead are beside \"%s\"; memory of a GPU for PyTorch: %s",
            c->reference.tried.name, figure_capacity(a, c->capacity_bytes));
  fputc('\n', out);
  print_rows(&v);
  print_best(&v);
  print_refused(&v);
}

/* ---- for programs ---- */

static void row_object(FILE *out, const comparison *c, const comparison_row *r)
{
  fputs("    {", out);
  json_member(out, "name", r->tried.name);
  fprintf(out, ", \"system\": \"%s\", \"recompute_granularity\": \"%s\", \"set\": ",
          offload_systems[r->tried.system].name,
          choice_word(KEY_recompute_recompute_granularity, r->tried.recompute));
  json_strings(out, r->tried.sets, r->tried.set_count);
  fputs(", ", out);
  bytes_member(out, "allocated_peak_bytes", r->peak_bytes);
  bytes_member(out, "saving_bytes", r->saving_bytes);
  seconds_member(out, "step_time_s", r->step_ps, ", ");
  throughput_members(out, r->speed);
  ratio_member(out, "overhead", r->step_ps - c->reference.step_ps, c->reference.step_ps);
  bytes_member(out, "theoretical_saving_bytes", r->theoretical_saving_bytes);
  bytes_member(out, "simulated_saving_bytes", r->simulated_saving_bytes);
  ratio_member(out, "saving_ratio", r->simulated_saving_bytes, r->theoretical_saving_bytes);
  bytes_member(out, "host_pinned_total_bytes", r->host_pinned_total_bytes);
  bytes_member(out, "host_total_bytes", r->host_total_bytes);
  bytes_member(out, "d2h_bytes", r->d2h_bytes);
  bytes_member(out, "h2d_bytes", r->h2d_bytes);
  seconds_member(out, "exposed_d2h_s", r->exposed_d2h_ps, ", ");
  seconds_member(out, "exposed_h2d_s", r->exposed_h2d_ps, ", ");
  fprintf(out, "\"fits_device\": %s, \"fits_host\": %s, \"safe\": %s, \"on_front\": %s}",
          r->fits_device ? "true" : "false", r->fits_host ? "true" : "false",
          r->safe ? "true" : "false", r->on_front ? "true" : "false");
}

void comparison_json(const comparison *c, FILE *out)
{
  fprintf(out, "{\n  \"format_version\": %d,\n  \"machine\": ", JSON_FORMAT_VERSION);
  json_string(out, c->machine->name);
  fprintf(out, ",\n  \"capacity_bytes\": %" PRId64 ",\n  \"reference\": ", c->capacity_bytes);
  json_string(out, c->reference.tried.name);
  fprintf(out, ",\n  \"rows\": [\n");
  for (uint32_t i = 0; i < c->row_count; i++) {
    row_object(out, c, &c->rows[i]);
    fprintf(out, "%s\n", i + 1 < c->row_count ? "," : "");
  }
  fprintf(out, "  ],\n  \"refused\": [");
  for (uint32_t i = 0; i < c->refused_count; i++) {
    fprintf(out, "%s\n    {\"systems\": ", i == 0 ? "" : ",");
    json_string(out, c->refused[i].systems);
    fprintf(out, ", \"reason\": ");
    json_string(out, c->refused[i].reason);
    fputc('}', out);
  }
  fprintf(out, "%s]\n}\n", c->refused_count > 0 ? "\n  " : "");
}
