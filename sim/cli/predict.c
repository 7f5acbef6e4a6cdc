#include <stdio.h>
#include <unistd.h>

#include "sim/base/file.h"
#include "sim/cli/growth.h"
#include "sim/cli/ranks.h"
#include "sim/cli/threads.h"
#include "sim/cli/verbs.h"
#include "sim/load/load.h"
#include "sim/offload/systems.h"
#include "sim/plan/text.h"
#include "sim/predict/longest.h"
#include "sim/predict/range.h"
#include "sim/predict/safety.h"
#include "sim/predict/uneven_load.h"
#include "sim/report/findings.h"
#include "sim/report/plot.h"
#include "sim/report/prediction.h"
#include "traces/packed.h"

typedef struct predict_options {
  load_options load;
  bool json, brief, print_scenario, compare_systems, check, suggest, must_fit, range;
  const char *trace, *snapshot, *record, *plot, *plan, *warmup_plan, *steady_plan, *html;
  const char *trace_ranks; /* NULL: all */
  int64_t plot_rank;
  measured_bytes measured;
  growth_options growth;
  int64_t threads;
} predict_options;

static const char head[] =
    "usage: offsim predict [OPTION...] [SCENARIO.yaml]\n"
    "       offsim predict [--machine NAME|FILE] [--json] --plan FILE\n\n"
    "Peak memory, saving and overhead of a setting on every pipeline rank, beside the same run\n"
    "without offload.\n\n";

#define OPTIONS predict_options
static const option_row rows[] = {
  FLAG("print-scenario", print_scenario, "print the resolved scenario, which reads back, and stop"),
  FLAG("brief", brief, "memory and its verdict alone; no search for what would fit"),
  FLAG("json", json, "machine-readable result (docs/reference/json.md)"),
  FLAG("range", range,
       "the range in which a measured step should be, and its causes: times\n"
       "the steady iteration some twenty times more; also the memory that\n"
       "an uneven load of experts takes"),
  TEXT("trace", "FILE", trace,
       "timeline as a trace in the form of PyTorch's profiler, for\n"
       "ui.perfetto.dev or HTA; packed if FILE ends in .gz, - is standard\n"
       "output, instead of the report"),
  TEXT("trace-ranks", "LIST", trace_ranks,
       "only these pipeline ranks: 0, 0,2 or 1-3; HTA wants a file for each"),
  TEXT("memory-snapshot", "FILE", snapshot,
       "memory of the first of these ranks as PyTorch's snapshot, for its\n"
       "memory_viz page"),
  TEXT("record", "FILE", record,
       "steady iteration as a trace for offsim compare\n(docs/reference/traces.md)"),
  TEXT("html", "FILE", html,
       "one page for a browser: verdict, timeline and memory; - is standard\n"
       "output, instead of the report (docs/reference/html.md)"),
  TEXT("plot", "FILE.svg|png|pdf", plot, "timeline and memory curve"),
  WHOLE("plot-rank", "N", plot_rank, 0, INT64_MAX, "pipeline rank that --plot draws (default 0)"),
  WHOLE("measured-static", "N", measured.static_bytes, 0, INT64_MAX,
        "logged static bytes of the last rank, printed beside the prediction"),
  WHOLE("measured-peak", "N", measured.peak_bytes, 0, INT64_MAX,
        "logged peak bytes of the last rank, likewise"),
  FLAG("compare-systems", compare_systems,
       "the same model through every offload system that accepts it: one\n"
       "table; --json and --plot then show all of them"),
  FLAG("suggest", suggest,
       "predict all single settings that may make it fit, without a time\n"
       "limit; by default only some, if it does not fit"),
  FLAG("must-fit", must_fit, "exit status 1 if it does not fit"),
  TEXT("against", "FILE", growth.against,
       "an earlier result of predict --json: by how much peaks and step\ngrew since"),
  REAL("max-peak-growth", "PERCENT", growth.peak_percent, 0, 1000000,
       "exit status 1 if the highest peak, allocated or reserved, grew more"),
  REAL("max-step-growth", "PERCENT", growth.step_percent, 0, 1000000,
       "exit status 1 if the step grew more"),
  FLAG("check", check,
       "first check the plan as offsim check does; exit status 1 if it is\n"
       "not safe"),
  TEXT("plan", "FILE", plan,
       "time and memory of a plan as offsim plan prints it, which is\n"
       "checked first (- reads standard input)"),
  TEXT("warmup-plan", "FILE", warmup_plan,
       "plan of the first iteration, as offsim plan prints it, in place of a\n"
       "compiled one: of a run that was recorded"),
  TEXT("steady-plan", "FILE", steady_plan, "plan of the later iterations, likewise"),
  WHOLE("threads", "N", threads, 1, MOST_THREADS,
        "parts of the prediction at a time (default: one a core); cannot\n"
        "change a byte"),
  { .name = NULL },
};

