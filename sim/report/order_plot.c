/*
 * What orders the ops on one tensor, and what does not: streams as lanes, in the order in which the
 * host issues; events as arrows; the edge that a race lacks dashed; memory as bars below.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/report/findings.h"
#include "sim/report/picture.h"
#include "sim/report/plot.h"
#include "sim/report/text.h"
#include "sim/report/work.h"

enum {
  MOST_COLUMNS = 14,
  LEFT = 90,
  RIGHT = 30,
  TOP = 96,
  LANE_HEIGHT = 74,
  LANE_GAP = 16,
  BAR_HEIGHT = 22,
  BAR_GAP = 12
};

/* An op that is drawn. */
typedef struct column {
  uint32_t op;
  bool step_before;
} column;

typedef struct column_array {
  column *items;
  uint32_t count, capacity;
} column_array;

typedef struct order_picture {
  plot plot;
  const verified_iteration *iteration;
  const rank_plan *ops;
  uint32_t rank;
  const finding *finding; /* NULL: nothing is wrong */
  bool *drawn;            /* by buffer: one of the tensor's */
  const paint *paints;    /* by op */
  column_array columns;
  double lane_of[STREAMS]; /* the top of each; 0: not drawn */
} order_picture;

/* ==== which ops ==== */

static const plan_op *op_at(const order_picture *g, uint32_t op)
{
  assert(op < g->ops->ops.count);
  return &g->ops->ops.items[op];
}

static bool is_operand(const order_picture *g, const plan_op *o, uint32_t from, uint32_t count)
{
  for (uint32_t i = from; i < from + count; i++)
    if (g->drawn[g->ops->operands.items[o->operands + i]]) return true;
  return false;
}

static bool is_about(const order_picture *g, const plan_op *o)
{
  if (op_is_memory((op_kind)o->kind)) return g->drawn[o->arg];
  return op_works((op_kind)o->kind) && is_operand(g, o, 0, (uint32_t)o->reads + o->writes);
}

/* A tensor's other buffers are those that copies fill from it, or it from. */
static void follow_copies(order_picture *g)
{
  for (bool more = true; more;) {
    more = false;
    for (uint32_t i = 0; i < g->ops->ops.count; i++) {
      const plan_op *o = op_at(g, i);
      if (!op_is_copy((op_kind)o->kind)) continue;
      const uint32_t *ends = &g->ops->operands.items[o->operands];
      if (g->drawn[ends[0]] == g->drawn[ends[1]]) continue;
      g->drawn[ends[0]] = g->drawn[ends[1]] = more = true;
    }
  }
}

/* Of the kernels on the tensor, the one that makes it and the last one before it is freed say enough. */
static bool is_between(const order_picture *g, uint32_t op)
{
  bool before = false, after = false;
  if (op_at(g, op)->kind != OP_KERNEL) return false;
  for (uint32_t i = 0; i < g->ops->ops.count && !(before && after); i++) {
    const plan_op *o = op_at(g, i);
    bool alike = o->kind == OP_KERNEL && o->stream == op_at(g, op)->stream && is_about(g, o);
    before = before || (alike && i < op);
    after = after || (alike && i > op);
  }
  return before && after;
}

static bool is_of_finding(const order_picture *g, uint32_t op)
{
  return g->finding != NULL && (op == g->finding->first || op == g->finding->second);
}

/* The record that a wait waits for; NO_OP: it is no wait, or waits for nothing. */
static uint32_t record_of(const order_picture *g, uint32_t op)
{
  const plan_op *o = op_at(g, op);
  if (o->kind != OP_WAIT && !op_is_host_wait((op_kind)o->kind)) return NO_OP;
  uint32_t record = record_op(&g->iteration->verification->order.ranks[g->rank], o->arg);
  return record < op ? record : NO_OP;
}

