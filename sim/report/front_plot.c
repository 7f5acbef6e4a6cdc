#include <assert.h>

#include "sim/base/units.h"
#include "sim/report/picture.h"
#include "sim/report/plot.h"
#include "sim/report/text.h"

static const colour on_front = { 0.349, 0.631, 0.310, 1 };
static const colour off_front = { 0.306, 0.475, 0.655, 1 };
static const colour too_large = { 0.882, 0.341, 0.349, 1 };
static const colour leader = { 0.13, 0.15, 0.18, 0.35 };
static const colour limit = { 0.76, 0.15, 0.18, 1 };

enum { LEFT = 110, RIGHT = 200, TOP = 84, BOTTOM = 60, TEXT_HEIGHT = 15, RADIUS = 5 };

/* From `begin` to `end` with a line every `step`. */
typedef struct axis {
  int64_t begin, end, step;
} axis;

typedef struct point {
  const char *name;
  int64_t step_ps, bytes;
  bool fits, on_front;
} point;

/* Points are in the order of their times. */
typedef struct chart {
  plot plot;
  const char *title, *subtitle, *bytes_title;
  const point *points;
  uint32_t count;
  int64_t capacity_bytes;
  panel area;
  axis time_ps, bytes;
  bool capacity; /* near enough to be shown */
} chart;

static double part_of(const axis *x, int64_t value)
{
  assert(x->begin < x->end && x->begin <= value && value <= x->end);
  return (double)(value - x->begin) / (double)(x->end - x->begin);
}

static double time_at(const chart *g, int64_t ps)
{
  return g->area.left + g->area.width * part_of(&g->time_ps, ps);
}

static double bytes_at(const chart *g, int64_t bytes)
{
  return g->area.top + g->area.height * (1 - part_of(&g->bytes, bytes));
}

/* ---- axes ---- */

static void extend(axis *x, int64_t value)
{
  x->begin = min_i64(x->begin, value);
  x->end = max_i64(x->end, value);
}

/* Whole steps around the shown values, and little more: the picture shows differences. */
static void finish_axis(axis *x, int64_t unit)
{
  x->step = scale_step(max_i64(x->end - x->begin, unit), unit, 10);
  x->begin = max_i64(0, x->begin / x->step - 1) * x->step;
  x->end = (x->end / x->step + 1) * x->step;
}

static void scale_chart(chart *g)
{
  g->time_ps = g->bytes = (axis){ INT64_MAX, 0, 0 };
  for (uint32_t i = 0; i < g->count; i++) {
    extend(&g->bytes, g->points[i].bytes);
    extend(&g->time_ps, g->points[i].step_ps);
  }
  g->capacity = g->capacity_bytes / 2 <= g->bytes.end;
  if (g->capacity) extend(&g->bytes, g->capacity_bytes);
  finish_axis(&g->bytes, unit_of_bytes(g->bytes.end).size);
  finish_axis(&g->time_ps, PS_PER_NS);
}

static void draw_sizes(chart *g)
{
  plot *p = &g->plot;
  figure_unit unit = unit_of_bytes(g->bytes.end);
  for (int64_t bytes = g->bytes.begin; bytes <= g->bytes.end; bytes += g->bytes.step)
    put_value(p, &g->area, bytes_at(g, bytes), figure(p->memory, bytes, unit.size, 0));
  put_upright_title(p, &g->area, arena_printf(p->memory, "%s, %s", g->bytes_title, unit.name));
}

static void draw_times(chart *g)
{
  plot *p = &g->plot;
  figure_unit unit = unit_of_time(g->time_ps.end);
  double bottom = g->area.top + g->area.height;
  for (int64_t t = g->time_ps.begin; t <= g->time_ps.end; t += g->time_ps.step) {
    double x = time_at(g, t);
    set_colour(p, faint);
    put_line(p, x, g->area.top, x, bottom);
    set_colour(p, ink);
    put_text(p, x, bottom + 18, 0.5,
             figure(p->memory, t, unit.size, g->time_ps.step % unit.size != 0));
  }
  put_text(p, g->area.left + g->area.width / 2, bottom + 40, 0.5,
           arena_printf(p->memory, "step, %s", unit.name));
}

static void draw_capacity(chart *g)
{
  double y = bytes_at(g, g->capacity_bytes);
  set_colour(&g->plot, limit);
  put_line(&g->plot, g->area.left, y, g->area.left + g->area.width, y);
  put_text_on_white(&g->plot, g->area.left + g->area.width / 2, y - 6, 0.5,
                    "memory of the GPU for PyTorch", limit);
}

/* ---- points ---- */

static colour colour_of(const point *r)
{
  if (!r->fits) return too_large;
  return r->on_front ? on_front : off_front;
}

/* It goes down the list. */
static void draw_front(chart *g)
{
  plot *p = &g->plot;
  bool begun = false;
  for (uint32_t i = 0; i < g->count; i++) {
    const point *r = &g->points[i];
    if (!r->on_front) continue;
    double x = time_at(g, r->step_ps), y = bytes_at(g, r->bytes);
    if (begun)
      cairo_line_to(p->cairo, x, y);
    else
      cairo_move_to(p->cairo, x, y);
    begun = true;
  }
  set_colour(p, on_front);
  cairo_set_line_width(p->cairo, 2);
  cairo_stroke(p->cairo);
  cairo_set_line_width(p->cairo, 1);
}

