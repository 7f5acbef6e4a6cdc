#include "sim/report/real_comparison.h"

#include <inttypes.h>

#include "sim/base/units.h"
#include "sim/predict/throughput.h"
#include "sim/report/real_run.h"
#include "sim/report/text.h"
#include "sim/text/json_text.h"
#include "traces/timing.h"

enum { COPIES_SHOWN = 10, DIFFERENCES_SHOWN = 6 };

static const char *const sides[SIDES] = { "predicted", "measured" };
static const char *const measure_names[REAL_MEASURES] = { "allocated", "active", "reserved" };

/* ==== for people ==== */

static const char *error_of(arena *a, int64_t predicted, int64_t measured)
{
  return predicted < 0 || measured <= 0 ? "-" : figure_ppm(a, error_ppm(predicted, measured));
}

static const char *milliseconds(arena *a, int64_t ps)
{
  return ps < 0 ? "-" : figure(a, ps, PS_PER_MS, 2);
}

static const char *mebibytes(arena *a, int64_t bytes)
{
  return bytes < 0 ? "-" : figure(a, bytes, MIB, 2);
}

static const char *pass_name(const real_comparison *c, uint32_t pass, arena *a)
{
  if (pass == REAL_NONE) return "no pass";
  const predicted_pass *p = &c->passes[pass];
  return arena_printf(a, "%s m%" PRIu32 " c%" PRIu32, real_pass_name(p->kind), p->microbatch,
                      p->chunk);
}

/* -1: not known. */
static int64_t speed_of(const real_comparison *c, int side)
{
  const predicted_run *p = &c->predicted;
  bool known = p->gpus > 0 && c->step_ps[side] > 0;
  return known ? tokens_per_s(p->tokens, p->gpus, c->step_ps[side]) : -1;
}

static void print_speed(const real_comparison *c, FILE *out)
{
  int64_t predicted = speed_of(c, SIDE_PREDICTED), measured = speed_of(c, SIDE_MEASURED);
  if (predicted < 0 || measured < 0) return;
  fprintf(out, "speed      predicted %" PRId64 " tokens/s on each GPU, measured %" PRId64 "\n",
          predicted, measured);
}

static void print_head(const real_comparison *c, FILE *out, arena *a)
{
  const real_run *r = c->measured.run;
  fprintf(out, "prediction %s, rank %" PRIu32 " of %" PRIu32 "\n",
          c->predicted.record->header.scenario, c->predicted.rank,
          c->predicted.record->header.ranks);
  fprintf(out, "real run   %s", r->sources);
  if (r->rank >= 0) fprintf(out, ", rank %" PRId64, r->rank);
  if (r->world_size >= 0) fprintf(out, " of %" PRId64, r->world_size);
  fputc('\n', out);
  if (!r->has_profile) return;
  if (c->step_ps[SIDE_MEASURED] < 0)
    fprintf(out, "step       predicted %s ms; the record has no times of the GPU\n",
            milliseconds(a, c->step_ps[SIDE_PREDICTED]));
  else
    fprintf(out, "step       predicted %s ms, measured %s ms%s: %s %%\n",
            milliseconds(a, c->step_ps[SIDE_PREDICTED]), milliseconds(a, c->step_ps[SIDE_MEASURED]),
            c->measured.step_ns > 0 ? "" : " under the profiler",
            error_of(a, c->step_ps[SIDE_PREDICTED], c->step_ps[SIDE_MEASURED]));
  print_speed(c, out);
  if (c->same_passes)
    fprintf(out, "passes     %" PRIu32 " forward and backward, in the same order\n", c->pass_count);
  else
    fprintf(out,
            "passes     %" PRIu32 " predicted, %" PRIu32
            " measured, or in another order: copies are aligned over the whole step\n",
            c->pass_count, c->measured_pass_count);
  if (c->measured.dropped_passes > 0)
    fprintf(out, "           of the last step; %" PRIu32 " passes before them are left out\n",
            c->measured.dropped_passes);
}

/* ---- copies ---- */

