#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cuda/world/world.h"
#include "ref/kernels/threads.h"
#include "sim/cli/run_plan.h"
#include "sim/cli/run_scenario.h"
#include "sim/cli/verbs.h"
#include "sim/text/scalar.h"

enum { MOST_STEPS = 1000000, MOST_GPUS = 64 };

enum {
  OPTION_HELP = OPTION_OF_VERB,
  OPTION_ON,
  OPTION_STEPS,
  OPTION_DATA,
  OPTION_SEED,
  OPTION_SAME_BATCH,
  OPTION_LEARNING_RATE,
  OPTION_WITHOUT_OFFLOAD,
  OPTION_INTERLEAVE,
  OPTION_INTERLEAVINGS,
  OPTION_THREADS,
  OPTION_DISK_DIR,
  OPTION_JSON,
  OPTION_TENSORS,
  OPTION_DUMP,
  OPTION_TRACE,
  OPTION_PLAN,
  OPTION_GPUS,
  OPTION_ARITHMETIC,
  OPTION_BACKING,
  OPTION_TIMED,
  OPTION_CONTENTS,
  OPTION_GUARDS,
  OPTION_NVTX
};

static const struct option long_options[] = {
  LOAD_LONG_OPTIONS,
  { "help", no_argument, NULL, OPTION_HELP },
  { "on", required_argument, NULL, OPTION_ON },
  { "steps", required_argument, NULL, OPTION_STEPS },
  { "data", required_argument, NULL, OPTION_DATA },
  { "seed", required_argument, NULL, OPTION_SEED },
  { "same-batch", no_argument, NULL, OPTION_SAME_BATCH },
  { "learning-rate", required_argument, NULL, OPTION_LEARNING_RATE },
  { "without-offload", no_argument, NULL, OPTION_WITHOUT_OFFLOAD },
  { "interleave", required_argument, NULL, OPTION_INTERLEAVE },
  { "interleavings", required_argument, NULL, OPTION_INTERLEAVINGS },
  { "threads", required_argument, NULL, OPTION_THREADS },
  { "disk-dir", required_argument, NULL, OPTION_DISK_DIR },
  { "json", no_argument, NULL, OPTION_JSON },
  { "tensors", no_argument, NULL, OPTION_TENSORS },
  { "dump", required_argument, NULL, OPTION_DUMP },
  { "trace", required_argument, NULL, OPTION_TRACE },
  { "plan", required_argument, NULL, OPTION_PLAN },
  { "gpus", required_argument, NULL, OPTION_GPUS },
  { "arithmetic", required_argument, NULL, OPTION_ARITHMETIC },
  { "backing", required_argument, NULL, OPTION_BACKING },
  { "timed", no_argument, NULL, OPTION_TIMED },
  { "contents", no_argument, NULL, OPTION_CONTENTS },
  { "guards", no_argument, NULL, OPTION_GUARDS },
  { "nvtx", no_argument, NULL, OPTION_NVTX },
  { NULL, 0, NULL, 0 },
};

static bool help(void)
{
  printf(
      "usage: offsim run --on ref|cuda [OPTION...] [SCENARIO.yaml]\n"
      "       offsim run --on ref [--interleave SEED | --interleavings N] --plan FILE\n\n"
      "Executes the plan of every rank with real arithmetic, all ranks in this process: forward,\n"
      "backward and optimizer step. On the CPU (ref) bit for bit the same wherever it runs; on\n"
      "NVIDIA GPUs (cuda) with streams, events and the allocator as the plan has them\n"
      "(docs/reference/run.md). Exit status 1: the plan reads what is not there, or orders of its\n"
      "ops that it allows do not agree.\n\n" LOAD_USAGE
      "  --on EXECUTOR              ref: the reference on the CPU; cuda: GPUs\n"
      "  --steps N                  optimizer steps (default 5)\n"
      "  --data FILE                train on the bytes of a text; without, on a made-up stream\n"
      "  --seed N                   of weights, dropout and the made-up stream (default 1)\n"
      "  --same-batch               every step reads the samples of the first\n"
      "  --learning-rate X          constant (default 0.001)\n"
      "  --without-offload          the same run without offload\n"
      "  --interleave SEED          run the ops in another legal order, which the seed draws\n"
      "  --interleavings N          compare N such orders with the program's\n"
      "  --threads N                for the large products (default 1); cannot change a bit\n"
      "  --disk-dir DIR             where files of disk offload lie (default $TMPDIR or /tmp)\n"
      "  --tensors                  fingerprints of each parameter and its gradient too\n"
      "  --dump FILE                all values of parameters and gradients "
      "(docs/reference/run.md)\n"
      "  --trace FILE               every op with fingerprints of what it wrote, for offsim "
      "compare\n"
      "                             (docs/reference/traces.md)\n"
      "  --plan FILE                a plan as offsim plan prints it: what its ops hand on, "
      "without\n"
      "                             arithmetic\n"
      "  --json                     machine-readable result (docs/reference/run.md)\n\n"
      "With --on cuda:\n"
      "  --gpus N                   deal the ranks out to N GPUs (default: as many as there are, "
      "at\n"
      "                             most one for each rank); 0: the CPU stands in for one\n"
      "  --arithmetic KIND          fast: tensor cores (default); exact: the bits of ref\n"
      "  --timed                    no fingerprints: nothing but the steps themselves\n"
      "  --trace FILE               the ops of the last step with their times\n"
      "  --contents                 ... or with what they wrote, op by op, without times\n"
      "  --backing ALLOCATOR        caching: the one that is simulated (default); malloc_async:\n"
      "                             cudaMallocAsync\n"
      "  --guards                   known bytes around every buffer, looked at when it is freed\n"
      "  --nvtx                     ops are ranges for Nsight Systems\n");
  return true;
}

