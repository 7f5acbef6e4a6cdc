#include "sim/report/tuned.h"

#include <inttypes.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/predict/budget_bound.h"
#include "sim/report/json.h"
#include "sim/report/ranking.h"
#include "sim/report/text.h"
#include "sim/sweep/row_text.h"
#include "sim/text/json_text.h"

/* ---- for people ---- */

static void print_count(FILE *out, uint32_t count, const char *what)
{
  if (count > 0) wrap_line(out, 10, "  %7u %s", count, what);
}

static void print_counts(const tuned *t, const tune_request *r, FILE *out, arena *a)
{
  fprintf(out, "%s\n", figure_count(a, t->all, "setting", "settings"));
  print_count(out, t->refused, "refused by the rules of the settings");
  print_count(out, t->same, "the same as another");
  print_count(out, t->too_large,
              arena_printf(a, "allocate more than %s",
                           figure_capacity(a, machine_usable_bytes(r->machine))));
  print_count(out, t->too_slow,
              "slower than the last of the table even without offload, at the highest clock, in "
              "unlimited memory");
  print_count(out, t->dominated, "by both bounds no faster than one of the front, and no smaller");
  print_count(out, t->unsafe, "not safe: offsim check refuses the plan");
  print_count(out, t->predicted, "predicted");
}

static void print_columns(const tuned *t, FILE *out, arena *a)
{
  static const ranking_column columns[] = { RANKING_PLACE,    RANKING_STEP,   RANKING_SLOWER,
                                            RANKING_TOKENS,   RANKING_MFU,    RANKING_ALLOCATED,
                                            RANKING_RESERVED, RANKING_PINNED, RANKING_SAFE };
  ranked *rows = ARENA_ARRAY(a, ranked, t->count);
  for (uint32_t i = 0; i < t->count; i++)
    rows[i] = (ranked){ &t->items[i].row, t->items[i].unsafe };
  ranking_print(rows, t->count, columns, sizeof columns / sizeof *columns, out, a);
}

static void print_bounds(const tuned *t, const tune_request *r, FILE *out, arena *a)
{
  figure_unit time = unit_of_time(t->items[0].row.step_ps);
  const char *over = "";
  fputc('\n', out);
  wrap_text(out, "bound", 10,
            arena_printf(a,
                         "no setting is faster than %s: a run without offload, at the highest "
                         "clock, in unlimited memory",
                         figure_with_unit(a, t->fastest_bound_ps, time)),
            " ");
  if (t->budget.step_ps <= t->fastest_bound_ps) return;
  if (t->budget.over_bytes > 0)
    over = arena_printf(a,
                        ", and %s GiB that backward needs do not fit: they are copied at the "
                        "link's rate or computed again",
                        figure(a, t->budget.over_bytes, GIB, 1));
  wrap_text(out, "budget", 10,
            arena_printf(a,
                         "none is faster than %s in %s: its kernels take %s at the clock that "
                         "power allows%s",
                         figure_with_unit(a, t->budget.step_ps, time),
                         figure_capacity(a, machine_usable_bytes(r->machine)),
                         figure_with_unit(a, t->budget.kernels_ps, time), over),
            " ");
}

/* One kind of memory at a time: what the other keeps out it does not buy. */
static void print_larger(const larger_budget *l, int64_t bytes, const char *option, const tuned *t,
                         FILE *out, arena *a)
{
  const sweep_row *row = &l->setting.row;
  const char *less = "";
  if (row->step_ps == 0) return;
  if (t->count > 0)
    less = arena_printf(
        a, ", %s %% less",
        figure_percent(a, t->items[0].row.step_ps - row->step_ps, t->items[0].row.step_ps, 2));
  wrap_text(out, "more", 10,
            arena_printf(a, "with %s GiB more, %s %s, a step takes %s%s:",
                         figure(a, l->bytes - bytes, GIB, 3), option, figure(a, l->bytes, GIB, 3),
                         figure_with_unit(a, row->step_ps, unit_of_time(row->step_ps)), less),
            " ");
  fputs("         ", out);
  candidate_sets_print(&row->tried, out);
}

static void print_more(const tuned *t, const tune_request *r, FILE *out, arena *a)
{
  print_larger(&t->larger_gpu, machine_usable_bytes(r->machine), "--gpu-memory", t, out, a);
  print_larger(&t->larger_host, r->machine->host.memory_bytes, "--host-memory", t, out, a);
  if (t->count == 0 || t->larger_gpu.setting.row.step_ps > 0 ||
      t->larger_host.setting.row.step_ps > 0)
    return;
  const char *none = "more memory makes no step 1 % shorter";
  if (t->fastest_bound_ps < worth_ps(t->items[0].row.step_ps))
    none = "of the settings that do not fit, none is known to be 1 % faster in more memory";
  wrap_line(out, 10, "more      %s", none);
}

/* The fastest setting may use the link all the time: then a link that is not as fast as the machine's
 * file says costs it most. */
