/*
 * One page for a prediction. Its text is prediction_table's, its figures are prediction_json's, and its
 * timeline is written here: slices of each stream, memory curves, and what lives at some instants.
 *
 * A page stays small: where a plan has more ops than SLICES_MOST, neighbours of one module or one pass
 * are drawn as one slice. The page says which.
 */
#include "sim/report/html.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/plan/phrases.h"
#include "sim/predict/curve.h"
#include "sim/report/prediction.h"
#include "sim/report/work.h"
#include "sim/text/json_text.h"

enum { SLICES_MOST = 60000, CURVE_BINS = 1200, INSTANTS = 48, ROWS_MOST = 14, WAITS = PAINTS };

/* What one slice is. */
typedef enum detail { DETAIL_OP, DETAIL_MODULE, DETAIL_PASS, DETAILS } detail;
static const char *const detail_names[DETAILS] = { "op", "module", "pass" };

typedef struct page {
  const prediction *p;
  const plan *plan;
  FILE *out;
  arena *memory;
  detail detail;
  int64_t gap_ps; /* neighbours that are further apart are slices of their own */
  /* Texts are written once: by call, by tensor, by direction of a message; -1: not yet. */
  int32_t *call_text, *tensor_text, *name_text;
  const char **texts;
  uint32_t text_count;
} page;

/* A slice while it grows. */
typedef struct slice {
  int64_t start_ps, end_ps;
  uint32_t kind; /* paint, or WAITS */
  int32_t text;
  uint32_t site, phase, count;
} slice;

/* ---- texts ---- */

static int32_t new_text(page *g, int32_t *index, const char *text)
{
  if (*index < 0) {
    *index = (int32_t)g->text_count;
    g->texts[g->text_count++] = text;
  }
  return *index;
}

static int32_t text_of_call(page *g, uint32_t i)
{
  const plan_call *call = &g->plan->calls.items[i];
  if (g->call_text[i] >= 0) return g->call_text[i];
  const char *name = call->is_collective ? collective_name((collective_kind)call->kind)
                                         : kernel_name((kernel_kind)call->kind);
  return new_text(g, &g->call_text[i],
                  arena_printf(g->memory, "%s %s", name, call_shape(call, g->memory)));
}

static int32_t text_of_op(page *g, const rank_plan *ops, const plan_op *o)
{
  if (o->kind == OP_KERNEL || o->kind == OP_COLLECTIVE) return text_of_call(g, o->arg);
  if (!op_is_copy((op_kind)o->kind))
    return new_text(g, &g->name_text[o->kind], op_name((op_kind)o->kind));
  uint32_t tensor = copy_host_buffer(ops, o)->tensor;
  return new_text(g, &g->tensor_text[tensor], g->plan->tensors.items[tensor].name);
}

static int32_t *no_texts(page *g, uint32_t count)
{
  int32_t *texts = ARENA_ARRAY(g->memory, int32_t, (size_t)count + 1);
  memset(texts, 0xFF, ((size_t)count + 1) * sizeof *texts);
  return texts;
}

/* ---- slices ---- */

static bool joins(const page *g, const slice *s, const slice *next)
{
  return g->detail != DETAIL_OP && s->kind == next->kind && s->phase == next->phase &&
         (g->detail == DETAIL_PASS || s->site == next->site) &&
         next->start_ps - s->end_ps <= g->gap_ps;
}

/* Numbers of a lane: gap to the slice before and length in ns, colour, text, site, phase, ops. */
static void put_slice(const page *g, const slice *s, int64_t *end_ns, bool first)
{
  int64_t start_ns = s->start_ps / PS_PER_NS, length_ns = s->end_ps / PS_PER_NS - start_ns;
  fprintf(g->out, "%s%" PRId64 ",%" PRId64 ",%u,%d,%d,%u,%u", first ? "" : ",", start_ns - *end_ns,
          length_ns, s->kind, s->count > 1 ? -1 : s->text,
          g->detail == DETAIL_PASS && s->count > 1 ? -1 : (int)s->site, s->phase, s->count);
  *end_ns = start_ns + length_ns;
}

typedef struct lane_walk {
  uint32_t rank;
  const paint *paints;
  bool writes; /* else slices are only counted */
} lane_walk;

