#include <stdio.h>
#include <unistd.h>

#include "sim/base/file.h"
#include "sim/cli/load.h"
#include "sim/cli/predict_plan.h"
#include "sim/cli/verbs.h"
#include "sim/predict/safety.h"
#include "sim/report/plot.h"
#include "sim/report/prediction.h"
#include "sim/text/scalar.h"

typedef struct predict_options {
  load_options load;
  bool help, json, print_scenario, compare_systems, check;
  bool unsafe; /* --check has found an error */
  const char *trace, *record, *plot, *plan;
  int64_t plot_rank;
  measured_bytes measured;
} predict_options;

enum {
  OPTION_HELP = OPTION_OF_VERB,
  OPTION_JSON,
  OPTION_PRINT_SCENARIO,
  OPTION_TRACE,
  OPTION_RECORD,
  OPTION_PLOT,
  OPTION_PLOT_RANK,
  OPTION_MEASURED_STATIC,
  OPTION_MEASURED_PEAK,
  OPTION_COMPARE_SYSTEMS,
  OPTION_CHECK,
  OPTION_PLAN
};

static const struct option long_options[] = {
  LOAD_LONG_OPTIONS,
  { "help", no_argument, NULL, OPTION_HELP },
  { "json", no_argument, NULL, OPTION_JSON },
  { "print-scenario", no_argument, NULL, OPTION_PRINT_SCENARIO },
  { "trace", required_argument, NULL, OPTION_TRACE },
  { "record", required_argument, NULL, OPTION_RECORD },
  { "plot", required_argument, NULL, OPTION_PLOT },
  { "plot-rank", required_argument, NULL, OPTION_PLOT_RANK },
  { "measured-static", required_argument, NULL, OPTION_MEASURED_STATIC },
  { "measured-peak", required_argument, NULL, OPTION_MEASURED_PEAK },
  { "compare-systems", no_argument, NULL, OPTION_COMPARE_SYSTEMS },
  { "check", no_argument, NULL, OPTION_CHECK },
  { "plan", required_argument, NULL, OPTION_PLAN },
  { NULL, 0, NULL, 0 },
};

static bool help(void)
{
  printf(
      "usage: offsim predict [OPTION...] [SCENARIO.yaml]\n"
      "       offsim predict [--machine NAME|FILE] [--json] --plan FILE\n\n"
      "Peak memory, saving and overhead of a setting on every pipeline rank, beside the same run\n"
      "without offload.\n\n" LOAD_USAGE
      "  --print-scenario           print the resolved scenario, which reads back, and stop\n"
      "  --json                     machine-readable result (docs/reference/json.md)\n"
      "  --trace FILE               timeline as Chrome-trace JSON: open it in ui.perfetto.dev\n"
      "  --record FILE              the same as a trace for offsim compare "
      "(docs/reference/traces.md)\n"
      "  --plot FILE.svg|png|pdf    timeline and memory curve\n"
      "  --plot-rank N              of this pipeline rank (default 0)\n"
      "  --measured-static N        your own logged figures of the last rank, in bytes, to stand\n"
      "  --measured-peak N          beside the prediction in the table\n"
      "  --compare-systems          the same model through every offload system that accepts it: "
      "one\n"
      "                             table; --json and --plot then show all of them\n"
      "  --check                    first check the plan as offsim check does; exit status 1 if it "
      "is\n"
      "                             not safe\n"
      "  --plan FILE                time and memory of a plan as offsim plan prints it, which is\n"
      "                             checked first (- reads standard input)\n");
  return true;
}

static void take_number(int64_t *to, const char *option, const char *value, diag *d)
{
  if (!scalar_i64(value, to) || *to < 0)
    diag_error(d, (source_pos){ option, 0, 0 }, "\"%s\" is not a whole number", value);
}

static void take_option(void *context, int code, const char *value, diag *d)
{
  predict_options *o = context;
  switch (code) {
  case 'h':
  case OPTION_HELP: o->help = true; break;
  case OPTION_JSON: o->json = true; break;
  case OPTION_PRINT_SCENARIO: o->print_scenario = true; break;
  case OPTION_TRACE: o->trace = value; break;
  case OPTION_RECORD: o->record = value; break;
  case OPTION_PLOT: o->plot = value; break;
  case OPTION_PLOT_RANK: take_number(&o->plot_rank, "--plot-rank", value, d); break;
  case OPTION_MEASURED_STATIC:
    take_number(&o->measured.static_bytes, "--measured-static", value, d);
    break;
  case OPTION_COMPARE_SYSTEMS: o->compare_systems = true; break;
  case OPTION_CHECK: o->check = true; break;
  case OPTION_PLAN: o->plan = value; break;
  case OPTION_MEASURED_PEAK:
    take_number(&o->measured.peak_bytes, "--measured-peak", value, d);
    break;
  }
}

