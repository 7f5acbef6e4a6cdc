/*
 * The page of a prediction. Its text is prediction_table's, its figures are prediction_json's, and its
 * timeline is written here: slices of each stream, memory curves, and what lives at some instants.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/plan/phrases.h"
#include "sim/predict/curve.h"
#include "sim/report/page.h"
#include "sim/report/page_timeline.h"
#include "sim/report/prediction.h"
#include "sim/text/json_text.h"

enum { INSTANTS = 48, ROWS_MOST = 14, GAPS = 4000 };

typedef struct shown {
  const prediction *p;
  const plan *plan;
  plan_modules modules; /* of the plan */
  FILE *out;
  arena *memory;
  page_detail detail;
  /* Texts are written once: by call, by tensor, by direction of a message; -1: not yet. */
  int32_t *call_text, *tensor_text, *name_text;
  const char **texts;
  uint32_t text_count;
} shown;

/* ---- texts ---- */

static int32_t new_text(shown *g, int32_t *index, const char *text)
{
  if (*index < 0) {
    *index = (int32_t)g->text_count;
    g->texts[g->text_count++] = text;
  }
  return *index;
}

static int32_t text_of_call(shown *g, uint32_t i)
{
  const plan_call *call = &g->plan->calls.items[i];
  if (g->call_text[i] >= 0) return g->call_text[i];
  return new_text(g, &g->call_text[i],
                  arena_printf(g->memory, "%s %s", call_name(call), call_shape(call, g->memory)));
}

static int32_t text_of_op(shown *g, const rank_plan *ops, const plan_op *o)
{
  if (op_is_call((op_kind)o->kind)) return text_of_call(g, o->arg);
  if (!op_is_copy((op_kind)o->kind))
    return new_text(g, &g->name_text[o->kind], op_name((op_kind)o->kind));
  uint32_t tensor = copy_host_buffer(ops, o)->tensor;
  return new_text(g, &g->tensor_text[tensor], g->plan->tensors.items[tensor].name);
}

static int32_t *no_texts(shown *g, uint32_t count)
{
  int32_t *texts = ARENA_ARRAY(g->memory, int32_t, (size_t)count + 1);
  memset(texts, 0xFF, ((size_t)count + 1) * sizeof *texts);
  return texts;
}

/* ---- slices ---- */

typedef struct lane_walk {
  uint32_t rank;
  const paint *paints;
  FILE *out; /* NULL: slices are only counted */
} lane_walk;

static bool has_slice(const rank_timeline *t, const rank_plan *ops, uint32_t i, uint32_t stream)
{
  const plan_op *o = &ops->ops.items[i];
  bool wait = o->kind == OP_WAIT && o->stream == STREAM_COMPUTE;
  return o->stream == stream && (wait || op_takes_time(o)) && op_end_ps(t, i) > op_start_ps(t, i);
}

/* The slices of a stream, written or counted; their number. */
static uint32_t walk_lane(shown *g, const lane_walk *w, uint32_t stream)
{
  const rank_plan *ops = &g->plan->ranks[w->rank];
  const rank_timeline *t = &g->p->steady_timeline.ranks[w->rank];
  page_lane lane = { .out = w->out, .detail = g->detail, .gap_ps = g->p->result.step_ps / GAPS };
  uint32_t phase = 0;
  for (uint32_t i = 0; i < ops->ops.count; i++) {
    const plan_op *o = &ops->ops.items[i];
    if (o->kind == OP_MARK) phase = o->arg;
    if (!has_slice(t, ops, i, stream)) continue;
    page_lane_put(&lane,
                  &(page_slice){ .start_ps = op_start_ps(t, i),
                                 .end_ps = op_end_ps(t, i),
                                 .kind = o->kind == OP_WAIT ? PAGE_WAITS : (uint32_t)w->paints[i],
                                 .text = w->out != NULL ? text_of_op(g, ops, o) : -1,
                                 .site = o->site,
                                 .phase = phase,
                                 .count = 1 });
  }
  page_lane_end(&lane);
  return lane.slices;
}

static uint64_t count_slices(shown *g)
{
  uint64_t slices = 0;
  for (uint32_t rank = 0; rank < g->p->rank_count; rank++) {
    arena scratch = { 0 };
    lane_walk w = { rank, op_paints(g->plan, rank, &scratch), NULL };
    for (uint32_t stream = 0; stream < STREAMS; stream++)
      slices += walk_lane(g, &w, stream);
    arena_release(&scratch);
  }
  return slices;
}

