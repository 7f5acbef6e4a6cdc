/*
 * One rank of a real run: what its streams ran, what its host called, what its allocator did. One form
 * for PyTorch's profiler (Kineto), for PyTorch's memory snapshots, for what offsim record wrote, and
 * for offsim's own records; a profile and a snapshot of one run are read into the same real_run,
 * because both have the clock of their host.
 *
 *     real_run r;
 *     real_run_init(&r, &memory);
 *     if (real_run_read(&r, "trace.json.gz", 0, d) && real_run_read(&r, "snapshot.pickle", 0, d))
 *       real_run_finish(&r, d);
 *     ...
 *     real_run_release(&r);
 *
 * Texts are in `memory`. Formats: docs/reference/real-runs.md.
 */
#ifndef OFFSIM_TRACES_IMPORT_REAL_RUN_H
#define OFFSIM_TRACES_IMPORT_REAL_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/arena.h"
#include "sim/base/array.h"
#include "sim/base/diag.h"
#include "sim/plan/intern.h"

enum { REAL_RUN_VERSION = 2 };

/* ---- what streams and host threads did ---- */

/*  kind        in records   on a stream  what it is */
#define REAL_SPANS(X)                                                                              \
  X(REAL_KERNEL, "kernel", true, "a kernel, NCCL's among them")                                    \
  X(REAL_MEMSET, "memset", true, "device memory filled with a byte")                               \
  X(REAL_D2H, "d2h", true, "a copy to the host")                                                   \
  X(REAL_H2D, "h2d", true, "a copy from the host")                                                 \
  X(REAL_D2D, "d2d", true, "a copy on the device, or between devices")                             \
  X(REAL_WAIT, "wait", true, "the stream waits for an event from here on")                         \
  X(REAL_RECORD, "record", true, "an event is recorded on the stream")                             \
  X(REAL_STREAM_DONE, "stream_done", true, "the host waits for the stream")                        \
  X(REAL_EVENT_DONE, "event_done", false, "the host waits for an event")                           \
  X(REAL_ALL_DONE, "all_done", false, "the host waits for all streams")                            \
  X(REAL_CALL, "call", false, "a call of CUDA's runtime or driver")                                \
  X(REAL_OP, "op", false, "an operator of the framework")                                          \
  X(REAL_ANNOTATION, "annotation", false, "a named stretch of the host's work: a step, a message")

typedef enum real_span_kind {
#define X(id, name, on_stream, meaning) id,
  REAL_SPANS(X)
#undef X
      REAL_SPAN_KINDS
} real_span_kind;

const char *real_span_name(real_span_kind kind);
bool real_span_is_on_stream(real_span_kind kind);

/* A kernel, a memset or a copy: it takes time on its stream. */
static inline bool real_span_is_work(real_span_kind kind)
{
  return kind <= REAL_D2D;
}

static inline bool real_span_is_copy(real_span_kind kind)
{
  return kind == REAL_D2H || kind == REAL_H2D;
}

#define REAL_NONE UINT32_MAX

typedef struct real_span {
  int64_t begin_ns, end_ns; /* of the host's clock */
  const char *name;
  int64_t bytes;        /* of a copy or memset; of what names an event its number; else -1 */
  uint32_t track;       /* of streams or threads */
  uint32_t correlation; /* joins work and the call that issued it; 0: unknown */
  uint32_t pass;        /* of work: set by real_run_finish; REAL_NONE: outside passes */
  uint8_t kind;         /* real_span_kind */
  bool pageable;        /* a copy from or to host memory that is not page-locked */
} real_span;

typedef struct real_span_array {
  real_span *items;
  uint32_t count, capacity;
} real_span_array;

/* How a stream waits for others by itself: not at all; for the legacy default stream; it is that, which
 * waits for those. */
typedef enum real_stream_kind {
  REAL_STREAM_ALONE,
  REAL_STREAM_BLOCKING,
  REAL_STREAM_LEGACY,
  REAL_STREAM_KINDS
} real_stream_kind;

/* A stream (process: its device) or a host thread. */
typedef struct real_track {
  int64_t process, id;
  const char *name; /* "" unless the file names it */
  uint8_t kind;     /* of a stream: real_stream_kind */
} real_track;

typedef struct real_track_array {
  real_track *items;
  uint32_t count, capacity;
} real_track_array;

/* ---- where ranks meet ---- */

/* A rank's part of a collective in which each rank needs what every other one gives, or of a message. */
typedef struct real_meeting {
  int64_t begin_ns, end_ns;
  const char *group; /* of a collective: its ranks */
  const char *name;  /* "allreduce" */
  int64_t from, to;  /* of a message: global ranks; else -1 */
  bool is_sender;    /* of a message */
} real_meeting;

typedef struct real_meeting_array {
  real_meeting *items;
  uint32_t count, capacity;
} real_meeting_array;

/* ---- passes: forward and backward of one chunk of one micro-batch ---- */

typedef enum real_pass_kind {
  REAL_FORWARD,
  REAL_BACKWARD,
  REAL_FINISH,
  REAL_PASS_KINDS
} real_pass_kind;
const char *real_pass_name(real_pass_kind kind);

