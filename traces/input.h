/*
 * Bytes of a file, plain or gzip, one after the other; and their offset, which messages name.
 * Private to traces.
 *
 * Wrong bytes get one message with their offset in the unpacked file. Once a message was made,
 * input_next and input_peek return INPUT_END.
 */
#ifndef OFFSIM_TRACES_INPUT_H
#define OFFSIM_TRACES_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/diag.h"

enum { INPUT_END = -1, INPUT_BUFFER_BYTES = 1 << 18 };

typedef struct input {
  const char *name; /* of the file, in messages */
  void *file;       /* zlib's gzFile; NULL: the bytes are in memory */
  uint8_t *buffer;
  const uint8_t *next, *end;
  int64_t end_offset; /* of `end` */
  diag *d;
  bool failed;
} input;

/* False after a diag error: it cannot be opened. */
bool input_open(input *in, const char *path, diag *d);
/* Of bytes in memory, which must outlive it. */
void input_of_bytes(input *in, const char *name, const uint8_t *bytes, size_t count, diag *d);
void input_close(input *in);

/* Up to 256 KiB that come next, without taking them. */
size_t input_look(input *in, const uint8_t **bytes);

bool input_refill(input *in); /* false: the end, or a message */

static inline int64_t input_offset(const input *in)
{
  return in->end_offset - (in->end - in->next);
}

static inline int input_peek(input *in)
{
  return in->next < in->end || input_refill(in) ? *in->next : INPUT_END;
}

static inline int input_next(input *in)
{
  return in->next < in->end || input_refill(in) ? *in->next++ : INPUT_END;
}

/* The first message counts; all return false. The second: "found X", or "the file ends". */
bool input_wrong(input *in, int64_t offset, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool input_expected(input *in, const char *expected);

#endif
