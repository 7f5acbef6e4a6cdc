#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/report/text.h"
#include "sim/report/traces.h"
#include "sim/text/json_text.h"

/* ==== for people ==== */

/* ---- tables ---- */

static const char *error_of(arena *a, int64_t predicted, int64_t measured)
{
  return predicted < 0 || measured <= 0 ? "-" : figure_ppm(a, error_ppm(predicted, measured));
}

static void set_head(grid *g, uint32_t column, const char *above, const char *below)
{
  assert(column < g->columns);
  g->head[0][column] = above;
  g->head[1][column] = below;
}

static void print_steps(const timings *r, FILE *out, arena *a)
{
  const timing *t = &r->with;
  figure_unit unit = unit_of_time(max_i64(t->step_ps[PREDICTED], t->step_ps[MEASURED]));
  fprintf(out, "\nstep       predicted %s, measured %s: %s %%\n",
          figure_with_unit(a, t->step_ps[PREDICTED], unit),
          figure_with_unit(a, t->step_ps[MEASURED], unit),
          error_of(a, t->step_ps[PREDICTED], t->step_ps[MEASURED]));
  if (r->without == NULL) return;
  int64_t overhead[] = { timing_overhead_ppm(r, PREDICTED), timing_overhead_ppm(r, MEASURED) };
  fprintf(out, "overhead   predicted %s %%, measured %s %%: %s percentage points\n",
          figure_ppm(a, overhead[PREDICTED]), figure_ppm(a, overhead[MEASURED]),
          figure_ppm(a, overhead[PREDICTED] - overhead[MEASURED]));
}

enum { M_RANK, M_REQUESTED, M_LIVE = 4, M_RESERVED = 7, M_COLUMNS = 10 };

static void put_measure(grid *g, uint32_t rank, uint32_t column, int64_t predicted,
                        int64_t measured, arena *a)
{
  assert(rank < g->rows && column + 3 <= g->columns);
  const char **cells = &g->cells[rank * g->columns + column];
  figure_unit unit = { "MiB", MIB, 2 };
  cells[0] = predicted < 0 ? "-" : figure_in(a, predicted, unit);
  cells[1] = measured < 0 ? "-" : figure_in(a, measured, unit);
  cells[2] = error_of(a, predicted, measured);
}

static void print_memory(const timing *t, FILE *out, arena *a)
{
  static const struct {
    uint32_t column;
    const char *name;
  } measures[] = { { M_REQUESTED, "requested" }, { M_LIVE, "live" }, { M_RESERVED, "reserved" } };
  grid g = grid_new(a, M_COLUMNS, t->rank_count);
  set_head(&g, M_RANK, "", "rank");
  for (size_t i = 0; i < sizeof measures / sizeof *measures; i++) {
    set_head(&g, measures[i].column, measures[i].name, "predicted");
    set_head(&g, measures[i].column + 1, measures[i].name, "measured");
    set_head(&g, measures[i].column + 2, "", "error, %");
  }
  for (uint32_t rank = 0; rank < t->rank_count; rank++) {
    const trace_figures *p = timing_figures(t, PREDICTED, rank);
    const trace_figures *m = timing_figures(t, MEASURED, rank);
    g.cells[rank * M_COLUMNS] = arena_printf(a, "%" PRIu32, rank);
    put_measure(&g, rank, M_REQUESTED, p->requested_peak_bytes, m->requested_peak_bytes, a);
    put_measure(&g, rank, M_LIVE, p->live_peak_bytes, m->live_peak_bytes, a);
    put_measure(&g, rank, M_RESERVED, p->reserved_peak_bytes, m->reserved_peak_bytes, a);
  }
  fputs("\nDevice memory at its peak, MiB\n", out);
  grid_print(&g, out);
}

/* ---- copies ---- */

enum { C_RANK, C_D2H, C_H2D = 5, C_COLUMNS = 9 };

static const char *rate(arena *a, const copy_timing *c)
{
  assert(c->exposed_ps <= c->busy_ps);
  return c->busy_ps == 0 ? "-" : figure(a, muldiv_i64(c->bytes, PS_PER_US, c->busy_ps), 1000, 1);
}

