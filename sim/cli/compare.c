#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "sim/cli/gates.h"
#include "sim/cli/verbs.h"
#include "sim/report/plot.h"
#include "sim/report/traces.h"
#include "sim/text/scalar.h"
#include "sim/text/suggest.h"

typedef struct compare_options {
  bool help, json, outputs;
  trace_names names;
  trace_names without; /* the same without offload; NULL: not given */
  const char *plot;
  int64_t plot_rank;
  compare_gates gates;
} compare_options;

enum {
  OPTION_HELP = 256,
  OPTION_JSON,
  OPTION_OUTPUTS,
  OPTION_WITHOUT,
  OPTION_PLOT,
  OPTION_PLOT_RANK,
  OPTION_GATES /* and the others behind it, by compare_gate */
};

static const struct option long_options[] = {
  { "help", no_argument, NULL, OPTION_HELP },
  { "json", no_argument, NULL, OPTION_JSON },
  { "outputs", no_argument, NULL, OPTION_OUTPUTS },
  { "without", required_argument, NULL, OPTION_WITHOUT },
  { "plot", required_argument, NULL, OPTION_PLOT },
  { "plot-rank", required_argument, NULL, OPTION_PLOT_RANK },
  { "max-peak-error", required_argument, NULL, OPTION_GATES + GATE_PEAK_ERROR },
  { "max-step-error", required_argument, NULL, OPTION_GATES + GATE_STEP_ERROR },
  { "max-overhead-error", required_argument, NULL, OPTION_GATES + GATE_OVERHEAD_ERROR },
  { "min-ratio", required_argument, NULL, OPTION_GATES + GATE_RATIO },
  { NULL, 0, NULL, 0 },
};

static bool help(void)
{
  printf("usage: offsim compare [OPTION...] A B\n\n"
         "Compares two traces (docs/reference/traces.md): whether every rank issued the same ops "
         "in the\n"
         "same order, requested the same memory and wrote the same bits, and which op is the first "
         "that\n"
         "did not. A prediction (predict --record) beside a run on GPUs (run --on cuda --trace): "
         "times and\n"
         "memory as well. Exit status 1: they differ, or a gate is broken.\n\n"
         "  --outputs                  judge only what was written, op by op at the same place in "
         "the\n"
         "                             model: for two settings of offload or recomputation\n"
         "  --without A0,B0            the same two without offload: overhead, saving and R\n"
         "  --plot FILE                both timelines above each other, as .svg, .png or .pdf\n"
         "  --plot-rank N              of that rank (default 0)\n"
         "  --json                     machine-readable result (docs/reference/json.md)\n\n"
         "Gates, of a prediction beside a measurement:\n"
         "  --max-peak-error PERCENT   of live memory's peak, of any rank\n"
         "  --max-step-error PERCENT   of the step's time\n"
         "  --max-overhead-error PP    of offload's overhead, in percentage points (--without)\n"
         "  --min-ratio PERCENT        R, measured over simulated saving of live memory, of any "
         "rank\n"
         "                             (--without)\n");
  return true;
}

static bool unknown(const char *argument, diag *d)
{
  const char *names[sizeof long_options / sizeof *long_options];
  size_t count = 0;
  for (; long_options[count].name != NULL; count++)
    names[count] = long_options[count].name;
  const char *near =
      strncmp(argument, "--", 2) == 0 ? suggest_nearest(argument + 2, names, count) : NULL;
  if (near != NULL)
    return diag_error(d, (source_pos){ 0 }, "there is no option \"%s\"; did you mean --%s?",
                      argument, near);
  return diag_error(d, (source_pos){ 0 },
                    "there is no option \"%s\"; offsim compare --help lists them", argument);
}

/* "A0,B0" */
static bool take_without(compare_options *o, const char *value, arena *a, diag *d)
{
  const char *comma = strchr(value, ',');
  if (comma == NULL || strchr(comma + 1, ',') != NULL)
    return diag_error(d, (source_pos){ "--without", 0, 0 },
                      "\"%s\": expected two traces with a comma between", value);
  o->without = (trace_names){ arena_printf(a, "%.*s", (int)(comma - value), value), comma + 1 };
  return true;
}

