#include "cuda/device/failure.h"

#include <stdarg.h>
#include <stdio.h>

const char *gpu_failure(const char *format, ...)
{
  static _Thread_local char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}