static void put_copies(grid *g, uint32_t rank, uint32_t column, const copy_timing *c, arena *a)
{
  assert(rank < g->rows && column + 2 * TIMING_SIDES <= g->columns);
  const char **cells = &g->cells[rank * g->columns + column];
  for (int side = 0; side < TIMING_SIDES; side++) {
    cells[side] = rate(a, &c[side]);
    cells[TIMING_SIDES + side] = figure(a, c[side].exposed_ps, PS_PER_MS, 2);
  }
}

static void print_copies(const timing *t, FILE *out, arena *a)
{
  int64_t bytes = 0;
  grid g = grid_new(a, C_COLUMNS, t->rank_count);
  set_head(&g, C_RANK, "", "rank");
  for (uint32_t i = 0; i < 2; i++) {
    const char *direction = i == 0 ? "to host" : "from host";
    uint32_t column = i == 0 ? C_D2H : C_H2D;
    set_head(&g, column, direction, "pred. GB/s");
    set_head(&g, column + 1, direction, "meas. GB/s");
    set_head(&g, column + 2, "exposed", "pred. ms");
    set_head(&g, column + 3, "exposed", "meas. ms");
  }
  for (uint32_t rank = 0; rank < t->rank_count; rank++) {
    const rank_timing *r = &t->ranks[rank];
    bytes += r->d2h[MEASURED].bytes + r->h2d[MEASURED].bytes;
    g.cells[rank * C_COLUMNS] = arena_printf(a, "%" PRIu32, rank);
    put_copies(&g, rank, C_D2H, r->d2h, a);
    put_copies(&g, rank, C_H2D, r->h2d, a);
  }
  if (bytes == 0) return;
  fputs("\nCopies between device and host\n", out);
  grid_print(&g, out);
}

/* ---- saving ---- */

enum { S_RANK, S_MEMORY, S_THEORETICAL, S_SIMULATED, S_MEASURED, S_R, S_R_THEORETICAL, S_COLUMNS };

static void print_saving(const saving_figures *s, const char **cells, arena *a)
{
  const figure_unit unit = { "MiB", MIB, 2 };
  cells[S_THEORETICAL] = s->theoretical < 0 ? "-" : figure_in(a, s->theoretical, unit);
  cells[S_SIMULATED] = figure_in(a, s->simulated, unit);
  cells[S_MEASURED] = figure_in(a, s->measured, unit);
  cells[S_R] = s->simulated > 0 ? figure_percent(a, s->measured, s->simulated, 3) : "-";
  cells[S_R_THEORETICAL] =
      s->theoretical > 0 ? figure_percent(a, s->measured, s->theoretical, 3) : "-";
}

static void print_savings(const timings *r, FILE *out, arena *a)
{
  static const char *const memories[] = { "allocated", "live" };
  grid g = grid_new(a, S_COLUMNS, r->with.rank_count * SAVED_MEMORIES);
  set_head(&g, S_RANK, "", "rank");
  set_head(&g, S_MEMORY, "", "memory");
  set_head(&g, S_THEORETICAL, "", "theoretical");
  set_head(&g, S_SIMULATED, "", "simulated");
  set_head(&g, S_MEASURED, "", "measured");
  set_head(&g, S_R, "R, %: measured", "of simulated");
  set_head(&g, S_R_THEORETICAL, "measured", "of theoretical");
  for (uint32_t row = 0; row < r->with.rank_count * SAVED_MEMORIES; row++) {
    const char **cells = &g.cells[row * S_COLUMNS];
    saving_figures s;
    if (!timing_saving(r, row / SAVED_MEMORIES, (saved_memory)(row % SAVED_MEMORIES), &s)) return;
    cells[S_RANK] = arena_printf(a, "%" PRIu32, row / SAVED_MEMORIES);
    cells[S_MEMORY] = memories[row % SAVED_MEMORIES];
    print_saving(&s, cells, a);
  }
  fputs("\nWhat offload saves of device memory at its peak, MiB\n", out);
  grid_print(&g, out);
}

