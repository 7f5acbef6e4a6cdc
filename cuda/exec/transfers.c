/* Copies between device and host, and files, for which the stream runs a host function. */
#include <assert.h>
#include <stdlib.h>

#include "cuda/exec/state.h"
#include "sim/exec/runs.h"

/* ---- copies ---------------------------------------------------------------------------------- */

/* Runs at equal distances along the next dimension are one copy of rows. */
static int64_t rows_of(const view_runs *w, const plan_view *v)
{
  assert(w->outer >= 0 && w->outer <= v->rank);
  bool has_rows = w->outer > 0 && v->strides[w->outer - 1] >= w->length;
  return has_rows ? v->shape[w->outer - 1] : 1;
}

typedef struct rows {
  int64_t count, row_bytes, pitch_bytes; /* the pitch is that of the device's side */
} rows;

/* Both sides of a copy: parts of the device's buffer, in order, are contiguous in the host's. */
static const char *copy_rows(rank_run *r, const op_call *c, unsigned char *seen,
                             unsigned char *contiguous, rows part)
{
  gpu_stream *stream = r->queue.streams[c->op->stream];
  bool out = c->op->kind == OP_D2H;
  unsigned char *to = out ? contiguous : seen, *from = out ? seen : contiguous;
  gpu_copy_kind kind = out ? GPU_D2H : GPU_H2D;
  assert(part.count >= 1 && part.row_bytes > 0);
  if (part.count == 1) return r->driver->copy(to, from, part.row_bytes, kind, stream);
  return r->driver->copy_rows(to, out ? part.row_bytes : part.pitch_bytes, from,
                              out ? part.pitch_bytes : part.row_bytes, part.row_bytes, part.count,
                              kind, stream);
}

static const char *copy_view(rank_run *r, const op_call *c)
{
  uint32_t device = copy_device_operand(c->op);
  const plan_view *v = &c->views[device];
  const plan_view *host = &c->views[!device];
  unsigned char *contiguous =
      op_buffer(r, c, !device)->data + host->offset * dtype_bytes((dtype)host->dtype);
  unsigned char *next = contiguous;
  unsigned char *seen = op_buffer(r, c, device)->data;
  view_runs w = runs_of(v);
  int64_t size = dtype_bytes((dtype)v->dtype), row_bytes = w.length * size, at;
  int64_t pitch_bytes = w.outer > 0 ? v->strides[w.outer - 1] * size : row_bytes;
  rows part = { rows_of(&w, v), row_bytes, pitch_bytes };
  const char *why = NULL;
  for (int64_t i = 0; why == NULL && runs_next(&w, &at); i++) {
    if (i % part.count != 0) continue;
    why = copy_rows(r, c, seen + at * size, next, part);
    next += part.count * row_bytes;
  }
  assert(why != NULL || next == contiguous + view_elements(v) * size);
  return why;
}

void copy_issue(rank_run *r, const op_call *c)
{
  assert(c->op->kind == OP_D2H || c->op->kind == OP_H2D);
  if (c->op->kind == OP_H2D) r->host.last_back = c->op->stream;
  assert(c->count == 2 && op_buffer(r, c, 1)->state == HELD);
  rank_ok(r, copy_view(r, c));
}

/* ---- files ----------------------------------------------------------------------------------- */

typedef struct transfer {
  rank_run *rank;
  uint32_t op;
  bool writes;
  void *memory;
  int64_t bytes, at;
} transfer;

/* Runs on a thread other than the rank's: it must not call the driver. */
static void run(void *context)
{
  transfer *t = context;
  assert(t->memory != NULL && t->bytes >= 0 && t->at >= 0);
  exec_disk *disk = &t->rank->exec->disk;
  diag d = { 0 };
  bool done = t->writes ? disk_write(disk, t->at, t->memory, t->bytes, &d)
                        : disk_read(disk, t->at, t->memory, t->bytes, &d);
  if (!done) op_refused(t->rank, t->op, d.message);
  free(t);
}

void file_issue(rank_run *r, const op_call *c)
{
  bool writes = c->op->kind == OP_DISK_WRITE;
  const held_buffer *file = op_buffer(r, c, writes ? 1 : 0);
  const held_buffer *memory = op_buffer(r, c, writes ? 0 : 1);
  assert(c->op->kind == OP_DISK_WRITE || c->op->kind == OP_DISK_READ);
  assert(file->data == NULL && memory->data != NULL);
  transfer *t = malloc(sizeof *t);
  if (t == NULL) die_refused("memory: none is left for a transfer of a file");
  *t = (transfer){ r, r->sink.at, writes, memory->data, memory->bytes, file->file_at };
  const char *why = r->driver->call(run, t, r->queue.streams[c->op->stream]);
  if (why != NULL) free(t);
  rank_ok(r, why);
}