/* ---- one setting ---- */

static bool write_trace(const predict_options *o, const prediction *p, arena *a, diag *d)
{
  packed_file f;
  const bool *ranks = ranks_named(o->trace_ranks, p->rank_count, a, d);
  if (ranks == NULL || !packed_open(&f, o->trace, d)) return false;
  prediction_timeline(p, ranks, f.stream, a);
  return packed_close(&f, d);
}

static bool write_snapshot(const predict_options *o, const prediction *p, arena *a, diag *d)
{
  packed_file f;
  const bool *ranks = ranks_named(o->trace_ranks, p->rank_count, a, d);
  if (ranks == NULL || !packed_open(&f, o->snapshot, d)) return false;
  prediction_snapshot(p, first_rank(ranks), f.stream);
  return packed_close(&f, d);
}

/* Standard output is the file's. */
static bool is_silent(const predict_options *o)
{
  return file_is_stdout(o->trace) || file_is_stdout(o->snapshot) || file_is_stdout(o->html) ||
         file_is_stdout(o->record);
}

/* An option needs memory op by op. */
static bool keeps_curves(const predict_options *o)
{
  return o->trace != NULL || o->plot != NULL || o->record != NULL || o->html != NULL;
}

/* ---- what would make it fit ---- */

static void show_progress(uint32_t done, uint32_t all, const char *name)
{
  fprintf(stderr, "\r%2u/%u  %-60.60s", done, all, name);
}

static void clear_progress(void)
{
  fprintf(stderr, "\r%70s\r", "");
}

static bool fits(const prediction *p)
{
  return p->fits_device && p->fits_host;
}

/* NULL: no option needs it. */
static const suggestions *find_suggestions(const predict_options *o, const prediction *p,
                                           const settings *given, arena *a)
{
  if (!o->suggest && (o->brief || fits(p))) return NULL;
  bool watched = isatty(STDERR_FILENO) != 0;
  suggestions *found = ARENA_NEW(a, suggestions);
  suggest(found, given, p, o->suggest, watched ? show_progress : NULL, a);
  if (watched) clear_progress();
  return found;
}

/* ---- the report ---- */

/* Of a run whose lengths are assumed and do not fit. */
static int64_t find_longest(const settings *given, const prediction *p)
{
  return given->training.packed_sequences && !p->fits_device ? longest_that_fits(given, p->machine)
                                                             : LONGEST_NOT_SOUGHT;
}

/* What is searched for besides the prediction itself: a report and a page show the same. */
typedef struct searched {
  int64_t longest;
  const suggestions *found;
} searched;

/* `prints`: the table, before the search, which takes longer. */
static searched search(const predict_options *o, const settings *given, const prediction *p,
                       bool prints, arena *a)
{
  if (prints) prediction_table(p, &o->measured, o->brief, stdout, a);
  searched s = { .longest = find_longest(given, p) };
  if (prints && s.longest != LONGEST_NOT_SOUGHT)
    print_longest(s.longest, given->training.seq_length, stdout);
  if (prints) fflush(stdout);
  s.found = find_suggestions(o, p, given, a);
  if (prints && s.found != NULL) suggestions_table(p, s.found, stdout, a);
  return s;
}

static bool write_page(const predict_options *o, const prediction *p, const searched *s, arena *a,
                       diag *d)
{
  packed_file f;
  if (!packed_open(&f, o->html, d)) return false;
  prediction_html(p, load_name(&o->load), s->found, s->longest, f.stream, a);
  return packed_close(&f, d);
}

static bool print_report(const predict_options *o, const settings *given, const prediction *p,
                         arena *a, diag *d)
{
  bool silent = is_silent(o);
  searched s = { .longest = LONGEST_NOT_SOUGHT };
  if (!silent || o->html != NULL) s = search(o, given, p, !silent && !o->json, a);
  if (!silent && o->json) prediction_json(p, s.found, s.longest, stdout, a);
  return (o->trace == NULL || write_trace(o, p, a, d)) &&
         (o->snapshot == NULL || write_snapshot(o, p, a, d)) &&
         (o->html == NULL || write_page(o, p, &s, a, d)) &&
         (o->record == NULL || prediction_record(p, load_name(&o->load), o->record, d)) &&
         (o->plot == NULL || prediction_plot(p, (uint32_t)o->plot_rank, o->plot, a, d));
}

