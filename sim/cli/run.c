#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ref/exec/interleavings.h"
#include "ref/kernels/threads.h"
#include "sim/cli/processes.h"
#include "sim/cli/run.h"
#include "sim/cli/verbs.h"
#include "sim/text/json_text.h"
#include "sim/world/world.h"

enum { MOST_STEPS = 1000000, MOST_GPUS = 64 };

static const char head[] =
    "usage: offsim run --on ref|cuda [OPTION...] [SCENARIO.yaml]\n"
    "       offsim run --on ref [--interleave SEED | --interleavings N] --plan FILE\n\n"
    "Executes the plan of every rank with real arithmetic, all ranks in this process: forward,\n"
    "backward and optimizer step. On the CPU (ref) bit for bit the same wherever it runs; on\n"
    "NVIDIA GPUs (cuda) with streams, events and the allocator as the plan has them\n"
    "(docs/reference/run.md). Exit status 1: the plan reads data that is not there, or two legal\n"
    "orders of its ops disagree.\n\n";

#define OPTIONS run_options
static const option_row rows[] = {
  TEXT("on", "EXECUTOR", executor, "ref: the reference on the CPU; cuda: GPUs"),
  WHOLE("steps", "N", steps, 1, MOST_STEPS, "optimizer steps (default 5)"),
  TEXT("data", "FILE", data, "train on the bytes of a text (default: a made-up stream)"),
  WHOLE("seed", "N", seed, 0, INT64_MAX, "of weights, dropout and the made-up stream (default 1)"),
  FLAG("same-batch", same_batch, "every step reads the samples of the first"),
  REAL("learning-rate", "X", learning_rate, 0, 1, "constant (default 0.001)"),
  FLAG("without-offload", without_offload, "the same run without offload"),
  WHOLE("interleave", "SEED", interleave, 0, INT64_MAX,
        "run the ops in another legal order, which the seed draws"),
  WHOLE("interleavings", "N", interleavings, 1, INT64_MAX,
        "compare N such orders with the program's"),
  WHOLE("threads", "N", threads, 1, REF_THREADS_MAX,
        "for the large products (default 1); cannot change a bit"),
  TEXT("disk-dir", "DIR", disk_dir, "folder for files of disk offload (default $TMPDIR or /tmp)"),
  FLAG("tensors", tensors, "fingerprints of each parameter and its gradient too"),
  TEXT("dump", "FILE", dump, "all values of parameters and gradients (docs/reference/run.md)"),
  TEXT("record", "FILE", record,
       "every op with fingerprints of what it wrote, for offsim compare\n"
       "(docs/reference/traces.md)"),
  TEXT("plan", "FILE", plan,
       "a plan as offsim plan prints it, without arithmetic: each op writes\n"
       "a hash of what it reads"),
  FLAG("json", json, "machine-readable result (docs/reference/run.md)"),
  NOTE("\nWith --on cuda:"),
  WHOLE("gpus", "N", gpus, 0, MOST_GPUS,
        "deal the ranks out to N GPUs (default: as many as there are, at\n"
        "most one for each rank); 0: the CPU replaces one"),
  CHOICE("arithmetic", "KIND", arithmetic, "fast|exact",
         "fast: tensor cores (default); exact: the bits of ref"),
  FLAG("timed", timed, "no fingerprints: nothing but the steps themselves"),
  NOTE("  --record FILE              the ops of the last step with their times"),
  FLAG("contents", contents, "... or with fingerprints of what they wrote, without times"),
  TEXT("trace", "FILE", trace,
       "timeline of the last step as a trace in the form of PyTorch's\n"
       "profiler, for ui.perfetto.dev or HTA; packed if FILE ends in .gz, -\nis standard output, "
       "instead of the report"),
  TEXT("trace-ranks", "LIST", trace_ranks, "only these ranks: 0, 0,2 or 1-3"),
  CHOICE("backing", "ALLOCATOR", backing, "caching|malloc_async",
         "caching: the one that is simulated (default); malloc_async:\n"
         "cudaMallocAsync"),
  FLAG("guards", guards, "known bytes around every buffer, checked when it is freed"),
  FLAG("nvtx", nvtx, "ops are ranges for Nsight Systems"),
  { .name = NULL },
};

