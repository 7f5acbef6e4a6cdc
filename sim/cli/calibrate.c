#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "cuda/calibrate/links.h"
#include "sim/calibrate/calibrate.h"
#include "sim/cli/calibrate_train.h"
#include "sim/cli/verbs.h"
#include "sim/text/scalar.h"

typedef struct calibrate_options {
  bool help, links_only;
  const char *output, *base, *name;
  int64_t gpus;
} calibrate_options;

enum { OPTION_HELP = 256, OPTION_OUTPUT, OPTION_BASE, OPTION_NAME, OPTION_GPUS, OPTION_LINKS_ONLY };

static const struct option long_options[] = {
  { "help", no_argument, NULL, OPTION_HELP },
  { "output", required_argument, NULL, OPTION_OUTPUT },
  { "base", required_argument, NULL, OPTION_BASE },
  { "name", required_argument, NULL, OPTION_NAME },
  { "gpus", required_argument, NULL, OPTION_GPUS },
  { "links-only", no_argument, NULL, OPTION_LINKS_ONLY },
  { NULL, 0, NULL, 0 },
};

static bool help(void)
{
  printf(
      "usage: offsim calibrate [OPTION...] --output FILE.yaml\n\n"
      "Measures this machine for predictions of runs on it (run --on cuda): copies between GPUs\n"
      "and host, of one, some and all at once, host costs of launches, events and allocations, "
      "the\n"
      "kernels of a few models, at work and with pauses, and what GPUs give each other. Takes\n"
      "about two minutes. What it writes is a machine for predict --machine\n"
      "(docs/06-real-gpu.md).\n\n"
      "  --output FILE              the machine file\n"
      "  --gpus N                   that copy at once (default: all)\n"
      "  --base MACHINE             has what is not measured: network, disks (default: the "
      "shipped\n"
      "                             machine with this GPU)\n"
      "  --name NAME                of the machine (default: calibrated)\n"
      "  --links-only               no kernels; with --base FILE, a machine that was calibrated "
      "before,\n"
      "                             its own stay: for hosts that others use, too, right before a "
      "run\n");
  return true;
}

static bool parse(calibrate_options *o, int argc, char **argv, diag *d)
{
  opterr = 0;
  for (int code; (code = getopt_long(argc, argv, ":ho:", long_options, NULL)) != -1;) {
    switch (code) {
    case 'h':
    case OPTION_HELP: o->help = true; break;
    case 'o':
    case OPTION_OUTPUT: o->output = optarg; break;
    case OPTION_BASE: o->base = optarg; break;
    case OPTION_NAME: o->name = optarg; break;
    case OPTION_LINKS_ONLY: o->links_only = true; break;
    case OPTION_GPUS:
      if (!scalar_i64(optarg, &o->gpus) || o->gpus < 1 || o->gpus > CALIBRATED_GPUS)
        return diag_error(d, (source_pos){ "--gpus", 0, 0 },
                          "\"%s\": expected a whole number from 1 to %d", optarg, CALIBRATED_GPUS);
      break;
    default:
      return diag_error(d, (source_pos){ 0 },
                        "there is no option \"%s\"; offsim calibrate --help lists them",
                        argv[optind - 1]);
    }
  }
  if (o->help) return true;
  if (optind < argc)
    return diag_error(d, (source_pos){ 0 }, "calibrate takes no file; found \"%s\"", argv[optind]);
  return o->output != NULL || diag_error(d, (source_pos){ "--output", 0, 0 },
                                         "which file shall the machine be written to?");
}

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
  arena a = { 0 };
  diag d = { 0 };
  if (parse(&o, argc, argv, &d)) {
    if (o.help)
      help();
    else
      calibrate(&o, &a, &d);
  }
  arena_release(&a);
  return diag_finish(&d);
}
