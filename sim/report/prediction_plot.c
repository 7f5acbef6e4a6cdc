#include <assert.h>

#include "sim/base/units.h"
#include "sim/predict/curve.h"
#include "sim/report/picture.h"
#include "sim/report/plot.h"
#include "sim/report/text.h"
#include "sim/report/work.h"

typedef struct step_picture {
  plot plot;
  const prediction *prediction;
  uint32_t rank;
  const rank_plan *ops;
  const rank_timeline *times;
  panel streams, curve;
  bool used[PAINTS]; /* in the legend */
} step_picture;

static double x_of(const step_picture *p, int64_t at_ps)
{
  int64_t step_ps = p->prediction->result.step_ps;
  assert(0 <= at_ps && at_ps <= step_ps);
  double part = step_ps > 0 ? (double)at_ps / (double)step_ps : 0;
  return p->streams.left + part * p->streams.width;
}

/* ==== streams ==== */

/* Bars of one colour that are nearer than this are drawn as one: the eye cannot see the gap. */
#define GAP_PIXELS 0.3

static const struct lane {
  plan_stream stream;
  const char *name;
  double height;
} lanes[] = {
  { STREAM_COMPUTE, "compute", 54 },
  { STREAM_COMM, "comm", 20 },
  { STREAM_PREVIOUS, "previous stage", 20 },
  { STREAM_NEXT, "next stage", 20 },
  { STREAM_A2A, "token exchange", 20 },
  { STREAM_D2H, "to host", 20 },
  { STREAM_H2D, "from host", 20 },
  { STREAM_PACK, "on device", 20 },
  { STREAM_DISK_OUT, "to disk", 20 },
  { STREAM_DISK_IN, "from disk", 20 },
  { STREAM_ACCUMULATE, "accumulate", 20 },
  { STREAM_WEIGHTS, "weights", 20 },
  { STREAM_WEIGHTS_ODD, "weights, odd", 20 },
  { STREAM_CPU, "host's step", 20 },
};

enum { LANES = sizeof lanes / sizeof *lanes, LANE_DISTANCE = 10 };
_Static_assert(LANES == STREAMS - 1, "every stream but the host thread has a lane");

/* ---- bars ---- */

typedef struct bar {
  paint paint;
  double left, right;
  bool open;
} bar;

static void put_bar(step_picture *p, const bar *b, double top, double height)
{
  assert(!b->open || b->left <= b->right);
  if (!b->open) return;
  set_colour(&p->plot, paint_colours[b->paint]);
  cairo_rectangle(p->plot.cairo, b->left, top, b->right - b->left, height);
  cairo_fill(p->plot.cairo);
  p->used[b->paint] = true;
}

static void plot_lane(step_picture *p, const struct lane *lane, double top, const paint *paints)
{
  bar b = { .open = false };
  for (uint32_t i = 0; i < p->ops->ops.count; i++) {
    const plan_op *o = &p->ops->ops.items[i];
    if (o->stream != lane->stream || !op_takes_time(o)) continue;
    paint colour_of_op = paints[i];
    double left = x_of(p, op_start_ps(p->times, i)), right = x_of(p, op_end_ps(p->times, i));
    if (b.open && b.paint == colour_of_op && left - b.right < GAP_PIXELS) {
      b.right = right;
      continue;
    }
    put_bar(p, &b, top, lane->height);
    b = (bar){ colour_of_op, left, right, true };
  }
  put_bar(p, &b, top, lane->height);
}

/* Streams without work have no lane. */
static bool is_used(const step_picture *p, const struct lane *lane)
{
  for (uint32_t i = 0; i < p->ops->ops.count; i++)
    if (p->ops->ops.items[i].stream == lane->stream && op_takes_time(&p->ops->ops.items[i]))
      return true;
  return false;
}

static double streams_height(const step_picture *p)
{
  double height = 0;
  for (int i = 0; i < LANES; i++)
    if (is_used(p, &lanes[i])) height += lanes[i].height + LANE_DISTANCE;
  return height;
}

static void plot_streams(step_picture *p)
{
  const paint *paints = op_paints(&p->prediction->steady.plan, p->rank, p->plot.memory);
  double top = p->streams.top;
  for (int i = 0; i < LANES; i++) {
    if (!is_used(p, &lanes[i])) continue;
    set_colour(&p->plot, ink);
    put_text(&p->plot, p->streams.left - 10, top + lanes[i].height / 2 + 4, 0, lanes[i].name);
    plot_lane(p, &lanes[i], top, paints);
    set_colour(&p->plot, faint);
    put_line(&p->plot, p->streams.left, top + lanes[i].height, p->streams.left + p->streams.width,
             top + lanes[i].height);
    top += lanes[i].height + LANE_DISTANCE;
  }
}

/* ==== memory ==== */

static const colour area = { 0.306, 0.475, 0.655, 0.22 };
static const colour outline = { 0.306, 0.475, 0.655, 1 };
static const colour limit = { 0.76, 0.15, 0.18, 1 };
static const colour other = { 0.35, 0.37, 0.42, 1 };