static void print_place(const direction_comparison *d, FILE *out)
{
  if (d->place[SIDE_PREDICTED] == d->place[SIDE_MEASURED])
    fprintf(out, ", %s", copy_place_name(d->place[SIDE_PREDICTED]));
  else
    fprintf(out, "; predicted on %s, measured on %s", copy_place_name(d->place[SIDE_PREDICTED]),
            copy_place_name(d->place[SIDE_MEASURED]));
}

static void print_direction(const direction_comparison *d, const char *name, FILE *out, arena *a)
{
  fprintf(out,
          "%s        %" PRIu32 " predicted, %" PRIu32 " measured (%s MiB), %" PRIu32
          " the same in order and bytes",
          name, d->count[SIDE_PREDICTED], d->count[SIDE_MEASURED],
          mebibytes(a, d->bytes[SIDE_MEASURED]), d->found[COPY_SAME]);
  for (int f = COPY_SAME + 1; f < COPY_FINDINGS; f++)
    if (d->found[f] > 0)
      fprintf(out, ", %" PRIu32 " %s", d->found[f], copy_finding_name((copy_finding)f));
  print_place(d, out);
  fputc('\n', out);
}

static void print_copy(const real_comparison *c, const compared_copy *copy, const char *name,
                       FILE *out, arena *a)
{
  fprintf(out, "  %-10s  %s  %s MiB", copy_finding_name(copy->finding), name,
          mebibytes(a, copy->bytes));
  if (copy->op != REAL_NONE) {
    const trace *t = c->predicted.record;
    const trace_op *o = &t->ops.items[copy->op];
    fprintf(out, "  %s", pass_name(c, copy->pass[SIDE_PREDICTED], a));
    if (o->layer >= 0) fprintf(out, ", layer %" PRId32, o->layer);
    fprintf(out, " %s", o->module);
    if (o->output_count > 0) fprintf(out, ": %s", t->outputs.items[o->first_output].buffer);
  }
  if (copy->span != REAL_NONE) {
    const real_span *s = &c->measured.run->spans.items[copy->span];
    fprintf(out, "%s  at %s ms", copy->op != REAL_NONE ? "; measured" : "",
            milliseconds(a, (s->begin_ns - c->measured.summary->begin_ns) * PS_PER_NS));
    if (c->same_passes) fprintf(out, " in %s", pass_name(c, copy->pass[SIDE_MEASURED], a));
  }
  fputc('\n', out);
}

static void print_differing(const real_comparison *c, const direction_comparison *d,
                            const char *name, FILE *out, arena *a)
{
  uint32_t shown = 0, differ = d->copy_count - d->found[COPY_SAME];
  for (uint32_t i = 0; i < d->copy_count && shown < COPIES_SHOWN; i++) {
    if (d->copies[i].finding == COPY_SAME) continue;
    print_copy(c, &d->copies[i], name, out, a);
    shown++;
  }
  if (shown < differ) fprintf(out, "  and %" PRIu32 " more %s copies\n", differ - shown, name);
}

/* ---- waits ---- */

static void print_wait_counts(const direction_comparison *d, wait_order order, FILE *out)
{
  fprintf(out, "%" PRIu32 " as predicted", d->waits[order][WAIT_SAME]);
  for (int f = WAIT_SAME + 1; f < WAIT_FINDINGS; f++)
    if (d->waits[order][f] > 0)
      fprintf(out, ", %" PRIu32 " %s", d->waits[order][f], wait_finding_name((wait_finding)f));
}

static const char *awaited_text(const real_comparison *c, uint32_t pass, arena *a)
{
  if (pass == AWAITED_NEVER) return "is never waited for";
  if (!c->same_passes) return "is waited for";
  return pass == c->pass_count ? "is waited for after the last pass"
                               : arena_printf(a, "is waited for in %s", pass_name(c, pass, a));
}

