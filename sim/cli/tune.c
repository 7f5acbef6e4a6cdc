#include <stdio.h>

#include "sim/base/file.h"
#include "sim/base/units.h"
#include "sim/cli/best.h"
#include "sim/cli/over.h"
#include "sim/cli/processes.h"
#include "sim/cli/progress_line.h"
#include "sim/cli/threads.h"
#include "sim/cli/verbs.h"
#include "sim/load/load.h"
#include "sim/offload/systems.h"
#include "sim/report/plot.h"
#include "sim/report/search_page.h"
#include "sim/tune/choices.h"
#include "sim/world/world.h"
#include "traces/packed.h"

enum { BEST = 5, MOST_BEST = 1000 };
#define MOST_GIB 1048576.0

typedef struct tune_options {
  load_options load;
  double gpu_gib, host_gib;
  int64_t best, threads; /* best 0: not given */
  bool allow_unsafe, exhaustive, front, json;
  const char *csv, *plot, *html;
  space space;
} tune_options;

static const char head[] =
    "usage: offsim tune [OPTION...] [SCENARIO.yaml]\n\n"
    "The fastest settings that fit: searches recomputation (modules, uniform and block layers),\n"
    "offload (modules and their fraction, layers; for Hugging Face's models every system) and\n"
    "expandable segments, and what --over adds; an --over of recomputation, offload or segments\n"
    "replaces what is searched there. Bounds leave out only what cannot be among the best: the\n"
    "result is that of predicting every setting (docs/reference/tune.md).\n\n";

#define OPTIONS tune_options
static const option_row rows[] = {
  REAL("gpu-memory", "GIB", gpu_gib, 0, MOST_GIB,
       "memory of a GPU that PyTorch may have (default: the machine's)"),
  REAL("host-memory", "GIB", host_gib, 0, MOST_GIB,
       "memory of a host for pinned buffers of all its GPUs (default: likewise)"),
  WHOLE("best", "N", best, 1, MOST_BEST, "settings to find (default 5)"),
  FLAG("front", front,
       "instead of the fastest, all that nothing beats in both time and\n"
       "memory: what a smaller budget costs"),
  FLAG("allow-unsafe", allow_unsafe, "also settings whose plan offsim check refuses"),
  FLAG("exhaustive", exhaustive, "no bounds: predict every setting, for the same result"),
  WHOLE("threads", "N", threads, 1, MOST_THREADS, "settings at a time (default: one a core)"),
  FLAG("json", json, "machine-readable result (docs/reference/json.md)"),
  TEXT("csv", "FILE", csv,
       "the settings of the table as CSV; - is standard output, in place\n"
       "of the table"),
  TEXT("html", "FILE", html,
       "one page for a browser: the front, unless --best is given; - is\n"
       "standard output, in place of the table (docs/reference/html.md)"),
  TEXT("plot", "FILE.svg|png|pdf", plot, "memory of those settings beside their step times"),
  { .name = NULL },
};

static void show_progress(void *context, uint32_t decided, uint32_t all, const char *doing)
{
  progress_line *p = context;
  if (doing != NULL)
    progress_line_tell(p, all, doing);
  else if (decided == 0)
    progress_line_restart(p, 0);
  else
    progress_line_show(p, decided, all, "left at most");
}

/* The machine with the asked memory. */
static const machine *machine_with(const tune_options *o, const machine *m, arena *a)
{
  machine *own = ARENA_NEW(a, machine);
  *own = *m;
  if (o->gpu_gib > 0)
    own->gpu.memory_bytes = (int64_t)(o->gpu_gib * GIB) + m->gpu.reserved_by_system_bytes;
  if (o->host_gib > 0) own->host.memory_bytes = (int64_t)(o->host_gib * GIB);
  return own;
}

static bool write_csv(const tuned *t, const char *path, diag *d)
{
  file_writer w;
  if (file_is_stdout(path)) {
    tuned_csv(t, stdout);
    return true;
  }
  if (!file_open(&w, path, d)) return false;
  tuned_csv(t, w.stream);
  return file_close(&w, d);
}

/* No file is better than a picture without a point. */
static bool write_plot(const tuned *t, const machine *m, const char *path, arena *a, diag *d)
{
  if (t->count > 0) return tuned_plot(t, m, path, a, d);
  diag_note(d, (source_pos){ "--plot", 0, 0 }, "no setting fits; \"%s\" is not written", path);
  return true;
}

