#include <inttypes.h>

#include "sim/report/timing_report.h"
#include "sim/text/json_text.h"

static const char *const sides[TIMING_SIDES] = { "predicted", "measured" };

static void print_steps(const timing_report *r, FILE *out)
{
  for (int side = 0; side < TIMING_SIDES; side++)
    fprintf(out, "  \"step_ps_%s\": %" PRId64 ",\n", sides[side], r->with.step_ps[side]);
  fprintf(out, "  \"step_error_ppm\": %" PRId64 ",\n",
          error_ppm(r->with.step_ps[PREDICTED], r->with.step_ps[MEASURED]));
  for (int side = 0; side < TIMING_SIDES && r->without != NULL; side++)
    fprintf(out, "  \"overhead_ppm_%s\": %" PRId64 ",\n", sides[side],
            timing_overhead_ppm(r, (timing_side)side));
}

static void print_copies(const char *key, const copy_timing *c, FILE *out)
{
  fprintf(out,
          "\"%s\": {\"bytes\": %" PRId64 ", \"busy_ps\": %" PRId64 ", \"exposed_ps\": %" PRId64 "}",
          key, c->bytes, c->busy_ps, c->exposed_ps);
}

static void print_side(const timing *t, timing_side side, uint32_t rank, FILE *out)
{
  const trace_figures *f = timing_figures(t, side, rank);
  fprintf(out, ",\n     \"%s\": {", sides[side]);
#define PUT(name, meaning) fprintf(out, "\"%s\": %" PRId64 ", ", #name, f->name);
  TRACE_FIGURES(PUT)
#undef PUT
  fprintf(out, "\"compute_ps\": %" PRId64 ", ", t->ranks[rank].compute_ps[side]);
  print_copies("d2h", &t->ranks[rank].d2h[side], out);
  fputs(", ", out);
  print_copies("h2d", &t->ranks[rank].h2d[side], out);
  fputc('}', out);
}

static void print_saving(const timing_report *r, uint32_t rank, saved_memory of, const char *name,
                         FILE *out)
{
  saving_figures s;
  if (timing_saving(r, rank, of, &s))
    fprintf(out,
            ",\n     \"%s\": {\"theoretical\": %" PRId64 ", \"simulated\": %" PRId64
            ", \"measured\": %" PRId64 "}",
            name, s.theoretical, s.simulated, s.measured);
}

static void print_ranks(const timing_report *r, FILE *out)
{
  fputs("  \"clocked_ranks\": [", out);
  for (uint32_t rank = 0; rank < r->with.rank_count; rank++) {
    fprintf(out, "%s\n    {\"rank\": %" PRIu32, rank > 0 ? "," : "", rank);
    print_side(&r->with, PREDICTED, rank, out);
    print_side(&r->with, MEASURED, rank, out);
    print_saving(r, rank, SAVED_ALLOCATED, "saving_bytes", out);
    print_saving(r, rank, SAVED_LIVE, "live_saving_bytes", out);
    fputc('}', out);
  }
  fputs("\n  ],\n", out);
}

static void print_classes(const timing *t, FILE *out)
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

static void print_worst(const timing *t, FILE *out)
{
  fputs("  \"worst_ops\": [", out);
  for (uint32_t i = 0; i < t->worst_count; i++) {
    const trace_op *p = t->worst[i].op[PREDICTED], *m = t->worst[i].op[MEASURED];
    fprintf(out,
            "%s\n    {\"rank\": %" PRIu32 ", \"op\": %" PRIu32 ", \"call\": ", i > 0 ? "," : "",
            m->rank, m->op);
    json_string(out, m->call);
    fprintf(out, ", \"predicted_ps\": %" PRId64 ", \"measured_ps\": %" PRId64 "}",
            p->end_ps - p->begin_ps, m->end_ps - m->begin_ps);
  }
  fputs("\n  ],\n", out);
}

void timing_json(const timing_report *r, FILE *out)
{
  print_steps(r, out);
  print_ranks(r, out);
  print_classes(&r->with, out);
  print_worst(&r->with, out);
}
