#include "sim/exec/runs.h"

#include <assert.h>

view_runs runs_of(const plan_view *v)
{
  assert(v->rank <= PLAN_VIEW_DIMS && v->offset >= 0);
  view_runs w = { .view = v, .length = 1, .outer = v->rank, .at = v->offset };
  while (w.outer > 0 && (v->shape[w.outer - 1] == 1 || v->strides[w.outer - 1] == w.length))
    w.length *= v->shape[--w.outer];
  w.over = view_elements(v) == 0;
  return w;
}

bool runs_next(view_runs *w, int64_t *at)
{
  if (w->over) return false;
  *at = w->at;
  int i = w->outer - 1;
  for (; i >= 0; i--) {
    w->at += w->view->strides[i];
    if (++w->index[i] < w->view->shape[i]) break;
    w->at -= w->index[i] * w->view->strides[i];
    w->index[i] = 0;
  }
  w->over = i < 0;
  assert(w->length > 0 && i < w->outer);
  return true;
}

int64_t view_reach(const plan_view *v)
{
  assert(v->rank <= PLAN_VIEW_DIMS && v->offset >= 0);
  if (view_elements(v) == 0) return 0;
  int64_t last = v->offset;
  for (int i = 0; i < v->rank; i++)
    if (v->strides[i] > 0) last += (v->shape[i] - 1) * v->strides[i];
  return last + 1;
}
