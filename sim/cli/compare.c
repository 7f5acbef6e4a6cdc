#include <stdio.h>
#include <string.h>

#include "sim/base/file.h"
#include "sim/cli/compare_real.h"
#include "sim/cli/percent_gates.h"
#include "sim/cli/verbs.h"
#include "sim/report/comparison_page.h"
#include "sim/report/plot.h"
#include "traces/import/real_run.h"
#include "traces/packed.h"

typedef enum percent_gate {
  GATE_PEAK_ERROR,
  GATE_STEP_ERROR,
  GATE_OVERHEAD_ERROR,
  GATE_RATIO,
  GATES
} percent_gate;

typedef struct compare_options {
  bool json, outputs;
  trace_names names;
  trace_names without; /* the same without offload; NULL: not given */
  const char *plot, *html;
  int64_t plot_rank;
  double gates[GATES]; /* percent; -1: not given */
  real_options real;
  load_options load; /* of a prediction to compare a real run with */
} compare_options;

/* "A0,B0" */
static void take_without(void *to, const char *value, arena *a, diag *d)
{
  compare_options *o = to;
  const char *comma = strchr(value, ',');
  if (comma == NULL || strchr(comma + 1, ',') != NULL)
    diag_error(d, (source_pos){ "--without", 0, 0 },
               "\"%s\": expected two traces with a comma between", value);
  else
    o->without = (trace_names){ arena_printf(a, "%.*s", (int)(comma - value), value), comma + 1 };
}

static const char head[] = "usage: offsim compare [OPTION...] A B\n"
                           "       offsim compare [OPTION...] SCENARIO|PREDICTION REAL...\n\n"
                           "Compares two traces (docs/reference/traces.md): whether every rank "
                           "issued the same ops in the\n"
                           "same order, requested the same memory and wrote the same bits, and "
                           "which op is the first that\n"
                           "did not. A prediction (predict --record) beside a run on GPUs (run "
                           "--on cuda --record): times and\n"
                           "memory as well. Exit status 1: they differ, or a gate is broken.\n\n"
                           "A prediction beside a real run: PREDICTION is a file of predict "
                           "--record, REAL a profiler's\n"
                           "trace, a memory snapshot or both, or what offsim record wrote "
                           "(offsim import reads them). They\n"
                           "are aligned by passes and copies. Exit status 1: a gate is broken "
                           "(docs/reference/real-runs.md)."
                           "\n\n";

#define OPTIONS compare_options
static const option_row rows[] = {
  FLAG("outputs", outputs,
       "judge only what was written, op by op at the same place in the\n"
       "model: for two settings of offload or recomputation"),
  TAKE("without", "A0,B0", take_without,
       "the same two runs without offload: overhead, saving and R"),
  TEXT("html", "FILE", html,
       "one page for a browser: both timelines, memory, the largest\n"
       "differences, gates; - is standard output, instead of the report\n"
       "(docs/reference/html.md)"),
  TEXT("plot", "FILE", plot, "both timelines above each other, as .svg, .png or .pdf"),
  WHOLE("plot-rank", "N", plot_rank, 0, INT64_MAX, "of that rank (default 0)"),
  FLAG("json", json, "machine-readable result (docs/reference/json.md)"),
  NOTE("\nGates, of a prediction beside a measurement:"),
  REAL("max-peak-error", "PERCENT", gates[GATE_PEAK_ERROR], 0, 1000,
       "of live memory's peak, of any rank; of a real run of allocated\n"
       "memory's peak"),
  REAL("max-step-error", "PERCENT", gates[GATE_STEP_ERROR], 0, 1000, "of the step's time"),
  REAL("max-overhead-error", "PP", gates[GATE_OVERHEAD_ERROR], 0, 1000,
       "of offload's overhead, in percentage points (--without)"),
  REAL("min-ratio", "PERCENT", gates[GATE_RATIO], 0, 1000,
       "R, measured over simulated saving of live memory, of any rank\n"
       "(--without); of a real run over the theoretical saving"),
  NOTE("\nOf a real run:"),
  FLAG("same-copies", real.same_copies, "a gate: all copies in order, bytes and streams"),
  FLAG("all-waits", real.all_waits,
       "a gate: each copy waits for compute, and compute for it, no later\nthan predicted"),
  REAL("step-time", "SECONDS", real.step_time, 0, 1000000,
       "logged step time without the profiler, which slows the host down"),
  WHOLE("without-peak", "BYTES", real.without_peak_bytes, 0, INT64_MAX,
        "logged peak of allocated memory of the same run without offload,\n"
        "for R (default: the predicted one)"),
  WHOLE("rank", "N", real.rank, 0, INT32_MAX,
        "the prediction's pipeline rank (default: the run's)"),
  TEXT("junit", "FILE", real.junit, "the gates as JUnit's XML"),
  NOTE("\nThe prediction of a real run, unless its record is given:"),
  { .name = NULL },
};

