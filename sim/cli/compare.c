#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "sim/cli/verbs.h"
#include "sim/report/traces.h"
#include "sim/text/suggest.h"

typedef struct compare_options {
  bool help, json, outputs;
  trace_names names;
} compare_options;

enum { OPTION_HELP = 256, OPTION_JSON, OPTION_OUTPUTS };

static const struct option long_options[] = {
  { "help", no_argument, NULL, OPTION_HELP },
  { "json", no_argument, NULL, OPTION_JSON },
  { "outputs", no_argument, NULL, OPTION_OUTPUTS },
  { NULL, 0, NULL, 0 },
};

static bool help(void)
{
  printf("usage: offsim compare [OPTION...] A B\n\n"
         "Compares two traces (docs/reference/traces.md): whether every rank issued the same ops "
         "in the\n"
         "same order, requested the same memory and wrote the same bits, and which op is the first "
         "that\n"
         "did not. Exit status 1: they differ.\n\n"
         "  --outputs                  judge only what was written, op by op at the same place in "
         "the\n"
         "                             model: for two settings of offload or recomputation\n"
         "  --json                     machine-readable result (docs/reference/json.md)\n");
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

static bool parse(compare_options *o, int argc, char **argv, diag *d)
{
  opterr = 0;
  for (int code; (code = getopt_long(argc, argv, ":h", long_options, NULL)) != -1;) {
    switch (code) {
    case 'h':
    case OPTION_HELP: o->help = true; break;
    case OPTION_JSON: o->json = true; break;
    case OPTION_OUTPUTS: o->outputs = true; break;
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

static bool compare(const compare_options *o, bool *same, arena *a, diag *d)
{
  intern_table texts = { .memory = a };
  trace of_a, of_b = { .ops = { 0 } };
  trace_comparison c;
  bool ok = trace_read(&of_a, o->names.a, &texts, d) && trace_read(&of_b, o->names.b, &texts, d);
  if (ok) {
    trace_compare(&c, &of_a, &of_b, a);
    *same = is_same(o, &c);
    ok = check_contents(o, &c, d);
  }
  if (ok && o->json)
    traces_json(&c, &o->names, *same, stdout);
  else if (ok)
    traces_table(&c, &o->names, o->outputs, stdout, a);
  trace_release(&of_a);
  trace_release(&of_b);
  return ok;
}

int verb_compare(int argc, char **argv)
{
  compare_options o = { .help = false };
  arena a = { 0 };
  diag d = { 0 };
  bool same = true;
  if (parse(&o, argc, argv, &d)) {
    if (o.help)
      help();
    else
      compare(&o, &same, &a, &d);
  }
  arena_release(&a);
  int status = diag_finish(&d);
  return status == 0 && !same ? 1 : status;
}
