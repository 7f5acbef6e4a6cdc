#include "traces/input.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

bool input_open(input *in, const char *path, diag *d)
{
  errno = 0;
  *in = (input){ .name = path, .d = d };
  in->file = strcmp(path, "-") == 0 ? gzdopen(dup(STDIN_FILENO), "rb") : gzopen(path, "rb");
  if (in->file == NULL)
    return diag_error(d, (source_pos){ path, 0, 0 }, "cannot open it: %s", strerror(errno));
  gzbuffer(in->file, INPUT_BUFFER_BYTES);
  in->buffer = malloc(INPUT_BUFFER_BYTES);
  if (in->buffer == NULL)
    die_refused("memory: requested %d bytes, the system has none left", INPUT_BUFFER_BYTES);
  in->next = in->end = in->buffer;
  return true;
}

void input_of_bytes(input *in, const char *name, const uint8_t *bytes, size_t count, diag *d)
{
  *in = (input){ .name = name, .d = d, .next = bytes, .end = bytes + count };
  in->end_offset = (int64_t)count;
}

void input_close(input *in)
{
  if (in->file != NULL) gzclose_r(in->file);
  free(in->buffer);
  *in = (input){ .name = in->name };
}

bool input_refill(input *in)
{
  assert(in->next == in->end);
  if (in->file == NULL || in->failed) return false;
  int got = gzread(in->file, in->buffer, INPUT_BUFFER_BYTES), error = Z_OK;
  const char *reason = gzerror(in->file, &error);
  /* A cut file has its bytes up to there, then Z_BUF_ERROR. */
  if (got < 0 || (got == 0 && error != Z_OK))
    return input_wrong(in, in->end_offset, "cannot read on: %s",
                       error == Z_ERRNO ? strerror(errno)
                       : error == Z_BUF_ERROR
                           ? "the compressed file ends here, in the middle; copy it again"
                           : reason);
  in->next = in->buffer;
  in->end = in->buffer + got;
  in->end_offset += got;
  return got > 0;
}

size_t input_look(input *in, const uint8_t **bytes)
{
  if (in->next == in->end) input_refill(in);
  *bytes = in->next;
  return (size_t)(in->end - in->next);
}

bool input_wrong(input *in, int64_t offset, const char *format, ...)
{
  char text[512];
  if (in->failed) return false;
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  in->failed = true;
  in->next = in->end;
  return diag_error(in->d, (source_pos){ in->name, 0, 0 }, "at byte %" PRId64 ": %s", offset, text);
}

bool input_expected(input *in, const char *expected)
{
  if (in->failed) return false;
  int64_t at = input_offset(in);
  int found = input_peek(in);
  if (found == INPUT_END) return input_wrong(in, at, "the file ends; expected %s", expected);
  if (found > ' ' && found < 0x7f)
    return input_wrong(in, at, "found '%c'; expected %s", found, expected);
  return input_wrong(in, at, "found byte 0x%02x; expected %s", (unsigned)found, expected);
}