static void print_slack(const best_notes *n, const sweep_row *best, FILE *out, arena *a)
{
  if (n->slower_copies_ps == 0) return;
  fprintf(out, "slack     copies that are %d %% slower make it %s, %s %% more\n",
          SLOWER_COPIES_PERCENT,
          figure_with_unit(a, n->slower_copies_ps, unit_of_time(best->step_ps)),
          figure_percent(a, n->slower_copies_ps - best->step_ps, best->step_ps, 2));
}

/* What --allow-unsafe would find, and that the repaired code is another question. */
static void print_faster_unsafe(const tuned *t, FILE *out, arena *a)
{
  const sweep_row *u = &t->faster_unsafe.row;
  if (u->step_ps == 0) return;
  figure_unit time = unit_of_time(u->step_ps);
  fprintf(out, "unsafe    %s, but offsim check refuses its plan:\n         ",
          figure_with_unit(a, u->step_ps, time));
  candidate_sets_print(&u->tried, out);
  wrap_line(out, 10,
            "          --allow-unsafe lists such settings; --set offload.mode=fixed predicts the "
            "repaired code");
}

/* How much of the best a user has without offsim's own. */
static void print_today(const tuned *t, const tune_request *r, FILE *out, arena *a)
{
  bool of_verl = r->given->derived.of_verl;
  const sweep_row *today = &t->today.row, *best = &t->items[0].row;
  if (today->step_ps == 0) return;
  fprintf(out, "own       %s: docs/systems/planned.md says what %s does, and how PyTorch does it\n",
          of_verl ? "verl does not have the first" : "the first is offsim's own",
          of_verl ? "offsim's own" : "it");
  fprintf(out, "today     %s, %s %% more, is the best that %s:\n         ",
          figure_with_unit(a, today->step_ps, unit_of_time(best->step_ps)),
          figure_percent(a, today->step_ps - best->step_ps, best->step_ps, 2),
          of_verl ? "verl has" : "frameworks have");
  candidate_sets_print(&today->tried, out);
}

static void print_nothing_fits(const tuned *t, FILE *out, arena *a)
{
  if (t->refusal != NULL) {
    fputc('\n', out);
    wrap_text(out, "refused", 10, arena_printf(a, "all of them; the first: %s", t->refusal), " ");
    return;
  }
  fputs("\nnone of them fits", out);
  if (t->too_large > 0 && t->predicted == 0)
    fprintf(out, ": each allocates at least %s",
            figure_with_unit(a, t->least_too_large_bytes, unit_of_bytes(t->least_too_large_bytes)));
  fputs("; --over varies more, such as parallelism or micro_batch_size\n", out);
}

/* A file's lines go into it as they are. */
static void print_lines(const char *text, FILE *out)
{
  const char *head = "flags     ";
  for (; *text != '\0'; head = "          ") {
    int length = (int)strcspn(text, "\n");
    fprintf(out, "%s%.*s\n", head, length, text);
    text += length + (text[length] == '\n');
  }
}

static void print_flags(const best_notes *n, FILE *out)
{
  if (n->program == NULL) return;
  if (n->flags == NULL)
    fprintf(out, "flags     none: %s has nothing that says it\n", n->program);
  else if (*n->flags == '\0' && *n->left_out == '\0')
    fputs("flags     none: what was given says it\n", out);
  else if (strchr(n->flags, '\n') != NULL)
    print_lines(n->flags, out);
  else if (*n->flags != '\0')
    wrap_text(out, "flags     ", 10, n->flags, " ");
  if (n->left_out != NULL && *n->left_out != '\0')
    wrap_text(out, "without   ", 10, n->left_out, " ");
}

void tuned_table(const tuned *t, const tune_request *r, const best_notes *n, FILE *out, arena *a)
{
  print_counts(t, r, out, a);
  if (t->count == 0) {
    print_nothing_fits(t, out, a);
    print_more(t, r, out, a);
    print_faster_unsafe(t, out, a);
    return;
  }
  const sweep_row *best = &t->items[0].row;
  figure_unit time = unit_of_time(best->step_ps);
  fprintf(out, "\n%s; %s and %s\n",
          r->front ? "the front: each is the fastest that reserves so little"
                   : "the fastest that fit",
          unit_of_bytes(best->reserved_peak_bytes).name, time.name);
  print_columns(t, out, a);
  fputc('\n', out);
  for (uint32_t i = 0; i < t->count; i++)
    ranking_sets_print(i + 1, &t->items[i].row.tried, out);
  print_bounds(t, r, out, a);
  wrap_line(out, 10, "the best  %s", n->why);
  print_more(t, r, out, a);
  print_slack(n, best, out, a);
  print_faster_unsafe(t, out, a);
  print_today(t, r, out, a);
  print_flags(n, out);
}

/* ---- for programs ---- */