static bool write_page(const tune_options *o, const tuned *t, const tune_request *r,
                       const best_notes *n, arena *a, diag *d)
{
  packed_file f;
  if (!packed_open(&f, o->html, d)) return false;
  tuned_html(t, r, n, load_name(&o->load), f.stream, a);
  return packed_close(&f, d);
}

/* Standard output is the file's. */
static bool is_silent(const tune_options *o)
{
  return file_is_stdout(o->csv) || file_is_stdout(o->html);
}

static bool check_files(const tune_options *o, diag *d)
{
  if (o->json && is_silent(o))
    return diag_error(d, (source_pos){ file_is_stdout(o->csv) ? "--csv" : "--html", 0, 0 },
                      "standard output is --json's; write to a file");
  if (file_is_stdout(o->csv) && file_is_stdout(o->html))
    return diag_error(d, (source_pos){ "--html", 0, 0 },
                      "standard output is --csv's; write to a file");
  return o->plot == NULL || plot_check_path(o->plot, d);
}

/* Frameworks have the flags of no setting of offsim's own. */
static const tuned_setting *tuned_pasted(const tuned *t)
{
  return t->today.row.step_ps > 0 ? &t->today : &t->items[0];
}

static bool search(const tune_options *o, const tune_request *r, arena *a, diag *d)
{
  tuned t;
  best_notes notes = { 0 };
  bool first = world_of().number == 0;
  progress_line p = progress_line_new(first);
  bool ok = tune(&t, r, &(tune_progress){ show_progress, &p }, a, d);
  if (!first) return ok;
  progress_line_end(&p);
  if (ok && t.count > 0)
    ok = best_find(&notes, r->given, &t.items[0].row.tried, r->machine, r->threads, a, d);
  if (ok && t.count > 0)
    ok = best_slacken(&notes, r->given, &t.items[0].row.tried, r->machine, r->threads, a, d);
  if (ok && t.count > 0) {
    const candidate *pasted = &tuned_pasted(&t)->row.tried;
    best_paste(&notes, &o->load, r->given, pasted, r->machine, a);
  }
  if (ok && o->json) tuned_json(&t, r, &notes, stdout);
  if (ok && !o->json && !is_silent(o)) tuned_table(&t, r, &notes, stdout, a);
  if (ok && o->csv != NULL) ok = write_csv(&t, o->csv, d);
  if (ok && o->html != NULL) ok = write_page(o, &t, r, &notes, a, d);
  if (ok && o->plot != NULL) ok = write_plot(&t, r->machine, o->plot, a, d);
  return ok;
}

/* The settings as they were read, and as they are without a choice. */
typedef struct tune_input {
  settings given, resolved;
  const settings *keep_all;
  const machine *machine;
} tune_input;

static bool read_input(tune_options *o, tune_input *in, arena *a, diag *d)
{
  if (!check_files(o, d)) return false;
  if (!load_given(&o->load, &in->given, &in->machine, a, d)) return false;
  in->resolved = in->given;
  if (!settings_resolve(&in->resolved, offload_conditions, a, d)) return false;
  load_note_assumptions(&o->load, &in->resolved, a, d);
  in->machine = machine_with(o, in->machine, a);
  return choices_add(&o->space, &in->given, &in->resolved, machine_usable_bytes(in->machine),
                     &in->keep_all, a, d) &&
         space_check(&o->space, (source_pos){ "--over", 0, 0 }, d);
}

static bool run(const tune_options *o, const tune_input *in, arena *a, diag *d)
{
  const tune_request r = { .given = &in->given,
                           .keep_all = in->keep_all,
                           .machine = in->machine,
                           .space = &o->space,
                           .best = o->best > 0 ? (uint32_t)o->best : BEST,
                           .threads = threads_or_cores(o->threads),
                           .allow_unsafe = o->allow_unsafe,
                           .front = o->front || (o->html != NULL && o->best == 0),
                           .exhaustive = o->exhaustive };
  return search(o, &r, a, d);
}

int verb_tune(int argc, char **argv)
{
  tune_options o = { 0 };
  const verb_syntax v = {
    "tune",
    head,
    { { load_rows, &o.load },
      { load_iteration_rows, &o.load },
      { over_rows, &o.space },
      { rows, &o } },
  };
  arena a = { 0 };
  diag d = { 0 };
  tune_input in;
  bool ready = processes_join(&d) && load_command(&o.load, &v, argc, argv, &a, &d) == PARSED &&
               read_input(&o, &in, &a, &d);
  if (processes_agree(&d) && ready) run(&o, &in, &a, &d);
  space_release(&o.space);
  arena_release(&a);
  return processes_finish(&d);
}
