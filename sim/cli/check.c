#include <stdio.h>

#include "sim/base/file.h"
#include "sim/cli/threads.h"
#include "sim/cli/verbs.h"
#include "sim/load/load.h"
#include "sim/predict/safety.h"
#include "sim/report/findings.h"
#include "sim/report/plot.h"
#include "sim/report/races.h"
#include "traces/import/real_run.h"

typedef struct check_options {
  load_options load;
  bool json, advice;
  const char *plan; /* a text to read instead of a configuration */
  const char *sarif, *plot;
  int64_t plot_op; /* -1: not given */
} check_options;

static const char head[] =
    "usage: offsim check [OPTION...] [SCENARIO.yaml]\n"
    "       offsim check [OPTION...] --plan FILE\n"
    "       offsim check [--json] RECORD\n\n"
    "Decides for every legal timing at once whether a plan is free of races, of blocks and host\n"
    "buffers that are reused too early, of deadlock and of leaks (docs/reference/verifier.md).\n"
    "Of a record (offsim record), whether the run was free of races between kernels and copies\n"
    "(docs/reference/issued.md). Exit status 1: it is not.\n\n";

#define OPTIONS check_options
static const option_row rows[] = {
  TEXT("plan", "FILE", plan, "a plan as offsim plan prints it (- reads standard input)"),
  FLAG("advice", advice, "list synchronisation that could be left out too"),
  TEXT("sarif", "FILE", sarif, "also write the findings as SARIF 2.1.0, for code scanning"),
  TEXT("plot", "FILE.svg|png|pdf", plot,
       "draw the first race: streams, events, memory, and the edge that is\n"
       "missing; of a safe plan, what orders the ops on a tensor that leaves"),
  WHOLE("plot-op", "N", plot_op, 0, INT64_MAX, "draw the error whose second op is op N"),
  FLAG("json", json, "machine-readable result (docs/reference/json.md)"),
  { .name = NULL },
};

static bool write_sarif(const check_options *o, const verified_iteration *iterations,
                        uint32_t count, diag *d)
{
  file_writer w;
  if (o->sarif == NULL) return true;
  if (!file_open(&w, o->sarif, d)) return false;
  findings_sarif(iterations, count, load_name(&o->load), o->advice, w.stream);
  return file_close(&w, d);
}

/* Returns whether all of them are safe. */
static bool print_findings(const check_options *o, const verified_iteration *iterations,
                           uint32_t count, arena *a, diag *d)
{
  bool safe = write_sarif(o, iterations, count, d) &&
              (o->plot == NULL || findings_plot(iterations, count, o->plot_op, o->plot, a, d));
  for (uint32_t i = 0; i < count; i++)
    safe = safe && iterations[i].verification->safe;
  if (file_is_stdout(o->sarif)) return safe;
  if (o->json)
    findings_json(iterations, count, stdout);
  else
    findings_table(iterations, count, o->advice, stdout, a);
  return safe;
}

static bool check_text(const check_options *o, arena *a, diag *d)
{
  if (load_is_given(&o->load))
    return diag_error(d, (source_pos){ "--plan", 0, 0 },
                      "a plan is checked as it is; no configuration can be given with it");
  plan p;
  if (!load_plan(&p, o->plan, a, d)) return false;
  verification v;
  verify_plan(&v, &p, NULL, threads_or_cores(0), a);
  bool safe = print_findings(o, &(verified_iteration){ o->plan, &v }, 1, a, d);
  verification_release(&v);
  plan_release(&p);
  return safe;
}

/* What offsim record wrote. */
static bool check_record(const check_options *o, arena *a, diag *d)
{
  races found;
  load_options rest = o->load;
  rest.scenario = NULL;
  if (load_is_given(&rest) || o->advice || o->sarif != NULL || o->plot != NULL)
    return diag_error(d, (source_pos){ o->load.scenario, 0, 0 },
                      "a record is checked as it is; of the options only --json can be given");
  bool read = races_find(&found, o->load.scenario, a, d), safe = read && found.found == 0;
  if (read && o->json)
    races_json(&found, stdout, a);
  else if (read)
    races_table(&found, stdout, a);
  races_release(&found);
  return safe;
}

/* What import reads has times, and mostly not which event a stream waits for. */
static bool refuse_run(const char *path, diag *d)
{
  return real_run_file_kind(path) == REAL_FILE_RUN &&
         !diag_error(
             d, (source_pos){ path, 0, 0 },
             "this is what a run did; races are found in what it issued (offsim record), or "
             "in a plan; offsim import reads this file");
}

static bool check_compiled(const check_options *o, arena *a, diag *d)
{
  settings s;
  const machine *m;
  safety found;
  if (o->load.scenario != NULL && refuse_run(o->load.scenario, d)) return false;
  if (!load_settings(&o->load, &s, &m, a, d)) return false;
  bool safe = safety_find(&found, &s, threads_or_cores(0), a, d) &&
              print_findings(o, found.iterations, SAFETY_ITERATIONS, a, d);
  safety_release(&found);
  return safe;
}

int verb_check(int argc, char **argv)
{
  check_options o = { .plot_op = -1 };
  const verb_syntax v = {
    "check", head, { { load_rows, &o.load }, { load_iteration_rows, &o.load }, { rows, &o } }
  };
  arena a = { 0 };
  diag d = { 0 };
  bool safe = true;
  if (load_command(&o.load, &v, argc, argv, &a, &d) == PARSED &&
      (o.plot == NULL || plot_check_path(o.plot, &d))) {
    bool is_record = o.plan == NULL && o.load.scenario != NULL && races_is_record(o.load.scenario);
    safe = o.plan != NULL ? check_text(&o, &a, &d)
           : is_record    ? check_record(&o, &a, &d)
                          : check_compiled(&o, &a, &d);
  }
  arena_release(&a);
  int status = diag_finish(&d);
  return status == 0 && !safe ? 1 : status;
}
