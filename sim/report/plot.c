#include "sim/report/plot.h"

#include <assert.h>

#include "sim/base/units.h"
#include "sim/report/plot_parts.h"

const colour ink = { 0.13, 0.15, 0.18, 1 };
const colour faint = { 0.13, 0.15, 0.18, 0.12 };

const colour paint_colours[PAINTS] = {
  [PAINT_FORWARD] = { 0.306, 0.475, 0.655, 1 },   [PAINT_BACKWARD] = { 0.949, 0.557, 0.169, 1 },
  [PAINT_RECOMPUTE] = { 0.929, 0.788, 0.282, 1 }, [PAINT_REDUCTION] = { 0.612, 0.459, 0.373, 1 },
  [PAINT_OPTIMIZER] = { 0.690, 0.478, 0.631, 1 }, [PAINT_COMM] = { 0.463, 0.718, 0.698, 1 },
  [PAINT_D2H] = { 0.882, 0.341, 0.349, 1 },       [PAINT_H2D] = { 0.349, 0.631, 0.310, 1 },
};

static const char *const paint_names[PAINTS] = {
  [PAINT_FORWARD] = "forward",         [PAINT_BACKWARD] = "backward",
  [PAINT_RECOMPUTE] = "recompute",     [PAINT_REDUCTION] = "after the last backward",
  [PAINT_OPTIMIZER] = "optimizer",     [PAINT_COMM] = "communication",
  [PAINT_D2H] = "copies to the host",  [PAINT_H2D] = "copies from the host",
};

/* ---- drawing ------------------------------------------------------------------------------------ */

void set_colour(plot *p, colour c)
{
  cairo_set_source_rgba(p->cairo, c.red, c.green, c.blue, c.alpha);
}

double text_width(plot *p, const char *text)
{
  cairo_text_extents_t extents;
  cairo_text_extents(p->cairo, text, &extents);
  return extents.x_advance;
}

void put_text(plot *p, double x, double y, double where, const char *text)
{
  cairo_move_to(p->cairo, x - (1 - where) * text_width(p, text), y);
  cairo_show_text(p->cairo, text);
}

void put_text_on_white(plot *p, double x, double y, double where, const char *text, colour c)
{
  double width = text_width(p, text);
  cairo_set_source_rgba(p->cairo, 1, 1, 1, 0.8);
  cairo_rectangle(p->cairo, x - (1 - where) * width - 2, y - 11, width + 4, 14);
  cairo_fill(p->cairo);
  set_colour(p, c);
  put_text(p, x, y, where, text);
}

void put_line(plot *p, double x1, double y1, double x2, double y2)
{
  cairo_move_to(p->cairo, x1, y1);
  cairo_line_to(p->cairo, x2, y2);
  cairo_stroke(p->cairo);
}

void put_value(plot *p, const panel *where, double y, const char *text)
{
  set_colour(p, faint);
  put_line(p, where->left, y, where->left + where->width, y);
  set_colour(p, ink);
  put_text(p, where->left - 10, y + 4, 0, text);
}

void put_upright_title(plot *p, const panel *where, const char *text)
{
  cairo_save(p->cairo);
  cairo_translate(p->cairo, 40, where->top + where->height / 2);
  cairo_rotate(p->cairo, -1.5707963267948966);
  put_text(p, 0, 0, 0.5, text);
  cairo_restore(p->cairo);
}

void set_font(plot *p, double size, bool bold)
{
  cairo_select_font_face(p->cairo, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                         bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
  cairo_set_font_size(p->cairo, size);
}

int64_t scale_step(int64_t largest, int64_t unit, int most)
{
  static const int64_t factors[] = { 2, 5, 10 };
  int64_t step = unit, decade = unit;
  for (int i = 0; largest / step > most; i++) {
    step = decade * factors[i % 3];
    if (i % 3 == 2)
      decade = step;
  }
  return step;
}

double x_of(const plot *p, int64_t at_ps)
{
  int64_t step_ps = p->prediction->result.step_ps;
  double part = step_ps > 0 ? (double)at_ps / (double)step_ps : 0;
  return p->streams.left + part * p->streams.width;
}

/* ---- title, legend, time axis ------------------------------------------------------------------- */

static void plot_title(plot *p)
{
  const prediction *all = p->prediction;
  const rank_prediction *r = &all->result.ranks[p->rank];
  arena *a = p->memory;
  set_colour(p, ink);
  set_font(p, 17, true);
  put_text(p, p->streams.left, 30, 1,
           arena_printf(a, "Pipeline rank %u of %u: one step of %s", p->rank, all->rank_count,
                        figure_with_unit(a, r->step_ps, unit_of_time(r->step_ps))));
  set_font(p, 12, false);
  put_text(p, p->streams.left, 50, 1,
           arena_printf(
               a, "%s, offload system %s; step without offload %s; copied out %s GB, back %s GB",
               all->machine->name, chosen_word(all->settings, KEY_offload_system),
               figure_with_unit(a, all->baseline.step_ps, unit_of_time(all->baseline.step_ps)),
               figure(a, r->d2h_bytes, 1000000000, 2), figure(a, r->h2d_bytes, 1000000000, 2)));
}

static void plot_legend(plot *p)
{
  double x = p->streams.left, y = 72;
  for (int i = 0; i < PAINTS; i++) {
    if (!p->used[i])
      continue;
    set_colour(p, paint_colours[i]);
    cairo_rectangle(p->cairo, x, y - 10, 12, 12);
    cairo_fill(p->cairo);
    set_colour(p, ink);
    put_text(p, x + 18, y, 1, paint_names[i]);
    x += 18 + text_width(p, paint_names[i]) + 22;
  }
}

static void plot_time_axis(plot *p)
{
  int64_t end_ps = p->prediction->result.step_ps;
  figure_unit unit = unit_of_time(end_ps);
  int64_t step_ps = scale_step(end_ps, PS_PER_NS, 12);
  double bottom = p->curve.top + p->curve.height;
  for (int64_t t = 0; t <= end_ps; t += step_ps) {
    double x = x_of(p, t);
    set_colour(p, faint);
    put_line(p, x, p->streams.top, x, bottom);
    set_colour(p, ink);
    put_text(p, x, bottom + 18, 0.5, figure(p->memory, t, unit.size, step_ps % unit.size != 0));
  }
  put_text(p, p->curve.left + p->curve.width / 2, bottom + 38, 0.5,
           arena_printf(p->memory, "time, %s", unit.name));
}

static void draw(plot *p)
{
  double left = 110, width = PLOT_WIDTH - left - 30, top = 92, bottom = PLOT_HEIGHT - 52;
  double height = streams_height(p);
  p->streams = (panel){ left, top, width, height };
  p->curve = (panel){ left, top + height + 20, width, bottom - top - height - 20 };
  plot_title(p);
  cairo_set_line_width(p->cairo, 1);
  plot_time_axis(p);
  plot_streams(p);
  plot_memory(p);
  plot_legend(p);
}

bool prediction_plot(const prediction *p, uint32_t rank, const char *path, arena *a, diag *d)
{
  assert(p->curves != NULL && rank < p->rank_count);
  plot picture = { .prediction = p, .rank = rank, .memory = a };
  picture.ops = &p->steady.plan.ranks[rank];
  picture.times = &p->steady_timeline.ranks[rank];
  return plot_write(&picture, draw, path, d);
}