/* The first wait of a stream that says that the earlier op is over. */
static bool want_wait(const order_picture *g, bool *wanted, uint32_t earlier, uint32_t op,
                      uint8_t stream)
{
  for (uint32_t i = earlier + 1; i < op; i++) {
    uint32_t record = record_of(g, i);
    if (record == NO_OP || record < earlier || op_at(g, i)->stream != stream ||
        op_at(g, record)->stream != op_at(g, earlier)->stream)
      continue;
    wanted[i] = wanted[record] = true;
    return true;
  }
  return false;
}

/* What orders each op after the last one of every other stream. */
static void want_events(const order_picture *g, bool *wanted)
{
  uint32_t last[STREAMS];
  for (int s = 0; s < STREAMS; s++)
    last[s] = NO_OP;
  for (uint32_t i = 0; i < g->ops->ops.count; i++) {
    const plan_op *o = op_at(g, i);
    if (!wanted[i] || !op_works((op_kind)o->kind)) continue;
    for (uint8_t s = 0; s < STREAM_HOST; s++)
      if (s != o->stream && last[s] != NO_OP && !want_wait(g, wanted, last[s], i, o->stream))
        want_wait(g, wanted, last[s], i, STREAM_HOST);
    last[o->stream] = i;
  }
}

/* The farthest from what is wrong is left out. */
static void keep_the_nearest(order_picture *g)
{
  column_array *c = &g->columns;
  while (c->count > MOST_COLUMNS) {
    uint32_t first = 0, last = c->count - 1;
    while (first < last && !is_of_finding(g, c->items[first].op))
      first++;
    while (last > first && !is_of_finding(g, c->items[last].op))
      last--;
    if (first == 0 && last == c->count - 1) return;
    if (first >= c->count - 1 - last && first > 0)
      memmove(c->items, c->items + 1, (c->count - 1) * sizeof *c->items);
    c->count--;
  }
}

/* The column of an op of this step; columns.count: it has none. */
static uint32_t column_of(const order_picture *g, uint32_t op)
{
  uint32_t i = 0;
  while (i < g->columns.count && (g->columns.items[i].op != op || g->columns.items[i].step_before))
    i++;
  return i;
}

/* Whether a record or a wait has the other one among the columns. */
static bool is_alone(const order_picture *g, uint32_t op)
{
  uint32_t record = record_of(g, op);
  if (record != NO_OP) return column_of(g, record) == g->columns.count;
  bool waited = op_at(g, op)->kind != OP_RECORD;
  for (uint32_t i = 0; i < g->columns.count; i++)
    waited = waited || record_of(g, g->columns.items[i].op) == op;
  return !waited;
}

static void drop_lone_events(order_picture *g)
{
  uint32_t kept = 0, all = g->columns.count;
  column *columns = ARENA_ARRAY(g->plot.memory, column, all);
  for (uint32_t i = 0; i < all; i++)
    if (!is_alone(g, g->columns.items[i].op)) columns[kept++] = g->columns.items[i];
  memcpy(g->columns.items, columns, kept * sizeof *columns);
  g->columns.count = kept;
}

static void choose_columns(order_picture *g)
{
  const finding *f = g->finding;
  bool *wanted = ARENA_ARRAY(g->plot.memory, bool, g->ops->ops.count);
  for (uint32_t i = 0; i < g->ops->ops.count; i++)
    wanted[i] = is_of_finding(g, i) || (is_about(g, op_at(g, i)) && !is_between(g, i));
  want_events(g, wanted);
  if (f != NULL && f->step_before)
    *ARRAY_PUSH(&g->columns) = (column){ .op = f->first, .step_before = true };
  for (uint32_t i = 0; i < g->ops->ops.count; i++)
    if (wanted[i]) *ARRAY_PUSH(&g->columns) = (column){ .op = i };
  keep_the_nearest(g);
  drop_lone_events(g);
}

/* ==== places ==== */

static double column_width(const order_picture *g)
{
  return (double)(PLOT_WIDTH - LEFT - RIGHT) / (double)g->columns.count;
}

static double column_middle(const order_picture *g, uint32_t i)
{
  return LEFT + ((double)i + 0.5) * column_width(g);
}

static double lane_middle(const order_picture *g, uint32_t op)
{
  return g->lane_of[op_at(g, op)->stream] + LANE_HEIGHT / 2.0;
}

