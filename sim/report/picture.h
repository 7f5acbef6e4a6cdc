/*
 * What pictures are drawn with, by cairo, and their files: SVG, PNG or PDF, by the ending of the
 * name. Private to sim/report.
 */
#ifndef OFFSIM_SIM_REPORT_PICTURE_H
#define OFFSIM_SIM_REPORT_PICTURE_H

#include <cairo.h>

#include "sim/base/arena.h"
#include "sim/base/diag.h"
#include "sim/report/work.h"

enum { PLOT_WIDTH = 1200, PLOT_HEIGHT = 640 };

typedef struct colour {
  double red, green, blue, alpha;
} colour;

/* A rectangle of the picture; y grows downwards. */
typedef struct panel {
  double left, top, width, height;
} panel;

typedef struct plot {
  cairo_t *cairo;
  arena *memory;
} plot;

extern const colour paint_colours[PAINTS];
extern const colour ink, faint;

void set_colour(plot *p, colour c);
/* `where`: 0 left of x, 0.5 centred, 1 to the right of it. */
void put_text(plot *p, double x, double y, double where, const char *text);
/* The same where something may be drawn already. */
void put_text_on_white(plot *p, double x, double y, double where, const char *text, colour c);
double text_width(plot *p, const char *text);
void set_font(plot *p, double size, bool bold);
void put_line(plot *p, double x1, double y1, double x2, double y2);
/* The line and the label of one value of a panel's upright axis, and that axis's title. */
void put_value(plot *p, const panel *where, double y, const char *text);
void put_upright_title(plot *p, const panel *where, const char *text);

/* A step of a scale with at most `most` steps to `largest`: 1, 2 or 5 times a power of ten times
 * `unit`. */
int64_t scale_step(int64_t largest, int64_t unit, int most);

/* Calls `draw` for `picture`, whose plot is `p`, on white, and writes the file. False after a
 * diag error: no such format, or the file cannot be written. */
bool plot_write(plot *p, void (*draw)(void *picture), void *picture, const char *path, diag *d);

#endif
