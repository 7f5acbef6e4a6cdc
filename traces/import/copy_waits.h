/*
 * What copies of offloading wait for, and where compute waits for them: in one form for a plan and for a
 * real run, to compare them. Kernels of the two differ, so an order is described by what both have:
 * whether a copy waits for compute again after the stream's copy before it, and the pass in which compute
 * first waits for the copy.
 */
#ifndef OFFSIM_TRACES_IMPORT_COPY_WAITS_H
#define OFFSIM_TRACES_IMPORT_COPY_WAITS_H

#include <stdbool.h>
#include <stdint.h>

/* What the host does, one after the other. */
typedef enum action_kind {
  ACTION_WORK,
  ACTION_COPY,        /* of offloading */
  ACTION_RECORD,      /* of an event on the stream */
  ACTION_WAIT,        /* the stream waits for an event */
  ACTION_EVENT_DONE,  /* the host waits for it */
  ACTION_STREAM_DONE, /* ... for the stream */
  ACTION_ALL_DONE     /* ... for all of them */
} action_kind;

typedef struct action {
  action_kind kind;
  uint32_t stream;
  uint32_t number; /* of a copy; of an event */
  uint32_t pass;   /* the caller's: of work and copies */
} action;

typedef struct action_array {
  action *items;
  uint32_t count, capacity;
} action_array;

#define AWAITED_NEVER (UINT32_MAX - 1)

/* Of a copy: does it wait for compute again? */
typedef enum copy_before {
  BEFORE_NOTHING_NEW, /* compute did nothing that the stream has not waited for */
  BEFORE_WAITS,       /* for work that was issued after what it has waited for so far */
  BEFORE_DOES_NOT     /* although there is such work */
} copy_before;

typedef struct copy_wait {
  copy_before before;
  uint32_t awaited; /* `pass` of compute's first work that begins after the copy; AWAITED_NEVER */
} copy_wait;

/* `stream_kinds` (real_stream_kind) by stream, NULL: all are alone. `waits`: by number of a copy. */
void find_copy_waits(const action_array *actions, const uint8_t *stream_kinds, uint32_t streams,
                     uint32_t compute, copy_wait *waits);

#endif
