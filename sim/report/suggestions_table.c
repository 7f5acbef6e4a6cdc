#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/config/megatron/paste.h"
#include "sim/report/prediction_view.h"

/* The others are in the JSON. */
enum { SUGGESTIONS_SHOWN = 10 };

typedef enum suggested_column {
  SUGGESTED_NAME,
  SUGGESTED_STEP,
  SUGGESTED_COST,
  SUGGESTED_TOKENS,
  SUGGESTED_MFU,
  SUGGESTED_ALLOCATED,
  SUGGESTED_RESERVED,
  SUGGESTED_PINNED,
  SUGGESTED_COLUMNS
} suggested_column;

static const char *suggested_cell(const view *v, suggested_column column, const suggestion *s)
{
  int64_t step_ps = v->p->result.step_ps;
  switch (column) {
  case SUGGESTED_NAME: return s->tried.name;
  case SUGGESTED_STEP: return figure_in(v->memory, s->step_ps, v->time);
  case SUGGESTED_COST: return figure_percent(v->memory, s->step_ps - step_ps, step_ps, 2);
  case SUGGESTED_TOKENS: return arena_printf(v->memory, "%" PRId64, s->speed.tokens_per_s);
  case SUGGESTED_MFU: return figure_mfu(v->memory, s->speed.mfu_millionths);
  case SUGGESTED_ALLOCATED: return figure_in(v->memory, s->allocated_peak_bytes, v->bytes);
  case SUGGESTED_RESERVED: return figure_in(v->memory, s->reserved_peak_bytes, v->bytes);
  case SUGGESTED_PINNED: return figure_in(v->memory, s->host_pinned_total_bytes, v->bytes);
  case SUGGESTED_COLUMNS: break;
  }
  assert(0 && "column out of range");
  return "";
}

/* On one line, to paste; under it the same for the launch script. */
static void print_suggested_sets(const view *v, const suggestion *s)
{
  fprintf(v->out, "  %s:", s->tried.name);
  for (uint32_t i = 0; i < s->tried.set_count; i++)
    fprintf(v->out, " --set %s", s->tried.sets[i]);
  if (s->unsafe.kind != NULL)
    fprintf(v->out, " (%s: %s on rank %" PRIu32 ", %s)", alarm_text(v->memory, "not safe", v->out),
            s->unsafe.kind, s->unsafe.rank, s->unsafe.where);
  fputc('\n', v->out);
  megatron_pasted p;
  if (!megatron_takes_options(v->p->settings) ||
      !megatron_paste(&p, s->tried.sets, s->tried.set_count, v->memory))
    return;
  if (*p.flags != '\0') fprintf(v->out, "      %s\n", p.flags);
  if (*p.left_out != '\0') fprintf(v->out, "      without %s\n", p.left_out);
}

/* Names are at the left: blanks fill them up to the longest. */
static const char *padded(const view *v, const suggestions *found, uint32_t shown, const char *name)
{
  int width = 0;
  for (uint32_t i = 0; i < shown; i++)
    width = (int)max_i64(width, (int64_t)strlen(found->items[i].tried.name));
  return arena_printf(v->memory, "%-*s", width, name);
}

static void print_fitting(const view *v, const suggestions *found)
{
  static const char *const heads[2][SUGGESTED_COLUMNS] = {
    { "", "", "cost", "tokens/s", "MFU", "peak:", "", "pinned" },
    { "", "step", "%", "per GPU", "%", "allocated", "reserved", "by a host" }
  };
  uint32_t shown = (uint32_t)min_i64(SUGGESTIONS_SHOWN, found->fitting_count);
  grid g = grid_new(v->memory, SUGGESTED_COLUMNS, shown);
  for (int c = 0; c < SUGGESTED_COLUMNS; c++) {
    for (int line = 0; line < 2; line++)
      g.head[line][c] = heads[line][c];
    for (uint32_t i = 0; i < shown; i++)
      g.cells[i * SUGGESTED_COLUMNS + (uint32_t)c] =
          suggested_cell(v, (suggested_column)c, &found->items[i]);
  }
  for (uint32_t i = 0; i < shown; i++)
    g.cells[i * SUGGESTED_COLUMNS] = padded(v, found, shown, found->items[i].tried.name);
  bool fits = v->p->fits_device && v->p->fits_host, one = found->fitting_count == 1;
  wrap_line(v->out, 0, "%s %s; %s and %s, cost beside this run",
            figure_count(v->memory, found->fitting_count, "single setting", "single settings"),
            fits  ? one ? "needs less memory" : "need less memory"
            : one ? "makes it fit"
                  : "make it fit",
            v->bytes.name, v->time.name);
  grid_print(&g, v->out);
  fputc('\n', v->out);
  for (uint32_t i = 0; i < shown; i++)
    print_suggested_sets(v, &found->items[i]);
  if (shown < found->fitting_count)
    fprintf(v->out, "  and %u more: --json lists them\n", found->fitting_count - shown);
}

static void print_nearest(const view *v, const suggestions *found)
{
  fprintf(v->out, "none of %u single settings fits", found->count + found->ruled_out);
  if (found->count > 0)
    fprintf(v->out, "; the nearest is \"%s\", which is missing %s", found->items[0].tried.name,
            view_bytes(v, found->items[0].short_of.missing_bytes));
  fputc('\n', v->out);
  if (found->count > 0) print_suggested_sets(v, &found->items[0]);
}

void suggestions_table(const prediction *p, const suggestions *found, FILE *out, arena *a)
{
  const view at = view_new(p, out, a), *v = &at;
  bool fits = v->p->fits_device && v->p->fits_host;
  fputc('\n', v->out);
  if (found->fitting_count > 0)
    print_fitting(v, found);
  else if (fits)
    fprintf(v->out, "no single setting needs less memory\n");
  else
    print_nearest(v, found);
  if (found->left_out > 0)
    fprintf(v->out, "%s not predicted, as that takes long: --suggest predicts all\n",
            figure_count(v->memory, found->left_out, "more was", "more were"));
}
