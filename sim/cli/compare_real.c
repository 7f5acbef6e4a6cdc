#include "sim/cli/compare_real.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/file.h"
#include "sim/cli/percent_gates.h"
#include "sim/cli/threads.h"
#include "sim/predict/expected_run.h"
#include "sim/report/comparison_page.h"
#include "sim/report/plot.h"
#include "traces/packed.h"

/* ---- gates ---- */

static bool unknown(const char *option, const char *what, diag *d)
{
  return diag_error(d, (source_pos){ option, 0, 0 }, "the files do not give the %s", what);
}

static bool error_gate(gate_list *g, const char *name, const char *of, double limit, bool known,
                       int64_t ppm, arena *a, diag *d)
{
  if (!known) return unknown(arena_printf(a, "--%s", name), of, d);
  gate_put_error(g, name, of, ppm, limit, a);
  return true;
}

static bool ratio_gate(gate_list *g, const real_comparison *c, double limit, arena *a, diag *d)
{
  int64_t ppm;
  if (!real_ratio_ppm(c, SIDE_MEASURED, &ppm)) return unknown("--min-ratio", "saving", d);
  gate_put_ratio(g, "min-ratio", ppm, limit, a);
  return true;
}

static bool copies_gate(gate_list *g, const real_comparison *c, arena *a, diag *d)
{
  if (!c->measured.run->has_profile) return unknown("--same-copies", "copies", d);
  uint32_t differ =
      c->d2h.copy_count - c->d2h.found[COPY_SAME] + c->h2d.copy_count - c->h2d.found[COPY_SAME];
  gate_put(g, "same-copies", c->same_copies,
           c->same_copies ? "all copies are the same in order, bytes and streams"
           : differ > 0   ? arena_printf(a, "%u copies differ", differ)
                          : "copies run on other streams than predicted");
  return true;
}

static bool waits_gate(gate_list *g, const real_comparison *c, arena *a, diag *d)
{
  if (!c->waits_compared) return unknown("--all-waits", "waits", d);
  uint32_t wrong = real_wrong_waits(c);
  gate_put(g, "all-waits", wrong == 0,
           wrong == 0 ? "no wait is missing or late"
                      : arena_printf(a, "%u waits are missing or late", wrong));
  return true;
}

static bool find_gates(gate_list *g, const real_options *o, const real_comparison *c, arena *a,
                       diag *d)
{
  int64_t peak = 0, step = 0;
  bool knows_peak = real_peak_error_ppm(c, &peak);
  bool knows_step = c->measured.run->has_profile && real_step_error_ppm(c, &step);
  return (!o->same_copies || copies_gate(g, c, a, d)) &&
         (!o->all_waits || waits_gate(g, c, a, d)) &&
         (o->max_peak_error < 0 ||
          error_gate(g, "max-peak-error", "peak", o->max_peak_error, knows_peak, peak, a, d)) &&
         (o->max_step_error < 0 ||
          error_gate(g, "max-step-error", "step", o->max_step_error, knows_step, step, a, d)) &&
         (o->min_ratio < 0 || ratio_gate(g, c, o->min_ratio, a, d));
}

/* ---- the prediction ---- */

/* The prediction that the run is compared with: made here, or read from a record. */
typedef struct expectation {
  trace record;
  prediction p;
  bool is_predicted;
} expectation;

static bool predict_here(expectation *e, const load_options *load, arena *a, diag *d)
{
  settings *s = ARENA_NEW(a, settings);
  const machine *m;
  e->is_predicted = true;
  return load_settings(load, s, &m, a, d) &&
         predict(&e->p, s, NULL, m, PREDICT_CURVES, threads_or_cores(0), a, d) &&
         expected_record(&e->record, &e->p, load_name(load), a, d);
}

static bool read_record(expectation *e, const char *path, arena *a, diag *d)
{
  intern_table texts = { .memory = a };
  if (!trace_read(&e->record, path, &texts, d)) return false;
  return strcmp(e->record.header.source, "sim") == 0 ||
         diag_error(d, (source_pos){ path, 1, 1 },
                    "is a record of %s; a real run is compared with a prediction (predict "
                    "--record)",
                    e->record.header.source);
}

