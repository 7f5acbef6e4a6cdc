#include <stdio.h>

#include "sim/base/file.h"
#include "sim/cli/verbs.h"
#include "sim/load/options.h"
#include "sim/report/real_run.h"

typedef struct import_options {
  bool json, align;
  const char *record;
  int64_t rank;
} import_options;

static const char head[] =
    "usage: offsim import [OPTION...] FILE...\n\n"
    "What one rank of a real run did: streams and their roles, copies, busy and idle time, "
    "passes,\n"
    "memory at the peaks with the lines of code that own it. Files of one run: a trace of "
    "PyTorch's\n"
    "profiler (Kineto JSON), a memory snapshot of PyTorch (pickle), an export of Nsight Systems\n"
    "(SQLite), what offsim record wrote, or a record of offsim. A trace and a snapshot are joined "
    "by\n"
    "their clock (docs/reference/real-runs.md).\n\n";

#define OPTIONS import_options
static const option_row rows[] = {
  { OPTION_ROW("output", "FILE",
               "-o FILE, write what was read as a record, which import and compare\nread faster",
               OPTION_TEXT),
    MEMBER(record), .letter = 'o' },
  WHOLE("rank", "N", rank, 0, INT32_MAX,
        "of offsim's own record and of Nsight Systems' exports, which have\nseveral ranks (default "
        "0)"),
  FLAG("align", align,
       "FILEs are traces of several ranks: print the offsets of their\nclocks, from the "
       "collectives that they share"),
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
  bool silent = file_is_stdout(o->record);
  if (o->json && !silent)
    real_run_json(&s, of, stdout);
  else if (!silent)
    real_run_table(&s, of, stdout, a);
  return o->record == NULL || real_run_write(r, o->record, d);
}

/* ---- several ranks ---- */

static bool read_ranks(real_run *runs, char **files, int count, diag *d)
{
  for (int i = 0; i < count; i++) {
    if (!real_run_read(&runs[i], files[i], 0, d) || !real_run_finish(&runs[i], d)) return false;
    if (runs[i].meetings.count == 0)
      return diag_error(d, (source_pos){ files[i], 0, 0 },
                        "has no collectives whose groups are named: PyTorch's profiler names them "
                        "from 2.3 on");
  }
  return true;
}

static bool align(const import_options *o, char **files, int count, arena *a, diag *d)
{
  real_run *runs = ARENA_ARRAY(a, real_run, (size_t)count);
  const real_run **of = ARENA_ARRAY(a, const real_run *, (size_t)count);
  if (count < 2 || o->record != NULL)
    return diag_error(d, (source_pos){ "--align", 0, 0 },
                      count < 2 ? "needs the traces of two ranks or more"
                                : "writes no record; -o needs one rank");
  for (int i = 0; i < count; i++) {
    real_run_init(&runs[i], a);
    of[i] = &runs[i];
  }
  bool ok = read_ranks(runs, files, count, d);
  if (ok) {
    const aligned_ranks ranks = { of, (const char *const *)files,
                                  align_clocks(of, (uint32_t)count, a), (uint32_t)count };
    if (o->json)
      aligned_ranks_json(&ranks, stdout);
    else
      aligned_ranks_table(&ranks, stdout, a);
  }
  for (int i = 0; i < count; i++)
    real_run_release(&runs[i]);
  return ok;
}

static bool import(const import_options *o, char **files, int count, arena *a, diag *d)
{
  if (count == 0)
    return diag_error(d, (source_pos){ 0 }, "import takes the files of a run; found none");
  if (o->align) return align(o, files, count, a, d);
  real_run r;
  real_run_init(&r, a);
  bool ok = read_all(&r, o, files, count, d) && print(&r, o, a, d);
  real_run_release(&r);
  return ok;
}

int verb_import(int argc, char **argv)
{
  import_options o = { .json = false };
  const verb_syntax v = { "import", head, { { rows, &o } } };
  arena a = { 0 };
  diag d = { 0 };
  int rest;
  if (options_parse(&v, argc, argv, &rest, &a, &d) == PARSED)
    import(&o, argv + rest, argc - rest, &a, &d);
  arena_release(&a);
  return diag_finish(&d);
}
