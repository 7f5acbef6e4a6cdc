#include "sim/cli/progress_line.h"

#include <assert.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "sim/base/units.h"

/* Of the narrowest terminal: a longer line would break, and \r not return to its beginning. */
enum { LINE_COLUMNS = 59 };

static int64_t now_ns(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * NS_PER_S + t.tv_nsec;
}

static void print_line(const char *line)
{
  fprintf(stderr, "\r%-*s", LINE_COLUMNS, line);
}

progress_line progress_line_new(bool shows)
{
  bool watched = shows && isatty(STDERR_FILENO) != 0;
  return (progress_line){ .watched = watched, .begin_ns = watched ? now_ns() : 0 };
}

void progress_line_restart(progress_line *p, uint32_t decided)
{
  p->before = decided;
  p->begin_ns = p->watched ? now_ns() : 0;
}

void progress_line_show(progress_line *p, uint32_t decided, uint32_t all, const char *left)
{
  int64_t now = p->watched ? now_ns() : 0;
  char line[LINE_COLUMNS + 1];
  assert(p->before <= decided && decided <= all);
  if (!p->watched || decided == p->before || now - p->shown_ns < NS_PER_S / 5) return;
  double rate = (decided - p->before) / ((double)(now - p->begin_ns) / NS_PER_S);
  double left_s = (all - decided) / rate;
  bool is_long = left_s >= 600;
  p->shown_ns = now;
  snprintf(line, sizeof line, "%u/%u  %.1f a second, %.0f %s %s", decided, all, rate,
           is_long ? left_s / 60 : left_s, is_long ? "min" : "s", left);
  print_line(line);
}

void progress_line_tell(const progress_line *p, uint32_t all, const char *doing)
{
  char line[LINE_COLUMNS + 1];
  snprintf(line, sizeof line, "0/%u  %s", all, doing);
  if (p->watched) print_line(line);
}

void progress_line_end(const progress_line *p)
{
  if (!p->watched) return;
  print_line("");
  fputc('\r', stderr);
}