/* ==== drawing ==== */

static const colour wrong = { 0.780, 0.100, 0.150, 1 };

/* What takes and gives memory is in the bars. */
static bool is_in_lane(const plan_op *o)
{
  return op_runs_on_stream((op_kind)o->kind) || op_is_host_wait((op_kind)o->kind);
}

static double draw_lanes(order_picture *g)
{
  double top = TOP;
  for (uint32_t stream = 0; stream < STREAMS; stream++) {
    bool used = false;
    for (uint32_t i = 0; i < g->columns.count && !used; i++) {
      const plan_op *o = op_at(g, g->columns.items[i].op);
      used = o->stream == stream && is_in_lane(o);
    }
    if (!used) continue;
    g->lane_of[stream] = top;
    set_colour(&g->plot, faint);
    cairo_rectangle(g->plot.cairo, LEFT, top, PLOT_WIDTH - LEFT - RIGHT, LANE_HEIGHT);
    cairo_fill(g->plot.cairo);
    set_colour(&g->plot, ink);
    put_text(&g->plot, LEFT - 10, top + LANE_HEIGHT / 2.0 + 4, 0,
             plan_stream_name(g->iteration->verification->plan, (plan_stream)stream));
    top += LANE_HEIGHT + LANE_GAP;
  }
  return top;
}

/* "attention_backward" in two lines if it is wide. */
static void put_name(order_picture *g, double x, double y, const char *name)
{
  const char *end = strrchr(name, '_');
  if (end == NULL || text_width(&g->plot, name) < column_width(g) - 8) {
    put_text(&g->plot, x, y, 0.5, name);
    return;
  }
  put_text(&g->plot, x, y - 7, 0.5, arena_strndup(g->plot.memory, name, (size_t)(end - name)));
  put_text(&g->plot, x, y + 5, 0.5, end + 1);
}

/* Both ends of a copy; of another op the tensor's own operand. */
static const char *operands_text(const order_picture *g, const plan_op *o)
{
  const uint32_t *all = &g->ops->operands.items[o->operands];
  if (op_is_copy((op_kind)o->kind))
    return arena_printf(g->plot.memory, "%%%" PRIu32 "\u2192%%%" PRIu32, all[0], all[1]);
  for (uint32_t i = 0; i < (uint32_t)o->reads + o->writes; i++)
    if (g->drawn[all[i]])
      return arena_printf(g->plot.memory, "%s %%%" PRIu32, i < o->reads ? "reads" : "writes",
                          all[i]);
  return "";
}

static void draw_work(order_picture *g, const column *c, double x)
{
  const plan_op *o = op_at(g, c->op);
  double top = g->lane_of[o->stream] + 6, width = column_width(g) - 4;
  set_colour(&g->plot, paint_colours[g->paints[c->op]]);
  cairo_rectangle(g->plot.cairo, x - width / 2, top, width, LANE_HEIGHT - 12);
  cairo_fill_preserve(g->plot.cairo);
  set_colour(&g->plot, is_of_finding(g, c->op) ? wrong : ink);
  cairo_set_line_width(g->plot.cairo, is_of_finding(g, c->op) ? 3 : 1);
  cairo_stroke(g->plot.cairo);
  cairo_set_line_width(g->plot.cairo, 1);
  set_colour(&g->plot, ink);
  put_name(g, x, top + 25, plan_op_name(g->iteration->verification->plan, o));
  put_text(&g->plot, x, top + LANE_HEIGHT - 22, 0.5, operands_text(g, o));
}

static void draw_event(order_picture *g, uint32_t op, double x)
{
  const plan_op *o = op_at(g, op);
  set_colour(&g->plot, ink);
  cairo_new_path(g->plot.cairo);
  cairo_arc(g->plot.cairo, x, lane_middle(g, op), 6, 0, 6.3);
  if (o->kind == OP_RECORD)
    cairo_fill(g->plot.cairo);
  else
    cairo_stroke(g->plot.cairo);
  put_text(&g->plot, x, lane_middle(g, op) - 14, 0.5,
           arena_printf(g->plot.memory, "%s e%" PRIu32, op_name((op_kind)o->kind), o->arg));
}