/* ---- ops ---- */

enum { T_NAME, T_COUNT, T_PREDICTED, T_MEASURED, T_ERROR, T_MEDIAN, T_P95, T_COLUMNS };

static void print_classes(const timing *t, FILE *out, arena *a)
{
  grid g = grid_new(a, T_COLUMNS, t->class_count);
  set_head(&g, T_NAME, "", "op");
  set_head(&g, T_COUNT, "", "ops");
  set_head(&g, T_PREDICTED, "predicted", "ms");
  set_head(&g, T_MEASURED, "measured", "ms");
  set_head(&g, T_ERROR, "error", "%");
  set_head(&g, T_MEDIAN, "median", "of one, %");
  set_head(&g, T_P95, "p95", "of one, %");
  for (uint32_t i = 0; i < t->class_count; i++) {
    const class_timing *c = &t->classes[i];
    const char **cells = &g.cells[i * T_COLUMNS];
    cells[T_NAME] = c->name;
    cells[T_COUNT] = arena_printf(a, "%" PRIu32, c->count);
    cells[T_PREDICTED] = figure(a, c->total_ps[PREDICTED], PS_PER_MS, 3);
    cells[T_MEASURED] = figure(a, c->total_ps[MEASURED], PS_PER_MS, 3);
    cells[T_ERROR] = error_of(a, c->total_ps[PREDICTED], c->total_ps[MEASURED]);
    cells[T_MEDIAN] = figure_ppm(a, c->median_error_ppm);
    cells[T_P95] = figure_ppm(a, c->p95_error_ppm);
  }
  fputs("\nTime of ops, those that take longest first\n", out);
  grid_print(&g, out);
}

static void print_worst(const timing *t, FILE *out, arena *a)
{
  if (t->worst_count > 0) fputs("\nThe ops that the prediction misses most, us\n", out);
  for (uint32_t i = 0; i < t->worst_count; i++) {
    const trace_op *p = t->worst[i].op[PREDICTED], *m = t->worst[i].op[MEASURED];
    fprintf(out, "  %12s predicted, %12s measured: rank %" PRIu32 " op %" PRIu32 " %s",
            figure(a, p->end_ps - p->begin_ps, PS_PER_US, 1),
            figure(a, m->end_ps - m->begin_ps, PS_PER_US, 1), m->rank, m->op,
            m->call[0] != '\0' && strcmp(m->kind, m->name) != 0 ? m->call : m->kind);
    if (m->layer >= 0) fprintf(out, " @ layer %" PRId32, m->layer);
    fprintf(out, " %s, %s\n", m->module, m->phase);
  }
}

void timing_table(const timings *r, FILE *out, arena *a)
{
  print_steps(r, out, a);
  print_memory(&r->with, out, a);
  if (r->without != NULL) print_savings(r, out, a);
  print_copies(&r->with, out, a);
  print_classes(&r->with, out, a);
  print_worst(&r->with, out, a);
}

/* ==== for programs ==== */

static const char *const sides[TIMING_SIDES] = { "predicted", "measured" };

static void json_steps(const timings *r, FILE *out)
{
  for (int side = 0; side < TIMING_SIDES; side++)
    fprintf(out, "  \"step_ps_%s\": %" PRId64 ",\n", sides[side], r->with.step_ps[side]);
  fprintf(out, "  \"step_error_ppm\": %" PRId64 ",\n",
          error_ppm(r->with.step_ps[PREDICTED], r->with.step_ps[MEASURED]));
  for (int side = 0; side < TIMING_SIDES && r->without != NULL; side++)
    fprintf(out, "  \"overhead_ppm_%s\": %" PRId64 ",\n", sides[side],
            timing_overhead_ppm(r, (timing_side)side));
}

static void json_copies(const char *key, const copy_timing *c, FILE *out)
{
  fprintf(out,
          "\"%s\": {\"bytes\": %" PRId64 ", \"busy_ps\": %" PRId64 ", \"exposed_ps\": %" PRId64 "}",
          key, c->bytes, c->busy_ps, c->exposed_ps);
}