static void print_wait(const real_comparison *c, const compared_copy *copy, wait_order order,
                       const char *name, FILE *out, arena *a)
{
  const trace_op *o = &c->predicted.record->ops.items[copy->op];
  fprintf(out, "  %-10s  %s  %s MiB  %s", wait_finding_name(copy->wait[order]), name,
          mebibytes(a, copy->bytes), pass_name(c, copy->pass[SIDE_PREDICTED], a));
  if (o->layer >= 0) fprintf(out, ", layer %" PRId32, o->layer);
  fprintf(out, " %s: ", o->module);
  if (order == WAIT_BEFORE)
    fputs(copy->wait[order] == WAIT_MISSING ? "does not wait for compute\n"
                                            : "waits for compute again\n",
          out);
  else
    fprintf(out, "%s; predicted: %s\n", awaited_text(c, copy->awaited[SIDE_MEASURED], a),
            awaited_text(c, copy->awaited[SIDE_PREDICTED], a));
}

static uint32_t print_differing_waits(const real_comparison *c, const direction_comparison *d,
                                      const char *name, FILE *out, arena *a)
{
  uint32_t differ = 0;
  for (uint32_t i = 0; i < d->copy_count; i++)
    for (int order = 0; order < WAIT_ORDERS; order++)
      if (d->copies[i].wait[order] != WAIT_SAME && differ++ < COPIES_SHOWN)
        print_wait(c, &d->copies[i], (wait_order)order, name, out, a);
  return differ;
}

static void print_waits_of(const real_comparison *c, const direction_comparison *d,
                           const char *name, FILE *out, arena *a)
{
  fprintf(out, "waits      %s: copies for compute: ", name);
  print_wait_counts(d, WAIT_BEFORE, out);
  fputs("; compute for copies: ", out);
  print_wait_counts(d, WAIT_AFTER, out);
  fputc('\n', out);
  uint32_t differ = print_differing_waits(c, d, name, out, a);
  if (differ > COPIES_SHOWN)
    fprintf(out, "  and %" PRIu32 " more waits of %s copies\n", differ - COPIES_SHOWN, name);
}

static void print_waits(const real_comparison *c, FILE *out, arena *a)
{
  if (c->waits_compared) {
    print_waits_of(c, &c->d2h, "D2H", out, a);
    print_waits_of(c, &c->h2d, "H2D", out, a);
    return;
  }
  fprintf(out, "waits      not compared: %s\n",
          c->measured.run->waits_are_resolved
              ? "the record of a prediction does not say what streams wait for"
              : "the trace does not say what streams wait for");
}

static void print_copies(const real_comparison *c, FILE *out, arena *a)
{
  print_direction(&c->d2h, "D2H", out, a);
  print_direction(&c->h2d, "H2D", out, a);
  print_differing(c, &c->d2h, "D2H", out, a);
  print_differing(c, &c->h2d, "H2D", out, a);
  print_waits(c, out, a);
}

/* ---- times ---- */

enum { T_NAME, T_PREDICTED, T_MEASURED, T_ERROR, T_COLUMNS, TIME_ROWS = KERNEL_CLASS_COUNT + 5 };

static void put_time(grid *g, uint32_t row, const char *name, const int64_t ps[SIDES], arena *a)
{
  const char **cells = &g->cells[row * T_COLUMNS];
  cells[T_NAME] = name;
  cells[T_PREDICTED] = milliseconds(a, ps[SIDE_PREDICTED]);
  cells[T_MEASURED] = milliseconds(a, ps[SIDE_MEASURED]);
  cells[T_ERROR] = error_of(a, ps[SIDE_PREDICTED], ps[SIDE_MEASURED]);
}

static void set_columns(grid *g, const char *unit, const char *last, const char *below)
{
  g->head[0][T_PREDICTED] = "predicted,";
  g->head[0][T_MEASURED] = "measured,";
  g->head[0][T_ERROR] = last;
  g->head[1][T_PREDICTED] = g->head[1][T_MEASURED] = unit;
  g->head[1][T_ERROR] = below;
}

static void print_times(const real_comparison *c, FILE *out, arena *a)
{
  uint32_t row = 0, passes = c->same_passes ? c->pass_count : 0;
  grid g = grid_new(a, T_COLUMNS, TIME_ROWS + passes);
  set_columns(&g, "ms", "error,", "%");
  for (int k = 0; k < KERNEL_CLASS_COUNT; k++)
    put_time(&g, row++, arena_printf(a, "%s kernels", kernel_class_name((kernel_class)k)),
             c->class_ps[k], a);
  put_time(&g, row++, "D2H copies", c->d2h.busy_ps, a);
  put_time(&g, row++, "D2H exposed", c->d2h.exposed_ps, a);
  put_time(&g, row++, "H2D copies", c->h2d.busy_ps, a);
  put_time(&g, row++, "H2D exposed", c->h2d.exposed_ps, a);
  put_time(&g, row++, "GPU idle", c->idle_ps, a);
  for (uint32_t i = 0; i < passes; i++)
    put_time(&g, row++, pass_name(c, i, a), c->pass_figures[i].time_ps, a);
  fputc('\n', out);
  grid_print(&g, out);
}

