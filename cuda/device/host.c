/* The host driver: work on its streams, and the table. */
#include <string.h>

#include "cuda/device/host_memory.h"
#include "cuda/device/host_stream.h"

/* ---- work ---- */

typedef struct rows_copy {
  unsigned char *to;
  const unsigned char *from;
  int64_t to_pitch_bytes, from_pitch_bytes, run_bytes, rows;
} rows_copy;

static void run_rows_copy(void *context)
{
  const rows_copy *c = context;
  for (int64_t i = 0; i < c->rows; i++)
    memcpy(c->to + i * c->to_pitch_bytes, c->from + i * c->from_pitch_bytes, (size_t)c->run_bytes);
}

static const char *copy_rows(void *to, int64_t to_pitch_bytes, const void *from,
                             int64_t from_pitch_bytes, int64_t run_bytes, int64_t rows,
                             gpu_copy_kind kind, gpu_stream *stream)
{
  (void)kind;
  rows_copy c = { to, from, to_pitch_bytes, from_pitch_bytes, run_bytes, rows };
  host_stream_run(stream, run_rows_copy, &c, sizeof c);
  return NULL;
}

static const char *copy(void *to, const void *from, int64_t bytes, gpu_copy_kind kind,
                        gpu_stream *stream)
{
  return copy_rows(to, bytes, from, bytes, bytes, 1, kind, stream);
}

typedef struct filling {
  void *to;
  int64_t bytes;
  uint8_t byte;
} filling;

static void run_fill(void *context)
{
  const filling *f = context;
  memset(f->to, f->byte, (size_t)f->bytes);
}

static const char *fill(void *to, uint8_t byte, int64_t bytes, gpu_stream *stream)
{
  filling f = { to, bytes, byte };
  host_stream_run(stream, run_fill, &f, sizeof f);
  return NULL;
}

typedef struct host_call {
  void (*function)(void *context);
  void *context;
} host_call;

static void run_call(void *context)
{
  const host_call *c = context;
  c->function(c->context);
}

static const char *call(void (*function)(void *context), void *context, gpu_stream *stream)
{
  host_call c = { function, context };
  host_stream_run(stream, run_call, &c, sizeof c);
  return NULL;
}

static void expect_gates(void)
{
}

static const char *last_error(void)
{
  return NULL;
}

const gpu_driver gpu_driver_host = {
  .name = "host",
  .expect_gates = expect_gates,
  .count = host_count,
  .use = host_use,
  .describe = host_describe,
  .memory = host_memory,
  .connect = host_connect,
  .space_new = host_space_new,
  .space_map = host_space_map,
  .space_unmap = host_space_unmap,
  .space_delete = host_space_delete,
  .allocate = host_allocate,
  .release = host_release,
  .allocate_async = host_allocate_async,
  .release_async = host_release_async,
  .pool_used = host_pool_used,
  .pool_reset_high = host_pool_reset_high,
  .allocate_pinned = host_allocate_pinned,
  .release_pinned = host_release_pinned,
  .stream_new = host_stream_new,
  .stream_wait = host_stream_wait,
  .stream_synchronize = host_stream_synchronize,
  .stream_delete = host_stream_delete,
  .event_new = host_event_new,
  .event_record = host_event_record,
  .event_synchronize = host_event_synchronize,
  .event_done = host_event_done,
  .event_delete = host_event_delete,
  .copy = copy,
  .copy_rows = copy_rows,
  .fill = fill,
  .call = call,
  .gate_new = host_gate_new,
  .gate_wait = host_gate_wait,
  .gate_open = host_gate_open,
  .gate_delete = host_gate_delete,
  .capture_begin = host_capture_begin,
  .capture_launch = host_capture_launch,
  .graph_delete = host_graph_delete,
  .last_error = last_error,
};
