#include "sim/sweep/row_text.h"

#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "sim/text/json_text.h"

/* The decimals of a figure. */
typedef enum figure_kind {
  WHOLE = 0,
  RATIO = 6, /* of millionths; below 0: not known */
  TIME = 12  /* seconds, exact to the picosecond */
} figure_kind;

/* The figures, in the order in which they are printed. */
static const struct column {
  const char *name;
  figure_kind kind;
  size_t member; /* an int64_t of sweep_row */
} columns[] = {
  { "step_time_s", TIME, offsetof(sweep_row, step_ps) },
  { "tokens_per_s_per_gpu", WHOLE, offsetof(sweep_row, speed.tokens_per_s) },
  { "mfu", RATIO, offsetof(sweep_row, speed.mfu_millionths) },
  { "step_time_without_offload_s", TIME, offsetof(sweep_row, step_without_offload_ps) },
  { "static_bytes", WHOLE, offsetof(sweep_row, static_bytes) },
  { "allocated_peak_bytes", WHOLE, offsetof(sweep_row, allocated_peak_bytes) },
  { "reserved_peak_bytes", WHOLE, offsetof(sweep_row, reserved_peak_bytes) },
  { "saving_bytes", WHOLE, offsetof(sweep_row, saving_bytes) },
  { "missing_bytes", WHOLE, offsetof(sweep_row, missing_bytes) },
  { "host_pinned_total_bytes", WHOLE, offsetof(sweep_row, host_pinned_total_bytes) },
  { "d2h_bytes", WHOLE, offsetof(sweep_row, d2h_bytes) },
  { "h2d_bytes", WHOLE, offsetof(sweep_row, h2d_bytes) },
  { "exposed_d2h_s", TIME, offsetof(sweep_row, exposed_d2h_ps) },
  { "exposed_h2d_s", TIME, offsetof(sweep_row, exposed_h2d_ps) },
};

enum { COLUMNS = sizeof columns / sizeof *columns };

static const char *const verdict_words[] = {
  [SWEEP_FITS] = "fits", [SWEEP_DOES_NOT_FIT] = "does_not_fit", [SWEEP_REFUSED] = "refused"
};

/* What is not known, as all of a refused setting, is null in JSON and nothing in CSV. */
static void put_figure(FILE *out, const struct column *c, const sweep_row *row, const char *none)
{
  int64_t value;
  memcpy(&value, (const char *)row + c->member, sizeof value);
  if (row->verdict == SWEEP_REFUSED || (c->kind == RATIO && value < 0))
    fputs(none, out);
  else if (c->kind != WHOLE)
    json_decimal(out, value, (int)c->kind);
  else
    fprintf(out, "%" PRId64, value);
}

/* ---- JSON ---- */

static void json_begin(FILE *out, const char *fingerprint, const candidate *c, arena *a)
{
  fprintf(out, "{\"sweep\":\"%s\",\"set\":{", fingerprint);
  for (uint32_t i = 0; i < c->set_count; i++) {
    size_t key = strcspn(c->sets[i], "=");
    fprintf(out, "%s", i == 0 ? "" : ",");
    json_string(out, arena_strndup(a, c->sets[i], key));
    fputc(':', out);
    json_string(out, c->sets[i] + key + 1);
  }
  fputs("},", out);
}

static void json_rest(FILE *out, const sweep_row *row)
{
  fprintf(out, "\"verdict\":\"%s\"", verdict_words[row->verdict]);
  for (int i = 0; i < COLUMNS; i++) {
    fprintf(out, ",\"%s\":", columns[i].name);
    put_figure(out, &columns[i], row, "null");
  }
  fputs(",\"reason\":", out);
  if (row->reason == NULL)
    fputs("null", out);
  else
    json_string(out, row->reason);
  fputs("}\n", out);
}

/* ---- CSV: RFC 4180, text in quotes ---- */

static void csv_text(FILE *out, const char *text)
{
  for (; *text != '\0'; text++) {
    if (*text == '"') fputc('"', out);
    fputc(*text, out);
  }
}

void csv_sets(FILE *out, const candidate *c)
{
  fputc('"', out);
  for (uint32_t i = 0; i < c->set_count; i++) {
    fputs(i == 0 ? "" : " ", out);
    csv_text(out, c->sets[i]);
  }
  fputc('"', out);
}

static void csv_begin(FILE *out, const char *fingerprint, const candidate *c)
{
  fprintf(out, "%s,", fingerprint);
  csv_sets(out, c);
  fputc(',', out);
}

