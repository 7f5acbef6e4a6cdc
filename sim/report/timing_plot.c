/* Predicted and measured streams of one rank, each stream twice: above as predicted, below as
 * measured, on one time axis; under them live memory of both. */
#include <assert.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/report/picture.h"
#include "sim/report/plot.h"
#include "sim/report/text.h"
#include "sim/report/trace_work.h"
#include "traces/align.h"

enum { LEFT = 150, RIGHT = 40, TOP = 90, LANE = 22, PAIR_GAP = 16, CURVE = 200, TICKS = 10 };

static const char *const side_names[TIMING_SIDES] = { "predicted", "measured" };
static const colour side_colours[TIMING_SIDES] = { { 0.306, 0.475, 0.655, 1 },
                                                   { 0.882, 0.341, 0.349, 1 } };

static const struct lane {
  const char *stream, *name;
} lanes[] = {
  { "compute", "compute" },
  { "comm", "comm" },
  { "previous", "previous stage" },
  { "next", "next stage" },
  { "a2a", "exchange" },
  { "d2h", "to host" },
  { "h2d", "from host" },
  { "accumulate", "accumulate" },
};
enum { LANES = sizeof lanes / sizeof *lanes };

typedef struct picture {
  plot plot;
  const timing *t;
  uint32_t rank;
  int64_t end_ps;
  panel area, curve;
} picture;

static trace_slice ops_of(const picture *g, timing_side side)
{
  return trace_slice_of(g->t->of[side], g->rank, g->t->rank_count);
}

static const trace_op *op_at(const trace_slice *s, uint32_t i)
{
  assert(i < s->count);
  return &s->trace->ops.items[s->first + i];
}

static double at(const picture *g, int64_t ps)
{
  assert(g->end_ps > 0 && ps >= 0);
  return g->area.left + g->area.width * (double)ps / (double)g->end_ps;
}

static void draw_lane(picture *g, const struct lane *lane, timing_side side, double top)
{
  trace_slice r = ops_of(g, side);
  for (uint32_t i = 0; i < r.count; i++) {
    const trace_op *o = op_at(&r, i);
    if (strcmp(o->stream, lane->stream) != 0 || o->end_ps <= o->begin_ps) continue;
    double left = at(g, o->begin_ps), width = at(g, o->end_ps) - left;
    set_colour(&g->plot, paint_colours[trace_op_paint(o)]);
    cairo_rectangle(g->plot.cairo, left, top, width, LANE);
    cairo_fill(g->plot.cairo);
  }
}

static bool is_used(const picture *g, const struct lane *lane)
{
  for (int side = 0; side < TIMING_SIDES; side++) {
    trace_slice r = ops_of(g, (timing_side)side);
    for (uint32_t i = 0; i < r.count; i++)
      if (strcmp(op_at(&r, i)->stream, lane->stream) == 0) return true;
  }
  return false;
}

static double draw_lanes(picture *g)
{
  double top = g->area.top;
  for (int i = 0; i < LANES; i++) {
    if (!is_used(g, &lanes[i])) continue;
    set_colour(&g->plot, ink);
    put_text(&g->plot, LEFT - 10, top + LANE - 8, 0, lanes[i].name);
    put_text(&g->plot, LEFT - 10, top + 2 * LANE - 6, 0, "measured");
    draw_lane(g, &lanes[i], PREDICTED, top);
    draw_lane(g, &lanes[i], MEASURED, top + LANE + 2);
    top += 2 * LANE + PAIR_GAP;
  }
  return top;
}

/* ---- memory ---- */

static int64_t highest_bytes(const picture *g)
{
  int64_t highest = 1;
  for (int side = 0; side < TIMING_SIDES; side++) {
    trace_slice r = ops_of(g, (timing_side)side);
    for (uint32_t i = 0; i < r.count; i++)
      highest = max_i64(highest, op_at(&r, i)->requested_bytes);
  }
  return highest;
}

/* A profiler's trace without a memory snapshot does not. */
static bool knows_memory(const picture *g, timing_side side)
{
  trace_slice r = ops_of(g, side);
  for (uint32_t i = 0; i < r.count; i++)
    if (op_at(&r, i)->requested_bytes > 0) return true;
  return false;
}