/* ---- gates ---- */

static const struct {
  const char *name, *of;
  bool needs_without;
  bool (*figure)(const timings *t, int64_t *ppm);
} percent_gates[GATES] = {
  [GATE_PEAK_ERROR] = { "max-peak-error", "peak", false, timing_peak_error_ppm },
  [GATE_STEP_ERROR] = { "max-step-error", "step", false, timing_step_error_ppm },
  [GATE_OVERHEAD_ERROR] = { "max-overhead-error", "overhead", true, timing_overhead_error_ppm },
  [GATE_RATIO] = { "min-ratio", "saving", true, timing_ratio_ppm },
};

static bool gates_are_set(const compare_options *o)
{
  for (int i = 0; i < GATES; i++)
    if (o->gates[i] >= 0) return true;
  return false;
}

/* False after a diag error: a gate needs a figure that is unknown. */
static bool find_gates(gate_list *g, const compare_options *o, const timings *t, arena *a, diag *d)
{
  for (int i = 0; i < GATES; i++) {
    int64_t ppm;
    const char *name = percent_gates[i].name;
    const source_pos at = { arena_printf(a, "--%s", name), 0, 0 };
    if (o->gates[i] < 0) continue;
    if (percent_gates[i].needs_without && t->without == NULL)
      return diag_error(d, at, "needs --without, the traces without offload");
    if (!percent_gates[i].figure(t, &ppm))
      return diag_error(d, at, "the traces do not give the %s", percent_gates[i].of);
    if (i == GATE_RATIO)
      gate_put_ratio(g, name, ppm, o->gates[i], a);
    else
      gate_put_error(g, name, percent_gates[i].of, ppm, o->gates[i], a);
  }
  return true;
}

/* ---- traces ---- */

/* The ops to compare: all, or those that write. */
static bool is_same(const compare_options *o, const trace_comparison *c)
{
  return c->outputs_differ == 0 && (o->outputs || (c->same_order && c->same_bytes));
}

/* A comparison of no ops would succeed. */
static bool check_contents(const compare_options *o, const trace_comparison *c, diag *d)
{
  return !o->outputs || c->outputs > 0 ||
         diag_error(d, (source_pos){ "--outputs", 0, 0 },
                    "the traces have no op in common whose contents both know");
}

/* Two traces, read. */
typedef struct two_traces {
  trace a, b;
} two_traces;

static bool read_both(two_traces *t, const trace_names *names, intern_table *texts, diag *d)
{
  *t = (two_traces){ .a = { .figures = NULL } };
  return trace_read(&t->a, names->a, texts, d) && trace_read(&t->b, names->b, texts, d);
}

static void release_both(two_traces *t)
{
  trace_release(&t->a);
  trace_release(&t->b);
}

static bool time_both(timing *to, const two_traces *t, arena *a)
{
  const trace *predicted, *measured;
  if (!timing_applies(&t->a, &t->b, &predicted, &measured)) return false;
  *to = trace_timing(predicted, measured, a);
  return true;
}

