#include <stdio.h>
#include <string.h>

#include "sim/base/file.h"
#include "sim/cli/load.h"
#include "sim/cli/verbs.h"
#include "sim/plan/text.h"
#include "sim/predict/safety.h"
#include "sim/report/findings.h"

typedef struct check_options {
  load_options load;
  bool help, json, advice;
  const char *plan; /* a text to read instead of a configuration */
} check_options;

enum { OPTION_HELP = OPTION_OF_VERB, OPTION_JSON, OPTION_ADVICE, OPTION_PLAN };

static const struct option long_options[] = {
  LOAD_LONG_OPTIONS,
  { "help", no_argument, NULL, OPTION_HELP },
  { "json", no_argument, NULL, OPTION_JSON },
  { "advice", no_argument, NULL, OPTION_ADVICE },
  { "plan", required_argument, NULL, OPTION_PLAN },
  { NULL, 0, NULL, 0 },
};

static bool help(void)
{
  printf(
      "usage: offsim check [OPTION...] [SCENARIO.yaml]\n"
      "       offsim check [OPTION...] --plan FILE\n\n"
      "Decides for every legal timing at once whether a plan is free of races, of blocks and host\n"
      "buffers that are reused too early, of deadlock and of leaks (docs/reference/verifier.md).\n"
      "Exit status 1: it is not.\n\n" LOAD_USAGE
      "  --plan FILE                a plan as offsim plan prints it (- reads standard input)\n"
      "  --advice                   list synchronisation that could be left out too\n"
      "  --json                     machine-readable result (docs/reference/json.md)\n");
  return true;
}

static void take_option(void *context, int code, const char *value, diag *d)
{
  check_options *o = context;
  (void)d;
  switch (code) {
  case 'h':
  case OPTION_HELP: o->help = true; break;
  case OPTION_JSON: o->json = true; break;
  case OPTION_ADVICE: o->advice = true; break;
  case OPTION_PLAN: o->plan = value; break;
  }
}

/* Returns whether all of them are safe. */
static bool tell(const check_options *o, const verified_iteration *iterations, uint32_t count,
                 arena *a)
{
  bool safe = true;
  for (uint32_t i = 0; i < count; i++)
    safe = safe && iterations[i].verification->safe;
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
                      "a plan is checked as it is; no configuration can stand beside it");
  size_t length;
  const char *text = file_read(a, o->plan, PLAN_TEXT_LIMIT_BYTES, &length, d);
  plan p;
  if (text == NULL || !plan_parse(&p, o->plan, text, length, a, d)) return false;
  verification v;
  verify_plan(&v, &p, NULL, a);
  bool safe = tell(o, &(verified_iteration){ o->plan, &v }, 1, a);
  verification_release(&v);
  plan_release(&p);
  return safe;
}

static bool check_compiled(const check_options *o, arena *a, diag *d)
{
  settings s;
  const machine *m;
  safety found;
  if (!load_settings(&o->load, &s, &m, a, d)) return false;
  bool safe = safety_find(&found, &s, a, d) && tell(o, found.iterations, SAFETY_ITERATIONS, a);
  safety_release(&found);
  return safe;
}

static bool run(check_options *o, int argc, char **argv, arena *a, diag *d)
{
  const load_verb verb = { "check", long_options, take_option, o };
  if (!load_parse(&o->load, &verb, argc, argv, a, d)) return false;
  if (o->help) return help();
  return o->plan != NULL ? check_text(o, a, d) : check_compiled(o, a, d);
}

int verb_check(int argc, char **argv)
{
  check_options o = { 0 };
  arena a = { 0 };
  diag d = { 0 };
  bool safe = run(&o, argc, argv, &a, &d);
  arena_release(&a);
  int status = diag_finish(&d);
  return status == 0 && !safe ? 1 : status;
}