static void csv_rest(FILE *out, const sweep_row *row)
{
  fputs(verdict_words[row->verdict], out);
  for (int i = 0; i < COLUMNS; i++) {
    fputc(',', out);
    put_figure(out, &columns[i], row, "");
  }
  fputs(",\"", out);
  csv_text(out, row->reason == NULL ? "" : row->reason);
  fputs("\"\n", out);
}

/* ---- writing ---- */

const char *row_head(row_format format, arena *a)
{
  const char *head = "sweep,set,verdict";
  if (format == ROW_JSON) return "";
  for (int i = 0; i < COLUMNS; i++)
    head = arena_printf(a, "%s,%s", head, columns[i].name);
  return arena_printf(a, "%s,reason", head);
}

/* `row` NULL: the beginning alone. */
static const char *text_of(row_format format, const char *fingerprint, const candidate *tried,
                           const sweep_row *row, arena *a)
{
  char *text = NULL;
  size_t length;
  FILE *out = open_memstream(&text, &length);
  if (out == NULL) die_refused("no memory for a line of a sweep");
  if (format == ROW_JSON)
    json_begin(out, fingerprint, tried, a);
  else
    csv_begin(out, fingerprint, tried);
  if (row != NULL && format == ROW_JSON) json_rest(out, row);
  if (row != NULL && format == ROW_CSV) csv_rest(out, row);
  fclose(out);
  const char *copy = arena_strndup(a, text, length);
  free(text);
  return copy;
}

const char *row_begin(row_format format, const char *fingerprint, const candidate *tried, arena *a)
{
  return text_of(format, fingerprint, tried, NULL, a);
}

const char *row_line(row_format format, const char *fingerprint, const sweep_row *row, arena *a)
{
  assert((row->verdict == SWEEP_REFUSED) == (row->reason != NULL));
  return text_of(format, fingerprint, &row->tried, row, a);
}

/* ---- reading ---- */

/* Goes past `text` in *rest. */
static bool take_text(const char **rest, const char *text)
{
  size_t length = strlen(text);
  if (strncmp(*rest, text, length) != 0) return false;
  *rest += length;
  return true;
}

static bool take_figure(const char **rest, figure_kind kind, int64_t *value)
{
  int decimals = 0;
  bool negative = take_text(rest, "-"), point = false;
  *value = 0;
  if (**rest < '0' || **rest > '9') return false;
  for (; (**rest >= '0' && **rest <= '9') || (**rest == '.' && !point); (*rest)++) {
    if (**rest == '.') {
      point = true;
      continue;
    }
    decimals += point;
    if (__builtin_mul_overflow(*value, 10, value) ||
        __builtin_add_overflow(*value, **rest - '0', value))
      return false;
  }
  if (negative) *value = -*value;
  return decimals == (int)kind && point == (kind != WHOLE);
}

static bool take_verdict(const char **rest, sweep_verdict *verdict)
{
  for (int i = 0; i < SWEEP_VERDICTS; i++)
    if (take_text(rest, verdict_words[i])) {
      *verdict = (sweep_verdict)i;
      return true;
    }
  return false;
}

/* What put_figure wrote. */
static bool take_column(row_format format, const char **rest, figure_kind kind,
                        sweep_verdict verdict, int64_t *value)
{
  bool known = format == ROW_JSON ? !take_text(rest, "null") : **rest != ',';
  if (verdict == SWEEP_REFUSED) return !known;
  if (known) return take_figure(rest, kind, value);
  *value = -1;
  return kind == RATIO;
}

/* Of CSV the names are in the head. */
bool row_read(row_format format, const char *rest, sweep_row *row)
{
  bool json = format == ROW_JSON;
  if ((json && !take_text(&rest, "\"verdict\":\"")) || !take_verdict(&rest, &row->verdict) ||
      (json && !take_text(&rest, "\"")))
    return false;
  for (int i = 0; i < COLUMNS; i++) {
    int64_t value = 0;
    if (!take_text(&rest, ",") ||
        (json && (!take_text(&rest, "\"") || !take_text(&rest, columns[i].name) ||
                  !take_text(&rest, "\":"))))
      return false;
    if (!take_column(format, &rest, columns[i].kind, row->verdict, &value)) return false;
    memcpy((char *)row + columns[i].member, &value, sizeof value);
  }
  return take_text(&rest, json ? ",\"reason\":" : ",\"");
}
