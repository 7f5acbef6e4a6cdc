#include "sim/report/search_page.h"

#include <inttypes.h>
#include <stdlib.h>

#include "sim/report/json.h"
#include "sim/report/page.h"
#include "sim/report/ranking.h"
#include "sim/sweep/row_text.h"

/* ---- the rows of a sweep ---- */

enum { ROWS_KEPT = 2 * PAGE_ROWS };

static int by_merit(const void *left, const void *right)
{
  const sweep_row *a = left, *b = right;
  if (a->verdict != b->verdict) return a->verdict == SWEEP_FITS ? -1 : 1;
  if (a->verdict == SWEEP_DOES_NOT_FIT && a->missing_bytes != b->missing_bytes)
    return a->missing_bytes < b->missing_bytes ? -1 : 1;
  return ranking_order(a, b);
}

void shown_rows_finish(shown_rows *s)
{
  uint32_t kept = 0;
  int64_t least_bytes = INT64_MAX;
  if (s->count > 0) qsort(s->items, s->count, sizeof *s->items, by_merit);
  for (uint32_t i = 0; i < s->count; i++) {
    const sweep_row *r = &s->items[i];
    bool on_front = r->verdict == SWEEP_FITS && r->reserved_peak_bytes < least_bytes;
    if (on_front) least_bytes = r->reserved_peak_bytes;
    if (on_front || i < PAGE_ROWS) s->items[kept++] = *r;
  }
  s->count = kept;
}

void shown_rows_add(shown_rows *s, const sweep_row *row)
{
  if (row->verdict == SWEEP_REFUSED) return;
  if (s->count >= ROWS_KEPT && s->count == s->capacity) shown_rows_finish(s);
  sweep_row *r = ARRAY_PUSH(s);
  *r = *row;
  r->tried = (candidate){ .order = row->tried.order };
}

void shown_rows_release(shown_rows *s)
{
  ARRAY_FREE(s);
}

/* ---- parts of both pages ---- */

/* A part: what --set takes, of one setting. Called in the order of the settings. */
static void put_command(FILE *out, uint32_t place, const candidate *c)
{
  char *text;
  size_t length;
  FILE *line = open_memstream(&text, &length);
  if (line == NULL) die_refused("memory: a stream of it");
  candidate_sets_print(c, line);
  fclose(line);
  fputs(place > 0 ? ",\n" : "[", out);
  json_string(out, text);
  free(text);
}

void tuned_html(const tuned *t, const tune_request *r, const best_notes *n, const char *name,
                FILE *out, arena *a)
{
  page whole = { .kind = "search", .title = name };
  FILE *f = page_add(&whole, "table", PAGE_TEXT);
  tuned_table(t, r, n, f, a);
  fclose(f);
  f = page_add(&whole, "figures", PAGE_JSON);
  tuned_json(t, r, n, f);
  fclose(f);
  f = page_add(&whole, "commands", PAGE_JSON);
  for (uint32_t i = 0; i < t->count; i++)
    put_command(f, i, &t->items[i].row.tried);
  fputs(t->count == 0 ? "[]" : "]", f);
  fclose(f);
  page_write(&whole, out);
}

static void sweep_json(const sweep_best *b, const shown_rows *shown, const sweep *w,
                       const char *fingerprint, const best_notes *n, FILE *out)
{
  fprintf(out, "{\n  \"format_version\": %d,\n  \"machine\": ", JSON_FORMAT_VERSION);
  json_string(out, w->machine->name);
  fprintf(out,
          ",\n  \"capacity_bytes\": %" PRId64
          ",\n  \"fit\": %u,\n  \"do_not_fit\": %u,\n  \"refused\": %u,\n",
          machine_usable_bytes(w->machine), b->verdicts[SWEEP_FITS],
          b->verdicts[SWEEP_DOES_NOT_FIT], b->verdicts[SWEEP_REFUSED]);
  best_notes_json(n, out);
  fprintf(out, "  \"safe\": %s,\n  \"rows\": [", n->unsafe ? "false" : "true");
  for (uint32_t i = 0; i < shown->count; i++) {
    arena scratch = { 0 };
    sweep_row row = shown->items[i];
    row.tried = space_at(w->space, row.tried.order);
    fprintf(out, "%s%s", i > 0 ? "," : "\n", row_line(ROW_JSON, fingerprint, &row, &scratch));
    arena_release(&scratch);
  }
  fputs("  ]\n}\n", out);
}

void sweep_html(const sweep_best *b, const shown_rows *shown, const sweep *w,
                const char *fingerprint, const best_notes *n, const char *name, FILE *out, arena *a)
{
  page whole = { .kind = "search", .title = name };
  FILE *f = page_add(&whole, "table", PAGE_TEXT);
  sweep_table(b, w->space, f, a);
  fclose(f);
  f = page_add(&whole, "figures", PAGE_JSON);
  sweep_json(b, shown, w, fingerprint, n, f);
  fclose(f);
  f = page_add(&whole, "commands", PAGE_JSON);
  for (uint32_t i = 0; i < shown->count; i++) {
    candidate c = space_at(w->space, shown->items[i].tried.order);
    put_command(f, i, &c);
  }
  fputs(shown->count == 0 ? "[]" : "]", f);
  fclose(f);
  page_write(&whole, out);
}