/* The executor does not have this option. */
static bool refuse_option(const char *option, const char *on, diag *d)
{
  return diag_error(d, (source_pos){ option, 0, 0 }, "--on %s has no such option", on);
}

static bool check_cuda(const run_options *o, diag *d)
{
  if (o->interleave >= 0) return refuse_option("--interleave", "cuda", d);
  if (o->interleavings > 0) return refuse_option("--interleavings", "cuda", d);
  if (o->plan != NULL) return refuse_option("--plan", "cuda", d);
  if (o->arithmetic != ARITHMETIC_EXACT && (o->tensors || o->dump != NULL))
    return diag_error(d, (source_pos){ o->tensors ? "--tensors" : "--dump", 0, 0 },
                      "needs --arithmetic exact, which brings the model to the host");
  if (o->contents && o->record == NULL)
    return diag_error(d, (source_pos){ "--contents", 0, 0 },
                      "needs --record FILE, which takes them");
  if (o->trace != NULL && (o->contents || o->gpus == 0))
    return diag_error(d, (source_pos){ "--trace", 0, 0 },
                      o->contents ? "has times, which a run with --contents does not"
                                  : "the CPU in place of a GPU has no clock");
  return true;
}

static bool check_ref(const run_options *o, diag *d)
{
  const struct {
    const char *name;
    bool given;
  } of_cuda[] = {
    { "--gpus", o->gpus >= 0 },    { "--arithmetic", o->arithmetic >= 0 },
    { "--timed", o->timed },       { "--backing", o->backing >= 0 },
    { "--contents", o->contents }, { "--guards", o->guards },
    { "--nvtx", o->nvtx },
  };
  for (size_t i = 0; i < sizeof of_cuda / sizeof *of_cuda; i++)
    if (of_cuda[i].given) return refuse_option(of_cuda[i].name, "ref", d);
  return (o->trace == NULL && o->trace_ranks == NULL) ||
         diag_error(d, (source_pos){ o->trace != NULL ? "--trace" : "--trace-ranks", 0, 0 },
                    "--on ref has no clock; --record FILE takes what its ops write");
}

static bool check_executor(const run_options *o, diag *d)
{
  source_pos at = { "--on", 0, 0 };
  if (o->executor == NULL)
    return diag_error(d, at, "give an executor: --on ref runs on the CPU, --on cuda on GPUs");
  bool on_cuda = strcmp(o->executor, "cuda") == 0;
  if (!on_cuda && strcmp(o->executor, "ref") != 0)
    return diag_error(d, at, "there is no executor \"%s\"; expected ref or cuda", o->executor);
  if (!(on_cuda ? check_cuda(o, d) : check_ref(o, d))) return false;
  return !(o->interleave >= 0 && o->interleavings > 0) ||
         diag_error(d, (source_pos){ "--interleavings", 0, 0 },
                    "--interleave runs one order, --interleavings many; give one of them");
}

static bool are_apart(const char *option, const char *file, const char *other, const char *of,
                      diag *d)
{
  return file == NULL || of == NULL || strcmp(file, of) != 0 ||
         diag_error(d, (source_pos){ option, 0, 0 }, "\"%s\" is the file of %s", file, other);
}

static bool check_files(const run_options *o, diag *d)
{
  return are_apart("--dump", o->dump, "--record", o->record, d) &&
         are_apart("--dump", o->dump, "--trace", o->trace, d) &&
         are_apart("--trace", o->trace, "--record", o->record, d);
}

/* Under mpirun all processes run the same. */
static bool join_processes(const run_options *o, diag *d)
{
  if (strcmp(o->executor, "cuda") != 0) return true;
  if (!processes_join(d) || world_of().processes == 1) return diag_ok(d);
  if (o->record != NULL || o->trace != NULL || o->dump != NULL || o->tensors)
    return diag_error(d, (source_pos){ 0 },
                      "--record, --trace, --dump and --tensors need a run in one process");
  return true;
}