typedef struct real_pass {
  real_pass_kind kind;
  uint32_t number;                      /* among the passes of its kind, from 0 */
  int64_t begin_ns, end_ns;             /* of its work on streams other than those of copies */
  int64_t issued_from_ns, issued_to_ns; /* by the host */
  uint64_t key; /* of a pass that the file names: its micro-batch and chunk; else 0 */
} real_pass;

typedef struct real_pass_array {
  real_pass *items;
  uint32_t count, capacity;
} real_pass_array;

/* ---- memory ---- */

typedef struct real_frame {
  const char *function, *file;
  uint32_t line;
} real_frame;

typedef struct real_frame_array {
  real_frame *items;
  uint32_t count, capacity;
} real_frame_array;

/* Innermost frame first. Stack 0 is empty: unknown. */
typedef struct real_stack {
  uint32_t first, count; /* of frame_numbers */
} real_stack;

typedef struct real_stack_array {
  real_stack *items;
  uint32_t count, capacity;
} real_stack_array;

typedef struct real_number_array {
  uint32_t *items;
  uint32_t count, capacity;
} real_number_array;

/* In the order in which the allocator did it. */
typedef enum real_memory_kind {
  REAL_ALLOC,
  REAL_FREE,      /* the tensor is gone; a stream may still use the block */
  REAL_FREE_DONE, /* the block can be used again */
  REAL_SEGMENT,   /* obtained from the driver */
  REAL_SEGMENT_FREE,
  REAL_OUT_OF_MEMORY,
  REAL_MEMORY_KINDS
} real_memory_kind;

const char *real_memory_name(real_memory_kind kind);

typedef struct real_memory_event {
  int64_t time_ns; /* whole microseconds in snapshots */
  uint64_t address;
  int64_t bytes;  /* requested; of segments whole */
  int64_t stream; /* its handle: another number than a track's */
  uint32_t stack;
  uint8_t kind; /* real_memory_kind */
} real_memory_event;

typedef struct real_memory_array {
  real_memory_event *items;
  uint32_t count, capacity;
} real_memory_array;

/* A block that is in use when the record ends. */
typedef struct real_block {
  uint64_t address;
  int64_t bytes, requested_bytes;
  int64_t stream;
  uint32_t stack;
  bool pending; /* freed; a stream may still use it */
} real_block;

typedef struct real_block_array {
  real_block *items;
  uint32_t count, capacity;
} real_block_array;

/* ---- the run ---- */

typedef struct real_run {
  arena *memory;
  intern_table texts;
  const char *sources;   /* "Kineto trace", "memory snapshot", with "and" between */
  const char *gpu_name;  /* "NVIDIA H200"; "": unknown */
  int64_t rank;          /* -1: unknown */
  int64_t world_size;    /* -1: unknown */
  real_span_array spans; /* by begin, once finished */
  real_track_array streams, threads;
  real_meeting_array meetings;
  real_pass_array passes;  /* empty: the record does not resolve them */
  bool passes_are_timed;   /* the file gave their times */
  bool waits_are_resolved; /* events are in it: what a wait waits for */
  bool has_times;          /* of the GPU; without, work begins and ends when it was issued */

  real_memory_array events;
  real_block_array blocks;
  int64_t segments_bytes; /* at the end */
  real_frame_array frames;
  real_number_array frame_numbers;
  real_stack_array stacks;
  intern_table frame_table, stack_table;
  bool has_profile, has_memory, is_finished;
} real_run;

void real_run_init(real_run *r, arena *memory);
void real_run_release(real_run *r);

/* Adds a file; its first bytes show its format. `rank`: of files that have several, offsim's own
 * records and exports of Nsight Systems. False after a diag error with the offset in the (unpacked)
 * file. Release the run in either case. */
bool real_run_read(real_run *r, const char *path, uint32_t rank, diag *d);
/* The same of bytes in memory, for tests. */
bool real_run_read_bytes(real_run *r, const char *name, const uint8_t *bytes, size_t count,
                         diag *d);

/* What a file is, by its first bytes; without a message. */
typedef enum real_file { REAL_FILE_OTHER, REAL_FILE_RUN, REAL_FILE_OWN_RECORD } real_file;
real_file real_run_file_kind(const char *path);

/* After the last file: sorts the spans, finds the passes. False after a diag error: a profile and a
 * snapshot that are not of one run, two GPUs in one file. */
bool real_run_finish(real_run *r, diag *d);

/* Keeps the last passes, if they are of these kinds and others come before them: the last step of
 * several. Returns how many passes it dropped. */
uint32_t real_run_keep_last(real_run *r, const real_pass_kind *kinds, uint32_t count);

/* Writes it as a record that real_run_read reads. False after a diag error: the file cannot be written. */
bool real_run_write(const real_run *r, const char *path, diag *d);

/* ---- for readers ---- */

const char *real_run_text(real_run *r, const char *text, size_t length);
uint32_t real_run_stream(real_run *r, int64_t device, int64_t stream);
uint32_t real_run_thread(real_run *r, int64_t process, int64_t thread);
uint32_t real_run_frame(real_run *r, const real_frame *frame);
/* The pass of work whose file names it: "forward", micro-batch and chunk. REAL_NONE before all
 * passes ("setup"). */
uint32_t real_run_pass(real_run *r, const char *phase, uint32_t microbatch, uint32_t chunk);
uint32_t real_run_stack(real_run *r, const uint32_t *frames, uint32_t count);
void real_run_note_source(real_run *r, const char *source);

#endif
