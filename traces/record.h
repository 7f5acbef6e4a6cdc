/*
 * A record of one or more iterations, in the form that the simulator and the executors write, so
 * that two runs can be compared op by op (docs/reference/traces.md).
 *
 * A file is text, one JSON object on each line: a header, then one line for each op that a stream
 * ran, in the order in which they ended, then the durations of steps and each rank's figures. An op
 * is identified by step, rank and its index in the rank's plan; a fingerprint identifies what it
 * wrote. The ops of some steps may be missing.
 *
 * Texts of a trace are pointers into an intern table: in traces that share a table, equal texts are
 * equal pointers.
 */
#ifndef OFFSIM_TRACES_RECORD_H
#define OFFSIM_TRACES_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/array.h"
#include "sim/base/diag.h"
#include "sim/base/file.h"
#include "sim/plan/intern.h"

enum { TRACE_FORMAT_VERSION = 2, TRACE_RANKS = 65536, TRACE_STEPS = 1000000, TRACE_OUTPUTS = 255 };

typedef struct trace_header {
  const char *source;   /* "sim", "ref" or "cuda" */
  const char *scenario; /* the file that was run */
  uint32_t ranks, steps;
} trace_header;

/* A buffer that an op wrote. */
typedef struct trace_output {
  const char *buffer;      /* its tensor's name */
  bool known;              /* false: its contents were not read */
  uint64_t fingerprint[2]; /* XXH3 of the bytes: high, low */
} trace_output;

typedef struct trace_op {
  uint32_t step, rank; /* rank: global */
  uint32_t op;         /* index into the plan's ops of the rank */
  const char *kind;    /* "kernel" */
  const char *name;    /* "gemm"; without a call, the op's kind */
  const char *call;    /* "gemm bf16 m=4096 ...": name, type and sizes as in a plan; else "" */
  const char *stream;
  int32_t layer;      /* -1: outside the layers */
  const char *module; /* "" outside the modules */
  const char *phase;  /* "forward" */
  uint32_t microbatch, chunk;
  int64_t begin_ps, end_ps; /* 0: no clock */
  /* Of the rank, when the host issues the op; requested: each buffer rounded up to 512. 0: unknown,
   * except for requested_bytes. */
  int64_t requested_bytes, live_bytes, reserved_bytes, host_bytes;
  uint32_t first_output, output_count;
  uint32_t place; /* set by trace_read: its index in the file, 0 for the first op */
} trace_op;

typedef struct trace_op_array {
  trace_op *items;
  uint32_t count, capacity;
} trace_op_array;

typedef struct trace_output_array {
  trace_output *items;
  uint32_t count, capacity;
} trace_output_array;

/* Figures of a rank; -1: unknown. Peaks are over all steps. */
/* clang-format off */
#define TRACE_FIGURES(X)                                                                           \
  X(requested_peak_bytes, "requested device memory, each buffer rounded up to 512")       \
  X(allocated_peak_bytes, "the same as whole blocks: what torch calls allocated")                  \
  X(live_peak_bytes, "blocks in use, or freed and waiting for a stream")                           \
  X(reserved_peak_bytes, "what the allocator has taken from the driver")                           \
  X(pinned_peak_bytes, "page-locked host memory")                                                  \
  X(driver_used_bytes, "of the rank's GPU, as the driver reports it, at the end")                    \
  X(outside_bytes, "device memory outside the allocator: scratch and workspaces of libraries")      \
  X(exposed_d2h_ps, "compute was idle because of a copy to the host")                           \
  X(exposed_h2d_ps, "... because of a copy from the host")                                         \
  X(theoretical_saving_bytes, "of offload, from schedule and group sizes alone")
/* clang-format on */
#define TRACE_FIGURE(name, meaning) int64_t name;
typedef struct trace_figures {
  TRACE_FIGURES(TRACE_FIGURE)
} trace_figures;
#undef TRACE_FIGURE

/* All figures are unknown. */
trace_figures trace_no_figures(void);

typedef struct trace {
  trace_header header;
  trace_figures *figures; /* [header.ranks] */
  int64_t *steps_ps;      /* [header.steps]; 0: no clock */
  trace_op_array ops;     /* by rank, step and op */
  trace_output_array outputs;
} trace;

/* ---- writing ---- */

typedef struct trace_writer {
  file_writer file;
} trace_writer;

/* The file appears when the writer is closed. Both are false after a diag error: it cannot be written. */
bool trace_open(trace_writer *w, const char *path, const trace_header *h, diag *d);
/* The same into an open stream, which the caller closes. */
void trace_begin(trace_writer *w, FILE *stream, const trace_header *h);
/* `first_output` and `place` are ignored; `outputs` has `output_count` items. */
void trace_put(trace_writer *w, const trace_op *op, const trace_output *outputs);
/* After all ops: the durations of all steps, and each rank's figures. */
void trace_put_steps(trace_writer *w, const int64_t *steps_ps, uint32_t count);
void trace_put_figures(trace_writer *w, uint32_t rank, const trace_figures *f);
bool trace_close(trace_writer *w, diag *d);
void trace_discard(trace_writer *w);

/* ---- reading ---- */

/* False after a diag error at file:line:column. Release the trace in either case. "-" is standard
 * input. */
bool trace_read(trace *t, const char *path, intern_table *texts, diag *d);
/* The same of an open stream, which `file` names. */
bool trace_read_stream(trace *t, const char *file, FILE *stream, intern_table *texts, diag *d);
void trace_release(trace *t);

#endif
