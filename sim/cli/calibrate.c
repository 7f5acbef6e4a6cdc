#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda/calibrate/link_samples.h"
#include "sim/base/file.h"
#include "sim/base/units.h"
#include "sim/cli/calibrate_exchanges.h"
#include "sim/cli/calibrate_models.h"
#include "sim/cli/verbs.h"
#include "sim/machine/call_time.h"
#include "sim/machine/machine.h"
#include "sim/plan/text.h"
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

/* ---- the base -------------------------------------------------------------------------------- */

/* The shipped machine whose GPU's name stands in that of the device: "H200" in "NVIDIA H200". */
static const machine *shipped_with(const char *gpu_name, arena *a, diag *d)
{
  const machine *found = NULL;
  for (const machine_preset *p = machine_presets; p->name != NULL && found == NULL; p++) {
    const machine *m = machine_load(a, p->name, d);
    if (m == NULL) return NULL;
    if (m->gpu_name[0] != '\0' && strstr(gpu_name, m->gpu_name) != NULL) found = m;
  }
  if (found == NULL)
    diag_error(d, (source_pos){ "--base", 0, 0 },
               "no shipped machine has a \"%s\"; name the nearest one", gpu_name);
  return found;
}

/* What a run of offsim's own does not have: a framework. */
static const calibrated_value of_offsim[] = {
  { "issue", "framework_ns", 0, 0, 0 },
  { "issue", "eager_ns", 0, 0, 0 },
};

static const calibrated_value *of_own(const machine_key *key)
{
  for (size_t i = 0; i < sizeof of_offsim / sizeof *of_offsim; i++)
    if (strcmp(of_offsim[i].section, key->section) == 0 && strcmp(of_offsim[i].key, key->key) == 0)
      return &of_offsim[i];
  return NULL;
}

/* ---- the file -------------------------------------------------------------------------------- */

static void write_key(const machine_key *key, const calibration *c, const machine *base, FILE *out)
{
  const calibrated_value *own = of_own(key), *found = calibration_find(c, key->section, key->key);
  int64_t value;
  memcpy(&value, (const char *)base + key->offset, sizeof value);
  const char *from = base->name;
  if (found != NULL) {
    value = found->value;
    from = "measured";
  } else if (own != NULL) {
    value = own->value;
    from = "offsim run --on cuda";
  }
  fprintf(out, "  %s: %" PRId64 "  # %s", key->key, value, from);
  if (found != NULL && found->least < found->most)
    fprintf(out, ", %" PRId64 " to %" PRId64, found->least, found->most);
  fputc('\n', out);
}

static void write_at_once(const calibration *c, FILE *out)
{
  if (c->at_once_count > 0) fputs("\nat_once:\n", out);
  for (uint32_t i = 0; i < c->at_once_count; i++) {
    fputs("  - ", out);
    contention_print(out, &c->at_once[i]);
    fputc('\n', out);
  }
}

static void write_calls(const sampled_calls *calls, FILE *out)
{
  if (calls->count > 0) fputs("\nmeasured:\n", out);
  for (uint32_t i = 0; i < calls->count; i++) {
    fputs("  -", out);
    plan_print_call(out, &calls->items[i].call);
    fprintf(out, " = %" PRId64 " ns", max_i64(1, calls->items[i].ps / PS_PER_NS));
    if (calls->items[i].slowdown_permille >= 0)
      fprintf(out, ", %" PRId64 " permille", calls->items[i].slowdown_permille);
    fputc('\n', out);
  }
}

static void write_machine(const calibrate_options *o, const calibration *c,
                          const sampled_calls *calls, const machine *base, FILE *out)
{
  fprintf(out,
          "# %s, calibrated by offsim; what is not measured is that of %s.\n"
          "# Rates are bytes per microsecond (MB/s).\nformat_version: %d\nname: %s\ngpu_name: %s\n",
          c->gpu_name, base->name, MACHINE_FORMAT_VERSION, o->name, base->gpu_name);
  const char *section = "";
  for (uint32_t k = 0; k < machine_key_count; k++) {
    const machine_key *key = &machine_keys[k];
    if (strcmp(section, key->section) != 0) fprintf(out, "\n%s:\n", key->section);
    section = key->section;
    write_key(key, c, base, out);
  }
  write_at_once(c, out);
  write_calls(calls, out);
}

/* ---- all ------------------------------------------------------------------------------------- */

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

static int64_t own_slowdown_permille(const machine *base, const measured_call *known)
{
  bool is_own = known->slowdown_permille != call_slowdown_permille(base, &known->call);
  return is_own ? known->slowdown_permille : -1;
}

static void keep_calls(const machine *base, sampled_calls *calls)
{
  for (uint32_t i = 0; base->measured != NULL && i < base->measured->count; i++) {
    const measured_call *known = &base->measured->items[i];
    *ARRAY_PUSH(calls) =
        (sampled_call){ known->call, known->ps, own_slowdown_permille(base, known) };
  }
}

/* Nothing lies between the moments but the copies themselves. */
static bool sample_links(const calibrate_beside *beside, diag *d)
{
  bool ok = true;
  for (uint32_t i = 1; i < LINK_MOMENTS && ok; i++) {
    beside->progress(beside->context, "copies", i, LINK_MOMENTS);
    ok = link_samples_take(beside->links, beside->to, d);
  }
  return ok;
}

static bool measure(const calibrate_options *o, const machine *base, const calibrate_beside *beside,
                    sampled_calls *calls, arena *a, diag *d)
{
  if (o->links_only) {
    keep_calls(base, calls);
    return sample_links(beside, d);
  }
  return calibrate_kernels(base, calls, beside, a, d) &&
         calibrate_exchanges(base, calls, beside, a, d);
}

static bool write_file(const calibrate_options *o, const calibration *c, const sampled_calls *calls,
                       const machine *base, diag *d)
{
  file_writer w;
  if (!file_open(&w, o->output, d)) return false;
  write_machine(o, c, calls, base, w.stream);
  return file_close(&w, d);
}

static bool calibrate(const calibrate_options *o, arena *a, diag *d)
{
  calibration c = { .count = 0 };
  sampled_calls calls = { 0 };
  link_samples links = { .copies = { .gpus = 0 } };
  const calibrate_beside beside = { &links, &c, show, NULL };
  const machine *base = o->base != NULL ? machine_load(a, o->base, d) : NULL;
  bool ok = (o->base == NULL || base != NULL) &&
            calibrate_links((uint32_t)o->gpus, &links, &c, show, NULL, d);
  if (ok && base == NULL) base = shipped_with(c.gpu_name, a, d);
  ok = ok && base != NULL && measure(o, base, &beside, &calls, a, d);
  end_show();
  link_samples_close(&links);
  ok = ok && write_file(o, &c, &calls, base, d);
  if (ok)
    printf("%s: %s, %" PRIu32 " keys and %" PRIu32 " calls measured\n", o->output, c.gpu_name,
           c.count, calls.count);
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