/* ---- memory ---- */

static void put_bytes(grid *g, uint32_t row, const char *name, const int64_t bytes[SIDES], arena *a)
{
  const char **cells = &g->cells[row * T_COLUMNS];
  bool both = bytes[SIDE_PREDICTED] >= 0 && bytes[SIDE_MEASURED] >= 0;
  cells[T_NAME] = name;
  cells[T_PREDICTED] = mebibytes(a, bytes[SIDE_PREDICTED]);
  cells[T_MEASURED] = mebibytes(a, bytes[SIDE_MEASURED]);
  cells[T_ERROR] = both ? figure(a, bytes[SIDE_PREDICTED] - bytes[SIDE_MEASURED], MIB, 2) : "-";
}

static void print_peaks(const real_comparison *c, FILE *out, arena *a)
{
  uint32_t passes = c->same_passes ? c->pass_count : 0;
  grid g = grid_new(a, T_COLUMNS, REAL_MEASURES + passes);
  set_columns(&g, "MiB", "difference,", "MiB");
  for (int k = 0; k < REAL_MEASURES; k++)
    put_bytes(&g, (uint32_t)k, arena_printf(a, "peak %s", measure_names[k]), c->peak_bytes[k], a);
  for (uint32_t i = 0; i < passes; i++)
    put_bytes(&g, REAL_MEASURES + i, pass_name(c, i, a), c->pass_figures[i].peak_bytes, a);
  fputc('\n', out);
  grid_print(&g, out);
}

static void print_owner(const real_comparison *c, const block_owner *o, FILE *out, arena *a)
{
  fprintf(out, "      %-9s  %4" PRIu32 "  ", sides[o->predicted == NULL], o->count);
  if (o->predicted != NULL)
    fprintf(out, "%s: %s\n", o->predicted->module[0] != '\0' ? o->predicted->module : "the step",
            o->predicted->tensor);
  else
    fprintf(out, "%s\n", real_frame_text(c->measured.run, o->frame, a));
}

static void print_difference(const real_comparison *c, const block_difference *d, FILE *out,
                             arena *a)
{
  fprintf(out, "  of %s MiB (%" PRId64 " bytes): %" PRIu32 " predicted, %" PRIu32 " measured\n",
          mebibytes(a, d->bytes), d->bytes, d->count[SIDE_PREDICTED], d->count[SIDE_MEASURED]);
  for (uint32_t i = 0; i < d->owner_count; i++)
    print_owner(c, &d->owners[i], out, a);
}

static void print_blocks(const real_comparison *c, FILE *out, arena *a)
{
  if (c->resident_bytes[SIDE_PREDICTED] < 0) return;
  fprintf(out,
          "\nAt the peaks of allocated memory: from before the step %s MiB predicted, %s MiB "
          "measured;\nof the step's blocks %" PRIu32 " have one of their size on the other side",
          mebibytes(a, c->resident_bytes[SIDE_PREDICTED]),
          mebibytes(a, c->resident_bytes[SIDE_MEASURED]), c->paired_blocks);
  fputs(c->difference_count > 0 ? "; sizes that differ:\n" : ", all of them\n", out);
  for (uint32_t i = 0; i < c->difference_count && i < DIFFERENCES_SHOWN; i++)
    print_difference(c, &c->differences[i], out, a);
  if (c->difference_count > DIFFERENCES_SHOWN)
    fprintf(out, "  and %" PRIu32 " more sizes\n", c->difference_count - DIFFERENCES_SHOWN);
}

