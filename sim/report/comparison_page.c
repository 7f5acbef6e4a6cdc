#include "sim/report/comparison_page.h"

#include <inttypes.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/report/page.h"
#include "sim/report/page_timeline.h"
#include "sim/report/real_trace.h"
#include "sim/report/trace_work.h"
#include "traces/align.h"

enum { PAGE_SIDES = 2, GAPS = 4000 };

/* What is drawn: by side a trace; texts are numbers of the tables. */
typedef struct side {
  const trace *of;
  const char *name;
  bool has_memory;
  uint32_t *text, *site, *phase; /* by op */
} side;

typedef struct drawing {
  side sides[PAGE_SIDES];
  uint32_t first_rank, rank_count, ranks; /* the drawn ones, of `ranks` */
  int64_t end_ps;
  page_detail detail;
  intern_table texts, sites, phases, streams;
  FILE *out;
} drawing;

/* ---- texts ---- */

static uint32_t number_of(intern_table *t, const char *text)
{
  return intern(t, text, strlen(text));
}

static const char *text_of(const trace *t, const trace_op *o)
{
  if (o->call[0] != '\0' && strcmp(o->kind, o->name) != 0) return o->call;
  bool is_copy = o->output_count > 0 && strcmp(o->kind, o->name) == 0;
  return is_copy ? t->outputs.items[o->first_output].buffer : o->name;
}

static bool has_passes(const trace_op *o)
{
  return strcmp(o->phase, "forward") == 0 || strcmp(o->phase, "backward") == 0;
}

/* Ops in a row are mostly of one module and pass, so their texts are made once. */
static void number_side(drawing *g, side *s, arena *a)
{
  uint32_t count = s->of->ops.count;
  s->text = ARENA_ARRAY(a, uint32_t, (size_t)count + 1);
  s->site = ARENA_ARRAY(a, uint32_t, (size_t)count + 1);
  s->phase = ARENA_ARRAY(a, uint32_t, (size_t)count + 1);
  for (uint32_t i = 0; i < count; i++) {
    const trace_op *o = &s->of->ops.items[i], *before = i > 0 ? o - 1 : NULL;
    bool same_site = before != NULL && before->layer == o->layer && before->module == o->module;
    bool same_phase = before != NULL && before->phase == o->phase &&
                      before->microbatch == o->microbatch && before->chunk == o->chunk;
    s->text[i] = number_of(&g->texts, text_of(s->of, o));
    s->site[i] = same_site
                     ? s->site[i - 1]
                     : number_of(&g->sites, o->layer < 0 ? o->module
                                                         : arena_printf(a, "layer %" PRId32 " %s",
                                                                        o->layer, o->module));
    s->phase[i] =
        same_phase
            ? s->phase[i - 1]
            : number_of(&g->phases, has_passes(o) ? arena_printf(a, "%s m%" PRIu32 " c%" PRIu32,
                                                                 o->phase, o->microbatch, o->chunk)
                                                  : o->phase);
    number_of(&g->streams, o->stream);
    g->end_ps = max_i64(g->end_ps, o->end_ps);
  }
}

static void put_table(const drawing *g, const char *key, const intern_table *t, arena *a)
{
  const char **items = ARENA_ARRAY(a, const char *, (size_t)t->count + 1);
  for (uint32_t i = 0; i < t->count; i++)
    items[i] = t->keys[i].bytes;
  page_texts(g->out, key, items, t->count);
}

/* ---- lanes and curves ---- */

/* Times are from the begin of a step, so only one step of a record can be drawn: its last. */
static bool is_drawn(const trace_slice *s, const trace_op *o)
{
  const trace_op *last = &s->trace->ops.items[s->first + s->count - 1];
  return o->step == last->step && o->end_ps > o->begin_ps;
}

/* The slices of a side's stream, written or counted; their number. */
static uint32_t walk_lane(const drawing *g, const side *s, uint32_t rank, uint32_t stream,
                          FILE *out)
{
  trace_slice ops = trace_slice_of(s->of, rank, g->ranks);
  const char *name = g->streams.keys[stream].bytes;
  page_lane lane = { .out = out, .detail = g->detail, .gap_ps = g->end_ps / GAPS };
  for (uint32_t i = ops.first; i < ops.first + ops.count; i++) {
    const trace_op *o = &s->of->ops.items[i];
    if (!is_drawn(&ops, o) || strcmp(o->stream, name) != 0) continue;
    page_lane_put(&lane, &(page_slice){ .start_ps = o->begin_ps,
                                        .end_ps = o->end_ps,
                                        .kind = (uint32_t)trace_op_paint(o),
                                        .text = (int32_t)s->text[i],
                                        .site = s->site[i],
                                        .phase = s->phase[i],
                                        .count = 1 });
  }
  page_lane_end(&lane);
  return lane.slices;
}

static uint64_t count_slices(const drawing *g)
{
  uint64_t slices = 0;
  for (uint32_t r = 0; r < g->rank_count; r++)
    for (uint32_t stream = 0; stream < g->streams.count; stream++)
      for (int s = 0; s < PAGE_SIDES; s++)
        slices += walk_lane(g, &g->sides[s], g->first_rank + r, stream, NULL);
  return slices;
}

