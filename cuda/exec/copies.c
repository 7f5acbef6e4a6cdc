/* Copies between device and host. What is copied of a buffer in parts comes out without gaps. */
#include "cuda/exec/state.h"
#include "sim/exec/runs.h"

/* Runs that the innermost dimension above them lays at equal distances: one copy of rows. */
static int64_t rows_of(const view_runs *w, const plan_view *v)
{
  bool has_rows = w->outer > 0 && v->strides[w->outer - 1] >= w->length;
  return has_rows ? v->shape[w->outer - 1] : 1;
}

static const char *copy_view(rank_run *r, unsigned char *to, const op_call *c)
{
  const plan_view *v = &c->views[0];
  const unsigned char *from = r->buffers[op_operand(r, c, 0)].data;
  gpu_stream *stream = r->streams[c->op->stream];
  gpu_copy_kind kind = c->op->kind == OP_D2H ? GPU_D2H : GPU_H2D;
  view_runs w = runs_of(v);
  int64_t size = dtype_bytes((dtype)v->dtype), bytes = w.length * size, rows = rows_of(&w, v), at;
  const char *why = NULL;
  for (int64_t i = 0; why == NULL && runs_next(&w, &at); i++) {
    if (i % rows != 0) continue;
    why = rows == 1
              ? r->driver->copy(to, from + at * size, bytes, kind, stream)
              : r->driver->copy_rows(to, bytes, from + at * size, v->strides[w.outer - 1] * size,
                                     bytes, rows, kind, stream);
    to += rows * bytes;
  }
  return why;
}

void copy_issue(rank_run *r, const op_call *c)
{
  if (c->op->kind == OP_H2D) r->host.last_back = c->op->stream;
  rank_ok(r, copy_view(r, r->buffers[op_operand(r, c, 1)].data, c));
}