static void put_lanes(shown *g, uint32_t rank)
{
  arena scratch = { 0 };
  lane_walk count = { rank, op_paints(g->plan, rank, &scratch), NULL }, write = count;
  write.out = g->out;
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

static void put_phases(const shown *g, uint32_t rank)
{
  const rank_plan *ops = &g->plan->ranks[rank];
  const char **names = ARENA_ARRAY(g->memory, const char *, (size_t)ops->marks.count + 1);
  for (uint32_t i = 0; i < ops->marks.count; i++)
    names[i] = phase_name(&ops->marks.items[i], g->memory);
  page_texts(g->out, "phases", names, ops->marks.count);
  fprintf(g->out, ",\n");
}

/* ---- memory ---- */

/* Of values after each op, at the host's time. */
static void put_on_host(const shown *g, uint32_t rank, const char *name, const int64_t *bytes)
{
  const rank_plan *ops = &g->plan->ranks[rank];
  const rank_timeline *times = &g->p->steady_timeline.ranks[rank];
  page_curve c = page_curve_begin(g->out, name, g->p->result.step_ps);
  for (uint32_t i = 0; i < ops->ops.count; i++) {
    uint8_t kind = ops->ops.items[i].kind;
    if (kind == OP_ALLOC || kind == OP_FREE) page_curve_put(&c, op_start_ps(times, i), bytes[i]);
  }
  page_curve_end(&c);
}

/* ... in program order, when compute gets there. */
static void put_on_compute(const shown *g, uint32_t rank, const char *name, const int64_t *bytes,
                           arena *scratch)
{
  uint32_t count;
  const curve_point *points = curve_on_compute(
      &g->plan->ranks[rank], &g->p->steady_timeline.ranks[rank], bytes, &count, scratch);
  page_curve c = page_curve_begin(g->out, name, g->p->result.step_ps);
  for (uint32_t i = 0; i < count; i++)
    page_curve_put(&c, points[i].at_ps, points[i].bytes);
  page_curve_end(&c);
}

static void put_curves(const shown *g, uint32_t rank)
{
  arena scratch = { 0 };
  const memory_curve *curve = &g->p->curves[rank];
  fprintf(g->out, "\"curves\": {");
  put_on_compute(g, rank, "allocated", curve->allocated_bytes, &scratch);
  fprintf(g->out, ",\n");
  put_on_host(g, rank, "live", curve->live_bytes);
  fprintf(g->out, ",\n");
  put_on_host(g, rank, "reserved", curve->reserved_bytes);
  fprintf(g->out, ",\n");
  put_on_compute(g, rank, "pinned", pinned_curve(&g->plan->ranks[rank], &scratch), &scratch);
  fprintf(g->out, "},\n");
  arena_release(&scratch);
}

static void put_instant(const shown *g, const memory_ops *m, uint32_t op, int64_t at_ps, bool first)
{
  arena scratch = { 0 };
  uint32_t count;
  const replay_holding *rows = replay_holdings(g->plan, &g->modules, m, op, &count, &scratch);
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
static void put_instants(const shown *g, uint32_t rank)
{
  const rank_plan *ops = &g->plan->ranks[rank];
  const rank_timeline *times = &g->p->steady_timeline.ranks[rank];
  int64_t step_ps = max_i64(1, g->p->result.step_ps), next_ps = 0;
  uint32_t peak = g->p->result.ranks[rank].peak_op;
  bool first = true, wants_peak = true;
  memory_ops memory = memory_ops_new(ops);
  fprintf(g->out, "\"instants\": [");
  for (uint32_t i = 0; i < ops->ops.count; i++) {
    const plan_op *o = &ops->ops.items[i];
    if (o->stream != STREAM_COMPUTE || !op_takes_time(o)) continue;
    bool at_peak = wants_peak && i > peak;
    int64_t start_ps = op_start_ps(times, i);
    if (start_ps < next_ps && !at_peak) continue;
    put_instant(g, &memory, at_peak ? peak : i, start_ps, first);
    first = false;
    if (at_peak)
      wants_peak = false;
    else
      next_ps = start_ps + step_ps / INSTANTS;
  }
  memory_ops_release(&memory);
  fprintf(g->out, "]}");
}

/* ---- the page ---- */

static void put_timeline(shown *g)
{
  const prediction *p = g->p;
  while (g->detail < DETAIL_PASS && count_slices(g) > PAGE_SLICES)
    g->detail++;
  page_timeline_begin(g->out, g->detail, p->result.step_ps);
  fprintf(g->out, "\"ranks\": [");
  for (uint32_t rank = 0; rank < p->rank_count; rank++) {
    fprintf(g->out, "%s\n{", rank > 0 ? "," : "");
    put_phases(g, rank);
    put_lanes(g, rank);
    put_curves(g, rank);
    put_instants(g, rank);
  }
  fprintf(g->out, "],\n");
  uint32_t count = g->plan->sites.count;
  const char **sites = ARENA_ARRAY(g->memory, const char *, (size_t)count + 1);
  for (uint32_t i = 0; i < count; i++) {
    const plan_site *site = &g->plan->sites.items[i];
    sites[i] = site->layer < 0 ? site->module
                               : arena_printf(g->memory, "layer %d %s", site->layer, site->module);
  }
  page_texts(g->out, "sites", sites, count);
  fprintf(g->out, ",\n");
  page_texts(g->out, "texts", g->texts, g->text_count);
  fprintf(g->out, "}\n");
}

void prediction_html(const prediction *p, const char *name, const suggestions *found,
                     int64_t longest, FILE *out, arena *a)
{
  assert(p->curves != NULL);
  static const measured_bytes nothing;
  page whole = { .kind = "prediction", .title = name };
  FILE *f = page_add(&whole, "table", PAGE_TEXT);
  prediction_table(p, &nothing, false, f, a);
  if (found != NULL) suggestions_table(p, found, f, a);
  fclose(f);
  f = page_add(&whole, "figures", PAGE_JSON);
  prediction_json(p, found, longest, f, a);
  fclose(f);
  f = page_add(&whole, "timeline", PAGE_JSON);
  const plan *steady = &p->steady.plan;
  shown g = {
    .p = p, .plan = steady, .modules = plan_modules_of(steady, a), .out = f, .memory = a
  };
  g.call_text = no_texts(&g, steady->calls.count);
  g.tensor_text = no_texts(&g, steady->tensors.count);
  g.name_text = no_texts(&g, OP_KINDS);
  g.texts =
      ARENA_ARRAY(a, const char *, (size_t)steady->calls.count + steady->tensors.count + OP_KINDS);
  put_timeline(&g);
  fclose(f);
  page_write(&whole, out);
}