static void draw_columns(order_picture *g)
{
  for (uint32_t i = 0; i < g->columns.count; i++) {
    const column *c = &g->columns.items[i];
    const plan_op *o = op_at(g, c->op);
    if (op_works((op_kind)o->kind))
      draw_work(g, c, column_middle(g, i));
    else if (is_in_lane(o))
      draw_event(g, c->op, column_middle(g, i));
  }
}

/* ---- edges ---- */

static void draw_arrow(order_picture *g, double x1, double y1, double x2, double y2)
{
  cairo_t *cairo = g->plot.cairo;
  double middle = (x1 + x2) / 2;
  cairo_move_to(cairo, x1, y1);
  cairo_curve_to(cairo, middle, y1, middle, y2, x2, y2);
  cairo_stroke(cairo);
  cairo_move_to(cairo, x2, y2);
  cairo_line_to(cairo, x2 - 9, y2 - 5);
  cairo_line_to(cairo, x2 - 9, y2 + 5);
  cairo_fill(cairo);
}

static void draw_edges(order_picture *g)
{
  set_colour(&g->plot, ink);
  for (uint32_t i = 0; i < g->columns.count; i++) {
    uint32_t record = record_of(g, g->columns.items[i].op);
    uint32_t from = record == NO_OP ? g->columns.count : column_of(g, record);
    if (from == g->columns.count) continue;
    draw_arrow(g, column_middle(g, from) + 6, lane_middle(g, record), column_middle(g, i) - 6,
               lane_middle(g, g->columns.items[i].op));
  }
}

static void draw_missing(order_picture *g)
{
  static const double dashes[] = { 8, 5 };
  const finding *f = g->finding;
  if (f == NULL || !finding_lacks_edge(g->iteration->verification, f)) return;
  uint32_t from = f->step_before ? 0 : column_of(g, f->first), to = column_of(g, f->second);
  double y1 = lane_middle(g, f->first), y2 = lane_middle(g, f->second);
  double x1 = column_middle(g, from), x2 = column_middle(g, to) - column_width(g) / 2;
  if (y1 == y2)
    x1 += column_width(g) / 2;
  else
    y1 += (y1 < y2 ? 1 : -1) * (LANE_HEIGHT / 2.0 - 6);
  set_colour(&g->plot, wrong);
  cairo_set_line_width(g->plot.cairo, 2.5);
  cairo_set_dash(g->plot.cairo, dashes, 2, 0);
  draw_arrow(g, x1, y1, x2, y2);
  cairo_set_dash(g->plot.cairo, NULL, 0, 0);
  cairo_set_line_width(g->plot.cairo, 1);
  put_text_on_white(&g->plot, (x1 + x2) / 2, (y1 + y2) / 2 + 4, 0.5, "missing", wrong);
}

/* ---- memory ---- */

/* The last drawn op of the streams that a free names which uses the buffer. */
static double end_of_marks(const order_picture *g, uint32_t free_column)
{
  const plan_op *gives = op_at(g, g->columns.items[free_column].op);
  uint32_t last = free_column;
  for (uint32_t i = 0; i < g->columns.count; i++) {
    const plan_op *o = op_at(g, g->columns.items[i].op);
    if (op_works((op_kind)o->kind) && (gives->operands >> o->stream & 1) != 0 && i < free_column)
      last = free_column + 1;
  }
  return LEFT + (double)min_i64(last + 1, g->columns.count) * column_width(g);
}

static const char *bytes_text(arena *a, int64_t bytes)
{
  return bytes >= MIB ? figure_with_unit(a, bytes, unit_of_bytes(bytes))
                      : arena_printf(a, "%" PRId64 " bytes", bytes);
}

