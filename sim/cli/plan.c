#include <stdio.h>
#include <string.h>

#include "sim/cli/verbs.h"
#include "sim/compile/compile.h"
#include "sim/load/load.h"
#include "sim/plan/text.h"
#include "sim/report/saved_tensors.h"
#include "sim/text/scalar.h"

typedef struct plan_options {
  load_options load;
  bool without_offload, saved_tensors;
  int iteration;    /* of "warmup|steady"; -1: not given */
  const char *plan; /* a text to read instead of a configuration */
  bool some_ranks;  /* --rank was given */
  bool ranks[PLAN_TEXT_RANKS];
  uint32_t last_rank; /* the highest given */
} plan_options;

static void take_rank(void *to, const char *value, arena *a, diag *d)
{
  plan_options *o = to;
  int64_t rank;
  (void)a;
  if (!scalar_i64(value, &rank) || rank < 0 || rank >= PLAN_TEXT_RANKS) {
    diag_error(d, (source_pos){ "--rank", 0, 0 },
               "\"%s\" is no pipeline rank; expected a whole number from 0 to %d", value,
               PLAN_TEXT_RANKS - 1);
    return;
  }
  o->some_ranks = o->ranks[rank] = true;
  if ((uint32_t)rank > o->last_rank) o->last_rank = (uint32_t)rank;
}

static void take_iteration(void *to, const char *value, arena *a, diag *d)
{
  plan_options *o = to;
  if (strcmp(value, "warmup") == 0 || strcmp(value, "steady") == 0)
    o->iteration = strcmp(value, "steady") == 0;
  else
    load_take_iteration(&o->load, value, a, d);
}

static const char head[] =
    "usage: offsim plan [OPTION...] [SCENARIO.yaml]\n"
    "       offsim plan [--rank N]... --plan FILE\n\n"
    "What the host thread of every pipeline rank issues in one iteration, an op a line\n"
    "(docs/reference/plan.md).\n\n";

#define OPTIONS plan_options
static const option_row rows[] = {
  TAKE("rank", "N", take_rank, "only this pipeline rank; may be repeated"),
  TAKE("iteration", "WHICH", take_iteration,
       "warmup: the first; steady: a later one (default);\n"
       "N: the iteration whose batch is taken where a schedule changes it"),
  FLAG("without-offload", without_offload, "the same run without offload"),
  FLAG("saved-tensors", saved_tensors,
       "instead, what happens to each saved tensor, as JSON: what a hook of\n"
       "a framework can follow (docs/reference/json.md)"),
  TEXT("plan", "FILE", plan, "read a plan, check it and print it again"),
  { .name = NULL },
};

/* The plan, or the ranks asked for, on standard output. */
static bool print(const plan_options *o, const plan *p, diag *d)
{
  if (o->saved_tensors && o->some_ranks)
    return diag_error(d, (source_pos){ "--saved-tensors", 0, 0 },
                      "it lists all pipeline ranks; --rank cannot be given with it");
  if (o->last_rank >= p->rank_count)
    return diag_error(d, (source_pos){ "--rank", 0, 0 },
                      "there is no pipeline rank %u; the last one is %u", o->last_rank,
                      p->rank_count - 1);
  if (o->saved_tensors)
    saved_tensors_json(p, stdout);
  else
    plan_print(stdout, p, o->some_ranks ? o->ranks : NULL);
  return (fflush(stdout) == 0 && !ferror(stdout)) ||
         diag_refused(d, "the plan could not be written to standard output");
}

static bool reprint(const plan_options *o, arena *a, diag *d)
{
  if (load_is_given(&o->load) || o->iteration >= 0 || o->without_offload)
    return diag_error(
        d, (source_pos){ "--plan", 0, 0 },
        "a plan is read as it is; of the other options only --rank or --saved-tensors can be given "
        "with it");
  plan p;
  if (!load_plan(&p, o->plan, a, d)) return false;
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
  bool ok = compile(&c, &s, o->iteration == 0 ? ITERATION_WARMUP : ITERATION_STEADY, a, d) &&
            print(o, &c.plan, d);
  compilation_release(&c);
  return ok;
}

int verb_plan(int argc, char **argv)
{
  plan_options o = { .iteration = -1 };
  const verb_syntax v = { "plan", head, { { load_rows, &o.load }, { rows, &o } } };
  arena a = { 0 };
  diag d = { 0 };
  if (load_command(&o.load, &v, argc, argv, &a, &d) == PARSED) {
    if (o.plan != NULL)
      reprint(&o, &a, &d);
    else
      compile_and_print(&o, &a, &d);
  }
  arena_release(&a);
  return diag_finish(&d);
}