static void draw_point(chart *g, const point *r)
{
  cairo_arc(g->plot.cairo, time_at(g, r->step_ps), bytes_at(g, r->bytes), RADIUS, 0,
            6.283185307179586);
  set_colour(&g->plot, colour_of(r));
  cairo_fill(g->plot.cairo);
}

static bool overlap(const panel *a, const panel *b)
{
  return a->left < b->left + b->width && b->left < a->left + a->width &&
         a->top < b->top + b->height && b->top < a->top + a->height;
}

static bool is_good(const chart *g, const panel *label, const panel *placed, uint32_t count)
{
  if (label->top < g->area.top || label->top + label->height > g->area.top + g->area.height)
    return false;
  for (uint32_t i = 0; i < count; i++)
    if (overlap(label, &placed[i])) return false;
  return true;
}

/* Beside its point, further up or down in turns as long as another is there or the area ends.
 */
static panel place_label(chart *g, const point *r, const panel *placed, uint32_t count)
{
  double x = time_at(g, r->step_ps) + 2 * RADIUS, y = bytes_at(g, r->bytes);
  panel label = { x, y - TEXT_HEIGHT / 2.0, text_width(&g->plot, r->name), TEXT_HEIGHT };
  for (uint32_t turn = 1; turn < 4 * count && !is_good(g, &label, placed, count); turn++) {
    double away = (turn + 1) / 2 * (double)TEXT_HEIGHT;
    label.top = y - TEXT_HEIGHT / 2.0 + (turn % 2 == 1 ? -away : away);
  }
  return label;
}

static void draw_label(chart *g, const point *r, const panel *label)
{
  plot *p = &g->plot;
  double x = time_at(g, r->step_ps), y = bytes_at(g, r->bytes);
  double middle = label->top + label->height / 2;
  if (middle - y > 1 || y - middle > 1) {
    set_colour(p, leader);
    put_line(p, x, y, label->left, middle);
  }
  put_text_on_white(p, label->left + 1, middle + 4, 1, r->name, ink);
}

static void draw_points(chart *g)
{
  assert(g->count > 0);
  panel *placed = ARENA_ARRAY(g->plot.memory, panel, 2 * (size_t)g->count);
  uint32_t count = 0;
  for (uint32_t i = 0; i < g->count; i++) {
    double x = time_at(g, g->points[i].step_ps), y = bytes_at(g, g->points[i].bytes);
    placed[count++] = (panel){ x - RADIUS, y - RADIUS, 2 * RADIUS, 2 * RADIUS };
  }
  for (uint32_t i = 0; i < g->count; i++) {
    placed[count] = place_label(g, &g->points[i], placed, count);
    draw_label(g, &g->points[i], &placed[count++]);
  }
  for (uint32_t i = 0; i < g->count; i++)
    draw_point(g, &g->points[i]);
}

/* ---- the whole ---- */

static void draw(void *picture)
{
  chart *g = picture;
  plot *p = &g->plot;
  g->area = (panel){ LEFT, TOP, PLOT_WIDTH - LEFT - RIGHT, PLOT_HEIGHT - TOP - BOTTOM };
  scale_chart(g);
  set_colour(p, ink);
  set_font(p, 17, true);
  put_text(p, LEFT, 30, 1, g->title);
  set_font(p, 12, false);
  put_text(p, LEFT, 50, 1, g->subtitle);
  cairo_set_line_width(p->cairo, 1);
  draw_sizes(g);
  draw_times(g);
  if (g->capacity) draw_capacity(g);
  draw_front(g);
  draw_points(g);
}

bool comparison_plot(const comparison *c, const char *path, arena *a, diag *d)
{
  point *points = ARENA_ARRAY(a, point, c->row_count);
  for (uint32_t i = 0; i < c->row_count; i++) {
    const comparison_row *r = &c->rows[i];
    points[i] = (point){ r->tried.name, r->step_ps, r->peak_bytes, r->fits_device && r->fits_host,
                         r->on_front };
  }
  chart g = { .plot = { .memory = a },
              .title = arena_printf(a, "Offload systems on %s", c->machine->name),
              .subtitle = "each point a system: peak of allocated memory beside the time of a "
                          "step; on the line those that nothing beats in both",
              .bytes_title = "peak",
              .points = points,
              .count = c->row_count,
              .capacity_bytes = c->capacity_bytes };
  return plot_write(&g.plot, draw, &g, path, d);
}

bool tuned_plot(const tuned *t, const machine *m, const char *path, arena *a, diag *d)
{
  point *points = ARENA_ARRAY(a, point, t->count);
  int64_t least_bytes = INT64_MAX;
  for (uint32_t i = 0; i < t->count; i++) {
    const sweep_row *r = &t->items[i].row;
    points[i] = (point){ arena_printf(a, "%u", i + 1), r->step_ps, r->reserved_peak_bytes, true,
                         r->reserved_peak_bytes < least_bytes };
    least_bytes = min_i64(least_bytes, r->reserved_peak_bytes);
  }
  chart g = { .plot = { .memory = a },
              .title = arena_printf(a, "Settings that fit on %s", m->name),
              .subtitle = "each point a setting, with its place in the table: peak of reserved "
                          "memory beside the time of a step; on the line those that none of them "
                          "beats in both",
              .bytes_title = "reserved peak",
              .points = points,
              .count = t->count,
              .capacity_bytes = machine_usable_bytes(m) };
  return plot_write(&g.plot, draw, &g, path, d);
}
