#include "sim/report/page_timeline.h"

#include <assert.h>
#include <inttypes.h>

#include "sim/base/units.h"
#include "sim/text/json_text.h"

enum { CURVE_BINS = 1200 };

static const char *const detail_names[DETAILS] = { "op", "module", "pass" };

void page_texts(FILE *out, const char *key, const char *const *items, uint32_t count)
{
  fprintf(out, "\"%s\": [", key);
  for (uint32_t i = 0; i < count; i++) {
    if (i > 0) putc(',', out);
    json_string(out, items[i]);
  }
  putc(']', out);
}

void page_timeline_begin(FILE *out, page_detail detail, int64_t step_ps)
{
  const char *kinds[PAINTS + 1];
  for (int i = 0; i < PAINTS; i++)
    kinds[i] = paint_names[i];
  kinds[PAGE_WAITS] = "waits";
  fprintf(out, "{\"detail\": \"%s\", \"step_ns\": %" PRId64 ", ", detail_names[detail],
          step_ps / PS_PER_NS);
  page_texts(out, "kinds", kinds, PAINTS + 1);
  fputs(", ", out);
}

/* ---- slices ---- */

static bool joins(const page_lane *l, const page_slice *next)
{
  const page_slice *s = &l->open;
  return s->count > 0 && l->detail != DETAIL_OP && s->kind == next->kind &&
         s->phase == next->phase && (l->detail == DETAIL_PASS || s->site == next->site) &&
         next->start_ps - s->end_ps <= l->gap_ps;
}

/* Numbers: gap to the slice before and length in ns, colour, text, site, phase, ops. */
static void put_open(page_lane *l)
{
  const page_slice *s = &l->open;
  if (s->count == 0 || l->out == NULL) return;
  int64_t start_ns = s->start_ps / PS_PER_NS, length_ns = s->end_ps / PS_PER_NS - start_ns;
  fprintf(l->out, "%s%" PRId64 ",%" PRId64 ",%u,%d,%d,%u,%u", l->slices > 1 ? "," : "",
          start_ns - l->end_ns, length_ns, s->kind, s->count > 1 ? -1 : s->text,
          l->detail == DETAIL_PASS && s->count > 1 ? -1 : (int)s->site, s->phase, s->count);
  l->end_ns = start_ns + length_ns;
}

void page_lane_put(page_lane *l, const page_slice *next)
{
  assert(next->count == 1);
  if (joins(l, next)) {
    l->open.end_ps = next->end_ps;
    l->open.count++;
    return;
  }
  put_open(l);
  l->open = *next;
  l->slices++;
}

void page_lane_end(page_lane *l)
{
  put_open(l);
  l->open.count = 0;
}

/* ---- curves ---- */

page_curve page_curve_begin(FILE *out, const char *name, int64_t step_ps)
{
  fprintf(out, "\"%s\": [", name);
  return (page_curve){
    .out = out, .bin_ps = max_i64(1, step_ps / CURVE_BINS), .bin = -1, .first = true
  };
}

static void close_bin(page_curve *c)
{
  if (c->bin < 0) return;
  fprintf(c->out, "%s%" PRId64 ",%" PRId64, c->first ? "" : ",", c->bin * c->bin_ps / PS_PER_NS,
          c->highest);
  if (c->last != c->highest)
    fprintf(c->out, ",%" PRId64 ",%" PRId64, (c->bin * c->bin_ps + c->bin_ps / 2) / PS_PER_NS,
            c->last);
  c->first = false;
}

void page_curve_put(page_curve *c, int64_t at_ps, int64_t bytes)
{
  int64_t bin = at_ps / c->bin_ps;
  assert(at_ps >= 0);
  if (bin != c->bin) {
    close_bin(c);
    c->bin = bin;
    c->highest = bytes;
  }
  c->highest = max_i64(c->highest, bytes);
  c->last = bytes;
}

void page_curve_end(page_curve *c)
{
  close_bin(c);
  putc(']', c->out);
}