static bool read_plan(plan_text *to, const char *file, arena *a, diag *d)
{
  to->file = file;
  to->text = file_read(a, file, PLAN_TEXT_LIMIT_BYTES, &to->length, d);
  return to->text != NULL;
}

/* *plans is NULL if none are given. */
static bool read_plans(const given_plans **plans, const predict_options *o, arena *a, diag *d)
{
  *plans = NULL;
  if (o->warmup_plan == NULL && o->steady_plan == NULL) return true;
  if (o->warmup_plan == NULL || o->steady_plan == NULL)
    return diag_error(
        d, (source_pos){ o->warmup_plan == NULL ? "--steady-plan" : "--warmup-plan", 0, 0 },
        "--warmup-plan and --steady-plan are given together");
  given_plans *read = ARENA_NEW(a, given_plans);
  *plans = read;
  return read_plan(&read->of[ITERATION_WARMUP], o->warmup_plan, a, d) &&
         read_plan(&read->of[ITERATION_STEADY], o->steady_plan, a, d);
}

static const step_range *find_range(const prediction *p, arena *a)
{
  step_range *r = ARENA_NEW(a, step_range);
  *r = range_of_step(p, a);
  return r;
}

static bool report(const predict_options *o, const settings *given, const settings *s,
                   const machine *m, bool *failed, arena *a, diag *d)
{
  prediction p;
  const given_plans *plans;
  growth_figures before;
  if (!read_plans(&plans, o, a, d) ||
      (o->growth.against != NULL && !growth_read(&before, &o->growth, a, d)))
    return false;
  uint32_t also = PREDICT_SAFETY | (keeps_curves(o) ? PREDICT_CURVES : 0);
  bool ok = predict(&p, s, plans, m, also, threads_or_cores(o->threads), a, d);
  if (ok) *failed = o->must_fit && !fits(&p);
  if (ok && o->range) {
    p.range = find_range(&p, a);
    p.uneven_growth_bytes = uneven_load_growth(&p, a);
  }
  ok = ok && print_report(o, given, &p, a, d);
  if (ok && o->growth.against != NULL &&
      !growth_compare(&o->growth, &before, &p, !o->json && !is_silent(o), a))
    *failed = true;
  prediction_release(&p);
  return ok;
}

static void print_unsafe(const verified_iteration *iterations, uint32_t count)
{
  fputs("offsim: error: the plan is not safe: ", stderr);
  findings_first_error(iterations, count, stderr);
  fputs("; offsim check reports all findings\n", stderr);
}

/* False: there is no plan, or it is unsafe and its first error is printed. */
static bool check_first(bool *unsafe, const predict_options *o, const settings *s, arena *a,
                        diag *d)
{
  safety found;
  bool compiled = safety_find(&found, s, threads_or_cores(o->threads), a, d);
  *unsafe = compiled && !found.safe;
  if (*unsafe) print_unsafe(found.iterations, SAFETY_ITERATIONS);
  safety_release(&found);
  return compiled && !*unsafe;
}

/* ---- all systems ---- */

static bool compare(const predict_options *o, const settings *given, const settings *resolved,
                    const machine *m, arena *a, diag *d)
{
  comparison c;
  bool watched = isatty(STDERR_FILENO) != 0;
  bool ok = compare_systems(&c, given, resolved, m, threads_or_cores(o->threads),
                            watched ? show_progress : NULL, a, d);
  if (watched) clear_progress();
  if (ok && o->json)
    comparison_json(&c, stdout);
  else if (ok)
    comparison_table(&c, stdout, a);
  return ok && (o->plot == NULL || comparison_plot(&c, o->plot, a, d));
}

/* A comparison shows all systems; these options are about one run. */
static bool check_comparison(const predict_options *o, diag *d)
{
  bool one_run = o->growth.against != NULL || o->check || o->brief || o->suggest || o->must_fit ||
                 o->range || o->trace != NULL || o->snapshot != NULL || o->record != NULL ||
                 o->html != NULL || o->plot_rank != 0 || o->warmup_plan != NULL ||
                 o->steady_plan != NULL || o->measured.static_bytes != 0 ||
                 o->measured.peak_bytes != 0;
  return !o->compare_systems || !one_run ||
         diag_error(d, (source_pos){ "--compare-systems", 0, 0 },
                    "of the outputs only --json and --plot work with it");
}

