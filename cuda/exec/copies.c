/* Copies between device and host. What is copied of a buffer in parts comes out without gaps. */
#include "cuda/exec/state.h"
#include "ref/exec/runs.h"

/* A view whose runs lie at equal distances: one dimension above the run. */
static bool is_rows(const view_runs *w)
{
  return w->outer == 1;
}

static const char *copy_view(rank_run *r, unsigned char *to, const op_call *c)
{
  const plan_view *v = &c->views[0];
  const unsigned char *from = r->buffers[op_operand(r, c, 0)].data;
  gpu_stream *stream = r->streams[c->op->stream];
  gpu_copy_kind kind = c->op->kind == OP_D2H ? GPU_D2H : GPU_H2D;
  view_runs w = runs_of(v);
  int64_t size = dtype_bytes((dtype)v->dtype), at, bytes = w.length * size;
  if (is_rows(&w) && !w.over)
    return r->driver->copy_rows(to, bytes, from + v->offset * size, v->strides[0] * size, bytes,
                                v->shape[0], kind, stream);
  for (const char *why; runs_next(&w, &at); to += bytes)
    if ((why = r->driver->copy(to, from + at * size, bytes, kind, stream)) != NULL) return why;
  return NULL;
}

void copy_issue(rank_run *r, const op_call *c)
{
  if (c->op->kind == OP_H2D) r->host.last_back = c->op->stream;
  rank_ok(r, copy_view(r, r->buffers[op_operand(r, c, 1)].data, c));
}
