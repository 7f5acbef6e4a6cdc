#include "cuda/queue/sink.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

void sink_wrong(failure_sink *s, const char *why)
{
  assert(why != NULL);
  s->wrong(s->context, s->at, why);
}

void sink_refused(failure_sink *s, const char *format, ...)
{
  char text[1024];
  assert(format != NULL && s->refused != NULL);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  s->refused(s->context, s->at, text);
}