static void print_ratio(const real_comparison *c, FILE *out, arena *a)
{
  int64_t ppm;
  if (c->theoretical_saving_bytes <= 0) return;
  fprintf(out, "\nsaving     theory %s MiB", mebibytes(a, c->theoretical_saving_bytes));
  for (int side = 0; side < SIDES; side++)
    if (real_ratio_ppm(c, side, &ppm))
      fprintf(out, "; %s %s MiB, R %s %%", sides[side], mebibytes(a, c->saving_bytes[side]),
              figure_ppm(a, ppm));
  fputs(c->measured.without_peak_bytes >= 0 || c->saving_bytes[SIDE_MEASURED] < 0
            ? "\n"
            : " (below the predicted peak without offload)\n",
        out);
}

void real_comparison_table(const real_comparison *c, FILE *out, arena *a)
{
  print_head(c, out, a);
  if (c->measured.run->has_profile) {
    print_copies(c, out, a);
    if (c->measured.run->has_times) print_times(c, out, a);
  }
  if (c->measured.memory != NULL) {
    print_peaks(c, out, a);
    print_blocks(c, out, a);
    print_ratio(c, out, a);
  }
}

/* ==== for programs ==== */

static void json_times(FILE *out, const char *key, const int64_t ps[SIDES])
{
  fprintf(out, "\"%s\": {", key);
  for (int side = 0; side < SIDES; side++) {
    fprintf(out, "%s\"%s_s\": ", side > 0 ? ", " : "", sides[side]);
    if (ps[side] < 0)
      fputs("null", out);
    else
      json_decimal(out, ps[side], 12);
  }
  fputc('}', out);
}

static void json_bytes(FILE *out, const char *key, const int64_t bytes[SIDES])
{
  fprintf(out, "\"%s\": {", key);
  for (int side = 0; side < SIDES; side++) {
    fprintf(out, "%s\"%s_bytes\": ", side > 0 ? ", " : "", sides[side]);
    if (bytes[side] < 0)
      fputs("null", out);
    else
      fprintf(out, "%" PRId64, bytes[side]);
  }
  fputc('}', out);
}

static void json_pass_number(FILE *out, const char *key, uint32_t pass)
{
  fprintf(out, ", \"%s\": ", key);
  if (pass == REAL_NONE)
    fputs("null", out);
  else
    fprintf(out, "%" PRIu32, pass);
}

static void json_copy(const real_comparison *c, const compared_copy *copy, FILE *out)
{
  fprintf(out, "{\"finding\": \"%s\", \"bytes\": %" PRId64, copy_finding_name(copy->finding),
          copy->bytes);
  json_pass_number(out, "pass_predicted", copy->pass[SIDE_PREDICTED]);
  json_pass_number(out, "pass_measured", copy->pass[SIDE_MEASURED]);
  if (copy->op != REAL_NONE) {
    const trace_op *o = &c->predicted.record->ops.items[copy->op];
    fprintf(out, ", \"op\": %" PRIu32 ", \"layer\": %" PRId32 ", ", o->op, o->layer);
    json_member(out, "module", o->module);
  }
  if (copy->span != REAL_NONE) {
    const real_span *s = &c->measured.run->spans.items[copy->span];
    fputs(", \"begin_s\": ", out);
    json_decimal(out, s->begin_ns - c->measured.summary->begin_ns, 9);
  }
  fputc('}', out);
}

static void json_direction(const real_comparison *c, const direction_comparison *d, const char *key,
                           FILE *out)
{
  fprintf(out, "  \"%s\": {\"count\": {\"predicted\": %" PRIu32 ", \"measured\": %" PRIu32 "}, ",
          key, d->count[SIDE_PREDICTED], d->count[SIDE_MEASURED]);
  json_bytes(out, "bytes", d->bytes);
  fputs(", ", out);
  json_times(out, "busy", d->busy_ps);
  fputs(", ", out);
  json_times(out, "exposed", d->exposed_ps);
  fputs(",\n    ", out);
  for (int side = 0; side < SIDES; side++)
    fprintf(out, "\"place_%s\": \"%s\", ", sides[side], copy_place_name(d->place[side]));
  for (int f = 0; f < COPY_FINDINGS; f++)
    fprintf(out, "\"%s\": %" PRIu32 ", ", copy_finding_name((copy_finding)f), d->found[f]);
  fputs("\n    \"differ\": [", out);
  const char *comma = "";
  for (uint32_t i = 0; i < d->copy_count; i++) {
    if (d->copies[i].finding == COPY_SAME) continue;
    fprintf(out, "%s\n      ", comma);
    json_copy(c, &d->copies[i], out);
    comma = ",";
  }
  fputs("]},\n", out);
}