static void draw_bar(order_picture *g, uint32_t buffer, double top)
{
  const plan_buffer *b = &g->ops->buffers.items[buffer];
  double left = LEFT, right = PLOT_WIDTH - RIGHT, marked = 0;
  for (uint32_t i = 0; i < g->columns.count; i++) {
    const plan_op *o = op_at(g, g->columns.items[i].op);
    if (!op_is_memory((op_kind)o->kind) || o->arg != buffer) continue;
    if (o->kind == OP_ALLOC || o->kind == OP_HOST_ALLOC) left = column_middle(g, i);
    if (o->kind == OP_FREE || o->kind == OP_HOST_FREE) right = column_middle(g, i);
    if (o->kind == OP_FREE && o->operands != 0) marked = end_of_marks(g, i);
  }
  bool on_host = class_side((buffer_class)b->purpose) != ON_DEVICE;
  set_colour(&g->plot, paint_colours[on_host ? PAINT_H2D : PAINT_OPTIMIZER]);
  cairo_rectangle(g->plot.cairo, left, top, right - left, BAR_HEIGHT);
  cairo_fill(g->plot.cairo);
  if (marked > right) {
    cairo_rectangle(g->plot.cairo, right, top + 1, marked - right, BAR_HEIGHT - 2);
    cairo_stroke(g->plot.cairo);
    set_colour(&g->plot, ink);
    if (text_width(&g->plot, "marked") < marked - right)
      put_text(&g->plot, right + 4, top + 15, 1, "marked");
  }
  const plan_tensor *t = &g->iteration->verification->plan->tensors.items[b->tensor];
  set_colour(&g->plot, ink);
  put_text(&g->plot, left + 6, top + 15, 1,
           arena_printf(g->plot.memory, "%%%" PRIu32 " %s, %s", buffer, t->name,
                        bytes_text(g->plot.memory, b->bytes)));
  put_text(&g->plot, LEFT - 10, top + 15, 0, on_host ? "on host" : "on GPU");
}

static bool is_in_columns(const order_picture *g, uint32_t buffer)
{
  for (uint32_t i = 0; i < g->columns.count; i++) {
    const plan_op *o = op_at(g, g->columns.items[i].op);
    if (op_is_memory((op_kind)o->kind) && o->arg == buffer) return true;
    for (uint32_t k = 0; op_works((op_kind)o->kind) && k < (uint32_t)o->reads + o->writes; k++)
      if (g->ops->operands.items[o->operands + k] == buffer) return true;
  }
  return false;
}

static double draw_memory(order_picture *g, double top)
{
  for (uint32_t b = 0; b < g->ops->buffers.count; b++) {
    if (!g->drawn[b] || !is_in_columns(g, b)) continue;
    draw_bar(g, b, top);
    top += BAR_HEIGHT + BAR_GAP;
  }
  return top;
}

/* ---- words ---- */

/* Where another phase begins. */
static void draw_phases(order_picture *g, double bottom)
{
  const plan_mark *before = NULL;
  for (uint32_t i = 0; i < g->columns.count; i++) {
    const plan_mark *now = NULL;
    for (uint32_t op = 0; op < g->columns.items[i].op; op++)
      if (op_at(g, op)->kind == OP_MARK) now = &g->ops->marks.items[op_at(g, op)->arg];
    if (now == NULL || now == before || g->columns.items[i].step_before) continue;
    double x = LEFT + (double)i * column_width(g);
    set_colour(&g->plot, ink);
    cairo_set_line_width(g->plot.cairo, 1);
    put_line(&g->plot, x, TOP - 24, x, bottom);
    put_text(&g->plot, x + 6, TOP - 12, 1,
             arena_printf(g->plot.memory, "%s m%" PRIu32 " c%" PRIu32,
                          mark_name((mark_kind)now->kind), now->microbatch, now->chunk));
    before = now;
  }
  if (g->columns.items[0].step_before) put_text(&g->plot, LEFT + 6, TOP - 12, 1, "the step before");
}