static bool wrong(diag *d, const char *option, const char *value, const char *expected)
{
  return diag_error(d, (source_pos){ option, 0, 0 }, "\"%s\": expected %s", value, expected);
}

static int64_t whole(const char *option, const char *value, int64_t least, int64_t most, diag *d)
{
  int64_t number = least;
  if (!scalar_i64(value, &number) || number < least || number > most)
    diag_error(d, (source_pos){ option, 0, 0 },
               "\"%s\": expected a whole number from %" PRId64 " to %" PRId64, value, least, most);
  return number;
}

static double rate(const char *value, diag *d)
{
  double number = 0;
  if (!scalar_double(value, &number) || number < 0 || number > 1)
    wrong(d, "--learning-rate", value, "a number from 0 to 1");
  return number;
}

static const char *one_of(const char *option, const char *value, const char *first,
                          const char *second, diag *d)
{
  if (strcmp(value, first) != 0 && strcmp(value, second) != 0)
    diag_error(d, (source_pos){ option, 0, 0 }, "\"%s\": expected %s or %s", value, first, second);
  return value;
}

static void take_order(run_options *o, const char *value, diag *d)
{
  o->order = (exec_order){ true, (uint64_t)whole("--interleave", value, 0, INT64_MAX, d) };
}

static void take_option(void *context, int code, const char *value, diag *d)
{
  run_options *o = context;
  switch (code) {
  case 'h':
  case OPTION_HELP: o->help = true; break;
  case OPTION_ON: o->executor = value; break;
  case OPTION_STEPS: o->steps = whole("--steps", value, 1, MOST_STEPS, d); break;
  case OPTION_DATA: o->data = value; break;
  case OPTION_SEED: o->seed = (uint64_t)whole("--seed", value, 0, INT64_MAX, d); break;
  case OPTION_SAME_BATCH: o->same_batch = true; break;
  case OPTION_LEARNING_RATE: o->learning_rate = rate(value, d); break;
  case OPTION_WITHOUT_OFFLOAD: o->without_offload = true; break;
  case OPTION_INTERLEAVE: take_order(o, value, d); break;
  case OPTION_INTERLEAVINGS:
    o->interleavings = (uint64_t)whole("--interleavings", value, 1, INT64_MAX, d);
    break;
  case OPTION_THREADS: o->threads = whole("--threads", value, 1, REF_THREADS_MAX, d); break;
  case OPTION_DISK_DIR: o->disk_dir = value; break;
  case OPTION_JSON: o->json = true; break;
  case OPTION_TENSORS: o->tensors = true; break;
  case OPTION_DUMP: o->dump = value; break;
  case OPTION_TRACE: o->trace = value; break;
  case OPTION_PLAN: o->plan = value; break;
  case OPTION_GPUS: o->gpus = whole("--gpus", value, 0, MOST_GPUS, d); break;
  case OPTION_ARITHMETIC: o->arithmetic = one_of("--arithmetic", value, "fast", "exact", d); break;
  case OPTION_BACKING: o->backing = one_of("--backing", value, "caching", "malloc_async", d); break;
  case OPTION_TIMED: o->timed = true; break;
  case OPTION_CONTENTS: o->contents = true; break;
  case OPTION_GUARDS: o->guards = true; break;
  case OPTION_NVTX: o->nvtx = true; break;
  }
}

/* An option that the executor does not have. */
static bool refuse_option(const char *option, const char *on, diag *d)
{
  return diag_error(d, (source_pos){ option, 0, 0 }, "--on %s has no such option", on);
}