static void json_passes(const real_comparison *c, FILE *out)
{
  fputs("  \"passes\": [", out);
  for (uint32_t i = 0; i < c->pass_count; i++) {
    const predicted_pass *p = &c->passes[i];
    fprintf(out, "%s\n    {\"kind\": \"%s\", \"microbatch\": %" PRIu32 ", \"chunk\": %" PRIu32,
            i > 0 ? "," : "", real_pass_name(p->kind), p->microbatch, p->chunk);
    if (c->same_passes) {
      fputs(", ", out);
      json_bytes(out, "peak", c->pass_figures[i].peak_bytes);
      fputs(", ", out);
      json_times(out, "time", c->pass_figures[i].time_ps);
    }
    fputc('}', out);
  }
  fputs("],\n", out);
}

static void json_owner(const real_comparison *c, const block_owner *o, FILE *out)
{
  fprintf(out, "{\"side\": \"%s\", \"blocks\": %" PRIu32 ", ", sides[o->predicted == NULL],
          o->count);
  if (o->predicted != NULL) {
    json_member(out, "module", o->predicted->module);
    fputs(", ", out);
    json_member(out, "tensor", o->predicted->tensor);
  } else if (o->frame == REAL_NONE) {
    fputs("\"file\": null", out);
  } else {
    const real_frame *f = &c->measured.run->frames.items[o->frame];
    json_member(out, "file", f->file);
    fprintf(out, ", \"line\": %" PRIu32 ", ", f->line);
    json_member(out, "function", f->function);
  }
  fputc('}', out);
}

static void json_difference(const real_comparison *c, const block_difference *d, FILE *out)
{
  fprintf(out,
          "{\"bytes\": %" PRId64 ", \"predicted_blocks\": %" PRIu32
          ", \"measured_blocks\": %" PRIu32 ", \"owners\": [",
          d->bytes, d->count[SIDE_PREDICTED], d->count[SIDE_MEASURED]);
  for (uint32_t i = 0; i < d->owner_count; i++) {
    fputs(i > 0 ? ", " : "", out);
    json_owner(c, &d->owners[i], out);
  }
  fputs("]}", out);
}

static void json_memory(const real_comparison *c, FILE *out)
{
  fputs("  \"memory\": {\"peaks\": {", out);
  for (int k = 0; k < REAL_MEASURES; k++) {
    json_bytes(out, measure_names[k], c->peak_bytes[k]);
    fputs(k + 1 < REAL_MEASURES ? ", " : "}, ", out);
  }
  json_bytes(out, "held_from_before", c->resident_bytes);
  fprintf(out, ",\n    \"blocks_paired\": %" PRIu32 ", \"blocks_differ\": [", c->paired_blocks);
  for (uint32_t i = 0; i < c->difference_count; i++) {
    fputs(i > 0 ? ",\n      " : "\n      ", out);
    json_difference(c, &c->differences[i], out);
  }
  fprintf(out, "],\n    \"theoretical_saving_bytes\": %" PRId64 ", ", c->theoretical_saving_bytes);
  json_bytes(out, "saving", c->saving_bytes);
  fputs("},\n", out);
}

static void json_wait_counts(const direction_comparison *d, const char *key, FILE *out)
{
  fprintf(out, "\"%s\": {", key);
  for (int order = 0; order < WAIT_ORDERS; order++) {
    fprintf(out, "%s\"%s\": {", order > 0 ? ", " : "", wait_order_name((wait_order)order));
    for (int f = 0; f < WAIT_FINDINGS; f++)
      fprintf(out, "%s\"%s\": %" PRIu32, f > 0 ? ", " : "", wait_finding_name((wait_finding)f),
              d->waits[order][f]);
    fputc('}', out);
  }
  fputs("},\n    ", out);
}