/* The files that were read, and the result. */
typedef struct judged {
  two_traces with, without;
  trace_comparison c;
  bool same;
  gate_list gates;
  timing timed_without;
  timings timed;
  bool is_timed;
} judged;

static bool read_all(judged *j, const compare_options *o, arena *a, diag *d)
{
  intern_table texts = { .memory = a };
  if (!read_both(&j->with, &o->names, &texts, d)) return false;
  if (o->without.a != NULL && !read_both(&j->without, &o->without, &texts, d)) return false;
  trace_compare(&j->c, &j->with.a, &j->with.b, a);
  j->is_timed = time_both(&j->timed.with, &j->with, a);
  if (o->without.a != NULL && time_both(&j->timed_without, &j->without, a))
    j->timed.without = &j->timed_without;
  return true;
}

static bool check_timed(const judged *j, const compare_options *o, diag *d)
{
  if (!j->is_timed && (o->plot != NULL || o->without.a != NULL || gates_are_set(o)))
    return diag_error(d, (source_pos){ 0 },
                      "gates, --without and --plot need a prediction and a run with times");
  if (o->without.a != NULL && j->timed.without == NULL)
    return diag_error(d, (source_pos){ "--without", 0, 0 },
                      "needs a prediction and a run with times, too");
  if (o->plot != NULL && o->plot_rank >= (int64_t)j->timed.with.rank_count)
    return diag_error(d, (source_pos){ "--plot-rank", 0, 0 }, "there are %u ranks",
                      j->timed.with.rank_count);
  return true;
}

static bool write_page(const judged *j, const compare_options *o, arena *a, diag *d)
{
  packed_file f;
  if (!packed_open(&f, o->html, d)) return false;
  traces_html(&(compared_traces){ .c = &j->c,
                                  .names = &o->names,
                                  .outputs_only = o->outputs,
                                  .same = j->same,
                                  .timed = j->is_timed ? &j->timed : NULL,
                                  .gates = &j->gates },
              f.stream, a);
  return packed_close(&f, d);
}

static bool print_both(const judged *j, const compare_options *o, arena *a, diag *d)
{
  if (o->json) {
    traces_json(&j->c, &o->names, j->same, j->is_timed ? &j->timed : NULL, &j->gates, stdout);
  } else if (!file_is_stdout(o->html)) {
    traces_table(&j->c, &o->names, o->outputs, stdout, a);
    if (j->is_timed) timing_table(&j->timed, stdout, a);
  }
  fflush(stdout);
  gates_broken(&j->gates, stderr);
  return (o->html == NULL || write_page(j, o, a, d)) &&
         (o->plot == NULL || timing_plot(&j->timed.with, (uint32_t)o->plot_rank, o->plot, a, d));
}

static bool compare(const compare_options *o, bool *same, arena *a, diag *d)
{
  judged j = { .is_timed = false };
  bool ok = (o->plot == NULL || plot_check_path(o->plot, d)) && read_all(&j, o, a, d) &&
            check_timed(&j, o, d) && check_contents(o, &j.c, d) &&
            find_gates(&j.gates, o, &j.timed, a, d);
  if (ok) {
    j.same = is_same(o, &j.c);
    *same = j.same && gates_hold(&j.gates);
    ok = print_both(&j, o, a, d);
  }
  release_both(&j.with);
  release_both(&j.without);
  return ok;
}

/* ---- which of the two ---- */

static bool only_of_records(const compare_options *o, diag *d)
{
  if (!o->outputs && o->without.a == NULL && o->plot_rank == 0 && o->gates[GATE_OVERHEAD_ERROR] < 0)
    return true;
  return diag_error(
      d, (source_pos){ 0 },
      "--outputs, --without, --plot-rank and --max-overhead-error are for two records of "
      "offsim");
}