static bool has_slice(const rank_timeline *t, const rank_plan *ops, uint32_t i, uint32_t stream)
{
  const plan_op *o = &ops->ops.items[i];
  bool wait = o->kind == OP_WAIT && o->stream == STREAM_COMPUTE;
  return o->stream == stream && (wait || op_takes_time(o)) && t->end_ps[i] > t->start_ps[i];
}

/* The slices of a stream; their number. */
static uint32_t walk_lane(page *g, const lane_walk *w, uint32_t stream)
{
  const rank_plan *ops = &g->plan->ranks[w->rank];
  const rank_timeline *t = &g->p->steady_timeline.ranks[w->rank];
  slice s = { .count = 0 };
  uint32_t slices = 0, phase = 0;
  int64_t end_ns = 0;
  for (uint32_t i = 0; i < ops->ops.count; i++) {
    const plan_op *o = &ops->ops.items[i];
    if (o->kind == OP_MARK) phase = o->arg;
    if (!has_slice(t, ops, i, stream)) continue;
    slice next = { .start_ps = t->start_ps[i],
                   .end_ps = t->end_ps[i],
                   .kind = o->kind == OP_WAIT ? WAITS : (uint32_t)w->paints[i],
                   .site = o->site,
                   .phase = phase,
                   .count = 1 };
    if (w->writes) next.text = text_of_op(g, ops, o);
    if (s.count > 0 && joins(g, &s, &next)) {
      s.end_ps = next.end_ps;
      s.count++;
      continue;
    }
    if (s.count > 0 && w->writes) put_slice(g, &s, &end_ns, slices == 1);
    s = next;
    slices++;
  }
  if (s.count > 0 && w->writes) put_slice(g, &s, &end_ns, slices == 1);
  return slices;
}

static uint64_t count_slices(page *g)
{
  uint64_t slices = 0;
  for (uint32_t rank = 0; rank < g->p->rank_count; rank++) {
    arena scratch = { 0 };
    lane_walk w = { rank, op_paints(g->plan, rank, &scratch), false };
    for (uint32_t stream = 0; stream < STREAMS; stream++)
      slices += walk_lane(g, &w, stream);
    arena_release(&scratch);
  }
  return slices;
}

static void put_lanes(page *g, uint32_t rank)
{
  arena scratch = { 0 };
  lane_walk count = { rank, op_paints(g->plan, rank, &scratch), false }, write = count;
  write.writes = true;
  bool first = true;
  fprintf(g->out, "\"lanes\": [");
  for (uint32_t stream = 0; stream < STREAMS; stream++) {
    if (walk_lane(g, &count, stream) == 0) continue;
    fprintf(g->out, "%s\n{\"stream\": \"%s\", \"slices\": [", first ? "" : ",",
            plan_stream_name(g->plan, (plan_stream)stream));
    walk_lane(g, &write, stream);
    fprintf(g->out, "]}");
    first = false;
  }
  fprintf(g->out, "],\n");
  arena_release(&scratch);
}

static void put_phases(const page *g, uint32_t rank)
{
  const rank_plan *ops = &g->plan->ranks[rank];
  fprintf(g->out, "\"phases\": [");
  for (uint32_t i = 0; i < ops->marks.count; i++) {
    if (i > 0) putc(',', g->out);
    json_string(g->out, phase_name(&ops->marks.items[i], g->memory));
  }
  fprintf(g->out, "],\n");
}

/* ---- memory ---- */

typedef struct bins {
  FILE *out;
  int64_t bin_ps, bin, highest, last; /* of the bin that is open; -1: none */
  bool first;
} bins;

static void close_bin(bins *b)
{
  if (b->bin < 0) return;
  fprintf(b->out, "%s%" PRId64 ",%" PRId64, b->first ? "" : ",", b->bin * b->bin_ps / PS_PER_NS,
          b->highest);
  if (b->last != b->highest)
    fprintf(b->out, ",%" PRId64 ",%" PRId64, (b->bin * b->bin_ps + b->bin_ps / 2) / PS_PER_NS,
            b->last);
  b->first = false;
}

/* The highest and the last value of each bin: no peak is lost. */
static void put_point(bins *b, int64_t at_ps, int64_t bytes)
{
  int64_t bin = at_ps / b->bin_ps;
  if (bin != b->bin) {
    close_bin(b);
    b->bin = bin;
    b->highest = bytes;
  }
  b->highest = max_i64(b->highest, bytes);
  b->last = bytes;
}

