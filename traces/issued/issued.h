/*
 * Reads a record of `offsim record`, row after row (rows.h).
 *
 *     issued_reader r;
 *     issued_row row;
 *     if (!issued_open(&r, &in)) return false;
 *     while (issued_next(&r, &row)) ...
 *     return !in.failed;
 */
#ifndef OFFSIM_TRACES_ISSUED_ISSUED_H
#define OFFSIM_TRACES_ISSUED_ISSUED_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/array.h"
#include "traces/input.h"
#include "traces/issued/rows.h"

typedef struct issued_row {
  issued_kind kind;
  uint8_t flags;
  uint16_t thread;
  uint32_t count;       /* of words, at least those of its kind */
  uint64_t time_ns;     /* when the call returned */
  const uint64_t *word; /* until the next row is read */
} issued_row;

typedef struct issued_reader {
  input *in;
  bool ended; /* the process ended in order: its record is complete */
  uint64_t words[ISSUED_ROW_WORDS];
} issued_reader;

/* Whether bytes begin as such a record does. */
bool issued_looks_like(const uint8_t *bytes, size_t count);

/* False after a message: it is no such record. */
bool issued_open(issued_reader *r, input *in);

/* Fillers are left out. False at the end, or after a message with the offset. */
bool issued_next(issued_reader *r, issued_row *row);

const char *issued_kind_name(issued_kind kind);

/* Whether the first word of such rows is a stream. */
static inline bool issued_is_on_stream(issued_kind kind)
{
  return (kind >= ISSUED_KERNEL && kind <= ISSUED_EVENT_WAIT) || kind == ISSUED_STREAM_DONE;
}

/* The text of a row ISSUED_NAME; without a NUL after it. */
const char *issued_name(const issued_row *row, size_t *length);

/* Bytes of PyTorch's memory snapshot, which is stored in rows ISSUED_SNAPSHOT. */
typedef struct issued_bytes {
  uint8_t *items;
  uint32_t count, capacity;
} issued_bytes;

/* False after a message. */
bool issued_take_snapshot(const issued_row *row, issued_bytes *to, input *in);

#endif
