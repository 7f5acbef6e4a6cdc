#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "cuda/calibrate/links.h"
#include "cuda/calibrate/trainings.h"
#include "sim/calibrate/calibrate.h"
#include "sim/cli/options.h"
#include "sim/cli/verbs.h"

typedef struct calibrate_options {
  bool links_only;
  const char *output, *base, *name;
  int64_t gpus;
} calibrate_options;

static const char head[] =
    "usage: offsim calibrate [OPTION...] --output FILE.yaml\n\n"
    "Measures this machine for predictions of runs on it (run --on cuda): copies between GPUs\n"
    "and host, of one, some and all at once, host costs of launches, events and allocations, the\n"
    "kernels of a few models, at work and with pauses, and what GPUs give each other. Takes\n"
    "about two minutes. What it writes is a machine for predict --machine\n"
    "(docs/06-real-gpu.md).\n\n";

#define OPTIONS calibrate_options
static const option_row rows[] = {
  { OPTION_ROW("output", "FILE", "the machine file", OPTION_TEXT), MEMBER(output), .letter = 'o' },
  WHOLE("gpus", "N", gpus, 1, CALIBRATED_GPUS, "that copy at once (default: all)"),
  TEXT("base", "MACHINE", base,
       "has what is not measured: network, disks (default: the shipped\n"
       "machine with this GPU)"),
  TEXT("name", "NAME", name, "of the machine (default: calibrated)"),
  FLAG("links-only", links_only,
       "no kernels; with --base FILE, a machine that was calibrated before,\n"
       "its own stay: for hosts that others use, too, right before a run"),
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
  if (ok)
    printf("%s: %s, %" PRIu32 " keys and %" PRIu32 " calls measured\n", o->output, c->gpu_name,
           c->count, calls.count);
  ARRAY_FREE(&calls);
  return ok;
}

int verb_calibrate(int argc, char **argv)
{
  calibrate_options o = { .name = "calibrated" };
  const verb_syntax v = { "calibrate", head, { { rows, &o } } };
  arena a = { 0 };
  diag d = { 0 };
  int rest;
  if (options_parse(&v, argc, argv, &rest, &a, &d) == PARSED) {
    if (rest < argc)
      diag_error(&d, (source_pos){ 0 }, "calibrate takes no file; found \"%s\"", argv[rest]);
    else if (o.output == NULL)
      diag_error(&d, (source_pos){ "--output", 0, 0 },
                 "which file shall the machine be written to?");
    else
      calibrate(&o, &a, &d);
  }
  arena_release(&a);
  return diag_finish(&d);
}
