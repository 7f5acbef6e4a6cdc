#include "sim/base/units.h"
#include "sim/report/curve.h"
#include "sim/report/plot_parts.h"

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

static scale scale_of(const plot *p)
{
  const prediction *all = p->prediction;
  scale s = { .top_bytes = max_i64(all->baseline.ranks[p->rank].steady_allocated_peak_bytes,
                                   all->result.ranks[p->rank].steady_allocated_peak_bytes) };
  s.capacity = all->capacity_bytes / CAPACITY_SHOWN_WITHIN <= s.top_bytes;
  if (s.capacity)
    s.top_bytes = max_i64(s.top_bytes, all->capacity_bytes);
  s.top_bytes += s.top_bytes / 12 + 1;
  return s;
}

static double y_of(const plot *p, const scale *s, int64_t bytes)
{
  return p->curve.top + p->curve.height * (1 - (double)bytes / (double)s->top_bytes);
}

static void plot_size_axis(plot *p, const scale *s)
{
  figure_unit unit = unit_of_bytes(s->top_bytes);
  int64_t step = scale_step(s->top_bytes, unit.size, 7);
  for (int64_t bytes = 0; bytes <= s->top_bytes; bytes += step)
    put_value(p, &p->curve, y_of(p, s, bytes), figure(p->memory, bytes, unit.size, 0));
  put_upright_title(p, &p->curve, arena_printf(p->memory, "allocated, %s", unit.name));
}

/* One column of pixels at a time: its first, highest, lowest and last value. */
typedef struct column_path {
  double x, highest, lowest, last;
  bool open;
} column_path;

static void close_column(plot *p, column_path *c)
{
  if (!c->open)
    return;
  cairo_line_to(p->cairo, c->x, c->highest);
  cairo_line_to(p->cairo, c->x, c->lowest);
  cairo_line_to(p->cairo, c->x, c->last);
  c->open = false;
}

static void add_to_column(plot *p, column_path *c, double x, double y)
{
  if (c->open && x - c->x < 0.5) {
    c->highest = y < c->highest ? y : c->highest;
    c->lowest = y > c->lowest ? y : c->lowest;
    c->last = y;
    return;
  }
  double before = c->last;
  close_column(p, c);
  cairo_line_to(p->cairo, x, before);
  *c = (column_path){ x, y, y, y, true };
}

static void trace_curve(plot *p, const scale *s, const curve_point *points, uint32_t count)
{
  column_path c = { .last = y_of(p, s, points[0].bytes) };
  cairo_move_to(p->cairo, x_of(p, 0), c.last);
  for (uint32_t i = 0; i < count; i++)
    add_to_column(p, &c, x_of(p, points[i].at_ps), y_of(p, s, points[i].bytes));
  close_column(p, &c);
  cairo_line_to(p->cairo, p->curve.left + p->curve.width, c.last);
}

static void plot_curve(plot *p, const scale *s)
{
  arena scratch = { 0 };
  uint32_t count;
  const curve_point *points = curve_on_compute(
      p->ops, p->times, p->prediction->curves[p->rank].allocated_bytes, &count, &scratch);
  double bottom = p->curve.top + p->curve.height;
  trace_curve(p, s, points, count);
  cairo_line_to(p->cairo, p->curve.left + p->curve.width, bottom);
  cairo_line_to(p->cairo, p->curve.left, bottom);
  cairo_close_path(p->cairo);
  set_colour(p, area);
  cairo_fill(p->cairo);
  trace_curve(p, s, points, count);
  set_colour(p, outline);
  cairo_set_line_width(p->cairo, 1.4);
  cairo_stroke(p->cairo);
  cairo_set_line_width(p->cairo, 1);
  arena_release(&scratch);
}

/* Where the name of a level stands on its line. */
typedef enum level_name { NAME_LEFT, NAME_LEFT_BELOW, NAME_CENTRE, NAME_RIGHT } level_name;

static void plot_level(plot *p, const scale *s, int64_t bytes, colour c, level_name where,
                       const char *name)
{
  static const double dashes[] = { 6, 4 };
  double y = y_of(p, s, bytes), left = p->curve.left, width = p->curve.width;
  set_colour(p, c);
  cairo_set_dash(p->cairo, dashes, 2, 0);
  put_line(p, left, y, left + width, y);
  cairo_set_dash(p->cairo, NULL, 0, 0);
  double x = where == NAME_RIGHT ? left + width - 6 : where == NAME_CENTRE ? left + width / 2 : left + 6;
  double side = where == NAME_RIGHT ? 0 : where == NAME_CENTRE ? 0.5 : 1;
  put_text_on_white(p, x, where == NAME_LEFT_BELOW ? y + 14 : y - 5, side,
                    arena_printf(p->memory, "%s %s", name,
                                 figure_with_unit(p->memory, bytes, unit_of_bytes(s->top_bytes))),
                    c);
}

void plot_memory(plot *p)
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
