#include <stdio.h>

#include "sim/cli/verbs.h"
#include "sim/load/options.h"
#include "sim/report/real_run.h"

typedef struct import_options {
  bool json;
  const char *record;
  int64_t rank;
} import_options;

static const char head[] =
    "usage: offsim import [OPTION...] FILE...\n\n"
    "What one rank of a real run did: streams and their roles, copies, busy and idle time, "
    "passes,\n"
    "memory at the peaks with the lines of code that own it. Files, plain or gzip, of one run: a\n"
    "trace of PyTorch's profiler (Kineto JSON), a memory snapshot of PyTorch (pickle), what "
    "offsim\n"
    "record wrote, or a record of offsim. A trace and a snapshot are joined by their clock\n"
    "(docs/reference/real-runs.md).\n\n";

#define OPTIONS import_options
static const option_row rows[] = {
  { OPTION_ROW("output", "FILE",
               "-o FILE, write what was read as a record, which import and compare\nread faster",
               OPTION_TEXT),
    MEMBER(record), .letter = 'o' },
  WHOLE("rank", "N", rank, 0, INT32_MAX, "of offsim's own record, which has all ranks (default 0)"),
  FLAG("json", json, "machine-readable result (docs/reference/real-runs.md)"),
  { .name = NULL },
};

static bool read_all(real_run *r, const import_options *o, char **files, int count, diag *d)
{
  for (int i = 0; i < count; i++)
    if (!real_run_read(r, files[i], (uint32_t)o->rank, d)) return false;
  return real_run_finish(r, d);
}

static bool print(const real_run *r, const import_options *o, arena *a, diag *d)
{
  run_summary s = run_summary_of(r, a);
  run_memory memory = { .run = NULL };
  if (r->has_memory) memory = run_memory_of(r, a);
  const run_memory *of = r->has_memory ? &memory : NULL;
  if (o->json)
    real_run_json(&s, of, stdout);
  else
    real_run_table(&s, of, stdout, a);
  return o->record == NULL || real_run_write(r, o->record, d);
}

int verb_import(int argc, char **argv)
{
  import_options o = { .json = false };
  const verb_syntax v = { "import", head, { { rows, &o } } };
  arena a = { 0 };
  diag d = { 0 };
  int rest;
  if (options_parse(&v, argc, argv, &rest, &a, &d) == PARSED) {
    if (rest == argc) {
      diag_error(&d, (source_pos){ 0 }, "import takes the files of a run; found none");
    } else {
      real_run r;
      real_run_init(&r, &a);
      if (read_all(&r, &o, argv + rest, argc - rest, &d)) print(&r, &o, &a, &d);
      real_run_release(&r);
    }
  }
  arena_release(&a);
  return diag_finish(&d);
}