static void json_side(const timing *t, timing_side side, uint32_t rank, FILE *out)
{
  const trace_figures *f = timing_figures(t, side, rank);
  fprintf(out, ",\n     \"%s\": {", sides[side]);
#define PUT(name, meaning) fprintf(out, "\"%s\": %" PRId64 ", ", #name, f->name);
  TRACE_FIGURES(PUT)
#undef PUT
  fprintf(out, "\"compute_ps\": %" PRId64 ", ", t->ranks[rank].compute_ps[side]);
  json_copies("d2h", &t->ranks[rank].d2h[side], out);
  fputs(", ", out);
  json_copies("h2d", &t->ranks[rank].h2d[side], out);
  fputc('}', out);
}

static void json_saving(const timings *r, uint32_t rank, saved_memory of, const char *name,
                        FILE *out)
{
  saving_figures s;
  if (timing_saving(r, rank, of, &s))
    fprintf(out,
            ",\n     \"%s\": {\"theoretical\": %" PRId64 ", \"simulated\": %" PRId64
            ", \"measured\": %" PRId64 "}",
            name, s.theoretical, s.simulated, s.measured);
}

static void json_ranks(const timings *r, FILE *out)
{
  fputs("  \"clocked_ranks\": [", out);
  for (uint32_t rank = 0; rank < r->with.rank_count; rank++) {
    fprintf(out, "%s\n    {\"rank\": %" PRIu32, rank > 0 ? "," : "", rank);
    json_side(&r->with, PREDICTED, rank, out);
    json_side(&r->with, MEASURED, rank, out);
    json_saving(r, rank, SAVED_ALLOCATED, "saving_bytes", out);
    json_saving(r, rank, SAVED_LIVE, "live_saving_bytes", out);
    fputc('}', out);
  }
  fputs("\n  ],\n", out);
}

static void json_classes(const timing *t, FILE *out)
{
  fputs("  \"op_classes\": [", out);
  for (uint32_t i = 0; i < t->class_count; i++) {
    const class_timing *c = &t->classes[i];
    fprintf(out, "%s\n    {\"name\": ", i > 0 ? "," : "");
    json_string(out, c->name);
    fprintf(out,
            ", \"ops\": %" PRIu32 ", \"predicted_ps\": %" PRId64 ", \"measured_ps\": %" PRId64
            ", \"median_error_ppm\": %" PRId64 ", \"p95_error_ppm\": %" PRId64 "}",
            c->count, c->total_ps[PREDICTED], c->total_ps[MEASURED], c->median_error_ppm,
            c->p95_error_ppm);
  }
  fputs("\n  ],\n", out);
}

static void json_worst(const timing *t, FILE *out)
{
  fputs("  \"worst_ops\": [", out);
  for (uint32_t i = 0; i < t->worst_count; i++) {
    const trace_op *p = t->worst[i].op[PREDICTED], *m = t->worst[i].op[MEASURED];
    fprintf(out,
            "%s\n    {\"rank\": %" PRIu32 ", \"op\": %" PRIu32 ", \"call\": ", i > 0 ? "," : "",
            m->rank, m->op);
    json_string(out, m->call);
    fputs(", \"name\": ", out);
    json_string(out, m->name);
    fprintf(out, ", \"layer\": %" PRId32 ", \"module\": ", m->layer);
    json_string(out, m->module);
    fputs(", \"phase\": ", out);
    json_string(out, m->phase);
    fprintf(out, ", \"predicted_ps\": %" PRId64 ", \"measured_ps\": %" PRId64 "}",
            p->end_ps - p->begin_ps, m->end_ps - m->begin_ps);
  }
  fputs("\n  ],\n", out);
}

void timing_json(const timings *r, FILE *out)
{
  json_steps(r, out);
  json_ranks(r, out);
  json_classes(&r->with, out);
  json_worst(&r->with, out);
}