static bins begin_curve(const page *g, const char *name)
{
  fprintf(g->out, "\"%s\": [", name);
  return (bins){
    .out = g->out, .bin_ps = max_i64(1, g->p->result.step_ps / CURVE_BINS), .bin = -1, .first = true
  };
}

/* Of values after each op that change memory, at the host's time. */
static void put_curve(const page *g, uint32_t rank, const char *name, const int64_t *bytes)
{
  const rank_plan *ops = &g->plan->ranks[rank];
  const int64_t *start_ps = g->p->steady_timeline.ranks[rank].start_ps;
  bins b = begin_curve(g, name);
  for (uint32_t i = 0; i < ops->ops.count; i++) {
    uint8_t kind = ops->ops.items[i].kind;
    if (kind == OP_ALLOC || kind == OP_FREE) put_point(&b, start_ps[i], bytes[i]);
  }
  close_bin(&b);
  fprintf(g->out, "]");
}

static void put_curves(const page *g, uint32_t rank)
{
  arena scratch = { 0 };
  uint32_t count;
  const memory_curve *curve = &g->p->curves[rank];
  const curve_point *points =
      curve_on_compute(&g->plan->ranks[rank], &g->p->steady_timeline.ranks[rank],
                       curve->allocated_bytes, &count, &scratch);
  fprintf(g->out, "\"curves\": {");
  bins b = begin_curve(g, "allocated");
  for (uint32_t i = 0; i < count; i++)
    put_point(&b, points[i].at_ps, points[i].bytes);
  close_bin(&b);
  fprintf(g->out, "],\n");
  put_curve(g, rank, "live", curve->live_bytes);
  fprintf(g->out, ",\n");
  put_curve(g, rank, "reserved", curve->reserved_bytes);
  fprintf(g->out, "},\n");
  arena_release(&scratch);
}

static void put_instant(const page *g, uint32_t rank, uint32_t op, int64_t at_ps, bool first)
{
  arena scratch = { 0 };
  uint32_t count;
  const replay_holding *rows = replay_holdings(g->plan, rank, op, &count, &scratch);
  int64_t rest = 0;
  fprintf(g->out, "%s\n{\"at_ns\": %" PRId64 ", \"rows\": [", first ? "" : ",", at_ps / PS_PER_NS);
  for (uint32_t i = 0; i < count; i++) {
    if (i >= ROWS_MOST) {
      rest += rows[i].bytes;
      continue;
    }
    if (i > 0) putc(',', g->out);
    putc('[', g->out);
    json_string(g->out, rows[i].module);
    fprintf(g->out, ",\"%s\",%" PRId64 "]", class_name((buffer_class)rows[i].purpose),
            rows[i].bytes);
  }
  fprintf(g->out, "], \"rest_bytes\": %" PRId64 "}", rest);
  arena_release(&scratch);
}

/* At even distances, when compute gets there; and at the peak. */
static void put_instants(const page *g, uint32_t rank)
{
  const rank_plan *ops = &g->plan->ranks[rank];
  const int64_t *start_ps = g->p->steady_timeline.ranks[rank].start_ps;
  int64_t step_ps = max_i64(1, g->p->result.step_ps), next_ps = 0;
  uint32_t peak = g->p->result.ranks[rank].peak_op;
  bool first = true, wants_peak = true;
  fprintf(g->out, "\"instants\": [");
  for (uint32_t i = 0; i < ops->ops.count; i++) {
    const plan_op *o = &ops->ops.items[i];
    if (o->stream != STREAM_COMPUTE || !op_takes_time(o)) continue;
    bool at_peak = wants_peak && i > peak;
    if (start_ps[i] < next_ps && !at_peak) continue;
    put_instant(g, rank, at_peak ? peak : i, start_ps[i], first);
    first = false;
    if (at_peak)
      wants_peak = false;
    else
      next_ps = start_ps[i] + step_ps / INSTANTS;
  }
  fprintf(g->out, "]}");
}

/* ---- the page ---- */