static bool parse(compare_options *o, int argc, char **argv, arena *a, diag *d)
{
  opterr = 0;
  for (int code; (code = getopt_long(argc, argv, ":h", long_options, NULL)) != -1;) {
    switch (code) {
    case 'h':
    case OPTION_HELP: o->help = true; break;
    case OPTION_JSON: o->json = true; break;
    case OPTION_OUTPUTS: o->outputs = true; break;
    case OPTION_WITHOUT:
      if (!take_without(o, optarg, a, d)) return false;
      break;
    case OPTION_PLOT: o->plot = optarg; break;
    case OPTION_PLOT_RANK:
      if (!scalar_i64(optarg, &o->plot_rank) || o->plot_rank < 0)
        return diag_error(d, (source_pos){ "--plot-rank", 0, 0 }, "\"%s\": expected a rank",
                          optarg);
      break;
    case OPTION_GATES + GATE_PEAK_ERROR:
    case OPTION_GATES + GATE_STEP_ERROR:
    case OPTION_GATES + GATE_OVERHEAD_ERROR:
    case OPTION_GATES + GATE_RATIO:
      if (!gate_set(&o->gates, (compare_gate)(code - OPTION_GATES), optarg, d)) return false;
      break;
    default: return unknown(argv[optind - 1], d);
    }
  }
  if (!o->help && argc - optind != 2)
    return diag_error(d, (source_pos){ 0 }, "compare takes two traces; found %d", argc - optind);
  if (!o->help) o->names = (trace_names){ argv[optind], argv[optind + 1] };
  return true;
}

/* What was asked for: everything, or what was written. */
static bool is_same(const compare_options *o, const trace_comparison *c)
{
  return c->outputs_differ == 0 && (o->outputs || (c->same_order && c->same_bytes));
}

/* Judged by nothing, they would be the same. */
static bool check_contents(const compare_options *o, const trace_comparison *c, diag *d)
{
  return !o->outputs || c->outputs > 0 ||
         diag_error(d, (source_pos){ "--outputs", 0, 0 },
                    "the traces have no op in common of which both tell what it wrote");
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

/* What has been read, and what comes of it. */
typedef struct judged {
  two_traces with, without;
  trace_comparison c;
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
  if (!j->is_timed && (o->plot != NULL || o->without.a != NULL || gates_are_set(&o->gates)))
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

static bool tell(const judged *j, const compare_options *o, bool same, arena *a, diag *d)
{
  if (o->json) {
    traces_json(&j->c, &o->names, same, j->is_timed ? &j->timed : NULL, stdout);
  } else {
    traces_table(&j->c, &o->names, o->outputs, stdout, a);
    if (j->is_timed) timing_table(&j->timed, stdout, a);
  }
  return o->plot == NULL || timing_plot(&j->timed.with, (uint32_t)o->plot_rank, o->plot, a, d);
}

static bool compare(const compare_options *o, bool *same, arena *a, diag *d)
{
  judged j = { .is_timed = false };
  bool ok = (o->plot == NULL || plot_check_path(o->plot, d)) && read_all(&j, o, a, d) &&
            check_timed(&j, o, d) && check_contents(o, &j.c, d);
  if (ok) {
    *same = is_same(o, &j.c);
    ok = tell(&j, o, *same, a, d) && gates_check(&o->gates, &j.timed, same, d);
  }
  release_both(&j.with);
  release_both(&j.without);
  return ok;
}

int verb_compare(int argc, char **argv)
{
  compare_options o = { .help = false };
  arena a = { 0 };
  diag d = { 0 };
  bool same = true;
  if (parse(&o, argc, argv, &a, &d)) {
    if (o.help)
      help();
    else
      compare(&o, &same, &a, &d);
  }
  arena_release(&a);
  int status = diag_finish(&d);
  return status == 0 && !same ? 1 : status;
}