/* A capacity that is farther away says nothing and would flatten the curve. */
enum { CAPACITY_SHOWN_WITHIN = 2, TEXT_PIXELS = 18 };

typedef struct scale {
  int64_t top_bytes;
  bool capacity;
} scale;

static scale scale_of(const step_picture *p)
{
  const prediction *all = p->prediction;
  scale s = { .top_bytes = max_i64(all->baseline.ranks[p->rank].steady_allocated_peak_bytes,
                                   all->result.ranks[p->rank].steady_allocated_peak_bytes) };
  s.capacity = all->capacity_bytes / CAPACITY_SHOWN_WITHIN <= s.top_bytes;
  if (s.capacity) s.top_bytes = max_i64(s.top_bytes, all->capacity_bytes);
  s.top_bytes += s.top_bytes / 12 + 1;
  assert(s.top_bytes > 0);
  return s;
}

static double y_of(const step_picture *p, const scale *s, int64_t bytes)
{
  return p->curve.top + p->curve.height * (1 - (double)bytes / (double)s->top_bytes);
}

static void plot_size_axis(step_picture *p, const scale *s)
{
  figure_unit unit = unit_of_bytes(s->top_bytes);
  int64_t step = scale_step(s->top_bytes, unit.size, 7);
  for (int64_t bytes = 0; bytes <= s->top_bytes; bytes += step)
    put_value(&p->plot, &p->curve, y_of(p, s, bytes), figure(p->plot.memory, bytes, unit.size, 0));
  put_upright_title(&p->plot, &p->curve, arena_printf(p->plot.memory, "allocated, %s", unit.name));
}

/* One column of pixels at a time: its first, highest, lowest and last value. */
typedef struct column_path {
  double x, highest, lowest, last;
  bool open;
} column_path;

static void close_column(step_picture *p, column_path *c)
{
  if (!c->open) return;
  cairo_line_to(p->plot.cairo, c->x, c->highest);
  cairo_line_to(p->plot.cairo, c->x, c->lowest);
  cairo_line_to(p->plot.cairo, c->x, c->last);
  c->open = false;
}

static void add_to_column(step_picture *p, column_path *c, double x, double y)
{
  if (c->open && x - c->x < 0.5) {
    c->highest = y < c->highest ? y : c->highest;
    c->lowest = y > c->lowest ? y : c->lowest;
    c->last = y;
    return;
  }
  double before = c->last;
  close_column(p, c);
  cairo_line_to(p->plot.cairo, x, before);
  *c = (column_path){ x, y, y, y, true };
}

static void trace_curve(step_picture *p, const scale *s, const curve_point *points, uint32_t count)
{
  column_path c = { .last = y_of(p, s, points[0].bytes) };
  cairo_move_to(p->plot.cairo, x_of(p, 0), c.last);
  for (uint32_t i = 0; i < count; i++)
    add_to_column(p, &c, x_of(p, points[i].at_ps), y_of(p, s, points[i].bytes));
  close_column(p, &c);
  cairo_line_to(p->plot.cairo, p->curve.left + p->curve.width, c.last);
}

static void plot_curve(step_picture *p, const scale *s)
{
  arena scratch = { 0 };
  uint32_t count;
  const curve_point *points = curve_on_compute(
      p->ops, p->times, p->prediction->curves[p->rank].allocated_bytes, &count, &scratch);
  double bottom = p->curve.top + p->curve.height;
  trace_curve(p, s, points, count);
  cairo_line_to(p->plot.cairo, p->curve.left + p->curve.width, bottom);
  cairo_line_to(p->plot.cairo, p->curve.left, bottom);
  cairo_close_path(p->plot.cairo);
  set_colour(&p->plot, area);
  cairo_fill(p->plot.cairo);
  trace_curve(p, s, points, count);
  set_colour(&p->plot, outline);
  cairo_set_line_width(p->plot.cairo, 1.4);
  cairo_stroke(p->plot.cairo);
  cairo_set_line_width(p->plot.cairo, 1);
  arena_release(&scratch);
}

/* Where the name of a level is on its line. */
typedef enum level_name { NAME_LEFT, NAME_LEFT_BELOW, NAME_CENTRE, NAME_RIGHT } level_name;

static void plot_level(step_picture *p, const scale *s, int64_t bytes, colour c, level_name where,
                       const char *name)
{
  static const double dashes[] = { 6, 4 };
  double y = y_of(p, s, bytes), left = p->curve.left, width = p->curve.width;
  set_colour(&p->plot, c);
  cairo_set_dash(p->plot.cairo, dashes, 2, 0);
  put_line(&p->plot, left, y, left + width, y);
  cairo_set_dash(p->plot.cairo, NULL, 0, 0);
  double x = where == NAME_RIGHT    ? left + width - 6
             : where == NAME_CENTRE ? left + width / 2
                                    : left + 6;
  double side = where == NAME_RIGHT ? 0 : where == NAME_CENTRE ? 0.5 : 1;
  put_text_on_white(
      &p->plot, x, where == NAME_LEFT_BELOW ? y + 14 : y - 5, side,
      arena_printf(p->plot.memory, "%s %s", name,
                   figure_with_unit(p->plot.memory, bytes, unit_of_bytes(s->top_bytes))),
      c);
}

