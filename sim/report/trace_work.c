#include "sim/report/trace_work.h"

#include <string.h>

paint trace_op_paint(const trace_op *o)
{
  if (strcmp(o->kind, "d2h") == 0 || strcmp(o->kind, "disk_write") == 0) return PAINT_D2H;
  if (strcmp(o->kind, "h2d") == 0 || strcmp(o->kind, "disk_read") == 0) return PAINT_H2D;
  if (strcmp(o->kind, "kernel") != 0) return PAINT_COMM;
  return strcmp(o->phase, "backward") == 0    ? PAINT_BACKWARD
         : strcmp(o->phase, "finish") == 0    ? PAINT_REDUCTION
         : strcmp(o->phase, "optimizer") == 0 ? PAINT_OPTIMIZER
                                              : PAINT_FORWARD;
}