/* null: in no pass, or never. */
static void json_awaited(const real_comparison *c, const char *key, uint32_t pass, FILE *out)
{
  if (pass == AWAITED_NEVER || !c->same_passes)
    fprintf(out, ", \"%s\": null", key);
  else
    fprintf(out, ", \"%s\": %" PRIu32, key, pass);
}

static void json_wait(const real_comparison *c, const compared_copy *copy, wait_order order,
                      const char *direction, FILE *out)
{
  const trace_op *o = &c->predicted.record->ops.items[copy->op];
  fprintf(out,
          "{\"direction\": \"%s\", \"order\": \"%s\", \"finding\": \"%s\", \"bytes\": %" PRId64
          ", \"op\": %" PRIu32 ", \"layer\": %" PRId32 ", ",
          direction, wait_order_name(order), wait_finding_name(copy->wait[order]), copy->bytes,
          o->op, o->layer);
  json_member(out, "module", o->module);
  if (order == WAIT_AFTER) {
    json_awaited(c, "pass_predicted", copy->awaited[SIDE_PREDICTED], out);
    json_awaited(c, "pass_measured", copy->awaited[SIDE_MEASURED], out);
  }
  fputc('}', out);
}

static uint32_t json_differing_waits(const real_comparison *c, const direction_comparison *d,
                                     const char *direction, uint32_t before, FILE *out)
{
  for (uint32_t i = 0; i < d->copy_count; i++)
    for (int order = 0; order < WAIT_ORDERS; order++) {
      if (d->copies[i].wait[order] == WAIT_SAME) continue;
      fputs(before++ > 0 ? ",\n      " : "\n      ", out);
      json_wait(c, &d->copies[i], (wait_order)order, direction, out);
    }
  return before;
}

static void json_waits(const real_comparison *c, FILE *out)
{
  if (!c->waits_compared) {
    fputs("  \"waits\": null,\n", out);
    return;
  }
  fputs("  \"waits\": {", out);
  json_wait_counts(&c->d2h, "d2h", out);
  json_wait_counts(&c->h2d, "h2d", out);
  fputs("\"differ\": [", out);
  uint32_t differ = json_differing_waits(c, &c->d2h, "d2h", 0, out);
  json_differing_waits(c, &c->h2d, "h2d", differ, out);
  fputs("]},\n", out);
}

static void json_speed(const real_comparison *c, FILE *out)
{
  fputs(",\n  \"tokens_per_s_per_gpu\": {", out);
  for (int side = 0; side < SIDES; side++) {
    int64_t speed = speed_of(c, side);
    fprintf(out, "%s\"%s\": ", side > 0 ? ", " : "", sides[side]);
    if (speed < 0)
      fputs("null", out);
    else
      fprintf(out, "%" PRId64, speed);
  }
  fputc('}', out);
}

void real_comparison_json(const real_comparison *c, const gate_list *g, FILE *out)
{
  fputs("{\n  \"format_version\": 1,\n  ", out);
  json_member(out, "scenario", c->predicted.record->header.scenario);
  fprintf(out, ",\n  \"rank\": %" PRIu32 ",\n  ", c->predicted.rank);
  json_member(out, "sources", c->measured.run->sources);
  fprintf(out, ",\n  \"same_passes\": %s,\n  \"same_copies\": %s,\n  \"waits_resolved\": %s,\n  ",
          c->same_passes ? "true" : "false", c->same_copies ? "true" : "false",
          c->measured.run->waits_are_resolved ? "true" : "false");
  json_times(out, "step", c->step_ps);
  json_speed(c, out);
  fputs(",\n  \"times\": {", out);
  for (int k = 0; k < KERNEL_CLASS_COUNT; k++) {
    json_times(out, kernel_class_name((kernel_class)k), c->class_ps[k]);
    fputs(", ", out);
  }
  json_times(out, "idle", c->idle_ps);
  fputs("},\n", out);
  json_passes(c, out);
  json_direction(c, &c->d2h, "d2h", out);
  json_direction(c, &c->h2d, "h2d", out);
  json_waits(c, out);
  json_memory(c, out);
  gates_json(g, out);
  fputs("\n}\n", out);
}
