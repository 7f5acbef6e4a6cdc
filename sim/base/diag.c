#include "sim/base/diag.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { WRONG_INPUT = 2, RESOURCE_REFUSED = 3 };

/* Prints "file:line:column: ", as much of it as is known; returns its length. */
static int print_place(char *to, size_t size, source_pos at)
{
  if (at.file == NULL) return snprintf(to, size, "offsim: ");
  if (at.line == 0) return snprintf(to, size, "%s: ", at.file);
  return snprintf(to, size, "%s:%d:%d: ", at.file, at.line, at.column);
}

/* Quoted input may contain anything; a message must be one line of text. */
static void make_one_line(char *message)
{
  for (; *message != '\0'; message++) {
    unsigned char c = (unsigned char)*message;
    if (c < ' ' || c == 127) *message = '?';
  }
}

static void keep(diag *d, int status, source_pos at, const char *format, va_list args)
{
  if (d->exit_status != 0) return;
  d->exit_status = status;
  size_t size = sizeof d->message;
  size_t used = (size_t)print_place(d->message, size, at);
  if (used < size) used += (size_t)snprintf(d->message + used, size - used, "error: ");
  if (used < size) vsnprintf(d->message + used, size - used, format, args);
  make_one_line(d->message);
}

bool diag_error(diag *d, source_pos at, const char *format, ...)
{
  va_list args;
  va_start(args, format);
  keep(d, WRONG_INPUT, at, format, args);
  va_end(args);
  return false;
}

bool diag_refused(diag *d, const char *format, ...)
{
  va_list args;
  va_start(args, format);
  keep(d, RESOURCE_REFUSED, (source_pos){ 0 }, format, args);
  va_end(args);
  return false;
}

void diag_note(const diag *d, source_pos at, const char *format, ...)
{
  if (d->quiet) return;
  char place[512], message[1024];
  print_place(place, sizeof place, at);
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  make_one_line(place);
  make_one_line(message);
  fprintf(stderr, "%snote: %s\n", place, message);
}

int diag_finish(const diag *d)
{
  if (d->exit_status != 0) fprintf(stderr, "%s\n", d->message);
  return d->exit_status;
}

_Noreturn void die_refused(const char *format, ...)
{
  fprintf(stderr, "offsim: error: ");
  va_list args;
  va_start(args, format);
  vfprintf(stderr, format, args);
  va_end(args);
  fputc('\n', stderr);
  exit(RESOURCE_REFUSED);
}