static void draw_curve(picture *g, timing_side side, int64_t highest)
{
  trace_slice r = ops_of(g, side);
  bool begun = false;
  set_colour(&g->plot, side_colours[side]);
  for (uint32_t i = 0; i < r.count; i++) {
    if (strcmp(op_at(&r, i)->stream, "compute") != 0 || op_at(&r, i)->end_ps == 0) continue;
    double x = at(g, op_at(&r, i)->begin_ps);
    double y = g->curve.top +
               g->curve.height * (1 - (double)op_at(&r, i)->requested_bytes / (double)highest);
    if (begun)
      cairo_line_to(g->plot.cairo, x, y);
    else
      cairo_move_to(g->plot.cairo, x, y);
    begun = true;
  }
  cairo_stroke(g->plot.cairo);
}

static void draw_memory(picture *g)
{
  int64_t highest = highest_bytes(g);
  figure_unit unit = unit_of_bytes(highest);
  int64_t step = scale_step(highest, unit.size, 6);
  for (int64_t i = 0; i <= highest / step; i++)
    put_value(&g->plot, &g->curve,
              g->curve.top + g->curve.height * (1 - (double)(i * step) / (double)highest),
              figure(g->plot.memory, i * step, unit.size, 0));
  put_upright_title(&g->plot, &g->curve, arena_printf(g->plot.memory, "requested, %s", unit.name));
  for (int side = 0; side < TIMING_SIDES; side++)
    if (knows_memory(g, (timing_side)side)) draw_curve(g, (timing_side)side, highest);
}

/* ---- all ---- */

static void draw_times(picture *g)
{
  figure_unit unit = unit_of_time(g->end_ps);
  double bottom = g->curve.top + g->curve.height;
  int64_t step = scale_step(g->end_ps, PS_PER_NS, TICKS);
  for (int64_t i = 0; i <= g->end_ps / step; i++) {
    int64_t ps = i * step;
    set_colour(&g->plot, faint);
    put_line(&g->plot, at(g, ps), g->area.top, at(g, ps), bottom);
    set_colour(&g->plot, ink);
    put_text(&g->plot, at(g, ps), bottom + 18, 0.5,
             figure(g->plot.memory, ps, unit.size, step >= unit.size ? 0 : 2));
  }
  put_text(&g->plot, LEFT - 10, bottom + 18, 0, unit.name);
}

static void draw_head(picture *g)
{
  arena *a = g->plot.memory;
  const int64_t *step = g->t->step_ps;
  figure_unit unit = unit_of_time(max_i64(step[PREDICTED], step[MEASURED]));
  set_font(&g->plot, 17, true);
  set_colour(&g->plot, ink);
  put_text(&g->plot, LEFT, 30, 1,
           arena_printf(a, "Rank %u: predicted %s, measured %s", g->rank,
                        figure_with_unit(a, step[PREDICTED], unit),
                        figure_with_unit(a, step[MEASURED], unit)));
  set_font(&g->plot, 12, false);
  put_text(&g->plot, LEFT, 50, 1,
           arena_printf(a, "%s; of each pair of lanes the upper one is predicted",
                        g->t->of[MEASURED]->header.scenario));
  for (int side = 0; side < TIMING_SIDES; side++) {
    if (!knows_memory(g, (timing_side)side)) continue;
    set_colour(&g->plot, side_colours[side]);
    put_text(&g->plot, PLOT_WIDTH - RIGHT - 200 * (2 - side), 50, 1,
             arena_printf(a, "memory, %s", side_names[side]));
  }
}

static void draw(void *of)
{
  picture *g = of;
  cairo_set_line_width(g->plot.cairo, 1);
  draw_head(g);
  draw_lanes(g);
  draw_memory(g);
  draw_times(g);
}

static int64_t end_of(const picture *g)
{
  int64_t end = 1;
  for (int side = 0; side < TIMING_SIDES; side++) {
    trace_slice r = ops_of(g, (timing_side)side);
    for (uint32_t i = 0; i < r.count; i++)
      end = max_i64(end, op_at(&r, i)->end_ps);
  }
  return end;
}

bool timing_plot(const timing *t, uint32_t rank, const char *path, arena *a, diag *d)
{
  picture g = { .plot = { .memory = a }, .t = t, .rank = rank };
  g.end_ps = end_of(&g);
  g.area = (panel){ LEFT, TOP, PLOT_WIDTH - LEFT - RIGHT, PLOT_HEIGHT - TOP - CURVE - 60 };
  g.curve = (panel){ LEFT, PLOT_HEIGHT - CURVE - 40, PLOT_WIDTH - LEFT - RIGHT, CURVE };
  return plot_write(&g.plot, draw, &g, path, d);
}
