#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#include "sim/base/file.h"
#include "sim/cli/best.h"
#include "sim/cli/over.h"
#include "sim/cli/processes.h"
#include "sim/cli/progress_line.h"
#include "sim/cli/threads.h"
#include "sim/cli/verbs.h"
#include "sim/load/load.h"
#include "sim/report/search_page.h"
#include "sim/sweep/journal.h"
#include "sim/world/world.h"
#include "traces/packed.h"

enum { LIST_LIMIT_BYTES = 1 << 28 };

typedef struct sweep_options {
  load_options load;
  const char *list, *output, *html;
  int64_t threads, best;
  space space;
} sweep_options;

static const char head[] =
    "usage: offsim sweep [OPTION...] --over KEY=VALUE|VALUE... [SCENARIO.yaml]\n\n"
    "Predicts many settings: every combination of the values of some keys, on all cores. With\n"
    "--output the file has every predicted row, even after a crash; the same command continues\n"
    "from there.\n\n";

#define OPTIONS sweep_options
static const option_row rows[] = {
  TEXT("list", "FILE", list,
       "settings that set several keys: in each line KEY=VALUE KEY=VALUE...;\n"
       "each with every combination of --over"),
  { OPTION_ROW("output", "FILE", "rows as JSON lines, or as CSV if its name ends in .csv",
               OPTION_TEXT),
    MEMBER(output), .letter = 'o' },
  TEXT("html", "FILE", html,
       "one page for a browser: memory beside time, and a table; - is\n"
       "standard output, in place of the table (docs/reference/html.md)"),
  WHOLE("threads", "N", threads, 1, MOST_THREADS, "settings at a time (default: one a core)"),
  WHOLE("best", "N", best, 0, 100000, "fastest settings to print (default 10)"),
  { .name = NULL },
};

/* ---- rows ---- */

typedef struct taking {
  journal *journal; /* NULL: there is no file */
  sweep_best best;
  bool shows; /* rows for a page */
  shown_rows shown;
  uint32_t done, all; /* rows; those of the file are done */
  progress_line progress;
} taking;

static void keep_row(taking *t, const sweep_row *row)
{
  sweep_best_add(&t->best, row);
  if (t->shows) shown_rows_add(&t->shown, row);
}

static bool take_row(void *to, const sweep_row *row, diag *d)
{
  taking *t = to;
  keep_row(t, row);
  progress_line_show(&t->progress, ++t->done, t->all, "left");
  return t->journal == NULL || journal_add(t->journal, row, d);
}

static bool settle_rows(void *to, diag *d)
{
  taking *t = to;
  return t->journal == NULL || journal_sync(t->journal, d);
}

static bool take_old_row(void *to, const sweep_row *row, diag *d)
{
  taking *t = to;
  (void)d;
  keep_row(t, row);
  t->done++;
  return true;
}

static bool read_list(sweep_options *o, arena *a, diag *d)
{
  size_t length;
  if (o->list == NULL) return true;
  const char *text = file_read(a, o->list, LIST_LIMIT_BYTES, &length, d);
  return text != NULL && space_add_list(&o->space, o->list, text, a, d);
}

static bool read_input(sweep_options *o, settings *given, const machine **m, arena *a, diag *d)
{
  return read_list(o, a, d) && space_check(&o->space, (source_pos){ 0 }, d) &&
         load_given(&o->load, given, m, a, d);
}

/* Nothing is the best if none fits. */
static bool write_page(const sweep_options *o, const sweep *w, taking *t, arena *a, diag *d)
{
  packed_file f;
  best_notes notes = { 0 };
  shown_rows_finish(&t->shown);
  if (t->best.verdicts[SWEEP_FITS] > 0) {
    candidate best = space_at(w->space, t->shown.items[0].tried.order);
    if (!best_find(&notes, w->given, &best, w->machine, w->threads, a, d)) return false;
    best_paste(&notes, &o->load, w->given, &best, w->machine, a);
  }
  if (!packed_open(&f, o->html, d)) return false;
  sweep_html(&t->best, &t->shown, w, sweep_fingerprint(w->given, w->machine, a), &notes,
             load_name(&o->load), f.stream, a);
  return packed_close(&f, d);
}

static bool print_all(const sweep_options *o, const sweep *w, taking *t, arena *a, diag *d)
{
  if (!file_is_stdout(o->html) && !file_is_stdout(o->output))
    sweep_table(&t->best, w->space, stdout, a);
  return o->html == NULL || write_page(o, w, t, a, d);
}

/* Process 0 has the file, the table and the page. */
static bool run(const sweep_options *o, const settings *given, const machine *m, arena *a, diag *d)
{
  uint32_t all = space_count(&o->space);
  bool *done = ARENA_ARRAY(a, bool, all), first = world_of().number == 0;
  const sweep w = { .given = given,
                    .machine = m,
                    .space = &o->space,
                    .done = done,
                    .threads = threads_or_cores(o->threads) };
  taking t = {
    .best = { .limit = (uint32_t)o->best },
    .shows = first && o->html != NULL,
    .all = all,
    .progress = progress_line_new(first),
  };
  const sweep_taker taker = { &t, take_row, settle_rows };
  journal j = { .descriptor = -1 };
  bool filed = first && o->output != NULL;
  bool ok = !filed || journal_open(&j, o->output, &w, done, take_old_row, &t, a, d);
  if (filed) t.journal = &j;
  progress_line_restart(&t.progress, t.done);
  ok = ok && sweep_run(&w, &taker, d);
  progress_line_end(&t.progress);
  if (ok && first) ok = print_all(o, &w, &t, a, d);
  journal_close(&j);
  shown_rows_release(&t.shown);
  sweep_best_release(&t.best);
  return ok;
}

int verb_sweep(int argc, char **argv)
{
  sweep_options o = { .best = 10 };
  const verb_syntax v = {
    "sweep",
    head,
    { { load_rows, &o.load },
      { load_iteration_rows, &o.load },
      { over_rows, &o.space },
      { rows, &o } },
  };
  arena a = { 0 };
  diag d = { 0 };
  settings given;
  const machine *m;
  bool ready = processes_join(&d) && load_command(&o.load, &v, argc, argv, &a, &d) == PARSED &&
               read_input(&o, &given, &m, &a, &d);
  if (processes_agree(&d) && ready) run(&o, &given, m, &a, &d);
  space_release(&o.space);
  arena_release(&a);
  return processes_finish(&d);
}
