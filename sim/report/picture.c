#include "sim/report/picture.h"

#include <assert.h>
#include <cairo-pdf.h>
#include <cairo-svg.h>
#include <fontconfig/fontconfig.h>
#include <string.h>

#include "sim/base/file.h"
#include "sim/report/plot.h"

const colour ink = { 0.13, 0.15, 0.18, 1 };
const colour faint = { 0.13, 0.15, 0.18, 0.12 };

const colour paint_colours[PAINTS] = {
  [PAINT_FORWARD] = { 0.306, 0.475, 0.655, 1 },   [PAINT_BACKWARD] = { 0.949, 0.557, 0.169, 1 },
  [PAINT_RECOMPUTE] = { 0.929, 0.788, 0.282, 1 }, [PAINT_REDUCTION] = { 0.612, 0.459, 0.373, 1 },
  [PAINT_OPTIMIZER] = { 0.690, 0.478, 0.631, 1 }, [PAINT_COMM] = { 0.463, 0.718, 0.698, 1 },
  [PAINT_D2H] = { 0.882, 0.341, 0.349, 1 },       [PAINT_H2D] = { 0.349, 0.631, 0.310, 1 },
};

/* ---- drawing ---- */

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
  assert(unit > 0 && most > 0);
  for (int i = 0; largest / step > most; i++) {
    step = decade * factors[i % 3];
    if (i % 3 == 2) decade = step;
  }
  return step;
}

/* ---- the file ---- */

enum { PNG_SCALE = 2 };

static cairo_status_t write_bytes(void *file, const unsigned char *bytes, unsigned length)
{
  return fwrite(bytes, 1, length, file) == length ? CAIRO_STATUS_SUCCESS : CAIRO_STATUS_WRITE_ERROR;
}

static cairo_surface_t *new_svg(FILE *out)
{
  return cairo_svg_surface_create_for_stream(write_bytes, out, PLOT_WIDTH, PLOT_HEIGHT);
}

/* The same plot is the same file: the date of its making is no part of it. */
static cairo_surface_t *new_pdf(FILE *out)
{
  cairo_surface_t *surface =
      cairo_pdf_surface_create_for_stream(write_bytes, out, PLOT_WIDTH, PLOT_HEIGHT);
  cairo_pdf_surface_set_metadata(surface, CAIRO_PDF_METADATA_CREATE_DATE, "2000-01-01T00:00:00Z");
  return surface;
}

static cairo_surface_t *new_png(FILE *out)
{
  (void)out;
  cairo_surface_t *surface = cairo_image_surface_create(CAIRO_FORMAT_RGB24, PLOT_WIDTH * PNG_SCALE,
                                                        PLOT_HEIGHT * PNG_SCALE);
  cairo_surface_set_device_scale(surface, PNG_SCALE, PNG_SCALE);
  return surface;
}

static cairo_status_t finish_png(cairo_surface_t *surface, FILE *out)
{
  return cairo_surface_write_to_png_stream(surface, write_bytes, out);
}

static cairo_status_t finish_pages(cairo_surface_t *surface, FILE *out)
{
  (void)out;
  cairo_surface_finish(surface);
  return cairo_surface_status(surface);
}

static const struct plot_format {
  const char *ending;
  cairo_surface_t *(*make)(FILE *out);
  cairo_status_t (*finish)(cairo_surface_t *surface, FILE *out);
} formats[] = {
  { ".svg", new_svg, finish_pages },
  { ".png", new_png, finish_png },
  { ".pdf", new_pdf, finish_pages },
};

static const struct plot_format *format_of(const char *path)
{
  size_t length = strlen(path);
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (length > 4 && strcmp(path + length - 4, formats[i].ending) == 0) return &formats[i];
  return NULL;
}

bool plot_check_path(const char *path, diag *d)
{
  return format_of(path) != NULL ||
         diag_error(d, (source_pos){ "--plot", 0, 0 },
                    "\"%s\" ends neither in .svg nor in .png nor in .pdf", path);
}

/* cairo and fontconfig keep fonts for the next plot; there is none, and leak checkers look. */
static void forget_fonts(void)
{
  cairo_debug_reset_static_data();
  FcFini();
}

bool plot_write(plot *p, void (*draw)(void *picture), void *picture, const char *path, diag *d)
{
  const struct plot_format *format = format_of(path);
  file_writer w;
  if (format == NULL) return plot_check_path(path, d);
  if (!file_open(&w, path, d)) return false;
  cairo_surface_t *surface = format->make(w.stream);
  p->cairo = cairo_create(surface);
  cairo_set_source_rgb(p->cairo, 1, 1, 1);
  cairo_paint(p->cairo);
  draw(picture);
  cairo_status_t status = cairo_status(p->cairo);
  cairo_destroy(p->cairo);
  if (status == CAIRO_STATUS_SUCCESS) status = format->finish(surface, w.stream);
  cairo_surface_destroy(surface);
  forget_fonts();
  /* A refused write is the file's to report, with its own words and exit status. */
  if (status == CAIRO_STATUS_SUCCESS || status == CAIRO_STATUS_WRITE_ERROR)
    return file_close(&w, d);
  file_discard(&w);
  return diag_refused(d, "%s: cannot draw it: %s", path, cairo_status_to_string(status));
}