static void put_lanes(const drawing *g, uint32_t rank)
{
  bool first = true;
  fputs("\"lanes\": [", g->out);
  for (uint32_t stream = 0; stream < g->streams.count; stream++)
    for (int i = 0; i < PAGE_SIDES; i++) {
      const side *s = &g->sides[i];
      if (walk_lane(g, s, rank, stream, NULL) == 0) continue;
      fprintf(g->out, "%s\n{\"stream\": \"%s\", \"side\": \"%s\", \"slices\": [", first ? "" : ",",
              g->streams.keys[stream].bytes, s->name);
      walk_lane(g, s, rank, stream, g->out);
      fputs("]}", g->out);
      first = false;
    }
  fputs("],\n", g->out);
}

/* Requested memory, or what a snapshot has, when each op of compute begins. */
static void put_curve(const drawing *g, const side *s, uint32_t rank)
{
  trace_slice ops = trace_slice_of(s->of, rank, g->ranks);
  page_curve c = page_curve_begin(g->out, s->name, g->end_ps);
  for (uint32_t i = ops.first; i < ops.first + ops.count; i++) {
    const trace_op *o = &s->of->ops.items[i];
    if (s->has_memory && is_drawn(&ops, o) && strcmp(o->stream, "compute") == 0)
      page_curve_put(&c, o->begin_ps, o->requested_bytes);
  }
  page_curve_end(&c);
}

/* Without ranks if neither side has times. */
static void put_timeline(drawing *g, arena *a)
{
  for (int s = 0; s < PAGE_SIDES; s++)
    number_side(g, &g->sides[s], a);
  if (g->end_ps == 0) g->rank_count = 0;
  while (g->detail < DETAIL_PASS && count_slices(g) > PAGE_SLICES)
    g->detail++;
  page_timeline_begin(g->out, g->detail, g->end_ps);
  fputs("\"ranks\": [", g->out);
  for (uint32_t r = 0; r < g->rank_count; r++) {
    uint32_t rank = g->first_rank + r;
    fprintf(g->out, "%s\n{\"rank\": %" PRIu32 ", ", r > 0 ? "," : "", rank);
    put_lanes(g, rank);
    fputs("\"curves\": {", g->out);
    put_curve(g, &g->sides[0], rank);
    fputs(",\n", g->out);
    put_curve(g, &g->sides[1], rank);
    fputs("}}", g->out);
  }
  fputs("],\n", g->out);
  put_table(g, "phases", &g->phases, a);
  fputs(",\n", g->out);
  put_table(g, "sites", &g->sites, a);
  fputs(",\n", g->out);
  put_table(g, "texts", &g->texts, a);
  fputs("}\n", g->out);
}

static drawing drawing_of(const trace *one, const trace *other, bool timed, FILE *out, arena *a)
{
  return (drawing){
    .sides = { { .of = one, .name = timed ? "predicted" : "a", .has_memory = true },
               { .of = other, .name = timed ? "measured" : "b", .has_memory = true } },
    .ranks = one->header.ranks > other->header.ranks ? one->header.ranks : other->header.ranks,
    .texts = { .memory = a },
    .sites = { .memory = a },
    .phases = { .memory = a },
    .streams = { .memory = a },
    .out = out
  };
}

/* ---- pages ---- */

void traces_html(const compared_traces *t, FILE *out, arena *a)
{
  page whole = { .kind = "comparison",
                 .title = arena_printf(a, "%s and %s", t->names->a, t->names->b) };
  FILE *f = page_add(&whole, "table", PAGE_TEXT);
  traces_table(t->c, t->names, t->outputs_only, f, a);
  if (t->timed != NULL) timing_table(t->timed, f, a);
  fclose(f);
  f = page_add(&whole, "figures", PAGE_JSON);
  traces_json(t->c, t->names, t->same, t->timed, t->gates, f);
  fclose(f);
  f = page_add(&whole, "timeline", PAGE_JSON);
  drawing g = t->timed != NULL ? drawing_of(t->timed->with.of[PREDICTED],
                                            t->timed->with.of[MEASURED], true, f, a)
                               : drawing_of(t->c->a, t->c->b, false, f, a);
  g.rank_count = g.ranks;
  put_timeline(&g, a);
  fclose(f);
  page_write(&whole, out);
}

void real_comparison_html(const real_comparison *c, const gate_list *g, FILE *out, arena *a)
{
  page whole = { .kind = "comparison",
                 .title = arena_printf(a, "%s and %s", c->predicted.record->header.scenario,
                                       c->measured.run->sources) };
  FILE *f = page_add(&whole, "table", PAGE_TEXT);
  real_comparison_table(c, f, a);
  fclose(f);
  f = page_add(&whole, "figures", PAGE_JSON);
  real_comparison_json(c, g, f);
  fclose(f);
  f = page_add(&whole, "timeline", PAGE_JSON);
  trace measured = real_trace_of(c);
  drawing d = drawing_of(c->predicted.record, &measured, true, f, a);
  d.first_rank = c->predicted.rank;
  d.rank_count = 1;
  d.sides[1].has_memory = c->measured.memory != NULL;
  put_timeline(&d, a);
  ARRAY_FREE(&measured.ops);
  fclose(f);
  page_write(&whole, out);
}