/* A plan text has neither weights nor data. */
static bool check_plain(const run_options *o, diag *d)
{
  const struct {
    const char *name;
    bool given;
  } of_scenarios[] = {
    { "--data", o->data != NULL },
    { "--dump", o->dump != NULL },
    { "--record", o->record != NULL },
    { "--tensors", o->tensors },
    { "--trace", o->trace != NULL },
    { "--same-batch", o->same_batch },
    { "--without-offload", o->without_offload },
    { "--disk-dir", o->disk_dir != NULL },
  };
  for (size_t i = 0; i < sizeof of_scenarios / sizeof *of_scenarios; i++)
    if (of_scenarios[i].given)
      return diag_error(d, (source_pos){ of_scenarios[i].name, 0, 0 },
                        "needs a scenario; a plan (--plan) is run once and without arithmetic");
  return true;
}

/* ---- a plan that was given as text ---- */

static void print_orders_json(const interleavings_result *r)
{
  printf("{\n  \"format_version\": 1,\n  \"interleavings\": %" PRIu64 ",\n  \"agree\": %s", r->run,
         r->agree ? "true" : "false");
  if (!r->agree && !r->in_program_order) printf(",\n  \"seed\": %" PRIu64, r->seed);
  if (r->finding != NULL) {
    fputs(",\n  \"finding\": ", stdout);
    json_string(stdout, r->finding);
  }
  fputs("\n}\n", stdout);
}

static void print_finding(const interleavings_result *r)
{
  if (r->in_program_order)
    fprintf(stderr, "offsim: error: in the program's order: %s\n", r->finding);
  else
    fprintf(stderr, "offsim: error: --interleave %" PRIu64 ": %s\n", r->seed, r->finding);
}

/* An op's writes are hashes of its reads. *right: all orders that were run agree, and no op reads
 * contents that do not exist. */
static bool run_plan_text(const run_options *o, bool *right, arena *a, diag *d)
{
  plan p;
  if (!load_plan(&p, o->plan, a, d)) return false;
  bool one = o->interleave >= 0;
  interleavings_result r = ref_interleavings(&p, NULL, one ? (uint64_t)o->interleave : 1,
                                             one ? 1 : (uint64_t)o->interleavings, a);
  *right = r.agree;
  if (o->json)
    print_orders_json(&r);
  else if (r.agree && r.run == 0)
    puts("in the program's order every op reads what is there");
  else if (r.agree)
    printf("%" PRIu64 " interleavings agree with the program's order\n", r.run);
  if (!r.agree) print_finding(&r);
  plan_release(&p);
  return true;
}

/* ---- all ---- */

static bool run(const run_options *o, bool *right, arena *a, diag *d)
{
  if (!check_executor(o, d) || !check_files(o, d) || !join_processes(o, d)) return false;
  ref_set_threads((uint32_t)o->threads);
  if (o->plan == NULL) return run_scenario(o, right, a, d);
  if (load_is_given(&o->load))
    return diag_error(d, (source_pos){ "--plan", 0, 0 },
                      "a plan is run as it is; no configuration can be given with it");
  return check_plain(o, d) && run_plan_text(o, right, a, d);
}

int verb_run(int argc, char **argv)
{
  run_options o = { .steps = 5,
                    .threads = 1,
                    .learning_rate = 1e-3,
                    .seed = 1,
                    .interleave = -1,
                    .gpus = -1,
                    .arithmetic = -1,
                    .backing = -1 };
  const verb_syntax v = {
    "run", head, { { load_rows, &o.load }, { load_iteration_rows, &o.load }, { rows, &o } }
  };
  arena a = { 0 };
  diag d = { 0 };
  bool right = true;
  if (load_command(&o.load, &v, argc, argv, &a, &d) == PARSED) run(&o, &right, &a, &d);
  arena_release(&a);
  int status = processes_finish(&d);
  return status == 0 && !right ? 1 : status;
}