static void plot_memory(step_picture *p)
{
  const prediction *all = p->prediction;
  const rank_prediction *with = &all->result.ranks[p->rank];
  const rank_prediction *without = &all->baseline.ranks[p->rank];
  scale s = scale_of(p);
  plot_size_axis(p, &s);
  plot_curve(p, &s);
  if (s.capacity)
    plot_level(p, &s, all->capacity_bytes, limit, NAME_CENTRE, "memory of the GPU for PyTorch");
  if (with->d2h_bytes > 0)
    plot_level(p, &s, without->steady_allocated_peak_bytes, other, NAME_RIGHT,
               "peak without offload");
  /* Its name goes below where the other line is too near above. */
  double above = y_of(p, &s, with->steady_allocated_peak_bytes) -
                 y_of(p, &s, without->steady_allocated_peak_bytes);
  bool crowded = with->d2h_bytes > 0 && above > 0 && above < TEXT_PIXELS;
  plot_level(p, &s, with->steady_allocated_peak_bytes, outline,
             crowded ? NAME_LEFT_BELOW : NAME_LEFT, "peak");
  plot_level(p, &s, with->static_bytes, other, NAME_LEFT_BELOW, "static");
}

/* ---- title, legend, time axis ---- */

static void plot_title(step_picture *p)
{
  const prediction *all = p->prediction;
  const rank_prediction *r = &all->result.ranks[p->rank];
  arena *a = p->plot.memory;
  set_colour(&p->plot, ink);
  set_font(&p->plot, 17, true);
  put_text(&p->plot, p->streams.left, 30, 1,
           arena_printf(a, "Pipeline rank %u of %u: one step of %s", p->rank, all->rank_count,
                        figure_with_unit(a, r->step_ps, unit_of_time(r->step_ps))));
  set_font(&p->plot, 12, false);
  put_text(&p->plot, p->streams.left, 50, 1,
           arena_printf(
               a, "%s, offload system %s; step without offload %s; copied out %s GB, back %s GB",
               all->machine->name, chosen_word(all->settings, KEY_offload_system),
               figure_with_unit(a, all->baseline.step_ps, unit_of_time(all->baseline.step_ps)),
               figure(a, r->d2h_bytes, 1000000000, 2), figure(a, r->h2d_bytes, 1000000000, 2)));
}

static void plot_legend(step_picture *p)
{
  double x = p->streams.left, y = 72;
  for (int i = 0; i < PAINTS; i++) {
    if (!p->used[i]) continue;
    set_colour(&p->plot, paint_colours[i]);
    cairo_rectangle(p->plot.cairo, x, y - 10, 12, 12);
    cairo_fill(p->plot.cairo);
    set_colour(&p->plot, ink);
    put_text(&p->plot, x + 18, y, 1, paint_names[i]);
    x += 18 + text_width(&p->plot, paint_names[i]) + 22;
  }
}

static void plot_time_axis(step_picture *p)
{
  int64_t end_ps = p->prediction->result.step_ps;
  figure_unit unit = unit_of_time(end_ps);
  int64_t step_ps = scale_step(end_ps, PS_PER_NS, 12);
  double bottom = p->curve.top + p->curve.height;
  for (int64_t t = 0; t <= end_ps; t += step_ps) {
    double x = x_of(p, t);
    set_colour(&p->plot, faint);
    put_line(&p->plot, x, p->streams.top, x, bottom);
    set_colour(&p->plot, ink);
    put_text(&p->plot, x, bottom + 18, 0.5,
             figure(p->plot.memory, t, unit.size, step_ps % unit.size != 0));
  }
  put_text(&p->plot, p->curve.left + p->curve.width / 2, bottom + 38, 0.5,
           arena_printf(p->plot.memory, "time, %s", unit.name));
}

static void draw(void *picture)
{
  step_picture *p = picture;
  double left = 110, width = PLOT_WIDTH - left - 30, top = 92, bottom = PLOT_HEIGHT - 52;
  double height = streams_height(p);
  p->streams = (panel){ left, top, width, height };
  p->curve = (panel){ left, top + height + 20, width, bottom - top - height - 20 };
  plot_title(p);
  cairo_set_line_width(p->plot.cairo, 1);
  plot_time_axis(p);
  plot_streams(p);
  plot_memory(p);
  plot_legend(p);
}

bool prediction_plot(const prediction *p, uint32_t rank, const char *path, arena *a, diag *d)
{
  assert(p->curves != NULL && rank < p->rank_count);
  step_picture picture = { .plot = { .memory = a }, .prediction = p, .rank = rank };
  picture.ops = &p->steady.plan.ranks[rank];
  picture.times = &p->steady_timeline.ranks[rank];
  return plot_write(&picture.plot, draw, &picture, path, d);
}
