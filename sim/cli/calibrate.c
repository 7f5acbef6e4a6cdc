#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "cuda/calibrate/links.h"
#include "cuda/calibrate/trainings.h"
#include "sim/base/file.h"
#include "sim/calibrate/calibrate.h"
#include "sim/cli/calibrate_trace.h"
#include "sim/cli/verbs.h"
#include "sim/load/options.h"

typedef struct calibrate_options {
  bool links_only;
  const char *output, *base, *name, *from;
  int64_t gpus, rank;
  double step_time;
  load_options load; /* of the run that --from shows */
} calibrate_options;

static const char head[] =
    "usage: offsim calibrate [OPTION...] --output FILE.yaml\n"
    "       offsim calibrate [OPTION...] --from TRACE --output FILE.yaml [SCENARIO]\n\n"
    "Measures this machine, to predict runs on it (run --on cuda): copies between GPUs and host,\n"
    "of one, some and all at once, host costs of launches, events and allocations, the kernels of\n"
    "a few models, at work and with pauses, and exchanges between GPUs. Takes about two minutes.\n"
    "The output is a machine file for predict --machine (docs/08-real-gpu.md).\n\n"
    "With --from it needs no GPU: kernels, copies, NCCL and host come from a profiler's trace of "
    "a\n"
    "step, and from the configuration of that run (docs/09-real-runs.md).\n\n";

#define OPTIONS calibrate_options
static const option_row rows[] = {
  { OPTION_ROW("output", "FILE", "the machine file", OPTION_TEXT), MEMBER(output), .letter = 'o' },
  WHOLE("gpus", "N", gpus, 1, CALIBRATED_GPUS, "GPUs that copy at once (default: all)"),
  TEXT("from", "TRACE", from,
       "a trace of PyTorch's profiler of one step of the run that the\nconfiguration describes"),
  REAL("step-time", "SECONDS", step_time, 0, 1e6,
       "with --from: a step of that run without the profiler, which\nslows the host down"),
  WHOLE("rank", "N", rank, 0, INT32_MAX,
        "with --from: the trace's pipeline rank (default: its own)"),
  TEXT("base", "MACHINE", base,
       "machine for what is not measured: network, disks (default: the\n"
       "shipped machine with this GPU)"),
  TEXT("name", "NAME", name, "name of the machine (default: calibrated)"),
  FLAG("links-only", links_only,
       "measure links only, and keep the kernels of --base FILE, a\n"
       "calibrated machine: on a shared host, right before a run"),
  { .name = NULL },
};

/* ---- all ---- */

static void show(void *context, const char *what, uint32_t at, uint32_t of)
{
  (void)context;
  if (isatty(STDERR_FILENO))
    fprintf(stderr, "\r\033[K%" PRIu32 " of %" PRIu32 ": %s", at + 1, of, what);
}

static void end_show(void)
{
  if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
}

typedef struct link_bench {
  link_samples samples;
  calibration measured;
} link_bench;

static bool sample_links(void *context, diag *d)
{
  link_bench *b = context;
  return link_samples_take(&b->samples, &b->measured, d);
}

static bool calibrate(const calibrate_options *o, arena *a, diag *d)
{
  link_bench links = { .measured = { .count = 0 } };
  calibration *c = &links.measured;
  sampled_calls calls = { 0 };
  const calibration_bench bench = { c, train_on_gpus, sample_links, show, &links };
  const machine *base = o->base != NULL ? machine_load(a, o->base, d) : NULL;
  bool ok = (o->base == NULL || base != NULL) &&
            calibrate_links((uint32_t)o->gpus, &links.samples, c, show, NULL, d);
  if (ok && base == NULL) base = calibration_base_of(c->gpu_name, a, d);
  ok = ok && base != NULL;
  if (ok && o->links_only) {
    calibration_keep_calls(base, &calls);
    ok = link_samples_take_more(&links.samples, c, show, NULL, d);
  } else {
    ok = ok && calibrate_kernels(&bench, base, &calls, a, d) &&
         calibrate_exchanges(&bench, base, &calls, a, d);
  }
  end_show();
  link_samples_close(&links.samples);
  ok = ok && calibration_write(o->output, o->name, c, &calls, base, d);
  if (ok && !file_is_stdout(o->output))
    printf("%s: %s, %" PRIu32 " keys and %" PRIu32 " calls measured\n", o->output, c->gpu_name,
           c->count, calls.count);
  ARRAY_FREE(&calls);
  return ok;
}

static bool only_of_trace(const calibrate_options *o, diag *d)
{
  if (o->from == NULL && load_is_given(&o->load))
    return diag_error(d, (source_pos){ 0 },
                      "a configuration describes the run of a trace; give the trace with --from");
  if (o->from == NULL && (o->step_time > 0 || o->rank >= 0))
    return diag_error(d, (source_pos){ o->step_time > 0 ? "--step-time" : "--rank", 0, 0 },
                      "describes the run of a trace; give the trace with --from");
  if (o->from != NULL && (o->links_only || o->gpus > 0))
    return diag_error(d, (source_pos){ o->links_only ? "--links-only" : "--gpus", 0, 0 },
                      "measures this machine; --from reads a trace instead");
  if (o->from != NULL && o->base != NULL && o->load.machine != NULL)
    return diag_error(d, (source_pos){ "--base", 0, 0 }, "names the same as --machine; give one");
  return true;
}

static bool calibrate_from(calibrate_options *o, arena *a, diag *d)
{
  if (o->base != NULL) o->load.machine = o->base;
  const trace_options of = { o->from, o->output, o->name, o->step_time, o->rank };
  return calibrate_from_trace(&of, &o->load, a, d);
}

static bool take_scenario(calibrate_options *o, char **rest, int count, diag *d)
{
  if (count == 0) return true;
  o->load.scenario = rest[0];
  if (o->from == NULL)
    return diag_error(d, (source_pos){ 0 }, "calibrate takes no file without --from; found \"%s\"",
                      rest[0]);
  return count == 1 ||
         diag_error(d, (source_pos){ 0 }, "calibrate takes one scenario; found %d", count);
}

int verb_calibrate(int argc, char **argv)
{
  calibrate_options o = { .name = "calibrated", .rank = -1 };
  const verb_syntax v = { "calibrate", head, { { rows, &o }, { load_rows, &o.load } } };
  arena a = { 0 };
  diag d = { 0 };
  int rest;
  if (options_parse(&v, argc, argv, &rest, &a, &d) == PARSED &&
      take_scenario(&o, argv + rest, argc - rest, &d) && only_of_trace(&o, &d)) {
    if (o.output == NULL)
      diag_error(&d, (source_pos){ "--output", 0, 0 },
                 "give the machine's file: --output FILE.yaml");
    else if (o.from != NULL)
      calibrate_from(&o, &a, &d);
    else
      calibrate(&o, &a, &d);
  }
  arena_release(&a);
  return diag_finish(&d);
}
