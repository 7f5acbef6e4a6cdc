#include <string.h>

#include "sim/report/curve.h"
#include "sim/report/plot_parts.h"

/* Bars of one colour that are nearer than this are one bar: no eye tells them apart. */
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
};

enum { LANES = sizeof lanes / sizeof *lanes, LANE_DISTANCE = 10 };
_Static_assert(LANES == STREAMS - 1, "every stream but the host thread has a lane");

/* ---- which colour ------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *ending)
{
  size_t length = strlen(text), wanted = strlen(ending);
  return length >= wanted && strcmp(text + length - wanted, ending) == 0;
}

/* In a backward phase, kernels of the forward direction compute again. Kernels of no direction (a GEMM)
 * belong to them where they stand between two of them. */
typedef enum direction { NO_DIRECTION, IN_FORWARD, IN_BACKWARD } direction;

static direction direction_of(const plot *p, const plan_op *o)
{
  if (o->kind != OP_KERNEL)
    return NO_DIRECTION;
  const plan_call *call = &p->prediction->steady.plan.calls.items[o->arg];
  const char *name = kernel_name((kernel_kind)call->kind);
  return ends_with(name, "_forward")    ? IN_FORWARD
         : ends_with(name, "_backward") ? IN_BACKWARD
                                        : NO_DIRECTION;
}

/* By op: it stands between two kernels of the forward direction, or is one. */
static bool *between_forwards(const plot *p)
{
  bool *between = ARENA_ARRAY(p->memory, bool, p->ops->ops.count);
  uint32_t from = UINT32_MAX;
  for (uint32_t i = 0; i < p->ops->ops.count; i++) {
    const plan_op *o = &p->ops->ops.items[i];
    direction d = direction_of(p, o);
    if (d == IN_FORWARD)
      for (uint32_t k = from == UINT32_MAX ? i : from; k <= i; k++)
        between[k] = true;
    if (d == IN_FORWARD)
      from = i;
    else if (d == IN_BACKWARD || o->kind == OP_MARK)
      from = UINT32_MAX;
  }
  return between;
}

static paint paint_of_phase(mark_kind phase, bool forward)
{
  switch (phase) {
  case MARK_BACKWARD: return forward ? PAINT_RECOMPUTE : PAINT_BACKWARD;
  case MARK_FINISH: return PAINT_REDUCTION;
  case MARK_OPTIMIZER: return PAINT_OPTIMIZER;
  case MARK_SETUP:
  case MARK_FORWARD:
  case MARK_KINDS: break;
  }
  return PAINT_FORWARD;
}

static paint paint_of(const plan_op *o, mark_kind phase, bool forward)
{
  switch ((op_kind)o->kind) {
  case OP_D2H:
  case OP_DISK_WRITE: return PAINT_D2H;
  case OP_H2D:
  case OP_DISK_READ: return PAINT_H2D;
  case OP_COLLECTIVE:
  case OP_SEND:
  case OP_RECV: return PAINT_COMM;
  case OP_MARK:
  case OP_ALLOC:
  case OP_FREE:
  case OP_HOST_ALLOC:
  case OP_HOST_FREE:
  case OP_KERNEL:
  case OP_RECORD:
  case OP_WAIT:
  case OP_HOST_WAIT:
  case OP_GRAPH_BEGIN:
  case OP_GRAPH_END:
  case OP_KINDS: break;
  }
  return paint_of_phase(phase, forward);
}

/* ---- bars --------------------------------------------------------------------------------------- */

typedef struct bar {
  paint paint;
  double left, right;
  bool open;
} bar;

static void put_bar(plot *p, const bar *b, double top, double height)
{
  if (!b->open)
    return;
  set_colour(p, paint_colours[b->paint]);
  cairo_rectangle(p->cairo, b->left, top, b->right - b->left, height);
  cairo_fill(p->cairo);
  p->used[b->paint] = true;
}

static void plot_lane(plot *p, const struct lane *lane, double top, const bool *forward)
{
  bar b = { .open = false };
  mark_kind phase = MARK_SETUP;
  for (uint32_t i = 0; i < p->ops->ops.count; i++) {
    const plan_op *o = &p->ops->ops.items[i];
    if (o->kind == OP_MARK)
      phase = (mark_kind)p->ops->marks.items[o->arg].kind;
    if (o->stream != lane->stream || !op_takes_time(o))
      continue;
    paint colour_of_op = paint_of(o, phase, forward[i]);
    double left = x_of(p, p->times->start_ps[i]), right = x_of(p, p->times->end_ps[i]);
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
static bool is_used(const plot *p, const struct lane *lane)
{
  for (uint32_t i = 0; i < p->ops->ops.count; i++)
    if (p->ops->ops.items[i].stream == lane->stream && op_takes_time(&p->ops->ops.items[i]))
      return true;
  return false;
}

double streams_height(const plot *p)
{
  double height = 0;
  for (int i = 0; i < LANES; i++)
    if (is_used(p, &lanes[i]))
      height += lanes[i].height + LANE_DISTANCE;
  return height;
}

void plot_streams(plot *p)
{
  const bool *forward = between_forwards(p);
  double top = p->streams.top;
  for (int i = 0; i < LANES; i++) {
    if (!is_used(p, &lanes[i]))
      continue;
    set_colour(p, ink);
    put_text(p, p->streams.left - 10, top + lanes[i].height / 2 + 4, 0, lanes[i].name);
    plot_lane(p, &lanes[i], top, forward);
    set_colour(p, faint);
    put_line(p, p->streams.left, top + lanes[i].height, p->streams.left + p->streams.width,
             top + lanes[i].height);
    top += lanes[i].height + LANE_DISTANCE;
  }
}