static void draw_title(order_picture *g)
{
  const finding *f = g->finding;
  set_font(&g->plot, 17, true);
  set_colour(&g->plot, f == NULL ? ink : wrong);
  put_text(&g->plot, LEFT, 30, 1,
           f == NULL ? "One tensor leaves and comes back: what orders its ops"
                     : arena_printf(g->plot.memory, "%s, rank %" PRIu32,
                                    finding_name((finding_kind)f->kind), f->rank));
  set_font(&g->plot, 12, false);
  set_colour(&g->plot, ink);
  put_text(&g->plot, LEFT, 52, 1,
           f == NULL ? "In the order in which the host issues them. An arrow: the event that is "
                       "recorded at its begin is waited for at its end."
                     : finding_meaning((finding_kind)f->kind));
}

static void draw(void *picture)
{
  order_picture *g = picture;
  draw_title(g);
  set_font(&g->plot, 11, false);
  double bottom = draw_memory(g, draw_lanes(g) + BAR_GAP);
  draw_phases(g, bottom);
  draw_columns(g);
  draw_edges(g);
  draw_missing(g);
}

/* ==== what is drawn ==== */

/* Of the errors about a tensor, or of those whose second op is given: the first between two ops, else
 * the first; NULL: none. */
static const finding *finding_to_draw(const verification *v, int64_t second)
{
  const finding *first = NULL;
  for (uint32_t i = 0; i < v->findings.count; i++) {
    const finding *f = &v->findings.items[i];
    if ((second >= 0 && f->second != second) || f->buffer == NO_BUFFER) continue;
    if (finding_lacks_edge(v, f)) return f;
    bool error = finding_severity_of((finding_kind)f->kind) == SEVERITY_ERROR;
    if (first == NULL && error) first = f;
  }
  return first;
}

/* The source of the first copy to the host. False: nothing leaves. */
static bool first_to_leave(const rank_plan *r, uint32_t *buffer)
{
  for (uint32_t i = 0; i < r->ops.count; i++)
    if (r->ops.items[i].kind == OP_D2H) {
      *buffer = r->operands.items[r->ops.items[i].operands];
      return true;
    }
  return false;
}

/* Memory that two tensors have one after the other. */
static void draw_both_ends(order_picture *g)
{
  const finding *f = g->finding;
  if (f->reused < g->ops->buffers.count) g->drawn[f->reused] = true;
  if (f->first == NO_OP || !op_is_copy((op_kind)op_at(g, f->first)->kind)) return;
  const uint32_t *ends = &g->ops->operands.items[op_at(g, f->first)->operands];
  g->drawn[ends[0]] = g->drawn[ends[1]] = true;
}

bool findings_plot(const verified_iteration *iterations, uint32_t count, int64_t second,
                   const char *path, arena *a, diag *d)
{
  order_picture g = { .plot = { .memory = a }, .iteration = &iterations[count - 1] };
  assert(count > 0);
  for (uint32_t i = count; i-- > 0 && g.finding == NULL;) { /* what every step does, first */
    g.iteration = &iterations[i];
    g.finding = finding_to_draw(g.iteration->verification, second);
  }
  g.rank = g.finding == NULL ? 0 : g.finding->rank;
  g.ops = &g.iteration->verification->plan->ranks[g.rank];
  if (g.finding == NULL && second >= 0)
    return diag_error(d, (source_pos){ "--plot-op", 0, 0 },
                      "no error has op %" PRId64 " as its second op", second);
  if (g.finding == NULL && !g.iteration->verification->safe)
    return diag_error(d, (source_pos){ "--plot", 0, 0 },
                      "no error is about one tensor; only such errors can be drawn");
  uint32_t buffer = g.finding == NULL ? NO_BUFFER : g.finding->buffer;
  if (g.finding == NULL && !first_to_leave(g.ops, &buffer))
    return diag_error(d, (source_pos){ "--plot", 0, 0 },
                      "there is nothing to draw: no race, and rank 0 copies nothing to the host");
  g.drawn = ARENA_ARRAY(a, bool, g.ops->buffers.count);
  g.drawn[buffer] = true;
  follow_copies(&g);
  if (g.finding != NULL) draw_both_ends(&g);
  g.paints = op_paints(g.iteration->verification->plan, g.rank, a);
  choose_columns(&g);
  bool ok = plot_write(&g.plot, draw, &g, path, d);
  ARRAY_FREE(&g.columns);
  return ok;
}
