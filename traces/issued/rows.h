/*
 * The record of `offsim record`: what a process gave to its GPUs, in the order in which its calls
 * returned (docs/reference/issued.md). The recorder writes it (cuda/recorder), issued.h reads it.
 *
 * A file is ISSUED_MAGIC, then rows of 64-bit words in the order of the host's bytes (little-endian):
 * a header, a time in nanoseconds of the host's clock, then the kind's words, and a zero if they are
 * odd in number. A row of kind ISSUED_NOTHING is not written yet: there the record of a killed
 * process ends.
 */
#ifndef OFFSIM_TRACES_ISSUED_ROWS_H
#define OFFSIM_TRACES_ISSUED_ROWS_H

#include <stdint.h>

#define ISSUED_MAGIC "offsim issued 1\n"

enum {
  ISSUED_MAGIC_BYTES = 16,
  ISSUED_ROW_WORDS = 8192, /* at most, after the header and the time */
};

/*  kind                   words  name            its words; "..." is the rest of the row */
#define ISSUED_ROWS(X)                                                                             \
  X(ISSUED_NOTHING, 0, "nothing", "the end of what was written")                                   \
  X(ISSUED_FILLER, 0, "filler", "... to be skipped")                                               \
  X(ISSUED_END, 0, "end", "the process ended in order")                                            \
  X(ISSUED_NAME, 1, "name", "number; ... text, padded with NULs")                                  \
  X(ISSUED_STREAM, 3, "stream", "number, context, ISSUED_BLOCKING or ISSUED_LEGACY or 0")          \
  X(ISSUED_KERNEL, 2, "kernel", "stream, name; ... pointers among its arguments")                  \
  X(ISSUED_COPY, 7, "copy", "stream, to, from, bytes of a row, rows, pitch of to, pitch of from")  \
  X(ISSUED_SET, 5, "set", "stream, to, bytes of a row, rows, pitch")                               \
  X(ISSUED_GRAPH, 2, "graph", "stream, executable graph")                                          \
  X(ISSUED_HOST_CALL, 1, "host_call", "stream, which calls a function of the host")                \
  X(ISSUED_EVENT_RECORD, 2, "event_record", "stream, event")                                       \
  X(ISSUED_EVENT_WAIT, 2, "event_wait", "stream, event that it waits for from here on")            \
  X(ISSUED_EVENT_DONE, 1, "event_done", "event: the host knows that it has happened")              \
  X(ISSUED_EVENT_GONE, 1, "event_gone", "event that was destroyed")                                \
  X(ISSUED_STREAM_DONE, 1, "stream_done", "stream: the host knows that it is idle")                \
  X(ISSUED_CONTEXT_DONE, 1, "context_done", "context: the host knows that its streams are idle")   \
  X(ISSUED_ALLOC, 3, "alloc", "address, bytes, issued_space: by the driver")                       \
  X(ISSUED_FREE, 3, "free", "address, bytes, 1 if it waits for all work")                          \
  X(ISSUED_BLOCK, 1, "block", "address: PyTorch's allocator hands it out")                         \
  X(ISSUED_BLOCK_FREE, 1, "block_free", "address: the tensor is gone")                             \
  X(ISSUED_SNAPSHOT, 1, "snapshot", "bytes; ... of PyTorch's memory snapshot, row after row")

typedef enum issued_kind {
#define X(id, words, name, meaning) id,
  ISSUED_ROWS(X)
#undef X
      ISSUED_KINDS
} issued_kind;

/* Flags of a row. */
enum {
  ISSUED_CAPTURED = 1, /* into a graph: nothing runs now */
  ISSUED_UNSEEN = 2,   /* of a kernel: arguments that could not be read */
  ISSUED_WAITED = 4    /* of a copy or set: the call returns when it is over; of event_done and
                        * stream_done: the call waited, and did not only ask */
};

/* Of a stream: it waits for the legacy default stream, or is that. */
enum { ISSUED_BLOCKING = 1, ISSUED_LEGACY = 2 };

typedef enum issued_space { ISSUED_DEVICE, ISSUED_HOST, ISSUED_MANAGED } issued_space;

/* The first word of a row. */
typedef struct issued_header {
  uint8_t kind, flags;
  uint16_t thread; /* of the host, from 0 in the order of their first call */
  uint32_t words;  /* after the time; even */
} issued_header;

#endif