static bool only_of_real_runs(const compare_options *o, diag *d)
{
  const real_options *r = &o->real;
  if (!load_is_given(&o->load) && !r->same_copies && !r->all_waits && r->step_time == 0 &&
      r->rank < 0 && r->without_peak_bytes < 0 && r->junit == NULL)
    return true;
  return diag_error(
      d, (source_pos){ 0 },
      "a configuration, --same-copies, --all-waits, --step-time, --without-peak, --rank and "
      "--junit are for a real run; none of the files is one");
}

/* Standard input cannot be looked at before it is read: beside a record it is one. */
static bool is_real(const char *file, bool beside_record)
{
  return strcmp(file, "-") == 0 ? !beside_record : real_run_file_kind(file) == REAL_FILE_RUN;
}

/* Moves files of real runs to the end and returns their number. */
static int real_files(char **files, int count)
{
  int others = 0;
  bool beside_record = false;
  for (int i = 0; i < count; i++)
    beside_record = beside_record || real_run_file_kind(files[i]) == REAL_FILE_OWN_RECORD;
  for (int i = 0; i < count; i++) {
    char *file = files[i];
    if (is_real(file, beside_record)) continue;
    memmove(files + others + 1, files + others, (size_t)(i - others) * sizeof *files);
    files[others++] = file;
  }
  return count - others;
}

static bool compare_real_files(compare_options *o, char **files, int count, int reals, bool *same,
                               arena *a, diag *d)
{
  const char *other = count > reals ? files[0] : NULL, *record = NULL;
  if (count - reals > 1)
    return diag_error(
        d, (source_pos){ 0 },
        "of \"%s\" and \"%s\" neither is a real run; one of them can be the prediction", files[0],
        files[1]);
  if (other != NULL && real_run_file_kind(other) == REAL_FILE_OWN_RECORD)
    record = other;
  else
    o->load.scenario = other;
  if (record != NULL && load_is_given(&o->load))
    return diag_error(d, (source_pos){ record, 0, 0 },
                      "is a prediction; a configuration cannot be given with it");
  o->real.json = o->json;
  o->real.plot = o->plot;
  o->real.html = o->html;
  o->real.max_peak_error = o->gates[GATE_PEAK_ERROR];
  o->real.max_step_error = o->gates[GATE_STEP_ERROR];
  o->real.min_ratio = o->gates[GATE_RATIO];
  return only_of_records(o, d) &&
         compare_with_real(&o->real, record, &o->load, files + count - reals, reals, same, a, d);
}

static bool compare_files(compare_options *o, char **files, int count, bool *same, arena *a,
                          diag *d)
{
  if (o->json && (file_is_stdout(o->html) || file_is_stdout(o->real.junit)))
    return diag_error(d, (source_pos){ file_is_stdout(o->html) ? "--html" : "--junit", 0, 0 },
                      "standard output is --json's; write to a file");
  int reals = real_files(files, count);
  if (reals > 0) return compare_real_files(o, files, count, reals, same, a, d);
  if (count != 2)
    return diag_error(d, (source_pos){ 0 }, "compare takes two traces; found %d", count);
  o->names = (trace_names){ files[0], files[1] };
  return only_of_real_runs(o, d) && compare(o, same, a, d);
}

int verb_compare(int argc, char **argv)
{
  compare_options o = { .gates = { -1, -1, -1, -1 },
                        .real = { .rank = -1, .without_peak_bytes = -1 } };
  const verb_syntax v = { "compare", head, { { rows, &o }, { load_rows, &o.load } } };
  arena a = { 0 };
  diag d = { 0 };
  bool same = true;
  int rest;
  if (options_parse(&v, argc, argv, &rest, &a, &d) == PARSED)
    compare_files(&o, argv + rest, argc - rest, &same, &a, &d);
  arena_release(&a);
  int status = diag_finish(&d);
  return status == 0 && !same ? 1 : status;
}