static void put_timeline(page *g)
{
  const prediction *p = g->p;
  while (g->detail < DETAIL_PASS && count_slices(g) > SLICES_MOST)
    g->detail++;
  fprintf(g->out, "{\"detail\": \"%s\", \"step_ns\": %" PRId64 ", \"kinds\": [",
          detail_names[g->detail], p->result.step_ps / PS_PER_NS);
  for (int i = 0; i < PAINTS; i++)
    fprintf(g->out, "\"%s\",", paint_names[i]);
  fprintf(g->out, "\"waits\"], \"ranks\": [");
  for (uint32_t rank = 0; rank < p->rank_count; rank++) {
    fprintf(g->out, "%s\n{", rank > 0 ? "," : "");
    put_phases(g, rank);
    put_lanes(g, rank);
    put_curves(g, rank);
    put_instants(g, rank);
  }
  fprintf(g->out, "],\n\"sites\": [");
  for (uint32_t i = 0; i < g->plan->sites.count; i++) {
    const plan_site *site = &g->plan->sites.items[i];
    if (i > 0) putc(',', g->out);
    json_string(g->out, site->layer < 0
                            ? site->module
                            : arena_printf(g->memory, "layer %d %s", site->layer, site->module));
  }
  fprintf(g->out, "],\n\"texts\": [");
  for (uint32_t i = 0; i < g->text_count; i++) {
    if (i > 0) putc(',', g->out);
    json_string(g->out, g->texts[i]);
  }
  fprintf(g->out, "]}\n");
}

/* `<` would end a script or begin a tag. In JSON it is only in strings. */
static void put_escaped(FILE *out, const char *text, bool json)
{
  for (const char *c = text; *c != '\0'; c++)
    if (*c == '<')
      fputs(json ? "\\u003c" : "&lt;", out);
    else if (*c == '&' && !json)
      fputs("&amp;", out);
    else
      putc(*c, out);
}

typedef struct contents {
  const char *name;
  char *title, *table, *figures, *timeline;
} contents;

/* What the line `@name@` of report.html becomes; false: there is no such part. */
static bool put_part(const contents *c, const char *name, size_t length, FILE *out)
{
  const struct {
    const char *name, *text;
    bool json;
  } parts[] = { { "title", c->name, false },
                { "table", c->table, false },
                { "figures", c->figures, true },
                { "timeline", c->timeline, true } };
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (strlen(parts[i].name) == length && memcmp(parts[i].name, name, length) == 0) {
      put_escaped(out, parts[i].text, parts[i].json);
      return true;
    }
  for (const html_part *part = html_parts; part->name != NULL; part++)
    if (strlen(part->name) == length && memcmp(part->name, name, length) == 0) {
      fputs(part->text, out);
      return true;
    }
  return false;
}

static void put_page(const contents *c, FILE *out)
{
  const html_part *whole = html_parts;
  while (strcmp(whole->name, "report.html") != 0)
    whole++;
  for (const char *t = whole->text; *t != '\0';) {
    size_t length = *t == '@' ? strcspn(t + 1, "@\n") : 0;
    if (length > 0 && t[1 + length] == '@' && put_part(c, t + 1, length, out)) {
      t += length + 2;
      continue;
    }
    putc(*t++, out);
  }
}

/* A text that is printed to a stream; free() releases it. */
static FILE *memory_stream(char **text, size_t *length)
{
  FILE *f = open_memstream(text, length);
  if (f == NULL) die_refused("memory: a stream of it");
  return f;
}

void prediction_html(const prediction *p, const char *name, const suggestions *found,
                     int64_t longest, FILE *out, arena *a)
{
  assert(p->curves != NULL);
  static const measured_bytes nothing;
  contents c = { .name = name };
  size_t length;
  FILE *f = memory_stream(&c.table, &length);
  prediction_table(p, &nothing, false, f, a);
  if (found != NULL) suggestions_table(p, found, f, a);
  fclose(f);
  f = memory_stream(&c.figures, &length);
  prediction_json(p, found, longest, f, a);
  fclose(f);
  f = memory_stream(&c.timeline, &length);
  const plan *steady = &p->steady.plan;
  page g = { .p = p, .plan = steady, .out = f, .memory = a, .gap_ps = p->result.step_ps / 4000 };
  g.call_text = no_texts(&g, steady->calls.count);
  g.tensor_text = no_texts(&g, steady->tensors.count);
  g.name_text = no_texts(&g, OP_KINDS);
  g.texts =
      ARENA_ARRAY(a, const char *, (size_t)steady->calls.count + steady->tensors.count + OP_KINDS);
  put_timeline(&g);
  fclose(f);
  put_page(&c, out);
  free(c.table);
  free(c.figures);
  free(c.timeline);
}