bool real_rank(int64_t asked, int64_t ranks, const real_run *r, uint32_t *rank, diag *d)
{
  int64_t of = r->rank >= 0 ? r->rank : 0;
  if (asked >= 0)
    of = asked;
  else if (r->world_size > ranks && r->world_size % ranks == 0)
    of /= r->world_size / ranks;
  *rank = (uint32_t)of;
  return of < ranks || diag_error(d, (source_pos){ 0 },
                                  "the run is of rank %lld; the prediction has %lld pipeline ranks "
                                  "(--rank names one)",
                                  (long long)of, (long long)ranks);
}

/* ---- all ---- */

static bool write_junit(const char *path, const gate_list *g, diag *d)
{
  file_writer w;
  if (!file_open(&w, path, d)) return false;
  gates_junit(g, w.stream);
  return file_close(&w, d);
}

static bool write_page(const char *path, const real_comparison *c, const gate_list *g, arena *a,
                       diag *d)
{
  packed_file f;
  if (!packed_open(&f, path, d)) return false;
  real_comparison_html(c, g, f.stream, a);
  return packed_close(&f, d);
}

static bool print(const real_options *o, const real_comparison *c, bool *held, arena *a, diag *d)
{
  gate_list g = { .count = 0 };
  if (!find_gates(&g, o, c, a, d)) return false;
  bool silent = file_is_stdout(o->html) || file_is_stdout(o->junit);
  if (o->json && !silent)
    real_comparison_json(c, &g, stdout);
  else if (!silent)
    real_comparison_table(c, stdout, a);
  fflush(stdout);
  gates_broken(&g, stderr);
  *held = gates_hold(&g);
  return (o->html == NULL || write_page(o->html, c, &g, a, d)) &&
         (o->plot == NULL || real_comparison_plot(c, o->plot, a, d)) &&
         (o->junit == NULL || write_junit(o->junit, &g, d));
}

/* Of a run of several steps the last one; returns how many passes come before it. */
static uint32_t keep_last_step(const predicted_run *p, real_run *r, arena *a)
{
  uint32_t count;
  const real_pass_kind *kinds = predicted_pass_kinds(p, &count, a);
  return real_run_keep_last(r, kinds, count);
}

static bool compare_with(const real_options *o, const expectation *e, real_run *r, bool *held,
                         arena *a, diag *d)
{
  uint32_t rank;
  if (!real_rank(o->rank, e->record.header.ranks, r, &rank, d)) return false;
  predicted_run predicted =
      e->is_predicted
          ? expected_run(&e->record, &e->p, rank, a)
          : (predicted_run){ .record = &e->record, .rank = rank, .without_peak_bytes = -1 };
  uint32_t dropped = keep_last_step(&predicted, r, a);
  run_summary summary = run_summary_of(r, a);
  run_memory memory;
  if (r->has_memory) memory = run_memory_of(r, a);
  measured_run measured = { .run = r,
                            .summary = &summary,
                            .memory = r->has_memory ? &memory : NULL,
                            .step_ns = o->step_time > 0 ? llround(o->step_time * 1e9) : 0,
                            .dropped_passes = dropped,
                            .without_peak_bytes = o->without_peak_bytes };
  real_comparison c = compare_real(&predicted, &measured, a);
  return print(o, &c, held, a, d);
}

bool compare_with_real(const real_options *o, const char *record, const load_options *load,
                       char **files, int count, bool *held, arena *a, diag *d)
{
  expectation e = { .is_predicted = false };
  real_run r;
  bool ok = (o->plot == NULL || plot_check_path(o->plot, d)) &&
            (record != NULL ? read_record(&e, record, a, d) : predict_here(&e, load, a, d));
  real_run_init(&r, a);
  for (int i = 0; ok && i < count; i++)
    ok = real_run_read(&r, files[i], 0, d);
  ok = ok && real_run_finish(&r, d) && compare_with(o, &e, &r, held, a, d);
  real_run_release(&r);
  trace_release(&e.record);
  prediction_release(&e.p);
  return ok;
}