static bool check_cuda(const run_options *o, diag *d)
{
  if (o->order.interleaved) return refuse_option("--interleave", "cuda", d);
  if (o->interleavings > 0) return refuse_option("--interleavings", "cuda", d);
  if (o->plan != NULL) return refuse_option("--plan", "cuda", d);
  bool fast = o->arithmetic == NULL || strcmp(o->arithmetic, "fast") == 0;
  if (fast && (o->tensors || o->dump != NULL))
    return diag_error(d, (source_pos){ o->tensors ? "--tensors" : "--dump", 0, 0 },
                      "needs --arithmetic exact, which brings the model to the host");
  if (o->contents && o->trace == NULL)
    return diag_error(d, (source_pos){ "--contents", 0, 0 }, "of what? --trace FILE takes them");
  return true;
}

static bool check_ref(const run_options *o, diag *d)
{
  const struct {
    const char *name;
    bool given;
  } of_cuda[] = {
    { "--gpus", o->gpus >= 0 },    { "--arithmetic", o->arithmetic != NULL },
    { "--timed", o->timed },       { "--backing", o->backing != NULL },
    { "--contents", o->contents }, { "--guards", o->guards },
    { "--nvtx", o->nvtx },
  };
  for (size_t i = 0; i < sizeof of_cuda / sizeof *of_cuda; i++)
    if (of_cuda[i].given) return refuse_option(of_cuda[i].name, "ref", d);
  return true;
}

static bool check_executor(const run_options *o, diag *d)
{
  source_pos at = { "--on", 0, 0 };
  if (o->executor == NULL)
    return diag_error(d, at, "which executor? --on ref runs on the CPU, --on cuda on GPUs");
  bool on_cuda = strcmp(o->executor, "cuda") == 0;
  if (!on_cuda && strcmp(o->executor, "ref") != 0)
    return diag_error(d, at, "there is no executor \"%s\"; expected ref or cuda", o->executor);
  if (!(on_cuda ? check_cuda(o, d) : check_ref(o, d))) return false;
  return !(o->order.interleaved && o->interleavings > 0) ||
         diag_error(d, (source_pos){ "--interleavings", 0, 0 },
                    "one order (--interleave) or many can be asked for, not both");
}

static bool check_files(const run_options *o, diag *d)
{
  return o->trace == NULL || o->dump == NULL || strcmp(o->trace, o->dump) != 0 ||
         diag_error(d, (source_pos){ "--dump", 0, 0 }, "\"%s\" is the file of --trace", o->dump);
}

/* Under mpirun all processes run the same; the first one tells. */
static bool join_processes(const run_options *o, diag *d)
{
  if (strcmp(o->executor, "cuda") != 0) return true;
  if (!world_open(d) || world_of().processes == 1) return diag_ok(d);
  if (o->trace != NULL || o->dump != NULL || o->tensors)
    return diag_error(d, (source_pos){ 0 },
                      "--trace, --dump and --tensors are of a run in one process");
  return world_of().number == 0 || freopen("/dev/null", "w", stdout) != NULL ||
         diag_refused(d, "/dev/null cannot be opened");
}

/* A text has neither weights nor data. */
static bool check_plain(const run_options *o, diag *d)
{
  const struct {
    const char *name;
    bool given;
  } of_scenarios[] = {
    { "--data", o->data != NULL },         { "--dump", o->dump != NULL },
    { "--trace", o->trace != NULL },       { "--tensors", o->tensors },
    { "--same-batch", o->same_batch },     { "--without-offload", o->without_offload },
    { "--disk-dir", o->disk_dir != NULL },
  };
  for (size_t i = 0; i < sizeof of_scenarios / sizeof *of_scenarios; i++)
    if (of_scenarios[i].given)
      return diag_error(d, (source_pos){ of_scenarios[i].name, 0, 0 },
                        "is of scenarios; a plan (--plan) is run once and without arithmetic");
  return true;
}

static bool run(run_options *o, bool *right, int argc, char **argv, arena *a, diag *d)
{
  const load_verb verb = { "run", long_options, take_option, o };
  if (!load_parse(&o->load, &verb, argc, argv, a, d)) return false;
  if (o->help) return help();
  if (!check_executor(o, d) || !check_files(o, d) || !join_processes(o, d)) return false;
  ref_set_threads((uint32_t)o->threads);
  if (o->plan == NULL) return run_scenario(o, right, a, d);
  if (load_is_given(&o->load))
    return diag_error(d, (source_pos){ "--plan", 0, 0 },
                      "a plan is run as it is; no configuration can stand beside it");
  if (!check_plain(o, d)) return false;
  run_plan_options plain = { o->plan, o->order, o->interleavings, o->json };
  return run_plan_text(&plain, right, a, d);
}

int verb_run(int argc, char **argv)
{
  run_options o = { .steps = 5, .threads = 1, .learning_rate = 1e-3, .seed = 1, .gpus = -1 };
  arena a = { 0 };
  diag d = { 0 };
  bool right = true;
  run(&o, &right, argc, argv, &a, &d);
  arena_release(&a);
  int status = diag_finish(&d);
  if (status != 0 && world_of().processes > 1) world_abort(status);
  world_close();
  return status == 0 && !right ? 1 : status;
}
