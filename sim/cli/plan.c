#include <stdio.h>
#include <string.h>

#include "sim/base/file.h"
#include "sim/cli/load.h"
#include "sim/cli/verbs.h"
#include "sim/compile/compile.h"
#include "sim/plan/text.h"
#include "sim/text/scalar.h"

typedef struct plan_options {
  load_options load;
  bool help, warmup, without_offload;
  bool for_compile; /* --iteration or --without-offload was given */
  const char *plan; /* a text to read instead of a configuration */
  bool some_ranks;  /* --rank was given */
  bool ranks[PLAN_TEXT_RANKS];
  uint32_t last_rank; /* the highest given */
} plan_options;

enum {
  OPTION_HELP = OPTION_OF_VERB,
  OPTION_RANK,
  OPTION_ITERATION,
  OPTION_WITHOUT_OFFLOAD,
  OPTION_PLAN
};

static const struct option long_options[] = {
  LOAD_LONG_OPTIONS,
  { "help", no_argument, NULL, OPTION_HELP },
  { "rank", required_argument, NULL, OPTION_RANK },
  { "iteration", required_argument, NULL, OPTION_ITERATION },
  { "without-offload", no_argument, NULL, OPTION_WITHOUT_OFFLOAD },
  { "plan", required_argument, NULL, OPTION_PLAN },
  { NULL, 0, NULL, 0 },
};

static bool help(void)
{
  printf("usage: offsim plan [OPTION...] [SCENARIO.yaml]\n"
         "       offsim plan [--rank N]... --plan FILE\n\n"
         "What the host thread of every pipeline rank issues in one iteration, an op a line\n"
         "(docs/reference/plan.md).\n\n" LOAD_USAGE
         "  --rank N                   only this pipeline rank; may be repeated\n"
         "  --iteration warmup|steady  the first iteration, or a later one (default steady)\n"
         "  --without-offload          the same run without offload\n"
         "  --plan FILE                read a plan, check it and print it again\n");
  return true;
}

static void take_rank(plan_options *o, const char *value, diag *d)
{
  int64_t rank;
  if (!scalar_i64(value, &rank) || rank < 0 || rank >= PLAN_TEXT_RANKS) {
    diag_error(d, (source_pos){ "--rank", 0, 0 },
               "\"%s\" is no pipeline rank; expected a whole number from 0 to %d", value,
               PLAN_TEXT_RANKS - 1);
    return;
  }
  o->some_ranks = o->ranks[rank] = true;
  if ((uint32_t)rank > o->last_rank) o->last_rank = (uint32_t)rank;
}

static void take_iteration(plan_options *o, const char *value, diag *d)
{
  o->warmup = strcmp(value, "warmup") == 0;
  o->for_compile = true;
  if (!o->warmup && strcmp(value, "steady") != 0)
    diag_error(d, (source_pos){ "--iteration", 0, 0 },
               "\"%s\" is no iteration; expected warmup or steady", value);
}

static void take_option(void *context, int code, const char *value, diag *d)
{
  plan_options *o = context;
  switch (code) {
  case 'h':
  case OPTION_HELP: o->help = true; break;
  case OPTION_RANK: take_rank(o, value, d); break;
  case OPTION_ITERATION: take_iteration(o, value, d); break;
  case OPTION_WITHOUT_OFFLOAD: o->without_offload = o->for_compile = true; break;
  case OPTION_PLAN: o->plan = value; break;
  }
}

/* The plan, or the ranks asked for, on standard output. */
static bool print(const plan_options *o, const plan *p, diag *d)
{
  if (o->last_rank >= p->rank_count)
    return diag_error(d, (source_pos){ "--rank", 0, 0 },
                      "there is no pipeline rank %u; the last one is %u", o->last_rank,
                      p->rank_count - 1);
  plan_print(stdout, p, o->some_ranks ? o->ranks : NULL);
  return (fflush(stdout) == 0 && !ferror(stdout)) ||
         diag_refused(d, "the plan could not be written to standard output");
}

static bool reprint(const plan_options *o, arena *a, diag *d)
{
  if (load_is_given(&o->load) || o->for_compile)
    return diag_error(d, (source_pos){ "--plan", 0, 0 },
                      "a plan is read as it is; of the other options only --rank can stand beside");
  size_t length;
  const char *text = file_read(a, o->plan, PLAN_TEXT_LIMIT_BYTES, &length, d);
  plan p;
  if (text == NULL || !plan_parse(&p, o->plan, text, length, a, d)) return false;
  bool ok = print(o, &p, d);
  plan_release(&p);
  return ok;
}

static bool compile_and_print(const plan_options *o, arena *a, diag *d)
{
  settings s;
  const machine *m;
  compilation c;
  if (!load_settings(&o->load, &s, &m, a, d)) return false;
  if (o->without_offload) s = settings_without_offload(&s);
  bool ok = compile(&c, &s, o->warmup ? ITERATION_WARMUP : ITERATION_STEADY, a, d) &&
            print(o, &c.plan, d);
  compilation_release(&c);
  return ok;
}

static bool run(plan_options *o, int argc, char **argv, arena *a, diag *d)
{
  const load_verb verb = { "plan", long_options, take_option, o };
  if (!load_parse(&o->load, &verb, argc, argv, a, d)) return false;
  if (o->help) return help();
  return o->plan != NULL ? reprint(o, a, d) : compile_and_print(o, a, d);
}

int verb_plan(int argc, char **argv)
{
  plan_options o = { 0 };
  arena a = { 0 };
  diag d = { 0 };
  run(&o, argc, argv, &a, &d);
  arena_release(&a);
  return diag_finish(&d);
}
