#include "sim/cli/run_plan.h"

#include <inttypes.h>
#include <stdio.h>

#include "ref/exec/interleavings.h"
#include "sim/base/file.h"
#include "sim/plan/text.h"

static void tell_json(const interleavings_result *r)
{
  printf("{\n  \"format_version\": 1,\n  \"interleavings\": %" PRIu64 ",\n  \"agree\": %s", r->run,
         r->agree ? "true" : "false");
  if (!r->agree && !r->in_program_order) printf(",\n  \"seed\": %" PRIu64, r->seed);
  if (r->finding != NULL) {
    fputs(",\n  \"finding\": \"", stdout);
    for (const char *c = r->finding; *c != '\0'; c++) {
      if (*c == '"' || *c == '\\') putchar('\\');
      putchar(*c);
    }
    putchar('"');
  }
  fputs("\n}\n", stdout);
}

static void tell_finding(const interleavings_result *r)
{
  if (r->in_program_order)
    fprintf(stderr, "offsim: error: in the program's order: %s\n", r->finding);
  else
    fprintf(stderr, "offsim: error: --interleave %" PRIu64 ": %s\n", r->seed, r->finding);
}

bool run_plan_text(const run_plan_options *o, bool *right, arena *a, diag *d)
{
  size_t length;
  const char *text = file_read(a, o->path, PLAN_TEXT_LIMIT_BYTES, &length, d);
  plan p;
  if (text == NULL || !plan_parse(&p, o->path, text, length, a, d)) return false;
  uint64_t first = o->order.interleaved ? o->order.seed : 1;
  uint64_t count = o->order.interleaved ? 1 : o->interleavings;
  interleavings_result r = ref_interleavings(&p, NULL, first, count, a);
  *right = r.agree;
  if (o->json)
    tell_json(&r);
  else if (r.agree && r.run == 0)
    puts("in the program's order every op reads what is there");
  else if (r.agree)
    printf("%" PRIu64 " interleavings agree with the program's order\n", r.run);
  if (!r.agree) tell_finding(&r);
  plan_release(&p);
  return true;
}
