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

/* A copy of parts of a buffer is contiguous in the target. */
static const char *copy_view(rank_run *r, unsigned char *target, const op_call *c)
{
  unsigned char *to = target;
  const plan_view *v = &c->views[0];
  const unsigned char *from = op_buffer(r, c, 0)->data;
  gpu_stream *stream = r->queue.streams[c->op->stream];
  gpu_copy_kind kind = c->op->kind == OP_D2H ? GPU_D2H : GPU_H2D;
  view_runs w = runs_of(v);
  int64_t size = dtype_bytes((dtype)v->dtype), bytes = w.length * size, rows = rows_of(&w, v), at;
  const char *why = NULL;
  assert(rows >= 1 && bytes > 0);
  for (int64_t i = 0; why == NULL && runs_next(&w, &at); i++) {
    if (i % rows != 0) continue;
    why = rows == 1
              ? r->driver->copy(to, from + at * size, bytes, kind, stream)
              : r->driver->copy_rows(to, bytes, from + at * size, v->strides[w.outer - 1] * size,
                                     bytes, rows, kind, stream);
    to += rows * bytes;
  }
  assert(why != NULL || to == target + view_elements(v) * size);
  return why;
}

void copy_issue(rank_run *r, const op_call *c)
{
  assert(c->op->kind == OP_D2H || c->op->kind == OP_H2D);
  if (c->op->kind == OP_H2D) r->host.last_back = c->op->stream;
  assert(c->count == 2 && op_buffer(r, c, 1)->state == HELD);
  rank_ok(r, copy_view(r, op_buffer(r, c, 1)->data, c));
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
