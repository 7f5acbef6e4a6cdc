#include "sim/base/diag.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/terminal.h"

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

static void print_error(char *to, size_t size, source_pos at, const char *format, va_list args)
{
  size_t used = (size_t)print_place(to, size, at);
  if (used < size) used += (size_t)snprintf(to + used, size - used, "error: ");
  if (used < size) vsnprintf(to + used, size - used, format, args);
  make_one_line(to);
}

/* Two steps of a reader may look at the same value. */
static bool is_kept(const diag *d, const char *message)
{
  if (d->exit_status != 0 && strcmp(d->message, message) == 0) return true;
  for (int i = 0; i < d->further_count && i < DIAG_FURTHER; i++)
    if (strcmp(d->further[i].message, message) == 0) return true;
  return false;
}

static void keep(diag *d, int status, source_pos at, const char *format, va_list args)
{
  if (d->follows) return;
  d->follows = true;
  if (d->exit_status == 0) {
    d->exit_status = status;
    d->at = at;
    print_error(d->message, sizeof d->message, at, format, args);
    return;
  }
  diag_entry entry = { .at = at };
  print_error(entry.message, sizeof entry.message, at, format, args);
  if (is_kept(d, entry.message)) return;
  int index = d->further_count++;
  if (index < DIAG_FURTHER) d->further[index] = entry;
}

bool diag_error(diag *d, source_pos at, const char *format, ...)
{
  va_list args;
  va_start(args, format);
  keep(d, DIAG_WRONG, at, format, args);
  va_end(args);
  return false;
}

bool diag_refused(diag *d, const char *format, ...)
{
  va_list args;
  va_start(args, format);
  keep(d, DIAG_REFUSED, (source_pos){ 0 }, format, args);
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
  fprintf(stderr, "%s%snote:%s %s\n", place, terminal_style(stderr, STYLE_NOTE),
          terminal_style(stderr, STYLE_PLAIN), message);
}

/* Errors by number: 0 is the first that was found. */
static source_pos place_of(const diag *d, int error)
{
  return error == 0 ? d->at : d->further[error - 1].at;
}

static bool same_file(source_pos a, source_pos b)
{
  return a.file == b.file || (a.file != NULL && b.file != NULL && strcmp(a.file, b.file) == 0);
}

/* The first error in the same file: files come in the order in which they were found wrong. */
static int file_rank(const diag *d, int error)
{
  int first = 0;
  while (!same_file(place_of(d, first), place_of(d, error)))
    first++;
  return first;
}

static bool stands_before(const diag *d, int a, int b)
{
  source_pos x = place_of(d, a), y = place_of(d, b);
  int file_x = file_rank(d, a), file_y = file_rank(d, b);
  if (file_x != file_y) return file_x < file_y;
  return x.line != y.line ? x.line < y.line : x.column < y.column;
}

/* "place: error: text", the word in its colour. */
static void print_message(const char *message, FILE *out)
{
  static const char word[] = "error:";
  const char *begin = strstr(message, word);
  int place = begin == NULL ? (int)strlen(message) : (int)(begin - message);
  fprintf(out, "%.*s", place, message);
  if (begin != NULL)
    fprintf(out, "%s%s%s%s", terminal_style(out, STYLE_ALARM), word,
            terminal_style(out, STYLE_PLAIN), begin + strlen(word));
  fputc('\n', out);
}

void diag_print(const diag *d, FILE *out)
{
  if (d->exit_status == 0) return;
  int order[DIAG_FURTHER + 1] = { 0 };
  int count = 1 + (d->further_count < DIAG_FURTHER ? d->further_count : DIAG_FURTHER);
  for (int error = 1; error < count; error++) {
    int i = error;
    for (; i > 0 && stands_before(d, error, order[i - 1]); i--)
      order[i] = order[i - 1];
    order[i] = error;
  }
  for (int i = 0; i < count; i++)
    print_message(order[i] == 0 ? d->message : d->further[order[i] - 1].message, out);
  if (d->further_count > DIAG_FURTHER)
    fprintf(out, "offsim: error: %d more errors are not listed\n", d->further_count - DIAG_FURTHER);
}

int diag_finish(const diag *d)
{
  diag_print(d, stderr);
  return d->exit_status;
}

_Noreturn void die_refused(const char *format, ...)
{
  fprintf(stderr, "offsim: %serror:%s ", terminal_style(stderr, STYLE_ALARM),
          terminal_style(stderr, STYLE_PLAIN));
  va_list args;
  va_start(args, format);
  vfprintf(stderr, format, args);
  va_end(args);
  fputc('\n', stderr);
  exit(DIAG_REFUSED);
}