static void json_setting(const tuned_setting *s, FILE *out)
{
  fputs("{ \"set\": ", out);
  json_strings(out, s->row.tried.sets, s->row.tried.set_count);
  fputs(", ", out);
  bytes_member(out, "allocated_peak_bytes", s->row.allocated_peak_bytes);
  bytes_member(out, "reserved_peak_bytes", s->row.reserved_peak_bytes);
  bytes_member(out, "host_pinned_total_bytes", s->row.host_pinned_total_bytes);
  fprintf(out, "\"safe\": %s, ", s->unsafe ? "false" : "true");
  throughput_members(out, s->row.speed);
  seconds_member(out, "step_time_s", s->row.step_ps, " }");
}

static void json_setting_or_null(const char *key, const tuned_setting *s, FILE *out)
{
  fprintf(out, "  \"%s\": ", key);
  if (s->row.step_ps == 0)
    fputs("null", out);
  else
    json_setting(s, out);
  fputs(",\n", out);
}

static void json_larger(const char *key, const larger_budget *l, FILE *out)
{
  fprintf(out, "  \"%s\": ", key);
  if (l->setting.row.step_ps == 0) {
    fputs("null", out);
  } else {
    fprintf(out, "{ \"bytes\": %" PRId64 ", \"setting\": ", l->bytes);
    json_setting(&l->setting, out);
    fputs(" }", out);
  }
  fputs(",\n", out);
}

static void json_text(FILE *out, const char *key, const char *text, const char *after)
{
  fprintf(out, "  \"%s\": ", key);
  if (text == NULL)
    fputs("null", out);
  else
    json_string(out, text);
  fputs(after, out);
}

void best_notes_json(const best_notes *n, FILE *out)
{
  json_text(out, "program", n->program, ",\n");
  json_text(out, "flags", n->flags, ",\n");
  json_text(out, "left_out", n->left_out, ",\n");
  json_text(out, "why", n->why, ",\n");
}

void tuned_json(const tuned *t, const tune_request *r, const best_notes *n, FILE *out)
{
  fprintf(out, "{\n  \"format_version\": %d,\n", JSON_FORMAT_VERSION);
  json_text(out, "machine", r->machine->name, ",\n");
  fprintf(out, "  \"capacity_bytes\": %" PRId64 ",\n", machine_usable_bytes(r->machine));
  fprintf(out,
          "  \"settings\": %u,\n  \"refused\": %u,\n  \"same\": %u,\n  \"too_large\": %u,\n"
          "  \"too_slow\": %u,\n  \"dominated\": %u,\n  \"predicted\": %u,\n  \"unsafe\": %u,\n",
          t->all, t->refused, t->same, t->too_large, t->too_slow, t->dominated, t->predicted,
          t->unsafe);
  fputs("  ", out);
  seconds_member(out, "fastest_bound_s", t->fastest_bound_ps, ",\n  ");
  if (t->budget.step_ps == 0 || t->budget.step_ps == BUDGET_TOO_SMALL)
    fputs("\"budget_bound_s\": null,\n", out);
  else
    seconds_member(out, "budget_bound_s", t->budget.step_ps, ",\n");
  best_notes_json(n, out);
  fputs("  ", out);
  if (n->slower_copies_ps == 0)
    fputs("\"slower_copies_step_time_s\": null,\n", out);
  else
    seconds_member(out, "slower_copies_step_time_s", n->slower_copies_ps, ",\n");
  json_setting_or_null("faster_unsafe", &t->faster_unsafe, out);
  json_setting_or_null("today", &t->today, out);
  json_larger("larger_gpu_memory", &t->larger_gpu, out);
  json_larger("larger_host_memory", &t->larger_host, out);
  fputs("  \"best\": [", out);
  for (uint32_t i = 0; i < t->count; i++) {
    fputs(i == 0 ? "\n    " : ",\n    ", out);
    json_setting(&t->items[i], out);
  }
  fputs(t->count == 0 ? "]\n}\n" : "\n  ]\n}\n", out);
}

void tuned_csv(const tuned *t, FILE *out)
{
  fputs("place,set,step_time_s,tokens_per_s_per_gpu,mfu,allocated_peak_bytes,reserved_peak_bytes,"
        "host_pinned_total_bytes,safe\n",
        out);
  for (uint32_t i = 0; i < t->count; i++) {
    const sweep_row *r = &t->items[i].row;
    fprintf(out, "%u,", i + 1);
    csv_sets(out, &r->tried);
    fputc(',', out);
    json_decimal(out, r->step_ps, 12);
    fprintf(out, ",%" PRId64 ",", r->speed.tokens_per_s);
    if (r->speed.mfu_millionths >= 0) json_decimal(out, r->speed.mfu_millionths, 6);
    fprintf(out, ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%s\n", r->allocated_peak_bytes,
            r->reserved_peak_bytes, r->host_pinned_total_bytes,
            t->items[i].unsafe ? "false" : "true");
  }
}