/* ---- a plan that was given as text ---- */

/* A plan text has a table and JSON as outputs, and takes only the machine of a configuration. */
static bool check_plan_options(const predict_options *o, diag *d)
{
  bool other = o->growth.against != NULL || o->brief || o->suggest || o->must_fit || o->range ||
               o->print_scenario || o->compare_systems || o->trace != NULL || o->snapshot != NULL ||
               o->trace_ranks != NULL || o->record != NULL || o->plot != NULL || o->html != NULL ||
               o->plot_rank != 0 || o->warmup_plan != NULL || o->steady_plan != NULL ||
               o->measured.static_bytes != 0 || o->measured.peak_bytes != 0;
  const source_pos at = { "--plan", 0, 0 };
  load_options without = o->load;
  without.machine = NULL;
  without.machine_set_count = 0;
  if (other) return diag_error(d, at, "of the outputs only --json works with it");
  return !load_is_given(&without) || diag_error(d, at,
                                                "a plan is taken as it is; of a configuration only "
                                                "--machine and --machine-set can be given with it");
}

static bool simulate_and_print(const plan *p, const machine *m, bool json, arena *a, diag *d)
{
  plan_prediction found;
  bool ok = plan_predict(&found, p, m, a, d);
  if (ok && json)
    plan_prediction_json(&found, stdout);
  else if (ok)
    plan_prediction_table(&found, stdout, a);
  plan_prediction_release(&found);
  return ok;
}

static bool predict_text(const predict_options *o, bool *unsafe, arena *a, diag *d)
{
  if (!check_plan_options(o, d)) return false;
  settings defaults;
  settings_init(&defaults, a);
  const char *name = o->load.machine != NULL ? o->load.machine : defaults.machine.name;
  const machine_changes changes = load_machine_changes(&o->load);
  const machine *m = machine_load_at(a, name, (source_pos){ "--machine", 0, 0 }, &changes, d);
  plan p;
  if (m == NULL || !load_plan(&p, o->plan, a, d)) return false;
  verification v;
  verify_plan(&v, &p, NULL, threads_or_cores(o->threads), a);
  *unsafe = !v.safe;
  if (*unsafe) print_unsafe(&(verified_iteration){ o->plan, &v }, 1);
  bool ok = v.safe && simulate_and_print(&p, m, o->json, a, d);
  verification_release(&v);
  plan_release(&p);
  return ok;
}

/* ---- all ---- */

/* Errors that are found before the work begins. */
static bool check_plot(const predict_options *o, const settings *s, diag *d)
{
  if (o->plot == NULL) return true;
  int64_t ranks = s->parallel.pipeline_model_parallel_size;
  if (o->plot_rank >= ranks)
    return diag_error(d, (source_pos){ "--plot-rank", 0, 0 },
                      "there is no pipeline rank %lld; the last one is %lld",
                      (long long)o->plot_rank, (long long)ranks - 1);
  return plot_check_path(o->plot, d);
}

static bool run(const predict_options *o, bool *failed, arena *a, diag *d)
{
  if (o->plan != NULL) return predict_text(o, failed, a, d);
  settings given;
  const machine *m;
  if (!growth_check_options(&o->growth, d) || !check_comparison(o, d) ||
      !load_given(&o->load, &given, &m, a, d))
    return false;
  settings s = given;
  if (!settings_resolve(&s, offload_conditions, a, d)) return false;
  load_note_assumptions(&o->load, &s, a, d);
  if (o->print_scenario) {
    settings_print(&s, stdout);
    return true;
  }
  if (!check_plot(o, &s, d)) return false;
  if (o->compare_systems) return compare(o, &given, &s, m, a, d);
  return (!o->check || check_first(failed, o, &s, a, d)) && report(o, &given, &s, m, failed, a, d);
}

int verb_predict(int argc, char **argv)
{
  predict_options o = { .growth = { .peak_percent = -1, .step_percent = -1 } };
  const verb_syntax v = {
    "predict", head, { { load_rows, &o.load }, { load_iteration_rows, &o.load }, { rows, &o } }
  };
  arena a = { 0 };
  diag d = { 0 };
  bool failed = false;
  if (load_command(&o.load, &v, argc, argv, &a, &d) == PARSED) run(&o, &failed, &a, &d);
  arena_release(&a);
  int status = diag_finish(&d);
  return status == 0 && failed ? 1 : status;
}
