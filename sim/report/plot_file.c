/* A picture as a file: SVG, PNG or PDF, by the ending of its name. */
#include <cairo-pdf.h>
#include <cairo-svg.h>
#include <fontconfig/fontconfig.h>
#include <string.h>

#include "sim/base/file.h"
#include "sim/report/plot.h"
#include "sim/report/plot_parts.h"

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

bool plot_write(plot *p, void (*draw)(plot *p), const char *path, diag *d)
{
  const struct plot_format *format = format_of(path);
  file_writer w;
  if (format == NULL) return plot_check_path(path, d);
  if (!file_open(&w, path, d)) return false;
  cairo_surface_t *surface = format->make(w.stream);
  p->cairo = cairo_create(surface);
  cairo_set_source_rgb(p->cairo, 1, 1, 1);
  cairo_paint(p->cairo);
  draw(p);
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