static bool write_trace(const prediction *p, const char *path, arena *a, diag *d)
{
  file_writer w;
  if (!file_open(&w, path, d)) return false;
  prediction_timeline(p, w.stream, a);
  return file_close(&w, d);
}

/* Memory op by op is wanted. */
static bool keeps_curves(const predict_options *o)
{
  return o->trace != NULL || o->plot != NULL || o->record != NULL;
}

static bool report(const predict_options *o, const settings *s, const machine *m, arena *a, diag *d)
{
  prediction p;
  bool ok = predict(&p, s, m, keeps_curves(o), a, d);
  if (ok && o->json)
    prediction_json(&p, stdout, a);
  else if (ok)
    prediction_table(&p, &o->measured, stdout, a);
  if (ok && o->trace != NULL) ok = write_trace(&p, o->trace, a, d);
  if (ok && o->record != NULL) ok = prediction_record(&p, load_name(&o->load), o->record, a, d);
  if (ok && o->plot != NULL) ok = prediction_plot(&p, (uint32_t)o->plot_rank, o->plot, a, d);
  prediction_release(&p);
  return ok;
}

/* False: no plan, or an unsafe one, of which the first error is told. */
static bool check_first(predict_options *o, const settings *s, arena *a, diag *d)
{
  safety found;
  bool compiled = safety_find(&found, s, a, d);
  o->unsafe = compiled && !found.safe;
  if (o->unsafe) tell_unsafe(found.iterations, SAFETY_ITERATIONS);
  safety_release(&found);
  return compiled && !o->unsafe;
}

static void show_progress(uint32_t done, uint32_t all, const char *name)
{
  fprintf(stderr, "\r%2u/%u  %-60.60s", done, all, name);
}

static void clear_progress(void)
{
  fprintf(stderr, "\r%70s\r", "");
}

static bool compare(const predict_options *o, const settings *given, const settings *resolved,
                    const machine *m, arena *a, diag *d)
{
  comparison c;
  bool watched = isatty(STDERR_FILENO) != 0;
  bool ok = compare_systems(&c, given, resolved, m, watched ? show_progress : NULL, a, d);
  if (watched) clear_progress();
  if (ok && o->json)
    comparison_json(&c, stdout);
  else if (ok)
    comparison_table(&c, stdout, a);
  return ok && (o->plot == NULL || comparison_plot(&c, o->plot, a, d));
}

/* A comparison shows all systems; these are of one run. */
static bool check_comparison(const predict_options *o, diag *d)
{
  bool one_run = o->check || o->trace != NULL || o->record != NULL || o->plot_rank != 0 ||
                 o->measured.static_bytes != 0 || o->measured.peak_bytes != 0;
  return !o->compare_systems || !one_run ||
         diag_error(d, (source_pos){ "--compare-systems", 0, 0 },
                    "of the outputs only --json and --plot work with it");
}

/* Of the outputs a plan's text has a table and JSON. */
static bool predict_text(predict_options *o, arena *a, diag *d)
{
  bool other = o->print_scenario || o->compare_systems || o->trace != NULL || o->record != NULL ||
               o->plot != NULL || o->plot_rank != 0 || o->measured.static_bytes != 0 ||
               o->measured.peak_bytes != 0;
  if (other)
    return diag_error(d, (source_pos){ "--plan", 0, 0 },
                      "of the outputs only --json works with it");
  return predict_plan_text(o->plan, &o->load, o->json, &o->unsafe, a, d);
}

/* What can be said before the work begins. */
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

static bool run(predict_options *o, int argc, char **argv, arena *a, diag *d)
{
  const load_verb verb = { "predict", long_options, take_option, o };
  if (!load_parse(&o->load, &verb, argc, argv, a, d)) return false;
  if (o->help) return help();
  if (o->plan != NULL) return predict_text(o, a, d);
  settings given;
  const machine *m;
  if (!check_comparison(o, d) || !load_given(&o->load, &given, &m, a, d)) return false;
  settings s = given;
  if (!settings_resolve(&s, a, d)) return false;
  if (o->print_scenario) {
    settings_print(&s, stdout);
    return true;
  }
  if (!check_plot(o, &s, d)) return false;
  if (o->compare_systems) return compare(o, &given, &s, m, a, d);
  return (!o->check || check_first(o, &s, a, d)) && report(o, &s, m, a, d);
}

int verb_predict(int argc, char **argv)
{
  predict_options o = { 0 };
  arena a = { 0 };
  diag d = { 0 };
  run(&o, argc, argv, &a, &d);
  arena_release(&a);
  int status = diag_finish(&d);
  return status == 0 && o.unsafe ? 1 : status;
}
